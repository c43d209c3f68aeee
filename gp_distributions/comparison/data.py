"""The data of a comparison, all of them and in folds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, check_cv
from torch import Tensor

from gp_distributions.measures.arrays import is_missing
from gp_distributions.measures.inputs import Inputs, encoding_of
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.targets import Labels, as_targets, check_order, read_labels
from gp_distributions.measures.training_data import counted_rows
from gp_distributions.numerics.predictions import refuse_mask

# Number of folds if there are groups, unless there are fewer groups.
_FOLDS = 5

# The numbers of the training clouds and of those left out.
Split = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs with targets or labels.

    Attributes:
        X: The inputs.
        rows: The inputs as rows, all encoded alike.
        y: Targets, ``T`` or ``T x outputs``, or labels.
        targets: The targets in the precision of the rows, or class indices.
        classes: The distinct labels in sorted order, or None.
    """

    X: Inputs | Tensor
    rows: Tensor
    y: Any
    targets: Tensor
    classes: Labels | None

    @classmethod
    def read(cls, X: Inputs | Tensor, y: Tensor | ArrayLike, *, classify: bool) -> Data:
        """Check inputs and targets.

        Raises:
            TypeError: If ``X`` are neither distributions nor a tensor.
            ValueError: If there is a batch axis or only one input, or targets or labels do not fit
                the inputs.
        """
        rows = counted_rows(X, encoding_of(X)).detach()
        if rows.dim() != 2:
            raise ValueError(f"Expected T inputs, got rows of shape {tuple(rows.shape)}.")
        if len(rows) < 2:
            raise ValueError(
                f"Expected at least two inputs, of which each is left out once, got {len(rows)}."
            )
        check_order(X, y)
        if classify:
            classes, index = read_labels(y, len(rows))
            return cls(X, rows, classes[index.numpy()], index, classes)
        targets, squeeze = as_targets(y, rows)
        return cls(X, rows, targets.squeeze(-1) if squeeze else targets, targets, None)

    @property
    def classify(self) -> bool:
        """Whether there are labels."""
        return self.classes is not None

    @property
    def size(self) -> int:
        """Number ``T`` of inputs."""
        return len(self.rows)

    def training(self, index: Tensor | None) -> tuple[Any, Any]:
        """Return the inputs and targets of numbers ``index``, or all; some mixed inputs as rows."""
        if index is None:
            return self.X, self.y
        kept = index.to(self.rows.device)
        # Rows keep the encoding that all mixed inputs define.
        X = self.rows[kept] if isinstance(self.X, MixedInputs | Tensor) else self.X[index]
        return X, self.y[index.numpy()] if self.classify else self.y[kept]

    def splits(
        self, folds: Any, groups: Sequence[Hashable] | ArrayLike | None, seed: int
    ) -> list[Split]:
        """Split the inputs into folds, each of which is left out once; none for leave-one-out.

        Raises:
            ValueError: If the folds are not a partition, the number of groups is wrong, a group is
                missing, a training part holds an input or a group that it leaves out, or it lacks a
                class.
        """
        if folds is None and groups is None:
            return []
        check_order(self.X, groups, "groups")
        refuse_mask(groups, "Groups")
        labels = None if groups is None else _read_groups(groups, self.size)
        parts = [
            (torch.as_tensor(train), torch.as_tensor(test))
            for train, test in self._parts(folds, labels, seed)
        ]
        left = torch.cat([test for _, test in parts])
        if not torch.equal(left.sort().values, torch.arange(self.size)):
            raise ValueError(
                "Expected folds in which each input is left out exactly once, such as KFold(5), got "
                f"{len(left)} inputs left out, {len(left.unique())} of {self.size} different."
            )
        for number, (train, test) in enumerate(parts):
            if bool(torch.isin(train, test).any()):
                raise ValueError(
                    f"Expected training parts without the inputs that are left out, but that of fold "
                    f"{number} holds input {int(train[torch.isin(train, test)][0])}."
                )
            if labels is not None:
                both = np.intersect1d(labels[train.numpy()], labels[test.numpy()])
                if len(both):
                    raise ValueError(
                        f"Expected groups that stay together, but fold {number} leaves out only some of "
                        f"group {both.tolist()[0]!r}. Use a splitter of groups, such as GroupKFold."
                    )
            if self.classes is not None and len(self.targets[train].unique()) < len(self.classes):
                raise ValueError(
                    f"Expected all classes in each training part, but that of fold {number} lacks one. "
                    "Use fewer folds, or leave out classes with few inputs."
                )
        return parts

    def _parts(self, folds: Any, groups: Any, seed: int) -> Iterator[tuple[Any, Any]]:
        splitter: Any = check_cv(folds)
        if isinstance(folds, int | np.integer | None):
            number = folds
            if folds is None:
                number = min(_FOLDS, len(set(groups.tolist())))
            splitter = KFold(number, shuffle=True, random_state=seed)
            if groups is not None:
                splitter = GroupKFold(number)
            elif self.classify:
                splitter = StratifiedKFold(number, shuffle=True, random_state=seed)
        yield from splitter.split(np.zeros(self.size), self.targets.cpu().numpy(), groups)


def _read_groups(groups: Any, size: int) -> NDArray[Any]:
    """Return the groups as an array, after checking that none is missing."""
    # An array of strings would hide what is missing.
    given = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    labels = np.asarray(groups)
    if labels.shape != (size,):
        raise ValueError(
            f"Expected a group for each of {size} inputs, got groups of shape {labels.shape}."
        )
    for place, group in enumerate(given):
        if is_missing(group):
            raise ValueError(
                f"Expected a group for each input, but that of input {place} is missing. Give inputs "
                "without a group a group of their own."
            )
    return labels
