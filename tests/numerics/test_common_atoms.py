"""Clouds on one support have the same inner products and gradients as computed in general."""

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics import mean_embeddings
from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS, IsotropicKernel
from gp_distributions.numerics.mean_embeddings import common_atoms as find
from gp_distributions.numerics.mean_embeddings import inner_products

ISOTROPIC = {
    name: kernel
    for name, kernel in EMBEDDING_KERNELS.items()
    if isinstance(kernel, IsotropicKernel)
}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SUPPORTS = {
    "scattered": random(7, 2),
    "with copies": random(4, 2).repeat(2, 1),
    "plane": torch.cartesian_prod(*[torch.arange(3.0, dtype=torch.float64)] * 2) + 5,
}


def on(support: Tensor, *shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    weights = random(*shape, len(support), seed=seed).abs()
    return support.expand(*shape, *support.shape), weights / weights.sum(-1, keepdim=True)


class TestFinds:
    def test_support(self) -> None:
        support = random(5, 2)
        found = find(*[on(support, *shape)[0] for shape in ((4,), (3,))])
        assert found is not None
        assert torch.equal(found, support)

    def test_none_where_an_atom_differs(self) -> None:
        x, _ = on(random(5, 2), 4)
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
    kernel, factors = ISOTROPIC[name], random(4, 3, seed=2)
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
