"""All containers that models take as inputs, and their rows."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.kinds import Distributions, as_rows
from gp_distributions.measures.mixed_inputs import MixedInputs

Inputs: TypeAlias = Distributions | MixedInputs


def input_rows(X: Inputs | Tensor, encoding: MixedEncoding | None = None) -> Tensor:
    """Convert inputs to rows; return rows unchanged.

    Args:
        X: The inputs.
        encoding: Encoding of mixed inputs. Default: the encoding that they define.

    Raises:
        TypeError: If ``X`` is of another type, or a tensor of integers.
        ValueError: If mixed inputs do not fit the encoding.
    """
    return X.pack(encoding) if isinstance(X, MixedInputs) else as_rows(X)
