"""Does a search that compares kernels as it goes find more than searches with one kernel?

**Pool**: 10 random and 40 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils``, as
in ``airfoil_search``.

- ``compare``: ``ShapeOptimizer(model="compare")``, the mixture of 14 default kernels of the outlines.
- ``default``: the default model, Matern 5/2 of the sliced Wasserstein distance.
- ``selected``: the kernel that ``airfoil_search`` selected for these airfoils.
- ``aligned ordinates``: a GP on 68 aligned ordinates, which needs ordered outlines.

**Designs**: 10 random and 30 chosen evaluations of 10 CST weights, as in
``airfoil_search``.

- ``compare``: a mixture of kernels of both kinds: Matern 5/2 and the exponential profile of the sliced
  Wasserstein distance between decoded outlines with normals, and a Gaussian kernel and Matern 5/2 on
  designs with BoTorch's priors.
- ``shapes``: Matern 5/2 of the sliced Wasserstein distance, as in ``airfoil_search``.
- ``GP on designs``, ``GP on designs with priors``: as in ``airfoil_search``.

The weights of the mixtures, pseudo-BMA+, have no setting, and were chosen for the reasons that
:func:`gp_distributions.numerics.predictions.pseudo_bma_weights` gives. Searches of pools were run before
on seeds 900 to 903 only. The reported seeds are 6000 to 6019 for the pool and 7000 to 7019 for designs.

Columns: evaluations until the first of the top hundredth (``top``) and until the best is found
(``best``), means over seeds, where a miss counts as the number of evaluations; the final value. For
peers also the mean difference ``compare`` minus the peer, paired by seed, with its standard error.

    python -m benchmarks.search.compared_search [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, main
from benchmarks.judging import Judge, Rows, Target, find, number
from benchmarks.search.airfoil_search import (
    ATOMS,
    BOUNDS,
    WEIGHTS,
    decode,
    first,
    gated_ratio,
    matern,
    ordinates,
    with_priors,
)
from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    PointClouds,
    SlicedWasserstein,
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
from gp_distributions.demo.searching import model_of_rows, scaled

LONG = True

POOL_SEEDS, DESIGN_SEEDS = 6000, 7000

# The outcomes of a search, by the name of a column.
Outcomes = dict[str, float]


def pool_ways(size: int | None, evaluations: int) -> dict[str, Callable[[int], Outcomes]]:
    """Return the searches of the pool, as functions of the seed."""
    foils = load_airfoils()
    outlines, targets = foils.outlines[:size], foils.lift_to_drag[:size]
    rank = np.empty(len(targets), dtype=int)
    rank[np.argsort(-targets)] = np.arange(len(targets))

    def search(pool: Pool, model: Any, seed: int) -> Outcomes:
        optimizer = ShapeOptimizer(PoolSearch(pool), model=model, seed=seed)
        optimizer.run(lambda index: float(targets[index]), evaluations, progress=False)
        ranks = rank[[evaluation.candidate for evaluation in optimizer.evaluations]]
        return {
            "top": first(ranks < round(len(targets) / 100), evaluations),
            "best": first(ranks == 0, evaluations),
            "value": optimizer.best[1],
        }

    clouds = Pool(scaled(PointClouds.from_curves(outlines, atoms=ATOMS)))
    return {
        "compare": partial(search, clouds, "compare"),
        "default": partial(search, clouds, None),
        "selected": partial(search, clouds, model_of_rows),
        "aligned ordinates": partial(search, Pool(ordinates(outlines)), matern),
    }


def design_ways(evaluations: int) -> dict[str, Callable[[int], Outcomes]]:
    """Return the searches of designs, as functions of the seed."""
    decoder = Decoder(decode)
    distance = SlicedWasserstein(4, num_slices=50, num_quantiles=64)

    def shapes(X: Tensor, Y: Tensor) -> DistributionGP:
        kernel = DistributionKernel(SlicedWasserstein(4, num_slices=50, num_quantiles=64))
        return median_lengthscale_prior(DistributionGP(X, Y, kernel, input_transform=decoder))

    both = {
        profile: DistributionKernel(distance, profile) for profile in ("matern52", "exponential")
    } | {
        f"designs, {name}": get_covar_module_with_dim_scaled_prior(2 * WEIGHTS, use_rbf_kernel=rbf)
        for name, rbf in (("gaussian", True), ("matern52", False))
    }

    def search(model: Any, transform: Decoder | None, seed: int) -> Outcomes:
        optimizer = ShapeOptimizer(DesignSearch(transform, BOUNDS), model=model, seed=seed)
        return {"value": optimizer.run(gated_ratio, evaluations, progress=False).best[1]}

    return {
        "compare": partial(search, both, decoder),
        "shapes": partial(search, shapes, decoder),
        "GP on designs": partial(search, partial(matern, ard=True), None),
        "GP on designs with priors": partial(search, with_priors, None),
    }


def searches(task: str, ways: Mapping[str, Callable[[int], Outcomes]], seeds: range) -> list[Row]:
    """Search by each way from all seeds, and compare with the first way."""
    rows: list[Row] = []
    ours: dict[str, NDArray[np.float64]] = {}
    for name, way in ways.items():
        start = time.perf_counter()
        found = [way(seed) for seed in tqdm(seeds, desc=name, leave=False, disable=None)]
        columns = {key: np.array([outcome[key] for outcome in found]) for key in found[0]}
        ours = ours or columns
        row: Row = {"name": f"{task}, seeds {seeds[0]}-{seeds[-1]}: {name}"}
        for key, values in columns.items():
            row[key] = float(values.mean())
            if columns is not ours and len(values) > 1:
                differences = ours[key] - values
                row[f"{key}_difference"] = float(differences.mean())
                row[f"{key}_se"] = float(differences.std(ddof=1) / len(values) ** 0.5)
            row[f"{key}_each"] = " ".join(f"{value:g}" for value in values.round(1))
        rows.append(row | {"seconds": (time.perf_counter() - start) / len(seeds)})
    return rows


def compared(task: str, column: str, peers: tuple[str, ...], errors: float) -> Judge:
    """Return whether searches that compare kernels are better than each peer by some errors."""
    sign = 1 if column == "value" else -1

    def judge(rows: Rows) -> tuple[str, bool]:
        found = [find(rows, name=f"{task}: {peer}") for peer in peers]
        pairs = [(number(r, f"{column}_difference"), number(r, f"{column}_se")) for r in found]
        texts = [f"{difference:+.1f} ± {error:.1f}" for difference, error in pairs]
        return ", ".join(texts), all(sign * gap > errors * error for gap, error in pairs)

    return judge


TARGETS = (
    *(
        Target(
            f"comparing kernels in a pool search: evaluations to the {text}, less those of its default, "
            "the selected kernel and ordinates",
            "< 0 by 2 standard errors",
            compared(
                "pool, seeds 6000-6019", column, ("default", "selected", "aligned ordinates"), 2
            ),
            reason,
        )
        for text, column, reason in (
            (
                "best hundredth",
                "top",
                "The first ten evaluations are the same random ones for all, and all four searches need "
                "about two more: they are level.",
            ),
            (
                "best",
                "best",
                "Below the default and the ordinates by more than two standard errors, but level with "
                "the kernel that was selected for these airfoils by hand.",
            ),
        )
    ),
    Target(
        "comparing kernels in a design search: final value less those of both GPs on designs",
        "> 0 by a standard error",
        compared(
            "designs, seeds 7000-7019", "value", ("GP on designs", "GP on designs with priors"), 1
        ),
        asked=True,
    ),
)


def run(options: Options) -> list[Row]:
    """Search the pool, then designs."""
    if options.quick:
        rows = searches("pool", pool_ways(100, 11), range(900, 902))  # not the reported seeds
        return rows + searches("designs", design_ways(11), range(900, 901))
    rows = searches("pool", pool_ways(None, 50), range(POOL_SEEDS, POOL_SEEDS + 20))
    return rows + searches("designs", design_ways(40), range(DESIGN_SEEDS, DESIGN_SEEDS + 20))


if __name__ == "__main__":
    main(run)
