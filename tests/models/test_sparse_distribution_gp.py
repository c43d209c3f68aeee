"""The sparse model: exact with all clouds inducing, sums over pieces, and the BoTorch interface."""

import copy
import itertools
from functools import partial
from typing import Any

import pytest
import torch
from botorch.models.transforms.outcome import Standardize
from cases import as_rows, halving, random_clouds, reloaded, sliced_kernel, with_known_level
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
)
from gp_distributions.models.pieces import SampledPieces

make_kernel = partial(sliced_kernel, 3.0, 1.7)

CLOUDS = random_clouds(70, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
POINTS, WEIGHTS = zip(*CLOUDS, strict=True)
BAGS = PointClouds.from_list(POINTS, weights=WEIGHTS)
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])
SEVERAL = torch.stack([TARGETS, ROWS.sin().sum(-1), ROWS[:, :9].sum(-1)], -1)
NEW = ROWS[60:]
NOISE = 1e-3


def make_sparse(targets: Tensor = TARGETS, **options: Any) -> SparseDistributionGP:
    return set_values(SparseDistributionGP(ROWS[:60], targets[:60], make_kernel(), **options))


def make_exact(targets: Tensor = TARGETS, **options: Any) -> DistributionGP:
    kind = SharedKernelGP if targets.dim() > 1 and targets.shape[-1] > 1 else DistributionGP
    return with_known_level(set_values(kind(ROWS[:60], targets[:60], make_kernel(), **options)))


def set_values(model: Any) -> Any:
    if not isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        model.likelihood.noise = NOISE
    constant = model.mean_module.constant
    model.mean_module.constant = 0.3 * torch.arange(1, 1 + constant.numel()).reshape(constant.shape)
    return model


def log_likelihood(model: DistributionGP) -> Tensor:
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    prior = sum(p.log_prob(f(m)).sum() for _, m, p, f, _ in model.named_priors())
    value = mll(model(*model.train_inputs), model.train_targets) * model.train_targets.shape[-1]
    outputs = model.num_outputs
    return (
        (value - prior).sum().detach() if outputs == 1 else (value.sum() - outputs * prior).detach()
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "one": {},
    "column": {"targets": TARGETS.unsqueeze(-1)},
    "several": {"targets": SEVERAL},
    "sampling-noise": {"sampling_noise": True},
    "untransformed": {"targets": TARGETS / 100, "outcome_transform": None},
    "known": {"train_Yvar": TARGETS[:60] * 0.02 + 0.1},
}


class TestExactness:
    """With all clouds inducing, the model is the exact one: up to the jitter, 1e-8 of the noise."""

    @pytest.mark.parametrize("name", OPTIONS)
    @pytest.mark.parametrize("noise", [True, False])
    def test_predictions(self, name: str, noise: bool) -> None:
        sparse, exact = make_sparse(**OPTIONS[name]), make_exact(**OPTIONS[name])
        found, expected = (m.predict(NEW, observation_noise=noise) for m in (sparse, exact))
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("name", OPTIONS)
    def test_bound(self, name: str) -> None:
        sparse, exact = make_sparse(**OPTIONS[name]), make_exact(**OPTIONS[name])
        torch.testing.assert_close(sparse.bound(), log_likelihood(exact), rtol=0, atol=1e-5)

    def test_known_noise_of_several_outputs(self) -> None:
        targets = SEVERAL[:60]
        variances = 0.01 * targets.square() + 0.01
        sparse = SparseDistributionGP(ROWS[:60], targets, make_kernel(), train_Yvar=variances)
        for output in range(3):
            exact = with_known_level(
                DistributionGP(
                    ROWS[:60], targets[:, output], make_kernel(), train_Yvar=variances[:, output]
                )
            )
            found = tuple(values[:, output] for values in sparse.predict(NEW))
            torch.testing.assert_close(found, exact.predict(NEW), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("several", [False, True])
    def test_joint_posteriors(self, several: bool) -> None:
        targets = SEVERAL if several else TARGETS
        batches = NEW.unflatten(0, (5, 2))
        found = make_sparse(targets).posterior(batches, observation_noise=True)
        expected = make_exact(targets).posterior(batches, observation_noise=True)
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            found.distribution.covariance_matrix,
            expected.distribution.covariance_matrix,
            rtol=1e-6,
            atol=1e-6,
        )
        assert found.rsample(torch.Size([7])).shape == (7, 5, 2, 3 if several else 1)

    @pytest.mark.parametrize("outputs", [[-1], [2, 0], [1, 1]])
    @pytest.mark.parametrize("noise", ["none", "likelihood", "given"])
    def test_some_of_the_outputs(self, outputs: list[int], noise: str) -> None:
        given = torch.arange(1.0, 31.0).double().reshape(10, 3)
        options: dict[str, Any] = {"none": False, "likelihood": True, "given": given}
        found, expected = (
            model.posterior(NEW, output_indices=outputs, observation_noise=options[noise])
            for model in (make_sparse(SEVERAL), make_exact(SEVERAL))
        )
        assert found.mean.shape == (10, len(outputs))
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.variance, expected.variance, rtol=1e-6, atol=1e-6)
        with pytest.raises(ValueError, match=r"Expected output_indices from 0 to 2, got \[3\]"):
            make_exact(SEVERAL).posterior(NEW, [3])


