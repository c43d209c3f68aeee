"""Fits warn where intervals hang on hyperparameters that the data do not determine."""

import warnings

import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    fit,
    integrate_hyperparameters,
)
from gp_distributions.fitting import marginal_likelihood
from gp_distributions.fitting.determination import determination, warn_of_undetermined
from gp_distributions.kernels.covariances import covariance
from gp_distributions.warnings import UndeterminedWarning, silenced


def data(count: int, noise: float, seed: int = 0) -> tuple[PointClouds, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.rand(count, 1, 1, generator=generator, dtype=torch.float64)
    points = centres + torch.randn(count, 10, 1, generator=generator, dtype=torch.float64) / 10
    errors = noise * torch.randn(count, generator=generator, dtype=torch.float64)
    return PointClouds(points), (2 * centres.flatten()).sin() + errors


def overconfident() -> DistributionGP:
    """A model of unrelated targets whose hyperparameters claim that they are almost free of noise."""
    X, _ = data(12, 0.0)
    y = torch.tensor([1.0, -1, 1, 1, -1, 1, -1, -1, 1, -1, -1, 1], dtype=torch.float64)
    model = DistributionGP(X, y, ScaleKernel(SlicedWassersteinKernel(1)))
    model.covar_module.base_kernel.lengthscale = 3.0
    model.likelihood.noise = 1e-3
    return model.eval()


class TestDetermination:
    def test_widening_is_the_ratio_of_leave_one_out_widths(self) -> None:
        X, y = data(12, 0.3)
        with silenced():
            model = fit(DistributionGP(X, y), restarts=0)
        found = determination(model)
        assert found is not None
        mixture = integrate_hyperparameters(model)
        rows, eye = model.train_inputs[0], torch.eye(12, dtype=torch.float64)
        weights = mixture.weights
        total = torch.zeros(12, dtype=torch.float64)
        with torch.no_grad():
            K = covariance(mixture.covar_module, rows)
            targets, ones = model.train_targets, torch.ones(12, dtype=torch.float64)
            for i, matrix in enumerate(K):
                for j, ratio in enumerate(mixture.ratios[i]):
                    inverse = torch.linalg.inv(matrix + ratio * eye)
                    rest = targets - ones @ inverse @ targets / (ones @ inverse @ ones)
                    scale = rest @ inverse @ rest / 11
                    total += weights[i, j] * scale / inverse.diagonal()
            own = covariance(model.covar_module, rows) + model.likelihood.noise * eye
            widths = torch.linalg.inv(own).diagonal()
        expected = (total * widths).log().mean().div(2).exp().item()
        assert found.widening == pytest.approx(expected, rel=1e-6)

    def test_the_hyperparameter_and_its_range_are_those_of_the_mixture(self) -> None:
        found = determination(overconfident())
        assert found is not None
        assert found.name == "covar_module.base_kernel.lengthscale"
        mixture = integrate_hyperparameters(overconfident())
        share = mixture.weights.sum(-1)
        values = mixture.covar_module.base_kernel.lengthscale.flatten()
        inside = (values >= found.low * 0.999) & (values <= found.high * 1.001)
        # The range ends at points of the grid, the first ones beyond the quantiles.
        assert 0.95 <= share[inside].sum().item() <= 1
        assert share[values < found.low * 0.999].sum() <= 0.025
        assert share[values > found.high * 1.001].sum() <= 0.025

    def test_good_hyperparameters_need_less_widening(self) -> None:
        found = determination(overconfident())
        assert found is not None
        X, y = data(12, 0.0, seed=3)
        model = DistributionGP(X, y, ScaleKernel(SlicedWassersteinKernel(1)))
        with silenced():
            fit(model)
        better = determination(model)
        assert better is not None
        assert better.widening < found.widening

    def test_models_that_are_not_examined(self) -> None:
        X, y = data(120, 0.1)
        both = torch.stack([y, -y], dim=-1)
        kernel = SlicedWassersteinKernel(1, batch_shape=torch.Size([2]))
        large = DistributionGP(X, y).eval()
        outputs = DistributionGP(X[:12], both[:12], kernel).eval()
        three = MMDKernel(1) * SlicedWassersteinKernel(1) * SlicedWassersteinKernel(1, p=1)
        many = DistributionGP(X[:12], y[:12], ScaleKernel(three)).eval()
        classes = ClassificationGP(X[:12], ["a", "b"] * 6, SlicedWassersteinKernel(1)).eval()
        equal = DistributionGP(X[:12], torch.ones(12), SlicedWassersteinKernel(1)).eval()
        few = DistributionGP(X[:9], y[:9], SlicedWassersteinKernel(1)).eval()
        known = DistributionGP(X[:12], y[:12]).eval()
        known.likelihood.raw_noise.requires_grad_(False)
        bounded = SlicedWassersteinKernel(1, lengthscale_constraint=Interval(0.1, 2.0))
        limited = DistributionGP(X[:12], y[:12], bounded).eval()
        extreme = DistributionGP(X[:12], y[:12]).eval()
        extreme.likelihood.noise = 1e-6  # the mixture has ratios of noise to outputscale from 1e-4
        for model in (large, outputs, many, classes, equal, few, known, limited, extreme):
            assert determination(model) is None


class TestWarning:
    @pytest.mark.parametrize("init", ["median", "current"])
    def test_clouds_that_coincide(self, init: str) -> None:
        X, y = data(12, 0.3)
        model = DistributionGP(PointClouds(X.points[:1].expand(12, -1, -1)), y)
        with (
            silenced(UndeterminedWarning),
            warnings.catch_warnings(action="error"),
        ):
            fit(model, init=init, restarts=0)
        with pytest.warns(UndeterminedWarning, match="All 12 training clouds coincide for Sliced"):
            fit(model, init=init, restarts=0)
        with silenced(UndeterminedWarning):
            mean, _ = model.predict(X[3:5])
        torch.testing.assert_close(mean[0], mean[1], rtol=1e-3, atol=0)

    def test_is_not_sought_where_it_is_silenced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(model: object) -> None:
            raise AssertionError

        monkeypatch.setattr("gp_distributions.fitting.determination.determination", fail)
        with silenced(UndeterminedWarning):
            warn_of_undetermined(overconfident())
        with pytest.raises(AssertionError):
            warn_of_undetermined(overconfident())

    def test_it_names_the_hyperparameter_and_the_remedy(self) -> None:
        with pytest.warns(
            UndeterminedWarning,
            match=r"12 clouds .* covar_module.base_kernel.lengthscale, .*integrate_hyper",
        ):
            warn_of_undetermined(overconfident())

    def test_fits_issue_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y = data(12, 0.2)
        warned: list[DistributionGP] = []
        monkeypatch.setattr(marginal_likelihood, "warn_of_undetermined", warned.append)
        model = fit(DistributionGP(X, y), restarts=0)
        assert warned == [model]

    def test_fits_of_sparse_models_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gp_distributions.fitting.determination._BOUND", 0.0)
        X, y = data(12, 0.2)
        with pytest.warns(UndeterminedWarning):
            fit(DistributionGP(X, y), restarts=0)
        fit(SparseDistributionGP(X, y), restarts=0)  # warnings are errors

    def test_ordinary_fits_are_silent(self) -> None:
        for seed in range(3):
            X, y = data(60, 0.2, seed)
            model = DistributionGP(X, y)
            before = model.state_dict().keys()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                fit(model)
            assert not model.training
            assert model.state_dict().keys() == before

    def test_the_fitted_model_is_not_changed(self) -> None:
        X, y = data(12, 0.5)
        model = DistributionGP(X, y, likelihood=GaussianLikelihood())
        with silenced():
            fit(model, restarts=0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        expected = model.predict(X)
        determination(model)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        torch.testing.assert_close(model.predict(X), expected, rtol=0, atol=0)
        assert all(p.requires_grad for p in model.parameters())
