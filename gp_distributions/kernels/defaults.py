"""Kernels to compare when nothing is known of the data but their kind and dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel

from gp_distributions.distances.base import Distance
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.rigid_sliced_wasserstein import RigidSlicedWasserstein, can_turn
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.transport import LinearTransport
from gp_distributions.kernels.default import in_spread, in_units_of
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.mixed import mixed_kernel
from gp_distributions.measures.gaussians import KINDS, Distributions, GaussianMixtures
from gp_distributions.measures.inputs import Inputs, distributions_of
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure

# A smooth and a rough profile.
_PROFILES = ("matern52", "exponential")
# The small scale of MMD, as a share of the median distance between atoms.
_SMALL = 0.2
# Up to so many pairs of atoms, MMD is exact; beyond, it has so many features.
_PAIRS, _FEATURES = 2e9, 500
# The reference of linear transport has so many atoms. It is the mean shape of at most so many clouds,
# of which each is thinned to at most so many atoms.
_REFERENCE, _CLOUDS, _ATOMS = 20, 50, 100
# A mean shape that is smaller than this share of the median distance between atoms is a point.
_POINT = 1e-6


def default_kernels(X: Inputs, *, scales: Sequence[float] = (), seed: int = 0) -> dict[str, Kernel]:
    """Make kernels that cover what "Choosing a kernel" distinguishes, as candidates of :func:`compare`.

    The distances between clouds are sliced Wasserstein of order 2 (``"sw2"``), of order 1 (``"sw1"``)
    and of centred clouds (``"centred"``); :class:`MMD` with a Gaussian kernel at the median distance
    between atoms (``"mmd"``) and at a fifth of it (``"mmd small"``); the energy distance
    (``"energy"``); :class:`LinearTransport` to a mean shape of 20 atoms (``"transport"``); and in two
    and three dimensions :class:`RigidSlicedWasserstein` (``"rigid"``). Each has the profiles
    ``"matern52"`` and ``"exponential"``, which share its distances, so that the clouds are embedded
    only once. For bags, which are not ``geometric``, :class:`MMD` at the median distance also has the
    profile ``"linear"``, for targets that are averages over atoms. All measure each coordinate in its
    spread over ``X``, and see the sizes of bags if they vary (:class:`ScaledDistance`). With more than
    44,721 atoms, MMD has 500 features, and the energy distance is left out; linear transport is left
    out if the mean shape is a point, as for clouds of one atom.

    :class:`Gaussians` have those distances that have closed forms, and :class:`GaussianMixtures` MMD
    at three scales. For :class:`MixedInputs`, each kernel is the product of such a kernel for each
    block of distributions and of the default kernel of the covariates; the structures ``"sum"`` and
    ``"sum+product"`` of :func:`mixed_kernel` join in with the first distance.

    Args:
        X: The training inputs.
        scales: By how much each coordinate counts, beyond its spread: ``model.choice.scales`` of a
            fitted model without a kernel. Coordinates of the blocks of mixed inputs follow each other.
            By default, all count alike, and they do for ``"rigid"``. Scales that have seen the targets
            flatter all candidates alike.
        seed: Random seed for the distances.

    Returns:
        The kernels by name, such as ``"sw2 matern52"``, with outputscales.

    Raises:
        TypeError: If ``X`` are not distributions or mixed inputs.
        ValueError: If all atoms coincide, or ``scales`` are not a positive number for each coordinate
            of distributions.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.kernels import default_kernels
        >>> generator = torch.Generator().manual_seed(0)
        >>> X = PointClouds(torch.randn(10, 8, 1, generator=generator, dtype=torch.float64))
        >>> list(default_kernels(X))[:4]
        ['sw2 matern52', 'sw2 exponential', 'sw1 matern52', 'sw1 exponential']
    """
    if not isinstance(X, MixedInputs | Distributions):
        raise TypeError(
            "Expected PointClouds, Gaussians, GaussianMixtures or MixedInputs, got "
            f"{type(X).__name__}."
        )
    dim = sum(block.dim for block in distributions_of(X).values())
    if len(scales) not in (0, dim) or not all(0 < scale < math.inf for scale in scales):
        raise ValueError(
            f"Expected a positive, finite scale for each of {dim} coordinates, got {[*scales]}."
        )
    if isinstance(X, MixedInputs):
        return _of_mixed(X, seed, scales)
    distances = _distances(X, seed, scales)
    kernels: dict[str, Kernel] = {
        f"{name} {profile}": ScaleKernel(DistributionKernel(distance, profile))
        for name, distance in distances.items()
        for profile in _PROFILES
    }
    if isinstance(X, PointClouds) and not X.geometric:
        kernels["mmd linear"] = ScaleKernel(DistributionKernel(distances["mmd"], "linear"))
    return kernels


def _distances(X: Distributions, seed: int, scales: Sequence[float] = ()) -> dict[str, Distance]:
    """Return distances between distributions of the kind of ``X``, the usual first."""
    dim = X.dim
    options: dict[str, Any] = {"inputs": KINDS[type(X)], "seed": seed}
    median = _mmd(X, options)
    rows = X.pack()
    in_units_of(X, median, scales, sizes=False).adapt(rows)
    assert median.bandwidth is not None
    found: dict[str, Distance] = {}
    if not isinstance(X, GaussianMixtures):
        found["sw2"] = SlicedWasserstein(dim, **options)
        found["sw1"] = SlicedWasserstein(dim, p=1, **options)
        found["centred"] = SlicedWasserstein(dim, center=True, **options)
    found["mmd"] = median
    found["mmd small"] = _mmd(X, options, _SMALL * median.bandwidth.item())
    if isinstance(X, GaussianMixtures):
        found["mmd large"] = _mmd(X, options, median.bandwidth.item() / _SMALL)
    if isinstance(X, PointClouds):
        if median.num_features is None:
            found["energy"] = MMD(dim, kernel="energy", seed=seed)
        reference = _mean_shape(in_spread(X, scales), seed)
        if torch.pdist(reference.points).max() > _POINT * median.bandwidth:
            found["transport"] = LinearTransport(reference)
    normals = X.num_normals if isinstance(X, PointClouds) else 0
    if not isinstance(X, GaussianMixtures) and can_turn(dim, normals):
        found["rigid"] = RigidSlicedWasserstein(dim, inputs=KINDS[type(X)], normals=normals)
    found = {name: in_units_of(X, distance, scales) for name, distance in found.items()}
    for distance in found.values():
        distance.adapt(rows)
    return found


def _mean_shape(X: PointClouds, seed: int) -> ReferenceMeasure:
    """Return the mean shape of some clouds, which is nearly that of all."""
    generator = torch.Generator().manual_seed(seed)
    some = X[torch.randperm(len(X), generator=generator)[:_CLOUDS]]
    if int(some.sizes.max()) > _ATOMS:
        some = some.resample(_ATOMS, seed=seed)
    return ReferenceMeasure.from_data(some, _REFERENCE, "mean_shape", seed)


def _mmd(X: Distributions, options: dict[str, Any], bandwidth: float | None = None) -> MMD:
    """Make an MMD, by default at the median distance between the atoms that it sees first."""
    many = isinstance(X, PointClouds) and float(X.sizes.sum()) ** 2 > _PAIRS
    return MMD(X.dim, bandwidth=bandwidth, num_features=_FEATURES if many else None, **options)


def _of_mixed(X: MixedInputs, seed: int, scales: Sequence[float]) -> dict[str, Kernel]:
    left = iter(scales)
    distances = {
        name: _distances(block, seed, [*islice(left, block.dim)])
        for name, block in distributions_of(X).items()
    }
    names = dict.fromkeys(name for found in distances.values() for name in found)
    candidates: dict[str, Kernel] = {}
    for name in names or ["product"]:
        for profile in _PROFILES if names else [""]:
            # A block without this distance has its usual one.
            kernels = {
                block: DistributionKernel(found.get(name) or next(iter(found.values())), profile)
                for block, found in distances.items()
            }
            candidates[f"{name} {profile}".strip()] = mixed_kernel(X, kernels)
    if len(X.blocks) > 1:
        first = {
            block: DistributionKernel(next(iter(found.values())))
            for block, found in distances.items()
        }
        candidates["sum"] = mixed_kernel(X, first, structure="sum")
        candidates["sum+product"] = mixed_kernel(X, first, structure="sum+product")
    return candidates
