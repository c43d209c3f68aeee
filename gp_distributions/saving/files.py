"""Save models to files and load them again, with predictions that agree to the last bit."""

from __future__ import annotations

import json
import os
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import Module

from gp_distributions.distances.base import Distance
from gp_distributions.files import read_tensors, write_tensors
from gp_distributions.measures.arrays import check_type
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.saving.description import ADVICE, Description, restore
from gp_distributions.warnings import silenced

__all__ = ["SavedModelError", "load", "save"]

_KIND = "a model written by gp_distributions.save"


class SavedModelError(ValueError):
    """Raised for a file that is damaged, of another version or not written by :func:`save`."""


def save(model: Module | BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Save a model, or a fitted estimator, to a file from which :func:`load` restores it.

    The file contains the training data, the kernel with its parameters, directions and reference, the
    likelihood, the mean, the transforms and the versions of the software, but not the labels of
    clouds. Instead of the training data, the file of a :class:`SparseDistributionGP` contains the
    inducing clouds and sums. With the same versions, processor and number of threads, the loaded model
    makes the same predictions to the last bit. To ensure this, ``save`` clears the caches of the model.
    Cached results that were updated rather than computed from scratch, for example by
    ``condition_on_observations``, would differ by rounding errors.

    An existing file is replaced in one step after the new one has been written completely. Until then,
    the new file is named ``.NAME.ID.unfinished``, in the same folder; it stays if the process is killed.
    Two processes may save to the same path at the same time: the last to finish wins.

    Args:
        model: A :class:`DistributionGP`, :class:`SharedKernelGP`, :class:`CurveGP`,
            :class:`AggregateGP`, :class:`ClassificationGP`, :class:`SparseDistributionGP`,
            :class:`SparseAggregateGP`, :class:`SparseClassificationGP`,
            :class:`VariationalAggregateGP` or :class:`VariationalDistributionGP`, with any number of
            members. Its kernel may combine kernels of this package and of GPyTorch with
            ``ScaleKernel``, ``+`` and ``*``. Or a fitted :class:`DistributionGPRegressor` or
            :class:`DistributionGPClassifier`.
        path: Path to the file, with any suffix.

    Raises:
        TypeError: If ``model`` is neither; or part of it belongs to a class that cannot be restored,
            such as one that you defined; or a pipeline has other steps. The message says how to save it
            instead. Nothing is written.
        sklearn.exceptions.NotFittedError: If an estimator is not fitted.
        OSError: If the path is a folder, or if writing fails. An existing file is then unchanged.

    Example:
        >>> import os, tempfile
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, load, save
        >>> points = torch.randn(6, 9, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds = PointClouds(points)
        >>> model = DistributionGP(clouds, points.mean((1, 2)))
        >>> path = os.path.join(tempfile.mkdtemp(), "means.gp")
        >>> save(model, path)
        >>> torch.equal(load(path).predict(clouds)[0], model.predict(clouds)[0])
        True
    """
    check_type(model, Module, BaseEstimator)
    description = Description()
    description.of(model)
    if isinstance(model, BaseEstimator):
        check_is_fitted(model)
    _check_restored(description)
    write_tensors(path, _KIND, {"objects": description.objects}, description.tensors)
    # Predictions are now computed from scratch, as they are by the loaded model.
    for value in description.described:
        if isinstance(value, DistributionGP):
            value.prediction_strategy = None
        for module in value.modules() if isinstance(value, Module) else ():
            if isinstance(module, Distance):
                module.clear_cache()


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model or an estimator from a file that :func:`save` wrote. Its tensors are on the CPU.

    The file is a file of safetensors. Nothing in it is executed: it only names classes from a fixed list
    and their arguments. The digest in a file reveals accidents, not forgeries: what a file from someone
    else predicts, and the memory that it asks for, are as trustworthy as they are.

    Args:
        path: Path to the file.

    Returns:
        The model, in training or evaluation mode as it was saved; or the estimator or pipeline.

    Raises:
        SavedModelError: If the file is damaged, truncated, in the format of another version, or was
            not written by :func:`save`. The message names the version that wrote it if that can still
            be read; files of version 0.3 and earlier are not read.
        OSError: If the file cannot be read.

    Example:
        >>> import os, tempfile
        >>> import torch
        >>> from gp_distributions import ClassificationGP, PointClouds, load, save
        >>> points = torch.randn(6, 9, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> path = os.path.join(tempfile.mkdtemp(), "classes.gp")
        >>> save(ClassificationGP(PointClouds(points), ["a", "b"] * 3), path)
        >>> load(path).classes_.tolist()
        ['a', 'b']
    """
    try:
        header, tensors = read_tensors(path, _KIND)
    except OSError:
        raise
    except Exception as error:
        raise SavedModelError(str(error)) from error
    try:
        return _restored(header["objects"], tensors)[-1]
    except Exception as error:
        raise SavedModelError(
            f"{path} is not damaged, but the model cannot be restored here: {error!r}. It was written "
            f"with {header.get('versions')}."
        ) from error


def _restored(objects: list[dict[str, Any]], tensors: list[Tensor]) -> list[Any]:
    with silenced():  # the warnings were raised when the model was first built
        return restore(objects, tensors)


def _check_restored(description: Description) -> None:
    """Raise an error if a restored model would differ."""
    tensors = [tensor.clone() for tensor in description.tensors]
    try:
        restored = _restored(description.objects, tensors)
    except Exception as error:
        raise TypeError(
            f"The model cannot be saved because it could not be restored: {error} {ADVICE}"
        ) from error
    again = Description()
    again.of(restored[-1])
    for before, after in zip(description.objects, again.objects, strict=True):
        changed = [name for name in before if _text(before[name]) != _text(after[name])]
        if changed:
            raise TypeError(
                f"The model cannot be saved because {', '.join(changed)} of {before['class']} would "
                f"change when it is restored. {ADVICE}"
            )


def _text(described: Any) -> str:
    return json.dumps(described, sort_keys=True)
