"""What must not change a distance: padding, the order of atoms, splitting them, batching."""

import pytest
import torch
from cases import DISTANCES, KERNELS, as_rows, random_clouds, random_rows
from torch import Tensor

from gp_distributions import Distance

# Relative to the largest squared distance: rounding of a Gram matrix.
TOLERANCE = 1e-12


@pytest.fixture(params=DISTANCES)
def distance(request: pytest.FixtureRequest) -> Distance:
    return DISTANCES[request.param]()


def assert_same(actual: Tensor, expected: Tensor) -> None:
    scale = float(expected.detach().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale)


def test_padding_changes_nothing(distance: Distance) -> None:
    clouds = random_clouds(12)
    assert_same(distance.squared(as_rows(clouds, atoms=90)), distance.squared(as_rows(clouds)))


def test_padding_may_stand_anywhere_and_hold_anything_finite(distance: Distance) -> None:
    clouds = random_clouds(12)
    padded = [
        (
            torch.cat([torch.full((3, 2), 1e3), points]).double(),
            torch.cat([weights.new_zeros(3), weights]),
        )
        for points, weights in clouds
    ]
    assert_same(distance.squared(as_rows(padded)), distance.squared(as_rows(clouds)))


def test_order_of_atoms_changes_nothing(distance: Distance) -> None:
    clouds = random_clouds(12)
    shuffled = [(points.flip(0), weights.flip(0)) for points, weights in clouds]
    assert_same(distance.squared(as_rows(shuffled)), distance.squared(as_rows(clouds)))


def test_splitting_atoms_changes_nothing(distance: Distance) -> None:
    clouds = random_clouds(12)
    split = [
        (torch.cat([points, points[:3]]), torch.cat([weights, 0 * weights[:3]]))
        for points, weights in clouds
    ]
    for (points, weights), (_, parts) in zip(clouds, split, strict=True):
        parts[: len(points[:3])] *= 0.3
        parts[len(points) :] = 0.7 * weights[:3]
    assert_same(distance.squared(as_rows(split)), distance.squared(as_rows(clouds)))
    # Between a cloud and itself in other atoms, the root of a distance is zero to half the digits.
    across = distance.squared(as_rows(clouds), as_rows(split)).diagonal()
    scale = distance.squared(as_rows(clouds)).max()
    assert float((across / scale).sqrt().max()) <= 1e-7


def test_total_weight_changes_nothing(distance: Distance) -> None:
    clouds = random_clouds(12)
    heavy = [(points, 7.0 * weights) for points, weights in clouds]
    assert_same(distance.squared(as_rows(heavy)), distance.squared(as_rows(clouds)))


def test_rows_of_two_widths_are_compared(distance: Distance) -> None:
    clouds, others = random_clouds(6), random_clouds(5, seed=1)
    expected = distance.squared(as_rows(clouds), as_rows(others))
    assert_same(distance.squared(as_rows(clouds, atoms=70), as_rows(others)), expected)


def test_distance_to_itself_is_exactly_zero(distance: Distance) -> None:
    rows = random_rows(9)
    for x2 in (None, rows, rows.clone()):
        assert torch.equal(distance.squared(rows, x2).diagonal(), torch.zeros(9).double())
    assert torch.equal(distance.squared(rows, diag=True), torch.zeros(9).double())


def test_is_symmetric_and_nonnegative(distance: Distance) -> None:
    x1, x2 = random_rows(9), as_rows(random_clouds(7, seed=1))
    forth, back = distance.squared(x1, x2), distance.squared(x2, x1)
    assert_same(forth, back.T)
    assert float(forth.min()) >= 0


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("batch_shape", [(2,), (2, 3), (2, 1, 3)])
def test_batches_agree_with_a_loop(
    distance: Distance, batch_shape: tuple[int, ...], grad: bool
) -> None:
    count = int(torch.tensor(batch_shape).prod())
    x1 = as_rows(random_clouds(count * 4)).unflatten(0, (*batch_shape, 4)).requires_grad_(grad)
    x2 = as_rows(random_clouds(count * 5, seed=1)).unflatten(0, (*batch_shape, 5))
    flat1, flat2 = x1.flatten(0, -3), x2.flatten(0, -3)
    expected = torch.stack([distance.squared(a, b) for a, b in zip(flat1, flat2, strict=True)])
    assert_same(distance.squared(x1, x2), expected.unflatten(0, batch_shape))
    diagonal = distance.squared(x1, x2[..., :4, :], diag=True)
    expected = distance.squared(x1, x2[..., :4, :]).diagonal(dim1=-2, dim2=-1)
    assert_same(diagonal, expected)


def test_batch_axes_broadcast(distance: Distance) -> None:
    x1 = as_rows(random_clouds(12)).unflatten(0, (3, 1, 4))
    x2 = as_rows(random_clouds(10, seed=1)).unflatten(0, (2, 5))
    expected = torch.stack([torch.stack([distance.squared(a[0], b) for b in x2]) for a in x1])
    assert_same(distance.squared(x1, x2), expected)
    expanded = x2.unsqueeze(0).expand(3, 2, 5, -1)
    assert_same(distance.squared(x1, expanded), expected)
    assert_same(distance.squared(expanded), distance.squared(expanded.clone()))


def test_chunks_and_blocks_change_nothing(
    distance: Distance, monkeypatch: pytest.MonkeyPatch
) -> None:
    x1, x2 = as_rows(random_clouds(30)), as_rows(random_clouds(11, seed=1))
    expected, within = distance.squared(x1, x2), distance.squared(x1)
    monkeypatch.setattr(type(distance), "_chunk_elements", 1)
    monkeypatch.setattr(type(distance), "_block_rows", 7)
    distance.clear_cache()
    assert_same(distance.squared(x1, x2), expected)
    assert_same(distance.squared(x1), within)


def test_empty_sets_have_empty_distances(distance: Distance) -> None:
    rows = random_rows(3)
    assert distance.squared(rows[:0], rows).shape == (0, 3)
    assert distance.squared(rows, rows[:0]).shape == (3, 0)
    assert distance.squared(rows[:0]).shape == (0, 0)


def test_works_on_device(distance: Distance, device: torch.device) -> None:
    rows = random_rows(9)
    expected = distance.squared(rows)
    distance.to(device)
    actual = distance.squared(rows.to(device))
    assert actual.device.type == device.type
    assert_same(actual.cpu(), expected)


def test_single_precision_is_kept(distance: Distance) -> None:
    rows = random_rows(9)
    expected = distance.squared(rows)
    actual = distance.squared(rows.float())
    assert actual.dtype == torch.float32
    # A Gram matrix in single precision.
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=2e-6 * float(expected.max()))


@pytest.mark.parametrize("name", KERNELS)
def test_diagonal_of_kernel_is_that_of_its_matrix(name: str) -> None:
    kernel = KERNELS[name]()
    x1, x2 = random_rows(9), as_rows(random_clouds(9, seed=1), atoms=40)
    x1 = as_rows(random_clouds(9), atoms=40)
    for other in (x1, x2):
        expected = kernel(x1, other).to_dense().diagonal()
        torch.testing.assert_close(kernel(x1, other, diag=True), expected)
