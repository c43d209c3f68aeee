"""Classes of distributions: Dirichlet regression, its probabilities, and kernel ridge on indicators."""

import copy
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from cases import rand, randn, sliced_kernel, with_known_level
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, FixedNoiseGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.kernel_ridge import KernelRidge
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    PointClouds,
    PrincipalDistance,
    SlicedWasserstein,
    fit,
)
from gp_distributions.fitting.concentrated_classes import ConcentratedClasses
from gp_distributions.fitting.stages import CONCENTRATION, run
from gp_distributions.models import ClassificationGP
from gp_distributions.models.kernel_ridge import KernelRidgeClassifier
from gp_distributions.numerics.predictions import expected_softmax

make_kernel = partial(sliced_kernel, 0.8, profile="matern52")

pytestmark = pytest.mark.usefixtures("short_fits")

NAMES = np.array(["ash", "beech", "cedar"])


def make_data(
    num: int, *, seed: int, sharpness: float = 4.0, atoms: int = 20
) -> tuple[PointClouds, NDArray, Tensor]:
    """Bags of Gaussians, labels drawn from probabilities that depend on mean and spread, and these."""
    generator = np.random.default_rng(seed)
    mean = generator.uniform(-1, 1, (num, 2))
    spread = generator.uniform(0.1, 0.5, num)
    points = mean[:, None] + spread[:, None, None] * generator.normal(size=(num, atoms, 2))
    latent = np.stack([np.zeros(num), mean[:, 0], 0.6 - 2 * spread + mean[:, 1]], axis=-1)
    odds = np.exp(sharpness * latent)
    probabilities = odds / odds.sum(-1, keepdims=True)
    drawn = [generator.choice(3, p=p) for p in probabilities]
    return PointClouds(torch.from_numpy(points)), NAMES[drawn], torch.from_numpy(probabilities)


X, Y, _ = make_data(60, seed=0)
NEW_X, _, TRUTH = make_data(400, seed=1)


@pytest.fixture
def model() -> ClassificationGP:
    return ClassificationGP(X, Y, make_kernel())


def plain(model: ClassificationGP) -> DistributionGP:
    """The same regression by GPyTorch's likelihood, with a factorisation for each class."""
    likelihood = DirichletClassificationLikelihood(
        torch.as_tensor(np.searchsorted(NAMES, Y)), dtype=torch.float64
    )
    return with_known_level(
        DistributionGP(
            X,
            likelihood.transformed_targets.T,
            copy.deepcopy(model.covar_module),
            likelihood=FixedNoiseGaussianLikelihood(likelihood.noise),
            outcome_transform=None,
        )
    )


class TestMarginalLikelihood:
    @pytest.mark.parametrize("one", [True, False], ids=["one lengthscale", "several"])
    def test_is_that_of_dense_covariances_at_the_best_means(self, one: bool) -> None:
        kernel = ScaleKernel(DistributionKernel(PrincipalDistance(SlicedWasserstein(2))))
        model = ClassificationGP(X, Y, make_kernel() if one else kernel).train()
        concentrated = ConcentratedClasses(model)
        found, own = concentrated(), list(concentrated.parameters.values())
        other = plain(model).train()
        other.mean_module.raw_constant.requires_grad_()
        mll = ExactMarginalLogLikelihood(other.likelihood, other)
        other.mean_module.load_state_dict(model.mean_module.state_dict())
        expected = mll(other(*other.train_inputs), other.train_targets).sum()
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        names = [*concentrated.parameters, "mean_module.raw_constant"]
        *gradients, in_mean = torch.autograd.grad(expected, map(other.get_parameter, names))
        assert in_mean.abs().max() < 1e-10
        for pair in zip(torch.autograd.grad(found, own), gradients, strict=True):
            torch.testing.assert_close(*pair, rtol=1e-8, atol=1e-10)

    def test_posteriors_are_those_of_dense_covariances(self, model: ClassificationGP) -> None:
        ours, theirs = (one.posterior(NEW_X[:5]) for one in (model, plain(model)))
        torch.testing.assert_close(ours.mean, theirs.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ours.variance, theirs.variance, rtol=1e-9, atol=1e-9)

    def test_leave_one_out_is_leaving_out(self, model: ClassificationGP) -> None:
        found = model.leave_one_out()
        for i in (0, 17):
            rest = torch.arange(60) != i
            one = ClassificationGP(X[rest], Y[rest.numpy()], copy.deepcopy(model.covar_module))
            probabilities = one.predict_proba(X[i : i + 1])[0]
            expected = probabilities[list(one.classes_).index(Y[i])].log()
            torch.testing.assert_close(found[i], expected, rtol=1e-8, atol=1e-8)


