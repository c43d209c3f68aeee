"""Ensembles: the laws of total mean and variance, quantiles, weights, and what BoTorch asks."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from botorch.acquisition import qKnowledgeGradient
from botorch.models.transforms.outcome import Log
from botorch.models.utils.assorted import fantasize
from cases import as_rows, halving, randn, random_clouds
from gpytorch.kernels import ScaleKernel
from scipy import stats
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MMDKernel,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    integrate_hyperparameters,
    relevance,
    sensitivity,
)
from gp_distributions.models import ensemble_of
from gp_distributions.models.exact_inference import Conditioned
from gp_distributions.numerics.densities import Mixture

ROWS = as_rows(random_clouds(30, sizes=(3, 9)))
CLOUDS = PointClouds.unpack(ROWS, 2)
TARGETS = ROWS[:, :6].square().sum(-1)
OUTPUTS = torch.stack([TARGETS, TARGETS.sin()], dim=-1)
TRAIN, NEW = slice(0, 20), slice(20, 30)
WEIGHTS = [0.2, 0.5, 0.3]
S = torch.Size


def sliced(**options: object) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=8, num_quantiles=10, **options)


def make(kernel: object = None, **options: object) -> DistributionGP:
    return DistributionGP(ROWS[TRAIN], TARGETS[TRAIN], kernel or sliced(), **options).eval()


def members() -> list[DistributionGP]:
    """Models with other kernels, units of targets and input transforms."""
    return [
        make(),
        make(MMDKernel(2, bandwidth=1.0), outcome_transform=None),
        make(input_transform=halving(ROWS.shape[-1])),
    ]


def mixed(found: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The mean and the deviation of a mixture of normal distributions with WEIGHTS."""
    mean = sum(w * m for w, (m, _) in zip(WEIGHTS, found, strict=True))
    second = sum(w * (m**2 + s**2) for w, (m, s) in zip(WEIGHTS, found, strict=True))
    return mean, (second - mean**2).sqrt()


