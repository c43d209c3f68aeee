"""Targets that are sums of a function of atoms, with kinds of atoms."""

from typing import Any

import numpy as np
import pytest
import torch
from cases import reloaded
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sharding_tasks import in_pieces
from torch import Tensor

from gp_distributions import AggregateGP, PointClouds, SparseAggregateGP, fit
from gp_distributions.kernels import ExpectedKernel
from gp_distributions.models.collapsed import ExplicitFeatures
from gp_distributions.numerics.embedding_kernels import point_covariances

pytestmark = pytest.mark.usefixtures("short_fits")


def molecules(num: int = 40, seed: int = 0) -> tuple[PointClouds, Tensor]:
    """Atoms of three kinds whose targets are sums of functions of position."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 8, num)
    points = [rng.normal(size=(n, 2)) for n in sizes]
    kinds = [rng.choice(["C", "H", "O"], n) for n in sizes]
    y = [
        np.select([k == "H", k == "C"], [np.sin(p[:, 0]) + 9, p[:, 1] ** 2 - 5], p[:, 0] + 3).sum()
        for p, k in zip(points, kinds, strict=True)
    ]
    noise = 0.05 * rng.normal(size=num)
    return PointClouds.from_list(points, kinds=kinds), torch.tensor(y) + torch.from_numpy(noise)


def made(X: PointClouds, y: Tensor, **options: Any) -> AggregateGP:
    return AggregateGP(X, y, aggregate="sum", **options)


def small(X: PointClouds, y: Tensor) -> SparseAggregateGP:
    return SparseAggregateGP(X, y, aggregate="sum", num_features=60)


@pytest.mark.parametrize("kinds", ["independent", "correlated"])
def test_covariances_are_sums_over_pairs_of_atoms(kinds: Any) -> None:
    X, y = molecules(5)
    model = made(X, y, kinds=kinds)
    kernel = model.covar_module
    if kinds == "correlated":
        with torch.no_grad():
            kernel.raw_kind_factor += 0.3 * torch.ones(3, 3)
    found = kernel(model.train_inputs[0]).to_dense()
    factor = kernel.kind_factor
    assert torch.allclose((factor @ factor.mT).diagonal(), torch.ones(3).double())
    atoms = (X.positions - kernel.centre) / kernel.scale
    numbers = X.points[..., -1].long()
    for i in range(5):
        for j in range(5):
            each = point_covariances(kernel.base_kernel, atoms[i], atoms[j])
            alike = factor[numbers[i]] @ factor[numbers[j]].mT
            expected = X.masses[i] @ (each * alike) @ X.masses[j]
            assert torch.allclose(found[i, j], expected, rtol=1e-12)


def test_division_order_and_padding_change_nothing() -> None:
    X, y = molecules(12)
    assert X.kinds is not None
    order = torch.randperm(X.points.shape[1], generator=torch.Generator().manual_seed(0))
    other = PointClouds(
        torch.cat([X.positions[:, order], X.positions], 1),
        torch.cat([0.25 * X.masses[:, order], 0.75 * X.masses], 1),
        np.concatenate([X.kinds[:, order], X.kinds], 1),
    )
    model = made(X[:8], y[:8])
    expected = model.predict(X[8:])
    torch.testing.assert_close(model.predict(other[8:]), expected, rtol=1e-12, atol=1e-12)
    same = made(other[:8], y[:8])
    torch.testing.assert_close(same.predict(X[8:]), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("make", [made, small])
def test_contributions_are_the_function_at_atoms_and_sum_to_predictions(make: Any) -> None:
    X, y = molecules(20)
    model = fit(make(X, y), restarts=0)
    mean, std = model.contributions(X)
    assert torch.allclose(mean.sum(-1), model.predict(X)[0], rtol=1e-10, atol=0)
    assert not bool((mean[X.weights == 0] != 0).any())
    assert not bool((std < 0).any())
    atom = PointClouds(X.positions[:1, :1], kinds=X.kinds[:1, :1])  # type: ignore[index]
    alone = model.predict(atom, observation_noise=False)
    at = model.predict_atoms(X.positions[0, :1], X.kinds[0, :1])  # type: ignore[index]
    assert torch.allclose(alone[0], at[0])
    assert torch.allclose(alone[1], at[1])
    assert torch.allclose(mean[0, 0], at[0][0], rtol=1e-9)


def test_features_approach_pairs() -> None:
    X, y = molecules(6)
    exact = made(X, y, num_features=None)
    rows = exact.train_inputs[0]
    expected, errors = exact.covar_module(rows).to_dense().detach(), []
    for count in (200, 20_000):
        kernel = made(X, y, num_features=count).covar_module
        errors.append(float((kernel(rows).to_dense().detach() - expected).abs().max()))
    assert errors[1] < errors[0] / 4
    assert errors[1] < 0.02 * float(expected.abs().max())


def test_sparse_predicts_as_the_exact_model_with_its_features() -> None:
    X, y = molecules(40)
    sparse = SparseAggregateGP(X[:30], y[:30], aggregate="sum", num_features=40)
    exact = made(
        X[:30], y[:30] / sparse.outcome_transform.scale, outcome_transform=None,
        covar_module=sparse.covar_module,
    )  # fmt: skip
    exact.likelihood.noise = sparse.likelihood.noise
    for one, two in zip(sparse.predict(X[30:]), exact.predict(X[30:]), strict=True):
        assert torch.allclose(one, sparse.outcome_transform.scale * two, rtol=1e-6)
    for one, two in zip(sparse.leave_one_out(), exact.leave_one_out(), strict=True):
        assert torch.allclose(one, sparse.outcome_transform.scale * two, rtol=1e-5)


def test_sparse_noise_and_scale_are_most_likely() -> None:
    """The density of the targets has its maximum over noise and scale where the fit ends."""
    X, y = molecules(60)
    model = fit(SparseAggregateGP(X, y, aggregate="sum", num_features=30), restarts=0)
    phi = ExplicitFeatures(model.covar_module)(model.rows_of(X)).detach()
    targets = y / model.outcome_transform.scale

    def density(scale: float, noise: float) -> float:
        matrix = scale * phi @ phi.mT + noise * float(model.likelihood.noise.detach()) * torch.eye(
            60
        )
        normal = torch.distributions.MultivariateNormal(torch.zeros(60).double(), matrix)
        return float(normal.log_prob(targets))

    best = density(1, 1)
    assert all(density(*f) < best for f in ((1.3, 1), (0.77, 1), (1, 1.6), (1, 0.6), (2, 2)))


def test_pieces_give_the_same_sums() -> None:
    X, y = molecules(30)
    whole = SparseAggregateGP(X, y, aggregate="sum", num_features=20)
    parts = SparseAggregateGP(in_pieces(X, y, size=10), aggregate="sum", num_features=20)
    torch.testing.assert_close(parts.predict(X), whole.predict(X), rtol=1e-9, atol=1e-8)
    fit(whole, restarts=0)
    fit(parts, restarts=0)
    assert torch.allclose(whole.predict(X)[0], parts.predict(X)[0], rtol=1e-6)


@pytest.mark.parametrize("make", [made, small])
def test_files_keep_kinds_and_masses(make: Any) -> None:
    X, y = molecules(10)
    model = make(X, y)
    again = reloaded(model)
    assert again.aggregate == "sum"
    assert all(map(torch.equal, model.predict(X[:3]), again.predict(X[:3])))
    with pytest.raises(ValueError, match="got 'N' in atom 0"):
        again.predict(PointClouds([[[0.0, 0.0]]], kinds=[["N"]]))


def test_arguments() -> None:
    X, y = molecules(6)
    with pytest.raises(ValueError, match='kinds to be "independent" or "correlated"'):
        made(X, y, kinds="other")
    with pytest.raises(ValueError, match='aggregate to be "mean" or "sum"'):
        SparseAggregateGP(X, y, aggregate="draw")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected clouds of dimension 3"):
        made(X, y).predict(PointClouds(X.positions, X.masses))
    # A kernel without random features has pairs.
    kernel = ScaleKernel(MaternKernel()).double()
    assert made(X, y, covar_module=kernel).covar_module.num_features is None
    with pytest.raises(ValueError, match="sum of RBFKernel"):
        SparseAggregateGP(X, y, kernel)
    assert isinstance(made(X, y, covar_module=RBFKernel()).covar_module, ExpectedKernel)


def test_a_fit_keeps_scales_that_are_fixed() -> None:
    X, y = molecules(20)
    model = SparseAggregateGP(X, y, RBFKernel().double(), num_features=20)
    scale = model.covar_module.base_kernel.kernels[0]
    scale.raw_outputscale.requires_grad_(False)
    before = scale.outputscale.clone()
    fit(model, restarts=0)
    assert torch.equal(scale.outputscale, before)


def test_a_fit_without_kinds_scales_a_bare_kernel() -> None:
    X, y = molecules(20)
    plain = PointClouds(X.positions, X.masses)
    model = SparseAggregateGP(plain, y / X.mass, RBFKernel().double(), num_features=20)
    assert float(fit(model, restarts=0).covar_module.base_kernel.outputscale.detach()) != 1
