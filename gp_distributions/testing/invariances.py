"""Tests that distances do not depend on the layout of clouds in rows, batches and chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gp_distributions.testing.base_test_case import BaseTestCase


class InvarianceTests(BaseTestCase):
    """Tests that equivalent rows have equal distances, however many rows are compared at once."""

    def test_equivalent_clouds(self) -> None:
        """Padding, the order of atoms, copies that share a weight and total weights do not matter."""
        self.need_weights()
        clouds = self.create_clouds(12)
        rows = self.pack(clouds)
        self._check_unchanged(self.pack(clouds, atoms=90), rows, "Padding")
        changes: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
            "Padding with coordinates before the atoms": lambda x, w: (
                torch.cat([torch.full_like(x[:1], 1e3).repeat(3, 1), x]),
                torch.nn.functional.pad(w, (3, 0)),
            ),
            "The order of atoms": lambda x, w: (x.flip(0), w.flip(0)),
            "Splitting an atom's weight over copies": lambda x, w: (
                torch.cat([x, x[:3]]),
                torch.cat([0.3 * w[:3], w[3:], 0.7 * w[:3]]),
            ),
            "The total weight": lambda x, w: (x, 7.0 * w),
        }
        for what, change in changes.items():
            self._check_unchanged(self.pack([change(*cloud) for cloud in clouds]), rows, what)

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
        """Batch axes, which broadcast, give the same distances as a loop over the batch elements."""
        for shape1, shape2 in (((2, 3), (2, 3)), ((2, 1, 3), (2, 1, 3)), ((3, 1), (2,))):
            batch_shape = torch.broadcast_shapes(shape1, shape2)
            for tracked in (False, True):
                x1 = self.rows(4 * math.prod(shape1)).unflatten(0, (*shape1, 4))
                x2 = self.rows(5 * math.prod(shape2), seed=1).unflatten(0, (*shape2, 5))
                x1.requires_grad_(tracked)
                all1, all2 = (x.expand(*batch_shape, *x.shape[-2:]) for x in (x1, x2))
                pairs = zip(all1.flatten(0, -3), all2.flatten(0, -3), strict=True)
                expected = torch.stack([self.distance.squared(a, b) for a, b in pairs])
                expected = expected.unflatten(0, batch_shape)
                for others in (x2, all2):
                    actual = self.distance.squared(x1, others)
                    self.check_same(actual, expected, f"Batch axes {shape1} and {shape2}")
                self.check_same(
                    self.distance.squared(all2),
                    self.distance.squared(all2.clone()),
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

    def test_invalid_weights(self) -> None:
        """A weight that is negative, infinite or NaN, and a cloud without weight, are errors."""
        self._check_refused(lambda weights: torch.where(weights == weights.max(), -0.1, weights))
        for value in (0.0, torch.inf, torch.nan):
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
