"""Weights of a mixture of models that stay spread while few held-out densities tell them apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def pseudo_bma_weights(log_densities: Tensor, *, samples: int = 1000, seed: int = 0) -> Tensor:
    r"""Compute pseudo-BMA+ weights of models from their held-out log densities.

    With :math:`l_{ik}` the log density of target ``i`` under model ``k``, which has not seen it,
    pseudo-BMA puts :math:`\exp(\sum_i l_{ik})` in the place of the marginal likelihood of model ``k``.
    The sum is one of ``T`` terms that would differ for other targets. The Bayesian bootstrap draws sums
    that could have been, and averages over them:

    .. math::
        w_k = \mathrm{E}_\alpha \frac{\exp(T \sum_i \alpha_i l_{ik})}
        {\sum_j \exp(T \sum_i \alpha_i l_{ij})}, \qquad \alpha \sim \mathrm{Dirichlet}(1, \dots, 1)

    Stacking maximises its criterion over :math:`K - 1` weights, and so fits noise if there are not many
    more targets than models. Here no weight is fitted: models whose log densities differ by less than
    the uncertainty of the difference have similar weights, however many models there are.

    Args:
        log_densities: The values :math:`l_{ik}`, a ``T x K`` tensor.
        samples: Number of samples of :math:`\alpha`.
        seed: Random seed of the samples.

    Returns:
        The weights, a tensor of length ``K`` in double precision. They sum to one.

    Raises:
        ValueError: If the tensor is empty, or a log density is not finite.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.pseudo_bma import pseudo_bma_weights
        >>> weights = pseudo_bma_weights(torch.tensor([[0.0, -1.0], [0.0, 0.9], [0.0, -1.0]]))
        >>> bool(weights[0] > weights[1] > 0.2)
        True

    Source: Yao, Vehtari, Simpson and Gelman 2018, section 3.4.
    """
    values = log_densities.detach().double().cpu()
    if values.dim() != 2 or 0 in values.shape or not bool(values.isfinite().all()):
        raise ValueError(
            "Expected finite log densities of shape T x K, got "
            f"{values.tolist() if values.numel() else tuple(values.shape)}."
        )
    count = len(values)
    alpha = np.random.default_rng(seed).dirichlet(np.ones(count), size=samples)
    sums = count * torch.from_numpy(alpha) @ values
    return sums.softmax(-1).mean(0).to(log_densities.device)
