"""Does a search over shape and angle together find a better wing than a search over a grid of angles?

10 random and 30 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils`` at angles of
attack from 0 to 10 degrees. The objective is the lift-to-drag ratio at a Reynolds number of 1e6 by
NeuralFoil's model ``"xlarge"``. Where NeuralFoil's confidence is below 0.9 or CD is outside
[0.004, 0.03], as for the airfoils that the data set leaves out, the evaluation fails; it still counts.

- ``mixed``: ``MixedSearch(shape=PoolSearch(clouds), angle=(0.0, 10.0))``.
- ``grid 0 to 10``, ``grid 1 to 9``: a pool of 9370 pairs, each airfoil at 5 equispaced angles, under the
  same model. The grid whose mean is better is the peer of ``mixed``.

The model is the default model of a mixed search, except that the sliced Wasserstein distance has 50
slices and 64 quantiles and the vertical axis is scaled by 2, as in ``airfoil_search``. Its
kernel is the product of Matern 5/2 kernels of shape and angle with priors for their lengthscales. The
acquisition function is log expected improvement.

The reported seeds are 5000 to 5009; the settings were frozen after runs on seeds 0 to 3. Columns: the
best value after all evaluations, mean and standard deviation over seeds, and of each
seed; the mean number of evaluations that failed.

    python -m benchmarks.search.mixed_search [--quick]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import Rows, Target, find, number
from benchmarks.search.searches import ATOMS, Outcome, Way, column, scaled, searched
from benchmarks.shapes import flow, kulfan_parameters, some_airfoils
from gp_distributions.bayesopt import Pool, median_lengthscale_prior

LONG = True
FIRST = 5000
GRIDS = {"grid 0 to 10": np.linspace(0, 10, 5), "grid 1 to 9": np.linspace(1, 9, 5)}


def beside_grids(rows: Rows) -> tuple[str, bool]:
    """Compare the search over airfoils and angles with the better grid of angles."""
    peer = max(
        (find(rows, name=f"seeds 5000-5009: {name}") for name in GRIDS),
        key=lambda row: number(row, "value"),
    )
    ours = find(rows, name="seeds 5000-5009: mixed")
    texts = [f"{number(r, 'value'):.1f} ± {number(r, 'value_std'):.1f}" for r in (ours, peer)]
    return " beside ".join(texts), number(ours, "value") > number(peer, "value")


TARGETS = (
    Target(
        "airfoil and angle, 10 + 30 evaluations: best value beside the best grid of five angles",
        "above it",
        beside_grids,
        asked=True,
    ),
)


def ratio_of(parameters: Mapping[str, Any], candidate: Mapping[str, Any]) -> float:
    """Return the ratio of an airfoil at an angle, or NaN outside the limits of the data set."""
    shape = {key: values[..., candidate["shape"]] for key, values in parameters.items()}
    found = flow(shape, candidate["angle"])
    lift, drag, sure = (float(np.squeeze(found[k])) for k in ("CL", "CD", "analysis_confidence"))
    return lift / drag if sure >= 0.9 and 0.004 <= drag <= 0.03 else float("nan")


def outcome(values: list[float]) -> Outcome:
    """Return the best value of a search, and how many evaluations failed."""
    return {"value": float(np.nanmax(values)), "failed": int(np.isnan(values).sum())}


def run(options: Options) -> list[Row]:
    """Search by each method."""
    size, count, evaluations = (20, 2, 11) if options.quick else (None, 10, 40)
    foils = some_airfoils(size)
    ratio = partial(ratio_of, kulfan_parameters(foils))
    clouds = scaled(gd.PointClouds.from_curves(foils.outlines, atoms=ATOMS))
    space = gd.MixedSearch(shape=gd.PoolSearch(clouds), angle=(0.0, 10.0))

    def model(X: Tensor, Y: Tensor) -> gd.DistributionGP:
        shape = gd.SlicedWassersteinKernel(2, num_slices=50, num_quantiles=64)
        return median_lengthscale_prior(gd.DistributionGP(X, Y, space.kernel({"shape": shape})))

    def search(place: Any, pairs: list[dict[str, Any]] | None, seed: int) -> Outcome:
        optimizer = gd.ShapeOptimizer(place, model=model, initial=10, seed=seed)
        objective = ratio if pairs is None else lambda index: ratio(pairs[index])
        optimizer.run(objective, evaluations, progress=False)
        done = optimizer.evaluations
        return outcome([e.outcomes[0] if e.outcomes else float("nan") for e in done])

    ways: dict[str, Way] = {"mixed": partial(search, space, None)}
    for name, angles in GRIDS.items():
        pairs = [{"shape": s, "angle": a} for s in range(len(clouds)) for a in angles.tolist()]
        ways[name] = partial(search, gd.PoolSearch(Pool(space.inputs(pairs))), pairs)
    rows: list[Row] = []
    for name, found, seconds in searched("", ways, range(FIRST, FIRST + count)):
        value = column(found, "value")
        rows.append(
            {
                "name": name,
                "value": float(value.mean()),
                "value_std": float(value.std(ddof=1)),
                "value_each": " ".join(f"{each:.1f}" for each in value),
                "failed": float(column(found, "failed").mean()),
                "seconds": seconds,
            }
        )
    return rows


if __name__ == "__main__":
    main(run)
