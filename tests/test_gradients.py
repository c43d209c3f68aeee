"""Gradients in points, weights and lengthscale agree with finite differences, and are finite."""

from collections.abc import Callable

import pytest
import torch
from cases import DISTANCES, KERNELS, Case, Inputs
from torch import Tensor

from gp_distributions import Distance, DistributionKernel
from gp_distributions.rows.clouds import split_rows


def only(choose: Callable[[Inputs], bool]) -> pytest.MarkDecorator:
    """The distances on some kinds of rows."""
    chosen = [name for name, case in DISTANCES.items() if choose(case.inputs)]
    return pytest.mark.parametrize("case", chosen, indirect=True)


# Labels do not move, and numbers of objects have no weights either: they have no gradient at all.
where_atoms_move = only(lambda inputs: not inputs.labels)
where_atoms_are_labels = only(lambda inputs: inputs.labels and inputs.weighted)
where_atoms_have_weights = only(lambda inputs: inputs.weighted)
where_anything_moves = only(lambda inputs: inputs.weighted or not inputs.labels)


@pytest.fixture(params=DISTANCES)
def case(request: pytest.FixtureRequest) -> Case[Distance]:
    return DISTANCES[request.param]


@pytest.fixture
def distance(case: Case[Distance]) -> Distance:
    return case()


@pytest.fixture
def inputs(case: Case[Distance]) -> Inputs:
    return case.inputs


def stacked(inputs: Inputs, num: int, seed: int) -> tuple[Tensor, Tensor]:
    clouds = inputs.draw(num, seed=seed, sizes=(6, 6))
    return torch.stack([p for p, _ in clouds]), torch.stack([w for _, w in clouds])


def fixed_rows(inputs: Inputs, num: int, seed: int) -> Tensor:
    return inputs.join(*stacked(inputs, num, seed))


