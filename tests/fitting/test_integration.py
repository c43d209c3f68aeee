"""Integration over hyperparameters: against brute force, for every kernel, and as a BoTorch model."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models.transforms.outcome import Log
from cases import as_rows, random_clouds
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean, ZeroMean
from gpytorch.priors import GammaPrior, LogNormalPrior
from scipy import stats
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    MixedInputs,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
    fit,
    integrate_hyperparameters,
    mixed_kernel,
)
from gp_distributions.fitting import integration
from gp_distributions.kernels.covariances import covariance
from gp_distributions.models.ensemble import Ensemble
from gp_distributions.warnings import UndeterminedWarning

ROWS = as_rows(random_clouds(40, sizes=(5, 12)))
TARGETS = ROWS[:, :6].square().sum(-1).sqrt() + 0.1 * ROWS[:, 7].sin()
CLOUDS = PointClouds.unpack(ROWS, 2)
T, NEW = 12, slice(30, 36)
SPREAD = TARGETS[:T].std().item()
S = torch.Size


def values(model: DistributionGP, name: str) -> Tensor:
    """The values of a parameter of the kernels of all members, of one entry each."""
    (part,) = model.parts
    constraint = part.covar_module.constraint_for_parameter_name(name)
    return constraint.transform(part.covar_module.get_parameter(name)).flatten()


def sliced(**options: object) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=8, num_quantiles=10, **options)


def make(kernel: Kernel | None = None, **options: object) -> DistributionGP:
    kernel = ScaleKernel(sliced()) if kernel is None else kernel
    return DistributionGP(ROWS[:T], TARGETS[:T], kernel, **options)


class Other(GaussianLikelihood):
    """A likelihood that may be anything."""


def brute_force(log_prior: Tensor, covariances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and log densities of new targets by dense algebra on a fine grid.

    ``covariances`` are those of the training clouds and then the new ones, for each log prior.
    """
    y, new = TARGETS[:T], TARGETS[NEW]
    ones, eye = torch.ones(T, dtype=torch.float64), torch.eye(T, dtype=torch.float64)
    K, k = covariances[:, :T, :T], covariances[:, T:, :T]
    logs, means, scales = [], [], []
    # The expected variance of the function among the training clouds.
    among = (T - K.sum((-2, -1)) / T) / (T - 1)
    for v in np.linspace(-3.5, 3.5, 31):
        s2 = (y.var() * math.exp(1.5 * v) / among)[:, None, None]
        for r in np.linspace(-3.5, 3.5, 31):
            noise = y.var() * math.exp(-3 + 2 * r)
            A = torch.linalg.inv(s2 * K + noise * eye)
            total = (A @ ones) @ ones
            mean = (A @ y) @ ones / total
            rest = y - mean[:, None]
            solved = (A @ rest[..., None]).squeeze(-1)
            square = (solved * rest).sum(-1)
            prior = log_prior - 0.5 * (v**2 + r**2)
            logs.append(0.5 * torch.logdet(A) - 0.5 * total.log() - square / 2 + prior)
            means.append(mean[:, None] + (s2 * k @ solved[..., None]).squeeze(-1))
            left = 1 - s2 * k @ A @ ones[:, None]
            variance = s2 - ((s2 * k @ A) * s2 * k).sum(-1, keepdim=True)
            scales.append((variance + left**2 / total[:, None, None] + noise).squeeze(-1).sqrt())
    weights = torch.cat(logs).softmax(0)[:, None]
    mean, scale = torch.cat(means), torch.cat(scales)
    centre = (weights * mean).sum(0)
    variance = (weights * (scale**2 + (mean - centre) ** 2)).sum(0)
    densities = torch.distributions.Normal(mean, scale).log_prob(new) + weights.log()
    return centre, variance.sqrt(), densities.logsumexp(0)


def scaled(kernel: DistributionKernel) -> Tensor:
    """Squared distances in squared median distances between the training clouds."""
    squared = kernel.distance.squared(torch.cat([ROWS[:T], ROWS[NEW]]))
    above = squared[:T, :T][torch.triu(torch.ones(T, T), 1).bool()]
    return squared / above.sqrt().median().square()


