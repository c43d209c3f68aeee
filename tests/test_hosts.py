"""Private names of GPyTorch, BoTorch and PyTorch that are used still exist."""

from typing import Any

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from gp_distributions.hosts import NAMES

X = torch.linspace(0, 1, 6).double().unsqueeze(-1)
BOTH = torch.cat([X.sin(), X.cos()], dim=-1)


@pytest.fixture(scope="module")
def hosts() -> dict[str, Any]:
    """An object of each class."""
    model = SingleTaskGP(X, BOTH, outcome_transform=Standardize(2), input_transform=Normalize(1))
    posterior = model.posterior(X)
    likelihood = model.likelihood
    found = [
        model,
        model.outcome_transform,
        posterior,
        likelihood,
        model.mean_module,
        RBFKernel(),
        ExactMarginalLogLikelihood(likelihood, model),
        LogExpectedImprovement(SingleTaskGP(X, X.sin()), 0.0),
        VariationalStrategy(ApproximateGP(None), X, CholeskyVariationalDistribution(6)),
        X,
    ]
    named = {type(each).__name__: each for each in found}
    return named | {
        "GaussianLikelihood": likelihood,
        "MultitaskMultivariateNormal": MultitaskMultivariateNormal(BOTH, torch.eye(12).double()),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_private_name_exists(name: str, hosts: dict[str, Any]) -> None:
    host, attribute = name.split(".")
    assert hasattr(hosts[host], attribute), f"{name}: {NAMES[name]}"
