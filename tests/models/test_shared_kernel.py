"""Several outputs with one kernel: independent GPs with shared hyperparameters, at the cost of one."""

import copy
from functools import partial

import pytest
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.sampling import SobolQMCNormalSampler
from cases import random_rows, sliced_kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gp_distributions import Decoder, DistributionGP, PointClouds, SlicedWassersteinKernel, fit
from gp_distributions.fitting.ascent import objective
from gp_distributions.models import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedKernelGP

make_kernel = partial(sliced_kernel, 2.0, 1.7)

ROWS = random_rows(40, sizes=(5, 20))
TARGETS = torch.stack([ROWS.sin().sum(-1), ROWS.square().sum(-1).sqrt(), ROWS[:, :9].sum(-1)], -1)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def make_model() -> SharedKernelGP:
    model = SharedKernelGP(ROWS[:30], TARGETS[:30], make_kernel())
    model.likelihood.noise = 0.02
    model.mean_module.constant = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    return model


def independent(model: SharedKernelGP, output: int) -> DistributionGP:
    """The model of one output with the hyperparameters of all."""
    one = DistributionGP(ROWS[:30], TARGETS[:30, output], copy.deepcopy(model.covar_module))
    one.likelihood.noise = model.likelihood.noise.detach()
    one.mean_module.constant = model.mean_module.constant.detach()[output]
    return one


def likelihood_and_gradient(
    model: DistributionGP, mll: ExactMarginalLogLikelihood | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    model.train()
    mll = mll or ExactMarginalLogLikelihood(model.likelihood, model)
    value = mll(model(*model.train_inputs), model.train_targets)
    value.sum().backward()
    return value.detach(), {name: p.grad for name, p in model.named_parameters()}


def test_marginal_likelihood_and_gradient_are_those_of_independent_models() -> None:
    model = make_model()
    values, gradients = likelihood_and_gradient(model)
    assert values.shape == (3,)
    totals: dict[str, Tensor] = {}
    for output in range(3):
        value, parts = likelihood_and_gradient(independent(model, output))
        torch.testing.assert_close(values[output], value, **EXACT)
        constant = parts.pop("mean_module.raw_constant")
        torch.testing.assert_close(gradients["mean_module.raw_constant"][output], constant, **EXACT)
        for name, part in parts.items():
            totals[name] = totals.get(name, torch.zeros(())) + part
    for name, total in totals.items():
        torch.testing.assert_close(gradients[name], total, **EXACT)


@pytest.mark.parametrize("noise", [True, False])
def test_posteriors_are_those_of_independent_models(noise: bool) -> None:
    model = make_model()
    batches = ROWS[30:].unflatten(0, (5, 2))
    posterior = model.posterior(batches, observation_noise=noise)
    assert posterior.rsample(torch.Size([7])).shape == (7, 5, 2, 3)
    mean, std = model.predict(ROWS[30:], observation_noise=noise)
    covariance = posterior.distribution.covariance_matrix.unflatten(-1, (3, 2))
    for output in range(3):
        one = independent(model, output)
        expected = one.posterior(batches, observation_noise=noise)
        torch.testing.assert_close(posterior.mean[..., output], expected.mean[..., 0], **EXACT)
        torch.testing.assert_close(
            covariance.unflatten(-3, (3, 2))[..., output, :, output, :],
            expected.distribution.covariance_matrix,
            **EXACT,
        )
        wanted = one.predict(ROWS[30:], observation_noise=noise)
        torch.testing.assert_close((mean[:, output], std[:, output]), wanted, **EXACT)


def test_fit_maximises_the_sum_over_outputs() -> None:
    start, model = make_model(), fit(make_model())
    values, gradients = likelihood_and_gradient(model, objective(model))
    assert values.sum() > likelihood_and_gradient(start, objective(start))[0].sum()
    assert all(float(gradient.abs().max()) < 1e-2 for gradient in gradients.values())
    assert model.num_outputs == 3


def test_subsets_of_outputs() -> None:
    model = make_model()
    mean, std = model.predict(ROWS[30:])
    for outputs in ([1], [0, 2]):
        found = model.subset_output(outputs).predict(ROWS[30:])
        torch.testing.assert_close(found, (mean[:, outputs], std[:, outputs]), **EXACT)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_output_has_the_shapes_of_a_distribution_gp(shape: tuple[int, ...]) -> None:
    targets = TARGETS[:, 0].reshape(-1, *shape)
    pairs = ROWS[30:36].unflatten(0, (3, 2))
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    found = []
    for cls in (SharedKernelGP, DistributionGP):
        model = cls(ROWS[:30], targets[:30], make_kernel())
        found.append(
            [
                model.posterior(ROWS[30:]).mean,
                model.posterior(pairs, observation_noise=True).variance,
                model.condition_on_observations(ROWS[30:], targets[30:]).posterior(ROWS).mean,
                model.fantasize(ROWS[30:32], sampler).posterior(ROWS).variance,
                model.fantasize(pairs, sampler).posterior(ROWS).mean,
                qLogNoisyExpectedImprovement(model, ROWS[:30], sampler=sampler)(pairs),
            ]
        )
    torch.testing.assert_close(*found, **EXACT)


@pytest.mark.parametrize("outputs", [1, 3])
def test_sampling_noise_with_a_decoder(outputs: int) -> None:
    """In training mode the inputs of the likelihood are designs, and only the prior knows the clouds."""
    generator = torch.Generator().manual_seed(0)
    designs, shape = (torch.rand(n, 2, generator=generator).double() for n in (20, 12))
    targets = torch.stack([designs.sum(-1), designs.prod(-1), designs[:, 0]], -1)[:, :outputs]
    decoder = Decoder(lambda X: X.unsqueeze(-2) * shape)
    models = [
        SharedKernelGP(
            *(X, targets, make_kernel()),
            likelihood=SamplingNoiseLikelihood(2, typical=12.0).double(),
            input_transform=transform,
        )
        for X, transform in ((designs, decoder), (decoder.transform(designs), None))
    ]
    values = [likelihood_and_gradient(model)[0] for model in models]
    torch.testing.assert_close(values[0], values[1], **EXACT)
    for model in models:
        fit(model, restarts=0)
    expected = models[1].predict(decoder.transform(designs[:3]))
    for a, b in zip(models[0].predict(designs[:3]), expected, strict=True):
        assert a.shape == (3, outputs)
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    posterior = models[0].posterior(designs[:4], observation_noise=True)
    torch.testing.assert_close(posterior.mean[:3], expected[0], rtol=1e-6, atol=1e-6)


def test_default_kernel_and_what_is_refused() -> None:
    clouds = PointClouds(torch.randn(12, 5, 2, generator=torch.Generator().manual_seed(0)).double())
    model = SharedKernelGP(clouds, torch.stack([clouds.points.sum((1, 2))] * 2, -1))
    assert model.predict(clouds)[0].shape == (12, 2)
    batched = SlicedWassersteinKernel(2, batch_shape=torch.Size([3]))
    with pytest.raises(
        ValueError, match=r"one kernel for all outputs, got a batch of shape \(3,\)"
    ):
        SharedKernelGP(ROWS, TARGETS, batched)
