"""Acquisition functions averaged over members are exact, also where improvement is tiny."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.exceptions import UnsupportedError
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.get_sampler import get_sampler
from cases import as_rows, random_clouds
from scipy.integrate import quad
from scipy.stats import norm

from gp_distributions import (
    DistributionGP,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
    integrate_hyperparameters,
)
from gp_distributions.bayesopt import AveragedAcquisition, Observations, default_acquisition
from gp_distributions.bayesopt.acquisitions import MemberView, MixtureView
from gp_distributions.models import ensemble_of

ROWS = as_rows(random_clouds(20, sizes=(8, 8)))
TRAIN, NEW = ROWS[:12], ROWS[12:].unsqueeze(-2)
TARGETS = PointClouds.unpack(TRAIN, 2).points.square().mean((-2, -1))
BOTH = torch.stack([TARGETS, TARGETS.cos()], dim=-1)
BEST = TARGETS.max()
S = torch.Size


def member(scale: float, targets: torch.Tensor = TARGETS) -> DistributionGP:
    kernel = SlicedWassersteinKernel(2, num_slices=8, num_quantiles=8)
    kernel.lengthscale = scale
    return DistributionGP(TRAIN, targets, kernel).eval()


def several() -> DistributionGP:
    other = DistributionGP(TRAIN, TARGETS, MMDKernel(2, bandwidth=1.0))
    return ensemble_of([member(0.5), other, member(3.0)], [0.2, 0.5, 0.3])


MODELS: dict[str, Callable[[], DistributionGP]] = {
    "kernels": several,
    "hyperparameters": lambda: integrate_hyperparameters(member(1.0)),
    "both": lambda: ensemble_of([several(), integrate_hyperparameters(member(1.0))], [1, 2]),
}


def observed(**options: object) -> Observations:
    given = {
        "X": TRAIN,
        "Y": TARGETS[:, None],
        "objectives": 1,
        "X_pending": None,
        "q": 1,
        "seed": 0,
    }
    return Observations(**(given | options))


@pytest.mark.parametrize("kind", MODELS)
def test_agrees_with_quadrature(kind: str) -> None:
    model = MODELS[kind]()
    acquisition = default_acquisition(model, observed())
    assert isinstance(acquisition, AveragedAcquisition)
    found = acquisition(NEW).exp().detach()
    weights = model.weights.numpy()
    mean, std = (
        torch.stack(part, dim=-1).numpy()
        for part in zip(
            *(m.predict(NEW.squeeze(-2), observation_noise=False) for m in model.members),
            strict=True,
        )
    )

    def improvement(y: float, place: int) -> float:
        return (y - float(BEST)) * float(weights @ norm.pdf(y, mean[place], std[place]))

    for place in range(len(NEW)):
        limits = float(BEST), float(BEST) + 12 * std.max(), (place,)
        expected = quad(improvement, *limits, epsabs=1e-12, epsrel=1e-9, limit=200)[0]
        assert found[place].item() == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_members_are_evaluated_at_once(kind: str) -> None:
    """BoTorch's logarithm is finite where the improvement itself underflows."""
    model = MODELS[kind]()
    found = AveragedAcquisition(LogExpectedImprovement(model, BEST + 1e4), model)(NEW)
    assert bool((found < -1e3).all())
    each = torch.stack([LogExpectedImprovement(m, BEST + 1e4)(NEW) for m in model.members], dim=-1)
    expected = (each + model.weights.log()).logsumexp(-1)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-8)
    X = NEW[:2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(default_acquisition(model, observed())(X).sum(), X)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("kind", MODELS)
def test_pending_inputs_and_constraints(kind: str) -> None:
    model = MODELS[kind]()
    acquisition = default_acquisition(model, observed(X_pending=ROWS[12:14]))
    sampler = SobolQMCNormalSampler(S([2**14]), seed=1)
    acquisition.acquisition.sampler = sampler
    found = acquisition(NEW[2:])
    best = model.posterior(TRAIN).mean.max()
    each = torch.stack(
        [
            qLogExpectedImprovement(m, best, sampler=sampler, X_pending=ROWS[12:14])(NEW[2:])
            for m in model.members
        ],
        dim=-1,
    )
    expected = (each + model.weights.log()).logsumexp(-1)
    # Members have base samples of their own: the error of so many quasi-random samples.
    torch.testing.assert_close(found.exp(), expected.exp(), rtol=0.02, atol=1e-5)
    assert torch.equal(acquisition.X_pending, ROWS[12:14])
    acquisition.set_X_pending(None)
    assert acquisition.X_pending is None


def test_hypervolumes_have_samples_of_the_mixture() -> None:
    kernels = [SlicedWassersteinKernel(2, num_slices=8, batch_shape=S([2])) for _ in range(2)]
    kernels[1].lengthscale = 3.0
    model = ensemble_of([DistributionGP(TRAIN, BOTH, kernel) for kernel in kernels], [1, 3])
    acquisition = default_acquisition(model, observed(Y=BOTH, objectives=2))
    assert isinstance(acquisition, qLogNoisyExpectedHypervolumeImprovement)
    assert bool(acquisition(NEW).isfinite().all())
    posterior = MixtureView(model).posterior(ROWS[12:15])
    expected = model.posterior(ROWS[12:15])
    for sampler in (
        SobolQMCNormalSampler(S([4096]), seed=0),
        get_sampler(posterior, S([4096]), seed=0),
    ):
        samples = sampler(posterior)
        assert samples.shape == (4096, 3, 2)
        torch.testing.assert_close(samples.mean(0), expected.mean, rtol=0, atol=0.02)
        torch.testing.assert_close(samples.var(0), expected.variance, rtol=0.1, atol=1e-3)
    assert posterior.rsample(S([5])).shape == (5, 3, 2)


def test_constraints_before_a_feasible_input() -> None:
    kernels = [SlicedWassersteinKernel(2, num_slices=8, batch_shape=S([2])) for _ in range(2)]
    model = ensemble_of([DistributionGP(TRAIN, BOTH + 5, kernel) for kernel in kernels])
    acquisition = default_acquisition(model, observed(Y=BOTH + 5))
    assert isinstance(acquisition, AveragedAcquisition)
    assert acquisition(NEW).shape == (8,)


def test_models_of_one_kernel_have_none_of_this() -> None:
    acquisition = default_acquisition(several(), observed())
    assert math.isfinite(acquisition(NEW[:1]).item())
    with pytest.raises(UnsupportedError):
        acquisition.set_X_pending(NEW[0])
    assert type(default_acquisition(member(1.0), observed())) is LogExpectedImprovement


def test_a_view_has_the_posterior_of_each_member() -> None:
    model = MODELS["both"]()
    view = MemberView(model)
    found = view.posterior(NEW.unsqueeze(-3), observation_noise=True)
    assert found.mean.shape == (8, len(model.weights), 1, 1)
    for place in (0, 2, 3, 7):
        expected = model.members[place].posterior(NEW, observation_noise=True)
        torch.testing.assert_close(found.mean[:, place], expected.mean)
        torch.testing.assert_close(found.variance[:, place], expected.variance)
