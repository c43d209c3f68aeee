"""Kernels on several inputs at once: products and sums of a kernel for each block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch
from botorch.models.kernels.categorical import CategoricalKernel
from gpytorch.constraints import Positive
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, ScaleKernel

from gp_distributions.kernels.covariances import BlockKernel
from gp_distributions.kernels.default import default_base
from gp_distributions.measures.arrays import check_type
from gp_distributions.measures.encoding import CovariateEncoding, MixedEncoding, Part
from gp_distributions.measures.gaussians import Distributions
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.rows.layout import Block

Structure: TypeAlias = Literal["product", "sum", "sum+product"]
STRUCTURES: tuple[Structure, ...] = ("product", "sum", "sum+product")

_NO_BATCH = torch.Size()


def mixed_kernel(
    inputs: MixedInputs | MixedEncoding,
    kernels: Mapping[str, Kernel] | None = None,
    *,
    structure: Structure = "product",
    batch_shape: torch.Size = _NO_BATCH,
) -> Kernel:
    r"""Make a kernel on mixed inputs from a kernel for each block.

    With kernels :math:`k_b` on the blocks :math:`x_b` and outputscales :math:`s`, the structures are

    .. math::
        s \prod_b k_b(x_b, x'_b), \qquad
        \sum_b s_b\, k_b(x_b, x'_b), \qquad
        \sum_b s_b\, k_b(x_b, x'_b) + s \prod_b k_b(x_b, x'_b).

    The product models functions in which the effect of a block depends on the others; a block with a
    long lengthscale has no effect. The sum models functions in which the effects of blocks add up. The
    terms of the third structure share the kernels :math:`k_b`.

    Args:
        inputs: The training inputs, or their encoding, which determine the columns of each block.
        kernels: Kernels of some blocks, by name, each on the columns of its block: distributions, or
            the encoded covariates. The default is a kernel of ``SlicedWasserstein`` for clouds, with the
            sizes of bags if they vary, and Gaussians, and of ``MMD`` for mixtures, both inside a
            :class:`ScaledDistance`, and, for covariates, the product of a Matern 5/2 kernel of the
            numbers and BoTorch's ``CategoricalKernel`` of the categories, with a lengthscale for each
            column.
        structure: ``"product"``, ``"sum"`` or ``"sum+product"``.
        batch_shape: Batch shape of the parameters of default kernels and of outputscales, such as the
            number of outputs of a :class:`DistributionGP`.

    Returns:
        A kernel on rows that ``inputs.pack()`` returns, for models of these inputs.

    Raises:
        TypeError: If ``inputs`` are neither.
        ValueError: If there is no block of the name of a kernel, or no such structure.

    Example:
        >>> from gp_distributions import MMDKernel, MixedInputs, PointClouds, mixed_kernel
        >>> cells = PointClouds.from_list([[[0.0], [2.0]], [[1.0]], [[3.0]]])
        >>> X = MixedInputs(cells=cells, age=[50.0, 60.0, 70.0], arm=["drug", "drug", "placebo"])
        >>> kernel = mixed_kernel(X, {"cells": MMDKernel(1)}, structure="sum+product")
        >>> kernel(X.pack()).to_dense().shape
        torch.Size([3, 3])
    """
    if structure not in STRUCTURES:
        raise ValueError(f"Expected a structure from {STRUCTURES}, got {structure!r}.")
    check_type(inputs, MixedInputs, MixedEncoding)
    encoding = inputs.encoding if isinstance(inputs, MixedInputs) else inputs
    given = dict(kernels or {})
    unknown = sorted(given.keys() - encoding.blocks.keys())
    if unknown:
        raise ValueError(
            f"Expected kernels of the blocks {list(encoding.blocks)}, got one of {unknown[0]!r}."
        )
    columns = encoding.columns
    sources = inputs.blocks if isinstance(inputs, MixedInputs) else encoding.blocks
    parts = [
        BlockKernel(given.get(name) or _default(block, sources[name], batch_shape), columns[name])
        for name, block in encoding.blocks.items()
    ]
    if structure == "product" or len(parts) == 1:
        return _scaled(_product(parts), 1.0, batch_shape)
    terms: list[Kernel] = [*parts, *([ProductKernel(*parts)] if structure != "sum" else [])]
    return AdditiveKernel(*(_scaled(term, 1 / len(terms), batch_shape) for term in terms))


def _default(
    block: Block | CovariateEncoding,
    source: Part | Block | CovariateEncoding,
    batch_shape: torch.Size,
) -> Kernel:
    if isinstance(source, Distributions | Block):
        return default_base(source, batch_shape)
    assert isinstance(block, CovariateEncoding)
    factors: list[Kernel] = []
    for kind, places in ((MaternKernel, block.numbers), (CategoricalKernel, block.categories)):
        if places:
            kernel = kind(
                ard_num_dims=len(places),
                batch_shape=batch_shape,
                lengthscale_constraint=Positive(torch.exp, torch.log),
            )
            # Encoded numbers have variance 1, and the distances of categories are averages.
            kernel.lengthscale = math.sqrt(len(places)) if kind is MaternKernel else 1.0
            # Indexing a batch of kernels would index active_dims as well.
            factors.append(
                kernel if len(places) == len(block.columns) else BlockKernel(kernel, places)
            )
    return _product(factors)


def _product(factors: list[Kernel] | list[BlockKernel]) -> Kernel:
    return factors[0] if len(factors) == 1 else ProductKernel(*factors)


def _scaled(kernel: Kernel, outputscale: float, batch_shape: torch.Size) -> ScaleKernel:
    scaled = ScaleKernel(kernel, batch_shape=batch_shape)
    scaled.outputscale = outputscale
    return scaled
