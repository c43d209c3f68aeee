"""Distances between weights on a shared support: their values, and how atoms are found in it."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from cases import GRID, as_rows, lattice_clouds, random_clouds
from sklearn.metrics.pairwise import additive_chi2_kernel, chi2_kernel
from torch import Tensor

from gp_distributions import DistributionKernel, PointClouds
from gp_distributions.distances.shared_support import ChiSquared, Hellinger, TotalVariation
from gp_distributions.numerics import pairwise
from gp_distributions.numerics.pairwise import chi_squared, pairs_in_strips

each = pytest.mark.parametrize("kind", [Hellinger, TotalVariation, ChiSquared])


def masses(cloud: tuple[Tensor, Tensor]) -> dict[tuple[float, ...], float]:
    """The weight of every place, as plain numbers."""
    total: dict[tuple[float, ...], float] = defaultdict(float)
    for point, weight in zip(cloud[0].tolist(), cloud[1].tolist(), strict=True):
        total[tuple(point)] += weight
    return {place: weight / sum(cloud[1].tolist()) for place, weight in total.items()}


def by_hand(kind: type, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    p, q = masses(one), masses(other)
    pairs = [(p.get(place, 0.0), q.get(place, 0.0)) for place in {*p, *q}]
    if kind is Hellinger:
        return sum((math.sqrt(a) - math.sqrt(b)) ** 2 for a, b in pairs) / 2
    if kind is ChiSquared:
        return sum((a - b) ** 2 / (a + b) for a, b in pairs) / 2
    return sum(abs(a - b) for a, b in pairs) / 2


def row(*atoms: tuple[float, ...]) -> Tensor:
    """A cloud on the line from places and weights."""
    return torch.tensor(atoms, dtype=torch.float64).flatten()


# Places 0, 1, 2 with weights 1/2, 1/2, 0; then 1/8, 3/8, 1/2; then all at 2.
THREE = torch.stack(
    [row((0, 1), (1, 1), (2, 0)), row((0, 1), (1, 3), (2, 4)), row((0, 0), (1, 0), (2, 1))]
)


class TestValues:
    @each
    @pytest.mark.parametrize("dim", [1, 2, 5])
    def test_agree_with_sums_over_places(self, kind: type, dim: int) -> None:
        clouds = [(p.round(), w) for p, w in random_clouds(8, dim=dim, sizes=(1, 30))]
        if dim == 5:  # no two clouds would meet
            clouds = [(p.clamp(0, 1), w) for p, w in clouds]
        expected = [[by_hand(kind, a, b) for b in clouds] for a in clouds]
        distance = kind(dim, support=torch.cat([p for p, _ in clouds]))
        actual = distance.squared(as_rows(clouds))
        np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-14)
        across = distance.squared(as_rows(clouds[:3]), as_rows(clouds[3:]))
        np.testing.assert_allclose(across.numpy(), np.array(expected)[:3, 3:], rtol=0, atol=1e-14)

    def test_chi_squared_is_that_of_scikit_learn(self) -> None:
        images = torch.rand(9, 4, 5, generator=torch.Generator().manual_seed(0)).double()
        images[images < 0.4] = 0
        rows = PointClouds.from_images(images).pack()
        histograms = (images / images.sum((1, 2), keepdim=True)).flatten(1).numpy()
        squared = ChiSquared(2).squared(rows)
        expected = -additive_chi2_kernel(histograms) / 2
        np.testing.assert_allclose(squared.numpy(), expected, rtol=1e-13, atol=1e-15)
        kernel = DistributionKernel(ChiSquared(2), "gaussian").double()
        kernel.lengthscale = 0.3
        gram = kernel(rows, rows[:4]).to_dense().detach().numpy()
        expected = chi2_kernel(histograms, histograms[:4], gamma=1 / (4 * 0.3**2))
        np.testing.assert_allclose(gram, expected, rtol=1e-12)

    @each
    def test_linear_profile_is_half_the_overlap(self, kind: type) -> None:
        rows = as_rows(lattice_clouds(30))
        kernel = DistributionKernel(kind(2), "linear").double()
        kernel.lengthscale = torch.tensor(1.0).double()
        overlap = 1 - kernel.distance.squared(rows)
        gram = kernel(rows).to_dense().detach()
        torch.testing.assert_close(gram, overlap / 2, rtol=0, atol=1e-14)
        torch.testing.assert_close(gram.diagonal(), torch.full((30,), 0.5).double())

    def test_slope_of_a_root_at_zero_is_zero(self) -> None:
        weights = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 2.0]]).double().requires_grad_()
        points = torch.arange(3.0).double().expand(2, 3)
        rows = torch.stack([points, weights], dim=-1).flatten(-2)
        squared = Hellinger(1).squared(rows, rows[1:].detach())[0]
        (gradient,) = torch.autograd.grad(squared, weights)
        # Each term (sqrt(p) - sqrt(q))^2 / 2 has the slope (1 - sqrt(q / p)) / 2, set to 0 at p = 0.
        slopes = torch.tensor([0.0, (1 - math.sqrt(1 / 2)) / 2, 0.0]).double()
        p, total = torch.tensor([0.0, 1 / 2, 1 / 2]).double(), 2.0
        expected = (slopes - slopes @ p) / total
        torch.testing.assert_close(gradient[0], expected)
        assert torch.equal(gradient[1], torch.zeros(3).double())

    def test_slope_of_chi_squared_between_tiny_weights_is_finite(self) -> None:
        """Their squares underflow."""
        x = torch.tensor([[1e-200, 1.0], [5e-324, 1.0]], dtype=torch.float64).requires_grad_()
        other = torch.tensor([[3e-200, 1.0], [0.0, 1.0]], dtype=torch.float64)
        (gradient,) = torch.autograd.grad(pairs_in_strips(chi_squared, x, other).sum(), x)
        assert bool(gradient.isfinite().all())
        # -2 * 10 / 16 from the first pair, and 1 from the pair of 1e-200 and 0
        torch.testing.assert_close(gradient[0, 0], torch.tensor(-1.25 + 1.0).double())

    @pytest.mark.parametrize("shape", [(), (3,)])
    def test_strips_of_chi_squared_agree(
        self, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(*shape, 7, 4, generator=generator).double().requires_grad_()
        y = torch.rand(5, 4, generator=generator).double().requires_grad_()
        factors = torch.rand(*shape, 7, 5, generator=generator).double()

        def results() -> list[Tensor]:
            squared = pairs_in_strips(chi_squared, x, y)
            return [squared, *torch.autograd.grad((squared * factors).sum(), (x, y))]

        whole = results()
        monkeypatch.setattr(pairwise, "_DIFFERENCES", 1)
        torch.testing.assert_close(results(), whole)

    @each
    def test_gradient_in_the_weight_of_padding_is_that_of_the_total(self, kind: type) -> None:
        """The weight of padding outside the support only changes the total weight."""
        p, q = torch.tensor([0.75, 0.25]).double(), torch.tensor([0.25, 0.75]).double()
        weights = torch.tensor([0.75, 0.25, 0.0]).double().requires_grad_()
        rows = torch.stack([torch.tensor([0.0, 1.0, 9.0]).double(), weights], -1).flatten()
        distance = kind(1, support=[[0.0], [1.0]])
        squared = distance.squared(rows[None], row((0, 1), (1, 3), (5, 0))[None])
        (gradient,) = torch.autograd.grad(squared.sum(), weights)
        slopes = {
            Hellinger: (1 - (q / p).sqrt()) / 2,
            TotalVariation: (p - q).sign() / 2,
            ChiSquared: (p - q) * (p + 3 * q) / (2 * (p + q) ** 2),
        }[kind]
        torch.testing.assert_close(gradient[:2], slopes - slopes @ p)
        torch.testing.assert_close(gradient[2], -slopes @ p)


class TestLearnedSupport:
    @each
    def test_is_the_union_of_the_atoms(self, kind: type) -> None:
        clouds = lattice_clouds(12)
        known = kind(2, support=GRID).squared(as_rows(clouds))
        # Padding does not count as an atom.
        rows = as_rows([(torch.cat([p, p + 0.5]), torch.cat([w, 0 * w])) for p, w in clouds])
        distance = kind(2)
        torch.testing.assert_close(distance.squared(rows), known, rtol=0, atol=1e-14)
        places = sorted({place for cloud in clouds for place in masses(cloud)})
        assert distance.support.tolist() == [list(place) for place in places]

    @each
    def test_is_that_of_both_sides(self, kind: type) -> None:
        clouds = lattice_clouds(12)
        expected = kind(2, support=GRID).squared(as_rows(clouds))
        for x1, x2 in ((1, 11), (6, 6)):
            across = kind(2).squared(as_rows(clouds[:x1]), as_rows(clouds[-x2:]))
            torch.testing.assert_close(across, expected[:x1, -x2:], rtol=0, atol=1e-14)

    @each
    def test_has_the_dark_pixels_of_images(self, kind: type) -> None:
        images = torch.zeros(3, 4, 5).double()
        images[0, 1, 2] = images[1, 0, 0] = images[2, 3, 3] = (
            1.0  # none has light where another has
        )
        distance = kind(2)
        expected = 1.0 - torch.eye(3).double()
        torch.testing.assert_close(
            distance.squared(PointClouds.from_images(images).pack()), expected
        )
        assert distance.support.shape == (20, 2)
        images[2, 3, 3], images[2, 2, 2] = 0.5, 0.5
        moved = PointClouds.from_images(images).pack()
        assert float(distance.squared(moved)[0, 2]) == pytest.approx(1.0)
        assert distance.squared(moved[:2], moved[2:]).shape == (2, 1)

    @each
    def test_is_kept_without_a_gradient(self, kind: type) -> None:
        distance = kind(1)
        distance.squared(THREE.clone().requires_grad_())
        support = distance.support.clone()
        assert not support.requires_grad
        distance.squared(THREE[:2, :4])
        assert torch.equal(distance.support, support)


class TestRefuses:
    @each
    def test_an_atom_that_is_not_in_the_support(self, kind: type) -> None:
        distance = kind(1, support=[[0.0], [1.0], [2.0]])
        far = torch.stack([row((0, 1), (1, 1), (9, 0)), row((0, 1), (1, 1), (2.5, 2))])
        for rows, name in (
            (far, "row 1"),
            (far.expand(3, 2, 6), "row 1"),
            (torch.stack([far[:1], far[1:]]), r"row \(1, 0\)"),
        ):
            with pytest.raises(ValueError, match=name) as error:
                distance.squared(rows, THREE)
            for part in (kind.__name__, "atom 2, [2.5]", "3 atoms", "grid", "support=", "MMD"):
                assert part in str(error.value)
        distance.squared(far[:1], THREE)

    @each
    def test_a_later_atom_whatever_the_chunks(
        self, kind: type, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kind, "chunk_elements", 1)
        distance = kind(2)
        distance.squared(as_rows(lattice_clouds(20)))
        later = lattice_clouds(20, seed=1)
        later[17][0][0, 1] = 1 / 3
        with pytest.raises(ValueError, match="row 17 has weight at its atom 0"):
            distance.squared(as_rows(later))

    @each
    @pytest.mark.parametrize("num", [2, 10])
    def test_samples_of_continuous_distributions(self, kind: type, num: int) -> None:
        rows = as_rows(random_clouds(num, sizes=(3, 9)))
        distance = kind(2)
        for first in ([rows], [rows[:1], rows[1:]], [rows, rows.clone()]):
            with pytest.raises(
                ValueError, match=f"{num} of the first {num} clouds share no atom"
            ) as error:
                distance.squared(*first)
            for part in (kind.__name__, "cloud 0", "grid", "support=", "SlicedWasserstein"):
                assert part in str(error.value)
        with pytest.raises(ValueError, match="share no atom"):
            distance.embed(rows) if kind is Hellinger else distance.adapt(rows)
        # The support was not taken from them.
        assert len(distance.support) == 0
        distance.squared(as_rows(lattice_clouds(9)))

    @each
    def test_one_cloud_that_meets_no_other(self, kind: type) -> None:
        apart = torch.cat([THREE, row((5, 1), (6, 1), (5, 1))[None]])
        with pytest.raises(ValueError, match=r"1 of the first 4 clouds .* cloud 3"):
            kind(1).squared(apart)
        distance = kind(1, support=torch.arange(7.0)[:, None])
        assert distance.squared(apart)[3].tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0])

    @each
    @pytest.mark.parametrize(
        ("support", "message"),
        [
            ([[0.0], [1.0]], r"shape \(S, 2\)"),
            (np.zeros((0, 2)), "non-empty"),
        ],
    )
    def test_a_support_of_another_kind(self, kind: type, support: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            kind(2, support=support)


class TestPrecision:
    @each
    def test_of_rows_may_be_lower_than_that_of_the_support(self, kind: type) -> None:
        # Pixels are at thirds, which neither precision represents exactly.
        rows = PointClouds.from_images(torch.rand(5, 4, 4).double()).pack()
        distance = kind(2)
        expected = distance.squared(rows)
        torch.testing.assert_close(
            distance.squared(rows.float()).double(), expected, rtol=0, atol=1e-6
        )
        distance.float()
        torch.testing.assert_close(distance.squared(rows), expected, rtol=0, atol=1e-14)

    @each
    def test_never_merges_atoms(self, kind: type) -> None:
        distance = kind(1, support=[[1.0], [1.0 + 1e-9]])
        rows = torch.stack([row((1.0, 1.0)), row((1.0 + 1e-9, 1.0))])
        assert float(distance.squared(rows)[0, 1]) == pytest.approx(1.0)
        with pytest.raises(ValueError, match=r"coincide in torch\.float32"):
            distance.squared(rows.float()[:1], rows.float())

    @each
    def test_zero_has_one_sign(self, kind: type) -> None:
        rows = torch.stack([row((0.0, 1.0), (1.0, 0.0)), row((-0.0, 1.0), (1.0, 0.0))])
        assert float(kind(1).squared(rows)[0, 1]) == 0.0
        assert float(kind(1, support=[[0.0], [1.0]]).squared(rows)[0, 1]) == 0.0


@each
@pytest.mark.parametrize("size", [None, 1, 60])
def test_state_dict_carries_the_support(kind: type, size: int | None) -> None:
    rows = as_rows(lattice_clouds(9))
    source = DistributionKernel(kind(2))
    expected = source(rows).to_dense().detach()
    support = None if size is None else torch.arange(2.0 * size).reshape(size, 2)
    target = DistributionKernel(kind(2, support=support))
    target.load_state_dict(source.state_dict())
    assert torch.equal(target(rows).to_dense().detach(), expected)
    assert torch.equal(target.distance.support, source.distance.support)