class TestProbabilities:
    def test_are_the_expected_softmax_of_the_posterior(self, model: ClassificationGP) -> None:
        posterior = model.posterior(NEW_X[:9])
        expected = expected_softmax(posterior.mean, posterior.variance.sqrt()).detach()
        for batch_size in (4, 1024):
            found = model.predict_proba(NEW_X[:9], batch_size=batch_size)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        rows = NEW_X[:8].pack().unflatten(0, (2, 4))
        torch.testing.assert_close(
            model.predict_proba(rows).flatten(0, 1), expected[:8], rtol=1e-9, atol=1e-9
        )

    @pytest.mark.parametrize("largest", [0.0, 0.5, 2.0, 4.0])
    def test_of_two_classes_are_an_integral(self, largest: float) -> None:
        """The difference of two normal variables is one."""
        generator = np.random.default_rng(0)
        for mean, std in zip(
            generator.normal(0, 4, (10, 2)), generator.uniform(0, largest, (10, 2)), strict=True
        ):
            shift, scale = mean[0] - mean[1], math.hypot(*std)

            def integrand(z: float, shift: float = shift, scale: float = scale) -> float:
                density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
                return density / (1 + math.exp(-shift - scale * z))

            expected = quad(integrand, -12, 12, epsabs=1e-12, limit=200)[0]
            found = expected_softmax(torch.tensor(mean), torch.tensor(std))
            assert float(found[0]) == pytest.approx(expected, abs=1e-6)
            assert float(found.sum()) == pytest.approx(1, abs=1e-12)

    def test_of_large_deviations_are_chances_to_be_largest(self) -> None:
        """The softmax of a variable in large units is one at the largest, and zero elsewhere."""
        mean, std = torch.tensor([-300.0, 170.0]), torch.tensor([1100.0, 1000.0])
        expected = torch.special.ndtr((mean[0] - mean[1]) / std.norm())
        for unit in (0.1, 1.0, 1e9):
            found = expected_softmax(unit * mean, unit * std)
            assert float(found[0]) == pytest.approx(float(expected), abs=3e-3)

    def test_of_many_classes_are_averages_of_samples(self) -> None:
        generator = torch.Generator().manual_seed(0)
        mean = 2 * randn(5, seed=generator)
        std = 3 * rand(5, seed=generator)
        samples = randn(100_000, 5, seed=generator)
        softmax = (mean + std * samples).softmax(-1)
        error = (expected_softmax(mean, std) - softmax.mean(0)).abs()
        assert bool((error < 5 * softmax.std(0) / math.sqrt(len(samples))).all())

    def test_are_calibrated(self) -> None:
        """Held against the probabilities that labels were drawn from, and scikit-learn's classifier."""
        x, y, _ = make_data(200, seed=2)
        found = fit(ClassificationGP(x, y, make_kernel()), restarts=0)
        kernel = found.covar_module.base_kernel
        features = [kernel.distance.embed(clouds.pack()).numpy() for clouds in (x, NEW_X)]
        prior = ConstantKernel(10.0) * RBF(1.0)
        other = GaussianProcessClassifier(prior, optimizer=None).fit(features[0], y)
        probabilities = {
            "ours": found.predict_proba(NEW_X),
            "theirs": torch.from_numpy(other.predict_proba(features[1])),
            "frequencies": torch.tensor([(y == name).mean() for name in NAMES]).expand(400, 3),
        }
        divergences = {
            name: float((TRUTH * (TRUTH / p).log()).sum(-1).mean())
            for name, p in probabilities.items()
        }
        assert found.alpha_epsilon == 0.1  # labels are noisy
        assert divergences["ours"] < 1.25 * divergences["theirs"]
        assert divergences["ours"] < 0.15 * divergences["frequencies"]
        confidence, guess = probabilities["ours"].max(-1)
        for low, high in ((0.4, 0.6), (0.6, 0.8), (0.8, 1.0)):
            inside = (confidence > low) & (confidence <= high)
            right = TRUTH.gather(-1, guess[:, None]).squeeze(-1)[inside].mean()
            assert abs(float(right - confidence[inside].mean())) < 0.1


