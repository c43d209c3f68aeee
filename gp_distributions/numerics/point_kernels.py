"""Embedding kernels that are given as functions of points or as GPyTorch kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import reduce
from operator import add, mul
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from linear_operator import to_dense
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import EmbeddingKernel


class PointKernel(EmbeddingKernel):
    """A kernel on points that does not change.

    It is not a module, so that its hyperparameters and its scale are not taken for those of a kernel on
    distributions.

    Args:
        function: A GPyTorch kernel, or a function that maps a ``batch_shape x N x d`` and a
            ``batch_shape x M x d`` tensor to a ``batch_shape x N x M`` tensor. A kernel or other module
            is copied, and its parameters are fixed.

    Raises:
        TypeError: If ``function`` cannot be called.
        ValueError: If a GPyTorch kernel has batch axes.
    """

    workspace = 8  # unknown; a sum of two kernels needs about so many
    on_arrays = False

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(
                "Expected the name of an embedding kernel, a function of points or a GPyTorch kernel, "
                f"got {type(function).__name__}."
            )
        if isinstance(function, Kernel) and function.batch_shape:
            raise ValueError(
                f"Expected a kernel on points without batch axes, got batch_shape="
                f"{tuple(function.batch_shape)}."
            )
        if isinstance(function, torch.nn.Module):
            function = copy.deepcopy(function).requires_grad_(False).eval()
        self.function = function

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of points."""
        function = self.function
        if isinstance(function, torch.nn.Module):
            function = function.to(x.device)
        values = _covariances(function, x, y) if isinstance(function, Kernel) else function(x, y)
        expected = torch.broadcast_shapes(x.shape[:-1], (1,)) + y.shape[-2:-1]
        if not isinstance(values, Tensor) or values.shape != expected:
            found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"Expected {self} to return a tensor of shape {tuple(expected)} for points of shapes "
                f"{tuple(x.shape)} and {tuple(y.shape)}, got {found}."
            )
        return values.to(x.dtype)

    def __repr__(self) -> str:
        """Return the name of the function or of the class of the kernel."""
        return getattr(self.function, "__name__", type(self.function).__name__)


def _covariances(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """Evaluate a GPyTorch kernel without lazy tensors, which are not safe in threads."""
    if kernel.active_dims is not None:
        x, y = (points.index_select(-1, kernel.active_dims) for points in (x, y))
    return _of_columns(kernel, x, y)


def _of_columns(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """Evaluate a GPyTorch kernel on its columns."""
    if type(kernel) is ScaleKernel:  # it has already selected the columns of its base kernel
        scaled: Tensor = kernel.outputscale * _of_columns(kernel.base_kernel, x, y)
        return scaled
    if type(kernel) in (AdditiveKernel, ProductKernel):
        terms = (_covariances(part, x, y) for part in kernel.kernels)
        return reduce(add if type(kernel) is AdditiveKernel else mul, terms)
    return to_dense(kernel.forward(x, y))
