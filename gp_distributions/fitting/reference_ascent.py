"""Joint maximisation of the marginal likelihood over hyperparameters and reference measure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import torch
from botorch.optim.utils import get_parameters_and_bounds
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gp_distributions.distances.transport import TransportDistance
from gp_distributions.fitting.ascent import objective
from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.starts import give_signal
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.reference import ReferenceMeasure
from gp_distributions.models.distribution_gp import DistributionGP

# A model that explains less than the share _USELESS of the variance of left-out targets has found no
# signal. Learning is then repeated from up to _RETRIES references drawn from the training clouds.
_USELESS, _RETRIES = 0.5, 4
# Log weights may leave the range of their initial values by this much: a factor of 10^4 in weight.
_WEIGHTLESS = 9.2


@dataclass(frozen=True)
class Run:
    """Result of :meth:`Learner.learn`.

    Attributes:
        model: The model after learning.
        trace: The log marginal likelihood per cloud at the start and after each step.
        path: The atoms of the reference at the start and after each step.
        states: The state dict of the model whose hyperparameters alone were fitted, and after each step.
    """

    model: DistributionGP
    trace: list[float]
    path: list[Tensor]
    states: list[dict[str, Tensor]]


@dataclass(frozen=True, eq=False)
class Learner:
    """Maximisation over hyperparameters and reference.

    Args:
        learned: Names of the parameters of the reference to learn.
        seed: Random seed for drawing references.
        tick: Function that is called at each step.
        warm_starts: Potentials of earlier runs, from which transport starts.
    """

    learned: Sequence[str]
    seed: int
    tick: Callable[[], object]
    warm_starts: dict[Hashable, Tensor] = field(default_factory=dict)

    def learn(self, model: DistributionGP, steps: int) -> Run:
        """Fit the hyperparameters, then fit them and the reference jointly.

        If the fitted hyperparameters explain too little of the variance of the targets, the joint fit
        starts from hyperparameters that explain most of it as signal. It is then repeated from other
        references until one run explains enough.

        Args:
            model: The model, which is fitted in place. Runs from other starts use copies.
            steps: Maximum number of L-BFGS steps.

        Returns:
            The run with the highest likelihood.
        """
        fit(model, progress=False)
        fitted = copy.deepcopy(model.state_dict())
        if not steps or _explained(model) >= _USELESS:
            runs = [self._ascend(model, steps)]
        else:
            runs = []
            candidate = reference_of(model).state_dict()
            for retry in range(1 + _RETRIES):
                start = restarted(model, candidate)
                give_signal(start)
                runs.append(self._ascend(start, steps))
                if _explained(runs[-1].model) >= _USELESS:
                    break
                candidate = drawn(model, self.seed + retry + 1)
        best = max(runs, key=lambda run: run.trace[-1])
        return replace(best, states=[fitted, *best.states])

    def _ascend(self, model: DistributionGP, steps: int) -> Run:
        """Take up to ``steps`` L-BFGS steps on the hyperparameters and the reference, in place."""
        reference, mll = reference_of(model), objective(model.train())
        (rows,), targets = model.train_inputs, model.train_targets

        def loss() -> Tensor:
            return -mll(model(rows), targets)

        with torch.no_grad():
            trace = [-loss().item()]
        path = [reference.points.detach().clone()]
        states: list[dict[str, Tensor]] = []

        def callback(loss: float) -> None:
            self.tick()
            trace.append(-loss)
            path.append(reference.points.detach().clone())
            states.append(copy.deepcopy(model.state_dict()))

        for name in self.learned:
            getattr(reference, name).requires_grad_()
        for module in model.modules():
            if isinstance(module, TransportDistance):
                module.warm_starts = self.warm_starts
        parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
        bounds |= _bounds(mll, model, reference)
        if steps:
            minimise(loss, parameters, bounds, callback=callback, maxiter=steps)
        return Run(model, trace, path, states)


@torch.no_grad()
def _explained(model: DistributionGP) -> float:
    """Compute the share of the variance of the targets that leave-one-out predictions explain."""
    errors = model.train_targets - model.eval().latent_left_out()[0].squeeze(-1)
    return 1 - float(errors.square().mean() / model.train_targets.var(correction=0))


def _bounds(
    mll: ExactMarginalLogLikelihood, model: DistributionGP, reference: ReferenceMeasure
) -> dict[str, tuple[float, float]]:
    """Return bounds of the atoms, twice as wide as the data and the reference, and of the log weights.

    Far from the data, entropic transport is ill-conditioned and sees only the means of clouds. Without
    bounds, the log weight of an atom that lowers the likelihood would decrease for ever.
    """
    clouds = PointClouds.unpack(rows_seen(model), reference.dim)
    atoms = clouds.points[clouds.weights > 0].to(reference.raw_points)
    data = (atoms - reference.centre) / reference.scale
    limit = 2 * max(data.abs().max().item(), reference.raw_points.detach().abs().max().item())
    lowest, highest = (bound.item() for bound in reference.log_weights.detach().aminmax())
    boxes = {
        reference.raw_points: (-limit, limit),
        reference.log_weights: (lowest - _WEIGHTLESS, highest + _WEIGHTLESS),
    }
    return {name: boxes[p] for name, p in mll.named_parameters() if p in boxes}


def reference_of(model: DistributionGP) -> ReferenceMeasure:
    """Returns the reference measure of a model's kernel.

    Raises:
        ValueError: If the kernel does not have exactly one reference measure.
    """
    found = [m for m in model.covar_module.modules() if isinstance(m, ReferenceMeasure)]
    if len(found) != 1:
        raise ValueError(f"Expected a kernel with one reference measure, got {len(found)}.")
    return found[0]


def rows_seen(model: DistributionGP) -> Tensor:
    """Returns those columns of the training rows that the distance to the reference measure reads."""
    (rows,) = model.train_inputs
    block = next(
        block
        for kernel, block in distribution_kernels(model.covar_module)
        if isinstance(kernel.distance, TransportDistance)
    )
    return block.select(rows.detach())


def drawn(model: DistributionGP, seed: int) -> dict[str, Tensor]:
    """Draws new atoms for the reference from the training clouds and keeps its weights.

    The model itself is not changed.

    Returns:
        The state dict of the new reference measure.
    """
    reference = reference_of(model)
    clouds = PointClouds.unpack(rows_seen(model), reference.dim)
    atoms = ReferenceMeasure.from_data(clouds, reference.size, method="sample", seed=seed)
    state = atoms.to(reference.raw_points).state_dict()
    return {**state, "log_weights": reference.log_weights.detach().clone()}


def restarted(model: DistributionGP, candidate: dict[str, Tensor]) -> DistributionGP:
    """Returns a copy of a model with the reference measure of the state dict ``candidate``."""
    run = copy.deepcopy(model)
    reference_of(run).load_state_dict(candidate)
    return run
