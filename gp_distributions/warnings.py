"""Warning categories of this package, each of which can be filtered alone, and how they are raised."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

# Code that lies between this package and the line that a user wrote.
_INNER = {
    "botorch",
    "contextlib",
    "gp_distributions",
    "gpytorch",
    "linear_operator",
    "sklearn",
    "torch",
}

_silent: ContextVar[bool] = ContextVar("silent", default=False)


class DistributionWarning(UserWarning):
    """Base class of all warnings of this package.

    Example:
        >>> import warnings
        >>> from gp_distributions.warnings import DistributionWarning
        >>> warnings.simplefilter("error", DistributionWarning)  # an error instead of a warning
    """


class PrecisionWarning(DistributionWarning):
    """Data are in single precision where double precision is advised."""


class ConvergenceWarning(DistributionWarning):
    """An optimiser stopped before it converged."""


class JitterWarning(DistributionWarning):
    """A covariance matrix is not positive definite in floating point, and its diagonal was raised."""


class ReferenceWarning(DistributionWarning):
    """A reference measure sees too little of the data to be trusted."""


class TiesWarning(DistributionWarning):
    """Equal atoms of a bag are merged as copies of one, although they may be equal measurements."""


class NotHilbertianWarning(DistributionWarning):
    """A distance is not Hilbertian, so that its kernels need not be positive semi-definite."""


def warn(message: str, category: type[DistributionWarning]) -> None:
    """Warn at the line of the user's code that led here, unless :func:`silenced`.

    Args:
        message: What is wrong and what to do about it.
        category: Category of the warning.
    """
    if _silent.get():
        return
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Raise no warnings of this package within, in the current thread only."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)
