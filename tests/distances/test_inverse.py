"""Inversion recovers clouds from their embeddings."""

from typing import Any

import numpy as np
import ot
import pytest
import torch
from cases import randn
from sklearn.datasets import load_digits

from benchmarks.data.solids import random_solids
from gp_distributions import (
    Fourier,
    LinearTransport,
    PointClouds,
    ReferenceMeasure,
    RigidSlicedWasserstein,
    SlicedWasserstein,
)
from gp_distributions.distances import Distance, invert_embedding
from gp_distributions.measures import align
from gp_distributions.warnings import ConvergenceWarning


def outlines() -> PointClouds:
    """Return wing sections of the NACA four-digit series, with unequal arc lengths."""
    x = 0.5 * (1 - np.cos(np.linspace(0, np.pi, 24)))
    curves = []
    for thickness, camber in ((0.09, 0.0), (0.15, 0.04)):
        half = 5 * thickness * (
            0.2969 * np.sqrt(x) - 0.126 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
        )  # fmt: skip
        middle = 4 * camber * x * (1 - x)
        upper, lower = np.stack([x, middle + half], 1), np.stack([x, middle - half], 1)
        curves.append(np.concatenate([upper[::-1], lower[1:-1]]))
    return PointClouds.from_curves(curves)


def diameters(clouds: PointClouds) -> torch.Tensor:
    pairs = [
        torch.pdist(x[w > 0]).max() for x, w in zip(clouds.points, clouds.weights, strict=True)
    ]
    return torch.stack(pairs)


def check_way_back(distance: Distance, clouds: PointClouds, **options: object) -> PointClouds:
    """Check that inverted embeddings are close to the clouds, in the distance itself."""
    found = invert_embedding(distance, distance.embed(clouds.pack()), **options)  # type: ignore[arg-type]
    reached = distance.squared(clouds.pack(), found.clouds.pack(), diag=True).sqrt()
    assert (reached <= 1e-3 * diameters(clouds)).all()
    torch.testing.assert_close(found.distances, reached, rtol=1e-6, atol=1e-9)
    return found.clouds


SOME = {"digits": lambda: PointClouds.from_images(load_digits().images[:2]), "outlines": outlines}


@pytest.mark.parametrize("name", SOME)
def test_sliced_wasserstein(name: str) -> None:
    clouds = SOME[name]()
    found = check_way_back(SlicedWasserstein(2), clouds)
    for before, after, diameter in zip(
        *[[(c.points[i], c.weights[i]) for i in range(len(c))] for c in (clouds, found)],
        diameters(clouds),
        strict=True,
    ):
        costs = ot.dist(before[0].numpy(), after[0].numpy())
        masses = [w.numpy() / w.numpy().sum() for _, w in (before, after)]
        exact = ot.emd2(*masses, costs, numItermax=10**6) ** 0.5
        assert exact <= 1e-2 * diameter  # W2 and sliced W2 differ in order


def test_equal_weights_of_equal_size_are_recovered(device: torch.device) -> None:
    clouds = PointClouds.from_curves(
        [x[w > 0] for x, w in zip(outlines().points, outlines().weights, strict=True)], atoms=30
    ).to(device)
    distance = SlicedWasserstein(2, num_slices=50, num_quantiles=30).to(device)
    found = check_way_back(distance, clouds, atoms=30, learn_weights=False)
    torch.testing.assert_close(found.weights, clouds.weights)
    gaps = torch.cdist(clouds.points, found.points).min(-1).values
    assert (gaps.amax(-1) <= 1e-2 * diameters(clouds)).all()
    exact = SlicedWasserstein(2, num_slices=50, num_quantiles=None).to(device)
    check_way_back(exact, clouds, learn_weights=False)


def test_linear_transport() -> None:
    clouds = outlines()
    reference = ReferenceMeasure.from_data(clouds, size=15, method="mean_shape")
    distance = LinearTransport(reference)
    assert len(check_way_back(distance, clouds[[0]], atoms=30).points[0]) == 30


def rigid_clouds(dim: int, atoms: int = 24) -> PointClouds:
    points = randn(1, atoms, dim, seed=1)
    points = points * torch.linspace(1, 2, dim).double() + 0.4 * points.square().flip(-1)
    return PointClouds(points + 3)


