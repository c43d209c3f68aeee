"""Kinds and masses of atoms in containers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gp_distributions import DistributionGP, MixedInputs, PointClouds, SlicedWassersteinKernel
from gp_distributions.measures.inputs import AtomEncoding

BAGS = [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
KINDS = [["H", "O"], ["C"]]


def clouds() -> PointClouds:
    return PointClouds.from_list(BAGS, [[1.0, 3.0], [2.0]], kinds=KINDS)


def test_every_reader_reads_kinds_and_masses() -> None:
    frame = pd.DataFrame(
        {
            "bag": [0, 0, 1],
            "x": [0.0, 2, 4],
            "y": [1.0, 3, 5],
            "w": [1.0, 3, 2],
            "k": ["H", "O", "C"],
        }
    )
    flat = [atom for bag in BAGS for atom in bag]
    padded = np.array([BAGS[0], [*BAGS[1], [0.0, 0.0]]])
    read = [
        clouds(),
        PointClouds.from_frame(frame, bag="bag", columns=["x", "y"], weight="w", kind="k"),
        PointClouds.from_ragged(flat, [0, 2, 3], [1.0, 3.0, 2.0], kinds=["H", "O", "C"]),
        PointClouds(padded, [[1.0, 3.0], [2.0, 0.0]], kinds=[["H", "O"], ["C", "none"]]),
        PointClouds.from_list([clouds()[0], clouds()[1]]),
    ]
    for X in read:
        assert X.kind_names == ("C", "H", "O")
        assert X.points[..., -1].tolist() == [[1.0, 2.0], [0.0, 0.0]]
        assert X.positions.tolist() == padded.tolist()
        assert X.masses.tolist() == [[1.0, 3.0], [2.0, 0.0]]
        assert X.mass.tolist() == [4.0, 2.0]
        assert X.kinds is not None
        assert X.kinds[0].tolist() == ["H", "O"]


def test_kinds_are_numbers_or_text() -> None:
    X = PointClouds.from_list(BAGS, kinds=[[8, "H"], [1]])
    assert X.kind_names == (1, 8, "H")
    assert X.points[..., -1].tolist() == [[1.0, 2.0], [0.0, 0.0]]


def test_masses_are_counts_by_default() -> None:
    assert PointClouds.from_list(BAGS).mass.tolist() == [2.0, 1.0]
    assert PointClouds.from_images([[[1.0, 2.0]]]).mass.tolist() == [3.0]
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    assert PointClouds.from_curves([square]).mass.tolist() == [4.0]
    assert PointClouds.from_curves([square], atoms=7).mass.tolist() == [4.0]


def test_what_follows_from_clouds_keeps_kinds_and_masses() -> None:
    X = clouds()
    for same in (X[[0, 1]], X.to(torch.float64), PointClouds._concatenate([X[:1], X[1:]])):
        assert (same.kind_names, same.mass.tolist()) == (X.kind_names, [4.0, 2.0])
    moved = X.normalize()
    assert torch.equal(moved.points[..., -1][X.weights > 0], X.points[..., -1][X.weights > 0])
    plain = PointClouds(X.positions, X.weights).normalize()
    assert torch.equal(moved.positions, plain.positions)
    assert X.resample(5).mass.tolist() == [4.0, 2.0]


def test_concatenation_numbers_kinds_anew() -> None:
    other = PointClouds([[[6.0, 7.0]]], kinds=[["A"]])
    joint = PointClouds._concatenate([clouds(), other])
    assert joint.kind_names == ("A", "C", "H", "O")
    assert joint.kinds is not None
    assert joint.kinds[:, 0].tolist() == ["H", "C", "A"]


def test_rows_hold_masses_and_the_numbers_of_training() -> None:
    rows = AtomEncoding(("O", "N", "H", "C"), masses=True).rows(clouds())
    assert rows[0].tolist() == [0.0, 1.0, 2.0, 1.0, 2.0, 3.0, 0.0, 3.0]


def test_ragged_bags_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="Offsets: expected increasing integers"):
        PointClouds.from_ragged([[0.0], [1.0], [2.0]], [0, 1.5, 3], kinds=list("HOC"))


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([["H", None], ["C", "C"]], "Bag 0: expected a kind for each atom, got None in atom 1"),
        (
            [[1.0, 2.0], [3.0, np.nan]],
            "Bag 1: expected a kind for each atom, got .*nan.* in atom 1",
        ),
        ([["H"], ["C"]], r"Kinds: expected shape \(2, 2\), one for each atom, got \(2, 1\)"),
    ],
)
def test_missing_kinds_are_refused(kinds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PointClouds(np.zeros((2, 2, 1)), kinds=kinds)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"Bag 0: expected atoms of the kinds .* got 'O' in atom 1",
    ):
        clouds()._with_kind_names(("C", "H"))
    with pytest.raises(ValueError, match="Expected clouds without kinds as in training"):
        clouds()._with_kind_names(())


def test_what_cannot_use_kinds_refuses_them() -> None:
    X = clouds()
    for kernel in (None, SlicedWassersteinKernel(3)):
        with pytest.raises(ValueError, match="Expected clouds without kinds"):
            DistributionGP(X, [0.0, 1.0], kernel)
    with pytest.raises(ValueError, match="Expected clouds without kinds in a block"):
        MixedInputs(atoms=X).encoding  # noqa: B018
    for call in (X.pairs, X.estimate_normals):
        with pytest.raises(ValueError, match="Expected clouds without normals and kinds"):
            call()


def test_each_bag_has_a_kind_for_each_atom() -> None:
    with pytest.raises(ValueError, match="Bag 1: expected a kind for each of 1 atoms, got 2"):
        PointClouds.from_list(BAGS, kinds=[["H", "O"], ["C", "C"]])
    with pytest.raises(ValueError, match="Expected kinds of each of 2 bags, got 1"):
        PointClouds.from_list(BAGS, kinds=[["H", "O"]])
