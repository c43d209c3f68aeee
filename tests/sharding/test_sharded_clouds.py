import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sharding_tasks import in_pieces

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError

TARGETS = torch.arange(200).double()
POINTS = (TARGETS[:, None, None] + torch.tensor([0.0, 0.1, 0.3])[:, None]).double()
SHARDS = in_pieces(PointClouds.from_list(dict(enumerate(POINTS))), TARGETS, size=20)


def test_pieces_are_what_functions_return() -> None:
    copies = pickle.loads(pickle.dumps(SHARDS))
    for shards in (SHARDS, copies):
        clouds, targets = shards.piece(3)
        assert torch.equal(clouds.points, POINTS[60:80])
        assert torch.equal(targets, TARGETS[60:80])
        assert shards.labels().tolist() == list(range(200))
        assert torch.equal(shards.targets(), TARGETS)
    bare = ShardedClouds.from_pieces([partial(PointClouds, POINTS[:5])])
    assert bare.piece(0)[1] is None
    assert bare.targets() is None
    assert bare.labels() is None
    assert repr(SHARDS) == "ShardedClouds(10 pieces)"
    with pytest.raises(TypeError, match="unknown"):
        len(SHARDS)
    with pytest.raises(ValueError, match="at least one piece"):
        ShardedClouds.from_pieces([])


def test_errors_name_the_piece() -> None:
    def fails() -> Any:
        raise OSError("the disk is full")

    clouds = PointClouds(POINTS[:2])
    for function, message in (
        (fails, "piece 1: OSError: the disk is full"),
        (lambda: (clouds, [1.0]), r"piece 1: targets: expected shape \(2,\)"),
        (lambda: (clouds, [1.0, np.nan]), "piece 1: Bag 1: expected a finite target"),
        (lambda: PointClouds(POINTS[None]), "one batch axis"),
        (lambda: POINTS.numpy(), "PointClouds .*, got ndarray"),
    ):
        with pytest.raises(PieceError, match=message):
            ShardedClouds.from_pieces([lambda: clouds, function]).piece(1)


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


def test_small_data_are_returned_whole() -> None:
    clouds, targets = SHARDS.sample(1000)
    assert torch.equal(targets, TARGETS)
    assert torch.equal(clouds.points, POINTS)


def test_bags_of_several_widths_are_sampled() -> None:
    bags = PointClouds.from_list([np.full((i + 1, 1), float(i)) for i in range(40)])
    clouds, targets = in_pieces(bags, torch.arange(40), size=7).sample(15, seed=0)
    assert torch.equal(clouds.sizes, targets.long() + 1)
    assert torch.equal((clouds.points[..., 0] * clouds.weights).sum(-1).round(), targets)


def test_pieces_can_be_held_out() -> None:
    some = SHARDS.select([3, 1])
    assert some.num_pieces == 2
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
        shards = ShardedClouds.from_pieces([partial(function, i) for i in range(3)])
        message = f"piece {bare or 1}: expected {'no ' * (not bare)}{what}, as in the first piece"
        with pytest.raises(PieceError, match=message):
            getattr(shards, what)()
        with pytest.raises(PieceError, match=message):
            shards.sample(30)