@pytest.mark.parametrize("dim", [2, 3])
def test_shapes_without_pose(dim: int) -> None:
    """The shape is that of the cloud, once it lies in the same pose."""
    if dim == 2:
        cloud = outlines()[[1]]
        distance = RigidSlicedWasserstein(2, num_slices=60, max_degree=16)
    else:
        cloud = PointClouds(random_solids(4, num_points=150, seed=3).turned[3:])  # a dumb-bell
        distance = RigidSlicedWasserstein(3, num_slices=81, max_degree=6)
    embedding = distance.embed(cloud.pack())
    size = float(embedding.norm())
    found = invert_embedding(distance, embedding, max_iterations=100)
    reached = distance.squared(cloud.pack(), found.clouds.pack(), diag=True).sqrt()
    torch.testing.assert_close(found.distances, reached, rtol=1e-6, atol=1e-9)
    assert float(reached) < 0.02 * size
    start = invert_embedding(distance, embedding, max_iterations=0, tolerance=1.0)
    near, far = (
        float(SlicedWasserstein(dim).squared(moved.pack(), cloud.pack()).sqrt())
        for moved in (align(other.clouds, cloud, reflections=dim == 3) for other in (found, start))
    )
    assert near < 0.12 * size
    assert far > 0.3 * size


@pytest.mark.parametrize("options", [{}, {"scale": True}, {"center": False}, {"marks": 1}])
def test_pose_is_that_of_the_start(options: dict[str, Any]) -> None:
    """Whatever the embedding does not determine stays as it is in the start."""
    start = rigid_clouds(2 + options.get("marks", 0))
    distance = RigidSlicedWasserstein(start.dim, num_slices=60, max_degree=8, **options)
    factor = torch.ones(start.dim, dtype=torch.float64)
    factor[0] = 1.3
    embedding = distance.embed(PointClouds(start.points * factor, start.weights).pack())
    found = invert_embedding(distance, embedding, start=start).clouds
    reached = distance.represent_rows(found.pack()) - embedding
    assert float(reached.norm()) < 0.01 * float(embedding.norm())
    (x, y), w = (c.points[0, :, :2] for c in (found, start)), found.weights[0]
    if distance.center:
        torch.testing.assert_close(w @ x, w @ y)
        x, y = x - w @ x, y - w @ y
    if distance.scale:
        torch.testing.assert_close(w @ x.square().sum(-1), w @ y.square().sum(-1))
    # The best rotation is none: the cross-covariance is symmetric and positive definite.
    cross = (w.unsqueeze(-1) * x).mT @ y
    torch.testing.assert_close(cross, cross.mT, rtol=1e-6, atol=1e-9)
    assert float(torch.linalg.eigvalsh(cross)[0]) > 0


def test_transported_atoms_are_the_embedding() -> None:
    clouds = outlines()
    distance = LinearTransport(ReferenceMeasure.from_data(clouds, size=20))
    embeddings = distance.embed(clouds.pack())
    found = invert_embedding(distance, embeddings, max_iterations=0).clouds
    torch.testing.assert_close(found.weights[0], distance.reference.weights.detach())
    scaled = found.points * found.weights.sqrt().unsqueeze(-1)
    torch.testing.assert_close(scaled.flatten(-2), embeddings)


def test_random_slices() -> None:
    """They slice the mean, which the start finds again."""
    points = torch.randn(1, 6, 2, generator=torch.Generator().manual_seed(0)).double()
    clouds = PointClouds(points + torch.tensor([30.0, -10.0]).double())
    distance = SlicedWasserstein(2, num_slices=12, num_quantiles=6, sampling="random")
    embedding = distance.embed(clouds.pack())
    first = invert_embedding(distance, embedding, max_iterations=0, tolerance=100.0).clouds
    # The samples of the start are within their spread of the mean.
    assert float((first.points.mean(-2) - clouds.points.mean(-2)).norm()) < 2.0
    found = invert_embedding(distance, embedding, atoms=6, learn_weights=False).clouds
    assert distance.squared(clouds.pack(), found.pack()).sqrt().item() <= 0.05


