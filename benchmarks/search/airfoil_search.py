"""How many evaluations does a search need to find the airfoil with the best lift-to-drag ratio?

**Pool**: 10 random and 40 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils``.
The best ratio is 192.3, and the top hundredth are 19 airfoils. Our model reads 128 unordered points
of each outline. It is compared with random search and with a GP on 68 aligned ordinates, which
needs ordered outlines. All searches start from the same 10 airfoils and use Matern 5/2, ``fit`` and
log expected improvement.

The kernel of our model was selected from about 80 combinations of distance, profile, vertical scale
and reference on seeds 0 to 9, then frozen. It is the sum of Matern 5/2 of the sliced Wasserstein
distance between centred clouds and a kernel linear in the mean, with the vertical axis scaled by 2.
The reported seeds 1000 to 1009 were not used for any choice.

**Designs**: 10 random and 30 chosen evaluations of 10 CST (Kulfan) weights, 5 for the upper and 5
for the lower surface. The objective is the lift-to-drag ratio times smooth gates on NeuralFoil's
confidence (0.9) and on 9% thickness. Our model decodes a design to 64 outline points with their
unit normals, and compares these four-dimensional clouds by sliced Wasserstein with Matern 5/2:
without normals, clouds do not tell the upper from the lower surface. This representation was
selected by the error at 500 of 1500 random designs after training on 40 others. The lengthscale has
the prior of ``median_lengthscale_prior``. That prior, and the choice to start the maximisation of
acquisition functions around the best designs too, were selected on seeds 100 to 109. The reported
seeds are 0 to 9, which had been run once before this selection. The comparisons are random search
and two GPs on designs with one lengthscale per weight: Matern 5/2 without lengthscale priors, and
BoTorch's default, a Gaussian kernel with priors. All GPs start from the same 10 designs.

Columns: evaluations until the first of the top hundredth and until the best is found, means over
seeds, where a miss counts as the number of evaluations; the number of seeds that found it; the final
best value, mean and standard deviation over seeds.

    python -m benchmarks.search.airfoil_search [--quick]
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import MaternKernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, Value, main
from benchmarks.judging import Judge, Rows, Target, beside, find
from gp_distributions import (
    DistributionGP,
    PointClouds,
    SlicedWassersteinKernel,
)
from gp_distributions.bayesopt import (
    Decoder,
    DesignSearch,
    Pool,
    PoolSearch,
    ShapeOptimizer,
    median_lengthscale_prior,
)
from gp_distributions.datasets import load_airfoils
from gp_distributions.demo.searching import scaled, search

FROZEN_SEEDS = 1000

ATOMS = 128
WEIGHTS = 5  # of each surface
CONFIDENCE, THICKNESS = 0.9, 0.09


def matern(X: Tensor, Y: Tensor, *, ard: bool = False) -> DistributionGP:
    """A GP on vectors; with ``ard``, each coordinate has its own lengthscale."""
    width = X.shape[-1]
    plain = MaternKernel(nu=2.5, ard_num_dims=width if ard else None)
    # A single lengthscale starts near the median distance, as for kernels of distances.
    with torch.no_grad():
        start = torch.pdist(X).median() if not ard else X.std(0) * width**0.5
        plain.lengthscale = start
    return DistributionGP(X, Y, ScaleKernel(plain))


def with_priors(X: Tensor, Y: Tensor) -> DistributionGP:
    """A GP on designs with BoTorch's default kernel."""
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=X.shape[-1])
    return DistributionGP(X, Y, kernel, input_transform=Normalize(X.shape[-1], bounds=BOUNDS))


def ordinates(outlines: tuple[NDArray[np.float64], ...]) -> Tensor:
    """Standardised heights of both surfaces, 34 each."""
    at = (1 - np.cos(np.linspace(0, np.pi, 36)[1:-1])) / 2
    rows = []
    for outline in outlines:
        nose = outline[:, 0].argmin()
        upper, lower = outline[: nose + 1][::-1], outline[nose:]
        rows.append(np.concatenate([np.interp(at, s[:, 0], s[:, 1]) for s in (upper, lower)]))
    heights = torch.from_numpy(np.stack(rows))
    return (heights - heights.mean(0)) / heights.std(0)


