"""A state machine of containers: made, indexed, packed, copied and compared in any order."""

import copy
import math
import pickle
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from fuzzing.settings import changed, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from torch import Tensor

from gp_distributions import (
    MMD,
    Fourier,
    GaussianMixtures,
    Gaussians,
    LinearTransport,
    PointClouds,
    ReferenceMeasure,
    RigidSlicedWasserstein,
    SinkhornPotential,
    SlicedWasserstein,
)
from gp_distributions.distances import Distance
from gp_distributions.measures import kinds
from gp_distributions.testing.clouds import random_clouds, random_gaussians, random_mixtures
from gp_distributions.warnings import ConvergenceWarning

Container = PointClouds | Gaussians | GaussianMixtures

SEEDS = st.integers(0, 10**6)
EPS = torch.finfo(torch.float64).eps


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def point_clouds(draw: st.DrawFn, dim: int | None = None, least: int = 1) -> PointClouds:
    """Ragged weighted clouds, also single atoms, coincident atoms and atoms far from the origin."""
    dim = dim or draw(st.integers(1, 3))
    num, seed = draw(st.integers(least, 7)), draw(SEEDS)
    sizes = draw(st.sampled_from([(1, 1), (1, 6), (5, 5), (2, 12)]))
    bags = random_clouds(num, dim=dim, seed=seed, sizes=sizes)
    points = [points for points, _ in bags]
    match draw(st.sampled_from(["general", "general", "lattice", "far", "tiny", "large", "equal"])):
        case "lattice":
            points = [p.round() for p in points]
        case "far":
            points = [p + 1e4 for p in points]
        case "tiny":
            points = [1e-6 * p for p in points]
        case "large":
            points = [1e6 * p for p in points]
        case "equal":
            points = [points[0][:1].expand_as(p) for p in points]
    match draw(st.sampled_from(["weights", "none", "zeros"])):
        case "none":
            return PointClouds.from_list(points)
        case "zeros":
            some = [torch.rand(len(w), generator=generator(seed)) > 0.5 for _, w in bags]
            weights = [
                torch.where(z & (w < w.max()), 0.0, w) for z, (_, w) in zip(some, bags, strict=True)
            ]
            return PointClouds.from_list(points, weights=weights)
    return PointClouds.from_list(points, weights=[w for _, w in bags])


@st.composite
def gaussians(draw: st.DrawFn, dim: int | None = None, least: int = 1) -> Gaussians:
    dim = dim or draw(st.integers(1, 3))
    atoms = random_gaussians(draw(st.integers(least, 6)), dim=dim, seed=draw(SEEDS))
    return Gaussians.unpack(torch.stack([atom[0] for atom, _ in atoms]), dim)


@st.composite
def mixtures(draw: st.DrawFn, dim: int | None = None, least: int = 1) -> GaussianMixtures:
    dim = dim or draw(st.integers(1, 2))
    parts = random_mixtures(
        draw(st.integers(least, 5)),
        dim=dim,
        seed=draw(SEEDS),
        sizes=draw(st.sampled_from([(1, 1), (1, 4)])),
    )
    return GaussianMixtures.from_list(
        [(a[:, :dim], a[:, dim:].unflatten(-1, (dim, dim)), w) for a, w in parts]
    )


@st.composite
def images(draw: st.DrawFn) -> PointClouds:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(2, 4), st.integers(2, 4)))
    values = torch.rand(shape, generator=generator(draw(SEEDS)), dtype=torch.float64)
    return PointClouds.from_images((values - draw(st.sampled_from([0.0, 0.5]))).clamp_min(0) + 1e-3)


def distances(dim: int, inputs: str) -> dict[str, Any]:
    """Functions that make the distances which read such distributions."""
    options: dict[str, Any] = {"inputs": inputs}
    found: dict[str, Any] = {
        "mmd": lambda: MMD(dim, bandwidth=1.0, **options),
        "features": lambda: MMD(dim, bandwidth=1.0, num_features=12, **options),
        "fourier": lambda: Fourier(dim, num_frequencies=10, **options),
    }
    if inputs == "mixtures":
        return found
    found["sw2"] = lambda: SlicedWasserstein(dim, num_slices=6, num_quantiles=8, **options)
    found["sw1"] = lambda: SlicedWasserstein(dim, p=1, num_slices=6, num_quantiles=8, **options)
    if dim > 1:
        found["rigid"] = lambda: RigidSlicedWasserstein(
            dim, num_slices=9, max_degree=3, num_quantiles=6, **options
        )
    if inputs == "clouds":
        points = torch.randn(3, dim, generator=generator(0), dtype=torch.float64)
        reference = ReferenceMeasure(points, [1, 2, 3])
        found["sinkhorn"] = lambda: SinkhornPotential(reference, epsilon=1.0)
        found["transport"] = lambda: LinearTransport(reference, epsilon=1.0)
    return found


