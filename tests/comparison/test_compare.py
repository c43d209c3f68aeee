"""compare: scores, standard errors, weights, folds, groups, failures, and what stays as it was."""

import copy
import math
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from cases import rand, randn
from gpytorch.kernels import Kernel, ScaleKernel
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from torch import Tensor

import gp_distributions as gd
from gp_distributions.comparison import Comparison, trials
from gp_distributions.kernels import default_kernels
from gp_distributions.numerics.predictions import stacking_weights
from gp_distributions.warnings import ConvergenceWarning, warn

pytestmark = pytest.mark.usefixtures("short_fits")

T = 18
GENERATOR = torch.Generator().manual_seed(0)
SPREADS = 0.5 + rand(T, 1, 1, seed=GENERATOR)
POINTS = SPREADS * randn(T, 12, 2, seed=GENERATOR)
X = gd.PointClouds(POINTS)
Y = (3 * SPREADS).sin().flatten() + 0.05 * randn(T, seed=GENERATOR)
LABELS = np.where(SPREADS.flatten() > 1, "wide", "narrow")
GROUPS = [f"hospital {i % 6}" for i in range(T)]
FAST: dict[str, Any] = {"restarts": 0, "progress": False}


def sliced(profile: str = "matern52") -> Kernel:
    return gd.SlicedWassersteinKernel(2, num_slices=8, num_quantiles=8, profile=profile)


def kernels() -> dict[str, Any]:
    return {"sw2": sliced(), "mmd": gd.MMDKernel(2, bandwidth=0.2)}


def fitted(kernel: Kernel, index: Any = slice(None), y: Any = Y) -> gd.DistributionGP:
    model = gd.DistributionGP(X.pack()[index], y[index], copy.deepcopy(kernel))
    return gd.fit(model, restarts=0, progress=False)


def densities(mean: Tensor, std: Tensor, y: Tensor) -> Tensor:
    return torch.distributions.Normal(mean, std).log_prob(y)


@pytest.fixture(scope="module")
def found() -> Comparison:
    return gd.compare(kernels(), X, Y, **FAST)


class TestLeaveOneOut:
    def test_log_densities_are_those_of_a_fitted_model(self, found: Comparison) -> None:
        for name, kernel in kernels().items():
            expected = densities(*fitted(kernel).leave_one_out(), Y)
            torch.testing.assert_close(found.log_density[name], expected, rtol=1e-6, atol=1e-6)

    def test_table(self, found: Comparison) -> None:
        first, second = found.table
        assert (first.name, second.name) == ("sw2", "mmd")
        assert first.difference == first.error == 0
        best, other = found.log_density["sw2"], found.log_density["mmd"]
        assert second.log_density == pytest.approx(other.mean().item())
        assert second.difference == pytest.approx((other - best).mean().item())
        assert second.error == pytest.approx((other - best).std().item() / math.sqrt(T))
        mean, std = found.best.leave_one_out()
        assert first.rmse == pytest.approx((Y - mean).square().mean().sqrt().item())
        assert first.r2 == pytest.approx(1 - (first.rmse / Y.std(correction=0).item()) ** 2)
        assert first.coverage == ((Y - mean).abs() < 1.95996 * std).double().mean()
        assert math.isnan(first.accuracy)
        assert all(entry.seconds > 0 for entry in found.table)

    def test_weights(self, found: Comparison) -> None:
        matrix = torch.stack([found.log_density[name] for name in ("sw2", "mmd")], -1)
        assert list(found.weights.values()) == pytest.approx(
            stacking_weights(matrix, prior=0.02).tolist()
        )
        weights = torch.tensor(list(found.weights.values())).double()
        mixture = (matrix + weights.log()).logsumexp(-1).mean().item()
        assert found.stacked.log_density == pytest.approx(mixture)
        assert mixture >= found.table[0].log_density - 2 * 0.02 * math.log(T) / T

    def test_best_and_mixture_predict(self, found: Comparison) -> None:
        assert found.best is found.models["sw2"]
        model = found.model()
        assert isinstance(model, gd.DistributionGP)
        assert model.weights.sum() == pytest.approx(1)
        mean, std = model.predict(X)
        assert mean.shape == std.shape == (T,)

    def test_prints(self, found: Comparison) -> None:
        lines = str(found).splitlines()
        assert lines[0].split()[:3] == ["Comparison", "log", "density"]
        assert [line.split()[0] for line in lines[1:]] == ["sw2", "mmd", "stacked"]
        assert "accuracy" not in lines[0]


