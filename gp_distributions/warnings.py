"""Warning categories of this package, one for each problem, so that each can be filtered separately."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

# Packages whose stack frames are skipped to find the line of the user's code.
_INNER = {
    "botorch",
    "contextlib",
    "functools",
    "gp_distributions",
    "gpytorch",
    "joblib",
    "linear_operator",
    "sklearn",
    "torch",
}

__all__ = [
    "ConvergenceWarning",
    "CostWarning",
    "DistributionWarning",
    "JitterWarning",
    "MissingWarning",
    "NotHilbertianWarning",
    "OrderWarning",
    "PrecisionWarning",
    "ReferenceWarning",
    "UndeterminedWarning",
    "UnitsWarning",
    "silenced",
]

# Categories of warnings that are collected, each with what was collected so far; the innermost last.
_collections: ContextVar[tuple[tuple[type[Warning], list[Any]], ...]]
_collections = ContextVar("collections", default=())


class DistributionWarning(UserWarning):
    """Base class of all warnings of this package.

    Example:
        >>> import warnings
        >>> from gp_distributions.warnings import DistributionWarning
        >>> warnings.simplefilter("error", DistributionWarning)  # an error instead of a warning
    """


class PrecisionWarning(DistributionWarning):
    """The data are in single precision although double precision is recommended."""


class ConvergenceWarning(DistributionWarning):
    """An optimiser or solver stopped before it converged."""


class CostWarning(DistributionWarning):
    """A computation takes long or needs much memory, and another one does not."""


class JitterWarning(DistributionWarning):
    """A covariance matrix was not numerically positive definite, so jitter was added to its diagonal."""


class ReferenceWarning(DistributionWarning):
    """A reference measure covers too little of the data for reliable results."""


class MissingWarning(DistributionWarning):
    """Atoms that lack a value were left out."""


class OrderWarning(DistributionWarning):
    """Targets without names are taken to be in the order of clouds with names."""


class NotHilbertianWarning(DistributionWarning):
    """A distance is not Hilbertian, so its kernels may not be positive semi-definite."""


class UndeterminedWarning(DistributionWarning):
    """Intervals depend on hyperparameters that the data do not determine."""


class UnitsWarning(DistributionWarning):
    """One coordinate decides a distance alone because of its unit."""


def warn(message: str, category: type[DistributionWarning]) -> None:
    """Issue a warning that points at the line of the user's code, unless it is :func:`collected`.

    Args:
        message: The problem and what to do about it.
        category: Category of the warning.
    """
    for kind, found in reversed(_collections.get()):
        if issubclass(category, kind):
            found.append((message, category))
            return
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextlib.contextmanager
def collected(
    category: type[Warning] = DistributionWarning,
) -> Iterator[list[tuple[str, type[DistributionWarning]]]]:
    """Collect the messages and categories of warnings within a block and thread, and issue none.

    Args:
        category: Category of the warnings. Default: all warnings of this package.
    """
    found: list[tuple[str, type[DistributionWarning]]] = []
    token = _collections.set((*_collections.get(), (category, found)))
    try:
        yield found
    finally:
        _collections.reset(token)


@contextlib.contextmanager
def naming(subject: str) -> Iterator[None]:
    """Begin warnings of this package with their subject, where several are at work in one call."""
    found: list[tuple[str, type[DistributionWarning]]] = []
    try:
        with collected() as found:
            yield
    finally:
        for message, category in found:
            warn(f"{subject}: {message}", category)


@contextlib.contextmanager
def silenced(category: type[Warning] = DistributionWarning) -> Iterator[None]:
    """Silence warnings of this package within a ``with`` block, in the current thread only.

    Args:
        category: Category of the warnings. Default: all warnings of this package.

    Example:
        >>> from gp_distributions import PrecomputedDistance
        >>> from gp_distributions.warnings import silenced
        >>> with silenced():  # these squared distances are not Hilbertian
        ...     distance = PrecomputedDistance([[0.0, 1.0, 9.0], [1.0, 0.0, 1.0], [9.0, 1.0, 0.0]])
        >>> distance.negative_part > 0
        True
    """
    with collected(category):
        yield
