"""Exact features of the Gaussian kernel against sums over pairs of atoms in extended precision."""

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from gp_distributions import MMD
from gp_distributions.numerics import gaussian_features as module
from gp_distributions.numerics.gaussian_features import gaussian_features
from gp_distributions.rows.clouds import join_rows


def clouds(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points whose coordinates have unlike spreads, and weights, a fifth of them zero."""
    rng = np.random.default_rng(seed)
    points = 3.0 + rng.normal(size=shape) / np.arange(1, shape[-1] + 1)
    weights = rng.uniform(size=shape[:-1]) * (rng.uniform(size=shape[:-1]) < 0.8)
    return torch.from_numpy(points), torch.from_numpy(weights / weights.sum(-1, keepdims=True))


def exact(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> np.ndarray:
    """Inner products of all pairs of mean embeddings, in extended precision."""
    a, b = (points.numpy().astype(np.longdouble) for points in (x, y))
    squares = ((a[:, None, :, None] - b[None, :, None]) ** 2).sum(-1)
    return np.einsum("abij,ai,bj->ab", np.exp(-squares / 2), w.numpy(), v.numpy())


def products(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> Tensor:
    features = gaussian_features((x, w), (y, v))
    assert features is not None
    return features[0] @ features[1].mT


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use features at any cost."""
    monkeypatch.setattr(module, "_PAIR", 1e9)
    monkeypatch.setattr(module, "_FEWEST", 0)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("block", [1, 300, 2**18])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_are_exact(dim: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    one, two = clouds(2, 4, 15, dim), clouds(2, 3, 10, dim, seed=1)
    for x, w, y, v, found in zip(*one, *two, products(*one, *two), strict=True):
        assert np.abs(found.numpy() - exact(x, w, y, v)).max() < 5e-15


@pytest.mark.usefixtures("free")
def test_distances_of_clouds_that_nearly_coincide() -> None:
    """Sums over pairs would have two correct digits."""
    x, w = clouds(2, 8, 1)
    x[1], w[1] = x[0] + 1e-6 * x[1], w[0]
    atoms, masses = x.flatten().tolist(), torch.cat([w[0], -w[1]]).tolist()
    with mpmath.workdps(40):
        cloud = [*zip(map(mpmath.mpf, atoms), masses, strict=True)]
        terms = [a * b * mpmath.exp(-((p - q) ** 2) / 2) for p, a in cloud for q, b in cloud]
    expected = float(mpmath.fsum(terms))
    squared = MMD(1, bandwidth=1.0).squared(join_rows(x, w))[0].tolist()
    assert squared == pytest.approx([0.0, expected], rel=1e-9, abs=0)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("dim", [1, 3])
def test_gradients(dim: int) -> None:
    one, two = clouds(3, 4, dim), clouds(2, 5, dim, seed=1)
    inputs = [part.requires_grad_() for part in (*one, *two)]
    assert torch.autograd.gradcheck(products, inputs)


@pytest.mark.parametrize(
    ("shape", "change"),
    [
        pytest.param((200, 30, 5), 1.0, id="many coordinates"),
        pytest.param((200, 30, 2), 60.0, id="far points"),
        pytest.param((200, 30, 2), float("nan"), id="not numbers"),
        pytest.param((200, 30, 4), 5.0, id="many features"),
        pytest.param((9, 10, 2), 1.0, id="few pairs"),
    ],
)
def test_none_where_pairs_take_less_time(shape: tuple[int, ...], change: float) -> None:
    x, w = clouds(*shape)
    one = change * x, w
    assert gaussian_features(one, one) is None


def test_padding_takes_no_time() -> None:
    """With one large cloud among small ones, there are few pairs."""
    one = clouds(100, 300, 2)
    assert gaussian_features(one, one) is not None
    one[1][1:, 3:] = 0
    assert gaussian_features(one, one) is None
