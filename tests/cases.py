"""What is under test: a line for each distance or model, with which it joins all shared tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import torch
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import ScaleKernel
from torch import Tensor

import gp_distributions as gd
from gp_distributions.distances import (
    ChiSquared,
    Distance,
    PrincipalDistance,
)
from gp_distributions.kernels.profiles import PROFILES
from gp_distributions.models import KernelRidgeClassifier, ensemble_of
from gp_distributions.testing.clouds import Clouds, random_clouds, random_gaussians, random_mixtures
from gp_distributions.testing.clouds import pack_clouds as as_rows

Module = TypeVar("Module", bound=torch.nn.Module)


def randn(*shape: Any, seed: int | torch.Generator = 0) -> Tensor:
    """Standard normal numbers in double precision."""
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def rand(*shape: Any, seed: int | torch.Generator = 0) -> Tensor:
    """Uniform numbers between 0 and 1 in double precision."""
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def lattice_clouds(num: int, **options: object) -> Clouds:
    """Ragged weighted clouds on the points of ``GRID``; some atoms coincide."""
    clouds = random_clouds(num, **options)  # type: ignore[arg-type]
    return [(points.round().clamp(-2, 2), weights) for points, weights in clouds]


def random_indices(num: int, *, seed: int = 0, sizes: object = None) -> Clouds:
    """Indices of objects, some of them several times."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(len(OBJECTS), (num, 1, 1), generator=generator).double()
    return [(index, index.new_ones(1)) for index in indices]


@dataclass(frozen=True)
class Inputs:
    """The kind of rows that a distance is tested on.

    Attributes:
        draw: Function that returns random atoms and weights, given their number, ``seed`` and
            ``sizes``.
        columns: Function that returns random rows of a given shape, of which any six columns are
            valid rows too, since GPyTorch's test case selects columns. ``None`` if there are none.
        weighted: Whether a row is a set of weighted atoms, which can be padded, ordered and split,
            rather than a single atom without a weight.
        labels: Whether atoms are labels or indices, which cannot move.
    """

    draw: Callable[..., Clouds]
    columns: Callable[..., Tensor] | None
    weighted: bool = True
    labels: bool = False

    def rows(self, num: int, *, atoms: int | None = None, **options: object) -> Tensor:
        """Random rows, padded to ``atoms`` if they are weighted."""
        clouds = self.draw(num, **options)
        if self.weighted:
            return as_rows(clouds, atoms=atoms)
        return torch.stack([points.flatten() for points, _ in clouds])


def random_rows(num: int, **options: object) -> Tensor:
    """Random ragged weighted clouds as rows."""
    return as_rows(random_clouds(num, **options))  # type: ignore[arg-type]


# Any positive numbers are clouds; ones and twos are on GRID; equal numbers are a Gaussian.
CLOUDS = Inputs(random_clouds, lambda *shape: 0.1 + torch.rand(shape))
LATTICE = Inputs(lattice_clouds, lambda *shape: torch.randint(1, 3, shape).float(), labels=True)
GAUSSIANS = Inputs(
    random_gaussians,
    lambda *shape: (0.1 + torch.rand(*shape[:-1], 1)).expand(shape),
    weighted=False,
)
MIXTURES = Inputs(random_mixtures, CLOUDS.columns)
INDICES = Inputs(random_indices, None, weighted=False, labels=True)

GRID = torch.cartesian_prod(*[torch.arange(-2.0, 3.0, dtype=torch.float64)] * 2)
# Squared distances of points in five dimensions.
OBJECTS = torch.cdist(*[GRID[:, :1] ** torch.arange(1, 6) - GRID[:, 1:]] * 2).square() / 100


@dataclass(frozen=True)
class Case(Generic[Module]):
    """A distance or kernel under test.

    Attributes:
        make: Function that creates it, given options in place of those under test.
        inputs: The rows to test it on.
        settings: Options with other values than those under test, which can be set as attributes.
    """

    make: Callable[..., Module]
    inputs: Inputs = CLOUDS
    settings: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, **options: object) -> Module:
        return self.make(**options)


def _on_reference(kind: type[Distance], *, epsilon: float = 2.0) -> Distance:
    reference = gd.ReferenceMeasure(randn(6, 2), torch.arange(1, 7))
    return kind(reference, epsilon=epsilon)


_SLICED = partial(gd.SlicedWasserstein, 2, num_slices=20, num_quantiles=30)

_RIGID = partial(gd.RigidSlicedWasserstein, 2, num_slices=20, max_degree=5, num_quantiles=8)


def _scaled(
    distance: Callable[..., Distance], *, scales: tuple[float, ...] = (2.0, 1.0)
) -> Distance:
    """A distance whose coordinates have scales that are not learned."""
    return gd.ScaledDistance(distance(), standardize=False, scales=scales, learn=False)


