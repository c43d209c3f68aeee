"""Squared distances of clouds that coincide up to rounding errors, and what is done with them."""

from collections.abc import Callable

import pytest
import torch
from cases import halving
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    MMD,
    DistributionGP,
    DistributionKernel,
    Fourier,
    GramTransformer,
    PointClouds,
    ReferenceMeasure,
    RigidSlicedWasserstein,
    ScaledDistance,
    SinkhornPotential,
    SlicedWasserstein,
    diagnose,
    fit,
)
from gp_distributions.distances.base import Distance
from gp_distributions.distances.comparison import rounding_of
from gp_distributions.fitting.starts import median_distances
from gp_distributions.numerics.sampling import median_distance
from gp_distributions.warnings import UndeterminedWarning

pytestmark = pytest.mark.usefixtures("short_fits")

DISTANCES: dict[str, Callable[[], Distance]] = {
    "sliced": lambda: SlicedWasserstein(2, num_slices=4),
    "of order one": lambda: SlicedWasserstein(2, p=1, num_slices=4),
    "centred": lambda: SlicedWasserstein(2, num_slices=4, center=True),
    "rigid": lambda: RigidSlicedWasserstein(2),
    "scaled": lambda: ScaledDistance(MMD(2, bandwidth=1.0), standardize=False),
    "energy": lambda: MMD(2, kernel="energy"),
    "features": lambda: MMD(2, bandwidth=1.0, num_features=6),
    "fourier": lambda: Fourier(2, scale=1.0),
    "potentials": lambda: SinkhornPotential(ReferenceMeasure(torch.eye(2).double())),
}
TARGETS = torch.tensor([1.0, -0.5, 0.3, 2.0, -1.2, 0.1]).double()


def point_masses(places: torch.Tensor) -> PointClouds:
    """Clouds whose atoms all lie at one place, with weights whose sums have rounding errors."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.rand(5 + i, generator=generator).double() for i in range(len(places))]
    return PointClouds.from_list(
        [place.expand(len(w), 2) for place, w in zip(places, weights, strict=True)],
        [w / w.sum() for w in weights],
    )


@pytest.mark.parametrize("make", DISTANCES.values(), ids=DISTANCES)
@pytest.mark.parametrize("place", [0.384, -731.9, 1e12])
def test_rounding_errors_are_no_distances(make: Callable[[], Distance], place: float) -> None:
    rows = point_masses(torch.full((6, 2), place).double()).pack()
    distance = make()
    squared = distance.squared(rows)
    assert bool((squared <= rounding_of(distance, rows, distance.squared(rows))).all())
    model = DistributionGP(rows, TARGETS, DistributionKernel(distance))
    with pytest.warns(UndeterminedWarning, match="All 6 training clouds coincide"):
        assert median_distances(model) == {}


@pytest.mark.parametrize("make", DISTANCES.values(), ids=DISTANCES)
def test_small_distances_are_no_rounding_errors(make: Callable[[], Distance]) -> None:
    """Clouds of several atoms, as point masses have no shape."""
    points = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    moved = 0.4 + 1e-5 * points
    rows = PointClouds(moved).pack()
    distance = make()
    off_diagonal = distance.squared(rows)[~torch.eye(6, dtype=torch.bool)]
    assert bool((off_diagonal > rounding_of(distance, rows, distance.squared(rows))).all())


@pytest.mark.parametrize("name", ["sliced", "of order one", "centred", "rigid"])
def test_a_thousand_rounding_errors_are_a_distance(name: str) -> None:
    points = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    rows = PointClouds(0.4 + 1e-12 * points).pack()
    distance = DISTANCES[name]()
    squared = distance.squared(rows)
    rounding = rounding_of(distance, rows, distance.squared(rows))
    assert 0 < rounding < squared[~torch.eye(6, dtype=torch.bool)].min()


def test_labels_have_no_rounding_errors() -> None:
    class Labelled(SlicedWasserstein):
        reads_coordinates = False

    rows = point_masses(torch.ones(6, 2).double()).pack()
    assert rounding_of(Labelled(2), rows, torch.zeros(6, 6)) == 0


@pytest.mark.filterwarnings("ignore:All 6 training clouds coincide")
@pytest.mark.parametrize("name", ["sliced", "scaled", "rigid"])
def test_models_of_clouds_that_coincide_predict_the_mean(name: str) -> None:
    """Lengthscales of the size of rounding errors have no inverse squares in single precision."""
    clouds = point_masses(torch.full((6, 2), 0.384).double())
    kernel = ScaleKernel(DistributionKernel(DISTANCES[name]()))
    model = fit(
        DistributionGP(
            *(clouds, TARGETS, kernel),
            input_transform=halving(clouds.pack().shape[-1]),
            sampling_noise=False,
        ),
        restarts=0,
        progress=False,
    )
    for mean in (model.predict(clouds)[0], model.float().predict(clouds)[0]):
        torch.testing.assert_close(
            mean, TARGETS.mean().expand(6).to(mean.dtype), rtol=1e-2, atol=0.0
        )


def test_diagnoses_and_transformers_see_that_clouds_coincide() -> None:
    clouds = point_masses(torch.full((6, 2), 0.384).double())
    kernel = DistributionKernel(SlicedWasserstein(2, num_slices=4))
    diagnosis = diagnose(kernel, clouds)
    assert len(diagnosis.duplicates) == 5
    assert bool(torch.tensor(diagnosis.distances[0].median_distance).isnan())
    bags = [points[w > 0].numpy() for points, w in zip(clouds.points, clouds.weights, strict=True)]
    assert GramTransformer("sliced_wasserstein").fit(bags).kernel_.lengthscale == 1
    atoms = torch.tensor([0.384, 0.384 + 1e-16], dtype=torch.float64).repeat(5).unsqueeze(-1)
    assert torch.pdist(atoms).max() > 0 == median_distance(atoms)
