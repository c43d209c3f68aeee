"""Curves as targets, against Gaussian processes of all their values that are built densely."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from cases import random_rows, sliced_kernel
from gpytorch.kernels import MaternKernel
from torch import Tensor

from gp_distributions import CurveGP, PointClouds, fit
from gp_distributions.kernels.covariances import covariance
from gp_distributions.numerics.kronecker import KroneckerBound

kernel = partial(sliced_kernel, 2.0, 1.7)

ROWS = random_rows(16, sizes=(5, 12))
T, M = 12, 6
AT = torch.linspace(0, 1, M).double()
CURVES = (3 * AT + ROWS.sin().sum(-1, keepdim=True)).sin() + ROWS[:, [0]] * AT
EXACT = {"rtol": 1e-9, "atol": 1e-9}
WEIGHTS = torch.stack([torch.full((M,), 1 / M).double(), AT - 0.5])


def with_gaps() -> Tensor:
    curves = CURVES[:T].clone()
    for curve, output in ((0, 1), (3, 2), (3, 3), (7, 0), (7, 5)):
        curves[curve, output] = torch.nan
    return curves


def make_model(curves: Tensor, **options: object) -> CurveGP:
    model = CurveGP(ROWS[:T], curves, kernel(), **options)  # type: ignore[arg-type]
    model.likelihood.noise = 0.03
    model.mean_module.constant = torch.linspace(-0.2, 0.3, M).double()
    model.output_noise = torch.linspace(0.01, 0.05, M).double()
    return model


class Dense:
    """The Gaussian process of all known values of a model, in the units of the targets."""

    def __init__(self, model: CurveGP, curves: Tensor, keep: Tensor | None = None) -> None:
        self.model = model
        keep = torch.arange(T) if keep is None else keep
        self.rows, known = ROWS[:T][keep], ~curves[keep].isnan().flatten()
        stds = model.outcome_transform.stdvs
        C = model.output_covariance.detach() * stds.mT * stds
        self.C, self.tau = C, model.likelihood.noise.detach()
        self.own = (model.output_noise * stds.squeeze(0).square()).diag()
        constant = model.mean_module.constant.detach()
        self.mean = (model.outcome_transform.means + stds * constant).squeeze(0)
        full = self.prior(self.rows, self.rows) + torch.kron(
            torch.eye(len(keep)).double(), self.noise()
        )
        self.known = known
        self.A = full[known][:, known]
        self.errors = (curves[keep] - self.mean).flatten()[known]

    def noise(self) -> Tensor:
        return self.tau * self.C + self.own

    def prior(self, first: Tensor, second: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.kron(covariance(self.model.covar_module, first, second), self.C)

    def predict(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        to = self.prior(rows, self.rows)[:, self.known]
        mean = self.mean.repeat(len(rows)) + to @ torch.linalg.solve(self.A, self.errors)
        return mean.view(-1, M), self.prior(rows, rows) - to @ torch.linalg.solve(self.A, to.mT)


@pytest.fixture(params=["whole", "gaps"])
def curves(request: pytest.FixtureRequest) -> Tensor:
    return CURVES[:T] if request.param == "whole" else with_gaps()


@pytest.mark.parametrize("options", [{}, {"rank": 3}, {"positions": AT}])
@pytest.mark.parametrize("noise", [True, False])
def test_predictions_are_those_of_the_dense_process(
    curves: Tensor, options: dict[str, object], noise: bool
) -> None:
    model = make_model(curves, **options)
    dense = Dense(model, curves)
    mean, covariances = dense.predict(ROWS[T:])
    added = noise * torch.kron(torch.eye(4).double(), dense.noise())
    covariances = covariances + added
    posterior = model.posterior(ROWS[T:], observation_noise=noise)
    torch.testing.assert_close(posterior.mean, mean, **EXACT)
    torch.testing.assert_close(posterior.distribution.covariance_matrix, covariances, **EXACT)
    found = model.predict(ROWS[T:], observation_noise=noise)
    torch.testing.assert_close(found[0], mean, **EXACT)
    torch.testing.assert_close(found[1], covariances.diagonal().sqrt().view(4, M), **EXACT)
    sums = model.predict_functionals(ROWS[T:], WEIGHTS, observation_noise=noise, batch_size=3)
    blocks = covariances.view(4, M, 4, M).diagonal(dim1=0, dim2=2).movedim(-1, 0)
    expected = (WEIGHTS @ blocks @ WEIGHTS.mT).diagonal(dim1=-2, dim2=-1).sqrt()
    torch.testing.assert_close(sums[0], mean @ WEIGHTS.mT, **EXACT)
    torch.testing.assert_close(sums[1], expected, **EXACT)


def test_batches_and_some_outputs() -> None:
    model = make_model(with_gaps())
    whole = model.posterior(ROWS[T:].unflatten(0, (2, 2)))
    part = model.posterior(ROWS[T:].unflatten(0, (2, 2)), output_indices=[4, 1])
    one = model.posterior(ROWS[T + 2 :])
    torch.testing.assert_close(whole.mean[1], one.mean, **EXACT)
    torch.testing.assert_close(
        whole.distribution.covariance_matrix[1], one.distribution.covariance_matrix, **EXACT
    )
    torch.testing.assert_close(part.mean, whole.mean[..., [4, 1]], **EXACT)
    torch.testing.assert_close(part.variance, whole.variance[..., [4, 1]], **EXACT)


def test_draws_have_the_covariance_of_curves() -> None:
    """The noise is a curve as well; independent values would differ from their neighbours."""
    model = make_model(CURVES[:T], rank=2)
    posterior = model.posterior(ROWS[T:])
    base = torch.randn(50_000, 4, M, generator=torch.Generator().manual_seed(0)).double()
    draws = posterior.distribution.rsample(base_samples=base, sample_shape=torch.Size([50_000]))
    actual = (draws - posterior.mean).flatten(1)
    expected = posterior.distribution.covariance_matrix
    error = (actual.mT @ actual / len(draws) - expected).abs().max()
    assert error < 5 * expected.diagonal().max() * (2 / len(draws)) ** 0.5


def test_leave_one_out_is_a_model_without_the_curve(curves: Tensor) -> None:
    model = make_model(curves)
    for noise in (True, False):
        mean, std = model.leave_one_out(observation_noise=noise)
        for cloud in range(T):
            keep = torch.tensor([i for i in range(T) if i != cloud])
            dense = Dense(model, curves, keep)
            expected, covariances = dense.predict(ROWS[[cloud]])
            covariances = covariances + noise * dense.noise()
            torch.testing.assert_close(mean[cloud], expected[0], **EXACT)
            torch.testing.assert_close(std[cloud], covariances.diagonal().sqrt(), **EXACT)


def random_system(gaps: bool) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    K, C = (
        (root @ root.mT + 0.1 * torch.eye(len(root)))
        for root in (torch.randn(n, n, generator=generator).double() for n in (7, 5))
    )
    values = torch.randn(7, 5, generator=generator).double()
    if gaps:
        values[[0, 3, 3, 6], [1, 2, 3, 0]] = torch.nan
    return values, K, C, 0.1 + torch.rand(5, generator=generator).double()


def log_density(values: Tensor, K: Tensor, C: Tensor, noise: Tensor) -> Tensor:
    known = ~values.isnan().flatten()
    A = (torch.kron(K, C) + noise.repeat(len(K)).diag())[known][:, known]
    normal = torch.distributions.MultivariateNormal(torch.zeros(len(A)).double(), A)
    return normal.log_prob(values.flatten()[known])


def bound_of(values: Tensor, K: Tensor, C: Tensor, noise: Tensor) -> KroneckerBound:
    return KroneckerBound.of(values, *torch.linalg.eigh(K), C, noise)


@pytest.mark.parametrize("gaps", [False, True])
def test_bound_of_the_marginal_likelihood_and_its_gradients(gaps: bool) -> None:
    values, K, C, noise = random_system(gaps)
    bound, exact = bound_of(values, K, C, noise), log_density(values, K, C, noise)
    if gaps:
        assert exact - 0.1 < bound.log_density < exact
    else:
        torch.testing.assert_close(bound.log_density, exact, **EXACT)
    for_matrix, for_noise = bound.gradients
    step = 1e-5
    for change, slope in (
        ((torch.ones(5, 5) + torch.eye(5)).double(), None),
        (torch.outer(torch.arange(5.0), torch.arange(5.0)).double(), None),
        (None, torch.arange(5.0).double()),
    ):
        ends = [
            bound_of(
                *(values, K, C if change is None else C + sign * step * change),
                noise if slope is None else noise + sign * step * slope,
            ).log_density
            for sign in (1, -1)
        ]
        expected = (ends[0] - ends[1]) / (2 * step)
        actual = (for_matrix * change).sum() if slope is None else (for_noise * slope).sum()  # type: ignore[operator]
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alike", [True, False])
def test_bound_is_exact_where_gaps_do_not_depend_on_each_other(alike: bool) -> None:
    """Those of one curve, or of curves that are independent; filled with their conditional means."""
    values, K, C, noise = random_system(gaps=not alike)
    K = K if alike else torch.eye(7).double()
    if alike:
        values[3, :3] = torch.nan
    bound = bound_of(values, K, C, noise)
    torch.testing.assert_close(bound.log_density, log_density(values, K, C, noise), **EXACT)
    known = ~values.isnan().flatten()
    A = torch.kron(K, C) + noise.repeat(7).diag()
    expected = A[~known][:, known] @ torch.linalg.solve(A[known][:, known], values.flatten()[known])
    torch.testing.assert_close(bound.filled.flatten()[~known], expected, rtol=1e-6, atol=1e-6)


def test_gradients_are_finite_where_eigenvalues_coincide() -> None:
    values, _, _, noise = random_system(gaps=True)
    one = [torch.eye(n).double() for n in (7, 5)]
    bound = bound_of(values, *one, 0 * noise + 0.3)
    C = one[1].clone().requires_grad_()
    (expected,) = torch.autograd.grad(log_density(values, one[0], C, 0 * noise + 0.3), C)
    torch.testing.assert_close(bound.gradients[0], (expected + expected.mT) / 2, **EXACT)


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"positions": AT}])
def test_fit_raises_the_likelihood_of_curves(curves: Tensor, options: dict[str, object]) -> None:
    model = CurveGP(ROWS[:T], curves, kernel(), **options)  # type: ignore[arg-type]
    before = copy.deepcopy(model)
    fit(model, restarts=0)
    before.load_state_dict(
        model.state_dict()
        | {k: v for k, v in before.state_dict().items() if k.startswith("output_")}
    )
    densities = []
    for each in (before, model):
        dense = Dense(each, curves)
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(dense.errors), dense.A)
        densities.append(normal.log_prob(dense.errors))
    assert densities[1] > densities[0] + 1


def test_fit_with_many_gaps_is_nearly_as_accurate() -> None:
    """Values that stand in for missing ones must not look like noise to the kernel of clouds."""
    generator = torch.Generator().manual_seed(0)
    points, shift = (torch.randn(90, n, 2, generator=generator).double() for n in (8, 1))
    clouds, means = PointClouds(points + shift), (points + shift).mean(1)
    curves = (3 * AT + means[:, :1]).sin() + means[:, 1:] * AT
    missing = torch.rand(60, M, generator=generator) < 0.3
    missing[missing.all(-1), 0] = False
    errors = []
    for known in (curves[:60], curves[:60].masked_fill(missing, torch.nan)):
        model = fit(CurveGP(clouds[:60], known, kernel()), restarts=0)
        mean, std = model.predict(clouds[60:])
        errors.append((mean - curves[60:]).square().mean().sqrt())
    assert errors[1] < 1.2 * errors[0]
    assert ((mean - curves[60:]).abs() < 1.96 * std).double().mean() > 0.85


def test_fit_finds_the_covariance_and_the_noise_of_values() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = random_rows(150, sizes=(5, 12))
    true = make_model(CURVES[:T])
    with torch.no_grad():
        K = covariance(true.covar_module, rows)
    C = MaternKernel(2.5).double()(AT.unsqueeze(-1)).to_dense().detach()
    draws = torch.randn(2, 150, M, generator=generator).double()
    curves = (
        torch.linalg.cholesky(K + 1e-8 * torch.eye(150)) @ draws[0] @ torch.linalg.cholesky(C).mT
    )
    curves = curves + 0.3 * draws[1]
    model = fit(CurveGP(rows, curves, kernel()), restarts=0)
    noise = model.output_noise.sqrt() * model.outcome_transform.stdvs.squeeze(0)
    assert float((noise - 0.3).abs().max()) < 0.05
    found = model.output_covariance
    scale = found.diagonal().sqrt()
    assert float((found / scale / scale.unsqueeze(-1) - C).abs().max()) < 0.25


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"positions": AT}], ids=str)
def test_values_that_never_vary_are_predicted_as_they_are(options: dict[str, object]) -> None:
    """Curves that start at one value, for example."""
    curves = CURVES.clone()
    curves[:, 0] = 5.0
    model = fit(CurveGP(ROWS[:T], curves[:T], kernel(), **options), progress=False)  # type: ignore[arg-type]
    mean, std = model.predict(ROWS[T:])
    torch.testing.assert_close(mean[:, 0], curves[T:, 0], rtol=0, atol=1e-3)
    assert (std[:, 0] < 1e-3).all()
    assert (std[:, 1:] > 1e-3).all()


def test_what_is_refused() -> None:
    curves = CURVES[:T]
    ragged = [row.tolist() for row in curves]
    ragged[4] = ragged[4][:-1]
    for unlike in (ragged, np.array(ragged, dtype=object)):  # as a list, and of a frame
        with pytest.raises(ValueError, match=r"curve 4 has 5 values and curve 0 has 6.*np\.interp"):
            CurveGP(ROWS[:T], unlike, kernel())
    for place, wrong, message in (
        ((3, slice(None)), torch.nan, "at least 1 known value of each curve, got 0 of curve 3"),
        ((slice(1, None), 2), torch.nan, "2 known values of each output, got 1 of output 2"),
        ((2, 1), torch.inf, "curve 2 has inf at output 1"),
    ):
        changed = curves.clone()
        changed[place] = wrong
        with pytest.raises(ValueError, match=message):
            CurveGP(ROWS[:T], changed, kernel())
    with pytest.raises(ValueError, match="each of the 6 values of a curve, got 5"):
        CurveGP(ROWS[:T], curves, kernel(), positions=AT[:5])
    with pytest.raises(ValueError, match="different positions, got one twice"):
        CurveGP(ROWS[:T], curves, kernel(), positions=AT.round())
    with pytest.raises(ValueError, match="use DistributionGP"):
        CurveGP(ROWS[:T], curves[:, 0], kernel())
    many = np.full((2000, 500), np.nan)
    many[:, :250] = 0.0
    many[:2] = 0.0
    with pytest.raises(ValueError, match="at most 134 missing values"):
        CurveGP(random_rows(2, sizes=(3, 4)), many, kernel())
    model = make_model(curves)
    with pytest.raises(ValueError, match=r"weights: expected finite numbers of shape \(K, 6\)"):
        model.predict_functionals(ROWS[T:], torch.ones(1, 5))
    with pytest.raises(UnsupportedError, match="Make a new CurveGP"):
        model.condition_on_observations(ROWS[T:], CURVES[T:])
