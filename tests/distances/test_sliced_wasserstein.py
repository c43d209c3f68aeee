"""Sliced Wasserstein against POT slice by slice, SciPy, and pairs known in closed form."""

import math
from typing import Any

import numpy as np
import ot
import pytest
import torch
from cases import as_rows, randn
from torch import Tensor

from gp_distributions import SlicedWasserstein

Cloud = tuple[Tensor, Tensor]

# Rounding error of squares, their sums, and differences computed from inner products.
EXACT = 1e-10


def cloud(size: int, dim: int, seed: int, counts: list[int] | None = None) -> Cloud:
    """A Gaussian cloud with uniform weights, or weights in proportion to ``counts``."""
    generator = torch.Generator().manual_seed(seed)
    points = randn(size, dim, seed=generator)
    shape = randn(dim, dim, seed=generator)
    shift = randn(dim, seed=generator)
    weights = torch.tensor(counts or [1] * size, dtype=torch.float64)
    return points @ shape + shift, weights / weights.sum()


def between(distance: SlicedWasserstein, one: Cloud, other: Cloud) -> float:
    return float(distance.squared(as_rows([one]), as_rows([other])))


def exact_slices(distance: SlicedWasserstein, one: Cloud, other: Cloud) -> float:
    """POT's one-dimensional distance of every slice, averaged; for p = 2 with the exact mean term."""
    (x, a), (y, b) = one, other
    offset = 0.0
    if distance.p == 2 or distance.center:
        mean1, mean2 = a @ x, b @ y
        x, y = x - mean1, y - mean2
        if not distance.center:
            offset = float((mean1 - mean2).square().sum()) / distance.dim
    directions = distance.directions
    slices = ot.wasserstein_1d(
        (x @ directions.T).numpy(),
        (y @ directions.T).numpy(),
        np.tile(a.numpy()[:, None], len(directions)),
        np.tile(b.numpy()[:, None], len(directions)),
        p=distance.p,
    )
    return offset + float(slices.mean())


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("p", [1, 2])
class TestAgainstPOT:
    @pytest.mark.parametrize("dim", [1, 3, 10])
    @pytest.mark.parametrize(
        ("weights", "num_quantiles"),
        [
            (([1] * 20, [1] * 50), 100),
            (([1], [1] * 25), 100),
            (([1], [1]), 100),
            (([1, 2, 3, 4, 10], [1, 1, 1, 7]), 100),
            (([1] * 17, [1] * 17), None),
        ],
    )
    def test_exact_where_weights_are_multiples_of_a_cell(
        self, p: int, center: bool, dim: int, weights: Any, num_quantiles: int | None
    ) -> None:
        options: dict[str, Any] = {"num_slices": 20, "num_quantiles": num_quantiles}
        distance = SlicedWasserstein(dim, p=p, center=center, **options)
        one, other = (cloud(len(w), dim, seed, w) for seed, w in enumerate(weights))
        expected = exact_slices(distance, one, other)
        # The absolute tolerance is for centred point masses, which coincide.
        assert between(distance, one, other) == pytest.approx(expected, rel=EXACT, abs=1e-14)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_elsewhere_below_and_close(self, p: int, center: bool, weighted: bool) -> None:
        """Never above, and by theory never far below.

        Over a cell, the difference f of two quantile functions varies by at most the sum of their
        increments there: |f|'s average exceeds |average f| by at most half of that, and f^2's exceeds
        (average f)^2 by at most a quarter of its square (Popoviciu). Summed over the cells, the
        increments are the ranges of the projections.
        """
        counts = [[1 + k % 5 for k in range(size)] for size in (37, 53)] if weighted else [None] * 2
        one, other = cloud(37, 2, 0, counts[0]), cloud(53, 2, 1, counts[1])
        for num_quantiles in (10, 100):
            distance = SlicedWasserstein(
                2, p=p, center=center, num_slices=20, num_quantiles=num_quantiles
            )
            gap = exact_slices(distance, one, other) - between(distance, one, other)
            projections = [x @ distance.directions.T for x, _ in (one, other)]
            spans = sum(t.amax(dim=0) - t.amin(dim=0) for t in projections)
            bound = spans / 2 if p == 1 else spans.square() / 4
            assert -1e-12 <= gap <= float(bound.mean()) / num_quantiles