class TestConcentration:
    @pytest.mark.usefixtures("whole_fits")
    def test_is_that_of_separate_fits(self) -> None:
        """Arcs of three lengths, whose likelihood has several maxima."""
        generator = np.random.default_rng(0)
        y = np.arange(24) % 3
        angles = 2 * np.pi / 3 * (1 + y)[:, None] * generator.uniform(size=(24, 25))
        arcs = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        x = PointClouds(arcs + generator.normal(size=(24, 1, 2)))
        separate = {}
        for alpha in (0.1, 0.01):
            one = ClassificationGP(x, y, make_kernel(), alpha_epsilon=alpha)
            run(one, CONCENTRATION)
            separate[alpha] = float(one.leave_one_out().mean())
        found = fit(
            ClassificationGP(x, y, make_kernel()), alpha_epsilons=(0.1, 0.01), temperature=1.0
        )
        assert found.alpha_epsilon == max(separate, key=separate.__getitem__) == 0.01
        assert float(found.leave_one_out().mean()) == pytest.approx(separate[0.01], rel=1e-6)

    def test_is_set_with_targets_and_noise(self, model: ClassificationGP) -> None:
        model.predict_proba(NEW_X[:2])
        model.alpha_epsilon = 0.1
        expected = ClassificationGP(X, Y, make_kernel(), alpha_epsilon=0.1)
        torch.testing.assert_close(
            model.predict_proba(NEW_X[:9]), expected.predict_proba(NEW_X[:9])
        )
        torch.testing.assert_close(
            model.posterior(NEW_X[:9]).variance, expected.posterior(NEW_X[:9]).variance
        )
        for value in (0.0, -1.0, math.nan):
            with pytest.raises(ValueError, match="alpha_epsilon > 0"):
                model.alpha_epsilon = value


class TestTemperature:
    def test_probabilities_are_powers_and_labels_stay(self, model: ClassificationGP) -> None:
        expected, left_out = model.predict_proba(NEW_X), model.leave_one_out_proba()
        labels = model.predict(NEW_X)
        model.temperature = 0.5
        for found, before in (
            (model.predict_proba(NEW_X), expected),
            (model.leave_one_out_proba(), left_out),
        ):
            squares = before.square()
            torch.testing.assert_close(found, squares / squares.sum(-1, keepdim=True))
        assert (model.predict(NEW_X) == labels).all()
        index = model.likelihood.labels.unsqueeze(-1)
        of_labels = model.leave_one_out_proba().gather(-1, index).squeeze(-1)
        torch.testing.assert_close(model.leave_one_out().exp(), of_labels)
        both = model.leave_one_out(temperatures=[1.0, 0.5])
        assert both.shape == (60, 2)
        torch.testing.assert_close(both[:, 1], model.leave_one_out())
        torch.testing.assert_close(both[:, 0].exp(), left_out.gather(-1, index).squeeze(-1))

    @pytest.mark.parametrize(("num", "sharpness"), [(60, 1.0), (20, 200.0)])
    def test_is_the_best_under_its_prior(self, num: int, sharpness: float) -> None:
        x, y, _ = make_data(num, seed=3, sharpness=sharpness)
        model = ClassificationGP(x, y, make_kernel())
        fit(model, alpha_epsilons=(0.01,), restarts=0)
        chosen, model.temperature = model.temperature, 1.0
        logs = model.leave_one_out_proba().log().numpy()
        truth = np.searchsorted(model.classes_, y)

        def cost(log_temperature: float) -> float:
            scores = logs / np.exp(log_temperature)
            terms = scores[np.arange(num), truth] - logsumexp(scores, axis=-1)
            return float(-terms.sum() + log_temperature**2 / (2 * 0.35**2))

        best = minimize_scalar(cost, bounds=np.log([0.25, 4.0]), method="bounded").x
        assert abs(math.log(chosen) - best) <= math.log(4) / 24
        if sharpness > 1:  # labels are certain
            assert chosen < 0.9

    def test_is_in_the_state(self, model: ClassificationGP) -> None:
        model.temperature, model.alpha_epsilon = 0.5, 0.3
        other = ClassificationGP(X, Y, make_kernel())
        other.load_state_dict(model.state_dict())
        assert (other.temperature, other.alpha_epsilon) == (0.5, 0.3)
        assert torch.equal(other.predict_proba(NEW_X[:5]), model.predict_proba(NEW_X[:5]))

    def test_is_chosen_with_the_concentration(self) -> None:
        """Not after it: sharp temperatures can make the best concentration another one."""
        x, y, _ = make_data(40, seed=2, sharpness=30.0)
        model = ClassificationGP(x, y, make_kernel())
        fit(model, restarts=0)
        scores = {}
        for alpha in (0.1, 0.01, 0.001):
            one = ClassificationGP(x, y, make_kernel())
            fit(one, alpha_epsilons=(alpha,), restarts=0)
            prior = (math.log(one.temperature) / 0.35) ** 2 / 2
            scores[alpha] = float(one.leave_one_out().sum()) - prior
            if alpha == model.alpha_epsilon:
                assert one.temperature == model.temperature
        assert model.alpha_epsilon == max(scores, key=scores.__getitem__)

    @pytest.mark.parametrize("value", [0.0, math.nan])
    def test_must_be_positive(self, model: ClassificationGP, value: float) -> None:
        with pytest.raises(ValueError, match="temperature > 0"):
            model.temperature = value
        with pytest.raises(ValueError, match="temperature > 0"):
            fit(model, temperature=value)
        assert model.temperature == 1.0


