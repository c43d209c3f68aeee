"""Graphs as clouds: nodes that know their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from gp_distributions.measures._bags import point_arrays
from gp_distributions.measures.arrays import Data, Wording, integer, real_array, to_tensors


def read_graphs(
    graphs: Sequence[Any], steps: int, edge_weights: Sequence[Data] | None, wording: Wording
) -> list[Tensor]:
    """Return the attributes of the nodes of each graph and their averages, ``n_i x d (steps + 1)``.

    Args:
        graphs: Pairs of attributes and edges, see ``PointClouds.from_graphs``.
        steps: Number of averages.
        edge_weights: The weights of the edges of each graph, or None.
        wording: Names of the graphs in error messages.

    Raises:
        ValueError: If a graph is not a pair, or edges or their weights do not fit its nodes.
    """
    steps = integer(steps, "steps", least=0)
    if wrong := [i for i, graph in enumerate(graphs) if len(graph) != 2]:
        raise ValueError(f"{wording((wrong[0],))}: expected a pair (features, edges).")
    found = []
    features = to_tensors(point_arrays((each for each, _ in graphs), wording))
    for i, (layer, (_, edges)) in enumerate(zip(features, graphs, strict=True)):
        given = None if edge_weights is None else edge_weights[i]
        ends, shares = _edges(edges, given, len(layer), wording((i,)))
        # An edge counts once, in whatever direction and however often it is given.
        first, second = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1).T
        key, place = np.unique(first * len(layer) + second, return_inverse=True)
        largest = np.zeros(len(key))
        np.maximum.at(largest, place, shares[ends[:, 0] != ends[:, 1]])
        pair = torch.from_numpy(np.stack(np.divmod(key, len(layer)))).to(layer.device)
        here, there = torch.cat([pair, pair.flip(0)], dim=1)
        share = torch.from_numpy(largest).to(layer).repeat(2).unsqueeze(-1)
        total = layer.new_zeros(len(layer), 1).index_add(0, here, share)
        layers = [layer]
        for _ in range(steps):
            sums = torch.zeros_like(layer).index_add(0, here, share * layer[there])
            mean = torch.where(total > 0, sums / torch.where(total > 0, total, 1.0), layer)
            layer = (layer + mean) / 2
            layers.append(layer)
        found.append(torch.cat(layers, dim=-1))
    return found


def _edges(given: Any, weights: Data | None, count: int, name: str) -> tuple[Any, Any]:
    """Return the ends of edges, ``E x 2`` integers, and their weights."""
    if hasattr(given, "adj"):  # of networkx
        import networkx

        given = networkx.to_scipy_sparse_array(given)
    if scipy.sparse.issparse(given):
        if given.shape != (count, count):
            raise ValueError(f"{name}: expected {count} nodes, got a matrix {given.shape}.")
        matrix = given.tocoo()
        edges, weights = np.stack([matrix.row, matrix.col], axis=1), matrix.data
    else:
        edges = np.asarray(to_tensors([real_array(given, f"Edges of {name}")])[0].cpu())
        edges = edges.reshape(-1, 2) if edges.size == 0 else edges
    whole = edges.astype(np.int64)
    valid = whole.shape[1:] == (2,) and ((whole == edges) & (whole >= 0) & (whole < count)).all()
    if not valid:
        raise ValueError(
            f"{name}: expected edges of shape (E, 2) between nodes from 0 to {count - 1}, got shape "
            f"{edges.shape}, from {edges.min(initial=0)} to {edges.max(initial=0)}."
        )
    shares = np.ones(len(whole)) if weights is None else np.asarray(weights, dtype=float)
    if shares.shape != whole.shape[:1] or not (np.isfinite(shares) & (shares >= 0)).all():
        raise ValueError(f"{name}: expected a finite weight >= 0 of each of {len(whole)} edges.")
    return whole, shares
