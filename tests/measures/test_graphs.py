"""Graphs as clouds of nodes that know their neighbours."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array

from gp_distributions import PointClouds

RNG = np.random.default_rng(0)


def graph(size: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return RNG.normal(size=(size, 2)), RNG.integers(0, size, size=(count, 2))


GRAPHS = [graph(7, 9), graph(5, 0), graph(6, 20)]


def reference(features: Any, edges: Any, weights: Any, steps: int) -> NDArray[np.float64]:
    """The definition, node by node."""
    near: list[dict[int, float]] = [{} for _ in features]
    for (u, v), w in zip(edges, weights, strict=True):
        if u != v:
            near[u][v] = near[v][u] = w
    layers = [np.array(features)]
    for _ in range(steps):
        last = layers[-1]
        means = [
            sum(w * last[v] for v, w in n.items()) / sum(n.values()) if n else last[u]
            for u, n in enumerate(near)
        ]
        layers.append((last + np.array(means)) / 2)
    return np.concatenate(layers, axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_definition(weighted: bool) -> None:
    # An edge that is given twice has one weight.
    shares = [
        1.0 + edges.sum(1) * edges.prod(1) if weighted else np.ones(len(edges))
        for _, edges in GRAPHS
    ]
    masses = [RNG.random(len(features)) for features, _ in GRAPHS]
    options: dict[str, Any] = {"edge_weights": shares, "weights": masses} if weighted else {}
    clouds = PointClouds.from_graphs(dict(zip("abc", GRAPHS, strict=True)), 4, **options)
    assert clouds.labels is not None
    assert clouds.labels.tolist() == ["a", "b", "c"]
    for i, (features, edges) in enumerate(GRAPHS):
        found = clouds.points[i, : len(features)]
        np.testing.assert_allclose(found, reference(features, edges, shares[i], 4), atol=1e-14)
        expected = masses[i] / masses[i].sum() if weighted else 1 / len(features)
        np.testing.assert_allclose(clouds.weights[i, : len(features)], expected)


def test_graphs_of_other_libraries_and_gradients() -> None:
    networkx = pytest.importorskip("networkx")
    features, edges = GRAPHS[0]
    shares = np.arange(1.0, 1 + len(edges))
    once = {tuple(sorted(edge)): w for edge, w in zip(edges.tolist(), shares, strict=True)}
    ends, values = np.array(list(once)), np.array(list(once.values()))
    drawn = networkx.Graph()
    drawn.add_nodes_from(range(7))
    drawn.add_weighted_edges_from((*edge, w) for edge, w in once.items())
    matrix = coo_array((values, ends.T), shape=(7, 7))
    expected = PointClouds.from_graphs([(features, ends)], edge_weights=[values])
    for given in (drawn, matrix, matrix + matrix.T):
        assert PointClouds.from_graphs([(features, given)]) == expected
    tensor = torch.from_numpy(features).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: PointClouds.from_graphs([(x, edges)]).points, tensor)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((np.ones((3, 1)), [[0, 3]]), {}, "Graph 0: expected edges .* from 0 to 2, or"),
        ((np.ones((3, 1)), [[0.5, 1]]), {}, "Graph 0: expected edges"),
        ((np.ones((3, 1)), [[0, 1, 2]]), {}, "Graph 0: expected edges"),
        ((np.ones((3, 1)), np.ones((3, 3))), {}, "Graph 0: expected edges"),
        ((np.ones((3, 1)), coo_array((2, 2))), {}, r"a matrix of shape \(3, 3\)"),
        ((np.ones((3, 1)), [[0, 1]]), {"edge_weights": [[-1.0]]}, "finite weight >= 0"),
        ((np.ones((3, 1)),), {}, "expected a pair"),
        ((["C", "C", "O"], [[0, 1]]), {}, "Graph 0: expected real numbers"),
    ],
)
def test_wrong_graphs(given: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PointClouds.from_graphs([given], **options)
