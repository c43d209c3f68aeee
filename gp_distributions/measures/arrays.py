"""Arrays and numbers that a caller passes: checked, converted to tensors, and validated as clouds."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.rows.tensors import (
    check_content,
    copy_filled,
    filled,
    is_wide,
    untouched_zeros,
)


def described(value: Any) -> str:
    """Name the class of a value, or the class itself if the caller passed one instead of an instance."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_type(value: object, *kinds: type) -> None:
    """Check that a value is an instance of one of some classes.

    Raises:
        TypeError: If it is not. The message says how lists of arrays are read.
    """
    if not isinstance(value, kinds):
        names = [kind.__name__ for kind in kinds]
        advice = ""
        if "PointClouds" in names:
            advice = " Convert a list of arrays with PointClouds.from_list."
        raise TypeError(f"Expected {' or '.join(names)}, got {described(value)}.{advice}")


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
        # An array of arrays, as in Parquet files.
        if isinstance(value, np.ndarray) and value.dtype == object:
            value = value.tolist()
        value = value.as_py() if hasattr(value, "as_py") else value  # a list in a PyArrow column
        array = value if isinstance(value, Tensor) else as_floats(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name}: expected an array, got nested sequences of unequal lengths; give all atoms of a "
            "bag the same number of coordinates, and pass bags of unequal sizes to "
            "PointClouds.from_list, those of pandas as dict(iter(frame.groupby(name)[columns]))."
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
        raise ValueError(
            f"{name}: expected real numbers, got {next(strange, array.dtype)}. Convert text to numbers, "
            "and times to days by (times - times.min()) / pandas.Timedelta('1D')."
        )
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
            " Leave out what is empty, such as groups without rows."
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
    return len(getattr(value, "shape", ()))


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


# A function that maps an index into the batch axes to the distribution's name in error messages.
Name: TypeAlias = Callable[[tuple[int, ...]], str]

# Atoms, weights that sum to one, and the masses of clouds, the sums of the weights before.
Clouds: TypeAlias = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Wording:
    """Names of clouds and their weights in error messages.

    Attributes:
        noun: The word for what the caller passed: a bag, an image, a curve or a mesh.
        weights: The word for the weights: weights, intensities, arc lengths or areas.
        labels: Labels of the clouds, of shape ``batch_shape``, or None.
    """

    noun: str = "Bag"
    weights: str = "weights"
    labels: Labels | None = None

    def __call__(self, index: tuple[int, ...]) -> str:
        """Return the name of the cloud at the given index into the batch axes."""
        if not index:
            return f"The {self.noun.lower()}"
        label = "" if self.labels is None else f" (label {self.labels[index]})"
        return f"{self.noun} {index[0] if len(index) == 1 else index}{label}"


def validated(points: Tensor, weights: Tensor, wording: Wording) -> Clouds:
    """Validate atoms and weights, and divide the weights of each cloud by their sum.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        wording: Names of the clouds in error messages.

    Returns:
        The points unchanged, weights that sum to one, and the ``batch_shape`` sums by which they were
        divided, differentiable in ``weights``.

    Raises:
        ValueError: If a coordinate is not finite, a weight is negative or not finite, or the
            weights of a cloud are all zero.
    """
    # A sum is finite only if all its terms are, and takes no memory for a mask.
    if not points.detach().sum().isfinite():
        where = " in atom {}, coordinate {}. Leave out atoms that lack one, such as padding"
        check_entries(points.isfinite(), points, wording, "finite coordinates", where)
    if not weights.detach().sum().isfinite() or (weights < 0).any():
        valid = weights.isfinite() & (weights >= 0)
        check_entries(valid, weights, wording, f"finite {wording.weights} >= 0", " in atom {}")
    # The order of summation depends on the strides; contiguous rows make equal weights stay equal.
    total = weights.contiguous().sum(-1, keepdim=True)
    valid = total.isfinite() & (total > 0)
    expected = f"{wording.weights} with a positive, finite sum"
    check_entries(valid[..., 0], total[..., 0], wording, expected, "")
    # A sum within rounding of one counts as one: normalising twice changes nothing.
    rounding = 32 * torch.finfo(weights.dtype).eps
    error = torch.where((total - 1).abs() <= rounding, total - 1, 0.0).detach()
    if is_wide(weights):
        shares = untouched_zeros(tuple(weights.shape), weights)
        copy_filled(weights, shares)
        for row, sum_of in zip(shares.flatten(0, -2), (total - error).flatten(), strict=True):
            row[: filled(row)] /= sum_of
        return points, shares, total.squeeze(-1)
    return points, weights / (total - error), total.squeeze(-1)


def check_entries(valid: Tensor, values: Tensor, name: Name, expected: str, where: str) -> None:
    """Raise an error that names the first invalid entry, if there is one.

    Args:
        valid: A tensor of booleans in the shape of ``values``.
        values: A tensor whose first axes are the batch axes.
        name: Names of the distributions in error messages.
        expected: What the error message says was expected of each entry.
        where: Description of an entry's place, with one ``{}`` for each axis of ``values`` after the
            batch axes.

    Raises:
        ValueError: If an entry is not valid.
    """
    if not valid.all():
        index = tuple((~valid).nonzero()[0].tolist())
        batch = len(index) - where.count("{}")
        raise ValueError(
            f"{name(index[:batch])}: expected {expected}, got {values[index].item()}"
            f"{where.format(*index[batch:])}."
        )


def equal_weights(points: Tensor) -> Tensor:
    """Return ``batch_shape x n`` weights of ``1 / n`` for a ``batch_shape x n x d`` tensor of atoms."""
    return points.new_full(points.shape[:-1], 1 / points.shape[-2])
