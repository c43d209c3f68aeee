"""The expected improvement of a mixture is exact, also where it is tiny, and has gradients."""

import math

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.exceptions import UnsupportedError
from cases import as_rows, random_clouds
from scipy.integrate import quad

from gp_distributions import (
    DistributionGP,
    MixtureModel,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
)
from gp_distributions.bayesopt import (
    MixtureLogExpectedImprovement,
    Observations,
    default_acquisition,
)
from gp_distributions.models.equal_mixture import EqualMixture

ROWS = as_rows(random_clouds(20, sizes=(8, 8)))
TRAIN, NEW = ROWS[:12], ROWS[12:].unsqueeze(-2)
TARGETS = PointClouds.unpack(TRAIN, 2).points.square().mean((-2, -1))
BEST = TARGETS.max()


def member(scale: float) -> DistributionGP:
    kernel = SlicedWassersteinKernel(2, num_slices=8, num_quantiles=8)
    kernel.lengthscale = scale
    return DistributionGP(TRAIN, TARGETS, kernel).eval()


def mixture() -> MixtureModel:
    other = DistributionGP(TRAIN, TARGETS, MMDKernel(2, bandwidth=1.0))
    return MixtureModel([member(0.5), other, member(3.0)], [0.2, 0.5, 0.3])


def test_agrees_with_quadrature() -> None:
    model = mixture()
    found = MixtureLogExpectedImprovement(model, BEST)(NEW).exp().detach()
    with torch.no_grad():
        posterior = model.posterior(NEW)
    part = posterior.mixture

    def improvement(y: float, place: int) -> float:
        value = torch.tensor(y, dtype=torch.float64)
        density = part.log_density(value.expand(len(NEW), 1, 1))[place, 0, 0].exp()
        return (y - float(BEST)) * float(density)

    for place in range(len(NEW)):
        top = float(BEST) + 12 * float(posterior.variance.max().sqrt())
        limits = float(BEST), top, (place,)
        expected = quad(improvement, *limits, epsabs=1e-12, epsrel=1e-9, limit=200)[0]
        assert found[place].item() == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_is_finite_far_from_any_improvement() -> None:
    """BoTorch's logarithm is finite where the improvement itself underflows."""
    model = mixture()
    values = MixtureLogExpectedImprovement(model, BEST + 1e4)(NEW)
    assert bool((values < -1e3).all())
    each = torch.stack(
        [LogExpectedImprovement(part, BEST + 1e4)(NEW) for part in model.models], dim=-1
    )
    np.testing.assert_allclose(
        values.detach(), (each + model.weights.log()).logsumexp(-1).detach(), rtol=1e-12
    )


def test_is_the_default_of_mixtures() -> None:
    data = Observations(TRAIN, TARGETS.unsqueeze(-1), 1, None, q=1, seed=0)
    acquisition = default_acquisition(mixture(), data)
    assert isinstance(acquisition, MixtureLogExpectedImprovement)
    assert math.isfinite(acquisition(NEW[:1]).item())
    with pytest.raises(UnsupportedError):
        acquisition.set_X_pending(NEW[0])
    assert type(default_acquisition(member(1.0), data)) is LogExpectedImprovement


def test_members_of_a_model_count_each() -> None:
    model = member(1.0)
    model.mixture = EqualMixture([member(0.5), member(3.0)])
    data = Observations(TRAIN, TARGETS.unsqueeze(-1), 1, None, q=1, seed=0)
    found = default_acquisition(model, data)(NEW)
    each = [LogExpectedImprovement(part, BEST)(NEW).exp() for part in model.members]
    torch.testing.assert_close(found.exp(), torch.stack(each).mean(0))