class TestPredictions:
    @pytest.mark.parametrize("noise", [False, True])
    def test_mean_and_variance_are_those_of_the_mixture(self, noise: bool) -> None:
        model = ensemble_of(members(), WEIGHTS)
        each = [m.predict(ROWS[NEW], observation_noise=noise) for m in members()]
        found = model.predict(ROWS[NEW], observation_noise=noise)
        torch.testing.assert_close(found, mixed(each))
        one_by_one = model.predict(ROWS[NEW], observation_noise=noise, batch_size=1)
        torch.testing.assert_close(one_by_one, found)
        each = [m.leave_one_out(observation_noise=noise) for m in members()]
        torch.testing.assert_close(model.leave_one_out(observation_noise=noise), mixed(each))

    def test_the_posterior_has_the_covariance_of_the_mixture(self) -> None:
        model = ensemble_of(members(), WEIGHTS)
        posterior = model.posterior(ROWS[NEW], observation_noise=True)
        parts = [m.posterior(ROWS[NEW], observation_noise=True) for m in members()]
        mean = sum(w * part.mean for w, part in zip(WEIGHTS, parts, strict=True))
        expected = sum(
            w * (part.distribution.covariance_matrix + (part.mean - mean) @ (part.mean - mean).mT)
            for w, part in zip(WEIGHTS, parts, strict=True)
        )
        torch.testing.assert_close(posterior.mean, mean)
        torch.testing.assert_close(posterior.distribution.covariance_matrix, expected)
        torch.testing.assert_close(posterior.mean.squeeze(-1), model.predict(ROWS[NEW])[0])

    def test_intervals_and_densities_are_those_of_a_skewed_mixture(self) -> None:
        model = ensemble_of(members(), WEIGHTS)
        normals = [stats.norm(*(x.numpy() for x in m.predict(ROWS[NEW]))) for m in members()]
        for ends, level in zip(model.interval(ROWS[NEW], 0.9), (0.05, 0.95), strict=True):
            below = sum(w * n.cdf(ends) for w, n in zip(WEIGHTS, normals, strict=True))
            np.testing.assert_allclose(below, level, rtol=1e-9)
        density = sum(w * n.pdf(TARGETS[NEW]) for w, n in zip(WEIGHTS, normals, strict=True))
        for size in (1024, 3):
            found = model.log_prob(ROWS[NEW], TARGETS[NEW], batch_size=size)
            np.testing.assert_allclose(found.exp(), density, rtol=1e-9)

    def test_intervals_and_densities_under_a_nonlinear_transform(self) -> None:
        model = make(outcome_transform=Log())
        logs = DistributionGP(ROWS[TRAIN], TARGETS[TRAIN].log(), sliced(), outcome_transform=None)
        for found, expected in zip(*(m.interval(ROWS[NEW]) for m in (model, logs)), strict=True):
            torch.testing.assert_close(found, expected.exp())
        expected = logs.log_prob(ROWS[NEW], TARGETS[NEW].log()) - TARGETS[NEW].log()
        torch.testing.assert_close(model.log_prob(ROWS[NEW], TARGETS[NEW]), expected)

    def test_several_outputs(self) -> None:
        both = [
            DistributionGP(ROWS[TRAIN], OUTPUTS[TRAIN], sliced(batch_shape=S([2]))),
            SharedKernelGP(ROWS[TRAIN], OUTPUTS[TRAIN], sliced()),
        ]
        model = ensemble_of(both, [1, 3])
        mean, std = model.predict(ROWS[NEW])
        lower, upper = model.interval(ROWS[NEW])
        assert mean.shape == lower.shape == (10, 2)
        assert bool(((lower < mean) & (mean < upper)).all())
        for output in range(2):
            by_index = model.posterior(ROWS[NEW], output_indices=[output], observation_noise=True)
            torch.testing.assert_close(by_index.mean, mean[:, [output]])
            torch.testing.assert_close(by_index.variance.sqrt(), std[:, [output]])
        densities = model.mixture(ROWS[NEW]).log_density(OUTPUTS[NEW]).sum(-1)
        torch.testing.assert_close(model.log_prob(ROWS[NEW], OUTPUTS[NEW]), densities)

    def test_classes_average_probabilities(self) -> None:
        labels = np.where(TARGETS.median() < TARGETS, "far", "near")[TRAIN]
        kernels = [sliced(), MMDKernel(2, bandwidth=1.0)]
        models = [ClassificationGP(ROWS[TRAIN], labels, kernel) for kernel in kernels]
        models[1].temperature = 0.5
        model = ensemble_of(models, [0.25, 0.75])
        for method in ("predict_proba", "leave_one_out_proba"):
            arguments = [ROWS[NEW]] if method == "predict_proba" else []
            first, second, found = (getattr(m, method)(*arguments) for m in (*models, model))
            torch.testing.assert_close(found, 0.25 * first + 0.75 * second)
        logs = model.leave_one_out_proba().gather(-1, model.likelihood.labels[:, None]).log()
        torch.testing.assert_close(model.leave_one_out(), logs.squeeze(-1))

    def test_sensitivity_and_relevance_are_weighted_means(self) -> None:
        clouds, models = CLOUDS[:3], [make(), make(MMDKernel(2, bandwidth=1.0))]
        model = ensemble_of(models, [0.25, 0.75])
        first, second, found = (sensitivity(m, clouds).mean_points for m in (*models, model))
        torch.testing.assert_close(found, 0.25 * first + 0.75 * second)
        first, second, found = (relevance(m, repeats=1).entries[0] for m in (*models, model))
        assert found.loss == pytest.approx(0.25 * first.loss + 0.75 * second.loss)