@pytest.mark.usefixtures("shortest_fits")
class TestCandidates:
    def test_stay_as_they_are(self) -> None:
        given: dict[str, Any] = {
            "kernel": sliced(),
            "distance": gd.MMD(2),
            "model": gd.DistributionGP(X, Y, sliced()),
        }
        before = {name: copy.deepcopy(c.state_dict()) for name, c in given.items()}
        found = gd.compare(given, X, Y, **FAST)
        assert not [entry.message for entry in found.table if entry.failed]
        for name, candidate in given.items():
            for key, value in candidate.state_dict().items():
                torch.testing.assert_close(value, before[name][key], equal_nan=True, rtol=0, atol=0)
        assert given["distance"].bandwidth is None

    def test_of_all_kinds(self) -> None:
        shared = gd.SlicedWasserstein(2, num_slices=8, num_quantiles=8)
        given: dict[str, Any] = {
            "distance": shared,
            "kernel": gd.DistributionKernel(shared),
            "model": gd.DistributionGP(X, Y, gd.DistributionKernel(shared)),
            "function": lambda X, y: gd.DistributionGP(X, y, gd.DistributionKernel(shared)),
        }
        found = gd.compare(given, X, Y, **FAST)
        first = found.log_density["kernel"]
        for name in given:
            torch.testing.assert_close(found.log_density[name], first, rtol=1e-6, atol=1e-6)

    def test_models_keep_their_options(self) -> None:
        variances = torch.linspace(0.01, 0.1, T).double()
        given: dict[str, Any] = {
            "sampling": gd.DistributionGP(X, Y, sliced(), sampling_noise=True),
            "known": gd.DistributionGP(X, Y, sliced(), train_Yvar=variances),
            "plain": gd.DistributionGP(X, Y, sliced(), outcome_transform=None),
            "sparse": gd.SparseDistributionGP(X, Y, sliced(), num_inducing=7, seed=3),
        }
        for folds in (None, 3):
            found = gd.compare(given, X, Y, folds=folds, **FAST)
            assert not [entry.message for entry in found.table if entry.failed]
            models = found.models
            assert hasattr(models["sampling"].likelihood, "sampling_noise")
            noise = models["known"].likelihood.noise * models["known"].outcome_transform.stdvs ** 2
            torch.testing.assert_close(noise.flatten(), variances)
            assert not hasattr(models["plain"], "outcome_transform")
            assert (models["sparse"].num_inducing, models["sparse"].seed) == (7, 3)

    def test_known_variances_are_those_of_clouds_left_out(self) -> None:
        variances = torch.where(torch.arange(T) % 2 == 0, 1e-4, 1.0).double()
        model = gd.DistributionGP(X, Y, sliced(), train_Yvar=variances)
        found = gd.compare({"known": model}, X, Y, folds=3, **FAST)
        for train, test in KFold(3, shuffle=True, random_state=0).split(np.zeros(T)):
            apart = gd.DistributionGP(X[train], Y[train], sliced(), train_Yvar=variances[train])
            mean, std = gd.fit(apart, restarts=0).predict(X[test], observation_noise=False)
            expected = densities(mean, (std**2 + variances[test]).sqrt(), Y[test])
            torch.testing.assert_close(
                found.log_density["known"][test], expected, rtol=1e-5, atol=1e-5
            )

    def test_functions_do_not_know_variances_of_clouds_left_out(self) -> None:
        def make(X: Any, y: Any, step: float) -> gd.DistributionGP:
            variances = 0.01 + step * torch.arange(len(y)).double()
            return gd.DistributionGP(X, y, sliced(), train_Yvar=variances)

        given = {str(step): partial(make, step=step) for step in (0.0, 0.01)}
        found = gd.compare(given, X, Y, folds=2, **FAST)
        assert [entry.name for entry in found.table if entry.failed] == ["0.01"]
        assert "Expected known noise variances" in found.table[-1].message

    def test_functions_get_inputs_in_folds(self) -> None:
        seen = []

        def make(X: Any, y: Any) -> gd.DistributionGP:
            seen.append(X)
            return gd.DistributionGP(X, y)

        found = gd.compare({"default": make}, X, Y, folds=2, **FAST)
        assert not found.table[0].failed
        assert [type(part) for part in seen] == [gd.PointClouds] * 3
        train = next(iter(KFold(2, shuffle=True, random_state=0).split(np.zeros(T))))[0]
        assert torch.equal(seen[1].points, X[train].points)


