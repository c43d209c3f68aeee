"""Whether a coordinate decides a distance alone because of its unit."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.scaled import ScaledDistance, coordinate_spread
from gp_distributions.kernels.default import geometry_of
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.mixed_inputs import MixedInputs

# A coordinate decides alone if the others together have less than this share of the variance.
_REST = 0.01


def unit_findings(kernel: Kernel, X: Inputs | Tensor, rows: Tensor) -> tuple[str, ...]:
    """Find coordinates that carry nearly all of a distance, each in a sentence with advice.

    A coordinate carries nearly all if it has more than 99% of the summed variances of the atoms.
    Positions in a space and normals do not count, and neither do coordinates with factors of their own,
    as in a :class:`ScaledDistance`.

    Args:
        kernel: The kernel.
        X: The inputs, which tell whether coordinates are positions. A tensor does not: it has no
            findings.
        rows: Their rows as the kernel sees them.
    """
    if isinstance(X, Tensor):
        return ()
    names = X.encoding.columns.items() if isinstance(X, MixedInputs) else ()
    found = {}
    for part, block in distribution_kernels(kernel):
        name = next((name for name, columns in names if columns == block.columns), None)
        source = X.blocks.get(name or "") if isinstance(X, MixedInputs) else X
        if any(geometry_of(source).values()) or not _keeps_units(part.distance):
            continue
        variances = coordinate_spread(block, block.select(rows)).square()
        varies = variances > 0
        if int(varies.sum()) > 1 and variances.max() > (1 - _REST) * variances.sum():
            of = "" if name is None else f" of block {name!r}"
            found[block] = (
                f"Coordinate {int(variances.argmax())}{of} has more than {1 - _REST:.0%} of the "
                f"variance of all {len(variances)} coordinates, probably because of its unit, so that "
                f"{type(part.distance).__name__} hardly sees the others. Pass no kernel; or put its "
                "distance into a ScaledDistance; or normalise the clouds, with "
                "PointClouds.normalize."
            )
    return tuple(found.values())


def _keeps_units(distance: Distance) -> bool:
    """Whether a distance adds coordinates in their units, which it has not been told."""
    # A kernel between atoms may have a lengthscale for each coordinate, and so may frequencies.
    told = not isinstance(getattr(distance, "kernel", ""), str)
    told = told or getattr(distance, "measure", "") == "given"
    scaled = any(isinstance(part, ScaledDistance) for part in distance.modules())
    return distance.reads_coordinates and not (told or scaled or distance.rotating)
