"""What must not change a distance: padding, the order of atoms, splitting them, batching."""

import math

import pytest
import torch
from cases import DISTANCES, KERNELS, Case, Inputs
from torch import Tensor

from gp_distributions import Distance

# Relative to the largest squared distance: rounding of a Gram matrix.
TOLERANCE = 1e-12


# Of rows that are one atom without a weight there is nothing to pad, to order or to split.
of_weighted_atoms = pytest.mark.parametrize(
    "case", [name for name, case in DISTANCES.items() if case.inputs.weighted], indirect=True
)


@pytest.fixture(params=DISTANCES)
def case(request: pytest.FixtureRequest) -> Case[Distance]:
    return DISTANCES[request.param]


@pytest.fixture
def distance(case: Case[Distance]) -> Distance:
    return case()


@pytest.fixture
def inputs(case: Case[Distance]) -> Inputs:
    return case.inputs


def assert_same(actual: Tensor, expected: Tensor) -> None:
    scale = float(expected.detach().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale)


@of_weighted_atoms
def test_padding_changes_nothing(distance: Distance, inputs: Inputs) -> None:
    clouds = inputs.draw(12)
    assert_same(
        distance.squared(inputs.pack(clouds, atoms=90)), distance.squared(inputs.pack(clouds))
    )


@of_weighted_atoms
def test_padding_may_stand_anywhere_and_hold_anything_finite(
    distance: Distance, inputs: Inputs
) -> None:
    clouds = inputs.draw(12)
    padded = [
        (
            torch.cat([torch.full_like(points[:1], 1e3).repeat(3, 1), points]),
            torch.cat([weights.new_zeros(3), weights]),
        )
        for points, weights in clouds
    ]
    assert_same(distance.squared(inputs.pack(padded)), distance.squared(inputs.pack(clouds)))


@of_weighted_atoms
def test_order_of_atoms_changes_nothing(distance: Distance, inputs: Inputs) -> None:
    clouds = inputs.draw(12)
    shuffled = [(points.flip(0), weights.flip(0)) for points, weights in clouds]
    assert_same(distance.squared(inputs.pack(shuffled)), distance.squared(inputs.pack(clouds)))


@of_weighted_atoms
def test_splitting_atoms_changes_nothing(distance: Distance, inputs: Inputs) -> None:
    clouds = inputs.draw(12)
    split = [
        (torch.cat([points, points[:3]]), torch.cat([weights, 0 * weights[:3]]))
        for points, weights in clouds
    ]
    for (points, weights), (_, parts) in zip(clouds, split, strict=True):
        parts[: len(points[:3])] *= 0.3
        parts[len(points) :] = 0.7 * weights[:3]
    assert_same(distance.squared(inputs.pack(split)), distance.squared(inputs.pack(clouds)))
    # Between a cloud and itself in other atoms, the root of a distance is zero to half the digits.
    across = distance.squared(inputs.pack(clouds), inputs.pack(split)).diagonal()
    scale = distance.squared(inputs.pack(clouds)).max()
    assert float((across / scale).sqrt().max()) <= 1e-7


@of_weighted_atoms
def test_total_weight_changes_nothing(distance: Distance, inputs: Inputs) -> None:
    clouds = inputs.draw(12)
    heavy = [(points, 7.0 * weights) for points, weights in clouds]
    assert_same(distance.squared(inputs.pack(heavy)), distance.squared(inputs.pack(clouds)))


@of_weighted_atoms
def test_rows_of_two_widths_are_compared(distance: Distance, inputs: Inputs) -> None:
    clouds, others = inputs.draw(6), inputs.draw(5, seed=1)
    expected = distance.squared(inputs.pack(clouds), inputs.pack(others))
    assert_same(distance.squared(inputs.pack(clouds, atoms=70), inputs.pack(others)), expected)


def test_distance_to_itself_is_exactly_zero(distance: Distance, inputs: Inputs) -> None:
    rows = inputs.rows(9)
    for x2 in (None, rows, rows.clone()):
        assert torch.equal(distance.squared(rows, x2).diagonal(), torch.zeros(9).double())
    assert torch.equal(distance.squared(rows, diag=True), torch.zeros(9).double())


