"""Minimisation by L-BFGS within bounds: minima, rounding errors, and what is not a minimum."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy.optimize import rosen, rosen_der
from torch import Tensor

from gp_distributions.fitting.lbfgs import _newton_step, minimise


def parameter(*values: float) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))


def banana(x: Tensor) -> Tensor:
    """Return Rosenbrock's function."""
    return (100 * (x[1:] - x[:-1].square()).square() + (1 - x[:-1]).square()).sum()


def with_rounding(loss: Callable[[Tensor], Tensor], error: float) -> Callable[[Tensor], Tensor]:
    """Add errors to values that depend on the last digits of the parameters, as rounding does."""

    def noisy(x: Tensor) -> Tensor:
        phase = 1e12 * x.detach().sum().item()
        return loss(x) + error * math.sin(phase)

    return noisy


def test_finds_the_minimum_of_a_curved_valley() -> None:
    x = parameter(-1.2, 1.0, 0.5)
    assert rosen(x.detach().numpy()) == pytest.approx(banana(x).item())
    found = minimise(lambda: banana(x), {"x": x}, gtol=1e-8, ftol=0.0)
    assert found.converged
    torch.testing.assert_close(x.detach(), torch.ones(3).double(), rtol=0, atol=1e-6)
    assert abs(rosen_der(x.detach().numpy())).max() < 1e-6


def test_stays_within_bounds() -> None:
    x, y = parameter(0.0), parameter(3.0)
    found = minimise(
        lambda: (x - 2).square().sum() + (x + y).square().sum(),
        {"x": x, "y": y},
        {"x": (None, 0.5), "y": (0.25, None)},
    )
    assert found.converged
    assert (x.item(), y.item()) == (0.5, 0.25)


def test_the_curvature_of_a_similar_loss_saves_evaluations() -> None:
    scales = torch.logspace(0, 1, 20, dtype=torch.float64)
    losses: list[Tensor] = []

    def loss(x: Tensor, centre: float) -> Tensor:
        losses.append((scales * (x - centre).square()).sum() + (x - centre).pow(4).sum())
        return losses[-1]

    x = parameter(*[1.0] * 20)
    found = minimise(lambda: loss(x, 0.0), {"x": x})
    counts = []
    for pairs in ([], found.pairs):
        y = torch.nn.Parameter(x.detach().clone())
        losses.clear()
        minimise(lambda y=y: loss(y, 0.1), {"x": y}, pairs=pairs)
        counts.append(len(losses))
    assert counts[1] < 0.7 * counts[0]


def test_steps_are_those_of_the_dense_update() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(6, 6, generator=generator).double()
    steps = torch.randn(9, 6, generator=generator).double()
    pairs = [(step, root @ root.T @ step) for step in steps]
    step, change = pairs[-1]
    inverse = torch.eye(6).double() * (step @ change) / change.square().sum()
    for step, change in pairs:
        left = torch.eye(6).double() - torch.outer(step, change) / (step @ change)
        inverse = left @ inverse @ left.T + torch.outer(step, step) / (step @ change)
    gradient = torch.randn(6, generator=generator).double()
    torch.testing.assert_close(_newton_step(pairs, gradient), inverse @ gradient)


@pytest.mark.parametrize("error", [0.0, 1e-9])
@pytest.mark.parametrize("start", [(-1.2, 1.0), (1.0 + 1e-7, 1.0), (4.0, -3.0)])
def test_rounding_errors_do_not_hide_that_it_is_a_minimum(
    start: tuple[float, float], error: float
) -> None:
    x = parameter(*start)
    loss = with_rounding(banana, error)
    assert minimise(lambda: loss(x), {"x": x}).converged
    assert banana(x).item() < 1e-6


def test_says_what_is_not_a_minimum() -> None:
    x = parameter(-1.2, 1.0)
    assert not minimise(lambda: banana(x), {"x": x}, maxiter=5).converged
    # A cliff that no step descends although the slope is steep.
    y = parameter(0.0)
    wrong = lambda: y.sum() - y.sum().detach() + y.detach().abs().sum()  # noqa: E731
    assert not minimise(wrong, {"y": y}).converged


def test_ends_where_rounding_leaves_no_step() -> None:
    x = torch.tensor([1e18], dtype=torch.float64, requires_grad=True)
    evaluations = 0

    def loss() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        return 1e6 * (x - x.detach()).sum()  # with a slope, but without a decrease

    assert not minimise(loss, {"x": x}, maxiter=100).converged
    assert evaluations < 20
