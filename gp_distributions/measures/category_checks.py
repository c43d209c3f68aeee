"""Columns that are read as categories although their values suggest numbers or names."""

from __future__ import annotations

from gp_distributions.measures.covariates import Covariates, Level

# Up to this many levels, text is taken for categories without question.
_FEW = 10


def check_categories(covariates: Covariates, block: str) -> None:
    """Check that no column of many categories consists mostly of numbers, or differs in every row.

    One word among the numbers of a table makes all of them text, and a column that names the rows says
    nothing about new ones. A column whose type declares its categories is not checked.

    Args:
        covariates: Covariates from which categories are learned.
        block: Name of their block, for error messages.

    Raises:
        ValueError: If there is such a column.
    """
    for name in covariates.columns:
        if name not in covariates.levels:
            _check_column(covariates, name, f"Column {name!r} of block {block!r}")


def _check_column(covariates: Covariates, name: str, where: str) -> None:
    entries = covariates.columns[name].tolist()
    levels = len(set(entries))
    if levels <= _FEW or not any(isinstance(entry, str) for entry in entries):
        return
    declare = f'frame[{name!r}].astype("category") in pandas, pl.Enum in Polars'
    words = [row for row, entry in enumerate(entries) if not _is_number(entry)]
    if 2 * len(words) < len(entries):
        if not words:
            problem = f"got numbers as text, such as {entries[0]!r}. Convert the column to numbers"
        else:
            labels = covariates.labels
            row = words[0] if labels is None else labels.tolist()[words[0]]
            problem = (
                f"got {entries[words[0]]!r} in row {row!r} of a column of numbers. Replace it with a "
                "number or drop the row"
            )
        raise ValueError(
            f"{where}: expected numbers or categories, {problem}; or declare {levels} categories: "
            f"{declare}."
        )
    if levels == len(entries):
        raise ValueError(
            f"{where}: expected categories that several rows share, got a different one in each of "
            f"{levels} rows. Drop the column if it names the rows, or declare the categories: {declare}."
        )


def _is_number(entry: Level) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return True