def test_is_symmetric_and_nonnegative(distance: Distance, inputs: Inputs) -> None:
    x1, x2 = inputs.rows(9), inputs.rows(7, seed=1)
    forth, back = distance.squared(x1, x2), distance.squared(x2, x1)
    assert_same(forth, back.T)
    assert float(forth.min()) >= 0


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("shape", [(30,), (2, 3, 6), (2, 30)])
def test_is_exactly_symmetric_within_a_set(
    distance: Distance, inputs: Inputs, shape: tuple[int, ...], tracked: bool
) -> None:
    rows = inputs.rows(math.prod(shape)).unflatten(0, shape)
    squared = distance.squared(rows.requires_grad_(tracked)).detach()
    assert torch.equal(squared, squared.mT)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("batch_shape", [(2,), (2, 3), (2, 1, 3)])
def test_batches_agree_with_a_loop(
    distance: Distance, inputs: Inputs, batch_shape: tuple[int, ...], grad: bool
) -> None:
    count = int(torch.tensor(batch_shape).prod())
    x1 = inputs.rows(count * 4).unflatten(0, (*batch_shape, 4)).requires_grad_(grad)
    x2 = inputs.rows(count * 5, seed=1).unflatten(0, (*batch_shape, 5))
    flat1, flat2 = x1.flatten(0, -3), x2.flatten(0, -3)
    expected = torch.stack([distance.squared(a, b) for a, b in zip(flat1, flat2, strict=True)])
    assert_same(distance.squared(x1, x2), expected.unflatten(0, batch_shape))
    diagonal = distance.squared(x1, x2[..., :4, :], diag=True)
    expected = distance.squared(x1, x2[..., :4, :]).diagonal(dim1=-2, dim2=-1)
    assert_same(diagonal, expected)


def test_batch_axes_broadcast(distance: Distance, inputs: Inputs) -> None:
    x1 = inputs.rows(12).unflatten(0, (3, 1, 4))
    x2 = inputs.rows(10, seed=1).unflatten(0, (2, 5))
    expected = torch.stack([torch.stack([distance.squared(a[0], b) for b in x2]) for a in x1])
    assert_same(distance.squared(x1, x2), expected)
    expanded = x2.unsqueeze(0).expand(3, 2, 5, -1)
    assert_same(distance.squared(x1, expanded), expected)
    assert_same(distance.squared(expanded), distance.squared(expanded.clone()))


def test_chunks_and_blocks_change_nothing(
    distance: Distance, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    x1, x2 = inputs.rows(30), inputs.rows(11, seed=1)
    expected, within = distance.squared(x1, x2), distance.squared(x1)
    monkeypatch.setattr(type(distance), "chunk_elements", 1)
    monkeypatch.setattr(type(distance), "block_rows", 7)
    distance.clear_cache()
    assert_same(distance.squared(x1, x2), expected)
    assert_same(distance.squared(x1), within)


def test_empty_sets_have_empty_distances(distance: Distance, inputs: Inputs) -> None:
    rows = inputs.rows(3)
    assert distance.squared(rows[:0], rows).shape == (0, 3)
    assert distance.squared(rows, rows[:0]).shape == (3, 0)
    assert distance.squared(rows[:0]).shape == (0, 0)


def test_works_on_device(distance: Distance, inputs: Inputs, device: torch.device) -> None:
    rows = inputs.rows(9)
    expected = distance.squared(rows)
    distance.to(device)
    actual = distance.squared(rows.to(device))
    assert actual.device.type == device.type
    assert_same(actual.cpu(), expected)


def test_single_precision_is_kept(distance: Distance, inputs: Inputs) -> None:
    rows = inputs.rows(9)
    expected = distance.squared(rows)
    actual = distance.squared(rows.float())
    assert actual.dtype == torch.float32
    # A Gram matrix in single precision.
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=2e-6 * float(expected.max()))


@pytest.mark.parametrize("name", KERNELS)
def test_diagonal_of_kernel_is_that_of_its_matrix(name: str) -> None:
    kernel, inputs = KERNELS[name](), KERNELS[name].inputs
    x1, x2 = inputs.rows(9, atoms=40), inputs.rows(9, seed=1, atoms=40)
    for other in (x1, x2):
        expected = kernel(x1, other).to_dense().diagonal()
        torch.testing.assert_close(kernel(x1, other, diag=True), expected)
