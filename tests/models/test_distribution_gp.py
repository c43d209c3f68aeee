"""DistributionGP: inputs, shapes, units, exactness, and the BoTorch interface."""

import copy
from typing import Any

import gpytorch
import pytest
import torch
from botorch.models import SingleTaskGP
from cases import as_rows, random_clouds, sliced_kernel, with_known_level
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from gp_distributions import DistributionGP, PointClouds
from gp_distributions.warnings import JitterWarning

pytestmark = pytest.mark.usefixtures("short_fits")

CLOUDS = random_clouds(40, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])


def make_model(num: int = 30, rows: Tensor = ROWS, **options: Any) -> DistributionGP:
    return DistributionGP(rows[:num], TARGETS[:num], sliced_kernel(), **options)


@pytest.fixture
def model() -> DistributionGP:
    return make_model()


def as_clouds(which: slice) -> PointClouds:
    points, weights = zip(*CLOUDS[which], strict=True)
    return PointClouds.from_list(points, weights=weights)


class TestInputs:
    def test_clouds_and_rows_are_the_same_data(self, model: DistributionGP) -> None:
        other = DistributionGP(
            as_clouds(slice(30)), TARGETS[:30].numpy(), sliced_kernel(), sampling_noise=False
        )
        torch.testing.assert_close(
            other.predict(as_clouds(slice(30, None))), model.predict(ROWS[30:])
        )

    def test_default_kernel_needs_clouds(self) -> None:
        with pytest.raises(ValueError, match="covar_module is needed"):
            DistributionGP(ROWS, TARGETS)

    def test_targets_are_checked(self) -> None:
        with pytest.raises(ValueError, match=r"each of \(40,\) clouds.*\(39,\)"):
            DistributionGP(ROWS, TARGETS[:39], sliced_kernel())
        with pytest.raises(ValueError, match=r"got 'a' at \(0,\)\. .*Use ClassificationGP"):
            DistributionGP(ROWS, ["a", "b"] * 20, sliced_kernel())

    @pytest.mark.parametrize("atoms", [30, 100])
    def test_rows_of_another_width(self, atoms: int) -> None:
        """Wider rows widen the training rows; narrower ones are padded."""
        expected = make_model().predict(ROWS[30:])
        wide = as_rows(CLOUDS, atoms=atoms)
        for train, test in ((ROWS, wide), (wide, ROWS)):
            model = make_model(rows=train)
            for _ in range(2):
                torch.testing.assert_close(model.predict(test[30:]), expected)
            conditioned = model.condition_on_observations(test[30:32], TARGETS[30:32, None])
            assert conditioned.posterior(test[32:]).mean.shape == (8, 1)


