"""Fits of sparse models: the exact model of a sample, one pass, then outputscale and noise."""

import copy
import math
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds, with_known_level
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    SharedKernelGP,
    SlicedWasserstein,
    SparseDistributionGP,
    fit,
)
from gp_distributions.fitting import sparse as fitting
from gp_distributions.metrics import nlpd

CLOUDS = random_clouds(300, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
NOISE = torch.randn(300, generator=torch.Generator().manual_seed(1)).double()
TARGETS = torch.stack([points.square().mean() for points, _ in CLOUDS]) + 0.1 * NOISE
SEVERAL = torch.stack([TARGETS, ROWS[:, :9].sum(-1)], -1)


def make_kernel() -> ScaleKernel:
    return ScaleKernel(DistributionKernel(SlicedWasserstein(2, num_slices=10, num_quantiles=10)))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"sampling_noise": True}, {"train_Yvar": True}], ids=["plain", "sizes", "known"]
)
def test_all_clouds_inducing_is_the_exact_fit(several: bool, options: dict[str, Any]) -> None:
    targets = (SEVERAL if several else TARGETS)[:60]
    known = options.get("train_Yvar", False)
    given = {"train_Yvar": 0.1 + 0 * targets} if known else options
    model = SparseDistributionGP(ROWS[:60], targets, make_kernel(), **given)
    if several:  # the model of several outputs that share one covariance matrix has no such options
        given = {"likelihood": copy.deepcopy(model.likelihood)} if options else {}
        if known:
            variances = 0.1 / targets.var(0).unsqueeze(-1)
            given = {"likelihood": FixedNoiseGaussianLikelihood(variances.expand(2, 60))}
    exact = (SharedKernelGP if several else DistributionGP)(
        ROWS[:60], targets, make_kernel(), **given
    )
    fit(model, restarts=0, progress=False)
    with_known_level(fit(exact, restarts=0))
    for noise in (True, False) if not (several and known) else (False,):
        found, wanted = (m.predict(ROWS[60:], observation_noise=noise) for m in (model, exact))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_outputscale_and_noise_maximise_the_leave_one_out_density() -> None:
    model = SparseDistributionGP(ROWS[:250], TARGETS[:250], make_kernel(), num_inducing=40)
    fit(model, restarts=0, progress=False)
    sums = model.piece_sums(model.summed().features)(0, ROWS[:250], TARGETS[:250])
    torch.testing.assert_close(model.summed().sums.gram, sums.gram)
    torch.testing.assert_close(model.summed().sums.residual, sums.residual)
    one, unit = torch.ones(1).double(), float(model.outcome_transform.stdvs)
    with torch.no_grad():
        density = fitting._LeaveOneOut(model, model.summed().features, model.summed().sums)
    expected = math.log(unit * math.sqrt(2 * math.pi)) - float(
        nlpd(TARGETS[:250], *model.leave_one_out())
    )
    assert density(one, one).item() == pytest.approx(expected, abs=1e-8)
    for factor in (0.9, 1.1):
        for factors in ((factor * one, one), (one, factor * one)):
            assert density(*factors).item() < expected


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


def test_a_fit_computes_in_double_precision() -> None:
    model = SparseDistributionGP(ROWS, TARGETS, make_kernel(), num_inducing=20).to(torch.float32)
    assert model.predict(ROWS[:2])[0].dtype == torch.float32
    assert fit(model, restarts=0).predict(ROWS[:2])[0].dtype == torch.float64


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="with its training data"):
        fit(SparseDistributionGP(ROWS, SEVERAL, make_kernel()).subset_output([0]))
