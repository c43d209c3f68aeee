"""Functions of the entries of a large matrix, computed in strips that fit into the processor's cache.

A profile of a distance takes ten to twenty elementwise operations. On a whole matrix, each of them reads
and writes main memory, and automatic differentiation keeps their results. In strips, they read and write
the cache, and the gradient computes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# Number of entries in a strip.
_STRIP = 2**16
# Matrices of at most this many entries are not split.
_SMALL = 2**18


def entrywise(
    function: Callable[[Tensor], Tensor], matrix: Tensor, parameters: Sequence[Tensor]
) -> Tensor:
    """Apply a function of each entry to a matrix.

    If the matrix is large, on the CPU and does not require a gradient, strips of rows are processed one
    at a time. Memory then holds the matrix, the result and one strip. The result is the same.

    Args:
        function: Function of a ``batch_shape x n x M`` tensor, for any number ``n`` of rows, that treats
            all entries alike and returns a tensor of the same last two axes.
        matrix: A ``batch_shape x N x M`` tensor.
        parameters: All tensors on which the function depends and that may require a gradient.

    Returns:
        A tensor that broadcasts with ``matrix``, ``batch_shape x N x M``.
    """
    if matrix.requires_grad or matrix.device.type != "cpu" or matrix.numel() <= _SMALL:
        return function(matrix)
    result: Tensor = _Entrywise.apply(function, matrix, *parameters)
    return result


class _Entrywise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Callable[[Tensor], Tensor], matrix: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(matrix, *parameters)
        first = function(matrix[..., :1, :])
        result = first.new_empty(*first.shape[:-2], *matrix.shape[-2:])
        for rows in _strips(result):
            result[..., rows, :] = function(matrix[..., rows, :])
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrix, *parameters = ctx.saved_tensors
        needed = [p for p, used in zip(parameters, ctx.needs_input_grad[2:], strict=True) if used]
        if torch.is_grad_enabled():  # second derivatives need a graph
            found = torch.autograd.grad(
                ctx.function(matrix), needed, gradient, create_graph=True, allow_unused=True
            )
        else:
            found = tuple(map(torch.zeros_like, needed))
            for rows in _strips(gradient):
                with torch.enable_grad():
                    strip = ctx.function(matrix[..., rows, :])
                terms = torch.autograd.grad(
                    strip, needed, gradient[..., rows, :], allow_unused=True
                )
                for total, term in zip(found, terms, strict=True):
                    total += 0 if term is None else term
        gradients = iter(found)
        return None, None, *(next(gradients) if n else None for n in ctx.needs_input_grad[2:])


def _strips(matrix: Tensor) -> Iterator[slice]:
    """Split the rows of a matrix into slices of about ``_STRIP`` entries."""
    rows = max(1, _STRIP * matrix.shape[-2] // matrix.numel())
    return (slice(start, start + rows) for start in range(0, matrix.shape[-2], rows))