@pytest.mark.usefixtures("shortest_fits")
class TestFailures:
    def test_is_a_line_of_the_table(self) -> None:
        given = kernels() | {
            "wide": gd.SlicedWassersteinKernel(3),
            "number": 3.0,
            "labels": lambda X, y: gd.ClassificationGP(X, LABELS),
            "sums": gd.SparseAggregateGP(X, Y),
        }
        found = gd.compare(given, X, Y, **FAST)
        assert [e.name for e in found.table if e.failed] == ["wide", "number", "labels", "sums"]
        messages = {entry.name: entry.message for entry in found.table}
        assert messages["wide"].startswith("ValueError: Expected clouds of dimension 3")
        assert messages["number"].startswith("TypeError: Expected a kernel, a distance, a model")
        assert "Expected a model for regression" in messages["labels"]
        assert messages["sw2"] == ""
        assert found.weights["wide"] == 0
        assert set(found.models) == {"sw2", "mmd"}
        assert str(found).splitlines()[-1].startswith("sums: ValueError: Expected a function of X")
        found.plot()

    def test_in_a_fold_names_the_fold(self) -> None:
        def picky(X: Tensor, y: Tensor) -> gd.DistributionGP:
            if len(y) == T - 4:
                raise ValueError("too few")
            return gd.DistributionGP(X, y, sliced())

        found = gd.compare(kernels() | {"picky": picky}, X, Y, folds=5, **FAST)
        (entry,) = (e for e in found.table if e.failed)
        assert entry.message == "fold 0: ValueError: too few"

    def test_of_all_is_an_error(self) -> None:
        with pytest.raises(
            RuntimeError, match=r"at least one candidate.*'a': ValueError: Expected"
        ):
            gd.compare({"a": gd.SlicedWassersteinKernel(3)}, X, Y, **FAST)

    def test_interruption_is_passed_on(self) -> None:
        def interrupted(X: Any, y: Any) -> gd.DistributionGP:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            gd.compare(kernels() | {"stop": interrupted}, X, Y, **FAST)

    @pytest.mark.parametrize(
        ("given", "options", "message"),
        [
            ([sliced()], {}, r"dictionary of candidates.*Pass \{name: kernel, \.\.\.\}"),
            ({}, {}, "at least one candidate"),
            (None, {"X": X[:1], "y": Y[:1]}, r"at least two inputs, .* got 1"),
            (None, {"groups": [1, 2]}, "a group for each of 18 inputs"),
            (None, {"groups": 18 * ["one"]}, "at least two different labels, got only 'one'"),
            (None, {"groups": ["a", None] * 9}, "that of input 1 is missing"),
            (None, {"folds": ShuffleSplit(3)}, "left out exactly once"),
            (
                None,
                {"folds": [(np.arange(T), np.arange(9)), (np.arange(9), np.arange(9, T))]},
                "parts without the inputs .* fold 0 holds 0",
            ),
            (
                None,
                {"folds": list(KFold(3).split(np.arange(T))), "groups": GROUPS},
                "that of fold 0 holds 'hospital 0'.*GroupKFold",
            ),
            (
                None,
                {"y": LABELS, "folds": [(range(2), range(2, T)), (range(2, T), range(2))]},
                "all classes in each training part",
            ),
        ],
    )
    def test_bad_arguments(self, given: Any, options: dict[str, Any], message: str) -> None:
        given = kernels() if given is None else given
        with pytest.raises((TypeError, ValueError), match=message):
            gd.compare(given, **({"X": X, "y": Y} | options))


@pytest.mark.usefixtures("shortest_fits")
class TestFolds:
    @pytest.mark.parametrize("grouped", [False, True])
    def test_hyperparameters_are_fitted_without_the_fold(self, grouped: bool) -> None:
        given: Any = {"folds": 3, "groups": GROUPS if grouped else None}
        found = gd.compare(kernels(), X, Y, seed=4, **given, **FAST)
        splitter = GroupKFold(3) if grouped else KFold(3, shuffle=True, random_state=4)
        expected = torch.empty(T).double()
        for train, test in splitter.split(np.zeros(T), groups=given["groups"]):
            model = gd.fit(gd.DistributionGP(X[train], Y[train], sliced()), restarts=0, seed=4)
            expected[test] = densities(*model.predict(X[test]), Y[test])
        torch.testing.assert_close(found.log_density["sw2"], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            found.best.predict(X)[0], fitted(sliced()).predict(X)[0], rtol=1e-5, atol=1e-5
        )

    def test_splitters_and_pairs(self) -> None:
        pairs = [(np.arange(9, T), np.arange(9)), (np.arange(9), np.arange(9, T))]
        first, second = (
            gd.compare({"sw2": sliced()}, X, Y, folds=folds, **FAST) for folds in (KFold(2), pairs)
        )
        torch.testing.assert_close(first.log_density, second.log_density)

    def test_groups_are_independent(self) -> None:
        found = gd.compare(kernels(), X, Y, groups=GROUPS, **FAST)
        difference = found.log_density["mmd"] - found.log_density["sw2"]
        sums = (difference - difference.mean()).reshape(3, 6).sum(0)
        worst = found.table[1]
        if worst.name == "sw2":
            difference = -difference
        assert worst.error == pytest.approx((sums.square().sum() * 6 / 5).sqrt().item() / T)


