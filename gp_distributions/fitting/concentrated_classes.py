"""The marginal likelihood of a classifier at the best means of its classes."""

from __future__ import annotations

from typing import Any

import torch
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from gp_distributions.fitting.concentrated import FixedCovariance
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.dirichlet import DirichletLogDensities


class ConcentratedClasses:
    """The log marginal likelihood of a classifier for each cloud, at the best mean of each class.

    Args:
        model: A model in training mode that :func:`has_concentrated_classes`. Each evaluation sets its
            means.

    Attributes:
        parameters: What the likelihood is a function of, by name.
        bounds: Lower and upper bounds.
    """

    def __init__(self, model: ClassificationGP) -> None:
        kernel = model.covar_module
        self._model, self._mean = model, model.mean_module.raw_constant
        scaled = type(kernel) is ScaleKernel
        base = kernel.base_kernel if scaled else kernel
        self._base, self._scale = (
            FixedCovariance(base, model.compared_rows),
            kernel if scaled else None,
        )
        parameters, self.bounds = get_parameters_and_bounds(model, requires_grad=True)
        self.parameters = {n: value for n, value in parameters.items() if value is not self._mean}

    def __call__(self) -> Tensor:
        """Return the likelihood plus the log densities of the priors, divided by ``T``."""
        model, likelihood = self._model, self._model.likelihood
        targets, size = model.train_targets, model.train_targets.shape[-1]
        found, means = DirichletLogDensities.apply(
            self._covariances().view(size, size), targets, likelihood.labels, likelihood.noise
        )
        with torch.no_grad():
            self._mean.copy_(means)
        for _, module, prior, closure, _ in model.named_priors():
            # As in GPyTorch, a prior of what all classes share counts once for each.
            density = prior.log_prob(closure(module))
            found = found + density.view(*density.shape[:1], -1).sum(-1)
        return found.sum() / size

    def _covariances(self) -> Tensor:
        found = self._base()
        return found if self._scale is None else self._scale.outputscale[..., None, None] * found


def has_concentrated_classes(model: Any) -> bool:
    """Whether a model is a classifier whose means are learned."""
    transform = getattr(model, "input_transform", torch.nn.Identity())
    return (
        isinstance(model, ClassificationGP)
        and model.mean_module.raw_constant.requires_grad
        and not any(parameter.requires_grad for parameter in transform.parameters())
    )
