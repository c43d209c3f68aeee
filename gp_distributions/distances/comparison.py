"""Squared distances between rows, in one of two ways.

Without gradients, they are computed from representations that rows hold, once for the same two sets of
rows; with gradients of rows or parameters, anew each time. :func:`rounding_of` says how large they may
be between clouds that coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import gpytorch
import torch
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.numerics.pairwise import squared_euclidean_to
from gp_distributions.rows.clouds import drop_copies, equal_rows, same_tensor
from gp_distributions.rows.layout import check_weights
from gp_distributions.rows.tensors import is_tracked

if TYPE_CHECKING:
    from gp_distributions.distances.base import Distance

# Largest size in bytes of representations that are always prepared for comparisons, which copies them:
# beside few new clouds, that takes as long as the comparison.
_PREPARED_BYTES = 2**27
# Size in bytes of the representations that are compared with prepared ones at a time. Their memory is
# used again; to provide new memory would take as long as a third of the representations.
_BLOCK_BYTES = 2**24

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


def squared(distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows, *, diag: bool) -> Tensor:
    """Compute squared distances, whose batch axes broadcast with those of the rows."""
    num1, num2 = x1.rows.shape[-2], x2.rows.shape[-2]
    shape = (num1,) if diag else (num1, num2)
    current = in_mode(distance)
    if 0 in (x1.rows.numel(), x2.rows.numel()):
        return _zeros(current, x1, x2).expand(shape).clone()
    with torch.no_grad():
        distance.adapt(drop_copies(x1.rows.detach()))
    equal = x1 is x2 or same_tensor(x1.rows.detach(), x2.rows.detach())
    if equal and (diag or num1 == 1):
        check_weights(distance.block.split(drop_copies(x1.rows))[1])
        return _zeros(current, x1, x2).expand(shape).clone()
    if equal and not is_tracked(x1.rows, x2.rows):
        x2 = x1  # one set of rows, between which distances are symmetric
    if needs_gradient(current, x1.rows) or needs_gradient(current, x2.rows):
        return differentiable(distance, x1, x2, diag=diag)
    with torch.no_grad():
        return constant(distance, x1, x2, diag=diag)


def constant(distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows, *, diag: bool) -> Tensor:
    """Compute squared distances without gradients, once for the same two sets of rows."""

    def within() -> Tensor:
        representation = distance.represented(x1)
        return distance.compare_all(representation, representation)

    def across() -> Tensor:
        if diag:
            return distance.compare_paired(distance.represented(x1), distance.represented(x2))
        return _in_blocks(distance, x1, x2)

    if x1 is x2:
        return x1.derived("within", within, by=distance)
    return x1.derived(diag, across, by=distance, beside=x2)


def differentiable(distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows, *, diag: bool) -> Tensor:
    """Compute squared distances with gradients; between a cloud and itself, both are zero."""
    current = in_mode(distance)
    r1 = distance.represented(x1)
    if x1 is x2:
        return current.compare_all(r1, r1)
    # Where only x1 has a gradient, equal rows need no representation of their own.
    alike = not needs_gradient(current, x2.rows) and same_tensor(x1.rows.detach(), x2.rows)
    r2 = r1.detach() if alike else distance.represented(x2)
    if diag:
        found = current.compare_paired(r1, r2)
    else:
        compare = current.compare_all if alike else _comparison_with(distance, x2, r2)
        found = compare(r1, r2)
    # Representations with and without a gradient may be rounded differently.
    return found.masked_fill(equal_rows(x1.rows, x2.rows, diag=diag), 0)


def _in_blocks(distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows) -> Tensor:
    """Compute squared distances between two sets without gradients, in blocks to bound memory."""
    size = distance.block_rows
    r2 = distance.represented(x2)
    compare = _comparison_with(distance, x2, r2)
    if distance.euclidean and x2.prepared:
        size = max(1, _BLOCK_BYTES // (r2.shape[-1] * r2.element_size()))
    known = x1.holds("representation", by=distance) or x1.rows.shape[:-1].numel() <= size
    if known or drop_copies(x2.rows).dim() > 2:
        return compare(distance.represented(x1), r2)
    blocks = x1.rows.flatten(0, -2).split(size)
    found = torch.cat([compare(distance.represent_rows(block), r2) for block in blocks])
    return found.unflatten(0, x1.rows.shape[:-1])


def _comparison_with(
    distance: Distance, x2: EmbeddedRows, r2: Tensor
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return ``compare_all`` for these second rows, which are prepared once if they can be."""
    compare = in_mode(distance).compare_all
    if r2.requires_grad or not distance.euclidean:
        return compare
    if not x2.prepared and r2.nbytes > _PREPARED_BYTES:
        return compare
    prepared = x2.derived("prepared", lambda: squared_euclidean_to(r2), by=distance)
    return lambda r1, r2: prepared(r1) if r1.shape[-1] == r2.shape[-1] else compare(r1, r2)


