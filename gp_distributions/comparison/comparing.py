"""Comparison of kernels and models by their predictions for clouds that were left out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, check_cv
from torch import Tensor
from tqdm import tqdm

from gp_distributions.comparison.comparison import Comparison
from gp_distributions.comparison.trials import Candidate, Split, Trial, run_trials
from gp_distributions.measures.arrays import as_floats, integer, is_missing
from gp_distributions.measures.inputs import Inputs, TrainingData
from gp_distributions.measures.targets import check_order
from gp_distributions.metrics.predictions import Predictions
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.numerics.predictions import refuse_mask

# The progress bar appears after this many seconds.
_PATIENCE = 3.0
# Number of folds if there are groups, unless there are fewer groups.
_FOLDS = 5


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
    data = _read_data(X, y, classify=classification)
    splits = _split(data, folds, groups, seed)
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


def _read_data(X: Inputs | Tensor, y: Tensor | ArrayLike, *, classify: bool) -> TrainingData:
    """Check inputs, of which each can be left out, and their targets or labels.

    Raises:
        TypeError: As for :meth:`TrainingData.read`.
        ValueError: As for :meth:`TrainingData.read`, or if there is a batch axis or only one input.
    """
    data = TrainingData.read(X, y, classify=classify)
    if data.rows.dim() != 2:
        raise ValueError(f"Expected T inputs, got rows of shape {tuple(data.rows.shape)}.")
    if len(data) < 2:
        raise ValueError(
            f"Expected at least two inputs, of which each is left out once, got {len(data)}."
        )
    return data


def _split(
    data: TrainingData, folds: Any, groups: Sequence[Hashable] | ArrayLike | None, seed: int
) -> list[Split]:
    """Split the inputs into folds, each of which is left out once; none for leave-one-out.

    Raises:
        ValueError: If the folds are not a partition, the number of groups is wrong, a group is
            missing, a training part holds an input or a group that it leaves out, or it lacks a
            class.
    """
    if folds is None and groups is None:
        return []
    labels = np.arange(len(data)) if groups is None else _read_groups(groups, data)
    splitter: Any = check_cv(folds)
    if isinstance(folds, int | np.integer | None):
        number = min(_FOLDS, len(set(labels.tolist()))) if folds is None else folds
        splitter = KFold(number, shuffle=True, random_state=seed)
        if groups is not None:
            splitter = GroupKFold(number)
        elif data.classes is not None:
            splitter = StratifiedKFold(number, shuffle=True, random_state=seed)
    given = None if groups is None else labels
    found = splitter.split(np.zeros(len(data)), data.targets.cpu().numpy(), given)
    parts = [(torch.as_tensor(train), torch.as_tensor(test)) for train, test in found]
    left = torch.cat([test for _, test in parts])
    if not torch.equal(left.sort().values, torch.arange(len(data))):
        raise ValueError(
            "Expected folds in which each input is left out exactly once, such as KFold(5), got "
            f"{len(left)} inputs left out, {len(left.unique())} of {len(data)} different."
        )
    for number, (train, test) in enumerate(parts):
        both = np.intersect1d(labels[train.numpy()], labels[test.numpy()])
        if len(both):
            raise ValueError(
                f"Expected training parts without the {'inputs' if groups is None else 'groups'} that "
                f"are left out, but that of fold {number} holds {both.tolist()[0]!r}. Use a splitter, "
                "such as GroupKFold if there are groups."
            )
        if data.classes is not None and len(data.targets[train].unique()) < len(data.classes):
            raise ValueError(
                f"Expected all classes in each training part, but that of fold {number} lacks one. "
                "Use fewer folds, or leave out classes with few inputs."
            )
    return parts


def _read_groups(groups: Any, data: TrainingData) -> NDArray[Any]:
    """Return the groups as an array, after checking that none is missing."""
    check_order(data.X, groups, "groups")
    refuse_mask(groups, "Groups")
    # An array of strings would hide what is missing.
    given = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(given) != len(data):
        raise ValueError(f"Expected a group for each of {len(data)} inputs, got {len(given)}.")
    if len(set(given)) < 2:
        raise ValueError(
            f"Expected groups of at least two different labels, got only {given[0]!r}."
        )
    missing = [*map(is_missing, given)]
    if any(missing):
        raise ValueError(
            f"Expected a group for each input, but that of input {missing.index(True)} is missing. "
            "Give inputs without a group a group of their own."
        )
    return np.asarray(groups)


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
