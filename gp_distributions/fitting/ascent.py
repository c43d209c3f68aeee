"""Maximisation of a marginal likelihood from several starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from tqdm import tqdm

from gp_distributions.fitting.lbfgs import Minimum, Pair, minimise
from gp_distributions.warnings import ConvergenceWarning, warn

# Progress bars of fits appear after so many seconds.
_PATIENCE = 3.0


class Maximum(NamedTuple):
    """A maximum of the marginal likelihood, and the values of all parameters of the model there."""

    minimum: Minimum
    values: list[Tensor]

    @property
    def loss(self) -> float:
        """The loss there."""
        return self.minimum.loss


class Ascent:
    """Maximisation of marginal likelihoods per cloud.

    Args:
        model: The model.
        tick: Function that is called at each evaluation.
        options: Options of :func:`minimise`.

    Attributes:
        best: The values of all parameters at the best step so far, which an interrupted fit keeps.
    """

    def __init__(
        self, model: ExactGP, tick: Callable[[], object], options: dict[str, Any] | None
    ) -> None:
        self.model, self.tick, self.options = model, tick, options or {}
        self.best = values_of(model)
        self.lowest = math.inf

    def maxima(
        self, model: ExactGP, starts: Sequence[list[Tensor]], *, pairs: Sequence[Pair] = ()
    ) -> list[Maximum]:
        """Maximise the marginal likelihood from each start; leave out those that fail.

        Args:
            model: The model, or one that shares its parameters.
            starts: Values of all parameters.
            pairs: Estimate of the curvature there.
        """
        mll = objective(model)
        parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
        found: list[Maximum] = []
        for start in starts:
            set_values(model, start)
            try:
                minimum = (
                    minimise(
                        lambda: self.loss(mll),
                        parameters,
                        bounds,
                        callback=self._see,
                        pairs=pairs,
                        **self.options,
                    )
                    if parameters
                    else Minimum(self.loss(mll).item(), converged=True, pairs=[])
                )
            except (NanError, NotPSDError) as error:
                failure = error
                continue
            found.append(Maximum(minimum, values_of(model)))
        if not found:
            set_values(model, starts[0])
            raise failure
        return found

    def loss(self, mll: MarginalLogLikelihood) -> Tensor:
        """Return the negative sum of the marginal likelihoods of all outputs, or of their bound."""
        self.tick()
        model = mll.model
        known = getattr(model, "train_known", {})
        return -mll(model(*model.train_inputs), model.train_targets, **known).sum()

    def _see(self, loss: float) -> None:
        if loss < self.lowest:
            self.lowest, self.best = loss, values_of(self.model)


@contextmanager
def ascending(
    model: ExactGP | ApproximateGP,
    description: str,
    options: dict[str, Any] | None,
    *,
    progress: bool,
) -> Iterator[Ascent]:
    """Fit a model in training mode within a ``with`` block, after which it is in evaluation mode.

    If the block is interrupted, the model keeps the best values found so far.
    """
    bar = tqdm(desc=description, unit=" evaluations", delay=_PATIENCE, disable=not progress)
    ascent = Ascent(model, bar.update, options)
    try:
        model.train()
        with bar:
            yield ascent
    except BaseException:  # an interrupt, or an exception with which a signal ends the fit
        set_values(model, ascent.best)
        raise
    finally:
        model.eval()


def warn_unless_converged(best: Maximum) -> None:
    """Warn of a fit that did not converge."""
    if not best.minimum.converged:
        warn(
            "The fit did not converge; the hyperparameters are the best found. Try restarts=5, or "
            'continue from them with fit(model, init="current").',
            ConvergenceWarning,
        )


def objective(model: ExactGP | ApproximateGP) -> MarginalLogLikelihood:
    """Return the marginal likelihood per cloud, or its lower bound in variational models."""
    if isinstance(model, ApproximateGP):
        return VariationalELBO(model.likelihood, model, num_data=len(model.train_targets))
    return ExactMarginalLogLikelihood(model.likelihood, model)


def values_of(model: ExactGP) -> list[Tensor]:
    """Return copies of the values of all parameters of a model."""
    return [parameter.detach().clone() for parameter in model.parameters()]


@torch.no_grad()
def set_values(model: ExactGP, values: Sequence[Tensor]) -> None:
    """Set the values of all parameters of a model."""
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.copy_(value)
