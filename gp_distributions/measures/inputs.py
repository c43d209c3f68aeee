"""What models take: inputs and their rows, and training data, read and checked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures._bags import KindNames
from gp_distributions.measures.arrays import Labels
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.gaussians import KINDS, Distributions
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import Columns, in_order
from gp_distributions.measures.targets import (
    as_targets,
    as_variances,
    check_apart,
    check_order,
    read_labels,
)
from gp_distributions.rows.tensors import check_content


def as_rows(X: Distributions | Tensor) -> Tensor:
    """Convert distributions to rows; return rows unchanged.

    Raises:
        TypeError: If ``X`` is of another type, or a tensor of integers.
    """
    kind_of(X)
    if not isinstance(X, Tensor):
        return X.pack()
    if not X.is_floating_point():
        raise TypeError(
            f"Expected rows of floating-point numbers, got {X.dtype}. Pass rows.double()."
        )
    return X


def kind_of(X: Distributions | Tensor) -> str | None:
    """Return the name that distances give to the kind of distributions, or None for rows.

    Raises:
        TypeError: If ``X`` is of another type.
    """
    if isinstance(X, Tensor):
        return None
    if isinstance(X, Distributions):
        return KINDS[type(X)]
    raise TypeError(
        "Expected PointClouds, Gaussians, GaussianMixtures or a tensor of rows, got "
        f"{type(X).__name__}. Convert a list of arrays with PointClouds.from_list, and one array X as "
        "[X]; read tables with PointClouds.from_frame or MixedInputs.from_frame, single cells "
        "with PointClouds.from_anndata, and shapes with PointClouds.from_curves or from_meshes. Pass "
        "mixed inputs as rows, X.pack(model.encoding), where only rows are read. Split positions rather "
        "than clouds by train_test_split: X[train]."
    )


@dataclass(frozen=True)
class AtomEncoding:
    """The kinds of atoms and names of coordinates in training, and whether weights are masses.

    Attributes:
        kind_names: The kinds, whose places the last coordinates of atoms hold; empty if there are none.
        masses: Whether rows hold masses in place of weights that sum to one.
        columns: The names of coordinates, or None.
    """

    kind_names: KindNames = ()
    masses: bool = False
    columns: Columns = None

    def rows(self, X: Distributions) -> Tensor:
        """Return the rows of distributions, ``batch_shape x width``.

        Raises:
            ValueError: If coordinates have other names; clouds have no kinds, or an atom has another
                kind.
        """
        given = in_order(X, self.columns, "X")
        if isinstance(given, PointClouds):
            given = given._with_kind_names(self.kind_names)
            if self.masses:
                given = PointClouds._unchecked(given.points, given.masses)
        return as_rows(given)


Inputs: TypeAlias = Distributions | MixedInputs
Encoding: TypeAlias = MixedEncoding | AtomEncoding


def input_rows(X: Inputs | Tensor, encoding: Encoding | None = None) -> Tensor:
    """Convert inputs to rows; return rows unchanged.

    Args:
        X: The inputs.
        encoding: Encoding of mixed inputs or of atoms, which must be that of the training data.

    Raises:
        TypeError: If ``X`` is of another type, a tensor of integers, or mixed inputs that lack an
            encoding.
        ValueError: If mixed inputs do not fit the encoding.
    """
    if isinstance(X, MixedInputs) and encoding is not None:
        return X.pack(encoding)  # type: ignore[arg-type]
    if isinstance(X, Distributions) and isinstance(encoding, AtomEncoding):
        return encoding.rows(X)
    return as_rows(X)  # type: ignore[arg-type]


def distributions_of(X: object) -> dict[str, Distributions]:
    """Return the distributions in inputs by the name of their block, which is empty without blocks."""
    blocks = X.blocks if isinstance(X, MixedInputs) else {"": X}
    return {name: block for name, block in blocks.items() if isinstance(block, Distributions)}


def encoding_of(train_X: object) -> Encoding | None:
    """Return the encoding that mixed inputs, and kinds and names of coordinates, define, or None."""
    if isinstance(train_X, MixedInputs):
        return train_X.encoding
    kinds, columns = (getattr(train_X, name, None) for name in ("kind_names", "columns"))
    return AtomEncoding(kinds or (), columns=columns) if kinds or columns else None


# Number of inputs in a piece of data in memory. Sums depend on it in the last bits, so it is fixed.
_PIECE = 8192


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Inputs with their targets or labels, which have been checked.

    Models take it in place of ``train_X`` and ``train_Y``. It is data in pieces as well, see
    :class:`SparseDistributionGP`.

    Attributes:
        X: ``T`` distributions or mixed inputs, or a ``batch_shape x T x width`` tensor of rows or
            designs.
        targets: A ``batch_shape x T x outputs`` tensor of targets, or the ``T`` class indices.
        variances: Known noise variances of the targets, or None.
        classes: The ``C`` distinct labels in sorted order, or None.
        squeeze: Whether the targets had no axis of outputs.
        encoding: Encoding of mixed inputs or of atoms, or None.
    """

    X: Inputs | Tensor
    targets: Tensor
    variances: Tensor | None = None
    classes: Labels | None = None
    squeeze: bool = False
    encoding: Encoding | None = None

    @classmethod
    def read(
        cls,
        X: Inputs | Tensor | TrainingData,
        y: Tensor | ArrayLike | None,
        variances: Tensor | ArrayLike | None = None,
        *,
        classify: bool = False,
    ) -> TrainingData:
        """Check inputs, and targets or labels, and that they belong together.

        Args:
            X: The inputs; or training data, which are returned as they are.
            y: ``T`` or ``T x outputs`` targets, or ``T`` labels.
            variances: Known noise variances of the targets.
            classify: Whether there are labels.

        Raises:
            TypeError: If ``X`` is neither distributions nor a dense tensor of numbers, or ``y`` is a
                dictionary.
            ValueError: If ``X`` is a single distribution; the numbers of inputs and targets differ; an
                index names the inputs in another order; a target, variance or label is missing or
                cannot be one.
        """
        if isinstance(X, TrainingData):
            return X
        like = counted(X)
        if y is None:
            noun = "labels" if classify else "targets"
            raise ValueError(f"Expected train_Y, the {noun} of the clouds, got None.")
        check_order(X, y)
        check_order(X, variances, "variances")
        check_apart(X, y)
        if classify:
            classes, index = read_labels(y, like.shape[-2])
            return cls(X, index.to(like.device), classes=classes, encoding=encoding_of(X))
        targets, squeeze = as_targets(y, like)
        known = None if variances is None else as_variances(variances, like, targets)
        return cls(X, targets, known, squeeze=squeeze, encoding=encoding_of(X))

    @cached_property
    def rows(self) -> Tensor:
        """The inputs as rows, or the designs, ``batch_shape x T x width``."""
        return input_rows(self.X, self.encoding).detach()

    @property
    def y(self) -> Tensor | Labels:
        """The targets, without an axis of outputs if they had none, or the labels."""
        if self.classes is not None:
            return self.classes[self.targets.cpu().numpy()]
        return self.targets.squeeze(-1) if self.squeeze else self.targets

    @property
    def known_classes(self) -> Labels:
        """The distinct labels of data that have labels."""
        assert self.classes is not None
        return self.classes

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the inputs."""
        return self.X.dtype

    def __len__(self) -> int:
        return self.targets.shape[-2] if self.classes is None else len(self.targets)

    def __getitem__(self, index: slice | Tensor) -> TrainingData:
        """Return some of the inputs, encoded like all."""
        known = None if self.variances is None else self.variances[index]
        return replace(self, X=self.X[index], targets=self.targets[index], variances=known)

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return -(-len(self) // _PIECE)

    def piece(self, index: int) -> tuple[Any, ...]:
        """Return the distributions of a piece, their targets, and their noise variances if known."""
        return self[index * _PIECE : (index + 1) * _PIECE].content

    def sample(self, n: int, seed: int) -> tuple[Any, ...]:
        """Return a random sample of ``n`` clouds in their order, or all clouds if there are fewer."""
        if n >= len(self):
            return self.content
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self[order[:n].sort().values.to(self.targets.device)].content

    @property
    def content(self) -> tuple[Any, ...]:
        """The inputs, their targets, and their noise variances if known."""
        known = () if self.variances is None else (self.variances,)
        return self.X, self.targets, *known


def counted(X: Inputs | Tensor) -> Tensor:
    """Return a tensor with the shape of the rows of inputs, up to the width, in their dtype.

    Raises:
        TypeError: If the inputs are neither distributions nor a dense tensor of numbers, or are within
            a transform of ``torch.func``.
        ValueError: If they are a single distribution.
    """
    if isinstance(X, Tensor):
        check_content(as_rows(X))
        shape = X.shape[:-1]
    elif isinstance(X, MixedInputs):
        shape = torch.Size([len(X)])
    else:
        kind_of(X)
        shape = X.batch_shape
    if not shape:
        raise ValueError(
            "Expected inputs with an axis that counts them, got a single one. Pass X[:1] instead of "
            "X[0], and indices as a column."
        )
    return torch.empty(1, dtype=X.dtype, device=X.device).expand(*shape, 1)


def counted_rows(X: Inputs | Tensor, encoding: Encoding | None = None) -> Tensor:
    """Check new inputs, and return them as ``batch_shape x N x width`` rows.

    Args:
        X: The inputs.
        encoding: Encoding of mixed inputs or of atoms, which must be that of the training data.

    Raises:
        TypeError: As for :meth:`TrainingData.read`.
        ValueError: If ``X`` is a single distribution.
    """
    counted(X)
    return input_rows(X, encoding)
