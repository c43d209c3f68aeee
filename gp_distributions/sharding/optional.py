"""Packages that are needed only for some data."""

from __future__ import annotations

from importlib.util import find_spec


def needed(package: str, extra: str, purpose: str) -> None:
    """Check that an optional package is installed.

    Raises:
        ImportError: If it is not; the message says how to install it.
    """
    if find_spec(package) is None:
        raise ImportError(
            f"{purpose} need the package {package}: pip install gp-distributions[{extra}]."
        )
