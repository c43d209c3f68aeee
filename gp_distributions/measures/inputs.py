"""All containers that models take as inputs, and their rows."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from gp_distributions.measures.atom_encoding import AtomEncoding
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.kinds import Distributions, as_rows
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.names import Names, index_names
from gp_distributions.measures.point_clouds import PointClouds

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
    if isinstance(X, PointClouds) and isinstance(encoding, AtomEncoding):
        return encoding.rows(X)
    return as_rows(X)  # type: ignore[arg-type]


def distributions_of(X: object) -> dict[str, Distributions]:
    """Return the distributions in inputs by the name of their block, which is empty without blocks."""
    blocks = X.blocks if isinstance(X, MixedInputs) else {"": X}
    return {name: block for name, block in blocks.items() if isinstance(block, Distributions)}


def encoding_of(train_X: object) -> Encoding | None:
    """Return the encoding that mixed inputs, or clouds of atoms with kinds, define, or None."""
    if isinstance(train_X, PointClouds) and train_X.kind_names:
        return AtomEncoding(train_X.kind_names)
    return train_X.encoding if isinstance(train_X, MixedInputs) else None


def names_of(X: object) -> Names | None:
    """Return the names of the rows of a pandas frame or series, or of inputs; None for anything else."""
    if isinstance(X, MixedInputs):
        return X._names
    if isinstance(X, Distributions):
        return Names(X.labels) if X.labels is not None and X.labels.ndim == 1 else None
    return index_names(X)