class TestWeights:
    def test_ensembles_are_taken_apart(self) -> None:
        a, b, c = members()
        nested = ensemble_of([ensemble_of([a, b], [2, 5]), c], [0.7, 0.3])
        torch.testing.assert_close(nested.weights, torch.tensor(WEIGHTS).double())
        assert nested.members == [a, b, c]
        assert ensemble_of([a, nested], [1, 0]).members == [a]

    @pytest.mark.parametrize("weights", [[1.0], [-1.0, 2.0], [0.0, 0.0], [math.nan, 1.0]])
    def test_weights_that_cannot_be(self, weights: list[float]) -> None:
        with pytest.raises(ValueError, match="weight"):
            ensemble_of(members()[:2], weights)

    def test_members_that_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="at least one model"):
            ensemble_of([])
        classifier = ClassificationGP(ROWS[:20], ["a", "b"] * 10, sliced())
        with pytest.raises(TypeError, match="some of each"):
            ensemble_of([make(), classifier])
        other = ClassificationGP(ROWS[:20], ["a", "c"] * 10, sliced())
        with pytest.raises(ValueError, match="models 0 and 1 differ"):
            ensemble_of([classifier, other])
        sparse = SparseDistributionGP(ROWS[:20], TARGETS[:20], sliced(), num_inducing=10)
        with pytest.raises(TypeError, match="exact models, got SparseDistributionGP"):
            ensemble_of([make(), sparse])
        order = torch.arange(20).flip(0)
        for rows, targets in ((ROWS[:5], TARGETS[:5]), (ROWS[order], TARGETS[order])):
            with pytest.raises(ValueError, match=r"same order, but .* models 0 and 2 differ"):
                ensemble_of([make(), make(), DistributionGP(rows, targets, sliced())])

    @pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
    def test_other_views_of_the_same_clouds(self) -> None:
        """The targets may have been standardised far from zero, or the clouds resampled or padded."""
        targets = 1e6 + 1e-3 * TARGETS[:10]
        first = DistributionGP(CLOUDS[:10], targets)
        wide = CLOUDS[:10].pack(atoms=12)
        for view in (
            DistributionGP(CLOUDS[:10].resample(6), targets),
            DistributionGP(wide, targets, sliced()),
            DistributionGP(wide.float(), targets.float(), sliced()),
        ):
            mean = ensemble_of([first, view]).leave_one_out()[0].double()
            expected = (first.leave_one_out()[0] + view.leave_one_out()[0]) / 2
            torch.testing.assert_close(mean, expected, rtol=1e-6, atol=0)


CONDITIONS: dict[str, Callable[[], DistributionGP]] = {
    "one": make,
    "known noise": lambda: make(train_Yvar=torch.linspace(0.1, 0.4, 20).double()),
    "transform": lambda: make(input_transform=halving(ROWS.shape[-1])),
    "outputs": lambda: DistributionGP(ROWS[TRAIN], OUTPUTS[TRAIN], sliced(batch_shape=S([2]))),
    "shared kernel": lambda: SharedKernelGP(ROWS[TRAIN], OUTPUTS[TRAIN], sliced()),
    "members": lambda: ensemble_of(members(), WEIGHTS),
    "hyperparameters": lambda: integrate_hyperparameters(make(ScaleKernel(sliced()))),
}


