"""Relevance finds the blocks and coordinates that matter, in units that can be compared."""

import math
from typing import Any

import pytest
import torch
from cases import rand, randn
from torch import Tensor

import gp_distributions as gd
from gp_distributions.metrics import Relevance, RelevanceEntry

pytestmark = pytest.mark.usefixtures("short_fits")


def bags(num: int = 40, dim: int = 3, seed: int = 0) -> tuple[gd.PointClouds, Tensor]:
    """Bags, and the means of their second coordinate."""
    generator = torch.Generator().manual_seed(seed)
    means = randn(num, 1, dim, seed=generator)
    noise = randn(num, 10, dim, seed=generator)
    return gd.PointClouds(means + 0.3 * noise), means[:, 0, 1]


def kernel(dim: int = 3) -> gd.DistributionKernel:
    return gd.DistributionKernel(gd.SlicedWasserstein(dim, num_slices=10, num_quantiles=10))


def test_one_exchange_agrees_with_models_without_the_fold() -> None:
    X, y = bags(6)
    options: Any = {"outcome_transform": None, "sampling_noise": False}
    model = gd.fit(gd.DistributionGP(X, y, kernel(), **options), restarts=0)
    (found,) = gd.relevance(model, repeats=1).blocks
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    generator, losses = torch.Generator().manual_seed(0), torch.empty(6, dtype=torch.float64)
    for fold in order.tensor_split(3):
        kept = torch.tensor([i for i in range(6) if i not in fold])
        part = gd.DistributionGP(X[kept], y[kept], kernel(), **options)
        part.load_state_dict(model.state_dict())
        own = fold[torch.randperm(len(fold), generator=generator)]
        giver = own.roll(1)
        densities = []
        for inputs in (own, giver):
            mean, std = part.predict(X[inputs])
            normal = torch.distributions.Normal(mean, std)
            densities.append(normal.log_prob(y[own]))
        losses[own] = densities[0] - densities[1]
    assert found.loss == pytest.approx(losses.mean().item(), rel=1e-6)
    assert found.error == pytest.approx((losses.std() / math.sqrt(6)).item(), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_of_labels(classes: int) -> None:
    """One exchange agrees with classifiers without the fold, and sensitivities with differences."""
    X, y = bags(24)
    labels = y.argsort().argsort() * classes // 24
    model = gd.ClassificationGP(X, labels, kernel(), temperature=0.8).eval()
    found = gd.relevance(model, repeats=1)
    generator, losses = torch.Generator().manual_seed(0), torch.empty(24, dtype=torch.float64)
    for fold in torch.randperm(24, generator=torch.Generator().manual_seed(0)).tensor_split(10):
        kept = torch.tensor([i for i in range(24) if i not in fold])
        part = gd.ClassificationGP(X[kept], labels[kept], kernel())
        part.load_state_dict(model.state_dict())
        own = fold[torch.randperm(len(fold), generator=generator)]
        before, after = (part.predict_proba(X[each]).log() for each in (own, own.roll(1)))
        losses[own] = (before - after).gather(1, labels[own, None])[:, 0]
    assert found.blocks[0].loss == pytest.approx(losses.mean().item(), rel=1e-6)
    a, b, c = found.coordinates
    assert b.loss > 2 * max(a.loss, c.loss)
    assert b.sensitivity > max(a.sensitivity, c.sensitivity)

    step = torch.tensor([0.0, 1e-5, 0.0]).double() * X.points.flatten(0, 1).std(0, correction=0)
    above, below = (model.posterior(gd.PointClouds(X.points + s)).mean for s in (step, -step))
    change = (above - below)[:, :2].diff().mean().item()
    expected = change / 2e-5 / 0.8 if classes == 2 else math.nan
    assert b.direction == pytest.approx(expected, rel=1e-5, nan_ok=True)


def aggregated(gradients: Tensor, points: Tensor) -> Tensor:
    """Sensitivities of clouds of equal weights from the gradients at their atoms."""
    spread = points.flatten(0, 1).std(0, correction=0)
    return (gradients.square() * points.shape[1]).sum(1).mean(0).sqrt() * spread


def sensitivities(found: Relevance) -> Tensor:
    return torch.tensor([e.sensitivity for e in found.coordinates], dtype=torch.float64)


def test_designs_that_decode_to_clouds() -> None:
    design = rand(16, 2)
    corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]).double()
    decoder = gd.Decoder(lambda x: (x + 0.5).unsqueeze(-2) * corners)
    model = gd.DistributionGP(design, design[:, 0], kernel(2), input_transform=decoder)
    decoded = gd.DistributionGP(
        gd.PointClouds((design + 0.5)[:, None] * corners), design[:, 0], kernel(2)
    )
    found, expected = gd.relevance(model), gd.relevance(decoded)
    torch.testing.assert_close(sensitivities(found), sensitivities(expected))
    assert [e.loss for e in found.entries] == pytest.approx([e.loss for e in expected.entries])