class TestClosedForm:
    def test_two_diracs_for_p_1(self) -> None:
        """On the circle |cos| has the mean 2/pi, and equispaced angles know it to 1 / (3 L^2).

        Its one kink is a jump of 2 in slope: the error is at most 2 h^2 / (12 pi) with h = pi / L.
        """
        one, other = cloud(1, 2, 0), cloud(1, 2, 1)
        length = float((one[0] - other[0]).norm())
        error = between(SlicedWasserstein(2, p=1), one, other) / length - 2 / math.pi
        assert abs(error) <= 2 * (math.pi / 100) ** 2 / (12 * math.pi)

    def test_dirac_and_cloud(self) -> None:
        """All mass travels from one point: the mean squared length over d."""
        point, (y, b) = cloud(1, 2, 0), cloud(20, 2, 1)
        expected = float(b @ (y - point[0]).square().sum(-1)) / 2
        assert between(SlicedWasserstein(2), point, (y, b)) == pytest.approx(expected, rel=1e-12)


class TestSameDistributionAnotherRow:
    """For p = 1 the gradient is a sum of signs, which must not come from rounding errors."""

    @staticmethod
    def rows(weighted: bool) -> tuple[Tensor, dict[str, Tensor]]:
        clouds = [
            cloud(10, 2, i, [1, 2, 5, 1, 1, 3, 1, 2, 1, 4] if weighted else None) for i in (1, 2)
        ]
        order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
        return as_rows(clouds, atoms=20), {
            "order": as_rows([(x[order], w[order]) for x, w in clouds], atoms=20),
            "copies": as_rows([(x.repeat(2, 1), w.repeat(2) / 2) for x, w in clouds]),
            "padding": as_rows(clouds, atoms=20).roll(30, -1),
        }

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("center", [False, True])
    def test_has_no_gradient(self, center: bool, weighted: bool) -> None:
        distance = SlicedWasserstein(2, p=1, center=center)
        rows, others = self.rows(weighted)
        rows.requires_grad_()
        for other in others.values():
            squared = distance.squared(rows, other)
            for values in (
                squared.diagonal(),
                distance.squared(other, rows).diagonal(),
                distance.squared(rows, other, diag=True),
            ):
                (gradient,) = torch.autograd.grad(values.sum(), rows, retain_graph=True)
                assert torch.equal(gradient, torch.zeros_like(rows))
            (gradient,) = torch.autograd.grad(squared[0, 1], rows)
            assert float(gradient.abs().max()) > 0.01

    def test_nearby_distributions_keep_theirs(self) -> None:
        """A translation by much more than rounding costs the mean of its projections."""
        distance = SlicedWasserstein(2, p=1)
        (x, w), shift = cloud(10, 2, 1), torch.tensor([1e-10, 0.0], dtype=torch.float64)
        rows = as_rows([(x + shift, w)]).requires_grad_()
        (gradient,) = torch.autograd.grad(distance.squared(rows, as_rows([(x, w)])).sum(), rows)
        along = gradient.unflatten(-1, (10, 3))[0, :, 0].sum()
        assert float(along) == pytest.approx(float(distance.directions[:, 0].abs().mean()))


class TestWithoutQuantiles:
    """num_quantiles=None is for clouds of one size and equal weights, padded or not."""

    @pytest.fixture(params=[1, 2])
    def distance(self, request: pytest.FixtureRequest) -> SlicedWasserstein:
        return SlicedWasserstein(2, p=request.param, num_slices=10, num_quantiles=None)

    def test_padding_is_no_size(self, distance: SlicedWasserstein) -> None:
        clouds = [cloud(5, 2, seed) for seed in range(4)]
        expected = distance.squared(as_rows(clouds))
        torch.testing.assert_close(distance.squared(as_rows(clouds, atoms=8)), expected)
        across = distance.squared(as_rows(clouds), as_rows(clouds, atoms=8))
        torch.testing.assert_close(across, expected)

    def test_gradients_are_those_with_a_quantile_for_each_atom(
        self, distance: SlicedWasserstein
    ) -> None:
        """Also in weights: both are exact at these weights, which a fit may then change."""
        rows = as_rows([cloud(5, 2, seed) for seed in range(4)]).requires_grad_()
        same = SlicedWasserstein(2, p=distance.p, num_slices=10, num_quantiles=5)
        factors = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).double()
        actual, expected = (
            torch.autograd.grad((factors * d.squared(rows)).sum(), rows)[0]
            for d in (distance, same)
        )
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("diag", [False, True])
    def test_other_sizes_and_weights_are_refused(
        self, distance: SlicedWasserstein, diag: bool
    ) -> None:
        five, six, weighted = cloud(5, 2, 0), cloud(6, 2, 1), cloud(5, 2, 2, [1, 1, 1, 1, 2])
        for clouds in ([five, six], [five, weighted]):
            with pytest.raises(ValueError, match="num_quantiles=None"):
                distance.squared(as_rows(clouds))
        for other in (six, weighted):
            with pytest.raises(ValueError, match="num_quantiles=None"):
                distance.squared(as_rows([five]), as_rows([other]), diag=diag)