class TestConditioning:
    @pytest.mark.parametrize("kind", CONDITIONS)
    def test_at_once_and_one_by_one(self, kind: str) -> None:
        """Against a model of all data, by Cholesky factors from scratch."""
        model = CONDITIONS[kind]()
        Y = OUTPUTS if model.num_outputs > 1 else TARGETS[:, None]
        # Without a transform, the width of rows may change.
        wide = ROWS if kind in ("transform", "members") else CLOUDS.pack(atoms=12)
        once = model.condition_on_observations(wide[20:23], Y[20:23])
        twice = model.condition_on_observations(ROWS[20:21], Y[20:21])
        twice = twice.condition_on_observations(ROWS[21:23], Y[21:23])
        whole = once.condition_on_observations(ROWS[:0], Y[:0])
        for part in whole.parts:
            part.prediction_strategy = None  # factorise anew
        for other in (twice, whole):
            torch.testing.assert_close(once.predict(ROWS[23:]), other.predict(ROWS[23:]))
            torch.testing.assert_close(once.weights, other.weights)
        assert once.train_targets.shape[-1] == 23
        assert model.train_targets.shape[-1] == 20

    @pytest.mark.parametrize("kind", CONDITIONS)
    def test_fantasies(self, kind: str) -> None:
        model = CONDITIONS[kind]()
        Y = (OUTPUTS if model.num_outputs > 1 else TARGETS[:, None])[20:24].unflatten(0, (2, 2))
        X = ROWS[20:24].unflatten(0, (2, 2))
        many = torch.stack([Y, Y + 1, Y - 1])
        with fantasize():  # BoTorch then takes several targets for the same clouds
            fantasies = model.condition_on_observations(X, many)
        assert fantasies.batch_shape == (3, 2)
        posterior = fantasies.posterior(ROWS[24:])
        assert posterior.mean.shape == (3, 2, 6, model.num_outputs)
        single = model.condition_on_observations(X[1], many[2, 1]).posterior(ROWS[24:])
        torch.testing.assert_close(posterior.mean[2, 1], single.mean)
        torch.testing.assert_close(posterior.variance[2, 1], single.variance)

    @pytest.mark.parametrize("kind", ["one", "members", "hyperparameters"])
    def test_botorch_and_gpytorch(self, kind: str) -> None:
        model = CONDITIONS[kind]()
        gradient = qKnowledgeGradient(model, num_fantasies=2)
        assert gradient(ROWS[20:23].expand(2, -1, -1)).shape == (2,)
        if kind == "members":  # rows are those after a transform, which one member has
            return
        targets, _ = model.outcome_transform(TARGETS[20:22, None])
        found = model.get_fantasy_model(ROWS[20:22], targets.squeeze(-1))
        expected = model.condition_on_observations(ROWS[20:22], TARGETS[20:22, None])
        torch.testing.assert_close(found.predict(ROWS[NEW]), expected.predict(ROWS[NEW]))


def test_a_free_level_is_the_limit_of_a_constant_kernel() -> None:
    """A level with a flat prior is that of a constant kernel of large variance."""
    root = randn(9, 12)
    K = root @ root.mT / 12
    e, C, k = K[0, :7], K[:7, :7] + 0.1 * torch.eye(7).double(), K[7:, :7]
    level = Conditioned(torch.linalg.cholesky(C), e, level=True)
    large = 1e6
    plain = Conditioned(torch.linalg.cholesky(C + large), e)
    (mean, explained), (expected, known) = level.joint(k), plain.joint(k + large)
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(K[7:, 7:] - explained, K[7:, 7:] + large - known, rtol=0, atol=1e-6)
    torch.testing.assert_close(level.marginals(k)[1], explained.diagonal())
    torch.testing.assert_close(level.precision, plain.precision, rtol=0, atol=1e-6)
    torch.testing.assert_close(level.mean_cache, plain.mean_cache, rtol=0, atol=1e-6)
    shift = 0.5 * math.log(2 * math.pi * large)
    torch.testing.assert_close(level.log_evidence, plain.log_evidence + shift, rtol=0, atol=1e-5)
    first = Conditioned(torch.linalg.cholesky(C[:5, :5]), e[:5], level=True)
    more = first.extended(C[5:, :5], C[5:, 5:], e, key=None)
    torch.testing.assert_close(more.joint(k), (mean, explained))


def test_quantiles_where_a_member_has_no_variance() -> None:
    mixture = Mixture(
        torch.tensor([0.75, 0.25]).double(),
        torch.tensor([0.0, 5.0]).double(),
        torch.tensor([1.0, 0.0]).double(),
    )
    assert mixture.quantile(0.3).item() == pytest.approx(stats.norm.ppf(0.4), abs=1e-9)
    assert mixture.quantile(0.9).item() == pytest.approx(5.0, abs=1e-9)
