"""Does a posterior on many t-batches of one new cloud cost more than the same GP on features?

Ours: ``model.posterior(rows)`` of a ``DistributionGP`` with
``ScaleKernel(SlicedWassersteinKernel(2, profile="gaussian"))``, trained on 50 clouds of 100
points with 100 slices x 100 quantiles, for 256 t-batches of one new cloud (rows
``256 x 1 x m*(d+1)``). It computes mean and variance without gradients, and with the gradient of their
sum with respect to the rows. The model has predicted before, as in every step of an acquisition
optimiser but the first.

The references are the same GP, with the same hyperparameters and noise, on precomputed features of
the training clouds. All sides include the embedding of the new clouds:

- ``closed form``: squared distances between features, the kernel, and two products with the
  precomputed solve of the targets and inverse of the covariance, in plain torch without GPyTorch. It
  is the fastest, and the budget is relative to it;
- ``SingleTaskGP``: BoTorch's model with ``ScaleKernel(RBFKernel())`` on the features. It repeats the
  training features in every t-batch, 4 GB for 256 of them, so only 32 t-batches are compared.

The script fails unless all three agree to 1e-8.

    python -m benchmarks.speed.t_batch_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import gpytorch
import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main
from benchmarks.judging import limit
from benchmarks.speed.clouds import gaussian_clouds
from gp_distributions import DistributionGP, SlicedWassersteinKernel

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]


TARGETS = tuple(
    limit(
        f"posterior{text} on 256 t-batches of one cloud, over the same GP on features",
        "<= 1.5",
        "ratio",
        name=f"256 t-batches{name} / closed form",
    )
    for text, name in (("", ""), (" and gradient", ", with gradient"))
)


def set_hyperparameters(model: SingleTaskGP) -> None:
    """Set the same hyperparameters in every model."""
    values = {
        "covar_module.base_kernel.lengthscale": 1.0,
        "covar_module.outputscale": 1.25,
        "likelihood.noise": 0.05,
    }
    # Double tensors, because GPyTorch would round Python numbers to single precision.
    model.initialize(**{k: torch.tensor(v, dtype=torch.float64) for k, v in values.items()})
    model.eval()


def closed_form(model: SingleTaskGP, features: Tensor, targets: Tensor) -> Predict:
    """Predict from features in closed form; all that does not depend on them is precomputed."""
    outputscale = model.covar_module.outputscale.detach()
    noise = model.likelihood.noise.detach()
    precision = -0.5 / model.covar_module.base_kernel.lengthscale.detach().square()
    centre, scale = targets.mean(), targets.std()
    squares = features.square().sum(-1)

    def cross(new: Tensor) -> Tensor:
        squared = new.square().sum(-1, keepdim=True) + squares - 2 * new @ features.T
        return outputscale * torch.exp(precision * squared.clamp_min(0))

    covariance = cross(features) + noise * torch.eye(len(features), dtype=torch.float64)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    solved = inverse @ ((targets - centre) / scale)

    def predict(new: Tensor) -> tuple[Tensor, Tensor]:
        covariances = cross(new.squeeze(-2))
        variance = outputscale - ((covariances @ inverse) * covariances).sum(-1, keepdim=True)
        return centre + scale * (covariances @ solved), scale.square() * variance

    return predict


def by_model(model: SingleTaskGP) -> Predict:
    """Posterior of a model on one point per t-batch."""

    def predict(new: Tensor) -> tuple[Tensor, Tensor]:
        with gpytorch.settings.fast_computations(False, False, False):
            posterior = model.posterior(new)
        return posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)

    return predict


def predictors(training: int, atoms: int) -> dict[str, Predict]:
    """The same GP in three forms, as functions of rows."""
    train = gaussian_clouds(training, atoms=atoms, seed=0)
    targets = train.points.square().mean((-2, -1), keepdim=True).squeeze(-1).log()
    kernel = ScaleKernel(SlicedWassersteinKernel(train.dim, profile="gaussian"))
    model = DistributionGP(train, targets, kernel, mean_module=ZeroMean())
    set_hyperparameters(model)
    distance = model.covar_module.base_kernel.distance
    features = distance.embed(train.pack())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)  # BoTorch expects features in [0, 1]
        plain = SingleTaskGP(
            *(features, targets), covar_module=ScaleKernel(RBFKernel()), mean_module=ZeroMean()
        )
    set_hyperparameters(plain)
    by_features, by_form = by_model(plain), closed_form(plain, features, targets)
    return {
        "ours": by_model(model),
        "closed form": lambda rows: by_form(distance.embed(rows)),
        "SingleTaskGP": lambda rows: by_features(distance.embed(rows)),
    }


def side(predict: Predict, batches: int, atoms: int, *, gradient: bool) -> Side:
    """Mean and variance on new clouds, different in every round."""
    seeds = itertools.count(1)

    def prepare() -> Work:
        rows = gaussian_clouds(batches, 1, atoms=atoms, seed=next(seeds)).pack()
        rows.requires_grad_(gradient)

        def work() -> None:
            with torch.set_grad_enabled(gradient):
                mean, variance = predict(rows)
                if gradient:
                    (mean.sum() + variance.sum()).backward()

        return work

    return prepare


def run(options: Options) -> list[Row]:
    """Compare with both references, with and without gradients.

    Raises:
        RuntimeError: If means or variances differ by more than 1e-8.
    """
    batches, training, atoms = (8, 5, 20) if options.quick else (256, 50, 100)
    few = batches // 8
    found = predictors(training, atoms)
    rows = gaussian_clouds(few, 1, atoms=atoms, seed=1).pack()
    with torch.no_grad():
        values = [torch.cat(predict(rows)) for predict in found.values()]
    difference = max(float((value - values[0]).abs().max()) for value in values)
    if difference > 1e-8:
        raise RuntimeError(f"The posteriors differ by {difference:g}.")
    result = []
    for gradient in (False, True):
        for reference, count in (("closed form", batches), ("SingleTaskGP", few)):
            name = f"{count} t-batches{', with gradient' * gradient} / {reference}"
            sides = {
                one: side(found[one], count, atoms, gradient=gradient)
                for one in ("ours", reference)
            }
            timings = interleave(sides, repeats=options.repeats, label=name)
            result.append(compare(name, *timings.values(), difference=difference))
    return result


if __name__ == "__main__":
    main(run)