def _standardized(
    distance: Callable[..., Distance],
    inputs: Inputs = CLOUDS,
    *,
    normals_factor: float = 3.0,
    any_pose: bool = False,
    **options: Any,
) -> Distance:
    """A distance whose units come from other rows than those of the tests."""
    standardized = gd.ScaledDistance(distance(), learn=False, **options)
    standardized.normals_factor, standardized.any_pose = normals_factor, any_pose
    standardized.adapt(inputs.rows(20, seed=7))
    return standardized


def _principal(distance: Callable[..., Distance]) -> Distance:
    """A distance whose components come from other rows than those of the tests."""
    principal = PrincipalDistance(distance(), num_components=8)
    principal.adapt(CLOUDS.rows(20, seed=7))
    return principal


# Distances of rows in two dimensions, of mixtures in one.
DISTANCES: dict[str, Case[Distance]] = {
    "sw2": Case(_SLICED, settings={"num_quantiles": 7, "center": True}),
    "sw2-centred": Case(partial(_SLICED, center=True), settings={"num_quantiles": 7}),
    "rigid": Case(_RIGID, settings={"num_quantiles": 5, "center": False, "scale": True}),
    "rigid-reflections": Case(partial(_RIGID, reflections=True, num_quantiles=7)),
    "rigid-gaussians": Case(partial(_RIGID, inputs="gaussians"), GAUSSIANS),
    "sinkhorn": Case(partial(_on_reference, gd.SinkhornPotential), settings={"epsilon": 3.0}),
    "linear-transport": Case(partial(_on_reference, gd.LinearTransport), settings={"epsilon": 3.0}),
    "sw1": Case(partial(_SLICED, p=1), settings={"num_quantiles": 7}),
    "sw2-random": Case(partial(_SLICED, sampling="random"), settings={"num_quantiles": 7}),
    "sw2-gaussians": Case(partial(gd.SlicedWasserstein, 2, inputs="gaussians"), GAUSSIANS),
    "sw1-gaussians": Case(partial(gd.SlicedWasserstein, 2, p=1, inputs="gaussians"), GAUSSIANS),
    "mmd": Case(partial(gd.MMD, 2, bandwidth=1.0), settings={"bandwidth": 2.0}),
    "mmd-laplace": Case(
        partial(gd.MMD, 2, kernel="laplace", bandwidth=1.0), settings={"bandwidth": 2.0}
    ),
    "mmd-energy": Case(partial(gd.MMD, 2, kernel="energy")),
    "mmd-features": Case(
        partial(gd.MMD, 2, bandwidth=1.0, num_features=50), settings={"bandwidth": 2.0}
    ),
    "mmd-polynomial": Case(partial(gd.MMD, 2, kernel="polynomial2")),
    "mmd-gaussians": Case(
        partial(gd.MMD, 2, bandwidth=1.0, inputs="gaussians"), GAUSSIANS, {"bandwidth": 2.0}
    ),
    "mmd-mixtures": Case(
        partial(gd.MMD, 1, bandwidth=1.0, inputs="mixtures"), MIXTURES, {"bandwidth": 2.0}
    ),
    "hellinger": Case(partial(gd.Hellinger, 2, support=GRID), LATTICE),
    "total-variation": Case(partial(gd.TotalVariation, 2, support=GRID), LATTICE),
    "chi-squared": Case(partial(ChiSquared, 2, support=GRID), LATTICE),
    "fourier": Case(partial(gd.Fourier, 2, num_frequencies=30), settings={"frequencies": GRID / 2}),
    "fourier-gaussians": Case(partial(gd.Fourier, 2, inputs="gaussians"), GAUSSIANS),
    "fourier-mixtures": Case(partial(gd.Fourier, 1, inputs="mixtures"), MIXTURES),
    "scaled-sw2": Case(partial(_scaled, _SLICED), settings={"scales": (1.0, 3.0)}),
    "scaled-mmd": Case(
        partial(_scaled, partial(gd.MMD, 2, bandwidth=1.0, inputs="gaussians")), GAUSSIANS
    ),
    "standardized-sw2": Case(partial(_standardized, _SLICED), settings={"scales": (1.0, 3.0)}),
    "standardized-normals": Case(
        partial(_standardized, _SLICED, num_normals=1),
        settings={"normals_factor": 2.0},
    ),
    "standardized-gaussians": Case(
        partial(_standardized, partial(gd.Fourier, 2, inputs="gaussians"), GAUSSIANS), GAUSSIANS
    ),
    "standardized-poses": Case(
        partial(_standardized, _SLICED, unposed=_RIGID()), settings={"any_pose": True}
    ),
    "sized-sw2": Case(partial(_standardized, _SLICED, sizes=True)),
    "sized-mmd": Case(partial(_standardized, partial(gd.MMD, 2, bandwidth=1.0), sizes=True)),
    "principal-sw2": Case(partial(_principal, _SLICED)),
    "precomputed": Case(partial(gd.PrecomputedDistance, OBJECTS), INDICES),
}

