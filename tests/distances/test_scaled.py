"""What ScaledDistance adds to the shared tests: scales, their groups, prior and gradients."""

import pytest
import torch
from cases import GRID
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior

from gp_distributions import (
    MMD,
    DistributionGP,
    DistributionKernel,
    GaussianMixtures,
    Gaussians,
    Hellinger,
    PointClouds,
    ReferenceMeasure,
    RigidSlicedWasserstein,
    ScaledDistance,
    SinkhornPotential,
    SlicedWasserstein,
    fit_reference,
)

SCALES = torch.tensor([3.0, 1.0, 0.5], dtype=torch.float64)
RELATIVE = SCALES / SCALES.square().mean().sqrt()


def clouds(num: int = 6, dim: int = 3, seed: int = 0) -> PointClouds:
    generator = torch.Generator().manual_seed(seed)
    return PointClouds(torch.randn(num, 10, dim, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("p", [1, 2])
def test_it_is_the_distance_of_scaled_clouds(p: int) -> None:
    X, distance = clouds(), SlicedWasserstein(3, p=p)
    scaled = ScaledDistance(distance)
    scaled.scales = SCALES
    expected = distance.squared(PointClouds(X.points * RELATIVE).pack())
    torch.testing.assert_close(scaled.squared(X.pack()), expected, rtol=1e-12, atol=1e-12)
    assert hasattr(scaled, "embed") == (p == 2)


@pytest.mark.parametrize(
    ("kind", "inputs", "shape"),
    [(Gaussians, "gaussians", (4,)), (GaussianMixtures, "mixtures", (4, 2))],
)
def test_means_and_covariances_are_scaled(kind: type, inputs: str, shape: tuple[int, ...]) -> None:
    factor = torch.randn(*shape, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    mean, covariance = factor[..., 0], factor @ factor.mT
    X = kind(mean, covariance)
    Z = kind(RELATIVE * mean, torch.outer(RELATIVE, RELATIVE) * covariance)
    distance = MMD(3, inputs=inputs, bandwidth=1.0)
    scaled = ScaledDistance(distance)
    scaled.scales = SCALES
    expected = distance.squared(Z.pack())
    torch.testing.assert_close(scaled.squared(X.pack()), expected, rtol=1e-12, atol=1e-12)
    norms = distance.squared_norms(Z.pack())
    torch.testing.assert_close(scaled.squared_norms(X.pack()), norms, rtol=1e-12, atol=1e-12)


def test_only_ratios_of_scales_matter() -> None:
    first, second = ScaledDistance(SlicedWasserstein(3)), ScaledDistance(SlicedWasserstein(3))
    first.scales, second.scales = [3.0, 1.0, 0.5], [30.0, 10.0, 5.0]
    torch.testing.assert_close(first.scales, second.scales)
    torch.testing.assert_close(first.scales.square().mean().item(), 1.0)
    outer = ScaledDistance(first)
    outer.scales = [1.0, 1.0, 2.0]
    rows = clouds().pack()
    product = first.scales * outer.scales
    expected = SlicedWasserstein(3).squared(PointClouds(clouds().points * product.detach()).pack())
    torch.testing.assert_close(outer.squared(rows), expected)


def test_rotating_coordinates_have_one_scale_and_marks_their_own() -> None:
    options = {"num_slices": 20, "max_degree": 4}
    distance = ScaledDistance(RigidSlicedWasserstein(4, marks=2, **options))  # type: ignore[arg-type]
    assert distance.raw_scales.shape == (3,)
    distance.scales = [2.0, 2.0, 1.0, 0.5]
    turn = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    X = clouds(3, 4)
    points = X.points.clone()
    points[..., :2] @= turn.mT
    apart = distance.squared(X.pack(), PointClouds(points).pack(), diag=True)
    assert bool((apart < 1e-3 * distance.squared(X.pack()).max()).all())
    with pytest.raises(ValueError, match="equal for coordinates that rotate together"):
        distance.scales = [2.0, 1.0, 1.0, 1.0]
    alone = ScaledDistance(RigidSlicedWasserstein(2, **options))  # type: ignore[arg-type]
    assert alone.scales.tolist() == [1.0, 1.0]
    assert not alone.raw_scales.requires_grad


def test_the_default_prior_is_symmetric_about_equal_scales() -> None:
    """One is its median, and a scale is as likely as its inverse in units of the logarithm."""
    prior = ScaledDistance(SlicedWasserstein(3)).scales_prior
    assert prior.cdf(torch.ones(())).item() == 0.5
    assert prior.scale.item() ** 2 == pytest.approx(3)


def test_the_marginal_likelihood_adds_the_prior() -> None:
    X = clouds()
    values = {}
    for prior in (None, GammaPrior(3.0, 2.0)):
        distance = ScaledDistance(SlicedWasserstein(3), scales_prior=prior)
        model = DistributionGP(X, X.points.mean((1, 2)), ScaleKernel(DistributionKernel(distance)))
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        values[prior is None] = mll(model(*model.train_inputs), model.train_targets).item()
    expected = GammaPrior(3.0, 2.0).log_prob(torch.ones(3)).sum().item() / len(X)
    assert values[False] - values[True] == pytest.approx(expected)


def test_references_are_learned_before_scales() -> None:
    X = clouds(dim=2)
    scaled = ScaledDistance(SinkhornPotential(ReferenceMeasure(GRID[:5]), epsilon=1.0))
    model = DistributionGP(X, X.points.mean((1, 2)), ScaleKernel(DistributionKernel(scaled)))
    with pytest.raises(ValueError, match="before it is scaled"):
        fit_reference(model)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="Expected a Distance, got int"):
        ScaledDistance(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reads coordinates, got Hellinger"):
        ScaledDistance(Hellinger(2, support=GRID))
    distance = ScaledDistance(SlicedWasserstein(3))
    for bad in ([1.0, 0.0, 1.0], [1.0, float("nan"), 1.0]):
        with pytest.raises(ValueError, match="positive, finite scales"):
            distance.scales = bad
