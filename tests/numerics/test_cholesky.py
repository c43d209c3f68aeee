"""Cholesky factors: exact where possible, with the least jitter otherwise, and loud about it."""

import contextlib
import math
import re
from collections.abc import Iterator

import linear_operator
import pytest
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.numerics.linear_algebra import cholesky, log_densities
from gp_distributions.warnings import JitterWarning, collected


@contextlib.contextmanager
def jitter_noted() -> Iterator[list[float]]:
    """Collect the sizes of jitter, which are known at the end of the block."""
    sizes: list[float] = []
    with collected(JitterWarning) as found:
        yield sizes
    for message, _ in found:
        added = re.search(r"jitter of (\S+) was added", message)
        sizes.append(float(added[1]) if added else math.nan)


def positive(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
    return root @ root.mT + torch.eye(shape[-1], dtype=torch.float64)


def lacking(size: float, count: int = 3) -> Tensor:
    """A diagonal matrix that becomes positive definite with a jitter of more than ``size``."""
    return torch.diag(torch.tensor([-size, *[1.0] * (count - 1)], dtype=torch.float64))


class TestFactors:
    @pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 1)])
    def test_without_jitter(self, shape: tuple[int, ...]) -> None:
        matrix = positive(*shape)
        with jitter_noted() as jitter:
            assert torch.equal(cholesky(matrix), torch.linalg.cholesky(matrix))
        assert not jitter

    @pytest.mark.parametrize(
        ("size", "expected"), [(0.0, 1e-8), (5e-9, 1e-8), (2e-8, 1e-7), (5e-6, 1e-5), (5e-4, 1e-3)]
    )
    def test_least_jitter_that_suffices(self, size: float, expected: float) -> None:
        matrix = lacking(size)
        with jitter_noted() as jitter:
            factor = cholesky(matrix)
        assert jitter == pytest.approx([expected])
        raised = matrix + expected * torch.eye(3, dtype=torch.float64)
        torch.testing.assert_close(factor @ factor.mT, raised, rtol=1e-14, atol=1e-16)

    def test_only_matrices_of_a_batch_that_need_it(self) -> None:
        sound, slightly, badly = positive(3), lacking(0.0), lacking(5e-6)
        with jitter_noted() as jitter:
            factors = cholesky(torch.stack([sound, slightly, badly]))
        assert jitter == pytest.approx([1e-5])
        assert torch.equal(factors[0], torch.linalg.cholesky(sound))
        # The one that needed less keeps the jitter that was enough.
        assert float(factors[1][0, 0].square()) == pytest.approx(1e-8)
        assert float(factors[2][0, 0].square()) == pytest.approx(5e-6)

    def test_settings_of_linear_operator_do_not_matter(self) -> None:
        with (
            linear_operator.settings.cholesky_max_tries(1),
            linear_operator.settings.cholesky_jitter(double_value=0.1),
            jitter_noted() as jitter,
        ):
            cholesky(lacking(5e-6))
        assert jitter == pytest.approx([1e-5])

    @pytest.mark.parametrize("size", [None, 5e-6])
    def test_gradient(self, size: float | None) -> None:
        matrix = positive(3) if size is None else lacking(size) + 1e-7 * positive(3)

        def of(values: Tensor) -> Tensor:
            with jitter_noted():
                return cholesky((values + values.mT) / 2).tril()

        assert torch.autograd.gradcheck(of, matrix.requires_grad_(), eps=1e-9, atol=1e-2, rtol=1e-2)


class TestErrors:
    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_not_finite(self, value: float) -> None:
        matrix = positive(2, 3)
        matrix[1, 0, 0] = matrix[1, 2, 1] = value
        with pytest.raises(NanError, match="finite covariance matrix, got 2 of 18 entries"):
            cholesky(matrix)

    @pytest.mark.parametrize(
        ("dtype", "largest"), [(torch.float64, "1e-03"), (torch.float32, "1e-01")]
    )
    def test_not_positive_definite(self, dtype: torch.dtype, largest: str) -> None:
        message = f"even with a jitter of {largest} on its diagonal"
        with jitter_noted() as jitter, pytest.raises(NotPSDError, match=message):
            cholesky(lacking(0.5).to(dtype))
        assert not jitter


@pytest.mark.parametrize("batch", [(), (2,)])
def test_log_densities_with_noise(batch: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    roots, differences, noise = (
        torch.rand(*batch, *shape, generator=generator, dtype=torch.float64)
        for shape in ((4, 4), (4, 3), (4,))
    )
    inputs = [differences, roots @ roots.mT, 0.1 + noise]
    covariance = inputs[1] + torch.diag_embed(inputs[2])
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(4).double(), covariance.unsqueeze(-3)
    )
    torch.testing.assert_close(log_densities(*inputs), normal.log_prob(differences.mT))

    def densities(differences: Tensor, matrix: Tensor, noise: Tensor) -> Tensor:
        return log_densities(differences, (matrix + matrix.mT) / 2, noise)

    assert torch.autograd.gradcheck(densities, [x.clone().requires_grad_() for x in inputs])