def pool_searches(seeds: range, evaluations: int, size: int | None) -> list[Row]:
    """Search the pool by clouds, by ordinates and at random."""
    foils = load_airfoils()
    outlines, targets = foils.outlines[:size], foils.lift_to_drag[:size]
    clouds = Pool(scaled(PointClouds.from_curves(outlines, atoms=ATOMS)))
    rank = np.empty(len(targets), dtype=int)
    rank[np.argsort(-targets)] = np.arange(len(targets))
    best_hundredth = round(len(targets) / 100)
    ways: dict[str, Callable[[int], list[int]]] = {
        "ours": lambda seed: search(clouds, targets, evaluations=evaluations, seed=seed),
        "aligned ordinates": partial(on_ordinates, Pool(ordinates(outlines)), targets, evaluations),
        "random": lambda seed: PoolSearch(clouds).initial(evaluations, seed),
    }
    rows = []
    for name, way in ways.items():
        start = time.perf_counter()
        ranks = [rank[way(seed)] for seed in tqdm(seeds, desc=name, leave=False, disable=None)]
        top = [first(r < best_hundredth, evaluations) for r in ranks]
        best = [first(r == 0, evaluations) for r in ranks]
        values = [targets[np.flatnonzero(rank == r.min())[0]] for r in ranks]
        rows.append(
            {
                "name": f"pool, seeds {seeds[0]}-{seeds[-1]}: {name}",
                "top_1pct_at": float(np.mean(top)),
                "top_1pct_by_20": f"{sum(t <= 20 for t in top)} of {len(seeds)}",
                "best_at": float(np.mean(best)),
                "best_found": f"{sum(bool((r == 0).any()) for r in ranks)} of {len(seeds)}",
                "top_1pct_each": " ".join(map(str, top)),
                "best_each": " ".join(map(str, best)),
                **spread(values),
                "seconds": (time.perf_counter() - start) / len(seeds),
            }
        )
    return rows


def on_ordinates(
    pool: Pool, targets: NDArray[np.float64], evaluations: int, seed: int
) -> list[int]:
    """Search with a GP on ordinates, and return the evaluated airfoils in order."""
    optimizer = ShapeOptimizer(PoolSearch(pool), model=matern, seed=seed)
    optimizer.run(lambda index: float(targets[index]), evaluations, progress=False)
    return [evaluation.candidate for evaluation in optimizer.evaluations]


def first(hits: NDArray[np.bool_], otherwise: int) -> int:
    """Number of evaluations until the first hit."""
    return int(hits.argmax()) + 1 if hits.any() else otherwise


def spread(values: list[float]) -> dict[str, Value]:
    """Mean and standard deviation of the final values."""
    return {"value": float(np.mean(values)), "value_std": float(np.std(values))}


# A design holds the weights of the upper surface, then those of the lower surface.
BOUNDS = torch.tensor(
    [
        [0.05] + [0.0] * (WEIGHTS - 1) + [-0.4] * WEIGHTS,
        [0.5] * WEIGHTS + [-0.05] + [0.3] * (WEIGHTS - 1),
    ],
    dtype=torch.float64,
)


def bernstein(count: int, x: Tensor) -> Tensor:
    """Bernstein polynomials of degree ``count - 1`` at ``x``, ``len(x) x count``."""
    k = torch.arange(count, dtype=x.dtype)
    n = torch.tensor(count - 1.0, dtype=x.dtype)
    binomial = (torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)).exp()
    return binomial * x[:, None] ** k * (1 - x[:, None]) ** (n - k)


