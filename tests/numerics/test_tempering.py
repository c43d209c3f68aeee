"""Probabilities at a temperature: their definition and limits."""

import mpmath
import pytest
import torch

from gp_distributions.numerics.predictions import log_probabilities, tempered

RANDOM = torch.Generator().manual_seed(0)
P = torch.rand(7, 4, dtype=torch.float64, generator=RANDOM).softmax(-1)
TINY = torch.tensor([[1.0, 1e-290, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0, 3.0])
def test_are_powers_divided_by_their_sum(temperature: float) -> None:
    powers = P ** (1 / temperature)
    expected = powers / powers.sum(-1, keepdim=True)
    torch.testing.assert_close(tempered(P, temperature), expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(tempered(P, temperature).sum(-1), torch.ones(7).double())


def test_powers_below_the_smallest_number() -> None:
    found = tempered(TINY, 4.0)
    expected = [float(mpmath.mpf(p) ** 0.25) for p in (1, "1e-290", 0)]
    assert found[0].tolist() == pytest.approx(expected, rel=1e-12, abs=0)
    assert tempered(TINY, 0.25).tolist() == [[1.0, 0.0, 0.0]]


def test_log_probabilities_of_labels() -> None:
    labels, temperatures = torch.tensor([0, 1, 2, 3, 0, 1, 2]), [0.5, 1.0, 2.0]
    found = log_probabilities(P, labels, temperatures)
    assert found.shape == (7, 3)
    for i, label in enumerate(labels):
        for k, temperature in enumerate(temperatures):
            torch.testing.assert_close(found[i, k], tempered(P[i], temperature)[label].log())
    # More certain than the smallest number can say.
    confident = log_probabilities(TINY, torch.tensor([1]), [0.25])
    expected = float(mpmath.log(mpmath.mpf("1e-290")) * 4)
    torch.testing.assert_close(confident.item(), expected)
