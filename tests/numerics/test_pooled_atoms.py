"""Draws from the average of distributions."""

import pytest
import torch

from gp_distributions.numerics import sampling as pooled_atoms
from gp_distributions.numerics.sampling import draw_atoms, median_distance


def test_every_cloud_counts_once_and_atoms_by_weight() -> None:
    points = torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]]).double()
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]]).double()
    drawn = draw_atoms(points, weights, 10_000)
    counts = torch.stack([(drawn == value).sum() for value in range(4)])
    # Standard deviations of frequencies are below 0.005.
    expected = torch.tensor([0.125, 0.375, 0.5, 0.0])
    torch.testing.assert_close(counts / 10_000, expected, rtol=0, atol=0.02)
    assert counts[3] == 0


def test_gaussian_components() -> None:
    mean = torch.tensor([[[1.0, 2.0]]]).double()
    covariance = torch.tensor([[[[2.0, 1.2], [1.2, 1.0]]]]).double()
    drawn = draw_atoms(mean, torch.ones(1, 1).double(), 20_000, covariance=covariance)
    torch.testing.assert_close(drawn.mean(0), mean[0, 0], rtol=0, atol=0.05)
    torch.testing.assert_close(drawn.T.cov(), covariance[0, 0], rtol=0, atol=0.1)
    without_spread = draw_atoms(mean, torch.ones(1, 1).double(), 5, covariance=0 * covariance)
    assert torch.equal(without_spread, mean[0].expand(5, 2))


def test_neither_padding_nor_order_nor_copies_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(7, 5, 2, generator=generator).double()
    mean[:, 1] = mean[:, 0]  # these two differ in their spread only
    spread = torch.rand(7, 5, 1, 1, generator=generator).double() * torch.eye(2).double()
    weights = torch.rand(7, 5, generator=generator).double()
    copies = [4, 0, 3, 0, 1, 2, 4, 1]  # the last one becomes padding
    shares = torch.tensor([0.25, 0.5, 1.0, 0.5, 1.0, 1.0, 0.75, 0.0]).double()
    for covariance in (None, spread):
        other = None if covariance is None else covariance[:, copies]
        torch.testing.assert_close(
            draw_atoms(mean[:, copies], weights[:, copies] * shares, 1000, covariance=other),
            draw_atoms(mean, weights, 1000, covariance=covariance),
        )


def test_many_clouds_are_drawn_from() -> None:
    points = torch.arange(30.0).double().reshape(30, 1, 1)
    assert len(draw_atoms(points, torch.ones(30, 1).double(), 20).unique()) == 20


def test_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.randn(7, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.ones(7, 5).double()
    expected = draw_atoms(points, weights, 20)
    monkeypatch.setattr(pooled_atoms, "_PART", 11)
    assert torch.equal(draw_atoms(points, weights, 20), expected)


def test_median_distance() -> None:
    assert median_distance(torch.tensor([[0.0], [0.0], [0.0], [1.0], [3.0]]).double()) == 2.0
    assert median_distance(torch.ones(4, 2).double()) == 0.0