def test_sensitivity_is_that_of_random_objects() -> None:
    """In sorted data, the first objects do not represent all of them."""
    X, _ = bags(160, dim=2)
    mean = X.points[..., 1].mean(-1)
    y = 3 * mean.clamp_min(0)
    found = []
    for order in (mean.argsort(), mean.argsort(descending=True)):
        model = gd.DistributionGP(X[order], y[order], kernel(2))
        model.covar_module.base_kernel.lengthscale = 2.0
        found.append(sensitivities(gd.relevance(model, repeats=1))[1].item())
    model = gd.DistributionGP(X, y, kernel(2)).eval()
    model.covar_module.base_kernel.lengthscale = 2.0
    expected = aggregated(gd.sensitivity(model, X).mean_points, X.points)[1].item()
    assert found == pytest.approx([expected, expected], rel=0.2)


@pytest.mark.parametrize("model", [gd.DistributionGP, gd.SharedKernelGP])
def test_several_outputs_count_alike(model: type[gd.DistributionGP]) -> None:
    """Neither the unit of an output nor a copy of it changes anything."""
    X, y = bags(20)
    single = gd.relevance(gd.DistributionGP(X, y, kernel()))
    copies = gd.relevance(model(X, torch.stack([y, 1e4 * y], -1), kernel()))
    losses = [e.loss for e in single.entries]
    assert [e.loss for e in copies.entries] == pytest.approx(losses)
    torch.testing.assert_close(sensitivities(copies), sensitivities(single) / y.std())


def test_mixed_inputs() -> None:
    X, y = bags(60)
    age = randn(60, seed=5)
    arm = ["drug" if i % 3 else "placebo" for i in range(60)]
    frame = {"age": 50 + 10 * age, "arm": arm}
    inputs = gd.MixedInputs(cells=X, covariates=frame)
    model = gd.fit(gd.DistributionGP(inputs, y + age))
    found = {entry.name: entry for entry in gd.relevance(model, names={"cells": "abc"}).entries}
    assert list(found) == [
        *("cells", "cells: a", "cells: b", "cells: c"),
        *("covariates", "covariates: age", "covariates: arm"),
    ]
    assert found["cells: b"].loss > 5 * found["cells: a"].loss
    assert found["covariates: age"].loss > 5 * abs(found["covariates: arm"].loss)
    assert math.isnan(found["covariates: arm"].sensitivity)
    assert found["covariates: age"].direction == pytest.approx(age.std().item(), rel=0.3)
    # The response changes by one standard deviation of age for each standard deviation of age.
    assert found["covariates: age"].sensitivity == pytest.approx(age.std().item(), rel=0.3)
    expected = aggregated(gd.sensitivity(model, inputs)["cells"].mean_points, X.points)
    of_cells = [found[f"cells: {letter}"].sensitivity for letter in "abc"]
    assert of_cells == pytest.approx(expected.tolist())