class TestPredictions:
    @pytest.mark.parametrize("shape", [(), (1,), (2,)])
    def test_shapes_follow_those_of_targets(self, shape: tuple[int, ...]) -> None:
        targets = TARGETS.reshape(-1, *[1] * len(shape)).expand(-1, *shape)
        model = DistributionGP(ROWS, targets, sliced_kernel())
        for values in model.predict(ROWS[:4]):
            assert values.shape == (4, *shape)
            assert not values.requires_grad
        for values in model.predict(ROWS[:12].unflatten(0, (3, 4))):
            assert values.shape == (3, 4, *shape)

    def test_known_noise_is_in_the_units_of_the_targets(self) -> None:
        variances = torch.linspace(0.1, 4.0, 30, dtype=torch.float64)
        model = with_known_level(make_model(train_Yvar=variances.numpy()))
        K = (
            sliced_kernel()(ROWS).to_dense().detach() * TARGETS[:30].var()
        )  # of standardised targets
        mean = TARGETS[:30].mean()
        solved = torch.linalg.solve(K[:30, :30] + variances.diag(), K[:30, 30:])
        expected = mean + solved.T @ (TARGETS[:30] - mean)
        variance = K[30:, 30:].diagonal() - (K[:30, 30:] * solved).sum(0)
        for noise in (0.0, variances.mean()):
            found = model.predict(ROWS[30:], observation_noise=bool(noise))
            torch.testing.assert_close(found[0], expected)
            torch.testing.assert_close(found[1].square(), variance + noise)

    def test_known_noise_is_checked(self) -> None:
        message = r"one variance for each target, \(30, 1\), got .* \(29, 1\)"
        with pytest.raises(ValueError, match=message):
            make_model(train_Yvar=torch.ones(29))
        with pytest.raises(ValueError, match="positive variances, but that of cloud 0 is"):
            make_model(train_Yvar=torch.arange(30.0))
        with pytest.raises(ValueError, match="got two of them"):
            make_model(train_Yvar=torch.ones(30), sampling_noise=True)

    def test_of_a_batch_of_models_are_those_of_its_parts(self) -> None:
        rows, targets = ROWS[:30].unflatten(0, (3, 10)), TARGETS[:30].reshape(3, 10)
        batch = DistributionGP(
            rows, targets.unsqueeze(-1), sliced_kernel(batch_shape=torch.Size([3]))
        )
        test = ROWS[30:39].unflatten(0, (3, 3))
        mean, std = batch.predict(test)
        everywhere = batch.predict(ROWS[30:], batch_size=4)[0]
        assert mean.shape == std.shape == (3, 3, 1)
        assert everywhere.shape == (3, 10, 1)
        for i in range(3):
            model = DistributionGP(rows[i], targets[i], sliced_kernel())
            expected = model.predict(test[i])
            torch.testing.assert_close(mean[i, :, 0], expected[0])
            torch.testing.assert_close(std[i, :, 0], expected[1])
            torch.testing.assert_close(everywhere[i, :, 0], model.predict(ROWS[30:])[0])


def test_jitter_is_announced() -> None:
    twice = torch.cat([ROWS[:20], ROWS[:20]])
    targets = torch.cat([TARGETS[:20], TARGETS[:20]])
    kernel = sliced_kernel(profile="gaussian")
    kernel.base_kernel.lengthscale = 1e3
    model = DistributionGP(twice, targets, kernel)
    model.likelihood.noise_covar.register_constraint(
        "raw_noise", gpytorch.constraints.GreaterThan(1e-30)
    )
    model.likelihood.noise = torch.tensor(1e-25, dtype=torch.float64)
    with pytest.warns(JitterWarning, match="duplicate clouds"):
        model.posterior(ROWS[30:])


@pytest.mark.parametrize("compose", ["scale", "sum", "product"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_posterior_and_its_gradient_are_those_of_single_task_gp(compose: str, outputs: int) -> None:
    width = ROWS.shape[-1]
    kernel = sliced_kernel(active_dims=range(width))
    if compose == "sum":
        kernel = kernel + ScaleKernel(RBFKernel(active_dims=[width]))
    elif compose == "product":
        kernel = kernel * RBFKernel(active_dims=[width])
    X = torch.cat([ROWS, TARGETS[:, None].cos()], dim=-1)
    Y = torch.stack([TARGETS, TARGETS.sin()], dim=-1)[:30, :outputs]
    model = with_known_level(DistributionGP(X[:30], Y, kernel))
    plain = SingleTaskGP(
        X[:30],
        Y,
        covar_module=copy.deepcopy(model.covar_module),
        likelihood=copy.deepcopy(model.likelihood),
    )
    values = []
    for each in (model, plain):
        new = X[30:].unflatten(0, (5, 2)).clone().requires_grad_()
        posterior = each.posterior(new)
        value = posterior.mean.sum() + posterior.distribution.covariance_matrix.sin().sum()
        values.append((value.detach(), *torch.autograd.grad(value, new)))
    torch.testing.assert_close(values[0], values[1], rtol=1e-6, atol=1e-8)
