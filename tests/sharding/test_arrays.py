import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gp_distributions import PointClouds, ShardedClouds
from gp_distributions.sharding import PieceError

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(10, 4, 3))
WEIGHTS = RNG.uniform(1, 2, size=(10, 4))
TARGETS = RNG.normal(size=10)
SIZES = [3, 1, 4, 1, 5]
OFFSETS = np.cumsum([0, *SIZES])


@pytest.mark.parametrize("where", ["memory", "path", "map", "fortran", "part", "tensor"])
def test_pieces_are_the_arrays(tmp_path: Path, where: str) -> None:
    np.save(tmp_path / "points.npy", np.asfortranarray(POINTS) if where == "fortran" else POINTS)
    np.save(tmp_path / "longer.npy", np.concatenate([POINTS[:2], POINTS]))
    points: Any = {
        "memory": POINTS,
        "path": tmp_path / "points.npy",
        "map": np.load(tmp_path / "points.npy", mmap_mode="r"),
        "fortran": str(tmp_path / "points.npy"),
        "part": np.load(tmp_path / "longer.npy", mmap_mode="r")[2:],
        "tensor": torch.from_numpy(POINTS),
    }[where]
    shards = ShardedClouds.from_arrays(
        points, weights=WEIGHTS, targets=TARGETS, labels=np.arange(10), piece_atoms=17
    )
    assert (shards.num_pieces, len(shards), shards.dim) == (3, 10, 3)
    copies = pickle.loads(pickle.dumps(shards))
    rows = torch.cat([copies.piece(i)[0].pack() for i in range(3)])
    assert torch.equal(rows, PointClouds(POINTS, WEIGHTS).pack())
    assert torch.equal(shards.targets(), torch.from_numpy(TARGETS))
    assert torch.equal(torch.cat([shards.piece(i)[1] for i in range(3)]), torch.from_numpy(TARGETS))
    assert shards.labels().tolist() == list(range(10))
    assert copies.digest() == shards.digest()


def test_bags_of_any_sizes(tmp_path: Path) -> None:
    atoms, weights = POINTS.reshape(-1, 3)[: sum(SIZES)], WEIGHTS.reshape(-1)[: sum(SIZES)]
    for name, array in (("atoms", atoms), ("offsets", OFFSETS), ("weights", weights)):
        np.save(tmp_path / f"{name}.npy", array)
    shards = ShardedClouds.from_arrays(
        tmp_path / "atoms.npy",
        offsets=tmp_path / "offsets.npy",
        weights=tmp_path / "weights.npy",
        targets=np.stack([TARGETS[:5], -TARGETS[:5]], -1),
        piece_atoms=6,
    )
    assert [len(shards.piece(i)[0]) for i in range(shards.num_pieces)] == [2, 1, 1, 1]
    for i, start in enumerate([0, 2, 3, 4]):
        clouds, targets = shards.piece(i)
        bags = range(start, start + len(clouds))
        expected = PointClouds.from_list(
            [atoms[OFFSETS[b] : OFFSETS[b + 1]] for b in bags],
            [weights[OFFSETS[b] : OFFSETS[b + 1]] for b in bags],
        )
        assert clouds == expected
        assert targets.shape == (len(clouds), 2)


def test_files_are_sent_as_paths(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.zeros((1000, 10, 2)))
    shards = ShardedClouds.from_arrays(tmp_path / "points.npy")
    assert len(pickle.dumps(shards)) < 10_000  # the numbers of atoms of the bags
    before = shards.digest()
    np.save(tmp_path / "points.npy", np.ones((1000, 10, 2)))
    with pytest.raises(PieceError, match=r"points\.npy has changed"):
        shards.piece(0)
    assert ShardedClouds.from_arrays(tmp_path / "points.npy").digest() != before


def test_changed_copies_of_a_file_are_not_read_from_it(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", POINTS)
    changed = np.load(tmp_path / "points.npy", mmap_mode="c")
    changed -= 100
    clouds, _ = ShardedClouds.from_arrays(changed).piece(0)
    assert torch.equal(clouds.points, torch.from_numpy(POINTS - 100))


def test_digests_follow_the_content() -> None:
    digest = ShardedClouds.from_arrays(POINTS, targets=TARGETS).digest()
    assert digest == ShardedClouds.from_arrays(POINTS.copy(), targets=TARGETS.copy()).digest()
    assert digest != ShardedClouds.from_arrays(POINTS + 1, targets=TARGETS).digest()
    assert digest != ShardedClouds.from_arrays(POINTS, targets=TARGETS + 1).digest()
    assert digest != ShardedClouds.from_arrays(POINTS, weights=WEIGHTS, targets=TARGETS).digest()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": POINTS[0]}, r"expected shape \(bags, n, d\).*without offsets"),
        ({"points": POINTS, "offsets": [0, 10]}, r"\(atoms, d\) with offsets=.* with offsets"),
        (
            {"points": POINTS[0], "offsets": [0, 2, 2, 4]},
            "increase from 0 to the number of atoms, 4",
        ),
        ({"points": POINTS, "weights": WEIGHTS[:2]}, r"expected shape \(10, 4\).*got \(2, 4\)"),
        ({"points": POINTS, "targets": TARGETS[:2]}, r"targets: expected shape \(10,\)"),
        ({"points": POINTS, "targets": [np.nan] * 10}, "Bag 0: expected a finite target"),
        ({"points": POINTS, "labels": ["a"]}, "labels: expected 10"),
        ({"points": "nowhere.npy"}, r"points \(nowhere\.npy\): FileNotFoundError"),
        ({"points": np.ma.masked_array(POINTS)}, "points: expected an array, got a masked array"),
        ({"points": POINTS[:0]}, r"points: .*at least one of each, got \(0, "),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardedClouds.from_arrays(arguments.pop("points"), **arguments)


def test_errors_name_the_file_and_the_bags(tmp_path: Path) -> None:
    points = POINTS.copy()
    points[7, 1, 2] = np.nan
    np.save(tmp_path / "points.npy", points)
    shards = ShardedClouds.from_arrays(tmp_path / "points.npy", piece_atoms=17)
    with pytest.raises(PieceError, match=r"points\.npy, bags 4 to 7: Bag 3: .*nan in atom 1"):
        shards.piece(1)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("points", POINTS.astype("M8[s]")),
        ("offsets", np.array([0.0, 40.0])),
        ("weights", -np.ones(40)),
        ("targets", np.array([1, np.nan])),
    ],
)
def test_errors_of_forged_files_name_them(tmp_path: Path, name: str, array: np.ndarray) -> None:
    files = {
        "points": POINTS.reshape(-1, 3),
        "offsets": np.array([0, 3, 40]),
        "weights": np.ones(40),
        "targets": np.zeros(2),
    }
    for each, content in (files | {name: array}).items():
        np.save(tmp_path / f"{each}.npy", content)
    paths = {each: tmp_path / f"{each}.npy" for each in files}
    with pytest.raises(ValueError, match=re.escape(str(paths[name]))):
        ShardedClouds.from_arrays(paths.pop("points"), **paths).piece(0)
