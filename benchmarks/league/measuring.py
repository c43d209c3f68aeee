"""Measurements of the league, kept by set, method, repetition and fold, so that a run goes on."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sklearn.model_selection import KFold, StratifiedKFold

import gp_distributions
from benchmarks.harness import progress
from benchmarks.league.bag_kernels import random_features, set_kernel
from benchmarks.league.graphs import weisfeiler_lehman
from benchmarks.league.networks import attention, deep_sets
from benchmarks.league.ours import aggregate, comparison, default, linear, sums
from benchmarks.league.scores import Fold, Prediction, scored
from benchmarks.league.sets import Task
from benchmarks.league.tables import boosting, forest, gaussian_process, principal, support_vectors

LINES = Path(__file__).parents[1] / "results" / "league.jsonl"
OURS: dict[str, Callable[[Fold], Prediction]] = {"default": default, "comparison": comparison}
PEERS: dict[str, Callable[[Fold], Prediction]] = {
    "boosting": boosting,
    "forest": forest,
    "SVM": support_vectors,
    "GP": gaussian_process,
    "set kernel": set_kernel,
    "principal": principal,
    "Weisfeiler-Lehman": weisfeiler_lehman,
    "random features": random_features,
    "DeepSets": deep_sets,
    "attention": attention,
}
# What explains losses, and what sees more; no part of the ranks.
VARIANTS: dict[str, Callable[[Fold], Prediction]] = {
    "linear": linear,
    "aggregate": aggregate,
    "sums": sums,
}
METHODS = OURS | PEERS | VARIANTS
# Fields of a set that methods need, and only some sets have.
NEEDS = {"principal": "aligned", "Weisfeiler-Lehman": "graphs", "sums": "atoms"}
FOLDS, REPETITIONS, LARGE = 5, 2, 300
# A measurement: set, method, scores, and at which repetition and fold.
Line = dict[str, Any]


def kept(file: Path) -> list[Line]:
    """Return what was measured, of the package by this version of it."""
    if not file.exists():
        return []
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    version = gp_distributions.__version__
    return [line for line in lines if line.get("version", version) == version]


def folds(task: Task, repetition: int) -> Iterator[Fold]:
    """Yield the folds of a repetition, the same for all methods."""
    kind = StratifiedKFold if task.labelled else KFold
    splits = kind(FOLDS, shuffle=True, random_state=repetition).split(task.y, task.y)
    for train, test in splits:
        yield Fold(task[train], task[test], repetition)


def measure(
    name: str,
    load: Callable[[], Task],
    file: Path,
    *,
    methods: Iterable[str] = (*OURS, *PEERS),
    repetitions: int = REPETITIONS,
    most: int = FOLDS,
) -> None:
    """Measure methods on a set, in the first folds of each repetition, and append to a file.

    Args:
        name: Name of the set.
        load: Returns its bags.
        file: File of the measurements.
        methods: Names of methods.
        repetitions: Number of repetitions; one above 300 bags.
        most: Number of folds of a repetition that are measured.
    """
    done = {(line["set"], line["method"], *line["at"]) for line in kept(file)}
    task = load()
    unit = 1.0 if task.labelled else float(task.y.std())
    parts = [
        (repetition, number, fold)
        for repetition in range(1 if len(task.y) > LARGE else repetitions)
        for number, fold in enumerate(folds(task, repetition))
        if number < most
    ]
    methods = [m for m in methods if m not in NEEDS or getattr(task, NEEDS[m]) is not None]
    todo = [(m, *part) for part in parts for m in methods if (name, m, *part[:2]) not in done]
    for method, repetition, number, fold in progress(todo, name):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence, in peers
            found = METHODS[method](fold)
        seconds = round(time.perf_counter() - start, 2)
        scores = {k: round(v, 6) for k, v in scored(found, fold, unit).items()}
        line: Line = {"set": name, "method": method, "at": [repetition, number]}
        line |= {"scores": scores | {"seconds": seconds}}
        line |= {"version": gp_distributions.__version__} if method not in PEERS else {}
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
