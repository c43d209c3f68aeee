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
from gp_distributions.rows.tensors import check_content

Array: TypeAlias = Tensor | npt.NDArray[Any]
Data: TypeAlias = Tensor | npt.ArrayLike
# Names of distributions, or the classes to which they belong.
Labels: TypeAlias = npt.NDArray[Any]

_NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}


def real_array(value: Data, name: str) -> Array:
    """Return a dense array or tensor of real numbers unchanged; convert other values to an array.

    Args:
        value: An array, a tensor, or nested sequences of numbers.
        name: Name of the value in error messages.

    Raises:
        TypeError: If the value is a tensor within a transform of ``torch.func``.
        ValueError: If the value is ragged, masked, sparse or not made of real numbers.
    """
    refuse_mask(value, name, "give masked atoms weight 0 or leave them out")
    try:
        if isinstance(value, list | tuple) and any(isinstance(x, Tensor) for x in value):
            value = torch.stack([torch.as_tensor(x) for x in value])
        if (
            isinstance(value, np.ndarray) and value.dtype == object
        ):  # of arrays, as in Parquet files
            value = value.tolist()
        value = value.as_py() if hasattr(value, "as_py") else value  # a list in a PyArrow column
        array = value if isinstance(value, Tensor) else as_floats(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name}: expected an array, got nested sequences of unequal lengths; give all atoms of a "
            "bag the same number of coordinates, and pass bags of unequal sizes to "
            "PointClouds.from_list."
        ) from error
    if issparse(value) or (isinstance(array, Tensor) and array.layout != torch.strided):
        raise ValueError(
            f"{name}: expected a dense array, got a sparse one. Convert SciPy arrays with toarray(), "
            "and tensors with to_dense()."
        )
    if isinstance(array, Tensor):
        check_content(array)
    if array.is_complex() if isinstance(array, Tensor) else array.dtype.kind not in "biuf":
        entries: Any = (
            [] if isinstance(value, Tensor) else np.ndenumerate(np.asarray(value, dtype=object))
        )
        strange = (
            f"{v!r} at {place}" for place, v in entries if not isinstance(v, int | float | Decimal)
        )
        raise ValueError(f"{name}: expected real numbers, got {next(strange, array.dtype)}.")
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
    if array.ndim < 2 or 0 in array.shape or (array.ndim > 2 and not shape.startswith("(...")):
        hint = "; write n numbers as an array of shape (n, 1)" * (array.ndim == 1)
        raise ValueError(
            f"{name}: expected a non-empty array of shape {shape}, got shape {tuple(array.shape)}{hint}."
        )
    return array


def given_points(value: Data, name: str, shape: tuple[str, int]) -> Tensor:
    """Return points that a user gives, in double precision.

    Args:
        value: An array, a tensor, or nested sequences of numbers.
        name: Name of the value in error messages.
        shape: Name of their number, and their dimension.

    Raises:
        ValueError: As for :func:`point_array`, or if a point has another dimension or is not finite.
    """
    expected = f"({shape[0]}, {shape[1]})"
    array = point_array(value, name, expected)
    points = to_tensors([array])[0].detach().double()
    if array.shape[1] != shape[1] or not points.isfinite().all():
        raise ValueError(
            f"{name}: expected finite numbers of shape {expected}, got shape {tuple(array.shape)}."
        )
    return points


def to_tensor(array: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy an array to a tensor; return a tensor that already has this dtype and device unchanged."""
    if isinstance(array, Tensor):
        return array.to(device=device, dtype=dtype)
    return torch.from_numpy(np.array(array, dtype=_NUMPY_DTYPES[dtype], order="C")).to(device)


def to_tensors(arrays: Sequence[Array]) -> list[Tensor]:
    """Convert arrays to tensors of one dtype, on the device of the first tensor.

    The dtype is single precision if all arrays are in single precision, and double precision otherwise.
    """
    devices = [a.device for a in arrays if isinstance(a, Tensor)]
    device = devices[0] if devices else torch.device("cpu")
    single = {str(dtype) for dtype in {a.dtype for a in arrays}} <= {"float32", "torch.float32"}
    dtype = torch.float32 if single else torch.float64
    return [to_tensor(a, dtype, a.device if isinstance(a, Tensor) else device) for a in arrays]


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


def positive(value: float | Tensor, name: str) -> float:
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
