"""Descriptions of the neighbourhoods of atoms that no rigid motion and no order of atoms changes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Neighbourhoods:
    r"""Sums over neighbours and over pairs of neighbours.

    With the cutoff :math:`c_R(r) = (1 + \cos(\pi r / R)) / 2`, the description of an atom :math:`a` is,
    for each kind of neighbours :math:`b` of mass :math:`m_b` at the distances :math:`r_b`,

    .. math:: \sum_b m_b\, c_R(r_b)\, e^{-(r_b - \mu_i)^2 / (2 w^2)},

    and for each pair of kinds of neighbours, with :math:`\theta_{bc}` the angle between them,

    .. math::
        s \sum_{b, c} m_b m_c\, c_{R'}(r_b)\, c_{R'}(r_c)\,
        e^{-(\cos \theta_{bc} - \nu_j)^2 / (2 v^2)}.

    Attributes:
        num_kinds: Number of kinds of atoms.
        radius: The radius :math:`R` of neighbours.
        angle_radius: The radius :math:`R'` of neighbours between which there are angles.
        num_distances: Number of centres :math:`\mu_i`, from ``0.16 R`` to ``R``, of width ``R / 25``.
        num_angles: Number of centres :math:`\nu_j`, from -1 to 1, of width ``2.5 / num_angles``.
        angle_scale: The factor :math:`s` of angles.
    """

    num_kinds: int
    radius: float
    angle_radius: float
    num_distances: int
    num_angles: int
    angle_scale: float = 0.7

    def __call__(self, points: Tensor, kinds: Tensor, masses: Tensor) -> Tensor:
        """Describe the atoms of clouds.

        Args:
            points: A ``C x n x d`` tensor of atoms.
            kinds: A ``C x n`` tensor of the numbers of their kinds.
            masses: A ``C x n`` tensor of masses; atoms of mass zero are padding.

        Returns:
            A ``C x n x D`` tensor. Atoms in the same place as an atom are not its neighbours.
        """
        shape, kinds = points.shape[:2], kinds.flatten()
        present = masses > 0
        squares = (points.unsqueeze(-2) - points.unsqueeze(-3)).detach().square().sum(-1)
        near = (squares > 0) & (squares < self.radius**2)
        near &= present.unsqueeze(-1) & present.unsqueeze(-2)
        cloud, first, second = near.nonzero(as_tuple=True)
        atom, other = cloud * shape[1] + first, cloud * shape[1] + second
        vectors = points.flatten(0, 1)[other] - points.flatten(0, 1)[atom]
        lengths = vectors.square().sum(-1).sqrt()
        mass = masses.flatten()[other]
        found = [self._distances(atom, kinds[other], mass, lengths, len(kinds))]
        if self.num_angles:
            close = lengths.detach() < self.angle_radius
            weights = mass[close] * _cutoff(lengths[close], self.angle_radius)
            around = vectors[close], lengths[close]
            found.append(
                self._angles(atom[close], kinds[other[close]], weights, around, len(kinds))
            )
        return torch.cat(found, dim=-1).unflatten(0, shape)

    def _distances(
        self, atom: Tensor, kind: Tensor, mass: Tensor, lengths: Tensor, count: int
    ) -> Tensor:
        centres = torch.linspace(
            0.16 * self.radius, self.radius, self.num_distances, dtype=torch.float64
        )
        heights = _bumps(lengths, centres, self.radius / 25)
        heights = heights * (mass * _cutoff(lengths, self.radius)).unsqueeze(-1)
        return _summed(heights, atom, kind, count, self.num_kinds)

    def _angles(
        self,
        atom: Tensor,
        kind: Tensor,
        weights: Tensor,
        around: tuple[Tensor, Tensor],
        count: int,
    ) -> Tensor:
        vectors, lengths = around
        # Neighbours of an atom follow each other: each makes a pair with those after it.
        place = torch.arange(len(atom), device=atom.device)
        later = torch.bincount(atom, minlength=count).cumsum(0)[atom] - place - 1
        one = place.repeat_interleave(later)
        two = one + 1 + torch.arange(len(one), device=atom.device) - (later.cumsum(0) - later)[one]
        apart = (vectors[one] != vectors[two]).any(-1)  # no parts of one atom
        one, two = one[apart], two[apart]
        cosines = (vectors[one] * vectors[two]).sum(-1) / (lengths[one] * lengths[two])
        both = self.angle_scale * weights[one] * weights[two]
        nodes = torch.linspace(-1, 1, self.num_angles, dtype=torch.float64)
        heights = _bumps(cosines, nodes, 2.5 / self.num_angles) * both.unsqueeze(-1)
        low, high = torch.stack([kind[one], kind[two]]).sort(dim=0).values
        pair = high * (high + 1) // 2 + low
        return _summed(heights, atom[one], pair, count, self.num_kinds * (self.num_kinds + 1) // 2)


def _cutoff(lengths: Tensor, radius: float) -> Tensor:
    return (torch.cos(lengths * (math.pi / radius)) + 1) / 2


def _bumps(values: Tensor, centres: Tensor, width: float) -> Tensor:
    scaled = (values.unsqueeze(-1) - centres.to(values)) / width
    return torch.exp(-0.5 * scaled.square())


def _summed(heights: Tensor, atom: Tensor, group: Tensor, count: int, groups: int) -> Tensor:
    """Sum heights by atom and group: a ``count x (groups * centres)`` tensor."""
    sums = heights.new_zeros(count * groups, heights.shape[-1])
    return sums.index_add(0, atom * groups + group, heights).view(count, -1)
