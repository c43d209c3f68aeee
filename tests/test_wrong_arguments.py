"""Wrong arguments that were once accepted, or ended in errors from inside: findings of trials."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms.input import InputStandardize, InputTransform, Normalize, Warp
from gpytorch.kernels import RBFKernel

import gp_distributions as gd
from gp_distributions.metrics import calibration

CLOUDS = gd.PointClouds(np.random.default_rng(0).normal(size=(6, 4, 2)))
TIMES = pd.DataFrame({"bag": [1, 2], "t": pd.date_range("2020", periods=2)})
SHAPE = SimpleNamespace(__geo_interface__={"type": "LineString", "coordinates": [(0.0, 0.0)]})
DAYS = r"times to days by .* pandas\.Timedelta\('1D'\)"


def model() -> gd.DistributionGP:
    return gd.DistributionGP(CLOUDS, np.arange(6.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gd.SlicedWasserstein(2).squared(CLOUDS), r"PointClouds\. Pass X\.pack\(\)"),
        (lambda: gd.SlicedWasserstein(2).embed(torch.zeros(6)), "tensor of shape"),
        (lambda: gd.SlicedWasserstein(2).squared(CLOUDS.pack().to_sparse()), "dense tensor"),
        (lambda: gd.PointClouds.from_list(gd.SlicedWassersteinKernel(2)), "Expected a list"),
        (lambda: gd.DistributionGP(CLOUDS[:0], []), "at least one cloud"),
        (lambda: model().condition_on_observations(CLOUDS, [0.0]), "target for each of 6"),
        (lambda: gd.Gaussians([1.0, 2.0], [0.1, 0.2]), r"n numbers, .*shape \(n, 1\)"),
        (lambda: gd.PointClouds.from_frame(TIMES, bag="bag", columns="t"), DAYS),
        (lambda: gd.PointClouds.from_list([TIMES[["t"]]]), DAYS),
        (lambda: gd.MixedInputs(times=TIMES), DAYS),
        (lambda: gd.PointClouds.from_list([[1.0], []]), "Bag 1: .* groups without rows"),
        (lambda: CLOUDS["a"], r"labels that occur once in \[\], got 'a'"),
        (lambda: gd.fit(ModelListGP()), r"botorch\.fit_gpytorch_mll"),
        (lambda: gd.PointClouds.from_list(TIMES.groupby("bag")), r"dict\(iter\(frame\.groupby"),
        (
            lambda: gd.PointClouds([[[1.0], [np.nan]]]),
            "coordinate 0. Leave out atoms that lack one",
        ),
        (
            lambda: gd.PointClouds.from_frame(TIMES, bag="bag", columns=["bag", "t"]),
            r"got that of bags, 'bag', in \['bag', 't'\]",
        ),
        (
            lambda: gd.PointClouds.from_frame(TIMES.set_index("bag"), bag="bag", columns="t"),
            r"got none; .* frame\.reset_index\(\)",
        ),
        (
            lambda: gd.PointClouds.from_list([[1.0]] * 2, labels=["a", "a"])["a"],
            "once in .* got 'a'",
        ),
        (lambda: gd.EmbeddingTransformer().fit([]), "at least one sample, got an empty list"),
        (lambda: gd.Fourier("2"), "dim: expected an integer >= 1, got '2'"),
        (
            lambda: gd.MMDKernel(2, bandwith=1.0),
            r"options of MMDKernel .*bandwidth.* got 'bandwith'",
        ),
        (lambda: gd.DistributionKernel(gd.SlicedWasserstein), "got the class SlicedWasserstein"),
        (
            lambda: gd.DistributionGP(CLOUDS, np.arange(6.0), gd.SlicedWassersteinKernel),
            r"got the class SlicedWassersteinKernel\. Pass for example",
        ),
        (
            lambda: gd.DistributionGP(CLOUDS, np.arange(6.0), input_transform=gd.Decoder),
            r"got the class Decoder\.",
        ),
        (lambda: gd.fit(gd.DistributionGP), "got the class DistributionGP"),
        (lambda: gd.Gaussians.from_clouds([CLOUDS.points[0]]), "PointClouds, got list. Convert"),
        (lambda: gd.ReferenceMeasure.from_data(CLOUDS.points), "PointClouds, got Tensor. Convert"),
        (lambda: gd.measures.surroundings([CLOUDS.points[0]]), "PointClouds, got list. Convert"),
        (lambda: gd.mixed_kernel(CLOUDS), "MixedInputs or MixedEncoding, got PointClouds"),
        (lambda: gd.save([model()], "model.gp"), "got list"),
        (lambda: gd.MMDKernel(2)(CLOUDS), r"got PointClouds\. Pass clouds\.pack\(\)"),
        (lambda: model().predict([SHAPE]), r"shapes with PointClouds\.from_curves"),
        (
            lambda: gd.diagnose(CLOUDS, gd.MMDKernel(2)),
            "Expected a GPyTorch kernel, got PointClouds",
        ),
        (lambda: gd.diagnose(model(), CLOUDS), r"got DistributionGP\. .* model\.covar_module"),
        (lambda: gd.relevance(gd.DistributionGPRegressor()), r"Pass .* estimator\.model_"),
        (
            lambda: gd.MixedInputs(a=np.ones((2, 3, 2))),
            r"\(2, 3, 2\)\. Read .*PointClouds\.from_list",
        ),
        (
            lambda: gd.PointClouds.from_list([np.ones((2, n)) for n in (3, 4, 5)]),
            "expected 3 columns as in bag 0, got 4. An array has a row for each atom: transpose",
        ),
        (
            lambda: gd.DistributionGP(CLOUDS.points, np.arange(6.0)),
            r"\(6,\)\. A tensor is read as rows; .* PointClouds\(points\)",
        ),
        (lambda: model().predict(CLOUDS.points), r"not rows: pass PointClouds\(points\)"),
        (
            lambda: calibration(np.ones((5, 2)), np.ones((5, 2)), np.ones((5, 2))),
            r"one output at a time: y\[:, 0\]",
        ),
        (
            lambda: gd.DistributionGP(CLOUDS, np.arange(6.0), likelihood="poisson"),
            r"got str\. .* VariationalDistributionGP\(X, y, likelihood=\.\.\.\)",
        ),
        (
            lambda: gd.CurveGP(CLOUDS, np.ones((6, 2)), output_covar_module=RBFKernel()),
            "Expected positions",
        ),
        (
            lambda: gd.fit(gd.VariationalDistributionGP(CLOUDS, np.arange(6)), init="first"),
            "got 'first'",
        ),
    ],
    ids=range(43),
)
def test_errors_of_the_package(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=message):
        call()


@pytest.mark.parametrize("X", [CLOUDS, gd.Gaussians.from_clouds(CLOUDS)], ids=["clouds", "normal"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "transform", [Normalize, InputStandardize, lambda d: Warp(d=d, indices=[*range(d)])]
)
def test_transforms_of_columns_on_rows(X: Any, sparse: bool, transform: Any) -> None:
    made: InputTransform = transform(X.pack().shape[-1])
    kind = gd.SparseDistributionGP if sparse else gd.DistributionGP
    with pytest.raises(ValueError, match=r"leaves \w+ as they are, got .* ScaledDistance"):
        kind(X, np.arange(6.0), input_transform=made)
    X = gd.MixedInputs(b=np.arange(6.0), a=X)
    kind(X, np.arange(6.0), input_transform=Normalize(X.pack().shape[-1], indices=[0]))


def test_folders_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "none" / "model.gp"
    with pytest.raises(FileNotFoundError, match=r"existing folder, got .*model\.gp\. Create"):
        gd.save(model(), path)
