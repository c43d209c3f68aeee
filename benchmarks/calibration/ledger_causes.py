"""Why the coverage of 95% intervals leaves .90 to .98 in the rows of ``calibration_ledger``.

A cause has been measured: on the development seeds 900 to 905, or by another column or row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.harness import Row

# Fewer test targets than this leave coverage open.
FEW_TARGETS = 100

TOO_NARROW = {
    "heteroscedastic": (
        "One noise stands for all: on development seeds, intervals hold 1.00, .96 and .84 of the "
        "targets in the lowest, middle and highest third of predictions."
    ),
    "counts": (
        "The variance of a count grows with its mean: on development seeds, intervals hold .94, .93 and "
        ".83 of the targets in the lowest, middle and highest third of predictions."
    ),
}
TOO_WIDE = {"heavy tails": "Outliers make the noise large: 50% intervals hold {cover50:.2f}."}
# Of ``integrate`` with 15 clouds: its coverage, and coverage and relative width of the likeliest member
# without priors, means over 6 draws.
AVERAGES = {
    "molecules and counts": (0.963, 0.889, 0.57),
    "normal noise": (0.976, 0.894, 0.73),
    "heteroscedastic": (0.971, 0.907, 0.72),
    "solids": (0.988, 0.931, 0.73),
    "no noise, bags of 5000": (1.0, 0.979, 0.57),
    "no noise, bags of 5 to 5000": (0.997, 0.911, 0.63),
    "patients": (0.982, 0.837, 0.60),
}


def cause(row: Row, rows: Sequence[Row]) -> str | None:
    """Return why the coverage of a row is outside, or ``None`` if that is not known.

    Args:
        row: The row.
        rows: All rows of regression, which may give evidence.
    """
    return " ".join(_causes(row, rows)) or None


def remark(row: Row) -> str | None:
    """Return how little a row is outside, which is no cause, or ``None`` if it is further outside."""
    if row["place"] not in ("low", "high"):
        return None
    targets = int(str(row["targets"]))
    few = f" of {targets} targets" if targets < FEW_TARGETS else ""
    return f"Within two errors{few}."


def _causes(row: Row, rows: Sequence[Row]) -> Iterator[str]:
    task, model, train = str(row["task"]), row["model"], float(str(row["T"]))
    low = row["place"] in ("below", "low")
    cover, error = float(str(row["cover95"])), float(str(row["error"]))

    def other(name: str) -> float | None:
        found = [r for r in rows if (r["task"], r["model"], r["T"]) == (task, name, row["T"])]
        return float(str(found[0]["cover95"])) if found else None

    if task == "shifted: bags of 5 after 500":
        share = other("sampling noise")
        remedy = "" if share is None else f"; `sampling noise` covers {share:.3f}"
        yield f"Bags of 5 show their distribution far less clearly than training bags of 500{remedy}."
        return
    if task == "shifted: wider bags":
        yield (
            "Test bags are wider than all training bags: predictions do not rise with the width as the "
            "targets do, and intervals are too narrow, though those of `fit` are four to six times as "
            "wide as for bags like the training bags (development seeds)."
            if low
            else "Test bags are wider than all training bags: the prior is wider than their errors."
        )
        return
    if task in (TOO_NARROW if low else TOO_WIDE):
        yield (TOO_NARROW if low else TOO_WIDE)[task].format(**row)
    # Models have the same draws.
    bare = other("fit") if low and model == "scaled" else None
    if bare is not None and bare - cover > error:
        yield f"Scales learned from few clouds make intervals narrow; `fit` covers {bare:.3f}."
    integrated = other("integrate") if low and model != "integrate" and train <= 60 else None
    if integrated is not None and integrated - cover > error:
        yield f"Few clouds leave hyperparameters open; `integrate` covers {integrated:.3f}."
    if not low and model == "integrate" and train <= 15 and task in AVERAGES:
        before, after, width = AVERAGES[task]
        yield (
            "With 15 clouds, averages over hyperparameters with priors of the noise and the lengthscale "
            "are wide: on development seeds, the likeliest member without them is "
            f"{width:.2f} as wide and holds {after:.3f} in place of {before:.3f}."
        )