# Every distance with a smooth and a root profile; every profile with an embedding, and those of inner
# products without one, too.
KERNELS: dict[str, Case[gd.DistributionKernel]] = {
    f"{distance}-{profile}": Case(
        lambda case=case, profile=profile: gd.DistributionKernel(case(), profile), case.inputs
    )
    for distance, case in DISTANCES.items()
    for profile in PROFILES
    if distance == "sw2"
    or profile in ("gaussian", "exponential")
    or (distance == "sw1" and not PROFILES[profile].radial)
}

_ANGLES = torch.arange(12, dtype=torch.float64) * (2 * torch.pi / 12) + 0.1
CIRCLE = torch.stack([_ANGLES.cos(), _ANGLES.sin()], dim=-1)


def ellipses(axes: Tensor) -> Tensor:
    """Points on ellipses with given half axes."""
    return axes.unsqueeze(-2) * CIRCLE


def ellipse_value(axes: Tensor) -> float:
    """Largest at the half axes 0.7 and 0.4."""
    return -float((axes - axes.new_tensor([0.7, 0.4])).square().sum())


_BAGS = random_clouds(24, sizes=(3, 8))
TRAIN_ROWS, NEW_ROWS = as_rows(_BAGS)[:16], as_rows(_BAGS)[16:]
NEW_TARGETS = torch.stack([points.square().sum() for points, _ in _BAGS[16:]])
_TARGETS = torch.stack([points.square().sum() for points, _ in _BAGS[:16]])
_OUTPUTS = torch.stack([_TARGETS, _TARGETS.sqrt()], dim=-1)
_LABELS = (_TARGETS.median() < _TARGETS).long()


def sliced_kernel(
    lengthscale: float = 1.5, outputscale: float | None = None, **options: Any
) -> ScaleKernel:
    """A kernel whose hyperparameters are not those of its construction."""
    kernel = gd.SlicedWassersteinKernel(2, num_slices=10, num_quantiles=20, **options)
    kernel.lengthscale = lengthscale
    scaled = ScaleKernel(kernel, batch_shape=kernel.batch_shape)
    if outputscale is not None:
        scaled.outputscale = outputscale
    return scaled


def small_kernel(**options: Any) -> gd.SlicedWassersteinKernel:
    return gd.SlicedWassersteinKernel(2, num_slices=6, num_quantiles=8, **options)


def _exact(**options: Any) -> gd.DistributionGP:
    return gd.DistributionGP(TRAIN_ROWS, _TARGETS, small_kernel(), **options)


Model = TypeVar("Model")


def with_known_level(model: Model) -> Model:
    """Take the level of a model as known, as other libraries do."""
    model.mean_module.raw_constant.requires_grad_(False)  # type: ignore[attr-defined]
    return model


def reloaded(model: Model) -> Model:
    """The model from its file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model")
        gd.save(model, path)
        return gd.load(path)


def halving(width: int) -> Normalize:
    """BoTorch's transform of columns, which halves coordinates of clouds in two dimensions."""
    upper = torch.full((width,), 2.0, dtype=torch.float64)
    upper[2::3] = 1.0
    return Normalize(width, bounds=torch.stack([torch.zeros_like(upper), upper]))


def _transformed() -> gd.DistributionGP:
    return _exact(input_transform=halving(TRAIN_ROWS.shape[-1]))


def _classifier() -> gd.ClassificationGP:
    return gd.ClassificationGP(TRAIN_ROWS, _LABELS, small_kernel())


# Models of every kind, not fitted.
MODELS: dict[str, Callable[[], Any]] = {
    "exact": _exact,
    "transformed": _transformed,
    "sampling noise": lambda: _exact(sampling_noise=True),
    "known noise": lambda: _exact(train_Yvar=0.1 + 0.01 * _TARGETS),
    "sum": lambda: gd.DistributionGP(
        TRAIN_ROWS, _TARGETS, small_kernel() + gd.MMDKernel(2, bandwidth=1.0)
    ),
    "outputs": lambda: gd.DistributionGP(
        TRAIN_ROWS, _OUTPUTS, small_kernel(batch_shape=torch.Size([2]))
    ),
    "shared": lambda: gd.SharedKernelGP(TRAIN_ROWS, _OUTPUTS, small_kernel()),
    "sparse": lambda: gd.SparseDistributionGP(TRAIN_ROWS, _TARGETS, small_kernel(), num_inducing=8),
    "mixture": lambda: ensemble_of([_exact(), _exact(sampling_noise=True)], [0.3, 0.7]),
    "integrated": lambda: gd.integrate_hyperparameters(_exact()),
    "classes": _classifier,
    "sparse classes": lambda: gd.SparseClassificationGP(
        TRAIN_ROWS, _LABELS, small_kernel(), num_inducing=8
    ),
    "mixture of classes": lambda: ensemble_of([_classifier(), _classifier()], [0.4, 0.6]),
    "kernel ridge": lambda: KernelRidgeClassifier(TRAIN_ROWS, _LABELS, small_kernel(), ridge=1e-3),
}
