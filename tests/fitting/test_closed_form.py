"""The closed form of a marginal likelihood, and of its gradient, against automatic differentiation."""

import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import ScaleKernel
from linear_operator.utils.errors import NanError

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    PrincipalDistance,
    SlicedWasserstein,
)
from gp_distributions.distances import Distance
from gp_distributions.fitting.ascent import objective
from gp_distributions.fitting.closed_form import closed_form

CLOUDS = random_clouds(20, sizes=(5, 20))
TARGETS = torch.stack([points.square().sum().sqrt() for points, _ in CLOUDS])
SW = SlicedWasserstein(2, num_slices=4, num_quantiles=10)


@pytest.mark.parametrize("sampling_noise", [False, True])
@pytest.mark.parametrize(
    ("distance", "profile"),
    [(SW, "matern52"), (SW, "linear"), (PrincipalDistance(SW, num_components=6), "matern52")],
    ids=["distance", "inner product", "features"],
)
def test_is_the_likelihood(distance: Distance, profile: str, sampling_noise: bool) -> None:
    kernel = ScaleKernel(DistributionKernel(distance, profile))
    model = DistributionGP(as_rows(CLOUDS), TARGETS, kernel, sampling_noise=sampling_noise).train()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    known = closed_form(model)
    assert known is not None
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = objective(model)(model(*model.train_inputs), model.train_targets)
    found = known()
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    gradients = torch.autograd.grad(expected, learned)
    for gradient, other in zip(torch.autograd.grad(found, learned), gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


def test_is_for_one_output_and_fixed_distances() -> None:
    rows = as_rows(CLOUDS)
    outputs = torch.stack([TARGETS, -TARGETS], dim=-1)
    kernel = ScaleKernel(DistributionKernel(SW, "rational_quadratic"))
    two = DistributionGP(rows, outputs, ScaleKernel(DistributionKernel(SW)))
    assert closed_form(two.train()) is None
    assert closed_form(DistributionGP(rows, TARGETS, kernel).train()) is None


@pytest.mark.filterwarnings("error")
def test_lengthscales_too_small_for_squares_are_avoided() -> None:
    kernel = ScaleKernel(DistributionKernel(PrincipalDistance(SW, num_components=6)))
    model = DistributionGP(as_rows(CLOUDS), TARGETS, kernel).train()
    kernel.base_kernel.lengthscale = 1e-200
    known = closed_form(model)
    assert known is not None
    with pytest.raises(NanError):
        known()