@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("center", [False, True])
class TestRandomSlices:
    @pytest.mark.parametrize("p", [1, 2])
    def test_agree_with_pot_on_the_same_directions(self, p: int, center: bool, dim: int) -> None:
        """POT slices the means, too."""
        one, other = cloud(12, dim, 0), cloud(12, dim, 1)
        distance = SlicedWasserstein(
            dim, p=p, num_slices=9, num_quantiles=None, center=center, sampling="random"
        )
        (x, a), (y, b) = one, other
        if center:
            x, y = x - a @ x, y - b @ y
        directions = distance.directions.T.numpy()
        expected = ot.sliced_wasserstein_distance(
            x.numpy(), y.numpy(), a.numpy(), b.numpy(), projections=directions, p=p
        )
        assert between(distance, one, other) == pytest.approx(expected**p, rel=EXACT)

    @pytest.mark.parametrize("p", [1, 2])
    def test_draw_levels_anew_for_each_direction(self, p: int, center: bool, dim: int) -> None:
        """Algorithm 1 of Meunier et al. 2022, with the quantiles of NumPy."""
        clouds = cloud(5, dim, 0, [1, 2, 3, 1, 4]), cloud(8, dim, 1)
        distance = SlicedWasserstein(
            dim, p=p, num_slices=9, num_quantiles=40, center=center, sampling="random", seed=3
        )
        assert distance.levels is not None
        assert len(distance.levels.unique()) == 9 * 40
        expected = 0.0
        for direction, levels in zip(distance.directions, distance.levels, strict=True):
            one, other = (
                np.quantile(
                    (x - center * (a @ x)) @ direction, levels, weights=a, method="inverted_cdf"
                )
                for x, a in clouds
            )
            expected += float((abs(one - other) ** p).mean()) / 9
        assert between(distance, *clouds) == pytest.approx(expected, rel=EXACT)
        rows = as_rows(list(clouds))
        distance.chunk_elements = 20  # so that slices are taken a few at a time
        assert float(distance.squared(rows)[0, 1]) == pytest.approx(expected, rel=EXACT)

    def test_of_gaussians_have_a_closed_form(self, center: bool, dim: int) -> None:
        """In each slice, the squared differences of means and of deviations add up."""
        generator = torch.Generator().manual_seed(0)
        means = randn(2, dim, seed=generator)
        roots = randn(2, dim, dim, seed=generator)
        covariances = roots @ roots.mT
        distance = SlicedWasserstein(
            dim, inputs="gaussians", num_slices=7, center=center, sampling="random"
        )
        rows = torch.cat([means, covariances.flatten(1)], -1)
        directions = distance.directions
        deviations = torch.einsum("ld,kde,le->kl", directions, covariances, directions).sqrt()
        expected = (deviations[0] - deviations[1]).square().mean()
        if not center:
            expected = expected + ((means[0] - means[1]) @ directions.T).square().mean()
        torch.testing.assert_close(distance.squared(rows)[0, 1], expected)


class TestRefuses:
    def test_other_samplings(self) -> None:
        with pytest.raises(ValueError, match="no sampling 'uniform'; choose from even, random"):
            SlicedWasserstein(2, sampling="uniform")

    @pytest.mark.parametrize("p", [0, 3, 1.5, "2", math.inf])
    def test_other_orders(self, p: Any) -> None:
        with pytest.raises(ValueError, match="p = 1 or p = 2"):
            SlicedWasserstein(2, p=p)
