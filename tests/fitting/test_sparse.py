"""Fits of sparse models: the exact model of a sample, one pass, then outputscale and noise."""

import math
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    SharedKernelGP,
    SlicedWasserstein,
    SparseDistributionGP,
    fit,
)
from gp_distributions.calibration import nlpd
from gp_distributions.fitting import sparse as fitting
from gp_distributions.fitting.passes import sums_over_pieces
from gp_distributions.models.collapsed import piece_sums
from gp_distributions.models.pieces import MemoryPieces

CLOUDS = random_clouds(300, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
NOISE = torch.randn(300, generator=torch.Generator().manual_seed(1)).double()
TARGETS = torch.stack([points.square().mean() for points, _ in CLOUDS]) + 0.1 * NOISE
SEVERAL = torch.stack([TARGETS, ROWS[:, :9].sum(-1)], -1)


def make_kernel() -> ScaleKernel:
    return ScaleKernel(DistributionKernel(SlicedWasserstein(2, num_slices=10, num_quantiles=10)))


def values(model: Any) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"sampling_noise": True}, {"train_Yvar": True}], ids=["plain", "sizes", "known"]
)
def test_all_clouds_inducing_is_the_exact_fit(several: bool, options: dict[str, Any]) -> None:
    targets = (SEVERAL if several else TARGETS)[:60]
    options = dict(options)
    if options.get("train_Yvar"):
        options["train_Yvar"] = 0.1 + 0 * targets
    model = SparseDistributionGP(ROWS[:60], targets, make_kernel(), **options)
    fit(model, restarts=0, progress=False)
    if several and options:
        assert bool(model.predict(ROWS[60:])[1].isfinite().all())
        return
    exact = (SharedKernelGP if several else DistributionGP)(
        ROWS[:60], targets, make_kernel(), **options
    )
    fit(exact, restarts=0)
    for found, wanted in zip(model.predict(ROWS[60:]), exact.predict(ROWS[60:]), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


class TestPolish:
    @pytest.fixture
    def pair(self, monkeypatch: pytest.MonkeyPatch) -> tuple[SparseDistributionGP, Any]:
        """A model before and after the update of outputscale, noise and mean."""
        model = SparseDistributionGP(ROWS[:250], TARGETS[:250], make_kernel(), num_inducing=40)
        before: dict[str, Any] = {}
        polished = fitting._polished

        def noted(*arguments: Any) -> Any:
            before["values"], before["features"], before["sums"] = (
                values(model),
                arguments[1].features,
                arguments[2],
            )
            return polished(*arguments)

        monkeypatch.setattr(fitting, "_polished", noted)
        fit(model, restarts=0, progress=False)
        return model, before

    def test_sums_are_those_of_the_new_kernel(self, pair: tuple[SparseDistributionGP, Any]) -> None:
        model, before = pair
        after = values(model)
        changed = {n for n in after if not torch.equal(after[n], before["values"][n])}
        assert changed == {
            "covar_module.raw_outputscale",
            "likelihood.noise_covar.raw_noise",
            "mean_module.raw_constant",
        }
        found = piece_sums(model.piece_state(), ROWS[:250], TARGETS[:250])
        torch.testing.assert_close(model.summed().sums.gram, found.gram)
        torch.testing.assert_close(model.summed().sums.residual, found.residual)

    def test_maximises_the_leave_one_out_density(
        self, pair: tuple[SparseDistributionGP, Any]
    ) -> None:
        model, before = pair
        with torch.no_grad():
            density = fitting._LeaveOneOut(model, model.piece_state(), model.summed().sums)
        one = torch.ones(1).double()
        mean, std = model.leave_one_out()
        unit = float(model.outcome_transform.stdvs) * math.sqrt(2 * math.pi)
        expected = -float(nlpd(TARGETS[:250], mean, std)) + math.log(unit)
        assert density(one, one).item() == pytest.approx(expected, abs=1e-8)
        for factor in (0.9, 1.1):
            for factors in ((factor * one, one), (one, factor * one)):
                assert density(*factors).item() < expected
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(before["values"][key])
        model.take_sums(before["features"], before["sums"])
        mean, std = model.leave_one_out()
        assert -float(nlpd(TARGETS[:250], mean, std)) + math.log(unit) < expected


def test_fits_are_reproducible() -> None:
    models = [
        fit(SparseDistributionGP(ROWS, TARGETS, make_kernel(), num_inducing=20), restarts=0)
        for _ in range(2)
    ]
    assert torch.equal(models[0].predict(ROWS[:5])[0], models[1].predict(ROWS[:5])[0])


def test_fixed_hyperparameters_stay() -> None:
    kernel = make_kernel()
    kernel.outputscale = 2.0
    kernel.raw_outputscale.requires_grad_(False)
    model = SparseDistributionGP(ROWS, TARGETS, kernel, num_inducing=20)
    model.likelihood.noise = 0.3
    model.likelihood.noise_covar.raw_noise.requires_grad_(False)
    fit(model, restarts=0)
    assert float(kernel.outputscale.detach()) == pytest.approx(2.0)
    assert float(model.likelihood.noise.detach()) == pytest.approx(0.3)


def test_arguments_are_checked() -> None:
    model = SparseDistributionGP(ROWS, TARGETS, make_kernel(), num_inducing=20)
    with pytest.raises(ValueError, match="init="):
        fit(model, init="best")
    with pytest.raises(ValueError, match="with its training data"):
        fit(SparseDistributionGP(ROWS, SEVERAL, make_kernel()).subset_output([0]))


class TestPasses:
    def test_sums_are_added_in_order(self) -> None:
        data = MemoryPieces(ROWS, TARGETS.unsqueeze(-1), size=70)
        found = sums_over_pieces(
            lambda state, X, y: [state * float(y.sum())], 2.0, data, progress=False
        )
        assert found == [2.0 * float(part.sum()) for part in TARGETS.split(70)]

    def test_progress_bars_wait_and_can_be_silenced(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = MemoryPieces(ROWS, TARGETS.unsqueeze(-1), size=70)
        for progress in (True, False):
            sums_over_pieces(lambda state, X, y: y.sum(), None, data, progress=progress)
        assert capsys.readouterr().err == ""
