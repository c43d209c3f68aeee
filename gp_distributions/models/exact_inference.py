"""Exact inference whatever GPyTorch's settings are, and warnings that say what to do."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import gpytorch
import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gp_distributions.warnings import JitterWarning

_ONE_SAMPLE = torch.Size()


def exact_computations() -> contextlib.AbstractContextManager[Any]:
    """Cholesky factors at every size; GPyTorch's conjugate gradients start at 800 points."""
    return gpytorch.settings.fast_computations(
        covar_root_decomposition=False, log_prob=False, solves=False
    )


class ExactMultivariateNormal(gpytorch.distributions.MultivariateNormal):
    """A multivariate normal whose density and samples are computed by Cholesky factors."""

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of ``value``."""
        with exact_computations():
            return super().log_prob(value)

    def rsample(
        self, sample_shape: torch.Size = _ONE_SAMPLE, base_samples: Tensor | None = None
    ) -> Tensor:
        """Reparametrised samples, ``sample_shape x batch_shape x N``."""
        with exact_computations():
            return super().rsample(sample_shape, base_samples)


@contextlib.contextmanager
def jitter_noted() -> Iterator[list[str]]:
    """Keep the notes about jitter of all factorisations within for the list that is given."""
    jitter: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield jitter
        finally:
            jitter += [
                str(w.message)
                for w in caught
                if issubclass(w.category, NumericalWarning) and "jitter" in str(w.message)
            ]
            others = [w for w in caught if str(w.message) not in jitter]
    for w in others:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno, source=w.source)


@contextlib.contextmanager
def jitter_explained() -> Iterator[None]:
    """Turn the notes about jitter of all factorisations within into one :class:`JitterWarning`."""
    with jitter_noted() as jitter:
        yield
    if jitter:
        warnings.warn(
            f"A covariance matrix was not positive definite in floating point ({len(jitter)} times; "
            f"last: {jitter[-1]}). The intervals are then those of a model with that much more "
            "noise. Look for duplicate clouds, use double precision, or raise the noise.",
            JitterWarning,
            stacklevel=4,
        )
