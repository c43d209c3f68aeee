"""Columns that are read as categories although their values suggest numbers."""

from __future__ import annotations

from gp_distributions.measures.covariates import Covariates, Level

# Up to this many levels, text is taken for categories without question.
_FEW = 10


def check_categories(covariates: Covariates, block: str) -> None:
    """Check that no column of many categories consists mostly of numbers.

    One word among the numbers of a table makes all of them text. A column whose type declares its
    categories is not checked.

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
    words = [row for row, entry in enumerate(entries) if not _is_number(entry)]
    if 2 * len(words) >= len(entries):
        return
    dtypes = f'frame[{name!r}].astype("category") in pandas, pl.Enum in Polars'
    declare = f"declare {levels} categories: {dtypes}"
    if not words:
        comma = any("," in entry for entry in entries if isinstance(entry, str))
        how = ', such as with pandas.read_csv(path, decimal=",")' if comma else ""
        raise ValueError(
            f"{where}: expected numbers or categories, got numbers as text, such as {entries[0]!r}. "
            f"Convert the column to numbers{how}; or, if they are codes, {declare}."
        )
    word, labels = entries[words[0]], covariates.labels
    row = words[0] if labels is None else labels.tolist()[words[0]]
    got = f"got {word!r} in row {row!r} of a column of numbers"
    if any(character.isdigit() for character in str(word)):
        number = next(entry for entry in entries if _is_number(entry))
        advice = (
            f"If {word!r} and {number!r} are codes, {declare}; this keeps all rows. If it is a "
            "misspelt number, correct it"
        )
    else:
        advice = (
            f"Replace it with a number, such as the median, beside a column that tells where it was; or "
            f"{declare}. Either keeps all rows"
        )
    raise ValueError(f"{where}: expected numbers or categories, {got}. {advice}.")


def _is_number(entry: Level) -> bool:
    try:
        float(entry.replace(",", ".") if isinstance(entry, str) else entry)
    except ValueError:
        return False
    return True