def tensors_of(x: Container) -> list[Tensor]:
    return [value for value in vars(x).values() if isinstance(value, Tensor)]


def indexed(num: int) -> st.SearchStrategy[Any]:
    """Indices of at least one of ``num`` distributions."""
    some = st.lists(st.integers(-num, num - 1), min_size=1, max_size=8)
    return st.one_of(
        some,
        some.map(np.array),
        some.map(torch.tensor),
        st.lists(st.booleans(), min_size=num, max_size=num).filter(any),
        st.slices(num).filter(lambda s: len(range(num)[s]) > 0),
    )


class MeasureMachine(RuleBasedStateMachine):
    """Containers never change, and results do not depend on how distributions are laid out."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Container, list[Tensor]]] = []
        self.settings = settings()

    def keep(self, x: Container) -> Container:
        self.kept.append((x, [tensor.clone() for tensor in tensors_of(x)]))
        return x

    @invariant()
    def nothing_changes(self) -> None:
        for x, before in self.kept:
            assert all(map(torch.equal, tensors_of(x), before))
        names = changed(self.settings, settings())
        assert not names, names

    @rule(target=held, x=st.one_of(point_clouds(), gaussians(), mixtures(), images()))
    def make(self, x: Container) -> Container:
        return self.keep(x)

    @rule(target=held, x=held, data=st.data())
    def select(self, x: Container, data: st.DataObject) -> Container:
        index = data.draw(indexed(len(x)))
        found = x[index]
        chosen = index.numpy() if isinstance(index, Tensor) else index
        plain = torch.from_numpy(np.arange(len(x))[chosen].copy())
        assert torch.equal(found.pack(), x.pack()[plain])
        return self.keep(found)

    @rule(x=held)
    def take_one(self, x: Container) -> None:
        assert [x[i] for i in range(len(x))] == list(x)
        assert x[0].batch_shape == ()
        assert torch.equal(x[0].pack(), x.pack()[0])

    @rule(target=held, x=held, extra=st.integers(0, 3))
    def pack_and_unpack(self, x: Container, extra: int) -> Any:
        if isinstance(x, Gaussians):
            return self.keep(type(x).unpack(x.pack(), x.dim))
        size = x.weights.shape[-1] + extra
        rows = x.pack(size)
        again = type(x).unpack(rows, x.dim)
        assert torch.equal(again.pack(), rows)
        assert torch.equal(again.sizes, x.sizes)
        return self.keep(again)

    @rule(target=held, x=held, how=st.sampled_from(["pickle", "deepcopy", "copy", "to"]))
    def copy(self, x: Container, how: str) -> Any:
        match how:
            case "pickle":
                again = pickle.loads(pickle.dumps(x))
            case "deepcopy":
                again = copy.deepcopy(x)
            case "copy":
                again = copy.copy(x)
            case _:
                again = x.to(torch.float64)
        assert again == x
        assert repr(again) == repr(x)
        return self.keep(again)

    @rule(target=held, x=held, seed=SEEDS)
    def resample(self, x: Container, seed: int) -> Any:
        if not isinstance(x, PointClouds):
            return multiple()
        drawn = x.resample(3, seed=seed)
        assert drawn == x.resample(3, seed=seed)
        gaps = (drawn.points.unsqueeze(-2) - x.points.unsqueeze(-3)).abs().amax(-1)
        assert bool(
            (gaps.masked_fill((x.weights == 0).unsqueeze(-2), math.inf).amin(-1) == 0).all()
        )
        return self.keep(drawn)

    @rule(x=held, scale=st.sampled_from([None, 2.0]))
    def normalise(self, x: Container, scale: float | None) -> None:
        try:
            found = x.normalize(scale=scale)
        except ValueError:
            assert scale is None  # a coordinate is the same everywhere
            return
        assert found.batch_shape == x.batch_shape
        assert all(bool(tensor.isfinite().all()) for tensor in tensors_of(found))

    @rule(x=held, y=held, data=st.data())
    def compare(self, x: Container, y: Container, data: st.DataObject) -> None:
        with suppress(
            ConvergenceWarning
        ):  # raised as an error: these potentials are not determined
            self.check_distances(x, y, data)

    def check_distances(self, x: Container, y: Container, data: st.DataObject) -> None:
        inputs = kinds.KINDS[type(x)]
        makers = distances(x.dim, inputs)
        name = data.draw(st.sampled_from(sorted(makers)))
        distance: Distance = makers[name]()
        rows, order = x.pack(), torch.randperm(len(x), generator=generator(data.draw(SEEDS)))
        found = distance.squared(rows)
        check_squares(found, rows, name)
        same(distance.squared(rows[order]), found[order][:, order], found, rows, name)
        same(distance.squared(rows, diag=True), found.diagonal(), found, rows, name)
        if type(x) is type(y) and x.dim == y.dim:
            across = distance.squared(rows, y.pack())
            assert bool((across >= 0).all())
            both = torch.maximum(rows.abs().max(), y.pack().abs().max())
            same(distance.squared(y.pack(), rows).mT, across, across, both, name)
        if not isinstance(x, Gaussians):
            other = rearranged(rows, x, data.draw(SEEDS))
            same(distance.squared(other), found, found, rows, name)
            same(distance.squared(rows, other), found, found, rows, name)


def rearranged(rows: Tensor, x: Container, seed: int) -> Tensor:
    """Equal distributions: atoms in another order, the first split into two, and padding."""
    atoms = rows.unflatten(-1, (x.weights.shape[-1], -1))
    first = atoms[..., :1, :].clone()
    share = 0.25
    moved = first.clone()
    moved[..., -1] *= share
    first[..., -1] *= 1 - share
    padding = torch.zeros_like(first)
    padding[..., :-1] = first[..., :-1]
    atoms = torch.cat([first, atoms[..., 1:, :], moved, padding], dim=-2)
    order = torch.randperm(atoms.shape[-2], generator=generator(seed))
    return atoms[..., order, :].flatten(-2)


def check_squares(squares: Tensor, rows: Tensor, name: str) -> None:
    """Squared Hilbert distances: symmetric, zero on the diagonal, and a positive kernel follows."""
    assert torch.equal(squares, squares.mT)
    assert bool((squares >= 0).all())
    assert bool((squares.diagonal() == 0).all())
    assert bool(squares.isfinite().all())
    scale = squares.max().clamp_min(1e-300)
    gram = (-squares / scale).exp()
    lowest = torch.linalg.eigvalsh(gram)[0]
    # Entries of squared distances err by the tolerance of `same`, relative to the largest.
    error = tolerance(squares, rows, name) / scale
    assert lowest >= -len(gram) * (error + 10 * EPS)


def tolerance(squares: Tensor, rows: Tensor, name: str) -> Tensor:
    """Error of squared distances: digits of the largest, and of coordinates that are far away.

    A sum of ``n`` rounded terms errs by ``n`` units in the last place. An error ``e`` of a
    representation moves a squared distance ``s`` by ``2 e sqrt(s) + e^2``, and roots of singular values
    turn ``e`` into ``sqrt(e)``. Solvers stop at a residual of 1e-10 or so.
    """
    unit = (1e-7 if name in ("sinkhorn", "transport") else 1e3 * EPS) * (1 + rows.abs().max())
    largest = squares.max()
    # The squared norms of mean embeddings, which cancel, are at most one.
    norms = 100 * EPS * (name in ("mmd", "features", "fourier"))
    # A "squared" distance of order one is itself a sum of absolute values.
    first_order = unit * (name == "sw1")
    return 1e-11 * largest + 2 * unit * largest.sqrt() + unit.square() + norms + first_order


def same(actual: Tensor, expected: Tensor, all_squares: Tensor, rows: Tensor, name: str) -> None:
    assert bool(((actual - expected).abs() <= tolerance(all_squares, rows, name)).all()), (
        name,
        (actual - expected).abs().max(),
        tolerance(all_squares, rows, name),
    )
