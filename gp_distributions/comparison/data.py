"""The data of a comparison, and their folds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, check_cv
from torch import Tensor

from gp_distributions.measures.arrays import is_missing
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import check_order
from gp_distributions.measures.training_data import TrainingData
from gp_distributions.numerics.predictions import refuse_mask

# Number of folds if there are groups, unless there are fewer groups.
_FOLDS = 5

# The numbers of the training clouds and of those left out.
Split = tuple[Tensor, Tensor]


def read_data(X: Inputs | Tensor, y: Tensor | ArrayLike, *, classify: bool) -> TrainingData:
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


def splits(
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
