"""Representations that are held and shared, and parameters in training and evaluation."""

import gpytorch
import pytest
import torch
from cases import random_rows

from gp_distributions import (
    MMD,
    Fourier,
    ReferenceMeasure,
    ScaledDistance,
    SinkhornPotential,
    SlicedWasserstein,
)
from gp_distributions.distances import Distance, comparison
from gp_distributions.distances.embedded_rows import EmbeddedRows, rows_of


class TestPreparedRows:
    @pytest.mark.parametrize("block", [1, 2**24])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize(
        "distance", [SlicedWasserstein(2), SlicedWasserstein(2, p=1, num_slices=5), Fourier(2)]
    )
    def test_distances_to_them_are_those_to_others(
        self, monkeypatch: pytest.MonkeyPatch, distance: Distance, dtype: torch.dtype, block: int
    ) -> None:
        rows, others = random_rows(9).to(dtype), random_rows(4, seed=1).to(dtype)
        expected = distance.squared(rows, others)
        monkeypatch.setattr(comparison, "_BLOCK_BYTES", block)
        found = distance(rows.unflatten(0, (3, 3)), EmbeddedRows(others, prepared=True))
        assert found.dtype == dtype
        tolerance = 1e3 * torch.finfo(dtype).eps
        torch.testing.assert_close(found.flatten(0, 1), expected, rtol=0, atol=tolerance)

    def test_a_learnable_reference(self) -> None:
        """In evaluation mode its parameters are constants, also for more clouds than one chunk."""
        reference = ReferenceMeasure(random_rows(1)[0].unflatten(-1, (-1, 3))[:4, :2])
        distance = SinkhornPotential(reference.requires_grad_(), epsilon=1.0).eval()
        rows, others = random_rows(20), random_rows(4, seed=1)
        with torch.no_grad():
            expected = distance.squared(rows, others)
        distance.chunk_elements = 8
        assert distance.chunk_size(rows.shape[-1] // 3) < 20
        found = distance(rows, EmbeddedRows(others, prepared=True))
        assert not found.requires_grad
        torch.testing.assert_close(found, expected)
        assert not distance.represent_rows(rows).requires_grad


@pytest.mark.parametrize("diag", [False, True])
def test_joined_rows_are_their_parts(diag: bool) -> None:
    distance, parts = SlicedWasserstein(2, num_slices=5), random_rows(6).split(3)
    joined = EmbeddedRows(torch.cat(parts), parts=[EmbeddedRows(part) for part in parts])
    others = random_rows(6, seed=1)
    for first, second in ((joined, others), (others, joined), (joined, joined)):
        expected = distance.squared(rows_of(first), rows_of(second), diag=diag)
        found = distance(first, second, diag=diag)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_batches_of_joined_rows_broadcast() -> None:
    distance, rows = SlicedWasserstein(2, num_slices=5), random_rows(7)
    distance.squared(rows[:3])  # which it remembers
    joined = torch.cat([rows[:3].expand(2, -1, -1), rows[3:].unflatten(0, (2, 2))], dim=-2)
    expected = distance.squared(rows[:3], joined).mT
    torch.testing.assert_close(distance.squared(joined, rows[:3]), expected)


class TestParameters:
    """They are learned in training mode, and else constants, whichever rows have a gradient."""

    @staticmethod
    def stretched() -> ScaledDistance:
        distance = ScaledDistance(MMD(2, bandwidth=1.0), standardize=False)
        distance.scales = [2.0, 1.0]
        return distance

    @pytest.mark.parametrize("diag", [False, True])
    def test_they_get_all_of_the_gradient_or_none(self, diag: bool) -> None:
        x1, x2 = random_rows(3), random_rows(3, seed=1)
        for tracked in (False, True):
            distance = self.stretched()
            distance.squared(x1.clone().requires_grad_(tracked), x2, diag=diag).sum().backward()
            complete = distance.raw_scales.grad
            assert complete is not None
            assert bool(complete.abs().max() > 1e-3)
            distance = self.stretched().eval()
            found = distance.squared(x1.clone().requires_grad_(tracked), x2, diag=diag)
            assert found.requires_grad == tracked
            if tracked:
                found.sum().backward()
            assert distance.raw_scales.grad is None
            with gpytorch.settings.detach_test_caches(False):
                distance.squared(x1.clone().requires_grad_(tracked), x2, diag=diag).sum().backward()
            torch.testing.assert_close(distance.raw_scales.grad, complete)

    def test_gradients_of_rows_are_the_same(self) -> None:
        gradients = []
        for distance in (self.stretched(), self.stretched().eval()):
            rows = random_rows(3).requires_grad_()
            distance.squared(rows, random_rows(3, seed=1)).sum().backward()
            distance.squared_norms(rows).sum().backward()
            gradients.append(rows.grad)
        torch.testing.assert_close(*gradients)