def moving_rows(inputs: Inputs, num: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """What can move in some rows, and how it makes the rows."""
    points, weights = stacked(inputs, num, 0)
    if inputs.labels:
        return weights.requires_grad_(), lambda weights: inputs.join(points, weights)
    return inputs.join(points, weights).requires_grad_(), inputs.project


@where_atoms_move
def test_gradient_in_points(distance: Distance, inputs: Inputs) -> None:
    points, weights = stacked(inputs, 3, 0)
    others = fixed_rows(inputs, 2, 1)

    def squared(points: Tensor) -> Tensor:
        return distance.squared(inputs.project(inputs.join(points, weights)), others)

    assert torch.autograd.gradcheck(squared, points.requires_grad_())


@where_atoms_are_labels
def test_labels_have_a_gradient_of_zero(distance: Distance, inputs: Inputs) -> None:
    points, weights = stacked(inputs, 3, 0)
    points.requires_grad_()
    squared = distance.squared(inputs.join(points, weights), fixed_rows(inputs, 2, 1))
    (gradient,) = torch.autograd.grad(squared.sum(), points)
    assert torch.equal(gradient, torch.zeros_like(points))


@where_atoms_have_weights
def test_gradient_in_weights(distance: Distance, inputs: Inputs) -> None:
    points, weights = stacked(inputs, 3, 0)
    others = fixed_rows(inputs, 2, 1)

    def squared(weights: Tensor) -> Tensor:
        return distance.squared(inputs.join(points, weights), others)

    assert torch.autograd.gradcheck(squared, weights.requires_grad_())


@where_anything_moves
def test_gradient_within_a_set(distance: Distance, inputs: Inputs) -> None:
    moving, as_rows = moving_rows(inputs, 3)
    assert torch.autograd.gradcheck(lambda x: distance.squared(as_rows(x)), moving)


@where_anything_moves
def test_gradient_of_the_diagonal(distance: Distance, inputs: Inputs) -> None:
    moving, as_rows = moving_rows(inputs, 3)
    others = fixed_rows(inputs, 3, 1)
    assert torch.autograd.gradcheck(
        lambda x: distance.squared(as_rows(x), others, diag=True), moving
    )


@where_atoms_have_weights
def test_gradient_in_weights_is_orthogonal_to_them(distance: Distance, inputs: Inputs) -> None:
    points, weights = stacked(inputs, 3, 0)
    rows, others = inputs.join(points, weights).requires_grad_(), fixed_rows(inputs, 3, 1)
    (gradient,) = torch.autograd.grad(distance.squared(rows, others).sum(), rows)
    inner = (split_rows(gradient, points.shape[-1])[1] * weights).sum(-1)
    assert float(inner.abs().max()) <= 1e-12 * float(gradient.abs().max())


@where_anything_moves
def test_gradient_with_a_fixed_side_is_that_with_both(distance: Distance, inputs: Inputs) -> None:
    """The side without a gradient comes from the cache; what it is compared with must not care."""
    rows, others = fixed_rows(inputs, 3, 0).requires_grad_(), fixed_rows(inputs, 4, 1)
    distance.squared(others)  # now cached
    (cached,) = torch.autograd.grad(distance.squared(rows, others).sum(), rows)
    (plain,) = torch.autograd.grad(
        distance.squared(rows, others.clone().requires_grad_()).sum(), rows
    )
    torch.testing.assert_close(cached, plain, rtol=1e-10, atol=1e-12)


@where_anything_moves
def test_fixed_rows_of_equal_content_have_no_gradient(distance: Distance, inputs: Inputs) -> None:
    """The two sides are equal by value, but only one of them moves."""
    fixed = inputs.rows(4, sizes=(3, 8))
    moving, copied = (fixed.clone().requires_grad_() for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    for cached in (False, True):
        if cached:
            distance.squared(fixed)
        actual, swapped, expected = (
            torch.autograd.grad((factors * distance.squared(*args)).sum(), moving)[0]
            for args in ((moving, fixed), (fixed, moving), (moving, copied))
        )
        # D(x, y) and D(y, x) move alike in their own argument.
        (mirrored,) = torch.autograd.grad(
            (factors * distance.squared(copied, moving)).sum(), moving
        )
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(swapped, mirrored, rtol=1e-10, atol=1e-12)


@where_anything_moves
def test_gradient_where_a_cloud_meets_itself_is_zero(distance: Distance, inputs: Inputs) -> None:
    """The root of the exponential profile would make that of rounding infinitely large."""
    kernel = DistributionKernel(distance, "exponential").double()
    moving, as_rows = moving_rows(inputs, 4)
    rows = as_rows(moving)
    fixed = rows.detach().clone()
    for others, pairs in (
        (fixed, [(2, 2)]),
        (fixed.flip(0), [(0, 3)]),
        (fixed[1:3], [(1, 0), (2, 1)]),
        (fixed[1:2], [(1, 0)]),
    ):
        for cached in (False, True):
            if cached:
                distance.squared(others)
            for covariance in (kernel(rows, others), kernel(others, rows).mT):
                for pair in pairs:
                    assert_no_gradient(covariance.to_dense()[pair], moving)
    paired = kernel(rows, torch.cat([fixed[:2], fixed[2:].flip(0)]), diag=True)
    assert_no_gradient(paired[:2], moving)


@where_anything_moves
@pytest.mark.parametrize("diag", [False, True])
@pytest.mark.parametrize("num", [1, 3])
def test_gradient_of_nothing_but_zeros(
    distance: Distance, inputs: Inputs, num: int, diag: bool
) -> None:
    """It is zero, not absent: in rows, and in parameters of the distance."""
    moving, as_rows = moving_rows(inputs, num)
    distance.requires_grad_()
    rows = as_rows(moving)
    for others in (rows, rows.detach().clone()):
        for x1, x2 in ((rows, others), (others, rows)):
            squared = distance.squared(x1, x2, diag=diag)
            zeros = squared if diag else squared.diagonal()
            assert_no_gradient(zeros, moving, *distance.parameters())
    assert_no_gradient(distance.squared(rows[:0], rows, diag=False), moving)


def assert_no_gradient(values: Tensor, *tensors: Tensor) -> None:
    for gradient in torch.autograd.grad(values.sum(), tensors, retain_graph=True):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@where_anything_moves
def test_copies_of_a_row_keep_their_own_gradients(distance: Distance, inputs: Inputs) -> None:
    rows = fixed_rows(inputs, 1, 0).repeat(3, 1).requires_grad_()
    others = fixed_rows(inputs, 3, 1)
    (gradient,) = torch.autograd.grad(distance.squared(rows, others)[1].sum(), rows)
    assert float(gradient[1].abs().max()) > 0
    assert torch.equal(gradient[[0, 2]], torch.zeros_like(gradient[[0, 2]]))


@pytest.mark.parametrize("name", [n for n, case in KERNELS.items() if not case.inputs.labels])
def test_gradient_of_kernel_in_points(name: str) -> None:
    kernel, inputs = KERNELS[name]().double(), KERNELS[name].inputs
    points, weights = stacked(inputs, 3, 0)
    others = fixed_rows(inputs, 2, 1)

    def covariance(points: Tensor) -> Tensor:
        return kernel(inputs.project(inputs.join(points, weights)), others).to_dense()

    assert torch.autograd.gradcheck(covariance, points.requires_grad_())


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_of_kernel_in_lengthscale(name: str) -> None:
    kernel, inputs = KERNELS[name]().double(), KERNELS[name].inputs
    rows, others = fixed_rows(inputs, 3, 0), fixed_rows(inputs, 2, 1)

    def covariance(raw: Tensor) -> Tensor:
        return torch.func.functional_call(
            kernel, {"raw_lengthscale": raw}, (rows, others), {}
        ).to_dense()

    raw = kernel.raw_lengthscale.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(covariance, raw)


@pytest.mark.parametrize(
    ("name", "position"),
    [(name, position) for name, case in KERNELS.items() for position in case.inputs.special],
)
def test_gradients_are_finite_in_special_position(name: str, position: str) -> None:
    kernel: DistributionKernel = KERNELS[name]()
    inputs = KERNELS[name].inputs
    points, weights = stacked(inputs, 4, 0)
    if position == "coincident":
        points, weights = points[:1].repeat(4, 1, 1), weights[:1].repeat(4, 1)
    elif position == "single atoms":
        points, weights = points[:, :1], weights[:, :1]
    elif position == "ties":
        points = points.round()
        weights = torch.ones_like(weights)
    elif position == "split":
        points = points.repeat_interleave(2, dim=-2)
        weights = weights.repeat_interleave(2, dim=-1)
    else:
        weights = torch.cat([weights[..., :3], torch.zeros_like(weights[..., 3:])], dim=-1)
    rows = inputs.join(points, weights).requires_grad_()
    kernel.requires_grad_()  # references too
    for x2 in (rows, rows.detach().clone(), rows.detach().flip(0)):
        covariance = kernel(rows, x2).to_dense()
        gradients = torch.autograd.grad(
            covariance.sum(), [rows, *kernel.parameters()], allow_unused=True
        )
        assert all(bool(g.isfinite().all()) for g in gradients if g is not None)
