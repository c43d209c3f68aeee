"""MMD between bags of objects of any kind, whose atoms are numbers of objects."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gp_distributions import MMD, DistributionGP, MMDKernel, PointClouds, fit
from gp_distributions.testing import DistanceTestCase
from gp_distributions.testing.clouds import Clouds

pytestmark = pytest.mark.usefixtures("short_fits")

WORDS = ["oak", "oat", "elm", "yew", "oats", "aspen"]
BAGS = [[0, 1], [2], [3, 3, 0], [5, 4, 1, 2], [4]]
ROWS = PointClouds.from_list([np.array(bag, float)[:, None] for bag in BAGS]).pack()


def letters(a: str, b: str) -> int:
    return len(set(a) & set(b))


MATRIX = torch.tensor([[letters(a, b) for b in WORDS] for a in WORDS]).double()


def by_loops(bags: list[list[int]], words: list[str]) -> Tensor:
    """Squared distances between the mean letter counts of bags."""
    alphabet = sorted({letter for word in words for letter in word})
    means = torch.tensor(
        [[np.mean([c in words[i] for i in bag]) for c in alphabet] for bag in bags]
    )
    return torch.cdist(means, means).square().double()


class TestConformance(DistanceTestCase):
    moves_points = False

    def create_distance(self, **options: object) -> MMD:
        return MMD(kernel=MATRIX)

    def create_clouds(self, num: int, *, seed: int = 0, sizes: tuple[int, int] = (1, 40)) -> Clouds:
        generator = torch.Generator().manual_seed(seed)
        clouds = []
        for _ in range(num):
            size = int(torch.randint(sizes[0], sizes[1] + 1, (), generator=generator))
            indices = torch.randint(len(WORDS), (size, 1), generator=generator).double()
            clouds.append((indices, 0.1 + torch.rand(size, generator=generator).double()))
        return clouds


del DistanceTestCase


@pytest.mark.parametrize(
    "make",
    [
        lambda: MMD(kernel=letters, atoms=WORDS),
        lambda: MMD(kernel=MATRIX, atoms=WORDS),
        lambda: MMD(kernel=MATRIX.numpy()),
        lambda: MMD(kernel=MATRIX.int().tolist()),
    ],
)
def test_is_the_distance_of_mean_features(make: Callable[[], MMD]) -> None:
    torch.testing.assert_close(make().squared(ROWS), by_loops(BAGS, WORDS), rtol=1e-6, atol=1e-6)


def test_unit_length_of_embeddings() -> None:
    expected = MATRIX / (MATRIX.diagonal()[:, None] * MATRIX.diagonal()).sqrt()
    rows = PointClouds.from_list([[[float(i)]] for i in range(6)]).pack()
    squared = MMD(kernel=MATRIX.numpy(), normalize=True).squared(rows)
    torch.testing.assert_close(squared, 2 - 2 * expected, rtol=1e-10, atol=1e-10)


class TestNewAtoms:
    def test_are_compared_by_the_function_once(self) -> None:
        words, called = list(WORDS), []

        def counted(a: str, b: str) -> int:
            called.append((a, b))
            return letters(a, b)

        distance = MMD(kernel=counted, atoms=words)
        assert len(called) == 21
        copied = copy.deepcopy(distance)
        words.append("ash")
        bags = [*BAGS[:3], [6, 0], [6]]
        rows = PointClouds.from_list([np.array(bag, float)[:, None] for bag in bags]).pack()
        expected = by_loops(bags, words)
        for each in (distance, copied):
            torch.testing.assert_close(each.squared(rows), expected, rtol=1e-6, atol=1e-6)
        assert len(called) == 28
        assert all("ash" in pair for pair in called[21:])

    def test_are_predicted(self) -> None:
        """As by a model of all atoms from the start."""
        words = list(WORDS)
        targets = torch.tensor([2.5, 3.0, 1.0, 0.5, 4.0]).double()
        model = fit(DistributionGP(ROWS, targets, MMDKernel(kernel=letters, atoms=words)))
        assert isinstance(model, DistributionGP)
        words.append("ash")
        new = PointClouds.from_list([[[6.0], [0.0]]]).pack()
        found = model.predict(new)
        kernel = MMDKernel(kernel=letters, atoms=[*WORDS, "ash"])
        whole = DistributionGP(ROWS, targets, kernel)
        whole.load_state_dict(model.state_dict())
        torch.testing.assert_close(found, whole.predict(new))

    @pytest.mark.parametrize("index", [6.0, -1.0, 0.5])
    @pytest.mark.parametrize("kernel", [letters, MATRIX])
    def test_that_are_not_in_the_list_are_refused(self, kernel: Any, index: float) -> None:
        distance = MMD(kernel=kernel, atoms=WORDS)
        rows = PointClouds.from_list([[[0.0], [index]]]).pack()
        with pytest.raises(ValueError, match=f"integers from 0 to 5, got {index:g}"):
            distance.squared(rows, ROWS)


def test_is_pickled_with_its_matrix() -> None:
    distance = MMD(kernel=letters, atoms=WORDS)
    loaded = pickle.loads(pickle.dumps(distance))
    assert torch.equal(loaded.squared(ROWS), distance.squared(ROWS))


class TestRefuses:
    def test_kernels_that_are_not_positive_semi_definite(self) -> None:
        """Of a matrix with zeros on the diagonal and ones elsewhere, minus one is an eigenvalue."""
        with pytest.raises(ValueError, match="smallest eigenvalue of its 3 x 3 matrix is -1"):
            MMD(kernel=1 - np.eye(3))
        with pytest.raises(ValueError, match="smallest eigenvalue of its 6 x 6 matrix is -1"):
            MMD(kernel=lambda a, b: a != b, atoms=WORDS)

    def test_new_atoms_that_break_it(self) -> None:
        words = list(WORDS)
        distance = MMD(kernel=lambda a, b: 1 - 2 * ("" in (a, b)), atoms=words)
        distance.squared(ROWS)
        words.append("")
        with pytest.raises(ValueError, match="smallest eigenvalue of its 7 x 7 matrix"):
            distance.squared(ROWS[:2])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"kernel": "gaussian", "atoms": WORDS}, "a function of two atoms .* got 'gaussian'"),
            ({"kernel": MATRIX, "atoms": WORDS[1:]}, "Expected 6 atoms for this matrix, got 5"),
            ({"kernel": MATRIX, "num_features": 4, "features": "landmarks"}, "no features"),
        ],
    )
    def test_what_does_not_match(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises((TypeError, ValueError), match=message):
            MMD(**options)
