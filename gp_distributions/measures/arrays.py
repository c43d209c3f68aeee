"""The arrays and numbers that a caller passes: checked, and converted to tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.rows.contents import check_content

Array: TypeAlias = Tensor | npt.NDArray[Any]
Data: TypeAlias = Tensor | npt.ArrayLike

_NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}
_SINGLE = {"torch.float32", "float32", "<f4", ">f4"}
_RAGGED = (
    "expected an array, got nested sequences of unequal lengths; give all atoms of a bag the same "
    "number of coordinates, and pass bags of unequal sizes to PointClouds.from_list."
)
_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
# Largest number of characters of a value in an error message.
_SHOWN = 60


def real_array(value: Data, name: str) -> Array:
    """Return a dense array or tensor of real numbers unchanged; convert other values to an array.

    Decimals and other numbers in an array of objects become floating-point numbers.

    Args:
        value: An array, a tensor, or nested sequences of numbers.
        name: Name of the value in error messages.

    Raises:
        TypeError: If the value is a tensor within a transform of ``torch.func``.
        ValueError: If the value is ragged, masked, sparse or not made of real numbers.
    """
    refuse_mask(value, name, "give masked atoms weight 0 or leave them out")
    if (
        isinstance(value, np.ndarray) and value.dtype == object
    ):  # maybe of arrays, as in Parquet files
        value = value.tolist()
    parts: Any = value if isinstance(value, list | tuple) else [value]
    if any(issparse(x) or (isinstance(x, Tensor) and x.layout in _SPARSE) for x in parts):
        raise ValueError(
            f"{name}: expected a dense array, got a sparse one. Convert SciPy arrays with toarray(), "
            "and tensors with to_dense()."
        )
    try:
        if isinstance(value, list | tuple) and parts and all(isinstance(x, Tensor) for x in parts):
            value = torch.stack(parts)
        if not isinstance(value, Tensor):
            array = as_floats(np.asarray(value))
        elif value.is_nested:
            raise ValueError
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {_RAGGED}") from error
    if isinstance(value, Tensor):
        if value.is_complex():
            raise ValueError(f"{name}: expected real numbers, got dtype {value.dtype}.")
        check_content(value)
        return value
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


def dtype_and_device(arrays: Sequence[Array]) -> tuple[torch.dtype, torch.device]:
    """Return the dtype and the device to which all arrays are converted.

    This is single precision if all arrays are in single precision, and double precision otherwise.
    Integers, booleans and half precision become double precision: the conversion is exact, whereas
    sums of squares in half precision would be inexact.

    Raises:
        ValueError: If the tensors are on more than one device.
    """
    devices = {a.device for a in arrays if isinstance(a, Tensor)}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"Expected all tensors on one device, got tensors on {names}.")
    single = {str(a.dtype) for a in arrays} <= _SINGLE
    dtype = torch.float32 if single else torch.float64
    return dtype, devices.pop() if devices else torch.device("cpu")


def to_tensor(array: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy an array to a tensor; return a tensor that already has this dtype and device unchanged."""
    if isinstance(array, Tensor):
        return array.to(device=device, dtype=dtype)
    return torch.from_numpy(np.array(array, dtype=_NUMPY_DTYPES[dtype], order="C")).to(device)


def to_tensors(arrays: Sequence[Array]) -> list[Tensor]:
    """Convert arrays to tensors with their common dtype and device."""
    dtype, device = dtype_and_device(arrays)
    return [to_tensor(array, dtype, device) for array in arrays]


def double(bag: Any, name: str) -> Tensor:
    """Convert an array to a tensor in double precision on the CPU, without gradients."""
    return to_tensor(real_array(bag, name), torch.float64, torch.device("cpu")).detach()


def row_tensor(rows: Data, dim: int) -> tuple[Tensor, int]:
    """Convert rows to a tensor, and check the dimension of what they hold.

    Raises:
        ValueError: As for :func:`real_array`, or if there are no rows, or ``dim`` is no integer >= 1.
    """
    array = real_array(rows, "Rows")
    if 0 in array.shape[:-1]:
        raise ValueError(f"Rows: expected at least one row, got shape {tuple(array.shape)}.")
    return to_tensors([array])[0], integer(dim, "dim")


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
    if count_axes(value):
        return False
    unequal = value != value  # true for NaN and NaT; not a bool for pandas.NA
    return bool(unequal) if isinstance(unequal, bool | np.bool_) else True


def is_number(value: Any) -> bool:
    """Return whether a value is a number, or text that reads as one, with a decimal point or comma."""
    try:
        float(value.replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        return False
    return True


def count_axes(value: Any) -> int:
    """Return the number of axes of an array or of nested lists, of which the first entries count."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    if isinstance(value, list | tuple):
        return 1 + (count_axes(value[0]) if value else 0)
    return int(getattr(value, "ndim", 0))


def object_array(values: list[Any]) -> npt.NDArray[Any]:
    """Return a one-dimensional array of objects, even if the objects are sequences themselves."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def seeded(seed: int | torch.Generator, device: torch.device) -> torch.Generator:
    """Return a generator on the device with the given seed; return a given generator unchanged."""
    if isinstance(seed, torch.Generator):
        return seed
    return torch.Generator(device).manual_seed(integer(seed, "seed", least=0))


def given_scale(scale: Data, like: Tensor) -> Tensor:
    """Convert one scale, or one for each coordinate, to a tensor.

    Args:
        scale: One positive number or ``d`` of them.
        like: A tensor of shape ``d`` that determines the dtype and device of the scale.

    Raises:
        ValueError: If a scale is not positive and finite, or the number of scales is not 1 or ``d``.
    """
    divisor = to_tensor(real_array(scale, "scale"), like.dtype, like.device)
    if divisor.shape not in {(), like.shape} or not ((divisor > 0) & divisor.isfinite()).all():
        raise ValueError(
            f"scale: expected one positive number or {len(like)} of them, got {divisor.tolist()}."
        )
    return divisor


def unit_powers(sizes: Tensor) -> Tensor:
    """Return the powers of two that bring sizes into the range from 1/2 to 1.

    The product with a power of two is exact, so that products and squares of numbers in these units have
    the same digits, but neither overflow nor underflow.

    Args:
        sizes: A tensor of non-negative numbers. A size of zero has the unit 1.

    Returns:
        A tensor of the same shape, without a gradient.
    """
    sizes = sizes.detach()
    tiny = torch.finfo(sizes.dtype).tiny
    powers = (sizes.frexp().mantissa / sizes).clamp(tiny, 1 / tiny)
    return torch.where(sizes > 0, powers, 1.0)
