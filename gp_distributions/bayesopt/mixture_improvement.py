"""Expected improvement of a mixture of models, in closed form."""

from __future__ import annotations

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from gp_distributions.models import MixtureModel
from gp_distributions.models.together import together


class MixtureLogExpectedImprovement(AnalyticAcquisitionFunction):
    r"""Logarithm of the expected improvement under a mixture of models.

    An expectation under a mixture is the weighted mean of the expectations under its members. With
    :math:`\mathrm{EI}_k` the expected improvement under member ``k``,

    .. math::
        \log \mathrm{EI}(x) = \log \sum_k w_k \exp \log \mathrm{EI}_k(x).

    ``LogExpectedImprovement`` of a :class:`MixtureModel` would replace the mixture by a normal
    distribution with the same mean and variance.

    Args:
        model: The mixture of models of one output whose posteriors are normal. Members may be mixtures.
        best_f: The best outcome so far.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, MixtureModel, MMDKernel, PointClouds
        >>> from gp_distributions.bayesopt import MixtureLogExpectedImprovement
        >>> points = torch.randn(6, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> X, y = PointClouds(points), points.mean((-2, -1))
        >>> mixture = MixtureModel([DistributionGP(X, y), DistributionGP(X, y, MMDKernel(2))])
        >>> acquisition = MixtureLogExpectedImprovement(mixture, best_f=y.max())
        >>> acquisition(X.pack().unsqueeze(-2)).shape
        torch.Size([6])
    """

    def __init__(self, model: MixtureModel, best_f: float | Tensor) -> None:
        super().__init__(model)
        used = [i for i, weight in enumerate(model.weights.tolist()) if weight > 0]
        self.parts = torch.nn.ModuleList(
            log_expected_improvement(model.models[i], best_f) for i in used
        )
        self.register_buffer("log_weights", model.weights[used].log())

    @t_batch_mode_transform(expected_q=1)  # type: ignore[untyped-decorator]
    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the logarithm of the expected improvement.

        Args:
            X: A ``batch_shape x 1 x width`` tensor of inputs.

        Returns:
            A ``batch_shape`` tensor.
        """
        with together():
            values = torch.stack([part(X) for part in self.parts], dim=-1)
        return (values + self.log_weights.to(values)).logsumexp(-1)


def log_expected_improvement(model: Model, best_f: float | Tensor) -> AnalyticAcquisitionFunction:
    """Make the exact logarithm of the expected improvement of a model or a mixture of models.

    Args:
        model: A model of one output.
        best_f: The best outcome so far.
    """
    if isinstance(model, MixtureModel):
        return MixtureLogExpectedImprovement(model, best_f)
    return LogExpectedImprovement(model, best_f=best_f)
