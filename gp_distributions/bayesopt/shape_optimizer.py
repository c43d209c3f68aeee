"""Bayesian optimisation over shapes through an ask-and-tell interface."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from botorch.models.model import Model
from botorch.utils.multi_objective.pareto import is_non_dominated
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.nn import Module
from tqdm import tqdm

from gp_distributions.bayesopt.acquisitions import (
    MakeAcquisition,
    Observations,
    PredictedValue,
    default_acquisition,
    thompson_sampling,
)
from gp_distributions.bayesopt.decoder import decodable
from gp_distributions.bayesopt.parts import Search
from gp_distributions.bayesopt.priors import median_lengthscale_prior
from gp_distributions.bayesopt.proposing import (
    check_units,
    derived_seed,
    in_common_units,
    seeded,
)
from gp_distributions.bayesopt.records import Checkpoint, Evaluation, candidate_key, read_outcomes
from gp_distributions.fitting import fit
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.measures.arrays import integer
from gp_distributions.models import DistributionGP
from gp_distributions.warnings import ConvergenceWarning, warn

MakeModel: TypeAlias = Callable[[Tensor, Tensor], DistributionGP]


class ShapeOptimizer:
    """Bayesian optimisation: ask for candidates, evaluate them, and tell their outcomes.

    The outcomes of a candidate are the objectives, which are maximised, followed by the constraints; a
    constraint is met if its value is at most zero. The first candidates are random. Each later one
    maximises an acquisition function of a model fitted to all evaluations so far.

    With a ``path``, every evaluation is on the disk before :meth:`tell` returns. A new optimizer with
    the same path and settings continues the search, however it ended, and proposes candidates without
    outcomes again. The candidates depend only on the settings, the seed and the outcomes told so far.
    While :meth:`run` runs, it holds a lock that other processes respect; the lock ends with the process.

    Args:
        search: What to search: a :class:`PoolSearch`, :class:`DesignSearch`, :class:`FreeSearch`,
            :class:`MixedSearch` or :class:`RecipeSearch`.
        objectives: Number of objectives.
        constraints: Number of constraints.
        initial: Number of random candidates at the start, at least two.
        restarts: Number of additional starts of each fit, see :func:`gp_distributions.fit`.
        model: A function that makes a model, to be fitted, from a ``T x width`` tensor of inputs (rows,
            or designs for a :class:`DesignSearch`) and a ``T x outcomes`` tensor. Its random numbers, if
            any, must have a fixed seed. Default, for each outcome: the mixture of the isotropic kernel
            and of those on principal components that :func:`gp_distributions.fit` has to choose from,
            always, all fitted anew at each step. They measure coordinates in their spread over all
            clouds of the search, and the principal components are those of all its clouds, if they are
            known. For a :class:`MixedSearch` it is a :func:`mixed_kernel`, and for a
            :class:`RecipeSearch` one kernel on :class:`MMD`. Isotropic kernels have a
            :func:`median_lengthscale_prior`.
        acquisition: A function that makes an acquisition function from the fitted model and the
            :class:`Observations`; or ``"thompson"``, which maximises a sample path for each candidate
            and so proposes large batches at the cost of one. If neither this nor ``model`` is a
            function of yours, outcomes may have any unit. Otherwise tell them in one in which their
            standard deviations are about 1.
        path: Path to the checkpoint, a file of JSON lines for one optimizer at a time; ``None`` for no
            checkpoint. The checkpoint does not record code, so the decoder, the model, the acquisition
            function and the penalty may change during a search.
        seed: Random seed, not negative.

    Raises:
        TypeError: If ``search`` is not a search, or ``model`` is not a function.
        ValueError: If a number is not an integer or too small, or ``model`` is missing although the
            dimension of the atoms is not known.
        CheckpointError: If the file belongs to another search, is damaged, or is in use by another
            process.
        OSError: If the file or its lock cannot be created.

    Warns:
        ConvergenceWarning: In :meth:`ask`, if a fit fails or does not converge.
        PrecisionWarning: In :meth:`ask`, if ``model`` or ``acquisition`` is a function of yours and the
            standard deviation of an outcome is below 1e-3, where bounds of BoTorch change results.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, PoolSearch, ShapeOptimizer
        >>> clouds = PointClouds(torch.arange(30, dtype=torch.float64).reshape(15, 2, 1) / 10)
        >>> means = clouds.points.mean((-2, -1))
        >>> optimizer = ShapeOptimizer(PoolSearch(clouds), initial=3, restarts=0)
        >>> optimizer = optimizer.run(lambda index: -(means[index] - 1.5) ** 2, 7, progress=False)
        >>> index, value = optimizer.best
        >>> round(means[index].item(), 2)
        1.45
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
        acquisition: MakeAcquisition | Literal["thompson"] = default_acquisition,
        path: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(search, Search):
            raise TypeError(
                "Expected search as a PoolSearch, DesignSearch, FreeSearch, RecipeSearch or "
                f"MixedSearch, got {type(search).__name__}. For a fixed set of clouds use "
                "PoolSearch(clouds)."
            )
        if model is None:
            search.default_kernel(torch.Size())  # which says what is missing
        elif not callable(model) or isinstance(model, Module):
            raise TypeError(
                "Expected model as a function that makes a model of inputs and outcomes, got "
                f"{model!r:.80}. For a kernel: lambda X, Y: DistributionGP(X, Y, kernel)."
            )
        self.search = search
        self.objectives = integer(objectives, "objectives")
        if self.objectives > 1 and search.trust_region:
            raise ValueError(
                f"Expected one objective with a trust region, got {self.objectives}, whose best designs "
                "lie in several places. Pass trust_region=False."
            )
        self.constraints = integer(constraints, "constraints", least=0)
        self.initial = integer(initial, "initial", least=2)
        self.seed = integer(seed, "seed", least=0)
        self.restarts = integer(restarts, "restarts", least=0)
        self._make_model = model
        make = thompson_sampling if acquisition == "thompson" else acquisition
        if not callable(make):
            raise TypeError(
                'Expected acquisition as "thompson" or a function of a model and Observations, got '
                f"{acquisition!r:.80}."
            )
        self._make_acquisition: MakeAcquisition = make
        # Functions of users see outcomes as they were told.
        self._rescales = make in (default_acquisition, thompson_sampling) and model is None
        self._pending: dict[str, Any] = {}
        self._evaluations: list[Evaluation] = []
        self._checkpoint: Checkpoint | None = None
        if path is not None:
            names = ("objectives", "constraints", "initial", "seed")
            settings = search.describe() | {name: getattr(self, name) for name in names}
            self._checkpoint = Checkpoint(path, settings, read=self._evaluation)
            self._evaluations = self._checkpoint.evaluations  # which it extends

    @torch.inference_mode(False)
    @torch.enable_grad()
    def ask(self, q: int = 1, *, fixed: Mapping[str, Any] | None = None) -> list[Any]:
        """Returns candidates to evaluate next, taking into account those that await their outcomes.

        With fixed parts, such as a raw material or today's temperature, improvement is that over the
        largest posterior mean with these parts.

        Args:
            q: Number of candidates.
            fixed: Parts of a :class:`MixedSearch` that are given for these candidates, as :meth:`tell`
                takes them, by name. Intervals take numbers outside their bounds. Every
                ``bayesopt.Context`` must be given.

        Returns:
            ``q`` candidates: indices of a pool, designs as tensors, clouds, or dictionaries of these.

        Raises:
            ValueError: If ``q`` is less than one, fewer than ``q`` candidates are left, or ``fixed`` is
                not valid.

        Example:
            >>> from gp_distributions import PointClouds, PoolSearch, ShapeOptimizer
            >>> optimizer = ShapeOptimizer(PoolSearch(PointClouds([[[0.0]], [[1.0]], [[2.0]]])))
            >>> for index in optimizer.ask(3):
            ...     optimizer.tell(index, -abs(index - 1))
            >>> optimizer.best
            (1, 0.0)
        """
        q, search = integer(q, "q"), self.search.at(fixed or {})
        taken = {e.key: e.candidate for e in self._evaluations} | self._pending
        succeeded = self._succeeded()
        start = self.initial - len(taken) if len(succeeded) >= 2 else q
        found = self._initial(search, min(q, start), taken) if start > 0 else []
        if len(found) < q:
            if len(succeeded) < 2:
                raise ValueError(
                    f"Expected q <= {len(found)}, the number of candidates that are left, got {q}."
                )
            found += self._optimized(search, q - len(found), succeeded, [*taken.values(), *found])
        shown = [self.search.show(candidate) for candidate in found]
        plain = map(self.search.plain, shown)
        self._pending |= {candidate_key(candidate): candidate for candidate in plain}
        return shown

    def recommend(self, fixed: Mapping[str, Any] | None = None) -> Any:
        """Returns the candidate with the largest posterior mean of the first objective.

        Where the means of constraints exceed zero, they count a hundredfold against it.

        Args:
            fixed: As for :meth:`ask`.

        Raises:
            ValueError: If fewer than two evaluations have succeeded, or ``fixed`` is not valid.
        """
        search, succeeded = self.search.at(fixed or {}), self._enough()
        X, Y = self._data(succeeded)
        model, seed = self._fitted(X, in_common_units(Y)), derived_seed(self.seed, len(succeeded))
        return search.show(self._largest_mean(search, model, _best_first(succeeded), seed))

    def tell(self, candidate: Any, outcomes: float | Sequence[float] | Tensor) -> None:
        """Record the outcomes of a candidate, whether it was asked for or not.

        If an outcome is not finite, the evaluation is recorded as failed.

        Args:
            candidate: The candidate.
            outcomes: The objectives, then the constraints.

        Raises:
            ValueError: If the number of outcomes is wrong, or ``candidate`` is not valid.
            CheckpointError: If the checkpoint is in use by another process, or another process has
                written to it. The evaluation is then not recorded.
            OSError: If the checkpoint is missing, or writing to it fails, as on a full disk. The
                evaluation is then not recorded, and the checkpoint as it was before.
        """
        self._record(self._evaluation(candidate, outcomes))

    def tell_failure(self, candidate: Any, reason: object) -> None:
        """Record that the evaluation of a candidate failed.

        If the candidate can be decoded, acquisition functions that support pending points, such as the
        default ones, treat it as pending, so that the search moves elsewhere. A pool search never asks
        for it again.

        Args:
            candidate: The candidate.
            reason: A description of the failure, as text or an exception.

        Raises:
            ValueError: If ``candidate`` is not valid.
            CheckpointError: As :meth:`tell` does.
        """
        self._record(self._evaluation(candidate, failure=str(reason)))

    def run(
        self,
        evaluate: Callable[[Any], float | Sequence[float] | Tensor],
        evaluations: int,
        *,
        q: int = 1,
        progress: bool = True,
    ) -> ShapeOptimizer:
        """Ask, evaluate and tell until the given number of evaluations is reached.

        If ``evaluate`` raises an exception, the evaluation is recorded as failed and the search goes on.

        Args:
            evaluate: A function that maps a candidate to its outcomes.
            evaluations: Total number of evaluations, including failed and earlier ones.
            q: Number of candidates to ask for at a time.
            progress: Whether to show a progress bar.

        Returns:
            The optimizer.

        Raises:
            ValueError: As :meth:`ask` and :meth:`tell` do.
            CheckpointError: As :meth:`tell` does.
        """
        evaluations, q = integer(evaluations, "evaluations", least=0), integer(q, "q")
        done = len(self._evaluations)
        bar = tqdm(total=evaluations, initial=done, desc="Evaluations", disable=not progress)
        with self._checkpoint.alone() if self._checkpoint else nullcontext(), bar:
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
                        shown = {"failed": str(self._failed)} if self._failed else {}
                        if self.objectives == 1 and np.isfinite(self.trace[-1]):
                            shown["best"] = f"{self.trace[-1]:.6g}"
                        bar.set_postfix(shown)
                finally:
                    # After an interrupt, candidates without outcomes may be asked for again.
                    for candidate in asked:
                        self._pending.pop(candidate_key(self.search.plain(candidate)), None)
        return self

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """All evaluations, in the order in which they were told."""
        return tuple(self._evaluations)

    @property
    def best(self) -> tuple[Any, float]:
        """The feasible candidate with the largest objective, and that objective.

        Raises:
            ValueError: If there are several objectives, or no candidate is feasible.
        """
        if self.objectives > 1:
            raise ValueError(
                f"Expected one objective, got {self.objectives}. Use pareto, as several objectives have "
                "no single best candidate."
            )
        best = max(filter(self._is_feasible, self._evaluations), key=_first, default=None)
        if best is None:
            failed = next((e.failure for e in reversed(self._evaluations) if e.failure), None)
            raise ValueError(
                f"None of {len(self._evaluations)} evaluations has succeeded and met all constraints."
                + (f" The last that failed: {failed}." if failed else "")
            )
        return self.search.show(best.candidate), _first(best)

    @property
    def pareto(self) -> list[tuple[Any, tuple[float, ...]]]:
        """The feasible candidates that no other feasible candidate dominates, with their outcomes.

        A candidate dominates another if it is at least as good in all objectives and better in one.
        """
        feasible = list(filter(self._is_feasible, self._evaluations))
        if not feasible:
            return []
        values = torch.tensor([e.outcomes for e in feasible], dtype=torch.float64)
        kept = compress(feasible, is_non_dominated(values[:, : self.objectives], deduplicate=False))
        return [(self.search.show(e.candidate), e.outcomes or ()) for e in kept]

    @property
    def trace(self) -> list[float]:
        """The largest first objective among the feasible candidates up to each evaluation.

        Entries are NaN until a candidate is feasible.
        """
        values = [_first(e) if self._is_feasible(e) else np.nan for e in self._evaluations]
        return np.fmax.accumulate(np.array(values)).tolist()

    def model(self) -> Model:
        """Returns a model fitted to all evaluations so far.

        Raises:
            ValueError: If fewer than two evaluations have succeeded.
        """
        return self._fitted(*self._data(self._enough()))

    @property
    def _outcomes(self) -> int:
        return self.objectives + self.constraints

    @property
    def _failed(self) -> int:
        return sum(e.outcomes is None for e in self._evaluations)

    def __repr__(self) -> str:
        parts = [type(self.search).__name__, f"{len(self._evaluations)} evaluations"]
        parts += [f"{self._failed} failed"] * bool(self._failed)
        return f"{type(self).__name__}({', '.join(parts)})"

    def _succeeded(self) -> list[Evaluation]:
        return [e for e in self._evaluations if e.outcomes is not None]

    def _enough(self) -> list[Evaluation]:
        if len(succeeded := self._succeeded()) < 2:
            raise ValueError(f"Expected at least two successful evaluations, got {len(succeeded)}.")
        return succeeded

    def _is_feasible(self, e: Evaluation) -> bool:
        return e.outcomes is not None and all(c <= 0 for c in e.outcomes[self.objectives :])

    def _evaluation(
        self, candidate: Any, outcomes: Any = None, failure: str | None = None
    ) -> Evaluation:
        """Return an evaluation, which has failed if an outcome is not finite."""
        plain = self.search.plain(candidate)
        if failure is not None:
            return Evaluation(plain, None, failure)
        found = read_outcomes(outcomes, self._outcomes)
        infinite = (f"outcome {i} is {y}" for i, y in enumerate(found) if not np.isfinite(y))
        failure = next(infinite, None)
        return Evaluation(plain, found if failure is None else None, failure)

    def _record(self, evaluation: Evaluation) -> None:
        if self._checkpoint is None:
            self._evaluations.append(evaluation)
        else:
            self._checkpoint.add(evaluation)
        self._pending.pop(evaluation.key, None)

    def _initial(self, search: Search, count: int, taken: Collection[str]) -> list[Any]:
        """Returns the first ``count`` candidates of the random sequence whose keys are not taken.

        With fixed parts, it goes on after as many candidates as are taken, whose other parts it has.
        """
        sequence = map(search.show, search.initial(len(taken) + count, self.seed))
        plain = list(map(search.plain, sequence))
        if search is not self.search:
            plain = plain[len(taken) :] + plain[: len(taken)]
        return [candidate for candidate in plain if candidate_key(candidate) not in taken][:count]

    def _largest_mean(self, search: Search, model: Model, best: list[Any], seed: int) -> Any:
        return search.optimize(PredictedValue(model, self.objectives), 1, [], best, seed)[0]

    def _optimized(
        self, search: Search, q: int, succeeded: list[Evaluation], taken: list[Any]
    ) -> list[Any]:
        """Returns ``q`` candidates that maximise the acquisition function of a fitted model."""
        seed = derived_seed(self.seed, len(taken))
        X, Y = self._data(succeeded)
        done = {e.key for e in succeeded}
        pending = [candidate for candidate in taken if candidate_key(candidate) not in done]
        best = _best_first(succeeded)
        if self._rescales:
            Y = in_common_units(Y)
        else:
            check_units(Y)
        model = self._fitted(X, Y)
        # A design that cannot be decoded has no shape, so it cannot be a pending point.
        waiting = X[:0]
        if pending:
            waiting = decodable(model.posterior, self.search.inputs(pending))
        if search is not self.search:
            known = [search.within(candidate) for candidate in best]
            best = [self._largest_mean(search, model, best, seed), *known]
            X = search.inputs(best).unique(dim=0)
            Y = model.posterior(X).mean.detach()
        data = Observations(X, Y, self.objectives, waiting if len(waiting) else None, q, seed)
        with seeded(seed, X.device):
            acquisition = self._make_acquisition(model, data)
            near = search.around(
                [e.candidate for e in self._evaluations],
                [_first(e) if self._is_feasible(e) else -np.inf for e in self._evaluations],
                self.initial,
                q,
            )
            return near.optimize(acquisition, q, taken, best, seed)

    def _data(self, succeeded: list[Evaluation]) -> tuple[Tensor, Tensor]:
        X = self.search.inputs([e.candidate for e in succeeded])
        if self.search.input_transform is not None:
            # The decoder may compute in a precision other than that of the bounds. Inputs and outcomes
            # take the precision of the decoder.
            with torch.no_grad():
                X = X.to(self.search.input_transform.transform(X).dtype)
        return X, X.new_tensor([e.outcomes for e in succeeded])

    def _fitted(self, X: Tensor, Y: Tensor) -> DistributionGP:
        """Return a fitted model; if the fit fails, one with initial hyperparameters.

        Warns:
            ConvergenceWarning: If the fit fails or does not converge.
        """
        make = self._make_model or self._default_model
        options: dict[str, Any] = {"restarts": self.restarts, "progress": False}
        try:
            model = fit(make(X, Y), seed=self.seed, **options)
            if self._make_model is None:
                self.search.give_members(model, seed=self.seed)
            return model
        except (NanError, NotPSDError) as error:
            warn(
                f"The fit to {len(X)} evaluations failed ({error}). The search goes on with the initial "
                "hyperparameters of the model.",
                ConvergenceWarning,
            )
        model = make(X, Y)
        start_at_medians(model)
        return model.eval()

    def _default_model(self, X: Tensor, Y: Tensor) -> DistributionGP:
        kernel = self.search.default_kernel(torch.Size(Y.shape[-1:] if Y.shape[-1] > 1 else []))
        model = DistributionGP(X, Y, kernel, input_transform=self.search.input_transform)
        return median_lengthscale_prior(model)


def _best_first(succeeded: list[Evaluation]) -> list[Any]:
    return [e.candidate for e in sorted(succeeded, key=_first, reverse=True)]


def _first(evaluation: Evaluation) -> float:
    return evaluation.outcomes[0] if evaluation.outcomes is not None else -np.inf
