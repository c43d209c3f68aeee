"""Check the arrays and tensors that the caller passes, and convert them to tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.numerics.masks import refuse_mask
from gp_distributions.rows.contents import check_content

Array: TypeAlias = Tensor | npt.NDArray[Any]
Data: TypeAlias = Tensor | npt.ArrayLike

_NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
_SINGLE = {"torch.float32", "float32", "<f4", ">f4"}
_RAGGED = (
    "expected an array, got nested sequences of unequal lengths; give all atoms of a bag the same "
    "number of coordinates, and pass bags of unequal sizes to PointClouds.from_list."
)
# Largest number of characters of a value in an error message.
_SHOWN = 60


def real_array(value: Data, name: str) -> Array:
    """Return a dense array or tensor of real numbers unchanged; convert other values to an array.

    Args:
        value: An array, a tensor, or nested sequences of numbers.
        name: Name of the value in error messages.

    Raises:
        TypeError: If the value is a tensor within a transform of ``torch.func``.
        ValueError: If the value is ragged, masked, sparse or not made of real numbers.
    """
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) for v in value):
        if len({v.shape for v in value}) > 1:
            raise ValueError(f"{name}: {_RAGGED}")
        value = torch.stack(list(value))
    if isinstance(value, Tensor):
        if value.is_nested:
            raise ValueError(f"{name}: {_RAGGED}")
        if value.layout != torch.strided:
            raise ValueError(
                f"{name}: expected a dense tensor, got layout {value.layout}; convert it with "
                ".to_dense()."
            )
        if value.is_complex():
            raise ValueError(f"{name}: expected real numbers, got dtype {value.dtype}.")
        check_content(value)
        return value
    refuse_mask(value, name, "give masked atoms weight 0 or leave them out")
    if any(map(issparse, value if isinstance(value, (list, tuple)) else [value])):
        raise ValueError(
            f"{name}: expected a dense array, got a SciPy sparse array; convert it with .toarray()."
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {_RAGGED}") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected real numbers, got {_strange(value, array)}.")
    return array


def point_array(value: Data, name: str, shape: str) -> Array:
    """Return a non-empty array of atoms.

    Args:
        value: An array, a tensor, or nested sequences of numbers.
        name: Name of the value in error messages.
        shape: Expected shape: two axes, or ``"(..., n, d)"``, which also allows batch axes.

    Raises:
        ValueError: As for :func:`real_array`, or if the array is empty or of another shape.
    """
    array = real_array(value, name)
    if 0 in array.shape:
        raise ValueError(
            f"{name}: expected at least one atom with at least one coordinate, got an empty array "
            f"of shape {tuple(array.shape)}."
        )
    if array.ndim < 2 or (array.ndim > 2 and not shape.startswith("(...")):
        hints = {
            0: "; pass a single bag in a list, [bag].",
            1: "; write n numbers as an array of shape (n, 1).",
        }
        hint = "." if shape.startswith("(...") and not array.ndim else hints.get(array.ndim, ".")
        raise ValueError(
            f"{name}: expected an array of shape {shape}, got a {array.ndim}-D array of shape "
            f"{tuple(array.shape)}{hint}"
        )
    return array


def shown(value: object) -> str:
    """Return a value as text for error messages, of which long ones are cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _strange(value: Any, array: npt.NDArray[Any]) -> str:
    """Describe a value that is not made of real numbers: its first entry that is none."""
    if hasattr(value, "__geo_interface__"):
        return f"a {type(value).__name__}; read shapes with PointClouds.from_curves or from_meshes"
    if not array.ndim:
        return shown(value)
    entries = np.asarray(value, dtype=object)
    numbers = (int, float, np.integer, np.floating)
    first = next((i for i, v in np.ndenumerate(entries) if not isinstance(v, numbers)), None)
    if first is None:
        return f"an array of dtype {array.dtype}"
    place = first[0] if len(first) == 1 else tuple(first)
    return f"an array of dtype {array.dtype}, with {shown(entries[first])} at {place}"


def common_dtype(arrays: Iterable[Array]) -> torch.dtype:
    """Return single precision if all arrays are in single precision, and double precision otherwise.

    Integers, booleans and half precision become double precision: the conversion is exact, whereas
    sums of squares in half precision would be inexact.
    """
    return torch.float32 if {str(a.dtype) for a in arrays} <= _SINGLE else torch.float64


def common_device(arrays: Iterable[Array]) -> torch.device:
    """Return the device of the tensors among the arrays, or the CPU if there are none.

    Raises:
        ValueError: If the tensors are on more than one device.
    """
    devices = {a.device for a in arrays if isinstance(a, Tensor)}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"Expected all tensors on one device, got tensors on {names}.")
    return devices.pop() if devices else torch.device("cpu")


def dtype_and_device(arrays: Sequence[Array]) -> tuple[torch.dtype, torch.device]:
    """Return the dtype and the device to which all arrays are converted."""
    return common_dtype(arrays), common_device(arrays)


def to_tensor(array: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy an array to a tensor; return a tensor that already has this dtype and device unchanged."""
    if isinstance(array, Tensor):
        return array.to(device=device, dtype=dtype)
    return torch.from_numpy(np.array(array, dtype=_NUMPY_DTYPES[dtype], order="C")).to(device)


def to_tensors(arrays: Sequence[Array]) -> list[Tensor]:
    """Convert arrays to tensors with their common dtype and device."""
    dtype, device = dtype_and_device(arrays)
    return [to_tensor(array, dtype, device) for array in arrays]


def row_tensor(rows: Data) -> Tensor:
    """Convert rows to a tensor.

    Raises:
        ValueError: As for :func:`real_array`, or if there are no rows.
    """
    array = real_array(rows, "Rows")
    if 0 in array.shape[:-1]:
        raise ValueError(f"Rows: expected at least one row, got shape {tuple(array.shape)}.")
    return to_tensors([array])[0]


def concatenate(arrays: list[Array], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Concatenate arrays along their first axis into a new tensor."""
    if any(isinstance(a, Tensor) for a in arrays):
        return torch.cat([to_tensor(a, dtype, device) for a in arrays])
    joined = np.concatenate(arrays, dtype=_NUMPY_DTYPES[dtype], casting="unsafe")
    return torch.from_numpy(joined).to(device)


def integer(value: int, name: str, least: int = 1) -> int:
    """Return a count as an ``int``, after checking it.

    Raises:
        ValueError: If the count is not an integer or is less than ``least``.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if count < least or isinstance(value, bool):
        raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}.")
    return count


def positive(value: float, name: str) -> float:
    """Return a number as a ``float``, after checking it.

    Raises:
        ValueError: If it is not one number, positive and finite.
    """
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"Expected {name} > 0 and finite, got {value!r}.")
    return number


def as_floats(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of objects that are all decimals, integers or floats as an array of floats.

    Databases return ``Decimal`` objects. Other arrays are returned unchanged.
    """
    if array.dtype != object:
        return array
    numbers = all(
        isinstance(value, Decimal | int | float) and not isinstance(value, bool)
        for value in array.flat
    )
    return array.astype(np.float64) if numbers else array


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, NaN, NaT or ``pandas.NA``."""
    if value is None:  # tolist() also turns NaT into None
        return True
    unequal = value != value  # true for NaN and NaT; not a bool for pandas.NA
    return bool(unequal) if isinstance(unequal, bool | np.bool_) else True
