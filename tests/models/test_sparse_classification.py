"""The sparse classifier: exact with all clouds inducing, any labels, and pieces with labels."""

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, random_clouds, sliced_kernel
from sharding_tasks import in_pieces

from gp_distributions import (
    ClassificationGP,
    PointClouds,
    ShardedClouds,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
)
from gp_distributions.sharding.pieces import FunctionPiece

make_kernel = partial(sliced_kernel, 2.0, 5.0)

CLOUDS = random_clouds(80, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
POINTS, WEIGHTS = zip(*CLOUDS, strict=True)
BAGS = PointClouds.from_list(POINTS, weights=WEIGHTS)
SPREADS = torch.stack([points.square().mean() for points, _ in CLOUDS])
NUMBERS = torch.bucketize(SPREADS, SPREADS.quantile(torch.tensor([0.3, 0.8]).double()))
NAMES = np.array(["narrow", "medium", "wide"])[NUMBERS.numpy()]


def make_model(**options: Any) -> SparseClassificationGP:
    return SparseClassificationGP(ROWS[:60], NAMES[:60], make_kernel(), **options)


class TestExactness:
    @pytest.mark.parametrize("temperature", [1.0, 0.5])
    def test_all_clouds_inducing_is_the_exact_classifier(self, temperature: float) -> None:
        sparse = make_model(temperature=temperature)
        exact = ClassificationGP(ROWS[:60], NAMES[:60], make_kernel(), temperature=temperature)
        probabilities = sparse.predict_proba(ROWS[60:])
        expected = exact.predict_proba(ROWS[60:])
        torch.testing.assert_close(probabilities, expected, rtol=1e-5, atol=1e-6)
        for options in ({}, {"temperatures": [0.5, 2.0]}):
            found, expected = (each.leave_one_out(**options) for each in (sparse, exact))
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        batches = ROWS[60:68].unflatten(0, (4, 2))
        found = sparse.predict_proba(batches)
        torch.testing.assert_close(found, probabilities[:8].unflatten(0, (4, 2)))
        assert sparse.predict(ROWS[60:]).tolist() == exact.predict(ROWS[60:]).tolist()
        assert sparse.classes_.tolist() == ["medium", "narrow", "wide"]

    def test_fits_agree_too(self) -> None:
        sparse, exact = make_model(), ClassificationGP(ROWS[:60], NAMES[:60], make_kernel())
        for model in (sparse, exact):
            fit(model, alpha_epsilons=(0.1, 0.001), restarts=0)
        assert sparse.alpha_epsilon == exact.alpha_epsilon
        assert sparse.temperature == exact.temperature != 1
        torch.testing.assert_close(
            sparse.predict_proba(ROWS[60:]), exact.predict_proba(ROWS[60:]), rtol=1e-3, atol=1e-4
        )


class TestSums:
    def test_the_concentration_can_be_changed(self) -> None:
        model = make_model(num_inducing=15)
        model.predict_proba(ROWS[:2])
        model.alpha_epsilon = 0.1
        other = make_model(num_inducing=15, alpha_epsilon=0.1)
        assert torch.equal(model.predict_proba(ROWS[60:]), other.predict_proba(ROWS[60:]))
        assert torch.equal(model.leave_one_out(), other.leave_one_out())
        noisy = [m.posterior(ROWS[60:], observation_noise=True).variance for m in (model, other)]
        assert torch.equal(*noisy)

    def test_leave_one_out_is_leaving_out(self) -> None:
        model = make_model(num_inducing=20)
        index = 7
        rest = [i for i in range(60) if i != index]
        other = SparseClassificationGP(ROWS[rest], NAMES[rest], model.covar_module)
        task = model.piece_sums(model.summed().features)
        left = copy.deepcopy(model)
        left.take_sums(task.features, task(0, *other.training_data().content))
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

    def test_no_clouds(self) -> None:
        model = make_model(num_inducing=10)
        assert model.predict_proba(ROWS[:0]).shape == (0, 3)
        assert model.predict(ROWS[:0]).shape == (0,)

    def test_mistakes_are_named(self) -> None:
        with pytest.raises(ValueError, match="alpha_epsilon > 0"):
            make_model(alpha_epsilon=0.0)
        for batch in (ROWS.unflatten(0, (2, 40)), PointClouds(BAGS.points.unflatten(0, (2, 40)))):
            with pytest.raises(ValueError, match="without a batch axis"):
                SparseClassificationGP(batch, NAMES[:40], make_kernel())

    def test_latent_functions_are_a_regression_model(self) -> None:
        model = make_model(num_inducing=15)
        part = model.subset_output([2, 0])
        assert type(part) is SparseDistributionGP
        expected = model.posterior(ROWS[60:]).mean[:, [2, 0]]
        torch.testing.assert_close(part.posterior(ROWS[60:]).mean, expected)


POINTS_OF_SHARDS = torch.randn(90, 6, 2, generator=torch.Generator().manual_seed(1)).double()
LABELS_OF_SHARDS = (POINTS_OF_SHARDS.square().mean((1, 2)) > 1).double() * 2
LABELS_OF_SHARDS[77] = 1


class Counted(FunctionPiece):
    """A piece that knows its number of clouds."""

    count = 10


def shards() -> ShardedClouds:
    return in_pieces(PointClouds(POINTS_OF_SHARDS), LABELS_OF_SHARDS, size=10)


class TestShards:
    @pytest.mark.parametrize("counts", [True, False])
    def test_every_class_is_found(self, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gp_distributions.models.pieces._FEWEST", 12)
        data = shards()
        if counts:
            data = ShardedClouds(tuple(Counted(p.function, p.name) for p in data.pieces))
        model = SparseClassificationGP(data, covar_module=make_kernel(), num_inducing=2)
        assert 1 not in model.training_data().content[1]
        assert model.classes_.tolist() == [0, 1, 2]
        assert len(fit(model, restarts=0).predict_proba(data)) == 90
        bare = ShardedClouds.from_pieces([lambda: BAGS])
        with pytest.raises(ValueError, match="labels of None"):
            SparseClassificationGP(bare, covar_module=make_kernel())

    def test_labels_become_targets_where_pieces_are_read(self) -> None:
        data = shards()
        model = SparseClassificationGP(data, covar_module=make_kernel(), num_inducing=20)
        assert list(model.training_data().pieces) == list(data.pieces)
        memory = SparseClassificationGP(
            PointClouds(POINTS_OF_SHARDS), LABELS_OF_SHARDS, make_kernel(), num_inducing=20
        )
        for m in (model, memory):
            m.likelihood.noise_covar.noise = torch.ones(3, 1).double()
        memory.take_sums(
            model.summed().features,
            memory.piece_sums(model.summed().features)(0, *memory.training_data().content),
        )
        model.temperature = memory.temperature = 0.5
        clouds = PointClouds(POINTS_OF_SHARDS)
        expected = memory.predict_proba(clouds)
        torch.testing.assert_close(model.predict_proba(clouds), expected)
        torch.testing.assert_close(model.predict_proba(data), expected)
        torch.testing.assert_close(model.leave_one_out(), memory.leave_one_out())
        assert model.predict(data).tolist() == memory.predict(clouds).tolist()
        for method in (model.predict, model.predict_proba):
            with pytest.raises(ValueError, match="Expected ShardedClouds to predict with a client"):
                method(clouds, client=object())