@pytest.mark.usefixtures("shortest_fits")
class TestData:
    def test_several_outputs(self) -> None:
        several = torch.stack([Y, 100 * Y.square()], -1)
        batch = ScaleKernel(
            gd.SlicedWassersteinKernel(2, num_slices=8, batch_shape=torch.Size([2])),
            batch_shape=torch.Size([2]),
        )
        found = gd.compare({"shared": sliced(), "own": batch}, X, several, **FAST)
        assert isinstance(found.models["shared"], gd.SharedKernelGP)
        assert type(found.models["own"]) is gd.DistributionGP
        model = found.models["shared"]
        expected = densities(*model.leave_one_out(), several).sum(-1)
        torch.testing.assert_close(found.log_density["shared"], expected)
        assert found.model().predict(X)[0].shape == (T, 2)
        folded = gd.compare({"shared": sliced(), "own": batch}, X, several, folds=3, **FAST)
        assert not [entry.message for entry in folded.table if entry.failed]

    def test_classification(self) -> None:
        given = kernels() | {
            "model": gd.ClassificationGP(X, LABELS, sliced()),
            "sparse": gd.SparseClassificationGP(X, LABELS, sliced(), num_inducing=9),
        }
        found = gd.compare(given, X, LABELS, **FAST)
        assert not [entry.message for entry in found.table if entry.failed]
        expected = found.models["sw2"].leave_one_out()
        torch.testing.assert_close(found.log_density["sw2"], expected)
        assert found.table[0].accuracy > 0.7
        assert math.isnan(found.table[0].rmse)
        del given["sparse"]
        found = gd.compare(given, X, LABELS, **FAST)
        model = found.model()
        assert isinstance(model, gd.ClassificationGP)
        probabilities = sum(
            weight * found.models[name].predict_proba(X)
            for name, weight in found.weights.items()
            if weight > 0
        )
        torch.testing.assert_close(model.predict_proba(X), probabilities)
        folded = gd.compare(given, X, LABELS, folds=3, **FAST)
        assert not [entry.message for entry in folded.table if entry.failed]
        assert folded.table[0].log_density != found.table[0].log_density

    def test_decimals_are_targets(self) -> None:
        targets = [Decimal(f"{value:.3f}") for value in Y.tolist()]
        found = gd.compare({"sw2": sliced()}, X, targets, **FAST)
        assert math.isnan(found.table[0].accuracy)
        assert found.table[0].rmse < 1

    def test_numbers_may_be_labels(self) -> None:
        found = gd.compare(kernels(), X, (LABELS == "wide") + 3, classification=True, **FAST)
        assert found.best.classes_.tolist() == [3, 4]

    def test_mixed_inputs(self) -> None:
        mixed = gd.MixedInputs(
            clouds=X, number=Y.roll(1), arm=["rare" if i == 0 else "usual" for i in range(T)]
        )
        candidates = default_kernels(mixed)
        few = {name: candidates[name] for name in ("sw2 matern52", "sum", "sum+product")}
        for folds in (None, 3):  # a fold lacks the rare category
            found = gd.compare(few, mixed, Y, folds=folds, **FAST)
            assert not [entry.message for entry in found.table if entry.failed]
            assert found.model().predict(mixed[:3])[0].shape == (3,)


def test_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    gd.compare({"sw2": sliced()}, X, Y, **FAST)
    assert capsys.readouterr() == ("", "")


def test_warnings_name_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    def worried(model: Any, **options: Any) -> Any:
        warn("The fit did not converge.", ConvergenceWarning)
        return gd.fit(model, **options)

    monkeypatch.setattr(trials, "fit", worried)
    with pytest.warns(ConvergenceWarning) as found:
        gd.compare({"only": sliced()}, X, Y, folds=2, **FAST)
    texts = [str(warning.message) for warning in found]
    assert texts == [
        f"'only'{place}: The fit did not converge." for place in ("", ", fold 0", ", fold 1")
    ]
