"""Does a marginal-likelihood fit cost more than one on a precomputed distance matrix?

Ours: ``fit(model, init="current", restarts=0)`` of a ``DistributionGP`` with
``ScaleKernel(SlicedWassersteinKernel(2, profile="gaussian"))``. It embeds the clouds,
compares them, and maximises the marginal likelihood from one start. Its memory is empty at first.

The reference: BoTorch's ``SingleTaskGP`` whose inputs are the numbers of the clouds. Its kernel holds
the matrix of squared distances, computed beforehand and not timed, and returns exp(-d^2 / (2 l^2)).
In training it uses the matrix without copying or indexing. ``fit_gpytorch_mll_scipy`` fits it under
the same settings as ours.

Both sides have the same likelihood, mean, outcome transform and starting values, and at most 30
iterations of L-BFGS. The script fails unless both evaluate the likelihood equally often and reach the
same hyperparameters.

    python -m benchmarks.fit_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import gpytorch
import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main
from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel, fit
from gp_distributions.warnings import ConvergenceWarning

ITERATIONS = {"maxiter": 30}


class PrecomputedKernel(Kernel):
    """exp(-d^2 / (2 l^2)) of precomputed squared distances between numbered objects."""

    has_lengthscale = True

    def __init__(self, squared: Tensor) -> None:
        super().__init__(
            lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log)
        )
        self.squared = squared

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariances between two columns of object numbers."""
        if diag:
            squared = self.squared[x1[..., 0].long(), x2[..., 0].long()]
            return torch.exp(-0.5 * (squared / self.lengthscale.square().squeeze(-1)))
        squared = self.squared
        if x1.shape[-2] != len(squared) or x2.shape[-2] != len(squared):
            squared = squared[x1[..., 0].long().unsqueeze(-1), x2[..., 0].long().unsqueeze(-2)]
        return torch.exp(-0.5 * (squared / self.lengthscale.square()))


def data(clouds: int, atoms: int) -> tuple[Tensor, Tensor]:
    """Gaussian clouds as rows, and noisy targets that depend on their means and spreads."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    spread = 0.2 + normal(clouds, 1, 1).abs()
    points = spread * normal(clouds, atoms, 2) + normal(clouds, 1, 2)
    targets = (2 * points[..., 0].mean(-1)).sin() + spread.flatten() + 0.1 * normal(clouds)
    return PointClouds(points).pack(), targets.unsqueeze(-1)


def ours(rows: Tensor, targets: Tensor) -> DistributionGP:
    """The model on clouds, at its starting values."""
    return DistributionGP(
        rows, targets, ScaleKernel(SlicedWassersteinKernel(2, profile="gaussian"))
    )


def precomputed(squared: Tensor, targets: Tensor, likelihood: Any) -> SingleTaskGP:
    """The same model on a matrix of squared distances."""
    numbers = torch.arange(len(squared), dtype=torch.float64).unsqueeze(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch advises to scale inputs; these are numbers
        return SingleTaskGP(
            numbers,
            targets,
            likelihood=copy.deepcopy(likelihood),
            covar_module=ScaleKernel(PrecomputedKernel(squared)),
        )


def fit_ours(model: DistributionGP) -> None:
    """Fit with the package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit(model, init="current", restarts=0, options=ITERATIONS)


def fit_precomputed(model: SingleTaskGP) -> None:
    """Fit in the same way without the package."""
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        warnings.simplefilter("ignore", OptimizationWarning)
        fit_gpytorch_mll_scipy(mll, options=ITERATIONS)
    model.eval()


def evaluations(model: SingleTaskGP, fitting: Callable[[Any], None]) -> int:
    """Fit, and count the evaluations of the marginal likelihood, which are in training mode."""
    forward, modes = model.forward, []

    def counted(X: torch.Tensor) -> Any:
        modes.append(model.training)
        return forward(X)

    with mock.patch.object(model, "forward", counted):
        fitting(model)
    return sum(modes)


def check_equal_work(a: SingleTaskGP, b: SingleTaskGP) -> tuple[int, float]:
    """Fit both models, and compare their evaluations and hyperparameters.

    Returns:
        The number of evaluations and the largest difference of a raw hyperparameter.

    Raises:
        RuntimeError: If the two sides did not do the same work.
    """
    counts = evaluations(a, fit_ours), evaluations(b, fit_precomputed)
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    difference = max(float((p - q).detach().abs().max()) for p, q in pairs)
    if counts[0] != counts[1] or difference > 1e-6:
        raise RuntimeError(
            f"The sides did not do the same work: {counts} evaluations, and hyperparameters that "
            f"differ by {difference:g}."
        )
    return counts[0], difference


def run(options: Options) -> list[Row]:
    """Return one row per number of clouds."""
    return [
        compare_fits(clouds, 20 if options.quick else 100, options.repeats)
        for clouds in ((30,) if options.quick else (500, 100, 1000))
    ]


def compare_fits(clouds: int, atoms: int, repeats: int) -> Row:
    """Time a fit of both models; the budget is for 500 clouds."""
    rows, targets = data(clouds, atoms)
    model = ours(rows, targets)
    squared = model.covar_module.base_kernel.distance.squared(rows)
    reference = precomputed(squared, targets, model.likelihood)
    count, difference = check_equal_work(copy.deepcopy(model), copy.deepcopy(reference))

    def side(model: SingleTaskGP, fitting: Callable[[Any], None]) -> Side:
        def prepare() -> Work:
            fresh = copy.deepcopy(model)  # carries the distance, not what it remembers
            return lambda: fitting(fresh)

        return prepare

    timings = interleave(
        {"ours": side(model, fit_ours), "precomputed": side(reference, fit_precomputed)},
        repeats=repeats,
        label=f"fit, T={clouds}",
    )
    return compare(
        f"fit / fit on precomputed distances, T={clouds} n={atoms} d=2",
        timings["ours"].median,
        timings["precomputed"].median,
        at_most=2.0 if clouds == 500 else None,
        ours_mib=timings["ours"].peak_mib,
        reference_mib=timings["precomputed"].peak_mib,
        evaluations=count,
        difference=difference,
    )


if __name__ == "__main__":
    main(__doc__, run)
