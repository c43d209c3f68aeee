"""Sampling noise: effective sizes, the likelihood within GPyTorch and BoTorch, and learning."""

from collections import Counter
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.sampling import SobolQMCNormalSampler
from cases import as_rows, rand, randn, random_clouds, sliced_kernel
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.distributions import MultivariateNormal

from gp_distributions import (
    DistributionGP,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.fitting.sampling_noise import _left_out, _subsets, learn_sampling_noise
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.numerics.sampling import effective_sizes

pytestmark = pytest.mark.usefixtures("short_fits")

CLOUDS = random_clouds(40, sizes=(2, 20))
ROWS = as_rows(CLOUDS)
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])
# The typical size over that of a bag.
RATIOS = torch.stack([weights.square().sum() for _, weights in CLOUDS])
RATIOS = RATIOS / RATIOS[:30].log().mean().exp()


def make_model(
    num: int = 30, c: float = 0.4, rows: Tensor = ROWS, **options: Any
) -> DistributionGP:
    options = {"sampling_noise": True, "covar_module": sliced_kernel(), **options}
    model = DistributionGP(rows[:num], TARGETS[:num], **options)
    model.likelihood.noise = torch.tensor(0.02, dtype=torch.float64)
    model.likelihood.sampling_noise = c
    return model


def noise(ratios: Tensor, c: float = 0.4) -> Tensor:
    return 0.02 + c * ratios


class TestEffectiveSizes:
    def test_brute_force(self) -> None:
        generator = torch.Generator().manual_seed(0)
        points = torch.randint(-1, 2, (3, 4, 12, 2), generator=generator).double()
        points[points == 0] *= -1  # zeros of both signs
        weights = rand(3, 4, 12, seed=generator)
        weights[..., 9:] = 0
        sizes = effective_sizes(points, weights)
        assert sizes.shape == (3, 4)
        for bag, w, size in zip(
            points.flatten(0, 1), weights.flatten(0, 1), sizes.flatten(), strict=True
        ):
            mass: Counter[tuple[float, ...]] = Counter()
            for atom, weight in zip(bag.tolist(), w.tolist(), strict=True):
                mass[tuple(atom)] += weight
            expected = sum(mass.values()) ** 2 / sum(m * m for m in mass.values())
            assert float(size) == pytest.approx(expected, rel=1e-13)

    def test_gradient_is_that_of_the_formula_across_the_rays(self) -> None:
        points = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0], [0.0, 3.0]], dtype=torch.float64)
        weights = torch.tensor([0.2, 0.1, 0.3, 0.4], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda w: effective_sizes(points, w), weights)
        (gradient,) = torch.autograd.grad(effective_sizes(points, weights), weights)
        assert abs(float(gradient @ weights.detach())) < 1e-14


def test_default_is_for_samples_of_unlike_sizes() -> None:
    generator = torch.Generator().manual_seed(0)
    bags = [torch.randn(n, 2, generator=generator).double() for n in (3, 9, 9, 4)]
    unlike, alike = PointClouds.from_list(bags), PointClouds.from_list([bag[:3] for bag in bags])
    outlines = PointClouds.from_list(bags, geometric=True)
    recipes = PointClouds.from_fractions([[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]] * 2, torch.eye(3))
    y = torch.arange(4.0, dtype=torch.float64)

    def has_noise(X: Any, **options: Any) -> bool:
        model = DistributionGP(X, y, **options)
        return isinstance(model.likelihood, SamplingNoiseLikelihood)

    assert has_noise(unlike)
    assert not has_noise(unlike, sampling_noise=False)
    assert not has_noise(unlike, train_Yvar=y + 1)
    assert has_noise(alike, sampling_noise=True)
    assert not any(map(has_noise, (alike, outlines, recipes)))
    assert has_noise(MixedInputs(a=unlike, b=alike))
    both = MixedInputs(a=unlike, b=unlike)
    assert not has_noise(both)
    assert has_noise(both, sampling_noise="b")
    model = fit(DistributionGP(both, y), restarts=0, progress=False)
    assert "name one" in str(model.choice)
    named = DistributionGP(MixedInputs(a=unlike, b=alike), y, sampling_noise="a").likelihood
    assert named.typical == pytest.approx((3 * 9 * 9 * 4) ** 0.25)
    with pytest.raises(ValueError, match=r"name of a block of bags from \['a', 'b'\], got 'c'"):
        DistributionGP(both, y, sampling_noise="c")