def outlines_of(designs: Tensor, points: int = 64) -> Tensor:
    """Return the closed outlines of designs by class-shape transformation, ``N x points x 2``."""
    x = (1 - torch.cos(torch.linspace(0, torch.pi, points // 2 + 1, dtype=designs.dtype))) / 2
    shape = (x.sqrt() * (1 - x)).unsqueeze(-1) * bernstein(WEIGHTS, x)
    upper, lower = designs[:, :WEIGHTS] @ shape.T, designs[:, WEIGHTS:] @ shape.T
    y = torch.cat([upper.flip(-1), lower[:, 1:-1]], dim=-1)
    return torch.stack([torch.cat([x.flip(-1), x[1:-1]]).expand_as(y), y], dim=-1)


def decode(designs: Tensor) -> PointClouds:
    """Outline points with their unit normals, in four dimensions."""
    points = outlines_of(designs)
    tangents = points.roll(-1, dims=-2) - points.roll(1, dims=-2)
    normals = torch.stack([-tangents[..., 1], tangents[..., 0]], dim=-1)
    return PointClouds(torch.cat([points, torch.nn.functional.normalize(normals, dim=-1)], dim=-1))


def gated_ratio(design: Tensor) -> float:
    """The gated lift-to-drag ratio at 4 degrees and a Reynolds number of 1e6."""
    import neuralfoil

    # NeuralFoil's eight weights can represent every polynomial of five weights.
    x = torch.linspace(0.01, 0.99, 50, dtype=design.dtype)
    elevate = torch.linalg.lstsq(bernstein(8, x), bernstein(WEIGHTS, x)).solution
    upper, lower = (elevate @ part for part in design.split(WEIGHTS))
    flow = neuralfoil.get_aero_from_kulfan_parameters(
        {
            "upper_weights": upper.numpy(),
            "lower_weights": lower.numpy(),
            "leading_edge_weight": 0.0,
            "TE_thickness": 0.0,
        },
        alpha=4.0,
        Re=1e6,
        model_size="xlarge",
    )
    outline = outlines_of(design[None])[0]
    half = len(outline) // 2
    thickness = float((outline[1:half, 1] - outline[half + 1 :, 1].flip(0)).max())
    confidence = float(np.squeeze(flow["analysis_confidence"]))
    gates = (
        1
        / (1 + np.exp((CONFIDENCE - confidence) / 0.02))
        / (1 + np.exp((THICKNESS - thickness) / 0.005))
    )
    return float(np.squeeze(flow["CL"] / flow["CD"]) * gates)


def design_searches(seeds: range, evaluations: int) -> list[Row]:
    """Search designs by clouds, by GPs on designs and at random."""
    decoder = Decoder(decode)

    def on_clouds(X: Tensor, Y: Tensor) -> DistributionGP:
        covariance = SlicedWassersteinKernel(4, profile="matern52", num_slices=50, num_quantiles=64)
        return median_lengthscale_prior(
            DistributionGP(X, Y, ScaleKernel(covariance), input_transform=decoder)
        )

    rows = []
    for name, model, transform in (
        ("ours", on_clouds, decoder),
        ("GP on designs", partial(matern, ard=True), None),
        ("GP on designs with priors", with_priors, None),
        ("random", None, None),
    ):
        start = time.perf_counter()
        found = []
        for seed in tqdm(seeds, desc=name, leave=False, disable=None):
            place = DesignSearch(transform, BOUNDS)
            if model is None:
                # Uniform, because a Sobol sequence is not a random search.
                generator = torch.Generator().manual_seed(seed)
                more = torch.rand(
                    evaluations, 2 * WEIGHTS, generator=generator, dtype=torch.float64
                )
                found.append(
                    max(gated_ratio(x) for x in BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * more)
                )
                continue
            optimizer = ShapeOptimizer(place, model=model, seed=seed)
            found.append(optimizer.run(gated_ratio, evaluations, progress=False).best[1])
        rows.append(
            {
                "name": f"designs, seeds {seeds[0]}-{seeds[-1]}: {name}",
                **spread(found),
                "value_least": min(found),
                "seconds": (time.perf_counter() - start) / len(seeds),
            }
        )
    return rows


def count_of(column: str, least: int, name: str) -> Judge:
    """Return a judge of the number of searches that succeeded."""

    def judge(rows: Rows) -> tuple[str, bool]:
        figure = str(find(rows, name=name)[column])
        return figure, int(figure.split(" of ")[0]) >= least

    return judge


_OURS = "pool, seeds 1000-1009: ours"
TARGETS = (
    Target(
        "pool search, 10 + 40 evaluations: best airfoil found",
        "10 of 10",
        count_of("best_found", 10, _OURS),
        asked=True,
    ),
    Target(
        "pool search: one of the top 1% within 20 evaluations",
        "10 of 10",
        count_of("top_1pct_by_20", 10, _OURS),
        "Its page has the evaluations at which each seed finds its first. The kernel was frozen before "
        "these seeds were run, and stays.",
    ),
    *(
        beside(
            f"design search, 10 + 30 evaluations: best value beside a {peer}",
            "not below it",
            "value",
            ("designs, seeds 0-9: ours", f"designs, seeds 0-9: {peer}"),
            operator.ge,
            spread="value_std",
            reason="Level within the spread over seeds. The model was chosen on other seeds, and "
            "stays.",
            asked=peer == "GP on designs",
        )
        for peer in ("GP on designs", "GP on designs with priors")
    ),
)


def run(options: Options) -> list[Row]:
    """Search the pool, then designs."""
    if options.quick:
        seeds = range(FROZEN_SEEDS, FROZEN_SEEDS + options.seeds)
        return pool_searches(seeds, 12, 100) + design_searches(range(1), 11)
    rows = pool_searches(range(FROZEN_SEEDS, FROZEN_SEEDS + 10), 50, None)
    return rows + design_searches(range(10), 40)


if __name__ == "__main__":
    main(run)
