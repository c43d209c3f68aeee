"""Mixtures of models: laws of total mean and variance, quantiles, samples, and what BoTorch asks."""

import math

import numpy as np
import pytest
import torch
from botorch.acquisition import qKnowledgeGradient
from botorch.models import KroneckerMultiTaskGP, SingleTaskGP
from botorch.models.transforms.outcome import Log
from botorch.sampling import IIDNormalSampler, SobolQMCNormalSampler
from botorch.sampling.get_sampler import get_sampler
from cases import as_rows, random_clouds
from scipy import stats
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MixtureModel,
    MMDKernel,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    integrate_hyperparameters,
)
from gp_distributions.models import MixturePosterior

ROWS = as_rows(random_clouds(30, sizes=(3, 9)))
CLOUDS = PointClouds.unpack(ROWS, 2)
TARGETS = ROWS[:, :6].square().sum(-1)
OUTPUTS = torch.stack([TARGETS, TARGETS.sin()], dim=-1)
WEIGHTS = [0.2, 0.5, 0.3]
S = torch.Size


def sliced(**options: object) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=8, num_quantiles=10, **options)


def members() -> list[DistributionGP]:
    far = DistributionGP(ROWS[:20], TARGETS[:20] + 30, MMDKernel(2, bandwidth=1.0))
    sparse = SparseDistributionGP(ROWS[:20], TARGETS[:20], sliced(), num_inducing=10)
    return [DistributionGP(ROWS[:20], TARGETS[:20], sliced()), far, sparse]


def other_model() -> SingleTaskGP:
    x = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    return SingleTaskGP(x, x.sin())


def student(mean: Tensor, scale: Tensor, degrees: float) -> MixturePosterior:
    """One Student's t distribution of three values of one output."""
    degree = torch.tensor([degrees], dtype=torch.float64)
    diagonal = scale.diagonal()[None, :, None]
    return MixturePosterior(
        mean[None, :, None], diagonal, lambda _: scale[None], torch.ones(1), degree
    )