def dense(sparse: SparseDistributionGP, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bound, and means and variances of the function at new clouds, by N x N matrices."""
    features = sparse.summed().features
    train, new = ROWS[:60], NEW
    with torch.no_grad():
        phi, psi = features(train), features(new)
        kernel = sparse.covar_module
        values = sparse.outcome_transform(TARGETS[:60].unsqueeze(-1))[0].squeeze(-1)
        residual = values - sparse.mean_module.constant
        low_rank = phi @ phi.T + noise.diag()
        normal = torch.distributions.MultivariateNormal(torch.zeros(60).double(), low_rank)
        left = kernel(train).to_dense().diagonal() - phi.square().sum(-1)
        bound = normal.log_prob(residual) - 0.5 * (left / noise).sum()
        gain = psi @ phi.T @ low_rank.inverse()
        mean = sparse.mean_module.constant + gain @ residual
        variance = kernel(new).to_dense().diagonal() - (gain * (psi @ phi.T)).sum(-1)
    return bound, mean, variance


class TestApproximation:
    @pytest.mark.parametrize("sampling_noise", [False, True])
    def test_agrees_with_dense_matrices(self, sampling_noise: bool) -> None:
        model = make_sparse(num_inducing=20, sampling_noise=sampling_noise)
        noise = torch.full((60,), NOISE).double()
        if sampling_noise:
            model.likelihood.sampling_noise = 0.4
            sizes = 1 / torch.stack([w.square().sum() / w.sum() ** 2 for w in WEIGHTS[:60]])
            noise = noise + 0.4 * sizes.log().mean().exp() / sizes
        bound, mean, variance = dense(model, noise)
        torch.testing.assert_close(model.bound(), bound)
        scale, centre = model.outcome_transform.stdvs, model.outcome_transform.means
        found = model.predict(NEW, observation_noise=False)
        expected = (scale * mean + centre).squeeze(), (scale * variance.sqrt()).squeeze()
        torch.testing.assert_close(found, expected)

    def test_bound_is_below_the_likelihood_and_grows(self) -> None:
        exact = log_likelihood(make_exact())
        bounds = [make_sparse(num_inducing=m).bound() for m in (5, 15, 30, 60)]
        assert all(low < high for low, high in itertools.pairwise(bounds))
        assert bounds[-2] < exact

    def test_leave_one_out_is_leaving_out(self) -> None:
        model = make_sparse(num_inducing=20)
        mean, std = model.leave_one_out(observation_noise=False)
        summed = model.summed()
        for index in (0, 13, 59):
            rest = [i for i in range(60) if i != index]
            other = copy.deepcopy(model)
            part = model.piece_sums(model.summed().features)(0, ROWS[rest], TARGETS[rest])
            other.take_sums(summed.features, part)
            found = other.predict(ROWS[[index]], observation_noise=False)
            torch.testing.assert_close(found[0].squeeze(), mean[index])
            torch.testing.assert_close(found[1].squeeze(), std[index], rtol=1e-6, atol=1e-9)


class Parts:
    """Clouds in pieces, by the numbers of their first clouds."""

    def __init__(self, *starts: int, **content: Any) -> None:
        self.starts, self.num_pieces = starts, len(starts) - 1
        self.content = {"X": BAGS, "targets": TARGETS} | content

    def piece(self, index: int) -> Any:
        part = slice(*self.starts[index : index + 2])
        return tuple(values[part] for values in self.content.values())

    def sample(self, n: int, seed: int) -> Any:
        return tuple(values[:60] for values in self.content.values())


class TestPieces:
    def test_targets_and_known_variances_are_checked_where_they_are_read(self) -> None:
        def model(variances: Any, targets: Tensor = TARGETS) -> SparseDistributionGP:
            data = Parts(0, 40, 70, targets=targets, variances=variances)
            return SparseDistributionGP(data, covar_module=make_kernel(), num_inducing=20)

        given = torch.linspace(0.1, 0.2, 70).double()
        expected = model(given.unsqueeze(-1)).predict(NEW)
        assert all(map(torch.equal, model(given.numpy()).predict(NEW), expected))
        nothing = torch.where(torch.arange(70) == 65, torch.nan, TARGETS)
        with pytest.raises(ValueError, match=r"piece 1: Expected finite targets, .*cloud 25"):
            model(given, nothing).predict(NEW)
        given[65] = 0.0
        with pytest.raises(ValueError, match=r"piece 1: Expected positive variances, .*cloud 25"):
            model(given).predict(NEW)

    def test_a_part_of_the_sample_is_random_and_in_order(self) -> None:
        data = SampledPieces.read(
            ROWS, TARGETS, num_inducing=5, seed=0, client=None, progress=False
        )
        (X, y), (more, _) = data.part(9), data.part(30)
        places = [int((row == ROWS).all(-1).nonzero()) for row in X]
        assert places != list(range(9))
        assert len(places) == 9
        assert places == sorted(places)
        assert torch.equal(y.flatten(), TARGETS[places])
        assert set(map(tuple, X.tolist())) < set(map(tuple, more.tolist()))

    @pytest.mark.parametrize("size", [7, 30, 60])
    def test_any_number_of_pieces(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        model, other = make_sparse(num_inducing=20), make_sparse(num_inducing=20)
        predicted, expected_bound = model.predict(NEW), model.bound()
        monkeypatch.setattr("gp_distributions.measures.inputs._PIECE", size)
        assert len(other.training_data().pieces) == -(-60 // size)
        torch.testing.assert_close(other.predict(NEW), predicted, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(other.bound(), expected_bound, rtol=1e-10, atol=1e-10)


class TestHyperparameters:
    @pytest.mark.parametrize("name", ["covar_module", "input_transform", "outcome_transform"])
    def test_sums_follow_the_modules(self, name: str) -> None:
        gaussian = SlicedWassersteinKernel(2, profile="gaussian", num_slices=10, num_quantiles=20)
        gaussian.lengthscale = 3.0
        gaussian = ScaleKernel(gaussian)
        gaussian.outputscale = 1.7
        centred = Standardize(1)
        centred(TARGETS[:60].unsqueeze(-1) * 2 - 1)
        part = {
            "covar_module": gaussian,
            "input_transform": halving(ROWS.shape[-1]),
            "outcome_transform": centred.eval(),
        }[name]
        model = make_sparse(num_inducing=20)
        assert {*model.covar_module.state_dict()} == {*gaussian.state_dict()}
        before = model.predict(NEW)[0]
        setattr(model, name, part)
        kernel = {"covar_module": make_kernel()} | {name: part}
        other = SparseDistributionGP(ROWS[:60], TARGETS[:60], num_inducing=20, **kernel)
        set_values(other)
        assert not torch.equal(model.predict(NEW)[0], before)
        assert all(map(torch.equal, model.predict(NEW), other.predict(NEW)))

    def test_predictions_change_nothing(self) -> None:
        model = make_sparse(num_inducing=20)
        expected = model.predict(NEW)
        model.train()  # transforms in training mode would adapt to what they see
        model.predict(ROWS[:5])
        model.posterior(NEW.unsqueeze(-2)).mean.sum()
        model.leave_one_out()
        assert all(map(torch.equal, model.predict(NEW), expected))


class TestBoTorch:
    def test_gradients(self) -> None:
        model = make_sparse(num_inducing=20)
        X = PointClouds(BAGS.points[60:64, :5]).pack().unflatten(0, (2, 2)).requires_grad_()

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            posterior = model.posterior(X)
            return posterior.mean, posterior.distribution.covariance_matrix

        assert torch.autograd.gradcheck(moments, X, atol=1e-5)

    def test_gradients_at_inducing_clouds_are_finite(self) -> None:
        model = make_sparse(num_inducing=20)
        X = model.summed().features.rows[:3].clone().requires_grad_()
        model.posterior(X.unsqueeze(-2)).variance.sum().backward()
        assert bool(X.grad.isfinite().all())


class TestInputs:
    @pytest.mark.parametrize("name", OPTIONS)
    def test_no_clouds(self, name: str) -> None:
        model, exact = make_sparse(**OPTIONS[name]), make_exact(**OPTIONS[name])
        empty = (BAGS[:0], NEW[:0], NEW.unflatten(0, (5, 2))[:, :0])
        for X in empty:
            for found, expected in zip(model.predict(X), exact.predict(X), strict=True):
                assert found.shape == expected.shape

    @pytest.mark.parametrize("name", OPTIONS)
    def test_models_in_single_precision_predict_in_it(self, name: str) -> None:
        model = make_sparse(**OPTIONS[name])
        wanted = [*model.predict(NEW), *model.leave_one_out()]
        single = copy.deepcopy(model).to(torch.float32)
        found = [*single.predict(NEW), *single.leave_one_out()]
        for result, double in zip(found, wanted, strict=True):
            assert result.dtype == torch.float32
            torch.testing.assert_close(result.double(), double, rtol=1e-3, atol=1e-3)
        posterior = single.posterior(NEW)
        assert posterior.mean.dtype == posterior.variance.dtype == torch.float32
        assert posterior.rsample().dtype == torch.float32

    def test_input_transforms(self) -> None:
        transform = halving(ROWS.shape[-1])
        model = make_sparse(num_inducing=20, input_transform=transform)
        other = set_values(
            SparseDistributionGP(transform(ROWS[:60]), TARGETS[:60], make_kernel(), num_inducing=20)
        )
        torch.testing.assert_close(model.predict(NEW)[0], other.predict(transform(NEW))[0])

    def test_default_kernel_and_copies_of_clouds(self) -> None:
        clouds = BAGS[[0, 1, 2, 3, 0, 1, 2, 3]]
        model = SparseDistributionGP(clouds, TARGETS[:4].repeat(2), num_inducing=6)
        assert len(model.summed().features.rows) == 4

    def test_mistakes_are_named(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"train_Y": None}, "Expected train_Y"),
            ({"train_X": ROWS[:60].unsqueeze(0)}, "without a batch axis"),
            ({"sampling_noise": True, "train_Yvar": TARGETS[:60]}, "at most one of"),
            ({"covar_module": None}, "covar_module is needed"),
        ]
        for options, message in cases:
            given = {"train_X": ROWS[:60], "train_Y": TARGETS[:60], "covar_module": make_kernel()}
            with pytest.raises(ValueError, match=message):
                SparseDistributionGP(**given | options)
        with pytest.raises(ValueError, match="one noise variance, which all outputs share, got 3"):
            make_sparse(SEVERAL, likelihood=GaussianLikelihood(batch_shape=torch.Size([3])))
        with pytest.raises(TypeError, match="GaussianLikelihood"):
            make_sparse(likelihood=FixedNoiseGaussianLikelihood(torch.ones(60)))


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_predictions_in_single_precision_are_close(offset: float) -> None:
    rows = PointClouds(BAGS.points + offset, BAGS.weights).pack()
    double, single = (
        set_values(
            SparseDistributionGP(
                rows[:60], TARGETS[:60], make_kernel(), num_inducing=25, feature_dtype=dtype
            )
        )
        for dtype in (torch.float64, torch.float32)
    )
    (mean, std), (expected, scale) = single.predict(rows[60:]), double.predict(rows[60:])
    assert mean.dtype == torch.float64
    assert not torch.equal(mean, expected)
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-3 * float(scale.min()))
    torch.testing.assert_close(std, scale, rtol=1e-3, atol=0)
    loaded = reloaded(single)
    assert loaded.feature_dtype == torch.float32
    assert all(map(torch.equal, loaded.predict(rows[60:]), (mean, std)))
    assert single.subset_output([0]).feature_dtype == torch.float32
    with pytest.raises(ValueError, match=r"Expected feature_dtype .* got torch.float16"):
        make_sparse(feature_dtype=torch.float16)
