"""Fitting of sparse models: hyperparameters from a sample of the clouds, then one pass over all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from linear_operator.utils.errors import NanError
from torch import Tensor

from gp_distributions.fitting.explicit_features import (
    cheapest_covariances,
    has_one_lengthscale,
    learn_from_sample,
    scaled_to_evidence,
)
from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.members import chosen
from gp_distributions.fitting.stages import CONCENTRATION, SAMPLE, run, warn_of_units
from gp_distributions.measures.inputs import TrainingData
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.collapsed import (
    CollapsedSums,
    ExplicitFeatures,
    Features,
    InducingFeatures,
)
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.passes import sums_over_pieces
from gp_distributions.models.sampling_noise import multiply_noise
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.models.sparse_aggregate_gp import SparseAggregateGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP

# Number of clouds from which an exact model learns the hyperparameters.
_SAMPLE, _SAMPLE_OF_SUMS = 1000, 128
# Number of clouds that are left out, one at a time, to update outputscale and noise.
_LEFT_OUT = 2000


@fit.register
@torch.inference_mode(False)
@torch.enable_grad()
def fit_sparse(
    model: SparseDistributionGP,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
    client: Any = None,
    description: str = "Fitting",
) -> SparseDistributionGP:
    """Fit a sparse model in place; :func:`fit` calls this function.

    The hyperparameters are those of an exact model, fitted to 1000 random clouds of the sample that the
    constructor drew; without a kernel, it chooses scales of coordinates and the factor of normals, as
    :func:`fit` does, but no mixture. The inducing clouds are chosen out of the sample and the sums are
    formed at these hyperparameters, in one pass over all clouds. Given the sums, the outputscale, the
    noise and the mean are then updated without a further pass, unless all clouds are inducing. The
    outputscale and the noise maximise the leave-one-out log density of 2000 random clouds of the sample,
    and the means the marginal likelihood. Hyperparameters that do not require a gradient stay as they
    are; if the sampling noise is one of them, the noise, to which it is relative, is not updated. (The
    outputscale and noise that maximise the lower bound predicted worse than those of the sample, since
    the bound counts what the inducing clouds do not explain as noise.)

    If a fit is interrupted, the model keeps the best hyperparameters found so far,
    and forms its sums when it next predicts.

    Args:
        model: The model.
        init: As in :func:`fit`.
        restarts: As in :func:`fit`.
        seed: As in :func:`fit`.
        options: As in :func:`fit`.
        progress: Whether to show a progress bar over the pieces of the data if they take more than a
            few seconds.
        client: A client of ``dask.distributed`` whose workers form the sums. The sums are added in the
            order of the pieces: if each task runs on one thread, as it does by default on workers,
            they have the same bits on any number of workers of one kind, and in this process with
            ``OMP_NUM_THREADS=1``.
        description: What the progress bar of the exact model says.

    Returns:
        The fitted model, in evaluation mode.

    Raises:
        PieceError: If a piece of the data cannot be read; the message names its file.
    """
    how: dict[str, Any] = {"init": init, "restarts": restarts, "seed": seed, "options": options}
    warn_of_units(model)
    try:
        summed = isinstance(model, SparseAggregateGP)
        if not (summed and has_one_lengthscale(model.covar_module)):
            exact = exact_model(model)
            exact.chooses_metric = model.chooses_metric
            stages = CONCENTRATION if isinstance(model, SparseClassificationGP) else SAMPLE
            with cheapest_covariances(model.covar_module, exact.train_inputs[0]):
                run(exact, stages, **how, progress=progress, description=description)
        if summed:
            learn_from_sample(model)
        features = model.choose_features()
        task, pieces = model.piece_sums(features), model.training_data().pieces
        sums = sums_over_pieces(task, pieces, progress=progress, client=client)
        if isinstance(features, ExplicitFeatures):
            sums = scaled_to_evidence(model, sums)
        elif len(features.rows) < sums.count:
            features, sums = _polished(model, features, sums)
        model.take_sums(features, sums)
        model.choice = chosen(model) if model.chooses_metric else None
    finally:
        model.eval()
    return model


def exact_model(model: SparseDistributionGP) -> DistributionGP:
    """Make an exact model of a sample of the clouds, whose modules are those of the sparse model."""
    rows, targets, relative = model.sample_rows(
        _SAMPLE_OF_SUMS if isinstance(model, SparseAggregateGP) else _SAMPLE
    )
    if isinstance(model, SparseClassificationGP):
        labels = targets.squeeze(-1).argmax(0)
        data = TrainingData(rows, labels, classes=model.classes_)
        found = ClassificationGP(data, None, model.covar_module, alpha_epsilon=model.alpha_epsilon)
        found.mean_module = model.mean_module
        return found
    likelihood = model.likelihood
    if model.noise_is_known:
        likelihood = FixedNoiseGaussianLikelihood(relative if len(relative) > 1 else relative[0])
    kind = SharedKernelGP if model.num_outputs > 1 else DistributionGP
    return kind(
        rows,
        targets.movedim(0, -2).flatten(-2),
        model.covar_module,
        likelihood=likelihood,
        mean_module=model.mean_module,
        outcome_transform=None,
    )


class _LeaveOneOut:
    r"""Leave-one-out log density of a sample, as a function of two factors.

    The kernel is multiplied by ``amplitude`` and the noise by ``scale``; the constant means have their
    best values given the two, unless they are fixed. After one eigendecomposition of the sums, an
    evaluation takes as many operations as the sample has features.

    Args:
        model: A sparse model.
        features: The features of rows.
        sums: The sums over all clouds.
    """

    def __init__(
        self, model: SparseDistributionGP, features: Features, sums: CollapsedSums
    ) -> None:
        size = sums.num_features
        values, vectors = torch.linalg.eigh(sums.outer)
        self.values = values.clamp_min(0)
        self.rotated = vectors.mT @ sums.gram[:, :size, size:]  # of one and the targets
        self.products = sums.gram[:, size:, size:]
        self.noise = model.noise_scale().detach()
        free = model.mean_module.raw_constant.requires_grad
        self.fixed = None if free else model.means().detach()
        rows, targets, relative = model.sample_rows(_LEFT_OUT)
        phi = features(rows)
        self.residual = features.residual(rows, phi)
        self.coordinates = phi @ vectors
        self.squares = self.coordinates.square()
        self.targets, self.relative = targets, relative

    def mean(self, amplitude: Tensor, scale: Tensor) -> Tensor:
        """Return the constant means, ``P x R``: those that maximise the bound unless they are fixed."""
        if self.fixed is not None:
            return self.fixed
        ratio = amplitude / (scale * self.noise)
        shrunk = self.rotated / (1 + ratio * self.values).unsqueeze(-1)
        precise = self.products - ratio * (self.rotated.mT @ shrunk)
        return precise[:, 0, 1:] / precise[:, 0, :1]

    def __call__(self, amplitude: Tensor, scale: Tensor) -> Tensor:
        """Return the mean log density, up to a constant."""
        noise, mean = scale * self.noise, self.mean(amplitude, scale)
        ratio = amplitude / noise
        shrink = 1 / (1 + ratio * self.values)
        centred = self.rotated[..., 1:] - self.rotated[..., :1] * mean.unsqueeze(-2)
        fitted = self.coordinates @ (ratio * shrink.unsqueeze(-1) * centred)
        spread = amplitude * (self.squares @ shrink.unsqueeze(-1)).squeeze(-1)
        each = noise * self.relative
        kept = 1 - spread / each
        error = (self.targets - mean.unsqueeze(-2) - fitted) / kept.unsqueeze(-1)
        variance = (amplitude * self.residual + spread / kept + each).unsqueeze(-1)
        return -0.5 * (variance.log() + error.square() / variance).mean()


def _polished(
    model: SparseDistributionGP, features: InducingFeatures, sums: CollapsedSums
) -> tuple[Features, CollapsedSums]:
    """Set outputscale, noise and means, and return the features and sums for them."""
    kernel, likelihood = model.covar_module, model.likelihood
    with torch.no_grad():
        density = _LeaveOneOut(model, features, sums)
    like = density.noise
    logs = {"amplitude": like.new_zeros(()), "scale": like.new_zeros(())}
    limits = {"amplitude": (0.0, 0.0), "scale": (0.0, 0.0)}
    if isinstance(kernel, ScaleKernel) and kernel.raw_outputscale.requires_grad:
        limits["amplitude"] = _log_limits(kernel.raw_outputscale_constraint, kernel.outputscale)
    # All noise, such as that of smaller bags, is multiplied by the factor.
    raw = [value for name, value in likelihood.named_parameters() if "raw" in name]
    if raw and all(value.requires_grad for value in raw):
        limits["scale"] = _log_limits(likelihood.noise_covar.raw_noise_constraint, likelihood.noise)
    for log in logs.values():
        log.requires_grad_()
    try:
        minimise(lambda: -density(logs["amplitude"].exp(), logs["scale"].exp()), logs, limits)
    except NanError:  # lost in rounding errors
        return features, sums
    factors = [log.detach().exp() for log in logs.values()]
    amplitude, scale = (factor.item() for factor in factors)
    with torch.no_grad():
        mean = density.mean(*factors)
        if not mean.isfinite().all():
            return features, sums
        if model.mean_module.raw_constant.requires_grad:
            model.mean_module.constant = mean.reshape(model.mean_module.constant.shape)
        if amplitude != 1:
            kernel.outputscale = kernel.outputscale * amplitude
        if scale != 1:
            multiply_noise(likelihood, scale)
    factor = features.factor * math.sqrt(amplitude)
    return replace(features, factor=factor), sums.scaled(amplitude)


def _log_limits(constraint: Any, value: Tensor) -> tuple[float, float]:
    """Return the range of the logarithm of the factor that keeps a value within its constraint."""
    low, high = float(constraint.lower_bound), float(constraint.upper_bound)
    now = value.item()
    return (
        math.log(low * (1 + 1e-6) / now) if low > 0 else -20.0,
        math.log(high * (1 - 1e-6) / now) if math.isfinite(high) else 20.0,
    )
