"""Random partners of the atoms of one distribution among those of another."""

from __future__ import annotations

import torch
from torch import Tensor


def random_partners(weights: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
    r"""Pair each atom of a distribution with one of another at random, in proportion to both weights.

    The atoms lie side by side in random order, each as long as its weight, and so do those of the other
    distribution in their own order. The partner of an atom is the one beside a uniform random place on
    it. Hence the atoms with partner :math:`b` have the total weight of :math:`b` in expectation, and
    exactly if both have the same number of atoms of equal weight.

    Args:
        weights: Weights of the atoms, ``batch_shape x m``; zero for padding.
        given: Weights of the others, ``batch_shape x m'``.
        generator: Random generator.

    Returns:
        Indices of the partners, ``batch_shape x m``.
    """
    order, places = (
        torch.rand(weights.shape, generator=generator, dtype=torch.float64).to(weights.device)
        for _ in range(2)
    )
    order = order.argsort(-1)
    lengths = weights.double().gather(-1, order)
    places = (lengths.cumsum(-1) - lengths * places) / lengths.sum(-1, keepdim=True)
    places = torch.empty_like(places).scatter_(-1, order, places)
    edges = given.double().cumsum(-1)
    edges = edges / edges[..., -1:]
    last = edges.argmax(-1, keepdim=True)  # the rest is padding
    return torch.searchsorted(edges, places).minimum(last)