class TestLabels:
    @pytest.mark.parametrize(
        "labels",
        [
            Y,
            list(Y),
            np.searchsorted(NAMES, Y) - 7,
            torch.as_tensor(np.searchsorted(NAMES, Y) == 1),
            pd.Series(Y),
            pd.Categorical(Y),
            Y.astype(object),
        ],
        ids=["strings", "list", "integers", "booleans", "series", "categories", "objects"],
    )
    def test_of_any_kind_are_returned(self, labels: object) -> None:
        expected = np.asarray(labels)
        expected = expected.astype(str) if expected.dtype == object else expected
        model = ClassificationGP(X, labels, make_kernel())
        np.testing.assert_array_equal(model.classes_, np.unique(expected))
        predicted = model.predict(X)
        assert predicted.dtype == expected.dtype
        assert (predicted == expected).mean() > 0.7
        ridge = KernelRidgeClassifier(X, labels, make_kernel(), ridge=1e-3)
        assert (ridge.predict(X) == expected).mean() > 0.7

    @pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
    def test_missing_labels_are_named(self, missing: object) -> None:
        labels = Y.astype(object)
        labels[4] = missing
        with pytest.raises(ValueError, match=f"that of cloud 4 is {missing!r}. Leave out"):
            ClassificationGP(X, labels, make_kernel())

    def test_what_is_refused(self) -> None:
        with pytest.raises(ValueError, match="labels of one kind"):
            ClassificationGP(X, np.array(["a", 3] * 30, dtype=object), make_kernel())
        with pytest.raises(ValueError, match=r"one label for each of 60 clouds.*\(59,\)"):
            ClassificationGP(X, Y[1:], make_kernel())
        with pytest.raises(ValueError, match="at least two classes, got"):
            ClassificationGP(X, ["a"] * 60, make_kernel())
        with pytest.raises(ValueError, match="at least one concentration"):
            fit(ClassificationGP(X, Y, make_kernel()), alpha_epsilons=())


class TestKernelRidge:
    def test_is_that_of_scikit_learn(self) -> None:
        indicators = (Y[:, None] == NAMES).astype(float)
        kernel, ridge = make_kernel(), 1e-3
        rows, new = X.pack(), NEW_X.pack()
        with torch.no_grad():
            train, cross = kernel(rows).to_dense().numpy(), kernel(new, rows).to_dense().numpy()
        other = KernelRidge(alpha=60 * ridge, kernel="precomputed")
        frequencies = indicators.mean(0)
        expected = frequencies + other.fit(train, indicators - frequencies).predict(cross)
        model = KernelRidgeClassifier(X, Y, kernel, ridge=ridge)
        np.testing.assert_allclose(model.scores(NEW_X), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(model.predict(NEW_X), NAMES[expected.argmax(-1)])

    @pytest.mark.parametrize("atoms", [7, 33])
    def test_bags_of_another_size(self, atoms: int) -> None:
        ridge = KernelRidgeClassifier(X, Y, make_kernel(), ridge=0.1)
        test = PointClouds(NEW_X.points[:6, :7])
        at_training_width = ridge.scores(test.pack(atoms=20))
        torch.testing.assert_close(ridge.scores(test.pack(atoms=atoms)), at_training_width)


def test_further_labels_are_refused() -> None:
    model = ClassificationGP(X[:50], Y[:50])
    with pytest.raises(UnsupportedError, match="Make it anew with all clouds and labels"):
        model.condition_on_observations(X[50:], Y[50:])
