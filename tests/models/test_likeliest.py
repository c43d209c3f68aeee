"""The member of largest weight predicts as it does inside of the mixture."""

import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ZeroMean

from gp_distributions import (
    DistributionGP,
    MixtureModel,
    MMDKernel,
    SlicedWassersteinKernel,
    integrate_hyperparameters,
)
from gp_distributions.models.likeliest import likeliest

ROWS = as_rows(random_clouds(18, sizes=(5, 12)))
TARGETS = ROWS[:, :6].square().sum(-1) + 0.5 * ROWS[:, 7].sin()
NOISE = torch.linspace(0.1, 0.3, 12, dtype=torch.float64)


def sliced() -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=8, num_quantiles=10)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (ScaleKernel(sliced()), {}),
        (sliced(), {"mean_module": ZeroMean(), "outcome_transform": None}),
        (ScaleKernel(sliced()) + ScaleKernel(MMDKernel(2, bandwidth=1.0)), {}),
        (ScaleKernel(sliced()), {"train_Yvar": NOISE}),
        (ScaleKernel(sliced()), {"sampling_noise": True}),
    ],
    ids=["scaled", "bare", "sum", "known noise", "sampling noise"],
)
def test_members_of_integrated_models(kernel: Kernel, options: dict[str, object]) -> None:
    model = integrate_hyperparameters(DistributionGP(ROWS[:12], TARGETS[:12], kernel, **options))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = likeliest(model)
    assert type(found) is DistributionGP
    assert found.train_targets is model.model.train_targets
    place = int(model.weights.argmax())
    new = ROWS[12:]
    posterior = model.posterior(new)
    # The location of a member is its posterior mean; its scale also has the uncertainty of the mean.
    mean = found.posterior(new).mean
    torch.testing.assert_close(mean, posterior.member_mean[place], rtol=1e-6, atol=1e-6)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_mixtures_of_mixtures() -> None:
    single = DistributionGP(ROWS[:12], TARGETS[:12], sliced())
    other = DistributionGP(ROWS[:12], TARGETS[:12], MMDKernel(2, bandwidth=1.0))
    inner = MixtureModel([other, single], [0.4, 0.6])
    assert likeliest(MixtureModel([other, inner], [0.3, 0.7])) is single
    assert likeliest(single) is single
