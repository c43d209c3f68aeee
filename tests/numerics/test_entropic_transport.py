"""The solver against independent ones, and its gradient against finite differences."""

import ot
import pytest
import torch
from cases import rand
from torch import Tensor

from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials


def problem(
    clouds: int = 4, atoms: int = 9, size: int = 6, dim: int = 2, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return rand(*shape, seed=generator)

    weights, masses = 0.1 + uniform(clouds, atoms), 0.1 + uniform(size)
    return (
        uniform(clouds, atoms, dim) + uniform(clouds, 1, dim),
        weights / weights.sum(-1, keepdim=True),
        1.5 * uniform(size, dim),
        masses / masses.sum(),
    )


def solve(*tensors: Tensor, epsilon: float, **options: object) -> tuple[Tensor, object]:
    return transport_potentials(*tensors, torch.tensor(epsilon, dtype=torch.float64), **options)


@pytest.mark.parametrize("size", [6, 25])
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03])
def test_agrees_with_pot(epsilon: float, size: int) -> None:
    points, weights, support, masses = problem(size=size)
    potentials, outcome = solve(points, weights, support, masses, epsilon=epsilon)
    assert bool(outcome.converged.all() & outcome.determined.all())
    exact = torch.tensor(epsilon, dtype=torch.float64)
    for x, a, g in zip(points, weights, potentials, strict=True):
        cost = ot.dist(x.numpy(), support.numpy())
        plan, log = ot.sinkhorn(
            a.numpy(),
            masses.numpy(),
            cost,
            epsilon,
            method="sinkhorn_log",
            stopThr=1e-13,
            numItermax=100_000,
            log=True,
        )
        # POT includes the weights of the reference in the potential.
        expected = epsilon * (torch.from_numpy(log["log_v"]) - masses.log())
        expected = expected - masses @ expected
        torch.testing.assert_close(g, expected, rtol=0, atol=1e-8)
        found = a[:, None] * conditional_plan(x[None], support, masses, exact, g[None])[0]
        torch.testing.assert_close(found, torch.from_numpy(plan), rtol=0, atol=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 1e-2, 1e-4])
def test_either_side_gives_the_same(epsilon: float) -> None:
    """Clouds with fewer atoms than the reference are solved on their side; padded ones on the other."""
    points, weights, support, masses = problem(atoms=7, size=12)
    weights = torch.where(torch.arange(7) < 3 + torch.arange(4).unsqueeze(-1), weights, 0.0)
    weights = weights / weights.sum(-1, keepdim=True)
    few, first = solve(points, weights, support, masses, epsilon=epsilon)
    padded = torch.nn.functional.pad(points, (0, 0, 0, 9)), torch.nn.functional.pad(weights, (0, 9))
    many, second = solve(*padded, support, masses, epsilon=epsilon)
    torch.testing.assert_close(few, many, rtol=0, atol=1e-11)
    assert torch.equal(first.determined, second.determined)


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("kind", ["weights", "uniform", "far", "duplicates", "one", "single atoms"])
def test_small_epsilon_and_degenerate_problems(kind: str, epsilon: float) -> None:
    """Marginals hold, nothing is NaN, and undetermined potentials are flagged."""
    points, weights, support, masses = problem(clouds=20, atoms=12)
    if kind == "uniform":  # partial sums coincide
        weights, masses = torch.full_like(weights, 1 / 12), torch.full_like(masses, 1 / 6)
    elif kind == "far":
        support = support + 30
    elif kind == "duplicates":
        support = support[:2].repeat(3, 1)
    elif kind == "one":
        support, masses = support[:1], torch.ones(1, dtype=torch.float64)
    elif kind == "single atoms":
        points, weights = points[:, :1], torch.ones(20, 1, dtype=torch.float64)
    diameter = float((points.flatten(0, 1)[:, None] - support).square().sum(-1).max())
    scaled = torch.tensor(epsilon * diameter, dtype=torch.float64)
    points.requires_grad_()
    potentials, outcome = transport_potentials(points, weights, support, masses, scaled)
    assert bool(outcome.converged.all()), outcome.marginal_error
    plan = weights.unsqueeze(-1) * conditional_plan(points, support, masses, scaled, potentials)
    # At 1e-6 of the diameter the exponents have lost six digits.
    torch.testing.assert_close(plan.detach().sum(-2), masses.expand(20, -1), rtol=0, atol=1e-8)
    (gradient,) = torch.autograd.grad(potentials.square().sum(), points)
    assert bool(gradient.isfinite().all())
    if kind == "uniform" and epsilon == 1e-6:
        assert not bool(outcome.determined.any())
    if kind in ("one", "single atoms"):
        assert bool(outcome.determined.all())


