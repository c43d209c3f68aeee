r"""Do labels of bags follow from means of a function of their atoms?

Sets of multiple instances, of the package mil, whose licence it does not state: ``musk1``, ``musk2`` and
``elephant``. ``ours`` is ``ClassificationGP(X, labels, aggregate_kernel(X))`` after ``fit``; ``peer`` is
logistic regression on 300 random features of mean embeddings, which chooses its bandwidth and its
penalty by three folds of the training bags. Both see the folds of the [league](league.md): five, the
same for both, and two repetitions. Scores are means over folds: ``accuracy``, log ``loss`` and
``seconds`` with the choice of hyperparameters and the predictions, beside other work on the machine;
``mil`` is installed as for the league.

    python -m benchmarks.prediction.bag_labels [--quick] [--seeds 2]
"""

from __future__ import annotations

import time
import warnings

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import Rows, Target, find, number
from benchmarks.league.bag_kernels import random_features
from benchmarks.league.measuring import folds
from benchmarks.league.scores import Fold, Prediction, Probabilities, Scores, scored
from benchmarks.league.sets import DEVELOPMENT
from benchmarks.league.standings import TOYS
from gp_distributions.kernels import aggregate_kernel

LONG, SEEDS = True, 2
# What logistic regression on random features had in a prototype: accuracy and log loss.
ASKED = {"musk1": (0.897, 0.30), "musk2": (0.902, 0.26), "elephant": (0.835, 0.38)}
_WHY = (
    "The target is within 0.02 of what the peer had in a prototype, whose folds are not known. On these "
    "folds, the peer itself has 0.848 and 0.334 on musk2."
)


def _within(column: str, place: int, sign: int) -> Target:
    """Return the target that no set is more than 0.02 worse than asked."""
    limits = {name: asked[place] + 0.02 * sign for name, asked in ASKED.items()}

    def judge(rows: Rows) -> tuple[str, bool]:
        found = {name: number(find(rows, set=name, model="ours"), column) for name in limits}
        met = all(sign * found[name] <= sign * limits[name] for name in limits)
        return ", ".join(f"{value:.3g}" for value in found.values()), met

    asked = ", ".join(f"{value:.3g}" for value in limits.values())
    relation = "<=" if sign > 0 else ">="
    text = f"{', '.join(limits)}: {column} of labels"
    return Target(text, f"{relation} {asked}", judge, _WHY)


def _beside_peer(column: str, sign: int) -> Target:
    """Return the target that no set is more than 0.02 worse than the peer on the same folds."""

    def judge(rows: Rows) -> tuple[str, bool]:
        ours, peers = (
            [number(find(rows, set=name, model=model), column) for name in ASKED]
            for model in ("ours", "peer")
        )
        losses = [sign * (mine - other) for mine, other in zip(ours, peers, strict=True)]
        return f"{max(losses):.3g}", max(losses) <= 0.02

    text = (
        f"{', '.join(ASKED)}: largest loss in {column} of labels against the peer on the same folds"
    )
    return Target(text, "<= 0.02", judge)


TARGETS = (
    _within("accuracy", 0, -1),
    _within("loss", 1, 1),
    _beside_peer("accuracy", -1),
    _beside_peer("loss", 1),
)


def ours(fold: Fold) -> Prediction:
    """A classifier whose latent functions are means of functions of atoms."""
    X = fold.train.clouds
    model = gd.fit(gd.ClassificationGP(X, fold.train.y, aggregate_kernel(X)), progress=False)
    return Probabilities(model.predict_proba(fold.test.clouds).numpy())


def run(options: Options) -> list[Row]:
    """Return one row per set and model."""
    sets = {"toy": TOYS["toy classes"]} if options.quick else {n: DEVELOPMENT[n] for n in ASKED}
    models = {"ours": ours, "peer": random_features}
    rows: list[Row] = []
    for name, load in sets.items():
        task = load()
        parts = [fold for seed in range(options.seeds) for fold in folds(task, seed)]
        found: dict[str, list[Scores]] = {model: [] for model in models}
        for fold in progress(parts[: 1 if options.quick else None], name):
            for model, predict in models.items():
                start = time.perf_counter()
                with warnings.catch_warnings(action="ignore"):  # of convergence, in the peer
                    scores = scored(predict(fold), fold, 1.0)
                found[model].append(scores | {"seconds": time.perf_counter() - start})
        for model, some in found.items():
            mean = means(some)
            row: Row = {"set": name, "model": model, "accuracy": mean["skill"]}
            rows.append(row | {"loss": mean["loss"], "seconds": mean["seconds"]})
    return rows


if __name__ == "__main__":
    main(run)
