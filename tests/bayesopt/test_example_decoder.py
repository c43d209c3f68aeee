"""Decoders learned from examples: principal components, normals, folds, and what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from gp_distributions import Decoder, DesignSearch, PointClouds, ShapeOptimizer
from gp_distributions.bayesopt.decoder import ShapeDecoder

Array = NDArray[np.float64]
RNG = np.random.default_rng(0)
ANGLES = np.linspace(0, 2 * np.pi, 40, endpoint=False)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=-1)
OUTLINES = [axes * CIRCLE for axes in RNG.uniform(1, 2, size=(15, 2))]
TETRAHEDRON = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
MESHES = [(TETRAHEDRON * axes, FACES) for axes in RNG.uniform(1, 2, size=(15, 3))]


def test_components_are_those_of_scikit_learn() -> None:
    vertices = np.stack([mesh[0] for mesh in MESHES]).reshape(15, -1)
    pca = PCA(2).fit(vertices)
    decoder = Decoder.from_examples(MESHES, 2)
    expected = pca.transform(vertices) / pca.explained_variance_**0.5
    found = decoder.encode(MESHES)
    torch.testing.assert_close(found.abs(), torch.from_numpy(np.abs(expected)))
    restored = pca.inverse_transform(pca.transform(vertices[:1])).reshape(4, 3)
    torch.testing.assert_close(decoder.mesh(found[0])[0], torch.from_numpy(restored))
    assert decoder.bounds(1.5).tolist() == [[-1.5, -1.5], [1.5, 1.5]]


@pytest.mark.parametrize("examples", [OUTLINES, MESHES], ids=["outlines", "meshes"])
@pytest.mark.parametrize("turned", [False, True])
def test_atoms_are_the_middles_of_faces_with_outward_normals(
    examples: list[Array], turned: bool
) -> None:
    if turned:  # the inside is on the other side of each face
        examples = [
            e[::-1] if isinstance(e, np.ndarray) else (e[0], e[1][:, ::-1]) for e in examples
        ]
    decoder = Decoder.from_examples(examples, 2, num_points=64)
    clouds = decoder.clouds(torch.zeros(1, 2, dtype=torch.float64))
    assert clouds.normals is not None
    centre = decoder.outline([0.0, 0.0]).mean(0)
    assert bool(((clouds.positions - centre) * clouds.normals).sum(-1).min() > 0)
    # The integral of normals over a closed shape is zero, and that of positions times them its volume.
    moments = clouds.weights.unsqueeze(-1) * clouds.normals
    assert float(moments.sum(-2).abs().max()) < 1e-12


def test_designs_have_gradients() -> None:
    decoder = Decoder.from_examples(OUTLINES, 2, num_points=20)
    designs = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(decoder.transform, designs.requires_grad_())


def test_folds() -> None:
    spikes = [CIRCLE * (1 + a * np.cos(3 * ANGLES))[:, None] for a in np.linspace(-0.1, 0.1, 9)]
    decoder = Decoder.from_examples(spikes, 1, num_points=40)
    assert decoder.folds(torch.tensor([[0.0], [1.0], [40.0]]).double()).tolist() == [
        False,
        False,
        True,
    ]
    solid = Decoder.from_examples([(TETRAHEDRON * [1, 1, h], FACES) for h in (0.8, 1, 1.2)], 1)
    assert solid.folds(torch.tensor([[0.0], [20.0], [-20.0]]).double()).sum() == 1


def test_what_does_not_correspond_is_refused() -> None:
    with pytest.raises(TypeError, match="whose atoms have no order"):
        Decoder.from_examples(PointClouds(CIRCLE[None]))
    turned = (TETRAHEDRON, FACES[:, ::-1])
    for examples, options, message in (
        (OUTLINES, {"num_components": 15}, "more than num_components=15 examples, got 15"),
        (MESHES[:2] * 3, {"num_components": 3}, "vary in 3 directions"),
        ([MESHES[0], turned], {}, "Example 1: expected a mesh with the vertices and faces"),
        ([TETRAHEDRON], {}, "Example 0: expected an outline in the plane, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            Decoder.from_examples(examples, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="faces of the examples"):
        Decoder.from_examples(MESHES, 2).encode([(TETRAHEDRON, FACES[::-1])])


def test_a_search_proposes_shapes_that_do_not_fold(tmp_path: Path) -> None:
    decoder = Decoder.from_examples(OUTLINES, 2, num_points=32)

    class Folding(ShapeDecoder):
        """One half of all designs counts as folded."""

        def folds(self, designs: torch.Tensor) -> torch.Tensor:
            return designs[:, 0] > 0

    search = DesignSearch(Folding(decoder.decode), decoder.bounds(), num_restarts=4, raw_samples=32)
    optimizer = ShapeOptimizer(search, initial=4, restarts=0, path=tmp_path / "search.jsonl")
    optimizer.run(lambda design: float(design[0]), 6, progress=False)
    designs = torch.stack([torch.tensor(e.candidate) for e in optimizer.evaluations])
    assert bool((designs[4:, 0] <= 0).all())
    assert math.isfinite(optimizer.best[1])
    again = ShapeOptimizer(search, initial=4, restarts=0, path=tmp_path / "search.jsonl")
    torch.testing.assert_close(again.ask(), optimizer.ask(), rtol=1e-12, atol=0)
