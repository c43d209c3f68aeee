"""Padding takes no memory, and results are the same as without it."""

import sys

import pytest
import torch
from cases import rand, randn
from fault_tasks import Children
from padding_tasks import memory_of_one_large_bag
from torch import Tensor

from gp_distributions import MixedInputs, PointClouds
from gp_distributions.rows import tensors
from gp_distributions.rows.clouds import join_rows, pad_rows, split_rows

# Bags of sizes from 2 to 50, some with weights, some of which are zero.
SIZES = (2, 50, 7, 3)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_WIDE", 10)
    monkeypatch.setattr(tensors, "_LARGE", 8)


def bags() -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    points = [randn(n, 2, seed=generator) for n in SIZES]
    weights = [rand(n, seed=generator) for n in SIZES]
    weights[1][10:20] = 0
    weights[2][-2:] = 0
    return points, weights


@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_clouds_and_rows(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    points, weights = bags()
    given = weights if weighted else None
    expected = PointClouds.from_list(points, given)
    packed = expected.pack(), expected.pack(atoms=60)
    monkeypatch.setattr(tensors, "_WIDE", 10)
    monkeypatch.setattr(tensors, "_LARGE", 8)
    clouds = PointClouds.from_list(points, given)
    assert clouds == expected
    assert all(map(torch.equal, packed, (clouds.pack(), clouds.pack(atoms=60))))
    assert PointClouds.unpack(clouds.pack(), 2) == expected


@pytest.mark.usefixtures("wide")
def test_gradients_flow() -> None:
    points, weights = bags()
    for tensor in (*points, *weights):
        tensor.requires_grad_()
    clouds = PointClouds.from_list(points, weights)
    clouds.pack().square().sum().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.any()) for tensor in points + weights)


def test_points_with_zero_weight_stay() -> None:
    points = torch.ones(2, 2**14, 1, dtype=torch.float64)
    weights = torch.zeros(2, 2**14, dtype=torch.float64)
    weights[:, 3] = 1
    rows = join_rows(points, weights)
    assert all(map(torch.equal, split_rows(rows, 1), (points, weights)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory on Linux")
def test_memory_of_one_large_bag(children: Children) -> None:
    """Padded, ten bags take 240 MB and their rows as much again; five smaller bags take 46 MiB."""
    peak, *more = children.call(memory_of_one_large_bag)
    assert peak < 200
    # The rows of the large bag take 9 MiB, those of ten such bags 92 MiB.
    assert max(more) < 40


def test_bags_of_very_different_sizes() -> None:
    """Operations on bags agree with those on tensors, and write no padding."""
    generator = torch.Generator().manual_seed(0)
    X = PointClouds.from_list(
        [torch.rand(n, 2, generator=generator).double() for n in (3, 400_000, 5, 2)]
    )
    wide = X.pack(atoms=400_100)
    assert torch.equal(wide[:, : X.pack().shape[-1]], X.pack())
    assert not bool(wide[:, X.pack().shape[-1] :].any())
    assert torch.equal(pad_rows(wide, X.pack().shape[-1]), X.pack())
    for key in ([0, 2, 3], [-1, 1], [True, False, True, False], slice(1, 3)):
        index = torch.arange(4)[key]
        assert torch.equal(X[key].points, X.points.index_select(0, index))
        assert torch.equal(X[key].weights, X.weights.index_select(0, index))
    M = MixedInputs(cells=X, age=[1.0, 2.0, 3.0, 4.0], more=X)
    slots = M.pack()[:, 1:].unflatten(-1, (-1, 6))
    assert torch.equal(slots[..., :3].flatten(-2), X.pack())
    assert torch.equal(slots[..., 3:].flatten(-2), X.pack())
    assert MixedInputs.concatenate([M[:1], M[1:]]) == M
    small = PointClouds.from_list([[[1.0, 2.0]]])
    both = MixedInputs.concatenate([MixedInputs(cells=small), MixedInputs(cells=X)])
    assert both[1:] == MixedInputs(cells=X)
