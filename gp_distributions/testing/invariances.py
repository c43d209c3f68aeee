"""Tests that distances do not depend on the layout of clouds in rows, batches and chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gp_distributions.testing.base_test_case import BaseTestCase
from gp_distributions.testing.clouds import Clouds


class InvarianceTests(BaseTestCase):
    """Tests that equivalent rows have equal distances, however many rows are compared at once."""

    def test_padding(self) -> None:
        """Atoms of weight zero at the end of a row do not change distances."""
        self.need_weights()
        clouds = self.create_clouds(12)
        self._check_unchanged(self.pack(clouds, atoms=90), self.pack(clouds), "Padding")

    def test_padding_of_any_content(self) -> None:
        """Atoms of weight zero may stand anywhere and have any coordinates."""
        self.need_weights()
        clouds = self.create_clouds(12)
        padded = []
        for points, weights in clouds:
            anything = torch.full_like(points[:1], 1e3).repeat(3, 1)
            padded.append(
                (torch.cat([anything, points]), torch.cat([weights.new_zeros(3), weights]))
            )
        self._check_unchanged(
            self.pack(padded), self.pack(clouds), "Padding with coordinates before the atoms"
        )

    def test_order_of_atoms(self) -> None:
        """The order of atoms does not change distances."""
        self.need_weights()
        clouds = self.create_clouds(12)
        backwards = [(points.flip(0), weights.flip(0)) for points, weights in clouds]
        self._check_unchanged(self.pack(backwards), self.pack(clouds), "The order of atoms")

    def test_split_atoms(self) -> None:
        """Splitting the weight of an atom between copies of the atom does not change distances."""
        self.need_weights()
        clouds = self.create_clouds(12)
        split: Clouds = []
        for points, weights in clouds:
            kept, moved = weights.clone(), 0.7 * weights[:3]
            kept[:3] *= 0.3
            split.append((torch.cat([points, points[:3]]), torch.cat([kept, moved])))
        self._check_unchanged(
            self.pack(split), self.pack(clouds), "Splitting an atom's weight over copies"
        )

    def test_total_weight(self) -> None:
        """The total weight of a cloud does not change distances."""
        self.need_weights()
        clouds = self.create_clouds(12)
        heavy = [(points, 7.0 * weights) for points, weights in clouds]
        self._check_unchanged(self.pack(heavy), self.pack(clouds), "The total weight")

    def test_widths(self) -> None:
        """Rows of different widths can be compared."""
        self.need_weights()
        clouds, others = self.create_clouds(6), self.create_clouds(5, seed=1)
        rows, wide, narrow = self.pack(clouds), self.pack(clouds, atoms=70), self.pack(others)
        for x1, x2, expected in (
            (wide, narrow, self.distance.squared(rows, narrow)),
            (narrow, wide, self.distance.squared(narrow, rows)),
        ):
            shapes = f"{tuple(x1.shape)} and {tuple(x2.shape)}"
            self.check_same(self.distance.squared(x1, x2), expected, f"Rows of shape {shapes}")

    def test_batches(self) -> None:
        """Batch axes give the same distances as a loop over the batch elements."""
        for batch_shape in ((2,), (2, 3), (2, 1, 3)):
            count = math.prod(batch_shape)
            for tracked in (False, True):
                x1 = self.rows(4 * count).unflatten(0, (*batch_shape, 4)).requires_grad_(tracked)
                x2 = self.rows(5 * count, seed=1).unflatten(0, (*batch_shape, 5))
                pairs = zip(x1.flatten(0, -3), x2.flatten(0, -3), strict=True)
                expected = torch.stack([self.distance.squared(a, b) for a, b in pairs])
                self.check_same(
                    self.distance.squared(x1, x2),
                    expected.unflatten(0, batch_shape),
                    f"Batch axes {batch_shape} against a loop",
                )

    def test_broadcasting(self) -> None:
        """Batch axes broadcast, and expanded axes give the same distances as copied rows."""
        x1 = self.rows(12).unflatten(0, (3, 1, 4))
        x2 = self.rows(10, seed=1).unflatten(0, (2, 5))
        expected = torch.stack(
            [torch.stack([self.distance.squared(a[0], b) for b in x2]) for a in x1]
        )
        self.check_same(self.distance.squared(x1, x2), expected, "Batch axes that broadcast")
        expanded = x2.unsqueeze(0).expand(3, 2, 5, -1)
        self.check_same(self.distance.squared(x1, expanded), expected, "Expanded batch axes")
        self.check_same(
            self.distance.squared(expanded),
            self.distance.squared(expanded.clone()),
            "Expanded batch axes within a set",
        )

    def test_chunks(self) -> None:
        """The number of clouds represented and compared at a time does not change distances."""
        x1, x2 = self.rows(30), self.rows(11, seed=1)
        expected, within = self.distance.squared(x1, x2), self.distance.squared(x1)
        state = self.distance.state_dict()
        self.distance = self.create_distance()
        self.distance.load_state_dict(state)
        for name, value in (("chunk_elements", 1), ("block_rows", 7)):
            setattr(self.distance, name, value)
        self.check_same(self.distance.squared(x1, x2), expected, "Chunks of single clouds")
        self.check_same(self.distance.squared(x1), within, "Chunks of single clouds within a set")

    def test_empty_sets(self) -> None:
        """An empty set of rows has an empty matrix of distances."""
        rows = self.rows(3)
        for x1, x2, shape in (
            (rows[:0], rows, (0, 3)),
            (rows, rows[:0], (3, 0)),
            (rows[:0], None, (0, 0)),
        ):
            actual = tuple(self.distance.squared(x1, x2).shape)
            if actual != shape:
                self.fail(f"squared of an empty set: expected shape {shape}, got {actual}.")

    def test_single_precision(self) -> None:
        """Rows in single precision have distances in single precision."""
        rows, others = self.rows(9), self.rows(7, seed=1)
        for x2 in (None, others):
            expected = self.distance.squared(rows, x2)
            actual = self.distance.squared(rows.float(), None if x2 is None else x2.float())
            if actual.dtype != torch.float32:
                self.fail(f"squared of rows in single precision: got {actual.dtype}.")
            self.check_same(
                actual.double(),
                expected,
                "Single precision against double",
                tolerance=self.single_precision_tolerance,
            )

    def test_device(self) -> None:
        """The distance moves to a GPU with to(device)."""
        if not torch.cuda.is_available():
            self.skipTest("There is no CUDA device.")
        rows = self.rows(9)
        expected = self.distance.squared(rows)
        actual = self.distance.to("cuda").squared(rows.cuda())
        if actual.device.type != "cuda":
            self.fail(f"squared of rows on the GPU: got distances on {actual.device}.")
        self.check_same(actual.cpu(), expected, "Distances on the GPU against those on the CPU")

    def test_negative_weights(self) -> None:
        """A negative weight raises ValueError."""
        self._check_refused(lambda weights: torch.where(weights == weights.max(), -0.1, weights))

    def test_zero_total_weight(self) -> None:
        """A cloud without weight raises ValueError."""
        self._check_refused(torch.zeros_like)

    def test_infinite_weights(self) -> None:
        """A weight that is infinite or NaN raises ValueError."""
        for value in (torch.inf, torch.nan):
            self._check_refused(partial(torch.full_like, fill_value=value))

    def test_wrong_width(self) -> None:
        """Rows of a width that does not fit the dimension, or without an axis of clouds, are errors."""
        rows = self.rows(4)
        wide = torch.cat([rows, rows[:, :1]], dim=-1)
        for x1, x2 in ((wide, None), (wide, rows), (rows, wide), (rows[0], None)):
            shapes = " and ".join(str(tuple(x.shape)) for x in (x1, x2) if x is not None)
            self._check_raises(
                partial(self.distance.squared, x1, x2), f"squared of shapes {shapes}"
            )

    def _check_unchanged(self, changed: Tensor, rows: Tensor, what: str) -> None:
        """Fail unless two layouts of the same clouds, ``changed`` and ``rows``, are equivalent."""
        expected = self.distance.squared(rows).detach()
        self.check_same(
            self.distance.squared(changed), expected, f"{what} must not change squared distances"
        )
        # The square root amplifies the rounding error of a squared distance near zero.
        across = self.distance.squared(rows, changed).diagonal() / expected.max()
        largest = float(across.detach().clamp_min(0).sqrt().max())
        if not largest <= self.coincidence_tolerance:
            self.fail(
                f"{what} must not change a cloud, but it is at a distance of {largest:.2g} times the "
                f"largest from itself, where {self.coincidence_tolerance:.2g} is allowed."
            )

    def _check_refused(self, change: Callable[[Tensor], Tensor]) -> None:
        """Fail unless a set in which one cloud has changed weights raises ``ValueError``."""
        self.need_weights()
        clouds = self.create_clouds(4, sizes=(3, 8))
        rows = self.pack(clouds)
        self.distance.squared(rows)
        points, weights = clouds[2]
        clouds[2] = points, change(weights)
        bad = self.pack(clouds)
        shown = f"of the weights {clouds[2][1].tolist()}"
        for x1, x2 in ((bad, None), (bad, rows), (rows, bad)):
            for diag in (False, True):
                self._check_raises(
                    partial(self.distance.squared, x1, x2, diag=diag),
                    f"squared {shown}, diag={diag}",
                )
        if hasattr(self.distance, "embed"):
            self._check_raises(partial(self.distance.embed, bad), f"embed {shown}")

    def _check_raises(self, call: Callable[[], Tensor], what: str) -> None:
        try:
            call()
        except ValueError:
            return
        self.fail(f"{what}: expected a ValueError.")
