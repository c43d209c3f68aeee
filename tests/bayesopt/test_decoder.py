"""Decoders: the model sees clouds, everything else sees designs."""

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.models.transforms.input import ChainedInputTransform
from botorch.sampling import SobolQMCNormalSampler
from cases import CIRCLE, ellipses
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel, fit
from gp_distributions.bayesopt import Decoder

WEIGHTS = torch.arange(1.0, 13.0, dtype=torch.float64)
BOUNDS = torch.tensor([[0.1, 0.1], [1.0, 1.0]], dtype=torch.float64)


def weighted(designs: Tensor) -> tuple[Tensor, Tensor]:
    return ellipses(designs), WEIGHTS.expand(len(designs), -1)


def clouds(designs: Tensor) -> PointClouds:
    return PointClouds(ellipses(designs))


def designs(num: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(num, 2, dtype=torch.float64, generator=generator)
    return BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * unit


def target(X: Tensor) -> Tensor:
    """Largest at the half axes 0.7 and 0.4."""
    return -(X - X.new_tensor([0.7, 0.4])).square().sum(-1)


def kernel() -> ScaleKernel:
    return ScaleKernel(
        SlicedWassersteinKernel(2, profile="matern52", num_slices=16, num_quantiles=16)
    )


def make_model(X: Tensor, decoder: Decoder | ChainedInputTransform | None = None) -> DistributionGP:
    return DistributionGP(
        X, target(X), kernel(), input_transform=Decoder(ellipses) if decoder is None else decoder
    )


def ragged(designs: Tensor) -> PointClouds:
    """Ellipses with more points the longer the first half axis."""
    points = ellipses(designs)
    return PointClouds.from_list(
        [p[: 4 + int(8 * x)] for p, x in zip(points, designs[:, 0], strict=True)]
    )


def test_numbers_of_atoms_may_differ_between_calls() -> None:
    X, new = designs(12), designs(6, seed=1)
    model = make_model(X, Decoder(ragged))
    plain = DistributionGP(ragged(X), target(X), kernel(), sampling_noise=False)
    expected = plain.predict(ragged(new))
    order = new[:, 0].argsort()
    for part in (order, order[:2], order[-2:]):  # rows wider and narrower than in training
        for actual, values in zip(model.predict(new[part]), expected, strict=True):
            torch.testing.assert_close(actual, values[part])
    model.train()
    assert torch.equal(model.train_inputs[0], X)


@pytest.mark.parametrize("decode", [ellipses, weighted, clouds, torch.vmap(lambda x: x * CIRCLE)])
def test_rows_are_those_of_the_clouds(decode: object) -> None:
    decoder = Decoder(decode)  # type: ignore[arg-type]
    X = designs(6)
    weights = WEIGHTS.expand(6, -1) if decode is weighted else None
    expected = PointClouds(ellipses(X), weights)
    rows = decoder.transform(X.reshape(3, 1, 2, 2))
    assert rows.shape == (3, 1, 2, 36)
    assert PointClouds.unpack(rows.reshape(6, 36), 2) == expected
    found = decoder.clouds(X.reshape(3, 2, 2))
    assert found.batch_shape == (3, 2)
    assert torch.equal(found.points.flatten(0, 1), expected.points)


def test_a_model_on_designs_is_the_model_on_their_clouds() -> None:
    X, new = designs(12), designs(6, seed=1)
    model = fit(make_model(X))
    decode = Decoder(ellipses)
    on_clouds = fit(DistributionGP(decode.clouds(X), target(X), kernel()))
    torch.testing.assert_close(model.predict(new), on_clouds.predict(decode.clouds(new)))
    posterior = model.posterior(new.reshape(3, 2, 2))
    expected = on_clouds.posterior(decode.transform(new.reshape(3, 2, 2)))
    torch.testing.assert_close(
        posterior.distribution.covariance_matrix, expected.distribution.covariance_matrix
    )
    # Predictions are in the units of the targets.
    torch.testing.assert_close(model.predict(X)[0], target(X), rtol=0, atol=0.05)


@pytest.mark.parametrize("q", [1, 2])
def test_gradients_are_exact(q: int) -> None:
    X = designs(12)
    model = make_model(X)
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
    acquisition = (
        LogExpectedImprovement(model, target(X).max())
        if q == 1
        else qLogExpectedImprovement(model, target(X).max(), sampler)
    )
    new = designs(2 * q, seed=2).reshape(2, q, 2).requires_grad_()
    assert torch.autograd.gradcheck(acquisition, new, atol=1e-5)


def test_errors() -> None:
    X = designs(3)
    with pytest.raises(ValueError, match=r"shape \(3, m, d\)"):
        Decoder(lambda X: ellipses(X[:2])).transform(X)
    with pytest.raises(ValueError, match=r"got NaN or infinity for design \[1\.0, 0\.0\]"):
        Decoder(lambda X: ellipses(X).log()).transform(torch.tensor([[1.0, 0.0]]).double())
    with pytest.raises(TypeError, match="Expected decode to return a tensor of points"):
        Decoder(lambda X: X.numpy()).transform(X)


def test_decoders_without_gradients_are_refused_where_designs_need_them() -> None:
    decoder = Decoder(lambda X: ellipses(X.detach()))
    assert decoder.transform(designs(3)).shape == (3, 3 * len(CIRCLE))
    X = designs(3).requires_grad_()
    with pytest.raises(ValueError, match="Expected decode to be differentiable"):
        decoder.transform(X)
    with torch.no_grad():
        decoder.transform(X)
    rounded = Decoder(lambda X: ellipses(X.round()))
    assert rounded.transform(X).requires_grad
