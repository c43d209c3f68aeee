"""Does a search over shape and angle together find a better wing than a search over a grid of angles?

10 random and 30 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils`` at angles of
attack from 0 to 10 degrees. The objective is the lift-to-drag ratio at a Reynolds number of 1e6 by
NeuralFoil's model ``"xlarge"``. Where NeuralFoil's confidence is below 0.9 or CD is outside
[0.004, 0.03], as for the airfoils that the data set leaves out, the evaluation fails; it still counts.

- ``mixed``: ``MixedSearch(shape=PoolSearch(clouds), angle=(0.0, 10.0))``.
- ``grid 0 to 10``, ``grid 1 to 9``: a pool of 9370 pairs, each airfoil at 5 equispaced angles, under the
  same model. The grid whose mean is better is the peer of ``mixed``.
- ``random``: airfoils and angles at random.

The model is the default model of a mixed search, except that the sliced Wasserstein distance has 50
slices and 64 quantiles and the vertical axis is scaled by 2, as in ``airfoil_search``. Its
kernel is the product of Matern 5/2 kernels of shape and angle with priors for their lengthscales. The
acquisition function is log expected improvement.

The reported seeds are 5000 to 5009; the settings were frozen after runs on seeds 0 to 3. Columns: the
best value after all evaluations, mean, standard deviation and standard error over seeds, and of each
seed; the mean number of evaluations that failed.

    python -m benchmarks.search.mixed_search [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, main
from benchmarks.judging import Rows, Target, find, number
from benchmarks.search.airfoil_search import ATOMS
from gp_distributions import (
    DistributionGP,
    MixedSearch,
    PointClouds,
    PoolSearch,
    ShapeOptimizer,
    SlicedWassersteinKernel,
)
from gp_distributions.bayesopt import Pool, median_lengthscale_prior
from gp_distributions.datasets import Airfoils, load_airfoils
from gp_distributions.demo.searching import scaled

LONG = True

FROZEN_SEEDS = 5000
INITIAL = 10
GRIDS = {"grid 0 to 10": np.linspace(0, 10, 5), "grid 1 to 9": np.linspace(1, 9, 5)}


class Flow:
    """The lift-to-drag ratio of airfoils at any angle."""

    def __init__(self, foils: Airfoils) -> None:
        import aerosandbox

        keys = ("upper_weights", "lower_weights", "leading_edge_weight", "TE_thickness")
        fits = [
            aerosandbox.Airfoil(name, coordinates=outline)
            .to_kulfan_airfoil(normalize_coordinates=False)
            .kulfan_parameters
            for name, outline in zip(foils.names, foils.outlines, strict=True)
        ]
        self.parameters = {key: np.stack([fit[key] for fit in fits], axis=-1) for key in keys}

    def __call__(self, candidate: Mapping[str, Any]) -> float:
        """Return the ratio, or NaN outside the limits of the data set."""
        import neuralfoil

        flow = neuralfoil.get_aero_from_kulfan_parameters(
            {key: values[..., candidate["shape"]] for key, values in self.parameters.items()},
            alpha=candidate["angle"],
            Re=1e6,
            model_size="xlarge",
        )
        lift, drag, sure = (
            float(np.squeeze(flow[key])) for key in ("CL", "CD", "analysis_confidence")
        )
        return lift / drag if sure >= 0.9 and 0.004 <= drag <= 0.03 else float("nan")


def model(search: MixedSearch, X: Tensor, Y: Tensor) -> DistributionGP:
    """Make the model, which is the same for all searches."""
    shape = SlicedWassersteinKernel(2, num_slices=50, num_quantiles=64)
    kernel = search.kernel({"shape": shape})
    return median_lengthscale_prior(DistributionGP(X, Y, kernel))


def mixed(search: MixedSearch, flow: Flow, evaluations: int, seed: int) -> list[float]:
    """Search over airfoils and angles together."""
    optimizer = ShapeOptimizer(search, model=partial(model, search), initial=INITIAL, seed=seed)
    return outcomes(optimizer.run(flow, evaluations, progress=False))


def on_grid(
    search: MixedSearch,
    pairs: list[dict[str, Any]],
    pool: Pool,
    flow: Flow,
    evaluations: int,
    seed: int,
) -> list[float]:
    """Search over a pool of pairs of airfoils and angles."""
    optimizer = ShapeOptimizer(
        PoolSearch(pool), model=partial(model, search), initial=INITIAL, seed=seed
    )
    return outcomes(optimizer.run(lambda i: flow(pairs[i]), evaluations, progress=False))


def outcomes(optimizer: ShapeOptimizer) -> list[float]:
    """Return the outcome of each evaluation, NaN for those that failed."""
    return [e.outcomes[0] if e.outcomes else float("nan") for e in optimizer.evaluations]


def at_random(search: MixedSearch, flow: Flow, evaluations: int, seed: int) -> list[float]:
    """Evaluate airfoils and angles at random: angles uniformly, because Sobol sequences are not."""
    angles = np.random.default_rng(seed).uniform(0, 10, evaluations)
    shapes = search.parts["shape"].initial(evaluations, seed)
    return [flow({"shape": s, "angle": a}) for s, a in zip(shapes, angles.tolist(), strict=True)]


def searches(seeds: range, evaluations: int, size: int | None) -> list[Row]:
    """Search by each method on all seeds."""
    foils = load_airfoils()
    foils = Airfoils(foils.names[:size], foils.outlines[:size], foils.lift_to_drag[:size])
    flow = Flow(foils)
    clouds = scaled(PointClouds.from_curves(foils.outlines, atoms=ATOMS))
    search = MixedSearch(shape=PoolSearch(clouds), angle=(0.0, 10.0))
    ways: dict[str, Callable[[int], list[float]]] = {
        "mixed": partial(mixed, search, flow, evaluations)
    }
    for name, angles in GRIDS.items():
        pairs = [{"shape": s, "angle": a} for s in range(len(clouds)) for a in angles.tolist()]
        pool = Pool(search.inputs(pairs))
        ways[name] = partial(on_grid, search, pairs, pool, flow, evaluations)
    ways["random"] = partial(at_random, search, flow, evaluations)
    rows: list[Row] = []
    for name, way in ways.items():
        start = time.perf_counter()
        runs = np.array([way(seed) for seed in tqdm(seeds, desc=name, leave=False, disable=None)])
        best: NDArray[np.float64] = np.nanmax(runs, axis=1)
        deviation = float(best.std(ddof=1)) if len(best) > 1 else float("nan")
        rows.append(
            {
                "name": f"seeds {seeds[0]}-{seeds[-1]}: {name}",
                "value": float(best.mean()),
                "value_std": deviation,
                "value_se": deviation / len(best) ** 0.5,
                "value_each": " ".join(f"{value:.1f}" for value in best),
                "failed": float(np.isnan(runs).sum(1).mean()),
                "seconds": (time.perf_counter() - start) / len(seeds),
            }
        )
    return rows


def beside_grids(rows: Rows) -> tuple[str, bool]:
    """Compare the search over airfoils and angles with the better grid of angles."""
    peer = max(
        (find(rows, name=f"seeds 5000-5009: {name}") for name in GRIDS),
        key=lambda row: number(row, "value"),
    )
    ours = find(rows, name="seeds 5000-5009: mixed")
    texts = [f"{number(r, 'value'):.1f} ± {number(r, 'value_std'):.1f}" for r in (ours, peer)]
    return " beside ".join(texts), number(ours, "value") > number(peer, "value")


def above_random(rows: Rows) -> tuple[str, bool]:
    """Compare the search over airfoils and angles with random search, in standard errors."""
    ours, peer = (find(rows, name=f"seeds 5000-5009: {name}") for name in ("mixed", "random"))
    error = (number(ours, "value_se") ** 2 + number(peer, "value_se") ** 2) ** 0.5
    errors = (number(ours, "value") - number(peer, "value")) / error
    return f"{errors:.1f}", errors >= 2


TARGETS = (
    Target(
        "airfoil and angle, 10 + 30 evaluations: best value beside the best grid of five angles",
        "above it",
        beside_grids,
        asked=True,
    ),
    Target("airfoil and angle: best value above random, in standard errors", ">= 2", above_random),
)


def run(options: Options) -> list[Row]:
    """Search by each method."""
    if options.quick:
        return searches(range(FROZEN_SEEDS, FROZEN_SEEDS + 2), 12, 60)
    return searches(range(FROZEN_SEEDS, FROZEN_SEEDS + 10), 40, None)


if __name__ == "__main__":
    main(run)
