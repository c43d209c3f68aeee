"""Bayesian optimisation over shapes, by asking and telling."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from botorch.utils.multi_objective.pareto import is_non_dominated
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import ScaleKernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from tqdm import tqdm

from gp_distributions.bayesopt.acquisitions import (
    MakeAcquisition,
    Observations,
    default_acquisition,
)
from gp_distributions.bayesopt.decoder import decodable
from gp_distributions.bayesopt.priors import median_lengthscale_prior
from gp_distributions.bayesopt.records import Checkpoint, Evaluation, candidate_key, read_outcomes
from gp_distributions.bayesopt.searches import Search
from gp_distributions.fitting import fit
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.kernels.named import SlicedWassersteinKernel
from gp_distributions.measures.arrays import integer
from gp_distributions.models import DistributionGP
from gp_distributions.warnings import ConvergenceWarning

MakeModel = Callable[[Tensor, Tensor], DistributionGP]


class ShapeOptimizer:
    """Bayesian optimisation by asking for candidates and telling their outcomes.

    Outcomes are objectives, which are maximised, and then constraints, which hold where they are at most
    zero. The first candidates are random; each later one maximises an acquisition function of a model
    fitted to all evaluations so far.

    With a ``path`` every evaluation is on the disk before :meth:`tell` returns. Made again with the same
    path and settings, a search goes on where it was, however it ended; candidates whose outcomes had not
    been told are then asked for anew. What a search asks for depends on its settings, its seed and what
    it was told, and on nothing else.

    Args:
        search: What the search is over: a :class:`PoolSearch`, :class:`DesignSearch` or
            :class:`FreeSearch`.
        objectives: The number of objectives.
        constraints: The number of constraints.
        initial: The number of random candidates at the start.
        restarts: Further starts of each fit, see :func:`gp_distributions.fit`.
        model: Makes a model, which is then fitted, of the inputs, a ``T x width`` tensor of rows (of
            designs, for designs), and the outcomes, ``T x outcomes``. Default: a scaled
            ``SlicedWassersteinKernel(dim, profile="matern52")`` for each outcome, with a
            :func:`median_lengthscale_prior`.
        acquisition: Makes an acquisition function of the fitted model and the :class:`Observations`.
            Default: :func:`default_acquisition`.
        path: The checkpoint, a file of JSON lines for one optimizer at a time. Default: none. What is
            code is not compared with it: decoder, model, acquisition function and penalty may change on
            the way.
        seed: Of everything random, at least zero.

    Raises:
        TypeError: If ``search`` is no search.
        ValueError: If a number is no integer or too small, or ``model`` is needed and missing.
        CheckpointError: If the file belongs to another search, is damaged, or cannot be made.

    Warns:
        ConvergenceWarning: While it asks, if a fit did not converge or failed.
    """

    def __init__(
        self,
        search: Search,
        *,
        objectives: int = 1,
        constraints: int = 0,
        initial: int = 10,
        restarts: int = 1,
        model: MakeModel | None = None,
        acquisition: MakeAcquisition = default_acquisition,
        path: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(search, Search):
            raise TypeError(
                f"Expected a PoolSearch, DesignSearch or FreeSearch, got {type(search).__name__}. For a "
                "fixed set of clouds give PoolSearch(clouds)."
            )
        if model is None and search.dim is None:
            raise ValueError(
                "model is needed where the dimension of the atoms is not known: for a pool of rows, and "
                "for a DesignSearch without dim=."
            )
        self.search = search
        self.objectives = integer(objectives, "objectives")
        self.constraints = integer(constraints, "constraints", least=0)
        self.initial = integer(initial, "initial", least=2)
        self.restarts = integer(restarts, "restarts", least=0)
        self.seed = integer(seed, "seed", least=0)
        self._make_model = model or self._default_model
        self._make_acquisition = acquisition
        self._pending: dict[str, Any] = {}
        self._evaluations: list[Evaluation] = []
        self._checkpoint: Checkpoint | None = None
        if path is not None:
            settings = {
                **search.describe(),
                "objectives": self.objectives,
                "constraints": self.constraints,
                "initial": self.initial,
                "seed": self.seed,
            }
            outcomes = self.objectives + self.constraints
            self._checkpoint = Checkpoint(path, settings, outcomes=outcomes, read=search.read)
            self._evaluations = list(self._checkpoint.evaluations)

    def ask(self, q: int = 1) -> list[Any]:
        """Candidates to evaluate next; those asked for and not yet told are taken into account.

        Args:
            q: The number of candidates.

        Returns:
            ``q`` candidates: indices of a pool, designs as tensors, or clouds.

        Raises:
            ValueError: If ``q < 1``, or fewer candidates are left.
        """
        if q < 1:
            raise ValueError(f"Expected q >= 1, got {q}.")
        taken = {e.key: e.candidate for e in self._evaluations} | self._pending
        succeeded = [e for e in self._evaluations if e.outcomes is not None]
        start = self.initial - len(taken) if len(succeeded) >= 2 else q
        found = self._initial(min(q, start), taken) if start > 0 else []
        if len(found) < q:
            if len(succeeded) < 2:
                raise ValueError(f"Expected {q} candidates that are left, got {len(found)}.")
            found += self._optimized(q - len(found), succeeded, [*taken.values(), *found])
        shown = [self.search.show(candidate) for candidate in found]
        for candidate in shown:
            plain = self.search.plain(candidate)
            self._pending[candidate_key(plain)] = plain
        return shown

    def tell(self, candidate: Any, outcomes: float | Sequence[float] | Tensor) -> None:
        """Record the outcomes of a candidate; whether it was asked for does not matter.

        An outcome that is not a finite number makes a failed evaluation.

        Args:
            candidate: The candidate.
            outcomes: Objectives and then constraints.

        Raises:
            ValueError: If the number of outcomes is another, or it is no candidate.
            CheckpointError: If the checkpoint is gone, or another process has written to it; nothing
                is recorded then.
        """
        read = read_outcomes(outcomes, self.objectives + self.constraints)
        if isinstance(read, str):
            self.tell_failure(candidate, read)
        else:
            self._record(Evaluation(self.search.plain(candidate), read))

    def tell_failure(self, candidate: Any, reason: object) -> None:
        """Record that a candidate has no outcomes.

        Acquisition functions that take pending points, as the default ones do, treat it as one if it
        can be decoded, so that the search goes elsewhere; of a pool it is not asked for again in any
        case.

        Args:
            candidate: The candidate.
            reason: What went wrong, as text or an exception.
        """
        self._record(Evaluation(self.search.plain(candidate), None, str(reason)))

    def run(
        self,
        evaluate: Callable[[Any], float | Sequence[float] | Tensor],
        evaluations: int,
        *,
        q: int = 1,
        progress: bool = True,
    ) -> ShapeOptimizer:
        """Ask, evaluate and tell until there are so many evaluations.

        An exception makes a failed evaluation, and the search goes on.

        Args:
            evaluate: A function of a candidate that returns its outcomes.
            evaluations: The number of evaluations in the end, with failed ones and those of before.
            q: The number of candidates to ask for at a time.
            progress: Whether to show a progress bar.

        Returns:
            The optimizer.
        """
        with tqdm(
            total=evaluations,
            initial=len(self._evaluations),
            desc="Evaluations",
            disable=not progress,
        ) as bar:
            while len(self._evaluations) < evaluations:
                asked = self.ask(min(q, evaluations - len(self._evaluations)))
                try:
                    for candidate in asked:
                        try:
                            outcomes = evaluate(candidate)
                        except Exception as error:
                            self.tell_failure(candidate, f"{type(error).__name__}: {error}")
                        else:
                            self.tell(candidate, outcomes)
                        bar.update()
                        if self.objectives == 1 and np.isfinite(self.trace[-1]):
                            bar.set_postfix(best=f"{self.trace[-1]:.6g}")
                finally:
                    # Interrupted, nobody will tell the others: they may be asked for again.
                    for candidate in asked:
                        self._pending.pop(candidate_key(self.search.plain(candidate)), None)
        return self

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """All evaluations in the order in which they were told."""
        return tuple(self._evaluations)

    @property
    def best(self) -> tuple[Any, float]:
        """The feasible candidate with the largest objective, and that objective.

        Raises:
            ValueError: If there are several objectives, or no candidate is feasible.
        """
        if self.objectives > 1:
            raise ValueError("There is no single best candidate of several objectives: see pareto.")
        feasible = self._feasible()
        if not feasible:
            raise ValueError("No evaluation so far has succeeded and met all constraints.")
        best = max(feasible, key=_first)
        return self.search.show(best.candidate), _first(best)

    @property
    def pareto(self) -> list[tuple[Any, tuple[float, ...]]]:
        """The feasible candidates that none dominates, with their outcomes.

        One dominates another if it is at least as good in all objectives and better in one.
        """
        feasible = self._feasible()
        if not feasible:
            return []
        values = torch.tensor([e.outcomes for e in feasible], dtype=torch.float64)
        kept = is_non_dominated(values[:, : self.objectives], deduplicate=False).tolist()
        return [
            (self.search.show(e.candidate), e.outcomes or ())
            for e, keep in zip(feasible, kept, strict=True)
            if keep
        ]

    @property
    def trace(self) -> list[float]:
        """The largest first objective of feasible candidates after each evaluation; NaN before any."""
        feasible = {id(e) for e in self._feasible()}
        values = [_first(e) if id(e) in feasible else -np.inf for e in self._evaluations]
        largest = np.maximum.accumulate(np.array(values, dtype=float))
        return np.where(np.isneginf(largest), np.nan, largest).tolist()

    def model(self) -> DistributionGP:
        """The model fitted to all evaluations so far.

        Raises:
            ValueError: If fewer than two evaluations have succeeded.
        """
        succeeded = [e for e in self._evaluations if e.outcomes is not None]
        if len(succeeded) < 2:
            raise ValueError(f"Expected two successful evaluations, got {len(succeeded)}.")
        return self._fitted(*self._data(succeeded))

    def _feasible(self) -> list[Evaluation]:
        return [
            e
            for e in self._evaluations
            if e.outcomes is not None and all(c <= 0 for c in e.outcomes[self.objectives :])
        ]

    def _record(self, evaluation: Evaluation) -> None:
        if self._checkpoint is not None:
            self._checkpoint.add(evaluation)
        self._evaluations.append(evaluation)
        self._pending.pop(evaluation.key, None)

    def _initial(self, count: int, taken: Iterable[str]) -> list[Any]:
        """The first candidates of the random sequence that are not taken."""
        known = set(taken)
        found: list[Any] = []
        for candidate in self.search.initial(len(known) + count, self.seed):
            plain = self.search.plain(self.search.show(candidate))
            if candidate_key(plain) not in known:
                found.append(plain)
        return found[:count]

    def _optimized(self, q: int, succeeded: list[Evaluation], taken: list[Any]) -> list[Any]:
        """The candidates that maximise the acquisition function."""
        step = np.random.SeedSequence([self.seed, len(taken)]).generate_state(1)
        seed = int(step[0]) % 2**31
        X, Y = self._data(succeeded)
        done = {e.key for e in succeeded}
        pending = [candidate for candidate in taken if candidate_key(candidate) not in done]
        best = sorted(succeeded, key=_first, reverse=True)
        with manual_seed(seed):
            model = self._fitted(X, Y)
            # A design that failed because it stands for no shape is near to none.
            waiting = decodable(model, self.search.inputs(pending)) if pending else X[:0]
            data = Observations(
                X=X,
                Y=Y,
                objectives=self.objectives,
                X_pending=waiting if len(waiting) else None,
                q=q,
                seed=seed,
            )
            acquisition = self._make_acquisition(model, data)
            return self.search.optimize(acquisition, q, taken, [e.candidate for e in best], seed)

    def _data(self, succeeded: list[Evaluation]) -> tuple[Tensor, Tensor]:
        X = self.search.inputs([e.candidate for e in succeeded])
        if self.search.input_transform is not None:
            # A decoder may compute in another precision than that of the bounds; outcomes must follow.
            with torch.no_grad():
                X = X.to(self.search.input_transform.transform(X).dtype)
        return X, X.new_tensor([e.outcomes for e in succeeded])

    def _fitted(self, X: Tensor, Y: Tensor) -> DistributionGP:
        try:
            return fit(self._make_model(X, Y), restarts=self.restarts, seed=self.seed)
        except (NanError, NotPSDError) as error:
            # A search must not end because a line search went too far.
            warnings.warn(
                f"The fit to {len(X)} evaluations failed ({error}); its hyperparameters are those that "
                "it starts at.",
                ConvergenceWarning,
                stacklevel=2,
            )
        model = self._make_model(X, Y)
        start_at_medians(model)
        return model.eval()

    def _default_model(self, X: Tensor, Y: Tensor) -> DistributionGP:
        assert self.search.dim is not None
        batch_shape = torch.Size([Y.shape[-1]] if Y.shape[-1] > 1 else [])
        kernel = SlicedWassersteinKernel(
            self.search.dim, profile="matern52", batch_shape=batch_shape
        )
        return median_lengthscale_prior(
            DistributionGP(
                X,
                Y,
                ScaleKernel(kernel, batch_shape=batch_shape),
                input_transform=self.search.input_transform,
            )
        )


def _first(evaluation: Evaluation) -> float:
    return evaluation.outcomes[0] if evaluation.outcomes is not None else -np.inf