class TestLikelihood:
    def test_equal_atoms_count_apart(self) -> None:
        X = PointClouds.from_list([[[0.0], [0.0]], [[0.0]] * 4])
        likelihood = DistributionGP(X, [0.0, 1.0]).likelihood
        assert likelihood.typical == pytest.approx(8**0.5)
        expected = torch.tensor([2**0.5, 2**-0.5], dtype=torch.float64)
        torch.testing.assert_close(likelihood.ratios(X.pack()), expected)

    @pytest.mark.parametrize("shape", [(10,), (5, 2), (2, 5, 1)])
    @pytest.mark.parametrize("outputs", [1, 2])
    def test_of_observations_is_the_formula(self, shape: tuple[int, ...], outputs: int) -> None:
        """In units of the targets, with any batch axes."""
        targets = TARGETS[:30, None] * torch.tensor([1.0, 50.0][:outputs], dtype=torch.float64)
        model = DistributionGP(ROWS[:30], targets, sliced_kernel(), sampling_noise=True)
        c = torch.tensor([[0.4], [0.8]][:outputs], dtype=torch.float64)
        model.likelihood.noise = torch.full_like(c, 0.02).reshape(model.likelihood.noise.shape)
        model.likelihood.sampling_noise = c.reshape(model.likelihood.noise.shape)
        X = ROWS[30:].unflatten(0, shape)
        added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
        expected = noise(RATIOS[30:, None], c.squeeze(-1)) * targets.var(0)
        torch.testing.assert_close(added, expected.unflatten(0, shape))

    def test_posterior_is_that_of_the_formula(self) -> None:
        model = make_model()
        # The level has a flat prior: here, one of variance 1e6.
        K = model.covar_module(ROWS).to_dense().detach() + 1e6
        y = (TARGETS[:30] - TARGETS[:30].mean()) / TARGETS[:30].std()
        solved = torch.linalg.solve(K[:30, :30] + noise(RATIOS[:30]).diag(), K[:30, 30:])
        variance = 1 * K[30:, 30:].diagonal() - (K[:30, 30:] * solved).sum(0)
        mean, std = model.predict(ROWS[30:])
        expected = TARGETS[:30].mean() + TARGETS[:30].std() * (solved.T @ y)
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-4)
        expected = TARGETS[:30].std() * (variance + noise(RATIOS[30:])).sqrt()
        torch.testing.assert_close(std, expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("given", [True, False])
    def test_marginal_likelihood_is_that_of_the_formula(self, given: bool) -> None:
        """With the clouds as argument, as in BoTorch, and without, as in the examples of GPyTorch."""
        model = make_model()
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        inputs = model.train_inputs
        value = 30 * mll(model(*inputs), model.train_targets, *(inputs if given else ()))
        K = model.covar_module(ROWS[:30]).to_dense() + noise(RATIOS[:30]).diag()
        expected = MultivariateNormal(torch.zeros(30), K).log_prob(model.train_targets)
        own = model.likelihood
        prior = own.noise_covar.noise_prior.log_prob(own.noise)
        prior = prior + own.sampling_noise_prior.log_prob(own.sampling_noise)
        torch.testing.assert_close(value, expected + prior.sum())
        value.backward()
        assert float(model.likelihood.raw_sampling_noise.grad.abs()) > 1e-3

    def test_beside_other_columns(self) -> None:
        """The clouds are in columns 1 to 60; a kernel reads the first one too."""
        X = torch.cat([TARGETS[:, None].cos(), ROWS], dim=-1)
        kernel = sliced_kernel(active_dims=range(1, X.shape[-1])) * RBFKernel(active_dims=[0])
        model = make_model(rows=X, covar_module=kernel)
        added = (
            model.posterior(X[30:], observation_noise=True).variance
            - model.posterior(X[30:]).variance
        )
        expected = noise(RATIOS[30:]) * TARGETS[:30].var()
        torch.testing.assert_close(added.squeeze(-1), expected)

    def test_clouds_that_it_needs(self) -> None:
        with pytest.raises(ValueError, match=r"likelihood\(distribution, rows\)"):
            SamplingNoiseLikelihood(2)(torch.zeros(29))

    def test_what_it_cannot_be_combined_with(self) -> None:
        X = torch.cat([ROWS, ROWS], dim=-1)
        width = ROWS.shape[-1]
        kernel = sliced_kernel(active_dims=range(width)) + sliced_kernel(
            active_dims=range(width, 2 * width)
        )
        with pytest.raises(ValueError, match="got one that reads 2"):
            make_model(rows=X, covar_module=kernel)
        gaussians = torch.tensor([[0.0, 0, 1, 0, 0, 1], [1.0, 0, 1, 0, 0, 1]], dtype=torch.float64)
        kernel = SlicedWassersteinKernel(2, num_slices=10, inputs="gaussians")
        with pytest.raises(ValueError, match="one cloud of samples"):
            DistributionGP(gaussians, [0.0, 1.0], kernel, sampling_noise=True)


def test_fantasies_have_the_noise_of_their_clouds() -> None:
    model = make_model(outcome_transform=None)
    X = ROWS[30:34].unflatten(0, (2, 2))
    fantasies = model.fantasize(X, sampler=SobolQMCNormalSampler(torch.Size([3]), seed=0))
    for b in range(2):
        # Variances do not depend on what was fantasised.
        rows = torch.cat([ROWS[:30], X[b]])
        other = DistributionGP(
            rows,
            torch.zeros(32),
            model.covar_module,
            likelihood=model.likelihood,
            outcome_transform=None,
        )
        for noise in (True, False):
            actual = fantasies.posterior(ROWS[34:], observation_noise=noise).variance
            expected = other.posterior(ROWS[34:], observation_noise=noise).variance
            torch.testing.assert_close(actual[:, b], expected.expand(3, 6, 1))


class TestLearning:
    def test_posteriors_are_those_of_models_without_the_bag(self) -> None:
        num = 12
        model = make_model(num=num, outcome_transform=None)
        bags, subsets = _subsets(model.likelihood, ROWS[:num], seed=0)
        expected = []
        for bag, row in zip(bags.tolist(), subsets.rows, strict=True):
            rest = [i for i in range(num) if i != bag]
            options = {"likelihood": model.likelihood, "outcome_transform": None}
            other = DistributionGP(ROWS[rest], TARGETS[rest], model.covar_module, **options)
            mean, std = other.predict(row.unsqueeze(0), observation_noise=False)
            expected.append(torch.stack([TARGETS[bag] - mean, std.square()]))
        with torch.no_grad():
            found = _left_out(model, model.compared_rows, bags, subsets)
        torch.testing.assert_close(torch.stack(found), torch.cat(expected, -1))

    @pytest.mark.parametrize("size", [42, 50])  # of 50, the geometric mean is rounded
    def test_one_size(self, size: int) -> None:
        """Predictions at that size do not change."""
        X, y = samples(60, size, seed=0)
        model = DistributionGP(X, y, sliced_kernel(), sampling_noise=True)
        others = {n: p.clone() for n, p in model.named_parameters() if "noise" not in n}
        same, _ = samples(200, size, seed=1)
        smaller, smaller_y = samples(200, 5, seed=1)
        before = [model.predict(each) for each in (same, smaller)]
        assert not learned(model)
        learn_sampling_noise(model)
        assert learned(model)
        for name, value in others.items():
            assert torch.equal(model.get_parameter(name), value)
        assert not model.training
        after = [model.predict(each) for each in (same, smaller)]
        torch.testing.assert_close(before[0], after[0])
        torch.testing.assert_close(before[1][0], after[1][0])

        def coverage(y: Tensor, predicted: tuple[Tensor, Tensor]) -> float:
            mean, std = predicted
            return float(((y - mean).abs() < 1.96 * std).double().mean())

        plain = DistributionGP(X, y, sliced_kernel())
        for name, parameter in plain.named_parameters():
            parameter.data = model.get_parameter(name).data
        assert coverage(smaller_y, plain.predict(smaller)) < 0.8
        assert coverage(smaller_y, after[1]) > 0.85

    def test_recovers_known_noise(self) -> None:
        """Targets with noise of variance c / n about a function of the clouds, as in the model."""
        generator = torch.Generator().manual_seed(0)
        sizes = torch.tensor([5, 10, 20, 80]).repeat(25)
        bags = [rand(int(n), 2, seed=generator) for n in sizes]
        centres = 4 * rand(100, 2, seed=generator)
        # Centred bags, so that their sampling is no noise.
        clouds = PointClouds.from_list(
            [0.1 * (b - b.mean(0)) + m for b, m in zip(bags, centres, strict=True)]
        )
        noise = (0.5 / sizes).sqrt() * randn(100, seed=generator)
        y = centres[:, 0].sin() + noise
        model = DistributionGP(
            clouds, y, sliced_kernel(), outcome_transform=None, sampling_noise=True
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        # 75 bags of relative variance 2: a standard error of 0.16 of c.
        found = model.likelihood.sampling_noise.item() * model.likelihood.typical
        assert found == pytest.approx(0.5, rel=0.35)

    def test_what_stays(self) -> None:
        model = make_model()
        model.likelihood.raw_sampling_noise.requires_grad_(False)
        learn_sampling_noise(model)
        assert model.likelihood.sampling_noise.item() == pytest.approx(0.4)
        tiny = PointClouds(torch.randn(9, 5, 2, dtype=torch.float64))
        model = make_model(rows=tiny.pack(), num=9)
        learn_sampling_noise(model)
        assert model.likelihood.sampling_noise.item() == pytest.approx(0.4)

    @pytest.mark.parametrize("num", [1, 2])
    def test_very_few_clouds(self, num: int) -> None:
        targets = torch.stack([TARGETS, TARGETS.sqrt()], dim=-1)[:num]
        kernel = sliced_kernel(batch_shape=torch.Size([2]))
        model = DistributionGP(ROWS[:num], targets, kernel, sampling_noise=True)
        for values in (*model.predict(ROWS[30:]), *fit(model).predict(ROWS[30:])):
            assert bool(values.isfinite().all())

    @pytest.mark.filterwarnings("ignore::gp_distributions.warnings.UndeterminedWarning")
    def test_equal_targets(self) -> None:
        targets = torch.full((30,), 0.1, dtype=torch.float64)
        model = DistributionGP(ROWS[:30], targets, sliced_kernel(), sampling_noise=True)
        std = fit(model, restarts=0).predict(ROWS[30:])[1]
        assert bool((std > 0).all())
        assert model.likelihood.sampling_noise.item() > 0


def learned(model: DistributionGP) -> bool:
    """Whether the density of targets left out, given subsets of their bags, is at its largest."""
    (rows,) = model.train_inputs
    bags, subsets = _subsets(model.likelihood, rows, seed=0)
    with torch.no_grad():
        errors, variance = _left_out(model, model.compared_rows, bags, subsets)
        power, ratios = model.likelihood.power, model.likelihood.ratios(subsets)
        c = model.likelihood.sampling_noise.detach()
        total = model.likelihood.noise.detach() + c

        def loss(factor: float, more: float) -> float:
            excess = ratios ** ((power + more) / power) - 1
            each = variance + total + factor * c * excess
            return float((each.log() + errors.square() / each).mean())

        others = [loss(*each) for each in ((0.8, 0.0), (1.0, 0.2), (0.7, 0.2))]  # within bounds
    return loss(1.0, 0.0) < min(others)


def samples(num: int, size: int, seed: int) -> tuple[PointClouds, Tensor]:
    """Bags of Gaussians, and the sines of their means."""
    generator = torch.Generator().manual_seed(seed)
    means = 2 * rand(num, 2, seed=generator) - 1
    noise = randn(num, size, 2, seed=generator)
    return PointClouds(means.unsqueeze(1) + noise), (2 * means[:, 0]).sin()
