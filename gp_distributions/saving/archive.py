"""Files of saved models: their signature, and the version of their format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gp_distributions.sealing import Kind, read_sealed, write_sealed

SIGNATURE = b"\x89GPDIST\n"
FORMAT = 1


class SavedModelError(ValueError):
    """Raised for a file that is damaged, truncated, too new or not written by :func:`save`."""


def write_archive(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Write the file of a model, as :func:`write_sealed` does."""
    write_sealed(path, _kind(), header, tensors)


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Tensor]]:
    """Read the file of a model, as :func:`read_sealed` does.

    Raises:
        SavedModelError: If the file is damaged, truncated, too new or of another kind.
        OSError: If the file cannot be read.
    """
    return read_sealed(path, _kind())


def _kind() -> Kind:
    return Kind(SIGNATURE, FORMAT, "a model written by gp_distributions.save", SavedModelError)