class TestMoments:
    @pytest.mark.parametrize("noise", [False, True])
    def test_mean_and_variance_are_those_of_the_mixture(self, noise: bool) -> None:
        model = MixtureModel(members(), WEIGHTS)
        found = model.predict(ROWS[20:], observation_noise=noise)
        means, stds = zip(
            *(one.predict(ROWS[20:], observation_noise=noise) for one in members()), strict=True
        )
        mean = sum(w * m for w, m in zip(WEIGHTS, means, strict=True))
        second = sum(w * (m**2 + s**2) for w, m, s in zip(WEIGHTS, means, stds, strict=True))
        torch.testing.assert_close(found, (mean, (second - mean**2).sqrt()))
        posterior = model.posterior(ROWS[20:], observation_noise=noise)
        torch.testing.assert_close(posterior.mean.squeeze(-1), found[0])
        torch.testing.assert_close(posterior.variance.squeeze(-1).sqrt(), found[1])

    @pytest.mark.parametrize("noise", [False, True])
    def test_leave_one_out_predictions_are_mixed(self, noise: bool) -> None:
        *_, sparse = members()
        far = DistributionGP(ROWS[:20], TARGETS[:20], MMDKernel(2, bandwidth=1.0))
        integrated = integrate_hyperparameters(DistributionGP(CLOUDS[:20], TARGETS[:20]))
        model = MixtureModel([integrated, far, sparse, other_model()], [1, 2, 1, 0])
        found = model.leave_one_out(observation_noise=noise)
        kept = [each.leave_one_out(observation_noise=noise) for each in (integrated, far, sparse)]
        means, stds = (torch.stack(part) for part in zip(*kept, strict=True))
        weights = torch.tensor([[0.25], [0.5], [0.25]]).double()
        mean = (weights * means).sum(0)
        second = (weights * (stds.square() + means.square())).sum(0)
        torch.testing.assert_close(found, (mean, (second - mean.square()).sqrt()))

    def test_leave_one_out_needs_the_same_clouds(self) -> None:
        fewer = DistributionGP(CLOUDS[:5], TARGETS[:5])
        with pytest.raises(ValueError, match=r"same training clouds, got \[20, 5\] of them"):
            MixtureModel([members()[0], fewer]).leave_one_out()
        parts = [DistributionGP(CLOUDS[i : i + 10], TARGETS[i : i + 10]) for i in (0, 10)]
        unused, first, second = members()[0], *parts
        for other in (second, MixtureModel([second]), integrate_hyperparameters(second)):
            model = MixtureModel([unused, first, first, other], [0, 1, 1, 1])
            with pytest.raises(ValueError, match=r"same order, but .* of members 1 and 3 differ"):
                model.leave_one_out()
        with pytest.raises(TypeError, match=r"models of this package, .* got SingleTaskGP"):
            MixtureModel([other_model()]).leave_one_out()

    @pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
    def test_leave_one_out_of_other_views_of_the_same_clouds(self) -> None:
        """The targets may have been standardised far from zero, or the clouds resampled or padded."""
        targets = 1e6 + 1e-3 * TARGETS[:10]
        first = DistributionGP(CLOUDS[:10], targets)
        wide = CLOUDS[:10].pack(atoms=12)
        views = {
            "resampled": DistributionGP(CLOUDS[:10].resample(6), targets),
            "padded": DistributionGP(wide, targets, sliced()),
            "single": DistributionGP(wide.float(), targets.float(), sliced()),
            "sparse": SparseDistributionGP(CLOUDS[:10], targets, num_inducing=5),
        }
        for view in views.values():
            mean = MixtureModel([first, view]).leave_one_out()[0]
            torch.testing.assert_close(
                mean, (first.leave_one_out()[0] + view.leave_one_out()[0]) / 2, rtol=1e-6, atol=0
            )

    def test_mixtures_of_mixtures(self) -> None:
        a, b, c = members()
        nested = MixtureModel([MixtureModel([a, b], [2, 5]), c], [0.7, 0.3])
        flat = MixtureModel([a, b, c], WEIGHTS)
        levels = torch.tensor([0.1, 0.9])
        for X in (ROWS[20:], CLOUDS[20:]):
            found, expected = nested.posterior(X), flat.posterior(X)
            torch.testing.assert_close(found.quantile(levels), expected.quantile(levels))
            torch.testing.assert_close(found.variance, expected.variance)

    def test_quantiles_and_densities_are_those_of_a_skewed_mixture(self) -> None:
        posterior = MixtureModel(members(), WEIGHTS).posterior(ROWS[20:24], observation_noise=True)
        parts = [one.posterior(ROWS[20:24], observation_noise=True) for one in members()]
        normals = [
            stats.norm(part.mean.detach().numpy(), part.variance.detach().sqrt().numpy())
            for part in parts
        ]
        for level in (0.025, 0.3, 0.975):
            found = posterior.quantile(torch.tensor(level)).detach().numpy()
            below = sum(w * n.cdf(found) for w, n in zip(WEIGHTS, normals, strict=True))
            np.testing.assert_allclose(below, level, rtol=1e-6)  # a level in single precision
        value = posterior.mean.detach()
        density = sum(w * n.pdf(value) for w, n in zip(WEIGHTS, normals, strict=True))
        np.testing.assert_allclose(posterior.log_density(value).exp().detach(), density)
        one = posterior.density(torch.tensor([1.0, 2.0]))
        assert one.shape == (2, 4, 1)
        both = sum(w * n.pdf(2.0) for w, n in zip(WEIGHTS, normals, strict=True))
        np.testing.assert_allclose(one[1].detach(), both)

    def test_several_outputs(self) -> None:
        both = [
            DistributionGP(ROWS[:20], OUTPUTS[:20], sliced(batch_shape=S([2]))),
            SharedKernelGP(ROWS[:20], OUTPUTS[:20], sliced()),
        ]
        model = MixtureModel(both, [1, 3])
        mean, std = model.predict(ROWS[20:])
        assert mean.shape == (10, 2)
        for output in range(2):
            part = model.subset_output([output])
            expected = mean[:, [output]], std[:, [output]]
            torch.testing.assert_close(part.predict(ROWS[20:]), expected)
            by_index = model.posterior(ROWS[20:], output_indices=[output], observation_noise=True)
            torch.testing.assert_close(by_index.mean, mean[:, [output]])


