"""Single bags as the caller passes them: arrays, tensors, nested lists, cells of data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.measures.arrays import real_array, to_tensor


def count_axes(bag: Any) -> int:
    """Return the number of axes of a bag, or zero if it is none.

    Of nested lists and arrays of objects, only the first entries are counted.
    """
    if isinstance(bag, list | tuple):
        return 1 + (count_axes(bag[0]) if bag else 0)
    if not (hasattr(bag, "__array__") or hasattr(bag, "ndim")):
        return 0
    if isinstance(bag, np.ndarray) and bag.dtype == object:
        return bag.ndim + (count_axes(bag.flat[0]) if bag.size else 0)
    return int(np.ndim(bag))


def double(bag: Any, name: str) -> Tensor:
    """Convert a bag to a tensor in double precision, on its device and with its gradients.

    Args:
        bag: An array, a tensor or nested lists; an array of objects counts as nested lists.
        name: Name of the bag in error messages.

    Raises:
        TypeError: If the bag is sparse.
        ValueError: If it is ragged, masked or not made of real numbers.
    """
    if issparse(bag) or (isinstance(bag, Tensor) and bag.layout != torch.strided):
        raise TypeError(
            f"{name}: expected a dense array, got a sparse one. Convert SciPy arrays with toarray(), "
            "and tensors with to_dense()."
        )
    if not isinstance(bag, list | tuple | Tensor):
        bag = np.asanyarray(bag)
        if bag.dtype == object:  # of arrays, as pandas reads nested lists from Parquet files
            bag = [np.asarray(row).tolist() for row in bag] if bag.ndim else bag.item()
    array = real_array(bag, name)
    device = array.device if isinstance(array, Tensor) else torch.device("cpu")
    return to_tensor(array, torch.float64, device)
