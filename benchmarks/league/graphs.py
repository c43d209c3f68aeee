"""The peer of graphs."""

from __future__ import annotations

from benchmarks.league.scores import Fold, Prediction
from benchmarks.league.tables import machine

_DEPTHS = (1, 2, 3, 4, 5)


def weisfeiler_lehman(fold: Fold) -> Prediction:
    """A support vector machine with the Weisfeiler-Lehman kernel (Shervashidze et al. 2011)."""
    from grakel.kernels import VertexHistogram, WeisfeilerLehman

    grams = {}
    for depth in _DEPTHS:
        kernel = WeisfeilerLehman(depth, base_graph_kernel=VertexHistogram, normalize=True)
        gram = kernel.fit_transform(fold.train.graphs)
        grams[float(depth)] = gram, kernel.transform(fold.test.graphs)
    return machine(grams, fold, kernel="precomputed")
