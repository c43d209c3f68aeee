"""Models of mixed inputs: each path from training to predictions, saved files and acquisition."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cases import reloaded, with_known_level
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    Gaussians,
    MixedInputs,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
    mixed_kernel,
    sensitivity,
)
from gp_distributions.kernels import BlockKernel
from gp_distributions.kernels.mixed import STRUCTURES
from gp_distributions.models import SamplingNoiseLikelihood

pytestmark = pytest.mark.usefixtures("short_fits")

N, TRAIN = 36, 26
RNG = np.random.default_rng(3)
LEVEL = RNG.normal(size=(N, 2))
SIZES = np.where(np.arange(N) < TRAIN, RNG.integers(8, 20, N), RNG.integers(8, 40, N))
CELLS = PointClouds.from_list(
    {
        f"p{i}": level + 0.3 * RNG.normal(size=(n, 2))
        for i, (level, n) in enumerate(zip(LEVEL, SIZES, strict=True))
    }
)
FRAME = pd.DataFrame(
    {"age": RNG.uniform(20, 80, N), "arm": RNG.choice(["drug", "none"], N)}, index=CELLS.labels
)
X = MixedInputs(cells=CELLS, covariates=FRAME)
Y = torch.from_numpy(LEVEL[:, 0] + (FRAME["age"] - 50).to_numpy() / 20) + torch.from_numpy(
    (FRAME["arm"] == "drug").to_numpy() + 0.1 * RNG.normal(size=N)
)
SMALL = {"num_slices": 8, "num_quantiles": 10}


def kernel(structure: Any = "product", inputs: MixedInputs = X, **options: Any) -> Any:
    cells = SlicedWassersteinKernel(2, **SMALL, **options)
    return mixed_kernel(inputs, {"cells": cells}, structure=structure, **options)


def train_inputs() -> MixedInputs:
    """The training inputs, stored no wider than they need to be, as a separate table would be."""
    bags = {name: CELLS.points[i, : SIZES[i]] for i, name in enumerate(CELLS.labels[:TRAIN])}  # type: ignore[index]
    return MixedInputs(cells=PointClouds.from_list(bags), covariates=FRAME[:TRAIN])


def make_model(structure: Any = "product", **options: Any) -> DistributionGP:
    return DistributionGP(train_inputs(), Y[:TRAIN], kernel(structure), **options)


def explained(mean: Tensor, y: Tensor) -> float:
    return 1 - float((mean - y).square().mean() / y.var(correction=0))


def same(a: tuple[Tensor, ...], b: tuple[Tensor, ...], rtol: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=rtol, atol=1e-9)


class TestRegression:
    @pytest.mark.parametrize("structure", STRUCTURES)
    def test_wider_clouds_are_predicted_after_a_fit(self, structure: Any) -> None:
        model = fit(make_model(structure))
        mean, std = model.predict(X[TRAIN:])
        assert X[TRAIN:].pack().shape[-1] > model.train_inputs[0].shape[-1]
        assert explained(mean, Y[TRAIN:]) > 0.9
        assert bool(((mean - Y[TRAIN:]).abs() < 4 * std).all())

    def test_the_encoding_is_that_of_the_training_data(self) -> None:
        model = make_model()
        one, several = model.predict(X[TRAIN : TRAIN + 1]), model.predict(X[TRAIN:])
        same(one, tuple(m[:1] for m in several))
        turned = MixedInputs(**dict(reversed(X[TRAIN:].blocks.items())))
        assert all(map(torch.equal, model.predict(turned), several))

    def test_inputs_of_another_kind_at_prediction(self) -> None:
        with pytest.raises(ValueError, match="mixed inputs"):
            make_model().predict(CELLS)
        with pytest.raises(ValueError, match="blocks"):
            DistributionGP(CELLS, Y).predict(X)

    @pytest.mark.usefixtures("whole_fits")
    def test_only_covariates(self) -> None:
        inputs = MixedInputs(covariates=FRAME)
        target = Y - torch.from_numpy(LEVEL[:, 0])
        model = fit(DistributionGP(inputs[:TRAIN], target[:TRAIN]), restarts=0)
        assert explained(model.predict(inputs[TRAIN:])[0], target[TRAIN:]) > 0.98


class TestSparse:
    def test_is_the_exact_model_if_all_are_inducing(self) -> None:
        train = train_inputs()
        sparse = SparseDistributionGP(train, Y[:TRAIN], kernel(), num_inducing=TRAIN)
        exact = with_known_level(DistributionGP(train, Y[:TRAIN], sparse.covar_module))
        exact.likelihood.noise = sparse.likelihood.noise
        assert sparse.encoding == train.encoding
        torch.testing.assert_close(
            sparse.predict(X[TRAIN:]), exact.predict(X[TRAIN:]), rtol=1e-6, atol=1e-6
        )
        rows = X[TRAIN:].pack(sparse.encoding)
        same(sparse.predict(X[TRAIN:]), sparse.predict(rows))
        expected = fit(sparse, restarts=0).predict(X[TRAIN:])
        assert explained(expected[0], Y[TRAIN:]) > 0.9
        assert all(map(torch.equal, reloaded(sparse).predict(X[TRAIN:]), expected))

    def test_default_kernel_outputs_and_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        outputs = torch.stack([Y, -2 * Y], -1)[:TRAIN]
        whole = SparseDistributionGP(X[:TRAIN], outputs, num_inducing=8)
        assert [type(k) for k in whole.covar_module.base_kernel.kernels] == [BlockKernel] * 2
        part = whole.subset_output([1]).predict(X[TRAIN:])
        same(part, tuple(m[:, 1:] for m in whole.predict(X[TRAIN:])))
        # Every piece is encoded as the training data are, not by itself.
        monkeypatch.setattr("gp_distributions.measures.inputs._PIECE", 9)
        pieces = SparseDistributionGP(X[:TRAIN], outputs, whole.covar_module, num_inducing=8)
        same(pieces.predict(X[TRAIN:]), whole.predict(X[TRAIN:]))

    def test_classification(self) -> None:
        labels = np.where(LEVEL[:, 0] > 0, "high", "low")
        model = SparseClassificationGP(X[:TRAIN], labels[:TRAIN], kernel(), num_inducing=TRAIN)
        fit(model, restarts=0)
        expected = model.predict_proba(X[TRAIN:])
        assert np.mean(model.predict(X[TRAIN:]) == labels[TRAIN:]) >= 0.8
        assert torch.equal(reloaded(model).predict_proba(X[TRAIN:]), expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_sensitivity_by_finite_differences(sparse: bool) -> None:
    nerves = PointClouds(CELLS.points[..., :1] + 1, CELLS.weights)
    two = MixedInputs(nerves=nerves, cells=CELLS, age=FRAME["age"])
    kind: Any = SparseDistributionGP if sparse else DistributionGP
    model = kind(two[:TRAIN], Y[:TRAIN])
    found = sensitivity(model, two[TRAIN:], batch_size=3)
    assert list(found) == ["nerves", "cells"]
    step = 1e-6  # hardly any atoms change places within it
    for name, dim in (("nerves", 0), ("cells", 1)):
        blocks: Any = two[TRAIN:].blocks
        points, weights = blocks[name].points, blocks[name].weights
        assert found[name].mean_points.shape == points.shape
        shift = torch.zeros_like(points)
        shift[:, 2, dim] = step
        moved = (blocks | {name: PointClouds(points + s * shift, weights)} for s in (1, -1))
        up, down = (model.predict(MixedInputs(**each))[0] for each in moved)
        slope = found[name].mean_points[:, 2, dim]
        torch.testing.assert_close((up - down) / (2 * step), slope, rtol=1e-5, atol=1e-7)
        assert not found[name].mean_points[weights == 0].any()


class TestSamplingNoise:
    def test_is_that_of_the_bags(self) -> None:
        model = make_model(sampling_noise=True)
        found = model.likelihood.ratios(model.train_inputs[0])
        size = torch.tensor(SIZES[:TRAIN], dtype=torch.float64)
        torch.testing.assert_close(found, size.log().mean().exp() / size)
        fit(model, restarts=0)
        small = X[TRAIN:].blocks | {"cells": PointClouds(CELLS.points[TRAIN:, :4])}
        less = model.predict(MixedInputs(**small))[1]
        assert bool((less > model.predict(X[TRAIN:])[1]).all())

    def test_one_of_two_bags(self) -> None:
        two = MixedInputs(cells=CELLS, nerves=CELLS)
        with pytest.raises(ValueError, match=r'Name the block .* sampling_noise="block"'):
            DistributionGP(two, Y, sampling_noise=True)
        named = DistributionGP(two, Y, sampling_noise="nerves").likelihood
        assert named.active_dims == two.encoding.columns["nerves"]
        assert not isinstance(DistributionGP(two, Y).likelihood, SamplingNoiseLikelihood)
        noise = SamplingNoiseLikelihood(2, active_dims=two.encoding.columns["nerves"])
        model = DistributionGP(two, Y, likelihood=noise)
        size = torch.tensor(SIZES, dtype=torch.float64)
        expected = noise.typical / size
        torch.testing.assert_close(noise.ratios(model.train_inputs[0]), expected)


def test_several_outputs() -> None:
    outputs = torch.stack([Y, -2 * Y], dim=-1)
    separate = DistributionGP(
        X[:TRAIN], outputs[:TRAIN], kernel(batch_shape=torch.Size([2])), sampling_noise=False
    )
    shared = SharedKernelGP(X[:TRAIN], outputs[:TRAIN], kernel())
    alone = DistributionGP(X[:TRAIN], Y[:TRAIN], kernel(), sampling_noise=False)
    expected = alone.predict(X[TRAIN:])
    for model in (separate, shared):
        mean, std = model.predict(X[TRAIN:])
        same((mean[:, 0], mean[:, 1] / -2, std[:, 0]), (expected[0], *expected))
    second = separate.subset_output([1])
    same(second.predict(X[TRAIN:]), tuple(m[:, 1:] for m in separate.predict(X[TRAIN:])))


def test_files_keep_defaults_of_every_block() -> None:
    blood = Gaussians.from_clouds(CELLS)
    inputs = MixedInputs(**X.blocks, blood=blood, flag=[True, False] * (N // 2))
    labels = ["a", "b"] * (TRAIN // 2)
    for model in (DistributionGP(inputs[:9], Y[:9]), ClassificationGP(inputs[:TRAIN], labels)):
        expected = model.predict(inputs[TRAIN:])
        loaded = reloaded(model)
        assert loaded.encoding == model.encoding
        assert all(map(np.array_equal, loaded.predict(inputs[TRAIN:]), expected))


@pytest.mark.parametrize("wide", [False, True])
def test_conditioning(wide: bool) -> None:
    model = make_model(outcome_transform=None, sampling_noise=False)
    new = slice(TRAIN, TRAIN + 3) if wide else slice(0, 3)
    inputs = X[new] if wide else train_inputs()[new]
    more = model.condition_on_observations(inputs, Y[new])
    assert more.encoding == model.encoding
    rows = torch.cat([X[:TRAIN].pack(model.encoding), X[new].pack(model.encoding)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows are not standardised
        direct = DistributionGP(
            rows, torch.cat([Y[:TRAIN], Y[new]]), kernel(), outcome_transform=None
        )
    same(more.predict(X[TRAIN + 3 :]), direct.predict(X[TRAIN + 3 :].pack(model.encoding)), 1e-6)
