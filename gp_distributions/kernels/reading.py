"""Find the columns of rows that kernels read, and check that distributions fit the kernels."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.kernels.covariances import BlockKernel
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures.encoding import CovariateEncoding, MixedEncoding
from gp_distributions.measures.inputs import Encoding, Inputs, kind_of
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.layout import Block, Columns, Slots

KernelT = TypeVar("KernelT", bound=Kernel)


def distribution_kernels(module: torch.nn.Module) -> list[tuple[DistributionKernel, Block]]:
    """Return each distribution kernel of a module, with the block of a row that it reads."""
    return [pair for pair in readers(module) if isinstance(pair[0], DistributionKernel)]


def readers(
    module: torch.nn.Module,
) -> list[tuple[DistributionKernel | ExpectedKernel, Block]]:
    """Return each kernel of a module that reads distributions, with the block of a row that it reads.

    The columns of a block follow from the ``active_dims`` of the kernel and of the kernels that contain
    it, and from block kernels. A kernel that occurs in several places may read several blocks.

    Raises:
        ValueError: If ``active_dims`` select from a block whose width depends on that of the rows.
    """
    return list(dict.fromkeys(_walk(torch.nn.ModuleList([module]), None)))


def _walk(
    module: torch.nn.Module, columns: Columns
) -> Iterator[tuple[DistributionKernel | ExpectedKernel, Block]]:
    if isinstance(module, DistributionKernel | ExpectedKernel):
        reader = module.distance if isinstance(module, DistributionKernel) else module
        yield module, Block(reader.inputs, reader.dim, columns)
        return
    if isinstance(module, BlockKernel):
        columns = _within(columns, module.columns)
    for child in module.children():
        dims = child.active_dims if isinstance(child, Kernel) else None
        # A ScaleKernel selects the columns of its base kernel. Other kernels select from their input.
        if dims is None or isinstance(module, ScaleKernel):
            yield from _walk(child, columns)
        else:
            yield from _walk(child, _within(columns, tuple(dims.tolist())))


def _within(outer: Columns, inner: Columns) -> Columns:
    """Return the columns of a row that are the columns ``inner`` of its columns ``outer``."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    if isinstance(outer, Slots) or isinstance(inner, Slots):
        raise ValueError(
            "Expected kernels that read a whole block of clouds, got a BlockKernel of clouds along with "
            "active_dims. Leave active_dims out."
        )
    return tuple(outer[i] for i in inner)


def inside_blocks(kernel: torch.nn.Module) -> set[torch.nn.Module]:
    """Return the parts of the kernels of blocks."""
    blocks = (part for part in kernel.modules() if isinstance(part, BlockKernel))
    return {part for block in blocks for part in block.base_kernel.modules()}


def default_distances(kernel: torch.nn.Module) -> list[ScaledDistance]:
    """Return the distances of a kernel that a model has made itself, one for each distribution."""
    found = [each.distance for each, _ in distribution_kernels(kernel)]
    return [distance for distance in found if isinstance(distance, ScaledDistance)]


def with_distances(
    kernel: KernelT,
    others: Mapping[ScaledDistance, Distance] | None = None,
    *,
    parameters: Iterable[torch.nn.Parameter] = (),
) -> KernelT:
    """Return a copy of a kernel that shares its distances, with others in the place of some of them.

    Args:
        kernel: The kernel.
        others: What takes the place of some of its distances.
        parameters: Parameters that the copy shares, too.
    """
    found = [each.distance for each, _ in distribution_kernels(kernel)]
    shared = {id(part): part for distance in found for part in distance.modules()}
    replaced = {id(distance): other for distance, other in (others or {}).items()}
    return copy.deepcopy(kernel, shared | {id(each): each for each in parameters} | replaced)


def with_kernels(
    kernel: KernelT, others: Mapping[DistributionKernel, DistributionKernel]
) -> KernelT:
    """Return a copy of a kernel with others in the place of its parts that read distributions."""
    return copy.deepcopy(kernel, {id(part): other for part, other in others.items()})


def check_kind(
    X: Inputs | Tensor, covar_module: torch.nn.Module, encoding: Encoding | None = None
) -> None:
    """Check that kernels expect the kind and dimension of the distributions in ``X``.

    Args:
        X: The distributions, or rows, which are not checked.
        covar_module: A module that contains the kernels.
        encoding: The encoding by which mixed inputs become rows. Default: the one that they define.

    Raises:
        TypeError: If ``X`` is neither distributions nor a tensor.
        ValueError: If a kernel expects another kind or dimension, or if all kernels are
            GPyTorch's own, which do not read distributions.
    """
    if isinstance(X, MixedInputs):
        given = encoding if isinstance(encoding, MixedEncoding) else X.encoding
        _check_blocks(X, covar_module, given)
        return
    kind = kind_of(X)
    if isinstance(X, Tensor):
        return
    modules = [module for module in covar_module.modules() if isinstance(module, Kernel)]
    if any(isinstance(module, BlockKernel) for module in modules):
        raise ValueError(
            f"Expected mixed inputs or their rows, whose blocks the kernel reads, got "
            f"{type(X).__name__}. Pass MixedInputs(name=...)."
        )
    if all(type(module).__module__.startswith("gpytorch.") for module in modules):
        raise ValueError(
            f"Expected a kernel of distributions, got a {type(covar_module).__name__}, which would "
            "compare the columns of rows, padding included. Use for example "
            "SlicedWassersteinKernel(dim). If columns are to be compared, pass rows: clouds.pack()."
        )
    for kernel, block in readers(covar_module):
        if isinstance(X, PointClouds) and X.kind_names and not getattr(kernel, "num_kinds", 0):
            raise ValueError(
                f"Expected clouds without kinds, which {type(kernel).__name__} does not read, got {X}. "
                "Use AggregateGP, or write one column for each kind behind the positions, such as "
                "torch.nn.functional.one_hot(X.points[..., -1].long())."
            )
        if block.columns is None and (block.kind, block.dim) != (kind, X.dim):
            raise ValueError(
                f"Expected {block.kind} of dimension {block.dim}, which the kernel reads, "
                f"got {type(X).__name__} of dimension {X.dim}. Pass inputs like those of training, or "
                f'make the kernel with dim={X.dim} and inputs="{kind}".'
            )


def _check_blocks(X: MixedInputs, covar_module: torch.nn.Module, encoding: MixedEncoding) -> None:
    """Check that kernels read the blocks of mixed inputs."""
    kinds: dict[Columns, Block | CovariateEncoding]
    kinds = {columns: encoding.blocks[name] for name, columns in encoding.columns.items()}
    inside = inside_blocks(covar_module)
    blocks = [m for m in covar_module.modules() if isinstance(m, BlockKernel) and m not in inside]
    used = {block.columns for block in blocks}
    if not used or not kinds.keys() >= used:
        raise ValueError(
            f"Expected a kernel of the blocks {list(encoding.blocks)}, got one of other rows. Make the "
            "kernel with mixed_kernel(inputs, {name: kernel, ...})."
        )
    for kernel, block in readers(covar_module):
        expected = kinds.get(block.columns)
        if not isinstance(expected, Block) or (expected.kind, expected.dim) != (
            block.kind,
            block.dim,
        ):
            name = next((n for n, c in encoding.columns.items() if c == block.columns), None)
            raise ValueError(
                f"Expected a kernel of block {name!r}, {X.blocks.get(name or '')}, got a "
                f"{type(kernel).__name__} of {block.kind} of dimension {block.dim}."
            )
