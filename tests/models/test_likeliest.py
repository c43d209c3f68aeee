"""The member of largest weight predicts as it does inside of the mixture."""

import pytest
import torch
from cases import KERNELS, MODELS, NEW_ROWS
from torch import Tensor

from gp_distributions import DistributionGP, MixtureModel, integrate_hyperparameters
from gp_distributions.models.likeliest import likeliest


def check_member(model: DistributionGP, new: Tensor) -> None:
    integrated = integrate_hyperparameters(model)
    state = {name: value.clone() for name, value in integrated.state_dict().items()}
    found = likeliest(integrated)
    assert type(found) is DistributionGP
    assert found.train_targets is integrated.model.train_targets
    posterior = integrated.posterior(new)
    # The location of a member is its posterior mean; its scale also has the uncertainty of the mean.
    expected = posterior.member_mean[int(integrated.weights.argmax())]
    torch.testing.assert_close(found.posterior(new).mean, expected, rtol=1e-6, atol=1e-6)
    assert bool((posterior.variance > 0).all())
    assert all(torch.equal(value, state[name]) for name, value in integrated.state_dict().items())


@pytest.mark.parametrize("name", ["exact", "sum", "known noise", "sampling noise"])
def test_members_of_integrated_models(name: str) -> None:
    check_member(MODELS[name](), NEW_ROWS)


@pytest.mark.parametrize("name", [n for n in KERNELS if n[:4] == "sw2-" or "gaussian" in n])
def test_every_kernel(name: str) -> None:
    rows = KERNELS[name].inputs.rows(14, sizes=(3, 9))
    targets = torch.linspace(-1, 1, 10, dtype=torch.float64).square()
    check_member(DistributionGP(rows[:10], targets, KERNELS[name]()), rows[10:])


def test_mixtures_of_mixtures() -> None:
    single, other = MODELS["exact"](), MODELS["normalised"]()
    inner = MixtureModel([other, single], [0.4, 0.6])
    assert likeliest(MixtureModel([other, inner], [0.3, 0.7])) is single
    assert likeliest(single) is single
