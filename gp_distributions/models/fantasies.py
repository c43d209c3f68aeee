"""Fantasies of models that are mixtures, as in BoTorch."""

from __future__ import annotations

from typing import Any, Self

import torch
from botorch.models.model import Model
from botorch.models.utils.assorted import fantasize as fantasizing
from botorch.sampling.base import MCSampler
from torch import Tensor


class FantasizingModel(Model):
    """BoTorch model without a likelihood of its own that is conditioned on samples of its posterior.

    BoTorch's ``FantasizeMixin`` asks for a ``likelihood`` and sets a flag of the whole process.
    """

    def fantasize(self, X: Tensor, sampler: MCSampler, **kwargs: Any) -> Self:
        """Condition the model on samples of its noisy posterior at ``X``, as in BoTorch.

        Args:
            X: A ``batch_shape x N x m*(d+1)`` tensor of rows.
            sampler: Sampler of the noisy posterior at ``X``.
            **kwargs: Options of ``condition_on_observations``.
        """
        with fantasizing():
            if X.shape[-2] > 0:
                samples = sampler(self.posterior(X, observation_noise=True))
            else:  # as in BoTorch: samplers do not take posteriors at no clouds
                batch_shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
                samples = X.new_empty(*sampler.sample_shape, *batch_shape, 0, self.num_outputs)
            model: Self = self.condition_on_observations(X, samples, **kwargs)
            return model
