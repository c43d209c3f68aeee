"""Acquisition functions of BoTorch on clouds: values and gradients agree with those on features."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    qKnowledgeGradient,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from cases import as_rows, random_clouds, with_known_level
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from gp_distributions import DistributionGP, DistributionKernel, PointClouds, SlicedWasserstein

# Without padding, because finite differences would make its weights negative.
ROWS = as_rows(random_clouds(20, sizes=(8, 8)))
TRAIN, NEW = ROWS[:12], ROWS[12:]
POINTS = TRAIN.unflatten(-1, (8, 3))[..., :2]
TARGETS = torch.stack([POINTS.square().mean((-2, -1)), POINTS[..., 0].mean(-1)], dim=-1)
DISTANCE = SlicedWasserstein(2, num_slices=8, num_quantiles=8)


def sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([8]), seed=0)


def models(outputs: int) -> tuple[DistributionGP, SingleTaskGP]:
    """The same GP on rows and on features of them."""
    batch_shape = torch.Size([outputs] if outputs > 1 else [])
    kernel = DistributionKernel(DISTANCE, "gaussian", batch_shape=batch_shape)
    plain = RBFKernel(batch_shape=batch_shape)
    for each in (kernel, plain):
        each.lengthscale = 1.5
    model = DistributionGP(
        TRAIN, TARGETS[:, :outputs], ScaleKernel(kernel, batch_shape=batch_shape)
    )
    with_known_level(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)
        features = SingleTaskGP(
            DISTANCE.embed(TRAIN),
            TARGETS[:, :outputs],
            covar_module=ScaleKernel(plain, batch_shape=batch_shape),
            likelihood=copy.deepcopy(model.likelihood),
        )
    return model.eval(), features.eval()


Make = Callable[[Any, Tensor], AcquisitionFunction]
ACQUISITIONS: dict[str, tuple[int, int, Make]] = {
    "qLogNEI": (
        1,
        2,
        lambda model, X: qLogNoisyExpectedImprovement(model, X, sampler(), prune_baseline=False),
    ),
    "qKG": (
        1,
        3,
        lambda model, _: qKnowledgeGradient(
            model, 2, SobolQMCNormalSampler(torch.Size([2]), seed=0)
        ),
    ),
    "qLogNEHVI": (
        2,
        2,
        lambda model, X: qLogNoisyExpectedHypervolumeImprovement(
            model, TARGETS.amin(0), X, sampler()
        ),
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_values_and_gradients_are_those_on_features(name: str) -> None:
    outputs, q, make = ACQUISITIONS[name]
    model, plain = models(outputs)
    X = NEW[: 2 * q].unflatten(0, (2, q)).clone().requires_grad_()
    results = []
    for acquisition, inputs in (
        (make(model, TRAIN), X),
        (make(plain, DISTANCE.embed(TRAIN)), DISTANCE.embed(X)),
    ):
        values = acquisition(inputs)
        assert values.shape == (2,)
        results.append((values.detach(), *torch.autograd.grad(values.sum(), X)))
    assert bool(results[0][1].isfinite().all())
    assert float(results[0][1].abs().max()) > 0
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-7)


def test_functions_of_botorch_that_read_tensors_say_what_they_take() -> None:
    clouds = PointClouds(POINTS)
    with pytest.raises(AttributeError, match=r"PointClouds.*take rows, X\.pack\(\)"):
        qLogNoisyExpectedImprovement(models(1)[0], clouds)
