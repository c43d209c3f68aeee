"""Inner products of mean embeddings, also of clouds that share their atoms."""

import math
from typing import Any

import pytest
import torch
from cases import rand, randn
from torch import Tensor

from gp_distributions.numerics import mean_embeddings
from gp_distributions.numerics.embedding_kernels import (
    EMBEDDING_KERNELS,
    GaussianKernel,
    IsotropicKernel,
    MaternKernel,
    PairFunction,
)
from gp_distributions.numerics.mean_embeddings import common_atoms as find
from gp_distributions.numerics.mean_embeddings import inner_products

# Sizes of a block: one pair of atoms, parts of clouds, several clouds, everything.
BLOCKS = [1, 20, 300, 2**18]


def set_block(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    monkeypatch.setattr(mean_embeddings, "_BLOCK", numbers)
    monkeypatch.setattr(mean_embeddings, "_TRACKED_BLOCK", numbers)


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    set_block(monkeypatch, request.param)
    return request.param


def clouds(*shape: int, seed: int = 0, dim: int = 2, ragged: bool = False) -> tuple[Tensor, Tensor]:
    """Points and weights; ragged clouds have weights of zero at random places."""
    generator = torch.Generator().manual_seed(seed)
    points = randn(*shape, dim, seed=generator)
    weights = 0.1 + rand(*shape, seed=generator)
    if ragged:
        weights = weights * (torch.rand(*shape, generator=generator) < 0.5)
        weights[..., 1] = 0.3
    return points, weights / weights.sum(-1, keepdim=True)


def by_loops(kernel: Any, x1: Tensor, w1: Tensor, x2: Tensor, w2: Tensor) -> Tensor:
    """Inner products of two sets of clouds without batch axes, by loops."""
    rows = [
        [w @ kernel.matrix(x, y) @ v for y, v in zip(x2, w2, strict=True)]
        for x, w in zip(x1, w1, strict=True)
    ]
    return torch.stack([torch.stack(row) for row in rows])


def assert_agrees_with_loops(name: str, *, ragged: bool, tracked: bool) -> None:
    kernel = EMBEDDING_KERNELS[name]
    one, two = clouds(7, 5, ragged=ragged), clouds(6, 8, seed=1, ragged=ragged)
    expected, within = by_loops(kernel, *one, *two), by_loops(kernel, *one, *one)
    for tensor in one:
        tensor.requires_grad_(tracked)
    atol = 1e-12 * float(within.abs().max())
    for actual, loops in (
        (inner_products(kernel, *one, *two), expected),
        (inner_products(kernel, *one, *one, symmetric=True), within),
    ):
        assert actual.requires_grad == tracked
        torch.testing.assert_close(actual.detach(), loops, rtol=0, atol=atol)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("name", EMBEDDING_KERNELS)
def test_loops(name: str, tracked: bool) -> None:
    assert_agrees_with_loops(name, ragged=True, tracked=tracked)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_blocks_change_nothing(block: int, ragged: bool, tracked: bool) -> None:
    assert_agrees_with_loops("gaussian", ragged=ragged, tracked=tracked)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", EMBEDDING_KERNELS)
def test_gradient(name: str, symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    set_block(monkeypatch, 20)
    kernel = EMBEDDING_KERNELS[name]
    one = [t.requires_grad_() for t in clouds(3, 4)]
    two = [] if symmetric else [t.requires_grad_() for t in clouds(2, 3, seed=1)]

    def products(*tensors: Tensor) -> Tensor:
        others = tensors[:2] if symmetric else tensors[2:]
        return inner_products(kernel, *tensors[:2], *others, symmetric=symmetric)

    assert torch.autograd.gradcheck(products, (*one, *two), fast_mode=True)


def test_weights_of_padding_have_their_gradient() -> None:
    """The derivative in a weight of zero is the kernel at its atom."""
    x1, w1 = clouds(4, 5)
    w1[:, 3:] = 0
    x2, w2 = clouds(3, 6, seed=1)
    w1.requires_grad_()
    (gradient,) = torch.autograd.grad(inner_products(GaussianKernel(), x1, w1, x2, w2).sum(), w1)
    expected = torch.stack(
        [(GaussianKernel().matrix(x, x2) @ w2[..., None]).sum((0, 2)) for x in x1]
    )
    torch.testing.assert_close(gradient, expected)


class _Recording(MaternKernel):
    """Record the sizes of all blocks."""

    def __init__(self) -> None:
        super().__init__(1)
        self.sizes: list[int] = []

    def prepare(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, PairFunction]:
        left, right, pairs = super().prepare(x, y)

        def recorded(a: Any, b: Any) -> Any:
            values = pairs(a, b)
            self.sizes.append(math.prod(values.shape))
            return values

        return left, right, recorded


@pytest.mark.parametrize("shape", [(40, 25), (2, 500), (300, 3)])
def test_memory_is_bounded(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """No block exceeds its size, and tensors saved for gradients grow with atoms, not with pairs."""
    set_block(monkeypatch, 20_000)  # at two numbers for a value
    kernel = _Recording()
    x, w = (t.requires_grad_() for t in clouds(*shape))
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 8
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        products = inner_products(kernel, x, w, x, w, symmetric=True)
    assert max(kernel.sizes) <= 10_000
    pairs_of_clouds = shape[0] * (shape[0] + 1) / 2
    assert sum(kernel.sizes) <= 1.2 * pairs_of_clouds * shape[1] ** 2
    # Inputs, tensors computed from them, and results.
    assert sum(saved.values()) <= 10 * math.prod(shape) + 3 * shape[0] ** 2
    kernel.sizes.clear()
    products.sum().backward()
    assert 0 < max(kernel.sizes) <= 10_000


def test_ragged_clouds_cost_their_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one large cloud among small ones, padding is not computed and blocks do not grow."""
    set_block(monkeypatch, 5000)
    kernel = _Recording()
    x, w = clouds(60, 200)
    w[1:, 5:] = 0
    inner_products(kernel, x, w, x, w, symmetric=True)
    atoms = 200 + 59 * 5
    assert sum(kernel.sizes) <= atoms**2  # of 60 * 200 squared
    assert max(kernel.sizes) <= 2500  # at two numbers for a value


ISOTROPIC = {
    name: kernel
    for name, kernel in EMBEDDING_KERNELS.items()
    if isinstance(kernel, IsotropicKernel)
}


SUPPORTS = {
    "scattered": randn(7, 2),
    "with copies": randn(4, 2).repeat(2, 1),
    "plane": torch.cartesian_prod(*[torch.arange(3.0, dtype=torch.float64)] * 2) + 5,
}


def on(support: Tensor, *shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    weights = randn(*shape, len(support), seed=seed).abs()
    return support.expand(*shape, *support.shape), weights / weights.sum(-1, keepdim=True)


class TestFinds:
    def test_support(self) -> None:
        support = randn(5, 2)
        found = find(*[on(support, *shape)[0] for shape in ((4,), (3,))])
        assert found is not None
        assert torch.equal(found, support)

    def test_none_where_an_atom_differs(self) -> None:
        x, _ = on(randn(5, 2), 4)
        for cloud in range(4):
            other = x.clone()
            other[cloud, 2, 1] += 1e-9
            assert find(other, x) is None
            assert find(x, other) is None


@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize("place", SUPPORTS)
def test_agrees_with_clouds_anywhere(
    place: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In values, and in gradients in weights and in atoms that move independently."""
    monkeypatch.setattr(mean_embeddings, "_STRIP", 17)
    kernel, factors = ISOTROPIC[name], randn(4, 3, seed=2)
    one, two = on(SUPPORTS[place], 4), on(SUPPORTS[place], 3, seed=1)
    tensors = [t.clone().requires_grad_() for t in (*one, *two)]

    def results() -> tuple[list[Tensor], tuple[Tensor, ...]]:
        tracked = inner_products(kernel, *tensors)
        within = inner_products(kernel, *one, *one, symmetric=True)
        values = [tracked, inner_products(kernel, *one, *two), within]
        return values, torch.autograd.grad((factors * tracked).sum(), tensors)

    values, gradients = results()
    monkeypatch.setattr(mean_embeddings, "common_atoms", lambda x1, x2: None)
    expected = results()
    torch.testing.assert_close(values, expected[0], rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(gradients, expected[1], rtol=1e-10, atol=1e-13)