def test_start_keeps_its_correspondence() -> None:
    """A small step from the start moves its atoms little, so paths of shapes have no jumps."""
    shape = outlines()[[0]]
    distance = SlicedWasserstein(2, num_slices=50, num_quantiles=50)
    stretched = PointClouds(shape.points * torch.tensor([1.0, 1.05]), shape.weights)
    found = invert_embedding(
        distance, distance.embed(stretched.pack()), start=shape, learn_weights=False
    )
    torch.testing.assert_close(found.clouds.weights, shape.weights)
    moved = (found.clouds.points - stretched.points).abs().max()
    assert moved < (shape.points - stretched.points).abs().max()


def test_centred_distance_gives_centred_clouds() -> None:
    distance = SlicedWasserstein(2, num_slices=20, num_quantiles=30, center=True)
    clouds = outlines()[[1]]
    found = invert_embedding(distance, distance.embed(clouds.pack())).clouds
    means = (found.weights.unsqueeze(-1) * found.points).sum(-2)
    assert distance.squared(clouds.pack(), found.pack(), diag=True).sqrt().max() < 1e-3
    assert means.abs().max() < 0.3


def test_warns_of_embeddings_of_no_cloud() -> None:
    distance = SlicedWasserstein(2, num_slices=20, num_quantiles=10)
    noise = randn(2, 202)
    with pytest.warns(ConvergenceWarning, match="for 2 of 2 embeddings"):
        far = [invert_embedding(distance, noise, max_iterations=count) for count in (20, 300, 3000)]
    assert (far[1].distances < far[0].distances).all()
    # It ends where nothing is gained.
    assert torch.equal(far[1].clouds.points, far[2].clouds.points)


def test_point_mass() -> None:
    distance = SlicedWasserstein(2, num_slices=20, num_quantiles=10)
    cloud = PointClouds([[[3.0, -1.0]]])
    found = invert_embedding(distance, distance.embed(cloud.pack()))
    torch.testing.assert_close(found.clouds.points, cloud.points.expand(1, 20, 2))
    assert found.distances.item() < 1e-12


SLICED, EXACT = (SlicedWasserstein(2, num_slices=20, num_quantiles=n) for n in (10, None))
RIGID = RigidSlicedWasserstein(2, num_slices=10, max_degree=3, num_quantiles=4)
GOOD = torch.zeros(3, 202, dtype=torch.float64)


@pytest.mark.parametrize(
    ("distance", "embeddings", "options", "message"),
    [
        (Fourier(2), GOOD, {}, "Fourier"),
        (SlicedWasserstein(2, p=1), GOOD, {}, "order 2"),
        (SLICED, GOOD.long(), {}, "a tensor of floating-point numbers, got"),
        (RIGID, GOOD, {}, r"with 16 features, got shape \(3, 202"),
        (SLICED, GOOD[:, 1:], {}, r"with 202 features, got shape \(3, 201"),
        (SLICED, GOOD[0], {}, "N x D"),
        (SLICED, GOOD.index_fill(0, torch.tensor([1]), torch.nan), {}, "embedding 1 is not"),
        (SLICED, GOOD, {"start": outlines()}, "one for each of 3"),
        (SLICED, GOOD, {"start": outlines(), "atoms": 5}, r"start determines .* atoms=5"),
        (EXACT, GOOD, {"atoms": 5}, r"num_quantiles=None determines .* atoms=5"),
        (EXACT, GOOD[:, :2], {}, r"22 features, and 20 for each further atom, got shape \(3, 2\)"),
    ],
)
def test_wrong_inputs(distance: Any, embeddings: Any, options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        invert_embedding(distance, embeddings, **options)


def test_single_precision_without_a_warning() -> None:
    """The inversion does not repeat the warning about the embedded clouds."""
    distance = SlicedWasserstein(2, num_slices=20, num_quantiles=10)
    clouds = outlines()[[0]]
    embeddings = distance.embed(clouds.pack())
    found = invert_embedding(distance, embeddings.float().requires_grad_())
    assert found.clouds.dtype == found.distances.dtype == torch.float32
    assert not found.clouds.points.requires_grad
    assert (found.distances <= 5e-3 * diameters(clouds)).all()
