"""What rows hold, until the module that computed it changes, and the rows that a distance remembers."""

import copy
from collections.abc import Callable

import pytest
import torch
from cases import random_rows
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.priors import LogNormalPrior

from gp_distributions.distances.embedded_rows import EmbeddedRows, state_of


class Part(torch.nn.Module):
    """A module with a parameter, a buffer, settings and a part."""

    def __init__(self) -> None:
        super().__init__()
        self.setting, self.several, self.function = 1, [1, (2.0, "a")], abs
        self.weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.register_buffer("table", torch.arange(3.0))
        self.inner = torch.nn.Linear(1, 1)


CHANGES: dict[str, Callable[[Part], object]] = {
    "setting": lambda part: setattr(part, "setting", 2),
    "setting in a list": lambda part: part.several.append(3),
    "function": lambda part: setattr(part, "function", round),
    "type of a setting": lambda part: setattr(part, "setting", "1"),
    "one bit of a parameter": lambda part: part.weight.data[1].mul_(1 + 2.0**-52),
    "parameter removed": lambda part: setattr(part, "weight", None),
    "buffer": lambda part: part.table.add_(1),
    "buffer set": lambda part: setattr(part, "table", part.table + 1),
    "dtype": lambda part: part.half(),
    "parameter of a part": lambda part: part.inner.weight.data.zero_(),
    "part": lambda part: setattr(part, "inner", torch.nn.Identity()),
    "part removed": lambda part: setattr(part, "inner", None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_results_are_held_until_the_module_changes(change: str) -> None:
    part, rows, calls = Part(), EmbeddedRows(random_rows(2)), []

    def compute() -> int:
        return rows.derived("result", lambda: calls.append(0) or len(calls), by=part)

    assert [compute(), compute()] == [1, 1]
    part.eval().requires_grad_(False)  # changes no result
    part.table, part.several = part.table.clone(), [*part.several]
    assert compute() == 1
    assert rows.holds("result", by=part)
    CHANGES[change](part)
    assert not rows.holds("result", by=part)
    assert [compute(), compute()] == [2, 2]
    assert rows.derived("result", lambda: 7, by=copy.deepcopy(part)) == 7


def test_tensors_that_are_settings_count() -> None:
    noise = FixedNoiseGaussianLikelihood(torch.ones(3))
    before = state_of(noise)
    noise.noise_covar.noise *= 2
    assert state_of(noise) != before


def test_states_leave_priors_out_but_not_hyperparameters() -> None:
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 1.0))
    before = state_of(kernel)
    kernel.lengthscale_prior.log_prob(kernel.lengthscale)  # stores the inverse of a transform
    assert state_of(kernel) == before
    kernel.lengthscale = 2.0  # which GPyTorch sets without a new version
    assert state_of(kernel) != before
