"""What a caller has passed, in words for error messages."""

from __future__ import annotations

from typing import Any


def described(value: Any) -> str:
    """Name the class of a value, or the class itself if the caller passed one instead of an instance."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_type(value: object, *kinds: type) -> None:
    """Check that a value is an instance of one of some classes.

    Raises:
        TypeError: If it is not. The message says how lists of arrays are read.
    """
    if not isinstance(value, kinds):
        names = [kind.__name__ for kind in kinds]
        advice = ""
        if "PointClouds" in names:
            advice = " Convert a list of arrays with PointClouds.from_list."
        raise TypeError(f"Expected {' or '.join(names)}, got {described(value)}.{advice}")
