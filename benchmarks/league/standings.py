"""Which method predicts best on bags of the real world?

Sets for development, read from files of packages; mil and aeon do not state the licences of their data:

- ``states``: respondents of 51 states, the share of votes; ``schools``: pupils of 160 schools, their
  mean achievement (without it); ``sector``: the same pupils with it, public or private.
- ``authorities``, ``grades`` (grades of schools), ``language`` (schools) and ``attainment`` (primary
  schools): pupils, and a mean score; ``prenatal``: births of communities, the share of modern care;
  ``radon``: houses of counties, and the mean logarithm of their radon.
- ``musk1``, ``musk2``, ``elephant``: multiple instances (package mil); ``MUTAG``: nodes of graphs,
  with their labels and degrees averaged over 0 to 3 steps.
- ``airfoils``: 400 outlines with normals, and their lift to drag; ``blades``: 250 surfaces, as 1,000
  points with normals, and their losses (log (1 - efficiency) / efficiency); ``patients``: 250 drawn
  ones, and a response to their cells; ``molecules``: pairs of atoms of 1,000 molecules of QM9, and
  what a line in the counts of elements leaves of their energies.
- ``leaf``: outlines of six species with normals, 128 points at equal arc length, from radii z in
  standard units, as curves of radius 1 + z / 4; ``line`` and ``treatment``: outlines of cells with
  normals, turned to their principal axes for all methods; ``vowels``: nine speakers.

Ours: ``default``, a model without a kernel after ``fit``, and ``comparison``, the stack of
``default_kernels``; both see the columns as they are. Where ``default`` has learned scales of
coordinates, which folds fitted anew judge, all candidates of the comparison have them (``patients``).
Peers see columns standardised over the training atoms, and choose hyperparameters by three folds of
the training bags:

- on summaries of each bag (mean, deviation, quartiles, extremes, log size, and covariances of up to 30
  columns): ``boosting`` of histograms and a random ``forest``, each over four settings, an ``SVM``
  over 24, calibrated by a sigmoid, and a ``GP`` with a Gaussian kernel;
- on atoms: an SVM with the normalised ``set kernel`` (Gaertner et al. 2002; at most 10,000 atoms in
  all, over 24 settings); ridge or logistic regression on 300 ``random features`` of mean embeddings at
  four bandwidths; ``DeepSets`` and ``attention`` (gated, Ilse et al. 2018), with the log size beside
  the mean of features, five networks each, each stopped by another fifth of the bags, and averaged;
- on shapes with correspondence: ``principal``, a GP with a lengthscale for each of up to 30 principal
  coordinates of corresponding points, which no other method sees (``airfoils``, ``blades``, ``leaf``);
- on graphs (``MUTAG``): an SVM with the ``Weisfeiler-Lehman`` kernel of 1 to 5 steps (package grakel).

Five folds, the same for all, and two repetitions up to 300 bags; ``folds`` says how many were
measured so far. ``breast cancer``, ``ArrowHead``, ``lecturers`` and ``dogs`` were looked at once, in
one repetition, after the package was built, and decided nothing. Of peers without intervals, the
deviation is that of residuals of held-out training bags, and the intervals are split conformal.
Probabilities are at least 1e-4. Errors of numbers are relative to the deviation of all targets. ``gap``
is ours less the best peer in accuracy or :math:`R^2`, paired by fold, with its standard error over
folds; ``why`` explains gaps below -.02. A method of which folds of a set are missing is left out there,
and ``peers`` counts those that are there. A rank is one more than the number of better peers; the other
of ours does not count. ``near`` counts the sets of ``classified`` ones where the log loss is first or
second. ``seconds`` include the choice of hyperparameters and the predictions, on one thread, beside
other work on the machine. Peers of other sets than groups were not measured anew: their seconds are
from a slower machine, and say nothing beside ours. ``linear`` (that profile of the default MMD) and
``aggregate`` (``aggregate_kernel``, for ``musk1``, ``musk2`` and ``elephant``) only explain losses, and
``sums`` (``SparseAggregateGP`` on ``surroundings`` of atoms, on ``molecules``) sees more than the pairs;
they have no rank.

    python -m benchmarks.league [SET ...] [--repetitions 2] [--folds 5] [--methods METHOD ...]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

import gp_distributions as gd
from benchmarks import harness
from benchmarks.harness import Options, Row, drawing, main
from benchmarks.judging import Judge, Rows, Target, find, number
from benchmarks.league.measuring import LINES, METHODS, OURS, PEERS, Line, kept, measure
from benchmarks.league.scores import Scores
from benchmarks.league.sets import DEVELOPMENT, ONCE, Task

LONG, SEEDS = True, 2
Means = dict[str, dict[str, Scores]]
COLUMNS = {
    "skill": "accuracy, or R2",
    "loss": "log loss, or negative log density",
    "coverage": "coverage of 95% intervals",
    "width": "width of 95% intervals",
    "seconds": "seconds",
}
# A worse result than the best peer's by more needs a reason.
_CLOSE, _CHANCE = 0.02, "Within two standard errors."
_RANK = "Its page has the reason for each set."


def _both(columns: Sequence[str], met: Callable[..., bool], names: Sequence[str]) -> Judge:
    def judge(rows: Rows) -> tuple[str, bool]:
        found = [number(find(rows, name=name), column) for name in names for column in columns]
        return ", ".join(f"{value:.3g}" for value in found), met(*found)

    return judge


TARGETS = (
    *(
        Target(
            f"league, {name}: mean ranks among peers in accuracy or R2, and in log density",
            f"<= {most}",
            _both(("rank_error", "rank_density"), lambda *r, most=most: max(r) <= most, (name,)),
            _RANK,
            asked=True,
        )
        for name, most in (("default", 2.5), ("comparison", 2.0))
    ),
    Target(
        "league: sets of labels where the default, the comparison is first or second in log loss",
        ">= 6 of 9",
        _both(("near",), lambda *near: min(near) >= 6, tuple(OURS)),
        asked=True,
    ),
    Target(
        "league: lowest and mean coverage of 95% intervals, default and comparison",
        ">= 0.88, 0.92 to 0.97",
        _both(
            ("lowest coverage", "coverage"),
            lambda low, mean, least, average: (
                min(low, least) >= 0.88 and 0.92 <= min(mean, average) <= max(mean, average) <= 0.97
            ),
            tuple(OURS),
        ),
    ),
    Target(
        "league: seconds of the longest fit of the default, of the comparison",
        "<= 60, 600",
        _both(
            ("longest",),
            lambda default, comparison: default <= 60 and comparison <= 600,
            tuple(OURS),
        ),
    ),
)


def toy(*, labelled: bool) -> Task:
    """Bags whose spread is the target, or its class."""
    rng = np.random.default_rng(0)
    spreads = rng.uniform(0.5, 2.0, 30)
    bags = [rng.normal(0, s, (rng.integers(4, 8), 2)) for s in spreads]
    y = np.where(spreads > 1.2, "wide", "narrow") if labelled else spreads
    return Task(gd.PointClouds.from_list(bags), y)


TOYS: dict[str, Callable[[], Task]] = {
    "toy classes": partial(toy, labelled=True),
    "toy numbers": partial(toy, labelled=False),
}
_QUICK = ("default", "SVM", "set kernel")


def run(options: Options) -> list[Row]:
    """Measure what is not measured yet of the sets for development, and return all tables."""
    if not options.quick:
        for name, load in DEVELOPMENT.items():
            with suppress(ImportError):  # the package of this set is not installed
                measure(name, load, LINES, repetitions=options.seeds)
        return report(kept(LINES), options)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "league.jsonl"
        for name, load in TOYS.items():
            measure(name, load, file, methods=_QUICK, repetitions=1, most=1)
        return report(kept(file), options)


def report(lines: Sequence[Line], options: Options) -> list[Row]:
    """Draw the picture, and return the tables: mean ranks, scores, differences to the best peer."""
    found = means(lines)
    draw(found, options)
    rows: list[Row] = []
    for sets, label in (({**DEVELOPMENT, **TOYS}, ""), (ONCE, ", looked at once")):
        for name in OURS:
            if some := [v for k, v in found.items() if k in sets and name in v]:
                rows.append({"name": name + label, **overall(name, some)})
    for column, title in COLUMNS.items():
        some_sets = {k: v for k, v in found.items() if any(column in s for s in v.values())}
        for k, v in some_sets.items():
            rows.append({title: k} | {m: v[m][column] if m in v else None for m in METHODS})
    rows += [gaps(name, found[name], lines) for name in found]
    left = [] if options.quick else [name for name in (*DEVELOPMENT, *ONCE) if name not in found]
    return rows + [dict.fromkeys(rows[-1]) | {"set": name, "why": "not run"} for name in left]


def means(lines: Sequence[Line]) -> Means:
    """Return means over folds by set with peers, and method, unless some folds are missing."""
    found: Means = {name: {} for name in (*DEVELOPMENT, *ONCE, *TOYS)}
    for name, of_set in found.items():
        of_method = {
            method: [x["scores"] for x in lines if (x["set"], x["method"]) == (name, method)]
            for method in METHODS
        }
        most = max(map(len, of_method.values()))
        of_set |= {m: harness.means(some) for m, some in of_method.items() if len(some) == most > 0}
    return {name: of_set for name, of_set in found.items() if of_set.keys() & PEERS.keys()}


def rank(name: str, column: str, scores: Mapping[str, Scores]) -> float:
    """Return the rank of one of ours among the peers in skill or in log density."""
    sign = -1 if column == "loss" else 1
    values = {m: sign * s[column] for m, s in scores.items() if m in PEERS or m == name}
    mine = values.pop(name)
    return 1 + sum((v > mine) + (v == mine) / 2 for v in values.values())


def overall(name: str, found: Sequence[Mapping[str, Scores]]) -> Row:
    """Return mean ranks, counts of sets, coverage and the longest fit."""
    errors = [rank(name, "skill", scores) for scores in found]
    losses = [rank(name, "loss", scores) for scores in found]
    covers = [scores[name]["coverage"] for scores in found if "coverage" in scores[name]]
    labelled = [r for r, s in zip(losses, found, strict=True) if "coverage" not in s[name]]
    return {
        "sets": len(found),
        "rank_error": statistics.fmean(errors),
        "rank_density": statistics.fmean(losses),
        "first_error": sum(r < 2 for r in errors),
        "first_density": sum(r < 2 for r in losses),
        "near": sum(r <= 2 for r in labelled),
        "classified": len(labelled),
        "coverage": statistics.fmean(covers) if covers else None,
        "lowest coverage": min(covers, default=None),
        "longest": max(scores[name]["seconds"] for scores in found),
    }


def gaps(name: str, scores: Mapping[str, Scores], lines: Sequence[Line]) -> Row:
    """Return the differences of ours to the best peer, paired by fold."""
    best = max((m for m in scores if m in PEERS), key=lambda m: scores[m]["skill"])
    row: Row = {"set": name, "peers": len(scores.keys() & PEERS.keys()), "best peer": best}
    losses: list[bool] = []  # whether a gap is more than chance
    for ours in OURS:
        each = [
            {
                tuple(x["at"]): x["scores"]["skill"]
                for x in lines
                if (x["set"], x["method"]) == (name, m)
            }
            for m in (ours, best)
        ]
        gap = [each[0][at] - each[1][at] for at in each[0].keys() & each[1].keys()]
        mean = statistics.fmean(gap) if gap else None
        error = statistics.stdev(gap) / len(gap) ** 0.5 if len(gap) > 1 else None
        row |= {f"{ours} gap": mean, f"{ours} se": error}
        row["folds"] = max(len(gap), int(row.get("folds") or 0))
        if mean is not None and mean < -_CLOSE:
            losses.append(mean < -2 * (error or 0))
    return row | {"why": ("unknown" if any(losses) else _CHANCE) if losses else None}


def draw(found: Means, options: Options) -> None:
    """Draw accuracy or R^2 of all methods, a line of dots for each set."""
    styles = dict.fromkeys(PEERS, ("|", "0.5"))
    styles |= {"default": ("o", "C3"), "comparison": ("o", "C0")}
    with drawing("standings", options, figsize=(8, 0.4 * len(found) + 1.2)) as axes:
        for method, (mark, colour) in styles.items():
            points = [(v[method]["skill"], k) for k, v in enumerate(found.values()) if method in v]
            label = method if method in OURS else "peers" if method == "SVM" else None
            axes.plot(
                *zip(*points, strict=True), mark, color=colour, label=label
            ) if points else None
        axes.set_yticks(range(len(found)), list(found))
        axes.invert_yaxis()
        axes.set_xlabel("accuracy; of numbers R²")
        axes.grid(axis="y", color="0.9")
        axes.legend(loc="lower left")


if __name__ == "__main__":
    main(run)
