"""Densities and samples by Cholesky factors: PyTorch's numbers, whatever GPyTorch's settings are."""

from collections.abc import Iterator
from contextlib import contextmanager

import gpytorch
import pytest
import torch
from cases import randn
from linear_operator import to_linear_operator
from torch import Tensor

from gp_distributions.models.exact_inference import ExactMultivariateNormal


def covariances(*shape: int) -> Tensor:
    roots = randn(*shape)
    return roots @ roots.mT + torch.eye(shape[-1], dtype=torch.float64)


def numbers(*shape: int) -> Tensor:
    return randn(*shape, seed=1)


@contextmanager
def iterating() -> Iterator[None]:
    """Settings with which GPyTorch itself iterates on matrices of any size."""
    iterations = gpytorch.settings.fast_computations(True, True, True)
    with gpytorch.settings.max_cholesky_size(1), iterations:
        yield


@pytest.mark.parametrize("shape", [(4,), (2, 4), (5, 2, 4), (3, 5, 2, 4)])
def test_densities_are_those_of_pytorch(shape: tuple[int, ...]) -> None:
    mean, covariance = numbers(2, 4), covariances(2, 4, 4)
    normal = ExactMultivariateNormal(mean, to_linear_operator(covariance))
    expected = torch.distributions.MultivariateNormal(mean, covariance)
    with iterating():
        found = normal.log_prob(numbers(*shape))
    torch.testing.assert_close(found, expected.log_prob(numbers(*shape)))


@pytest.mark.parametrize("read_first", ["", "variance", "covariance_matrix"])
def test_samples_are_exact_at_any_size_under_any_settings(read_first: str) -> None:
    covariance = covariances(6, 6)
    lazy = to_linear_operator(covariance - torch.eye(6)).add_jitter(1.0)
    found = ExactMultivariateNormal(numbers(6), lazy)
    base = numbers(50, 6)
    expected = numbers(6) + base @ torch.linalg.cholesky(covariance).T
    if read_first:
        getattr(found, read_first)  # which stores results in the covariance
    with iterating():
        samples = found.rsample(torch.Size([50]), base_samples=base)
        again = found.rsample(torch.Size([50]), base_samples=base)
    torch.testing.assert_close(samples, expected)
    assert torch.equal(samples, again)


def test_a_variance_that_rounding_made_negative_is_zero() -> None:
    covariance = torch.full((1, 1), -1e-17, dtype=torch.float64)
    found = ExactMultivariateNormal(numbers(1), to_linear_operator(covariance))
    assert torch.equal(found.rsample(), numbers(1))
