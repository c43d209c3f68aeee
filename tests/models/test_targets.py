"""Targets that are missing or no numbers: the error names the cloud, and what to do."""

from typing import Any

import pandas as pd
import pytest
import torch
from botorch.models import ModelListGP
from cases import as_rows, random_clouds
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    fit,
)

CLOUDS = PointClouds.unpack(as_rows(random_clouds(20, sizes=(5, 12))), 2)
TARGETS = torch.stack([CLOUDS.points.square().sum((1, 2)), CLOUDS.points.sum((1, 2))], dim=-1)
MISSING = TARGETS.clone()
MISSING[3, 1] = MISSING[5:9, 0] = torch.nan


def test_the_name_of_a_cloud_without_a_target() -> None:
    names = [f"patient {i}" for i in range(20)]
    targets = pd.Series(MISSING[:, 1].numpy(), index=names)
    with pytest.raises(ValueError, match=r"cloud 3 \(named 'patient 3'\) is .*nan"):
        DistributionGP(CLOUDS, targets)
    labels = pd.Series(["a", "b", None, "b"] * 5, index=names)
    with pytest.raises(ValueError, match=r"cloud 2 \(named 'patient 2'\) is (None|nan)"):
        ClassificationGP(CLOUDS, labels)


def test_numbers_are_not_labels() -> None:
    with pytest.raises(ValueError, match=r"got continuous numbers, such as .*Use DistributionGP"):
        ClassificationGP(CLOUDS, TARGETS[:, 0])


@pytest.mark.parametrize("model", [DistributionGP, ClassificationGP])
def test_dictionaries_are_refused(model: Any) -> None:
    with pytest.raises(TypeError, match=r"\] for (label|name) in clouds\.labels\]"):
        model(CLOUDS, dict(enumerate(TARGETS[:, 0].tolist())))


def test_outputs_of_their_own_clouds_are_joined() -> None:
    for model in (DistributionGP, SharedKernelGP):
        with pytest.raises(ValueError, match=r"cloud 3 is .*nan.* for each output.*ModelListGP"):
            model(CLOUDS, MISSING)
    models = []
    for targets in MISSING[:15].T:
        known = targets.isfinite()
        kernel = ScaleKernel(SlicedWassersteinKernel(2, num_slices=10))
        models.append(fit(DistributionGP(CLOUDS[:15][known], targets[known], kernel), restarts=0))
    assert [len(model.train_targets) for model in models] == [11, 14]
    posterior = ModelListGP(*models).posterior(CLOUDS[15:], observation_noise=True)
    assert posterior.mean.shape == (5, 2)
    for output, model in enumerate(models):
        mean, std = model.predict(CLOUDS[15:])
        torch.testing.assert_close(posterior.mean[:, output], mean)
        torch.testing.assert_close(posterior.variance[:, output].sqrt(), std)
