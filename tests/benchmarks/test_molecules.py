"""The protocol of the molecules: what is held out, the line in the counts, the features of pairs."""

import numpy as np
import pytest
import torch

from benchmarks.data.molecules import Molecules
from benchmarks.prediction import molecules
from gp_distributions import PointClouds

COEFFICIENTS = np.array([-60.0, -150.0, -90.0, -70.0, -80.0])  # kcal/mol


@pytest.fixture(scope="module")
def known() -> Molecules:
    """Molecules whose atomisation energies are linear in their counts."""
    counts = np.random.default_rng(0).integers(0, 9, (14_000, 5))
    total = counts @ (molecules.FREE_ATOMS + COEFFICIENTS / molecules.HARTREE)
    return Molecules(
        PointClouds(torch.zeros(len(counts), 1, 4, dtype=torch.float64)),
        {"u0": total},
        counts,
        ("C",) * len(counts),
        np.arange(len(counts)),
    )


def test_the_same_molecules_are_held_out_from_all_training_sets(known: Molecules) -> None:
    splits = [molecules.split_of(known, size, 10_000) for size in molecules.EXACT]
    assert [len(split.train) for split in splits] == [1000, 3000]
    for split in splits:
        assert len(set(split.test.tolist())) == 10_000
        assert not set(split.test.tolist()) & set(split.train.tolist())
        np.testing.assert_array_equal(split.test, splits[0].test)
    np.testing.assert_array_equal(splits[1].train[:1000], splits[0].train)


def test_line_predicts_what_is_linear_in_the_counts(known: Molecules) -> None:
    split = molecules.split_of(known, 1000, 10_000)
    np.testing.assert_allclose(split.energies, known.counts @ COEFFICIENTS, atol=1e-6)
    mean, _ = molecules.counts(split)
    # The penalty is 1e-3 beside 1000 molecules times the variance of a count, about 7.
    np.testing.assert_allclose(mean, split.energies[split.test], rtol=1e-5, atol=1e-2)
    changed = split.energies.copy()
    changed[split.test] += 100.0
    other = molecules.Split(split.clouds, split.counts, changed, split.train, split.test)
    np.testing.assert_array_equal(molecules.counts(other)[0], mean)


def test_features_of_water() -> None:
    water = [[0.0, 0.0, 0.12, 8], [0.0, 0.76, -0.47, 1], [0.0, -0.76, -0.47, 1]]
    bond = np.hypot(0.76, 0.59)
    expected = [[3 * np.log(bond), 0.7 * 8**0.5, 3.5]] * 2 + [[3 * np.log(1.52), 0.7, 0.0]]
    found = molecules.pairs(PointClouds([water])).points[0]
    np.testing.assert_allclose(found, expected, rtol=1e-14)
