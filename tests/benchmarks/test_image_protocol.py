"""The image protocol: moves preserve images, splits are disjoint, and choices ignore test images."""

import pytest
import torch
from sklearn.datasets import load_digits

from benchmarks.papers.image_protocol import (
    Counts,
    Images,
    as_clouds,
    as_edges,
    choose,
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


class TestChoices:
    @staticmethod
    def data() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(90) % 3
        good = labels[:, None] + 0.1 * torch.randn(90, 1, generator=generator, dtype=torch.float64)
        bad = torch.randn(90, 1, generator=generator, dtype=torch.float64)
        return {"bad": (bad - bad.T).square(), "good": (good - good.T).square()}, labels

    def test_take_what_validates_best(self) -> None:
        squared, labels = self.data()
        choice = choose(squared, labels, (40, 20), ridges=(1e-3,))
        assert choice.name == "good"
        assert choice.validation == choice.test == 1.0
        assert choose({"bad": squared["bad"]}, labels, (40, 20), ridges=(1e-3,)).test < 0.7

    def test_do_not_depend_on_test_labels(self) -> None:
        squared, labels = self.data()
        choice = choose(squared, labels, (40, 20), ridges=(1e-3,))
        wrong = torch.cat([labels[:60], (labels[60:] + 1) % 3])
        other = choose(squared, wrong, (40, 20), ridges=(1e-3,))
        assert (other.name, other.lengthscale, other.ridge) == (
            choice.name,
            choice.lengthscale,
            choice.ridge,
        )
        assert other.test == 0.0
