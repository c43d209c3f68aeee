"""Graphs as clouds: nodes that know their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array, issparse, triu
from torch import Tensor

from gp_distributions.measures._bags import point_arrays
from gp_distributions.measures.arrays import Data, Wording, integer, to_tensors


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
        matrix = _adjacency(edges, given, len(layer), wording((i,)))
        here, there = (torch.from_numpy(ends).long().to(layer.device) for ends in matrix.coords)
        share = torch.from_numpy(matrix.data).to(layer).unsqueeze(-1)
        total = layer.new_zeros(len(layer), 1).index_add(0, here, share)
        layers = [layer]
        for _ in range(steps):
            sums = torch.zeros_like(layer).index_add(0, here, share * layer[there])
            mean = torch.where(total > 0, sums / total.clamp_min(1e-300), layer)
            layer = (layer + mean) / 2
            layers.append(layer)
        found.append(torch.cat(layers, dim=-1))
    return found


def _adjacency(given: Any, weights: Data | None, count: int, name: str) -> Any:
    """Return the weights of edges in both directions, without those of a node to itself."""
    if hasattr(given, "adj"):  # of networkx
        given = import_module("networkx").to_scipy_sparse_array(given)
    valid = issparse(given)
    if not valid:
        edges = np.asarray(given, dtype=float)
        ends = np.reshape(edges, (0, 2) if edges.size == 0 else edges.shape).astype(int)
        shares = np.ones(len(ends)) if weights is None else np.asarray(weights, dtype=float)
        valid = ends.shape == (len(shares), 2) and (ends == edges).all() and (ends >= 0).all()
        valid = valid and ends.max(initial=0) < count
        if valid:
            ends, first = np.unique(ends, axis=0, return_index=True)
            given = coo_array((shares[first], ends.T), shape=(count, count))
    if (
        not valid
        or given.shape != (count, count)
        or not ((given.data >= 0) & (given.data < np.inf)).all()
    ):
        raise ValueError(
            f"{name}: expected edges of shape (E, 2) between nodes from 0 to {count - 1}, or a matrix "
            f"of shape {(count, count)}, with a finite weight >= 0 for each, got {given!r:.80}."
        )
    once = csr_array(given, dtype=float)
    upper = triu(once.maximum(once.T), 1)
    return coo_array(upper + upper.T)
