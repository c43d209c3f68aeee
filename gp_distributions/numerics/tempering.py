"""Probabilities made more or less confident by a temperature."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    r"""Raise probabilities to the power :math:`1 / \tau`, and divide them by their sum.

    .. math::
        q_c = \frac{p_c^{1 / \tau}}{\sum_j p_j^{1 / \tau}}

    Args:
        probabilities: A ``... x C`` tensor of probabilities :math:`p`.
        temperature: The temperature :math:`\tau > 0`. Below 1, large probabilities become larger.

    Returns:
        A ``... x C`` tensor; ``probabilities`` itself if the temperature is 1.

    Source: Guo, Pleiss, Sun and Weinberger 2017, eq. 9.
    """
    if temperature == 1:
        return probabilities
    return (probabilities.log() / temperature).softmax(-1)


def log_probabilities(
    probabilities: Tensor, labels: Tensor, temperatures: Sequence[float]
) -> Tensor:
    """Return the log probabilities of labels at several temperatures.

    Args:
        probabilities: An ``N x C`` tensor.
        labels: The ``N`` class indices.
        temperatures: The ``K`` temperatures.

    Returns:
        An ``N x K`` tensor.
    """
    logs, index = probabilities.log(), labels.unsqueeze(-1)
    found = logs.new_empty(len(labels), len(temperatures))
    for k, temperature in enumerate(temperatures):
        found[:, [k]] = (logs / temperature).log_softmax(-1).gather(-1, index)
    return found