@pytest.mark.parametrize(("argument", "size"), [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4), (4, 8)])
def test_gradient(argument: int, size: int) -> None:
    """Gradients of potentials and plans in points, weights, support, masses and epsilon."""
    tensors = [*problem(clouds=2, atoms=5, size=size), torch.tensor(0.2, dtype=torch.float64)]

    def outputs(tensor: Tensor) -> tuple[Tensor, Tensor]:
        points, weights, support, masses, epsilon = (
            tensor if i == argument else t for i, t in enumerate(tensors)
        )
        weights, masses = weights / weights.sum(-1, keepdim=True), masses / masses.sum()
        potentials, _ = transport_potentials(points, weights, support, masses, epsilon)
        return potentials, conditional_plan(points, support, masses, epsilon, potentials)

    assert torch.autograd.gradcheck(outputs, tensors[argument].requires_grad_())


def test_atoms_of_weight_zero_have_finite_gradients() -> None:
    points, weights, support, masses = problem()
    weights = torch.cat(
        [weights[:, :4] / weights[:, :4].sum(-1, keepdim=True), 0 * weights[:, 4:]], -1
    )
    expected, _ = solve(points[:, :4], weights[:, :4], support, masses, epsilon=0.1)
    points.requires_grad_()
    weights.requires_grad_()
    potentials, _ = solve(points, weights, support, masses, epsilon=0.1)
    torch.testing.assert_close(potentials, expected)
    gradients = torch.autograd.grad(potentials.square().sum(), (points, weights))
    assert all(bool(g.isfinite().all()) for g in gradients)
    assert not bool(gradients[0][:, 4:].any())


@pytest.mark.parametrize("least", [1e-30, 1e-293])
def test_gradients_where_a_weight_of_the_reference_vanishes(least: float) -> None:
    """Its feature, sqrt(b) times g, is of order sqrt(b), and so is the gradient of the feature."""
    points, weights, support, masses = problem(clouds=1, size=4)
    masses = torch.cat([masses[:3] / masses[:3].sum(), masses.new_tensor([least])])
    support[-1] += 5  # far enough for its part of a plan to underflow at the least weight
    epsilon = torch.tensor(0.05, dtype=torch.float64)

    def features(points: Tensor, support: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        b = logits.softmax(-1)
        potentials, _ = transport_potentials(points, weights, support, b, epsilon)
        plan = weights.unsqueeze(-1) * conditional_plan(points, support, b, epsilon, potentials)
        return b.sqrt() * potentials, plan.mT @ points / b.sqrt().unsqueeze(-1)

    inputs = [tensor.requires_grad_() for tensor in (points, support, masses.log())]
    assert torch.autograd.gradcheck(features, inputs)


def test_warm_start_finds_the_same_in_fewer_steps() -> None:
    points, weights, support, masses = problem()
    cold, first = solve(points, weights, support, masses, epsilon=0.01)
    near = cold + 1e-4 * torch.sin(cold)
    warm, second = solve(points, weights, support, masses, epsilon=0.01, initial=near)
    torch.testing.assert_close(warm, cold, rtol=0, atol=1e-10)
    assert int(second.iterations.max()) < int(first.iterations.min()) / 2
    useless, _ = solve(points, weights, support, masses, epsilon=0.01, initial=1e3 * near)
    torch.testing.assert_close(useless, cold, rtol=0, atol=1e-10)


def test_says_when_it_did_not_converge() -> None:
    potentials, outcome = solve(*problem(), epsilon=1e-3, max_iterations=3)
    assert not bool(outcome.converged.any())
    assert bool((outcome.marginal_error > 1e-10).all())
    assert bool(potentials.isfinite().all())