def matern(squared: Tensor) -> Tensor:
    root = (5 * squared).sqrt()
    return (1 + root + root.square() / 3) * torch.exp(-root)


def assert_agrees(model: DistributionGP, expected: tuple[Tensor, Tensor, Tensor]) -> None:
    """Compare predictions with brute force, up to the error of some 700 effective draws."""
    found = model.predict(ROWS[NEW])
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0.004 * SPREAD)
    torch.testing.assert_close(found[1], expected[1], rtol=0.015, atol=0)
    logs = model.log_prob(ROWS[NEW], TARGETS[NEW])
    torch.testing.assert_close(logs, expected[2], rtol=0, atol=0.015)


def axis(num: int) -> Tensor:
    return torch.linspace(-3.5, 3.5, num, dtype=torch.float64)


@pytest.fixture
def many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "_DRAWS", 1024)


@pytest.mark.usefixtures("many_draws")
class TestBruteForce:
    @pytest.mark.parametrize("seed", range(2))
    def test_one_lengthscale(self, seed: int) -> None:
        z = axis(31)
        covariances = matern(scaled(sliced()) / (0.5 + 1.4 * z).exp()[:, None, None])
        expected = brute_force(-0.5 * z.square(), covariances)
        assert_agrees(integrate_hyperparameters(make(), seed=seed), expected)

    def test_two_hyperparameters(self) -> None:
        """A lengthscale and the shape of the rational quadratic profile."""
        z, a = torch.cartesian_prod(axis(15), axis(15)).unbind(-1)
        arguments = scaled(sliced()) / (0.5 + 1.4 * z).exp()[:, None, None]
        alpha = a.exp()[:, None, None]
        covariances = (1 + arguments / (2 * alpha)) ** -alpha
        expected = brute_force(-0.5 * (z.square() + a.square()), covariances)
        model = integrate_hyperparameters(make(ScaleKernel(sliced(profile="rational_quadratic"))))
        assert_agrees(model, expected)

    def test_known_noise_and_a_zero_mean(self) -> None:
        """With everything else fixed, only the outputscale is integrated: by brute force here."""
        kernel = sliced()
        kernel.lengthscale = 2.0
        kernel.raw_lengthscale.requires_grad_(False)
        noise = torch.linspace(0.05, 0.2, T, dtype=torch.float64)
        model = DistributionGP(
            *(ROWS[:T], TARGETS[:T] - TARGETS[:T].mean(), ScaleKernel(kernel)),
            train_Yvar=noise,
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
        found = integrate_hyperparameters(model)
        y = (TARGETS[:T] - TARGETS[:T].mean()).numpy()
        with torch.no_grad():
            K = covariance(kernel, ROWS[:T]).numpy()
            k = covariance(kernel, ROWS[NEW], ROWS[:T]).numpy()
        among = (np.trace(K) - K.sum() / T) / (T - 1)
        logs, means = [], []
        for v in np.linspace(-5, 5, 400):
            scale = y.var(ddof=1) * math.exp(1.5 * v) / among
            A = scale * K + np.diag(noise.numpy())
            logs.append(stats.multivariate_normal(np.zeros(T), A).logpdf(y) - v**2 / 2)
            means.append(scale * k @ np.linalg.solve(A, y))
        weights = np.exp(np.array(logs) - max(logs))
        expected = torch.from_numpy(weights @ np.array(means) / weights.sum())
        torch.testing.assert_close(found.predict(ROWS[NEW])[0], expected, rtol=0, atol=5e-3)


class TestLeaveOneOut:
    """Predictions are those of mixtures without the cloud, with the same members and priors."""

    @pytest.mark.parametrize("observation_noise", [False, True])
    @pytest.mark.parametrize("kind", ["free", "known", "zero mean", "sampling noise", "outputs"])
    def test_it_is_the_mixture_of_all_others(self, kind: str, observation_noise: bool) -> None:
        noise = torch.linspace(0.1, 0.4, T, dtype=torch.float64)
        targets = TARGETS[:, None] if kind == "outputs" else TARGETS

        def single(rows: list[int]) -> DistributionGP:
            options: dict[str, object] = {
                "known": {"train_Yvar": noise[rows], "outcome_transform": None},
                "zero mean": {"mean_module": ZeroMean(), "outcome_transform": None},
                "sampling noise": {"sampling_noise": True},
            }.get(kind, {})
            return DistributionGP(ROWS[rows], targets[rows], ScaleKernel(sliced()), **options)

        whole = integrate_hyperparameters(single(list(range(T))))
        (part,) = whole.parts
        mean, std = whole.leave_one_out(observation_noise=observation_noise)
        assert mean.shape == std.shape == targets[:T].shape
        for i in (0, 5, T - 1):
            model = single([j for j in range(T) if j != i])
            likelihood = part.likelihood if kind != "known" else model.likelihood
            others = model.batch_of(part.covar_module, likelihood, part.log_importance)
            model.ensemble = Ensemble([others])
            if kind in ("free", "sampling noise", "outputs"):  # in the units of all targets
                units = whole.outcome_transform
                model.outcome_transform = others.outcome_transform = units
                kept = targets[[j for j in range(T) if j != i]].reshape(T - 1, 1)
                for each in (model, others):
                    each.set_train_data(targets=units(kept)[0].squeeze(-1), strict=False)
            expected = model.predict(ROWS[[i]], observation_noise=False)
            torch.testing.assert_close(mean[[i]], expected[0])
            if not observation_noise:
                torch.testing.assert_close(std[[i]], expected[1], rtol=1e-5, atol=1e-7)
            elif kind != "known":  # new clouds get the mean of known variances
                torch.testing.assert_close(std[[i]], model.predict(ROWS[[i]])[1])

    def test_targets_of_which_one_differs(self) -> None:
        targets = torch.zeros(9, dtype=torch.float64)
        targets[3] = 1
        model = integrate_hyperparameters(DistributionGP(ROWS[:9], targets, ScaleKernel(sliced())))
        mean, std = model.leave_one_out()
        assert mean.isfinite().all()
        assert std.isfinite().all()


class TestKernels:
    @pytest.mark.parametrize("structure", ["product", "sum", "sum+product"])
    def test_mixed_inputs(self, structure: str) -> None:
        covariates = {"age": torch.rand(40).numpy(), "arm": np.array(["a", "b"] * 20)}
        X = MixedInputs(cells=CLOUDS, covariates=covariates)
        model = DistributionGP(X[:T], TARGETS[:T], mixed_kernel(X[:T], structure=structure))
        integrated = integrate_hyperparameters(model)
        mean, std = integrated.predict(X[NEW])
        assert mean.shape == std.shape == (6,)
        assert (std > 0).all()
        shapes = {"product": 3, "sum": 4, "sum+product": 5}[structure]
        learned = [
            parameter
            for parameter in integrated.parts[0].covar_module.parameters()
            if bool((parameter != parameter[:1]).any())
        ]
        # Outputscales of terms are relative to the first, which changes as well, as linear terms do.
        assert len(learned) == shapes + 2
        # Predictions do not depend on how many clouds are predicted at once.
        one = integrated.predict(X[NEW], batch_size=1)
        torch.testing.assert_close((mean, std), one)

    @pytest.mark.usefixtures("many_draws")
    def test_a_registered_prior_replaces_the_default(self) -> None:
        narrow = sliced(lengthscale_prior=LogNormalPrior(math.log(5.0), 0.01))
        model = integrate_hyperparameters(make(ScaleKernel(narrow)))
        lengthscales = values(model, "base_kernel.raw_lengthscale")
        assert float(model.weights @ lengthscales) == pytest.approx(5.0, rel=0.01)
        wide = sliced(lengthscale_prior=GammaPrior(2.0, 1.0))
        model = integrate_hyperparameters(make(ScaleKernel(wide)))
        unit = (wide.distance.squared(ROWS[:T])[0, 1] / scaled(sliced())[0, 1]).sqrt()
        z = torch.linspace(-6, 3, 61, dtype=torch.float64)
        covariances = matern(scaled(sliced()) * (unit / z.exp())[:, None, None].square())
        expected = brute_force(GammaPrior(2.0, 1.0).log_prob(z.exp()) + z, covariances)
        assert_agrees(model, expected)

    def test_the_only_outputscale_of_a_sum_is_its_weight(self) -> None:
        kernel = sliced() + ScaleKernel(MMDKernel(2, bandwidth=1.0))
        kernel.kernels[1].outputscale = 100.0
        model = integrate_hyperparameters(make(kernel))
        weights = values(model, "base_kernel.kernels.1.raw_outputscale").log()
        assert weights.max() - weights.min() > 2
        assert bool((values(model, "raw_outputscale").diff() != 0).any())
        single = ScaleKernel(sliced()) + ScaleKernel(MMDKernel(2, bandwidth=1.0))
        relative = integrate_hyperparameters(make(single))
        ratios = values(relative, "kernels.1.raw_outputscale").log()
        ratios = ratios - values(relative, "kernels.0.raw_outputscale").log()
        assert ratios.min() < -1
        assert ratios.max() > 1

    @pytest.mark.usefixtures("many_draws")
    def test_bounds_truncate_priors(self) -> None:
        """Against a sum over values between the bounds, which are far below the likeliest ones."""
        low, high = 0.05, 0.2
        kernel = sliced(lengthscale_constraint=Interval(low, high))
        model = integrate_hyperparameters(make(ScaleKernel(kernel)))
        found = values(model, "base_kernel.raw_lengthscale")
        assert low < found.min()
        assert found.max() < high
        unit = (kernel.distance.squared(ROWS[:T])[0, 1] / scaled(sliced())[0, 1]).sqrt()
        z = torch.linspace(math.log(low), math.log(high), 32, dtype=torch.float64)
        z = (z[:-1] + z[1:]) / 2 - unit.log()
        covariances = matern(scaled(sliced()) / (2 * z).exp()[:, None, None])
        expected = brute_force(-0.5 * ((z - 0.25) / 0.7).square(), covariances)
        assert_agrees(model, expected)


class TestModel:
    def test_units_do_not_matter(self) -> None:
        expected = integrate_hyperparameters(make()).predict(ROWS[NEW])
        scaled = DistributionGP(ROWS[:T], 1e6 * TARGETS[:T] - 5e6, ScaleKernel(sliced()))
        mean, std = integrate_hyperparameters(scaled).predict(ROWS[NEW])
        torch.testing.assert_close((mean + 5e6) / 1e6, expected[0])
        torch.testing.assert_close(std / 1e6, expected[1])
        # Without a transform, priors are those of targets that are standardised already.
        units = TARGETS[:T].mean(), TARGETS[:T].std()
        plain = DistributionGP(
            *(ROWS[:T], (TARGETS[:T] - units[0]) / units[1], ScaleKernel(sliced())),
            outcome_transform=None,
        )
        mean, std = integrate_hyperparameters(plain).predict(ROWS[NEW])
        torch.testing.assert_close((units[0] + units[1] * mean, units[1] * std), expected)
        larger = PointClouds(1e3 * CLOUDS.points, CLOUDS.weights)
        kernel = ScaleKernel(sliced())
        alike = DistributionGP(larger[:T], TARGETS[:T], kernel, sampling_noise=False)
        model = integrate_hyperparameters(alike)
        torch.testing.assert_close(model.predict(larger[NEW]), expected, rtol=1e-5, atol=1e-6)

    def test_the_model_is_not_changed_and_need_not_be_fitted(self) -> None:
        model = make()
        before = copy.deepcopy(model.state_dict())
        fresh = integrate_hyperparameters(model)
        assert model.training
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        expected = fresh.predict(ROWS[NEW])
        fit(model, restarts=0)
        again = integrate_hyperparameters(model).predict(ROWS[NEW])
        # The mode is the same; the search for it starts elsewhere.
        torch.testing.assert_close(again, expected, rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(fresh.predict(ROWS[NEW]), expected)

    def test_gradients(self) -> None:
        model = integrate_hyperparameters(make())
        points = CLOUDS.points[30:32].clone().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda p: model.posterior(PointClouds(p, CLOUDS.weights[30:32]).pack()).variance,
            points,
            atol=1e-4,
        )

    def test_conditioning_weights_members_anew(self) -> None:
        model = integrate_hyperparameters(make())
        wide = ROWS[:T].shape[-1] + 6
        more = model.condition_on_observations(
            PointClouds.unpack(ROWS[20:24], 2).pack(atoms=wide // 3), TARGETS[20:24]
        )
        assert (more.weights - model.weights).abs().max() > 1e-3
        evidence = more.parts[0].conditioned().log_evidence
        expected = (evidence + model.parts[0].log_importance).softmax(-1)
        torch.testing.assert_close(more.weights, expected)
        assert model.predict(ROWS[NEW])[0].shape == (6,)

    def test_fixed_noise_is_known_noise(self) -> None:
        fixed = make(outcome_transform=None)
        fixed.likelihood.noise = 0.01
        fixed.likelihood.noise_covar.raw_noise.requires_grad_(False)
        noise = torch.full((T,), 0.01, dtype=torch.float64)
        known = make(train_Yvar=noise, outcome_transform=None)
        found, expected = (integrate_hyperparameters(one) for one in (fixed, known))
        torch.testing.assert_close(found.predict(ROWS[NEW]), expected.predict(ROWS[NEW]))
        more = found.condition_on_observations(ROWS[20:22], TARGETS[20:22])
        again = expected.condition_on_observations(ROWS[20:22], TARGETS[20:22])
        torch.testing.assert_close(more.predict(ROWS[NEW]), again.predict(ROWS[NEW]))


class TestErrors:
    def test_few_or_equal_targets(self) -> None:
        with pytest.raises(ValueError, match="at least 3 clouds, got 2"):
            integrate_hyperparameters(DistributionGP(ROWS[:2], TARGETS[:2], sliced()))
        integrate_hyperparameters(DistributionGP(ROWS[:3], TARGETS[:3], sliced()))
        with pytest.raises(ValueError, match="targets that differ"):
            integrate_hyperparameters(DistributionGP(ROWS[:5], torch.ones(5), sliced()))

    def test_models_that_cannot_be_integrated(self) -> None:
        with pytest.raises(TypeError, match="Expected a DistributionGP, got ClassificationGP"):
            integrate_hyperparameters(ClassificationGP(ROWS[:6], ["a", "b"] * 3, sliced()))
        both = torch.stack([TARGETS, TARGETS.sin()], dim=-1)[:T]
        model = DistributionGP(ROWS[:T], both, sliced(batch_shape=S([2])))
        with pytest.raises(ValueError, match=r"one output, got 2.*subset_output"):
            integrate_hyperparameters(model)
        part = integrate_hyperparameters(model.subset_output([1]))
        expected = integrate_hyperparameters(DistributionGP(ROWS[:T], both[:, 1], sliced()))
        torch.testing.assert_close(
            part.predict(ROWS[NEW])[0], expected.predict(ROWS[NEW])[0][:, None]
        )
        batch = DistributionGP(ROWS[:T].expand(2, -1, -1), TARGETS[:T].expand(2, -1), sliced())
        with pytest.raises(ValueError, match=r"batch of shape \(2,\)"):
            integrate_hyperparameters(batch)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"mean_module": LinearMean(ROWS.shape[-1])}, "zero mean, got a LinearMean"),
            ({"likelihood": Other()}, "Gaussian likelihood, got a Other"),
            ({"outcome_transform": Log()}, "linear outcome transform, got Log"),
            (
                {"kernel": ScaleKernel(sliced(), outputscale_prior=GammaPrior(2.0, 1.0))},
                "without a prior, got one of outputscale",
            ),
        ],
        ids=range(4),
    )
    def test_parts_that_cannot_be_integrated(self, options: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            integrate_hyperparameters(make(**options))

    def test_identical_clouds(self) -> None:
        """No distance tells them apart, so predictions are those of the mean."""
        rows = ROWS[:1].expand(6, -1).clone()
        with pytest.warns(UndeterminedWarning, match="All 6 training clouds coincide"):
            model = integrate_hyperparameters(DistributionGP(rows, TARGETS[:6], sliced()))
        mean, std = model.predict(rows[:2])
        torch.testing.assert_close(mean, TARGETS[:6].mean().expand(2), rtol=1e-3, atol=1e-3)
        assert std.isfinite().all()
