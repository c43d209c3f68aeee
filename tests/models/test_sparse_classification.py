"""The sparse classifier: exact with all clouds inducing, any labels, and pieces with labels."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    ClassificationGP,
    PointClouds,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
    fit_classification,
)
from gp_distributions.models.collapsed import piece_sums

CLOUDS = random_clouds(80, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
POINTS, WEIGHTS = zip(*CLOUDS, strict=True)
BAGS = PointClouds.from_list(POINTS, weights=WEIGHTS)
SPREADS = torch.stack([points.square().mean() for points, _ in CLOUDS])
NUMBERS = torch.bucketize(SPREADS, SPREADS.quantile(torch.tensor([0.3, 0.8]).double()))
NAMES = np.array(["narrow", "medium", "wide"])[NUMBERS.numpy()]


def make_kernel() -> ScaleKernel:
    kernel = ScaleKernel(SlicedWassersteinKernel(2, num_slices=10, num_quantiles=20))
    kernel.base_kernel.lengthscale = 2.0
    kernel.outputscale = 5.0
    return kernel


def make_model(**options: Any) -> SparseClassificationGP:
    return SparseClassificationGP(ROWS[:60], NAMES[:60], make_kernel(), **options)


class TestExactness:
    def test_all_clouds_inducing_is_the_exact_classifier(self) -> None:
        sparse, exact = make_model(), ClassificationGP(ROWS[:60], NAMES[:60], make_kernel())
        probabilities = sparse.predict_proba(ROWS[60:])
        expected = exact.predict_proba(ROWS[60:])
        torch.testing.assert_close(probabilities, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            sparse.leave_one_out(), exact.leave_one_out(), rtol=1e-5, atol=1e-5
        )
        assert sparse.predict(ROWS[60:]).tolist() == exact.predict(ROWS[60:]).tolist()
        assert sparse.classes_.tolist() == ["medium", "narrow", "wide"]

    def test_fits_agree_too(self) -> None:
        sparse, exact = make_model(), ClassificationGP(ROWS[:60], NAMES[:60], make_kernel())
        for model in (sparse, exact):
            fit(model, restarts=0)
        torch.testing.assert_close(
            sparse.predict_proba(ROWS[60:]), exact.predict_proba(ROWS[60:]), rtol=1e-3, atol=1e-4
        )

    def test_selection_of_the_concentration(self) -> None:
        sparse, exact = make_model(), ClassificationGP(ROWS[:60], NAMES[:60], make_kernel())
        for model in (sparse, exact):
            fit_classification(model, alpha_epsilons=(0.1, 0.001), restarts=0)
        assert sparse.alpha_epsilon == exact.alpha_epsilon


class TestSums:
    def test_classes_share_what_they_have_in_common(self) -> None:
        model = make_model(num_inducing=15, alpha_epsilon=0.05)
        summed = model.summed()
        rows, targets, noise = model.sample_rows(60)
        ones = torch.ones(60, 1).double()
        with torch.no_grad():
            phi = summed.features(rows)
        for output in range(3):
            columns = torch.cat([phi, ones, targets[output]], -1)
            expected = columns.T @ (columns / noise[output].unsqueeze(-1))
            torch.testing.assert_close(summed.sums.gram[output], expected)

    def test_the_concentration_changes_the_sums(self) -> None:
        model = make_model(num_inducing=15)
        model.predict_proba(ROWS[:2])
        model.alpha_epsilon = 0.1
        other = make_model(num_inducing=15, alpha_epsilon=0.1)
        torch.testing.assert_close(model.predict_proba(ROWS[60:]), other.predict_proba(ROWS[60:]))

    def test_leave_one_out_is_leaving_out(self) -> None:
        model = make_model(num_inducing=20)
        index = 7
        rest = [i for i in range(60) if i != index]
        other = SparseClassificationGP(ROWS[rest], NAMES[rest], model.covar_module)
        state, data = model.piece_state(), other.training_data()
        left = copy.deepcopy(model)
        left.take_sums(state.features, piece_sums(state, *data.piece(0)))
        label = model.classes_.tolist().index(NAMES[index])
        expected = left.predict_proba(ROWS[[index]])[0, label].log()
        torch.testing.assert_close(model.leave_one_out()[index], expected)


class TestInputs:
    @pytest.mark.parametrize("labels", [NUMBERS, NUMBERS.numpy() - 7, NAMES.tolist(), NUMBERS > 1])
    def test_labels(self, labels: Any) -> None:
        model = SparseClassificationGP(BAGS[:60], labels[:60], num_inducing=10)
        found = model.predict(BAGS[60:])
        assert set(found.tolist()) <= set(np.asarray(labels).tolist())
        torch.testing.assert_close(model.predict_proba(BAGS).sum(-1), torch.ones(80).double())

    def test_pieces_with_labels(self) -> None:
        class Pieces:
            num_pieces = 3

            def __init__(self, labels: Any) -> None:
                self.labels = labels

            def piece(self, index: int) -> Any:
                part = slice(20 * index, 20 * (index + 1))
                return BAGS[part], None if self.labels is None else self.labels[part]

            def sample(self, n: int, seed: int) -> Any:
                return BAGS[:30], None if self.labels is None else self.labels[:30]

        options: dict[str, Any] = {"covar_module": make_kernel(), "num_inducing": 100}
        model = SparseClassificationGP(Pieces(NAMES), **options)
        assert len(model.leave_one_out()) == 60
        assert model.classes_.tolist() == ["medium", "narrow", "wide"]
        strange = NAMES.copy()
        strange[45] = "round"
        with pytest.raises(ValueError, match=r"cloud 5 is .*round"):
            SparseClassificationGP(Pieces(strange), **options).predict(BAGS[:2])
        with pytest.raises(ValueError, match="labels of None"):
            SparseClassificationGP(Pieces(None), **options)
        with pytest.raises(ValueError, match="train_Y=None"):
            SparseClassificationGP(Pieces(NAMES), NAMES, **options)

    def test_mistakes_are_named(self) -> None:
        with pytest.raises(ValueError, match="at least two classes"):
            SparseClassificationGP(ROWS, ["a"] * 80, make_kernel())
        with pytest.raises(ValueError, match="one label for each of 80"):
            SparseClassificationGP(ROWS, ["a", "b"], make_kernel())
        with pytest.raises(ValueError, match="alpha_epsilon > 0"):
            make_model(alpha_epsilon=0.0)
        with pytest.raises(ValueError, match="got None"):
            SparseClassificationGP(ROWS, None, make_kernel())

    def test_latent_functions_are_a_regression_model(self) -> None:
        model = make_model(num_inducing=15)
        part = model.subset_output([2, 0])
        assert type(part) is SparseDistributionGP
        expected = model.posterior(ROWS[60:]).mean[:, [2, 0]]
        torch.testing.assert_close(part.posterior(ROWS[60:]).mean, expected)
