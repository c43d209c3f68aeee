"""The image protocol: moves preserve images, splits are disjoint, and choices ignore test images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from benchmarks.papers.image_protocol import (
    Counts,
    Images,
    as_clouds,
    as_edges,
    choose,
    load,
    move,
    split,
)
from gp_distributions import SlicedWasserstein

COUNTS = Counts(10, 3, 5)


def blobs(num: int) -> torch.Tensor:
    """Smooth images, 28 x 28, that are zero at the border."""
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    centre = 10 + 8 * torch.rand(num, 3, 2, 1, 1, generator=generator)
    bumps = (1 - ((y - centre[:, :, 0]) ** 2 + (x - centre[:, :, 1]) ** 2) / 25).clamp_min(0)
    return bumps.sum(1).double()


@pytest.fixture(scope="module")
def pool() -> Images:
    data = load_digits()
    return Images(torch.from_numpy(data.images / 16), torch.from_numpy(data.target))


class TestSplits:
    def test_are_balanced_and_disjoint(self, pool: Images) -> None:
        numbered = Images(torch.arange(len(pool))[:, None, None], pool.labels)
        seen, tested = [], []
        for seed in (0, 1, 2, 100):
            run = split(numbered, seed, counts=COUNTS)
            for part, count in ((run.train, 10), (run.validation, 3), (run.test, 5)):
                assert part.labels.bincount().tolist() == [count] * 10
                assert torch.equal(pool.labels[part.images.flatten()], part.labels)
            known = run.train.images.flatten().tolist() + run.validation.images.flatten().tolist()
            assert len(set(known)) == 130
            seen.append(set(known))
            tested.append(set(run.test.images.flatten().tolist()))
        for sets in (seen, tested):
            assert sum(map(len, sets[:3])) == len(set.union(*sets[:3]))
        # No image is seen before testing in one run and tested in another, even if runs are random.
        assert not set.union(*seen) & set.union(*tested)


class TestMoves:
    def test_shift_images_by_pixels(self) -> None:
        images = blobs(20)
        moved = move(images, 0.0, seed=0)
        assert moved.shape == (20, 34, 34)
        torch.testing.assert_close(moved.sum((1, 2)), images.sum((1, 2)))
        centred = SlicedWasserstein(2, num_slices=20, num_quantiles=30, center=True)
        edges = SlicedWasserstein(4, num_slices=20, num_quantiles=30, center=True)
        for distance, clouds in (
            (centred, as_clouds),
            (edges, lambda images: as_edges(images, 0.5)),
        ):
            together = clouds(torch.cat([torch.nn.functional.pad(images, [3] * 4), moved]))
            squared = distance.squared(together.pack())[:20, 20:]
            assert float(squared.diagonal().max()) < 1e-14 * float(squared.max())
        places = {tuple(image.nonzero()[0].tolist()) for image in moved}
        assert len(places) > 15

    def test_positions_fill_the_square_or_keep_their_size(self) -> None:
        corners = torch.zeros(1, 34, 34, dtype=torch.float64)
        corners[0, 0, 0] = corners[0, 33, 33] = 1
        filled, kept = as_clouds(corners, fill=True).points[0], as_clouds(corners).points[0]
        torch.testing.assert_close(filled, torch.tensor([[-1.0, 1.0], [1.0, -1.0]]).double())
        right = 33 / 13.5 - 1
        torch.testing.assert_close(kept, torch.tensor([[-1.0, 1.0], [right, -right]]).double())

    def test_turn_images_by_angles(self) -> None:
        """The direction of a rotated bar is that of the angle."""
        bars = torch.zeros(200, 28, 28, dtype=torch.float64)
        bars[:, 4:24, 13:15] = 1
        clouds = as_clouds(move(bars, 30.0, seed=0))
        points = clouds.points - (clouds.weights[..., None] * clouds.points).sum(1, keepdim=True)
        covariance = points.mT @ (clouds.weights[..., None] * points)
        _, axes = torch.linalg.eigh(covariance)
        angles = torch.atan(axes[:, 0, 1] / axes[:, 1, 1]).rad2deg()
        assert 28 < float(angles.max()) <= 30.5
        assert -30.5 <= float(angles.min()) < -28
        assert abs(float(angles.mean())) < 4


@pytest.mark.parametrize("turns", range(4))
def test_edges_have_the_direction_of_the_gradient(turns: int) -> None:
    images = torch.zeros(1, 9, 9, dtype=torch.float64)
    images[0, :, 4:] = 1  # brighter to the right
    clouds = as_edges(torch.rot90(images, turns, (1, 2)), 0.5)
    middle = clouds.points.new_tensor([5 / 13.5 - 1, 1 - 5 / 13.5])
    inside = (clouds.points[0, :, :2] - middle).abs().amax(-1) < 1.5 / 13.5
    expected = [(0.5, 0.0), (0.0, 0.5), (-0.5, 0.0), (0.0, -0.5)][turns]
    directions = clouds.points[0, inside, 2:]
    assert len(directions) == 6  # two pixels wide, three long
    torch.testing.assert_close(directions, directions.new_tensor(expected).expand(6, 2))
    # What goes up comes down.
    total = (clouds.weights[..., None] * clouds.points)[..., 2:].sum(1)
    torch.testing.assert_close(total, torch.zeros(1, 2, dtype=torch.float64), atol=1e-12, rtol=0)


class TestChoices:
    @staticmethod
    def data() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(90) % 3
        good = labels[:, None] + 0.1 * torch.randn(90, 1, generator=generator, dtype=torch.float64)
        bad = torch.randn(90, 1, generator=generator, dtype=torch.float64)
        return {"bad": (bad - bad.T).square(), "good": (good - good.T).square()}, labels

    def test_do_not_depend_on_test_labels(self) -> None:
        squared, labels = self.data()
        choice = choose(squared, labels, (40, 20), ridges=(1e-3,))
        assert choice.name == "good"
        assert choice.validation == choice.test == 1.0
        wrong = torch.cat([labels[:60], (labels[60:] + 1) % 3])
        other = choose(squared, wrong, (40, 20), ridges=(1e-3,))
        assert (other.name, other.lengthscale, other.ridge) == (
            choice.name,
            choice.lengthscale,
            choice.ridge,
        )
        assert other.test == 0.0


def test_data_are_read_or_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="--data-dir"):
        load("MNIST", tmp_path)
    images = np.full((3, 28, 28), 255, dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", images=images, labels=np.arange(3, dtype=np.uint8))
    pool = load("MNIST", tmp_path)
    assert pool.images.dtype == torch.float64
    assert float(pool.images.max()) == 1.0
    assert pool.labels.tolist() == [0, 1, 2]