def test_gaussians_and_mixtures() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = randn(30, 2, seed=generator)
    covariance = torch.diag_embed(0.2 + torch.rand(30, 2, generator=generator).double())
    y = covariance[:, 0, 0]
    X = gd.Gaussians(mean * 0.1, covariance)
    found = gd.relevance(gd.fit(gd.DistributionGP(X, y)))
    assert found.coordinates[0].loss > 5 * found.coordinates[1].loss
    Z = gd.GaussianMixtures(mean[:, None] * 0.1, covariance[:, None])
    distance = gd.DistributionKernel(gd.MMD(2, inputs="mixtures", bandwidth=1.0))
    found = gd.relevance(gd.fit(gd.DistributionGP(Z, y, distance)))
    assert found.coordinates[0].loss > 5 * found.coordinates[1].loss


def test_scales_and_coordinates_that_rotate() -> None:
    X, y = bags(12)
    scaled = gd.ScaledDistance(gd.SlicedWasserstein(3, num_slices=10), standardize=False)
    scaled.scales = [1.0, 2.0, 1.0]
    found = gd.relevance(gd.DistributionGP(X, y, gd.DistributionKernel(scaled)))
    torch.testing.assert_close([e.scale for e in found.coordinates], scaled.scales.tolist())
    rigid = gd.RigidSlicedWasserstein(3, marks=1, num_slices=10, max_degree=3)
    names = [
        e.name for e in gd.relevance(gd.DistributionGP(X, y, gd.DistributionKernel(rigid))).entries
    ]
    assert names == ["X", "X: coordinate 0, coordinate 1", "X: coordinate 2"]


def test_normals_count_together() -> None:
    X, y = bags(12)
    normals = torch.nn.functional.normalize(X.points, dim=-1)
    X = gd.PointClouds(torch.cat([X.points, normals], -1), X.weights, num_normals=X.dim)
    rigid = gd.RigidSlicedWasserstein(6, normals=3, num_slices=10, max_degree=3)
    found = gd.relevance(gd.DistributionGP(X, y, gd.DistributionKernel(gd.ScaledDistance(rigid))))
    several = [e.name.count("coordinate") for e in found.entries]
    assert several == [0, 3, 3]


def test_directions_are_those_of_finite_differences() -> None:
    X, y = bags()
    model = gd.fit(gd.DistributionGP(X, -y, kernel()), progress=False)
    _, b, _ = gd.relevance(model).coordinates
    step = 1e-5 * X.points[..., 1].std(correction=0)
    moved = X.points.clone()
    moved[..., 1] += step
    change = model.predict(gd.PointClouds(moved, X.weights))[0] - model.predict(X)[0]
    assert b.direction == pytest.approx(1e5 * change.mean().item(), rel=1e-3)
    assert b.direction < 0


def test_it_becomes_a_frame() -> None:
    entries = (
        RelevanceEntry("cells", None, 1.25, 0.1),
        RelevanceEntry("cells", "CD4", 0.5, 0.05, 0.3, -0.2, 1.7),
    )
    frame = Relevance(entries).to_frame()
    assert frame.loc["cells: CD4", "scale"] == 1.7
    assert list(frame.index) == ["cells", "cells: CD4"]


BAGS, MEANS = bags(12)
TWO = gd.MixedInputs(one=BAGS, two=BAGS, age=MEANS)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (None, {"names": ["a", "b"]}, "Expected 3 names of coordinates of block 'X', got 2"),
        (
            gd.DistributionGP(TWO, MEANS),
            {"names": ["a"]},
            r"by block, .* \['one', 'two'\], got \['a'",
        ),
        (gd.SparseDistributionGP(BAGS, MEANS, kernel(), num_inducing=4), {}, "got Sparse"),
        (gd.DistributionGP(BAGS[:3], MEANS[:3], kernel()), {}, "at least four objects"),
    ],
)
def test_bad_arguments(model: gd.DistributionGP | None, options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        gd.relevance(model or gd.DistributionGP(BAGS, MEANS, kernel()), **options)


def test_objects_without_coordinates_have_no_sensitivity() -> None:
    index = torch.arange(12, dtype=torch.float64).unsqueeze(-1)
    kernel = gd.DistributionKernel(gd.PrecomputedDistance(torch.cdist(index, index).square()))
    (entry,) = gd.relevance(gd.DistributionGP(index, index.squeeze(-1), kernel)).entries
    assert entry.loss > 1
    assert math.isnan(entry.sensitivity)
