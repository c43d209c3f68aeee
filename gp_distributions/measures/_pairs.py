"""Clouds of pairs of atoms, which do not depend on the pose of a cloud."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from gp_distributions.measures.arrays import Wording, check_entries, equal_weights, integer, seeded
from gp_distributions.numerics.sampling import draw_pairs
from gp_distributions.rows.clouds import by_size, drop_padding

# A function of the first and the second atoms of P pairs, both P x d, that returns P x D features.
PairFeatures: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Number of pairs in a group of clouds, which fits into the processor's cache.
_CHUNK = 2**16


def read_pairs(
    points: Tensor,
    weights: Tensor,
    *,
    space: int | None,
    num_pairs: int | None,
    seed: int | torch.Generator,
    features: PairFeatures | None,
    self_pairs: bool,
    wording: Wording,
) -> tuple[Tensor, Tensor]:
    """Make the cloud of pairs of atoms of each cloud.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights; atoms of weight zero are padding.
        space: Number of coordinates that count as space; None for all.
        num_pairs: Number of pairs drawn from each cloud; None for all pairs.
        seed: Random seed or generator.
        features: Features of pairs, instead of distances and marks.
        self_pairs: Whether each atom makes a pair with itself.
        wording: Names of the clouds in error messages.

    Returns:
        A ``batch_shape x K x D`` tensor of features and a ``batch_shape x K`` tensor of normalised
        weights.

    Raises:
        ValueError: If a cloud has no pairs, or an argument or a feature is invalid.
    """
    dim = points.shape[-1]
    if space is not None and (features is not None or integer(space, "space") > dim):
        raise ValueError(f"Expected either features or space <= d = {dim}, got space = {space}.")
    if features is None:
        features = partial(distance_and_marks, space=dim if space is None else space)
    sizes = (weights > 0).sum(-1)
    enough = sizes >= (1 if self_pairs else 2)
    check_entries(enough, sizes, wording, "at least two atoms, or self_pairs=True", "")

    batch_shape = weights.shape[:-1]
    num = batch_shape.numel()
    points, weights = (x.reshape(num, *x.shape[len(batch_shape) :]) for x in (points, weights))
    _check_symmetric(points, features)
    if num_pairs is None:
        found, masses = all_pairs(points, weights, features, self_pairs=self_pairs)
    else:
        count = integer(num_pairs, "num_pairs")
        generator = seeded(seed, weights.device)
        drawn = draw_pairs(weights, count, self_pairs=self_pairs, generator=generator)
        pairs = (points.gather(-2, index.unsqueeze(-1).expand(-1, -1, dim)) for index in drawn)
        found = _evaluated(features, *(atoms.flatten(0, 1) for atoms in pairs))
        found = found.unflatten(0, (num, count))
        masses = equal_weights(found)
    found, masses = (x.reshape(*batch_shape, *x.shape[1:]) for x in (found, masses))
    where = " in pair {}, coordinate {}"
    check_entries(found.isfinite(), found, wording, "finite features of pairs", where)
    return found, masses


def distance_and_marks(first: Tensor, second: Tensor, *, space: int) -> Tensor:
    """Compute the distances of atoms, and the means and absolute differences of their marks.

    Args:
        first: A ``P x d`` tensor of atoms.
        second: A ``P x d`` tensor of atoms.
        space: Number of coordinates that count as space; the others are marks.

    Returns:
        A ``P x (1 + 2 (d - space))`` tensor. The gradient of a distance of zero is zero.
    """
    difference = first - second
    distance = torch.linalg.vector_norm(difference[:, :space], dim=-1, keepdim=True)
    mean = (first[:, space:] + second[:, space:]) / 2
    return torch.cat([distance, mean, difference[:, space:].abs()], dim=-1)


def all_pairs(
    points: Tensor, weights: Tensor, features: PairFeatures, *, self_pairs: bool
) -> tuple[Tensor, Tensor]:
    """Return the features of all pairs, ``B x K x D``, and their normalised weights, ``B x K``.

    ``K`` is the number of pairs of the largest cloud. Clouds of similar sizes are processed together.
    """
    points, weights = drop_padding(points, weights)
    atoms = weights.shape[-1]
    most = max(1, atoms * (atoms + (1 if self_pairs else -1)) // 2)
    groups, back = by_size(points, weights, max(1, 2 * _CHUNK // atoms))
    pairs = [_paired(*group, features, self_pairs) for group in groups]
    found = torch.cat([pad(part, (0, 0, 0, most - part.shape[1])) for part, _ in pairs])
    total = torch.cat([pad(mass, (0, most - mass.shape[1])) for _, mass in pairs])
    if back is not None:
        found, total = found[back], total[back]
    return found, total / total.sum(-1, keepdim=True)


def _paired(
    points: Tensor, weights: Tensor, features: PairFeatures, self_pairs: bool
) -> tuple[Tensor, Tensor]:
    """Return the features and the unnormalised weights of all pairs; both are zero for padding."""
    atoms = weights.shape[-1]
    # Pairs are ordered by their larger index, so that padding comes last for pairs as for atoms.
    second, first = torch.tril_indices(
        atoms, atoms, offset=0 if self_pairs else -1, device=weights.device
    )
    masses = weights[:, first] * weights[:, second]
    if self_pairs:  # all ordered pairs: i, j and j, i are one pair here, and i, i occurs once
        masses = torch.where(first == second, masses / 2, masses)
    present = weights > 0
    cloud, pair = (present[:, first] & present[:, second]).nonzero(as_tuple=True)
    found = _evaluated(features, points[cloud, first[pair]], points[cloud, second[pair]])
    padded = found.new_zeros(*masses.shape, found.shape[-1])
    return padded.index_put((cloud, pair), found), masses


def _evaluated(features: PairFeatures, first: Tensor, second: Tensor) -> Tensor:
    """Evaluate features, and check that they have one row for each pair."""
    found = features(first, second)
    if not isinstance(found, Tensor) or found.dim() not in (1, 2) or len(found) != len(first):
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"features: expected a tensor of shape ({len(first)}, D) for {len(first)} pairs, got {got}."
        )
    return (found if found.dim() == 2 else found.unsqueeze(-1)).to(first)


def _check_symmetric(points: Tensor, features: PairFeatures) -> None:
    """Raise an error if features depend on the order of two atoms, tried on the first cloud."""
    one, other = (atoms.detach().flatten(0, 1) for atoms in (points[:1, :-1], points[:1, 1:]))
    if not len(one):
        return
    with torch.no_grad():
        forth, back = _evaluated(features, one, other), _evaluated(features, other, one)
    if not torch.allclose(forth, back, equal_nan=True):
        raise ValueError(
            "features: expected features that do not depend on the order of the two atoms, such as "
            "sums, products and absolute differences, but exchanging the atoms changes them."
        )
