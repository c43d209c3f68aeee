"""Arrays and tensors as callers give them: which are taken, and how they become tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array: TypeAlias = Tensor | npt.NDArray[Any]
Data: TypeAlias = Tensor | npt.ArrayLike

_NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
_RAGGED = (
    "expected an array, got nested sequences of unequal lengths; bags of unequal sizes are read by "
    "PointClouds.from_list."
)


def real_array(value: Data, name: str) -> Array:
    """Take an array or tensor of real numbers as it is.

    Raises:
        ValueError: If the value is ragged, masked, or holds anything but real numbers.
    """
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) for v in value):
        if len({v.shape for v in value}) > 1:
            raise ValueError(f"{name}: {_RAGGED}")
        value = torch.stack(list(value))
    if isinstance(value, Tensor):
        if value.is_complex():
            raise ValueError(f"{name}: expected real numbers, got dtype {value.dtype}.")
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name}: expected an array, got a masked array, whose mask would be lost; give masked "
            "atoms weight 0 or leave them out."
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {_RAGGED}") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected real numbers, got an array of dtype {array.dtype}.")
    return array


def point_array(value: Data, name: str, shape: str) -> Array:
    """Take an array of atoms, without batch axes or with any, whose axes are all non-empty.

    Raises:
        ValueError: As :func:`real_array`, or if the array has fewer than two axes or is empty.
    """
    array = real_array(value, name)
    if 0 in array.shape:
        raise ValueError(
            f"{name}: expected at least one atom of at least one coordinate, got an empty array of "
            f"shape {tuple(array.shape)}."
        )
    if array.ndim < 2:
        hint = "; did you mean array[:, None]?" if array.ndim == 1 else "."
        raise ValueError(
            f"{name}: expected an array of shape {shape}, got a {array.ndim}-D array of shape "
            f"{tuple(array.shape)}{hint}"
        )
    return array


def common_dtype(arrays: Iterable[Array]) -> torch.dtype:
    """Single precision where every array is in single precision, double otherwise.

    Integers, booleans and half precision become double: that is exact, and sums of squares in half
    precision would not be.
    """
    return torch.float32 if all(map(_is_single, {a.dtype for a in arrays})) else torch.float64


def _is_single(dtype: torch.dtype | np.dtype[Any]) -> bool:
    if isinstance(dtype, torch.dtype):
        return dtype == torch.float32
    return dtype.kind == "f" and dtype.itemsize == 4


def common_device(arrays: Iterable[Array]) -> torch.device:
    """The device of the tensors among the arrays; the CPU if there are none.

    Raises:
        ValueError: If the tensors lie on several devices.
    """
    devices = {a.device for a in arrays if isinstance(a, Tensor)}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"Expected all tensors on one device, got tensors on {names}.")
    return devices.pop() if devices else torch.device("cpu")


def to_tensor(array: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Convert an array to a tensor that shares no memory with it; a tensor of that kind stays."""
    if isinstance(array, Tensor):
        return array.to(device=device, dtype=dtype)
    return torch.from_numpy(np.array(array, dtype=_NUMPY_DTYPES[dtype], order="C")).to(device)


def concatenate(arrays: list[Array], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Join arrays along their first axis as one new tensor."""
    if any(isinstance(a, Tensor) for a in arrays):
        return torch.cat([to_tensor(a, dtype, device) for a in arrays])
    joined = np.concatenate(arrays, dtype=_NUMPY_DTYPES[dtype], casting="unsafe")
    return torch.from_numpy(joined).to(device)


def integer(value: int, name: str, least: int = 1) -> int:
    """Take a count.

    Raises:
        ValueError: If it is no integer, or below ``least``.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = least - 1
    if count < least or isinstance(value, bool):
        raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}.")
    return count


def is_missing(value: object) -> bool:
    """Whether a value stands for none, such as None, NaN, NaT and the missing value of pandas."""
    if value is None:  # also what tolist makes of NaT
        return True
    unequal = value != value  # of NaN and NaT it is true; pandas.NA gives no bool at all
    return bool(unequal) if isinstance(unequal, bool | np.bool_) else True
