"""What a caller has passed, in words for error messages."""

from __future__ import annotations

from typing import Any


def described(value: Any) -> str:
    """Name the class of a value, or the class itself if the caller passed one instead of an instance."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