class TestSamples:
    def test_samples_have_the_joint_distribution_of_the_mixture(self) -> None:
        model = MixtureModel(members(), WEIGHTS)
        X = ROWS[20:23]
        posterior = model.posterior(X)
        samples = posterior.sample(S([40_000])).squeeze(-1)
        parts = [one.posterior(X) for one in members()]
        mean = posterior.mean.squeeze(-1)
        covariance = sum(
            w
            * (
                part.distribution.covariance_matrix
                + torch.outer(*[part.mean.squeeze(-1) - mean] * 2)
            )
            for w, part in zip(WEIGHTS, parts, strict=True)
        )
        scale = covariance.diagonal().max().item()
        torch.testing.assert_close(samples.mean(0), mean, atol=0.03 * scale**0.5, rtol=0)
        torch.testing.assert_close(torch.cov(samples.mT), covariance, atol=0.05 * scale, rtol=0)

    def test_samples_of_students_t_distribution(self) -> None:
        root = torch.tensor([[1.0, 0, 0], [0.8, 0.6, 0], [0.0, 0.5, 2.0]], dtype=torch.float64)
        mean = torch.tensor([0.0, 5.0, -1.0], dtype=torch.float64)
        posterior = student(mean, root @ root.mT, 5.0)
        sampler = SobolQMCNormalSampler(S([2**14]), seed=0)
        samples = sampler(posterior).squeeze(-1)
        for number in range(3):
            scale = (root @ root.mT)[number, number].sqrt().item()
            expected = stats.t(5, mean[number].item(), scale)
            # The largest difference of distribution functions is about 1 / n for such points.
            assert stats.kstest(samples[:, number].numpy(), expected.cdf).statistic < 5e-3
        whitened = torch.linalg.solve_triangular(root, (samples - mean).mT, upper=False).square()
        expected = stats.f(3, 5)
        assert stats.kstest(whitened.mean(0).numpy(), expected.cdf).statistic < 1e-2

    def test_points_and_outputs_come_from_one_member(self) -> None:
        mean = torch.tensor([0.0, 10, 20]).double()[:, None, None].expand(3, 3, 2)
        variance = torch.full((3, 3, 2), 1e-4).double()
        weights = torch.tensor([0.2, 0.3, 0.5]).double()
        covariance = 1e-4 * torch.eye(6).double().expand(3, 6, 6)
        posterior = MixturePosterior(mean, variance, lambda k: covariance[k], weights)
        samples = SobolQMCNormalSampler(S([2**12]), seed=0)(posterior)
        members = (samples / 10).round()
        assert bool((members == members[:, :1, :1]).all())
        shares = torch.stack([(members[:, 0, 0] == k).double().mean() for k in range(3)])
        # Quasi-random levels: the error of a share is about 1 / n.
        torch.testing.assert_close(shares, weights, rtol=0, atol=3e-3)

    def test_base_samples_are_the_same_in_all_t_batches(self) -> None:
        posterior = MixtureModel(members(), WEIGHTS).posterior(ROWS[20:22].expand(4, -1, -1))
        for sampler in (
            SobolQMCNormalSampler(S([16]), seed=1),
            IIDNormalSampler(S([16]), seed=1),
            get_sampler(posterior, S([16]), seed=1),
        ):
            samples = sampler(posterior)
            assert samples.shape == (16, 4, 2, 1)
            torch.testing.assert_close(samples, samples[:, :1].expand_as(samples))
            assert torch.equal(samples, sampler(posterior))

    def test_outputs_with_correlations(self) -> None:
        """A member of correlated outputs keeps their correlation."""
        targets = torch.stack([TARGETS, -TARGETS], dim=-1)
        rows = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        member = KroneckerMultiTaskGP(rows, targets[:20])
        posterior = MixtureModel([member]).posterior(rows[:2])
        expected = member.posterior(rows[:2]).distribution.covariance_matrix
        samples = posterior.sample(S([20_000])).flatten(1)
        scale = expected.diagonal().max().item()
        torch.testing.assert_close(torch.cov(samples.mT), expected, rtol=0, atol=0.05 * scale)

    def test_gradients_at_values_without_variance(self) -> None:
        mean = torch.zeros(2, 1, 1, dtype=torch.float64)
        variance = torch.tensor([[[1.0]], [[0.0]]], dtype=torch.float64).requires_grad_()
        weights = torch.full((2,), 0.5, dtype=torch.float64)
        posterior = MixturePosterior(mean, variance, lambda k: variance[k], weights)
        value = torch.tensor([[0.3]], dtype=torch.float64)
        (gradient,) = torch.autograd.grad(posterior.log_density(value).sum(), variance)
        # That of the first member, since the other has no density there: ((y / s)^2 - 1) / (2 s^2).
        expected = torch.tensor([-0.455, 0.0], dtype=torch.float64)
        torch.testing.assert_close(gradient.flatten(), expected)

    def test_samples_at_known_points_are_finite(self) -> None:
        model = DistributionGP(ROWS[:20], TARGETS[:20], sliced())
        model.likelihood.noise = 1e-8
        X = ROWS[:3].clone().requires_grad_()
        posterior = MixtureModel([model]).posterior(torch.cat([X, X]))
        samples = posterior.rsample(S([4]))
        (gradient,) = torch.autograd.grad(samples.sum(), X)
        assert samples.isfinite().all()
        assert gradient.isfinite().all()

    def test_gradients(self) -> None:
        model = MixtureModel(members(), WEIGHTS)
        sampler = SobolQMCNormalSampler(S([3]), seed=0)
        points = CLOUDS.points[20:22].clone().requires_grad_()

        def values(points: Tensor) -> tuple[Tensor, ...]:
            posterior = model.posterior(PointClouds(points, CLOUDS.weights[20:22]).pack())
            quantile = posterior.quantile(torch.tensor(0.1, dtype=torch.float64))
            return posterior.mean, posterior.variance, quantile, sampler(posterior)

        assert torch.autograd.gradcheck(values, points, atol=1e-4, fast_mode=True)


