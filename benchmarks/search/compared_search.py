"""Does a search that compares kernels as it goes find more than searches with one kernel?

**Pool**: 10 random and 40 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils``, as
in ``airfoil_search``.

- ``compare``: ``ShapeOptimizer(model="compare")``, the mixture of 16 default kernels of the outlines.
- ``default``: the default model, which chooses its metric as evaluations come.
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

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import Judge, Rows, Target, find, number
from benchmarks.search.designs import BOUNDS
from benchmarks.search.searches import (
    DECODER,
    AirfoilPool,
    Way,
    by_hand,
    column,
    design_search,
    matern,
    on_designs,
    on_shapes,
    searched,
    with_priors,
)

LONG = True


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
                "All begin with the same ten random evaluations, and need two or three more: level.",
            ),
            (
                "best",
                "best",
                "Below the ordinates by two standard errors, but level with the default, which chooses "
                "its metric, and with the kernel that was selected for these airfoils by hand.",
            ),
        )
    ),
    Target(
        "comparing kernels in a design search: final value less those of both GPs on designs",
        "> 0 by a standard error",
        compared(
            "designs, seeds 7000-7019", "value", ("GP on designs", "GP on designs with priors"), 1
        ),
        "Level within the standard errors of 20 seeds. Searches with shapes alone end below all three.",
        asked=True,
    ),
)


def pool_ways(size: int | None, evaluations: int) -> dict[str, Way]:
    """Return the searches of the pool, as functions of the seed."""
    pool = AirfoilPool(size, evaluations)
    return {
        "compare": partial(pool.search, pool.clouds, "compare"),
        "default": partial(pool.search, pool.clouds, None),
        "selected": partial(pool.search, pool.clouds, by_hand),
        "aligned ordinates": partial(pool.search, pool.ordinates, matern),
    }


def design_ways(evaluations: int) -> dict[str, Way]:
    """Return the searches of designs, as functions of the seed."""
    distance = gd.SlicedWasserstein(4, num_slices=50, num_quantiles=64)
    both: dict[str, Any] = {
        profile: gd.DistributionKernel(distance, profile) for profile in ("matern52", "exponential")
    }
    for name, rbf in (("gaussian", True), ("matern52", False)):
        both[f"designs, {name}"] = get_covar_module_with_dim_scaled_prior(
            BOUNDS.shape[-1], use_rbf_kernel=rbf
        )
    ways = {
        "compare": (both, DECODER),
        "shapes": (partial(on_shapes, scaled=False), DECODER),
        "GP on designs": (on_designs, None),
        "GP on designs with priors": (with_priors, None),
    }
    return {name: partial(design_search, *way, evaluations) for name, way in ways.items()}


def searches(task: str, ways: Mapping[str, Way], seeds: range) -> list[Row]:
    """Search by each way from all seeds, and compare with the first way."""
    rows: list[Row] = []
    ours: dict[str, np.ndarray[Any, Any]] = {}
    for name, found, seconds in searched(f"{task}, ", ways, seeds):
        columns = {key: column(found, key) for key in found[0] if key != "found"}
        ours = ours or columns
        row: Row = {"name": name}
        for key, values in columns.items():
            row[key] = float(values.mean())
            if columns is not ours and len(values) > 1:
                differences = ours[key] - values
                row[f"{key}_difference"] = float(differences.mean())
                row[f"{key}_se"] = float(differences.std(ddof=1) / len(values) ** 0.5)
            row[f"{key}_each"] = " ".join(f"{value:g}" for value in values.round(1))
        rows.append(row | {"seconds": seconds})
    return rows


def run(options: Options) -> list[Row]:
    """Search the pool, then designs; quick runs do not take the reported seeds."""
    if options.quick:
        rows = searches("pool", pool_ways(100, 11), range(900, 902))
        return rows + searches("designs", design_ways(11), range(900, 901))
    rows = searches("pool", pool_ways(None, 50), range(6000, 6020))
    return rows + searches("designs", design_ways(40), range(7000, 7020))


if __name__ == "__main__":
    main(run)
