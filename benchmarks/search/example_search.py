"""Does a search of designs learned from examples find a good airfoil as soon as TuRBO?

A design is 9 numbers, the principal components of the 1,874 outlines of ``datasets.load_airfoils``
(``Decoder.from_examples``), each within 2 standard deviations. The objective is NeuralFoil's ratio of
lift to drag at 4 degrees and a Reynolds number of 1e6, times the gates of ``design_search``; an outline
that NeuralFoil cannot read counts as 0. 50 random evaluations and 250 chosen ones, in batches of ten.

- ``shapes``: ``DesignSearch(trust_region=True)`` with ``acquisition="thompson"``, and the default model.
- ``turbo``: TuRBO-1 on the 9 numbers as BoTorch's tutorial has it: Matern 5/2, a box whose sides follow
  the lengthscales, and Thompson sampling on a Sobol set of it.

Both start from the same 50 designs. Columns: the best value after so many evaluations, means over seeds
from 200, 3 of them unless ``--seeds`` says otherwise; its standard deviation at the end; the mean
difference to ``turbo`` at the end, paired by seed, with its standard error.

    python -m benchmarks.search.example_search [--quick] [--seeds 10]

Source: Eriksson et al. 2019 (TuRBO). The protocol follows a study of UIUC airfoils (Lancaster 2026,
Example-driven Parametrisations for Bayesian Shape Optimisation), whose objective and examples differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import normalize, standardize, unnormalize
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import Target
from benchmarks.search.designs import gated
from benchmarks.search.searches import level, paired
from benchmarks.shapes import some_airfoils
from gp_distributions.bayesopt import Decoder, DesignSearch
from gp_distributions.bayesopt.trust_region import side_after

LONG = True
SEEDS, FIRST = 3, 200
SHOWN = (100, 200, 300)


TARGETS = (
    Target(
        "designs from examples, 50 + 250 evaluations: best value above that of TuRBO-1",
        "at least minus a standard error",
        level("shapes", 1),
    ),
)


def ratio(outline: Tensor) -> float:
    """Return the gated lift-to-drag ratio of an outline, 0 if NeuralFoil cannot read it."""
    import neuralfoil

    points = outline.numpy()
    nose, x = points[:, 0].argmin(), np.linspace(0.02, 0.98, 97)
    upper, lower = (
        np.interp(x, side[:, 0], side[:, 1]) for side in (points[: nose + 1][::-1], points[nose:])
    )
    try:
        found = neuralfoil.get_aero_from_coordinates(points, alpha=4.0, Re=1e6)
    except (ValueError, RuntimeError, IndexError):
        return 0.0
    value = gated(found, float((upper - lower).max()))
    return value if np.isfinite(value) else 0.0


def turbo(
    evaluate: Callable[[Tensor], float], bounds: Tensor, first: Tensor, evaluations: int, q: int
) -> list[float]:
    """Return the values of the designs of a TuRBO-1 search, in units of the cube."""
    dim = bounds.shape[-1]
    X, values = first, [evaluate(unnormalize(x, bounds)) for x in first]
    while len(values) < evaluations:
        Y = standardize(X.new_tensor(values).unsqueeze(-1))
        kernel = MaternKernel(nu=2.5, ard_num_dims=dim, lengthscale_constraint=Interval(0.005, 4.0))
        likelihood = GaussianLikelihood(noise_constraint=Interval(1e-8, 1e-3))
        model = SingleTaskGP(X, Y, covar_module=ScaleKernel(kernel), likelihood=likelihood)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(likelihood, model))
        scales = kernel.lengthscale.detach().flatten()
        half = side_after(values, len(first), q, dim) / 2 * scales / scales.log().mean().exp()
        box = torch.stack([X[Y.argmax()] - half, X[Y.argmax()] + half]).clamp(0, 1)
        drawn = draw_sobol_samples(box, min(5000, max(2000, 200 * dim)), 1, seed=len(values))
        with torch.no_grad():
            sample = MaxPosteriorSampling(model, replacement=False)
            new = sample(drawn.squeeze(-2), num_samples=min(q, evaluations - len(values)))
        X = torch.cat([X, new])
        values += [evaluate(unnormalize(x, bounds)) for x in new]
    return values


def run(options: Options) -> list[Row]:
    """Search with both from the same designs."""
    foils = some_airfoils(40 if options.quick else None)
    count, evaluations, shown = (10, 12, (12,)) if options.quick else (50, 300, SHOWN)
    decoder = Decoder.from_examples(foils.outlines, num_components=9)
    search = DesignSearch(decoder, decoder.bounds(2.0), trust_region=True)

    def evaluate(design: Tensor) -> float:
        return ratio(decoder.outline(design))

    found: dict[str, list[list[float]]] = {"turbo": [], "shapes": []}
    for seed in progress(range(FIRST, FIRST + options.seeds), "seeds"):
        optimizer = gd.ShapeOptimizer(
            search, acquisition="thompson", initial=count, restarts=0, seed=seed
        )
        first = normalize(search.inputs(search.initial(count, seed)), search.bounds)
        torch.manual_seed(seed)
        found["turbo"].append(turbo(evaluate, search.bounds, first, evaluations, 10))
        optimizer.run(evaluate, evaluations, q=10, progress=False)
        found["shapes"].append(optimizer.trace)
    rows: list[Row] = []
    ends: list[float] = []
    for name, traces in found.items():
        best = np.maximum.accumulate(np.array(traces), axis=-1)
        row: Row = {"name": name, **{f"at_{n}": best[:, n - 1].mean() for n in shown}}
        row |= {"std": best[:, -1].std(), "each": " ".join(f"{v:.0f}" for v in best[:, -1])}
        ends = ends or best[:, -1].tolist()
        rows.append(row | paired(best[:, -1].tolist(), ends))
    return rows


if __name__ == "__main__":
    main(run)
