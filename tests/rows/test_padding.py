"""Padding takes no memory, and results are the same as without it."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from gp_distributions import PointClouds, SlicedWasserstein
from gp_distributions.rows import padding
from gp_distributions.rows.clouds import join_rows, split_rows
from gp_distributions.rows.padding import cloned, copy_filled, filled, is_wide, untouched_zeros

# Bags of sizes from 2 to 50, some with weights, some of which are zero.
SIZES = (2, 50, 7, 3)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "_WIDE", 10)
    monkeypatch.setattr(padding, "_LARGE", 8)


def bags() -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    points = [torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in SIZES]
    weights = [torch.rand(n, generator=generator, dtype=torch.float64) for n in SIZES]
    weights[1][10:20] = 0
    weights[2][-2:] = 0
    return points, weights


@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_clouds_and_rows(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    points, weights = bags()
    given = weights if weighted else None
    expected = PointClouds.from_list(points, given)
    packed = expected.pack(), expected.pack(atoms=60)
    monkeypatch.setattr(padding, "_WIDE", 10)
    monkeypatch.setattr(padding, "_LARGE", 8)
    clouds = PointClouds.from_list(points, given)
    assert clouds == expected
    assert all(map(torch.equal, packed, (clouds.pack(), clouds.pack(atoms=60))))
    assert PointClouds.unpack(clouds.pack(), 2) == expected
    assert torch.equal(cloned(packed[0]), packed[0])


@pytest.mark.usefixtures("wide")
def test_gradients_flow() -> None:
    points, weights = bags()
    for tensor in (*points, *weights):
        tensor.requires_grad_()
    clouds = PointClouds.from_list(points, weights)
    clouds.pack().square().sum().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.any()) for tensor in points + weights)


@pytest.mark.usefixtures("wide")
def test_copies_are_independent() -> None:
    rows = PointClouds.from_list(bags()[0]).pack()
    copy = cloned(rows)
    copy[0, 0] += 1
    assert bool(rows[0, 0] != copy[0, 0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.usefixtures("wide")
def test_zeros(dtype: torch.dtype) -> None:
    zeros = untouched_zeros((3, 5), torch.ones(1, dtype=dtype))
    assert torch.equal(zeros, torch.zeros(3, 5, dtype=dtype))
    zeros[1:] = 2
    assert zeros.sum() == 20


def test_where_a_row_ends() -> None:
    assert [filled(torch.tensor(row)) for row in ([0.0, 0.0], [1.0, 0.0], [0.0, 2.0])] == [0, 1, 2]
    assert filled(torch.tensor([[0.0, 1.0], [0.0, 0.0]])) == 1
    target = torch.zeros(2, 3)
    copy_filled(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), target)
    assert target.tolist() == [[1, 0, 0], [0, 2, 0]]


def test_short_rows_are_not_treated_one_by_one() -> None:
    assert not is_wide(torch.zeros(5, 100))
    assert is_wide(torch.zeros(5, 2**14))
    assert not is_wide(torch.zeros(2**14))
    assert not is_wide(torch.zeros(5, 2**14, requires_grad=True))


def test_points_with_zero_weight_stay() -> None:
    points = torch.ones(2, 2**14, 1, dtype=torch.float64)
    weights = torch.zeros(2, 2**14, dtype=torch.float64)
    weights[:, 3] = 1
    rows = join_rows(points, weights)
    assert all(map(torch.equal, split_rows(rows, 1), (points, weights)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory on Linux")
def test_memory_of_one_large_bag() -> None:
    """Padded, the bags take 480 MB and their rows as much again."""
    script = """
import resource, torch
from gp_distributions import PointClouds, SlicedWasserstein
bags = [torch.rand(2_000_000 if i == 3 else 20, 2).double() for i in range(10)]
distance = SlicedWasserstein(2, num_slices=2, num_quantiles=10)
PointClouds.from_list([bag[:20] for bag in bags]).pack()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = PointClouds.from_list(bags).pack()
distance.squared(rows)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert float(found.stdout) < 400


def test_embedding_in_few_directions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    points, weights = bags()
    distance = SlicedWasserstein(2, num_slices=8, num_quantiles=5)
    rows = [PointClouds.from_list(points, w).pack() for w in (None, weights)]
    expected = [distance.embed(r) for r in rows]
    monkeypatch.setattr(distance, "chunk_elements", 60)
    for r, features in zip(rows, expected, strict=True):
        torch.testing.assert_close(distance.embed(r), features, rtol=1e-12, atol=1e-12)