def _zeros(distance: Distance, *sets: EmbeddedRows) -> Tensor:
    """Return a zero whose gradients with respect to the rows and the parameters are zero."""
    tensors = (*(x.rows for x in sets), *distance.parameters())
    tied = sum(tensor.unsqueeze(-1)[..., :0].sum() for tensor in tensors)
    return sets[0].rows.new_zeros(1) + tied


def in_mode(distance: ModuleT) -> ModuleT:
    """Return a distance as it is evaluated now: its parameters are constants in evaluation mode.

    Otherwise predictions and searches would represent the training clouds anew each time. As for
    GPyTorch's own caches, ``gpytorch.settings.detach_test_caches(False)`` tracks them.
    """
    learned = distance.training or gpytorch.settings.detach_test_caches.off()
    learned = learned or not torch.is_grad_enabled()
    if learned or not any(p.requires_grad for p in distance.parameters()):
        return distance
    return _with_constant_parameters(distance)


def _with_constant_parameters(module: ModuleT) -> ModuleT:
    """Return a module that shares everything with another, except that no gradient reaches parameters.

    The module itself does not change, so other threads can use it at the same time.
    """
    constant = object.__new__(type(module))
    own = vars(module)
    parameters = {name: None if p is None else p.detach() for name, p in own["_parameters"].items()}
    modules = {
        name: None if child is None else _with_constant_parameters(child)
        for name, child in own["_modules"].items()
    }
    vars(constant).update(own | {"_parameters": parameters, "_modules": modules})
    return constant


def needs_gradient(distance: Distance, rows: Tensor) -> bool:
    """Return whether the representations of rows, by a distance in its mode, need a gradient."""
    return is_tracked(rows, *distance.parameters())


# Number of clouds whose rounding errors are computed.
_CLOUDS = 8
# No rounding error is as large as this distance, and as this share of the largest coordinate.
_FAR, _FAR_SHARE = 1e-6, 1e-10
# How many rounding errors coordinates, or squared norms, may differ by between clouds that coincide.
_ERRORS = 10


@torch.no_grad()
def rounding_of(distance: Distance, rows: Tensor, squared: Tensor) -> Tensor:
    r"""Largest squared distance between clouds that coincide up to rounding errors.

    It is the squared distance by which clouds move if their coordinates change by ten rounding errors.
    A distance that is not Euclidean may also be a difference of squared norms :math:`s`, whose rounding
    errors are :math:`10 \varepsilon s` for the machine epsilon :math:`\varepsilon`.

    Args:
        distance: Distance that reads the rows.
        rows: A ``batch_shape x N x width`` tensor of the columns that the distance reads.
        squared: The ``batch_shape x N x N`` squared distances between the rows.

    Returns:
        A scalar tensor; zero if the distance does not read coordinates, or if the largest squared
        distance is so large that none of this matters.
    """
    rows = drop_copies(rows).flatten(0, -2)[:_CLOUDS]  # all would cost too much
    precision = torch.finfo(rows.dtype).eps / torch.finfo(torch.float64).eps
    far = max(_FAR * precision**0.5, _FAR_SHARE * precision * rows.abs().max().item())
    if not distance.reads_coordinates or squared.max().sqrt() > far:
        return rows.new_zeros(())
    error = _ERRORS * torch.finfo(rows.dtype).eps
    moved = distance.represent_rows(_moved(distance, rows, error))
    rounding = distance.compare_paired(distance.represent_rows(rows), moved).max()
    return rounding if distance.euclidean else rounding + error * distance.squared_norms(rows).max()


def _moved(distance: Distance, rows: Tensor, error: float) -> Tensor:
    """Change coordinates by a relative error, those of every other atom in the other direction."""
    atoms, weights = distance.block.split(rows)
    signs = torch.ones(atoms.shape[-2], 1, dtype=rows.dtype, device=rows.device)
    signs[1::2] = -1
    atoms = atoms * (1 + error * signs)
    return distance.block.join(atoms, weights)
