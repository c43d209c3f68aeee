"""The lengthscale that all atoms of labelled bags share, which labels that are left out choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from gpytorch.kernels import RBFKernel

from gp_distributions.fitting.starts import training_rows
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.numerics.sampling import (
    draw_atoms,
    median_distance,
)
from gp_distributions.rows.clouds import drop_copies

# Multiples of the median distance between atoms. A shorter one tells all bags apart.
_OF_MEDIAN = [2 ** (step / 2) for step in range(1, -6, -1)]
# The median is that of so many atoms.
_SAMPLED = 1000


class Lengthscale(NamedTuple):
    """A value of the lengthscale of a kernel of atoms."""

    kernel: RBFKernel
    value: float

    def set(self) -> None:
        """Give the kernel the value."""
        self.kernel.lengthscale = self.value


@contextmanager
def lengthscales_to_try(model: Any) -> Iterator[Sequence[Lengthscale | None]]:
    """Hold the lengthscale of a kernel of atoms fixed within a ``with`` block, and yield values for it.

    The marginal likelihood of transformed labels says little of how smooth the function of atoms is: it
    has several maxima, and the highest need not predict labels best. The values are multiples of the
    median distance between atoms, from 1.4 to 0.18.

    Args:
        model: A classifier.

    Yields:
        The values; None leaves the model as it is. That is the only one unless the kernel of the
        classifier is an :class:`ExpectedKernel` of clouds, with one RBF kernel, whose single lengthscale
        is to be learned and has no prior.
    """
    kernel = model.covar_module
    parts = [part for part in kernel.modules() if isinstance(part, RBFKernel)]
    if not isinstance(kernel, ExpectedKernel) or kernel.inputs != "clouds" or len(parts) != 1:
        yield [None]
        return
    (smooth,) = parts
    learned = smooth.raw_lengthscale.requires_grad and smooth.lengthscale.numel() == 1
    if not learned or list(smooth.named_priors()):
        yield [None]
        return
    points, weights = kernel.clouds(drop_copies(training_rows(model).detach()))
    points = points[..., : kernel.num_coordinates]
    columns = slice(None) if smooth.active_dims is None else smooth.active_dims
    median = median_distance(draw_atoms(points[..., columns], weights, _SAMPLED))
    smooth.raw_lengthscale.requires_grad_(False)
    try:
        yield (
            [Lengthscale(smooth, multiple * median) for multiple in _OF_MEDIAN]
            if median
            else [None]
        )
    finally:
        smooth.raw_lengthscale.requires_grad_(True)
