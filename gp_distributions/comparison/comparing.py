"""Comparison of kernels and models by their predictions for clouds that were left out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from tqdm import tqdm

from gp_distributions.comparison.candidates import Candidate
from gp_distributions.comparison.comparison import Comparison
from gp_distributions.comparison.data import Split, read_data
from gp_distributions.comparison.data import splits as split_data
from gp_distributions.comparison.trials import Trial, run_trials
from gp_distributions.judging.predictions import Predictions
from gp_distributions.measures.arrays import as_floats, integer
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.dirichlet_classification import Classification

# The progress bar appears after this many seconds.
_PATIENCE = 3.0


def compare(
    candidates: Mapping[str, Candidate],
    X: Inputs | Tensor,
    y: Tensor | ArrayLike,
    *,
    folds: Any = None,
    groups: Sequence[Hashable] | ArrayLike | None = None,
    classification: bool | None = None,
    restarts: int = 1,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    r"""Compare kernels and models by their predictions for clouds that they have not seen.

    Each candidate is fitted by :func:`fit`, and predicts each training cloud from all others in closed
    form. With :math:`l_{ki}` the leave-one-out log density of the targets of cloud ``i`` under candidate
    ``k``, the candidates are ranked by the means :math:`\bar l_k`. The standard error of the difference
    to the best candidate ``b`` is that of a mean of paired differences,

    .. math::
        \Big( \frac{1}{T (T - 1)} \sum_i \big( l_{ki} - l_{bi} - \bar l_k + \bar l_b \big)^2 \Big)^{1/2}.

    It assumes that these differences are independent. Leave-one-out predictions share nearly all of
    their training data, so it is a guide and not a test. With ``groups``, the differences may depend on
    each other within a group. The stacking weights maximise the log density of the weighted mixture of
    all candidates, with a Dirichlet prior that is worth 0.02 clouds for each candidate and keeps all of
    them in the mixture (:func:`leave_one_out_weights` gives the same weights for models that are already
    made).

    Leave-one-out is exact for the hyperparameters found, which have seen all clouds. That flatters
    candidates with many hyperparameters, such as learned references or scales of coordinates: use
    ``folds`` for them, in which the hyperparameters are fitted again without the fold. If the coverage
    of few clouds is low, use :func:`integrate_hyperparameters` on the best model; the fits of a
    comparison do not issue an ``UndeterminedWarning``.

    Args:
        candidates: Candidates by name: kernels, which get an outputscale if they have none; distances,
            which get the profile ``matern52``; models that are not fitted, which are made again on
            ``X`` and ``y``; or functions of ``X`` and ``y`` that make a model. They stay as they are.
            In folds, functions get the part of ``X`` to train on; of :class:`MixedInputs`, they get
            rows. Known noise variances of a model are those of its clouds in folds, too. See
            :func:`default_kernels`.
        X: The ``T`` training inputs, as for :class:`DistributionGP`.
        y: The targets, ``T`` or ``T x outputs``; or ``T`` labels. If there are several outputs, log
            densities are sums over them, and a kernel without a batch shape becomes a
            :class:`SharedKernelGP`.
        folds: Number of folds, a splitter of scikit-learn, or pairs of training and test indices, in
            place of leave-one-out. Each cloud must be left out once, by a training part without it.
        groups: A label for each cloud, at least two different ones; clouds with the same label stay in
            one fold, as patients of one hospital. A splitter must respect them, such as ``GroupKFold``.
            Default of ``folds`` with groups: 5, or the number of groups.
        classification: Whether ``y`` are labels. By default, they are if a candidate is a classifier, or
            if they are not numbers.
        restarts: Number of further starts of each fit.
        seed: Random seed for the fits and for the folds.
        progress: Whether to show a progress bar if the comparison takes more than a few seconds.

    Returns:
        The comparison. A candidate that fails is a line of its table.

    Raises:
        TypeError: If ``candidates`` are not a mapping of names, or ``X`` are not inputs of a model.
        ValueError: If there are no candidates, there is only one cloud, ``y``, the folds or the groups
            do not fit ``X``, a group is missing, or ``restarts`` is negative.
        RuntimeError: If every candidate fails.

    Example:
        >>> import torch
        >>> from gp_distributions import MMDKernel, PointClouds, SlicedWassersteinKernel, compare
        >>> points = torch.randn(15, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> X, y = PointClouds(points), points.mean((-2, -1))
        >>> kernels = {"sw2": SlicedWassersteinKernel(2), "mmd": MMDKernel(2, bandwidth=0.1)}
        >>> found = compare(kernels, X, y)
        >>> found.table[0].name
        'sw2'
        >>> mean, std = found.best.predict(X[:2])

    Sources: Sundararajan and Keerthi 2001; Yao, Vehtari, Simpson and Gelman 2018.
    """
    if not isinstance(candidates, Mapping):
        raise TypeError(
            f"Expected a dictionary of candidates by name, got {type(candidates).__name__}. Pass "
            "{name: kernel, ...}, or default_kernels(X)."
        )
    if not candidates:
        raise ValueError("Expected at least one candidate, got none.")
    restarts = integer(restarts, "restarts", least=0)
    if classification is None:
        classification = _are_labels(y) or any(
            isinstance(candidate, Classification) for candidate in candidates.values()
        )
    data = read_data(X, y, classify=classification)
    splits = split_data(data, folds, groups, seed)
    options = {"restarts": restarts, "seed": seed, "progress": False}
    parts: list[tuple[int | None, Split | None]] = [(None, None), *enumerate(splits)]
    trials: list[Trial] = []
    total = len(candidates) * len(parts)
    bar = tqdm(total=total, desc="Comparing", unit=" fits", delay=_PATIENCE, disable=not progress)
    with bar:
        for fold, split in parts:
            for trial in run_trials(
                candidates, data, fold, split, leave_one_out=not splits, options=options
            ):
                trials.append(trial)
                bar.update()
    results = {name: _result([t for t in trials if t.name == name], splits) for name in candidates}
    clusters = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    return Comparison.of(results, clusters)


def _are_labels(y: Any) -> bool:
    """Whether values are no numbers."""
    if isinstance(y, Tensor):
        return y.dtype == torch.bool
    return as_floats(np.asarray(y)).dtype.kind not in "iuf"


def _result(trials: Sequence[Trial], splits: Sequence[Split]) -> tuple[Trial, Predictions | None]:
    """Return the trial of a candidate on all data, or one that failed, and all its predictions."""
    failed = next((trial for trial in trials if trial.message), None)
    if failed is not None:
        return failed, None
    whole, *folds = trials
    if not splits:
        return whole, whole.predictions
    held_out = [trial.predictions for trial in folds if trial.predictions is not None]
    return whole, type(held_out[0]).joined(held_out, [test for _, test in splits])
