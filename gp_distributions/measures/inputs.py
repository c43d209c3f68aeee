"""All containers that models take as inputs, and their rows."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from gp_distributions.measures.covariates import Covariates
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.kinds import Distributions, as_rows
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.names import Naming, are_integers

Inputs: TypeAlias = Distributions | MixedInputs


def input_rows(X: Inputs | Tensor, encoding: MixedEncoding | None = None) -> Tensor:
    """Convert inputs to rows; return rows unchanged.

    Args:
        X: The inputs.
        encoding: Encoding of mixed inputs, which must be that of the training data.

    Raises:
        TypeError: If ``X`` is of another type, a tensor of integers, or mixed inputs that lack an
            encoding.
        ValueError: If mixed inputs do not fit the encoding.
    """
    if isinstance(X, MixedInputs) and encoding is not None:
        return X.pack(encoding)
    return as_rows(X)  # type: ignore[arg-type]


def encoding_of(train_X: object) -> MixedEncoding | None:
    """Return the encoding that training inputs define, or None if they are not mixed inputs."""
    return train_X.encoding if isinstance(train_X, MixedInputs) else None


def naming_of(X: Inputs) -> Naming:
    """Return how certain it is that the labels of inputs name them, and do not count rows.

    Labels of distributions are names. Integers of mixed inputs may come from the index of a frame. A
    frame of bags and covariates labels its clouds by an index of integers only if the index has a name,
    and a frame of bags alone does so in any case.
    """
    if not isinstance(X, MixedInputs) or X.labels is None or not are_integers(X.labels.tolist()):
        return Naming.NAMED
    blocks = X.blocks.values()
    covariates = [block for block in blocks if isinstance(block, Covariates)]
    named = any(b.labels is not None for b in blocks if not isinstance(b, Covariates))
    return Naming.NUMBERED if covariates and named else Naming.COUNTED
