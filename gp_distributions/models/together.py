"""Several models at the same inputs, which are transformed and represented only once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn import Module

from gp_distributions.context import setting
from gp_distributions.distances.evaluation import sharing

# Inputs transformed lately, with what keeps their identities from being reused.
_Transformed = dict[tuple[int, int, bool], tuple[Module, Tensor, Tensor]]
_transformed: ContextVar[_Transformed | None] = ContextVar("transformed", default=None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Share the inputs of several models within a ``with`` block, in the current thread only.

    Models with one input transform, such as a decoder, then transform each tensor once and see the same
    rows, and their distances represent these once, as within ``sharing``. Tensors and transforms are
    told apart by identity. Nested blocks share what the outermost has.
    """
    outer = _transformed.get()
    with sharing(), setting(_transformed, {} if outer is None else outer):
        yield


def transformed_once(transform: Module, X: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """Return the transformed inputs ``X``; within :func:`together`, compute them only once."""
    known = _transformed.get()
    if known is None or transform.training:
        return compute()
    key = id(transform), id(X), torch.is_grad_enabled()
    if key not in known:
        known[key] = transform, X, compute()
    return known[key][-1]
