"""Normalisation within the model: agreement with the containers, saving and searching."""

import pytest
import torch
from botorch.models.transforms.input import ChainedInputTransform
from cases import as_rows, random_clouds
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    Gaussians,
    MixedInputs,
    PointClouds,
    SparseDistributionGP,
    fit,
)
from gp_distributions.models import NormalizeClouds

pytestmark = pytest.mark.usefixtures("short_fits")

SCALES = torch.tensor([1e-3, 1e3], dtype=torch.float64)


def clouds(num: int, seed: int) -> PointClouds:
    """Ragged clouds far from the origin whose coordinates have different units."""
    drawn = PointClouds.unpack(as_rows(random_clouds(num, seed=seed, sizes=(3, 9))), 2)
    return PointClouds((drawn.points + 2) * SCALES, drawn.weights)


TRAIN, TEST = clouds(20, 0), clouds(7, 1)
TARGETS = (TRAIN.points / SCALES).square().sum((-1, -2))


def model(train: PointClouds = TRAIN) -> DistributionGP:
    return DistributionGP(train, TARGETS, input_transform=NormalizeClouds.from_data(train))


def apart() -> DistributionGP:
    return DistributionGP(TRAIN.normalize(), TARGETS)


@pytest.mark.parametrize("scale", [None, 3.0, [1.0, 0.1]])
def test_agrees_with_the_container(scale: float | list[float] | None) -> None:
    transform = NormalizeClouds.from_data(TRAIN, scale)
    rows = transform(TEST.pack())
    torch.testing.assert_close(rows, TEST.normalize(TRAIN, scale).pack())
    torch.testing.assert_close(transform.untransform(rows), TEST.pack())
    assert transform.equals(NormalizeClouds.from_data(TRAIN, scale))
    assert not transform.equals(NormalizeClouds.from_data(TEST, scale))


@pytest.mark.parametrize("scale", [None, [1.0, 0.1]])
@pytest.mark.parametrize("kind", ["gaussians", "mixtures"])
def test_of_gaussians_agrees_with_the_container(kind: str, scale: list[float] | None) -> None:
    X = Gaussians.from_clouds(TRAIN)
    X = X if kind == "gaussians" else X.as_mixtures()
    expected = X.normalize(scale=scale)
    mixed = MixedInputs(age=torch.arange(20.0), cells=X)
    for given, same in (
        (X, expected),
        (mixed, MixedInputs(age=mixed.blocks["age"], cells=expected)),
    ):
        transform = NormalizeClouds.from_data(given, scale)
        rows = given.pack()
        torch.testing.assert_close(transform(rows), same.pack())
        torch.testing.assert_close(transform.untransform(transform(rows)), rows)


def test_model_takes_clouds_in_original_units() -> None:
    expected = fit(apart()).predict(TEST.normalize(like=TRAIN))
    inside = fit(model())
    for found in (inside.predict(TEST), inside.predict(TEST.pack(atoms=15))):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_gradients_and_conditioning() -> None:
    def moments(gp: DistributionGP, X: PointClouds) -> Tensor:
        posterior = gp.posterior(X.pack().unsqueeze(-2))
        return torch.stack([posterior.mean, posterior.variance])

    inside, outside = model().eval(), apart().eval()
    points = TEST.points.clone().requires_grad_()
    X = PointClouds(points, TEST.weights)
    found = torch.autograd.grad(moments(inside, X).sum(), points)[0]
    expected = torch.autograd.grad(moments(outside, X.normalize(like=TRAIN)).sum(), points)[0]
    torch.testing.assert_close(found, expected)

    more = inside.condition_on_observations(TEST[:2], TARGETS[:2])
    same = outside.condition_on_observations(TEST[:2].normalize(like=TRAIN), TARGETS[:2])
    torch.testing.assert_close(more.predict(TEST), same.predict(TEST.normalize(like=TRAIN)))


def test_bad_clouds() -> None:
    flat = PointClouds(TRAIN.points[..., :1], TRAIN.weights)
    with pytest.raises(ValueError, match="got PointClouds of dimension 1"):
        model().predict(flat)
    with pytest.raises(TypeError, match="Expected PointClouds or Gaussians, got Tensor"):
        NormalizeClouds.from_data(TRAIN.pack())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Coordinate 1: expected several values"):
        NormalizeClouds.from_data(PointClouds(TRAIN.points * torch.tensor([1.0, 0.0])))


@pytest.mark.parametrize("predicted", [False, True])
def test_new_training_data_are_in_original_units(predicted: bool) -> None:
    """In evaluation mode, too, in which the model keeps transforms of its training data."""
    gp, expected = model(), model().eval()
    if predicted:
        gp.predict(TEST)
    rows, targets = TRAIN.pack() + 0.5, gp.train_targets.flip(0)
    gp.set_train_data(rows, targets)
    expected.train()
    expected.train_inputs, expected.train_targets = (rows,), targets
    assert all(map(torch.equal, gp.predict(TEST), expected.predict(TEST)))
    assert torch.equal(gp.train().train_inputs[0], rows)
    with pytest.raises(RuntimeError, match="Cannot modify shape of inputs"):
        gp.eval().set_train_data(rows[:5])
    assert all(map(torch.equal, gp.predict(TEST), expected.predict(TEST)))


def test_transforms_of_other_clouds() -> None:
    """They might fit the width of rows, and would change weights and coordinates in silence."""
    transform = NormalizeClouds.from_data(TRAIN)
    solids = PointClouds(torch.ones(20, 3, 3, dtype=torch.float64))
    for made in (DistributionGP, SparseDistributionGP):
        with pytest.raises(ValueError, match=r"PointClouds of dimension 2, .* of dimension 3"):
            made(solids, TARGETS, input_transform=ChainedInputTransform(only=transform))
        mixed = MixedInputs(shape=TRAIN)
        with pytest.raises(ValueError, match=r"got MixedInputs\. Make it with"):
            made(mixed, TARGETS, input_transform=transform)
