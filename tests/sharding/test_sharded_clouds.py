from typing import Any

import dask
import numpy as np
import pytest
import torch

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError

TARGETS = torch.arange(200).double()
POINTS = (TARGETS[:, None, None] + torch.tensor([0.0, 0.1, 0.3])[:, None]).double()
SHARDS = ShardedClouds.from_arrays(POINTS, targets=TARGETS, labels=range(200), piece_atoms=60)


def delayed(shards: ShardedClouds) -> ShardedClouds:
    return ShardedClouds.from_delayed([dask.delayed(shards.piece)(i) for i in range(10)])


def test_samples_are_uniform_and_without_replacement() -> None:
    draws = [SHARDS.sample(20, seed=seed)[1] for seed in range(100)]
    assert all(len(draw.unique()) == 20 for draw in draws)
    counts = torch.bincount(torch.cat(draws).long(), minlength=200)
    # Each cloud is drawn 10 times on average, with variance 9; the sum of squares over all of them is
    # 200 chi^2 / 199 times that, within four standard deviations of sqrt(2 * 199).
    chi = ((counts - 10).double().square() / 9).sum() * 199 / 200
    assert abs(chi - 199) < 4 * np.sqrt(2 * 199)


def test_places_in_one_piece_say_nothing_of_those_in_another() -> None:
    _, targets = SHARDS.sample(20, seed=0)
    assert len((targets % 20).unique()) > 5  # of the places 0 to 19; two, if all pieces were alike


def test_samples_keep_clouds_targets_and_labels_together() -> None:
    clouds, targets = SHARDS.sample(30, seed=1)
    assert torch.equal(clouds.points, POINTS[targets.long()])
    assert clouds.labels.tolist() == targets.tolist()
    assert targets.tolist() == sorted(targets.tolist())  # in the order of the pieces


def test_samples_do_not_depend_on_known_numbers_of_clouds() -> None:
    clouds, targets = SHARDS.sample(30, seed=1)
    again, values = delayed(SHARDS).sample(30, seed=1)
    assert clouds == again
    assert torch.equal(targets, values)


def test_small_data_are_returned_whole() -> None:
    for shards in (SHARDS, delayed(SHARDS)):
        clouds, targets = shards.sample(1000)
        assert torch.equal(targets, TARGETS)
        assert torch.equal(clouds.points, POINTS)


def test_bags_of_several_widths_are_sampled() -> None:
    sizes = np.arange(1, 41)
    offsets = np.append(0, sizes.cumsum())
    atoms = np.repeat(np.arange(40.0), sizes)[:, None]
    shards = ShardedClouds.from_arrays(
        atoms, offsets=offsets, targets=np.arange(40), piece_atoms=60
    )
    clouds, targets = shards.sample(15, seed=0)
    assert torch.equal(clouds.sizes, targets.long() + 1)
    assert torch.equal((clouds.points[..., 0] * clouds.weights).sum(-1).round(), targets)


def test_pieces_can_be_held_out() -> None:
    some = SHARDS.select([3, 1])
    assert (len(some), some.num_pieces) == (40, 2)
    assert torch.equal(some.targets(), torch.cat([TARGETS[60:80], TARGETS[20:40]]))
    with pytest.raises(ValueError, match="at least one"):
        SHARDS.select([])


@pytest.mark.parametrize("bare", [0, 1, 2])
def test_targets_and_labels_of_some_pieces_alone_are_refused(bare: int) -> None:
    def piece(i: int) -> Any:
        clouds, targets = SHARDS.piece(i)
        return (clouds, targets) if i != bare else clouds

    def unlabelled(i: int) -> Any:
        clouds, targets = SHARDS.piece(i)
        return (clouds if i != bare else PointClouds(clouds.points), targets)

    for what, function in (("targets", piece), ("labels", unlabelled)):
        parts = [dask.delayed(function)(i, dask_key_name=f"night-{i}") for i in range(3)]
        shards = ShardedClouds.from_delayed(parts)
        message = f"night-{bare or 1}: expected {'no ' * (not bare)}{what}, as in the first piece"
        with pytest.raises(PieceError, match=message):
            getattr(shards, what)()
        with pytest.raises(PieceError, match=message):
            shards.sample(30)
        assert getattr(shards, what)(bare) is None