class TestBoTorch:
    def test_conditioning_and_fantasies(self) -> None:
        plain = [one for one in members() if isinstance(one, DistributionGP)]
        model = MixtureModel(plain, [0.25, 0.75])
        more = model.condition_on_observations(ROWS[20:22], TARGETS[20:22])
        expected = [one.condition_on_observations(ROWS[20:22], TARGETS[20:22]) for one in plain]
        torch.testing.assert_close(
            more.predict(ROWS[22:])[0], MixtureModel(expected, [0.25, 0.75]).predict(ROWS[22:])[0]
        )
        gradient = qKnowledgeGradient(model, num_fantasies=2)
        assert gradient(ROWS[20:23].expand(2, -1, -1)).shape == (2,)


class TestInputs:
    @pytest.mark.parametrize("weights", [[1.0], [-1.0, 2.0], [0.0, 0.0], [math.nan, 1.0]])
    def test_weights_that_cannot_be(self, weights: list[float]) -> None:
        with pytest.raises(ValueError, match="weight"):
            MixtureModel(members()[:2], weights)

    def test_members_that_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="at least one model"):
            MixtureModel([])
        with pytest.raises(TypeError, match="predict_proba"):
            MixtureModel([ClassificationGP(ROWS[:6], ["a", "b"] * 3, sliced())])
        both = DistributionGP(ROWS[:20], OUTPUTS[:20], sliced(batch_shape=S([2])))
        with pytest.raises(ValueError, match=r"same outputs, got \[1, 2\]"):
            MixtureModel([members()[0], both])
        positive = DistributionGP(ROWS[:20], TARGETS[:20], sliced(), outcome_transform=Log())
        with pytest.raises(TypeError, match="TransformedPosterior from DistributionGP"):
            MixtureModel([positive]).posterior(ROWS[20:])

    @pytest.mark.parametrize("level", [-0.5, 0.0, 1.0, 1.5, math.nan])
    def test_levels_that_cannot_be(self, level: float) -> None:
        posterior = MixtureModel(members()).posterior(ROWS[20:])
        with pytest.raises(ValueError, match="levels"):
            posterior.quantile(torch.tensor([0.5, level]))
