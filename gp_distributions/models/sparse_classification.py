"""Sparse Gaussian process classification of many distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import positive
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.arguments import check_batch_size, read_temperatures
from gp_distributions.models.collapsed import (
    CollapsedPosterior,
    CollapsedSums,
    InducingFeatures,
)
from gp_distributions.models.inducing import num_candidates
from gp_distributions.models.kernel_ridge import Labels, read_labels
from gp_distributions.models.labelling import DistinctLabels, Labelling
from gp_distributions.models.leave_one_out import LabelDensities, left_out_proba
from gp_distributions.models.pieces import LabelledPieces, MemoryPieces, Pieces, Sample, first_row
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.models.targets import check_order
from gp_distributions.numerics.predictions import expected_softmax, tempered
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.sharded_clouds import ShardedClouds


class SparseClassificationGP(SparseDistributionGP):
    r"""Sparse Gaussian process classification of distributions, with calibrated probabilities.

    The model is to :class:`ClassificationGP` what :class:`SparseDistributionGP` is to
    :class:`DistributionGP`: each class has a latent function, all of them share one kernel, and the
    labels become regression targets of known noise, in the process that reads them. One pass over the
    data forms the sums of all classes. :func:`gp_distributions.fit` learns the hyperparameters from an
    exact model of 1000 random clouds, and :func:`fit_classification` also selects ``alpha_epsilon``.

    Args:
        train_X: The training clouds, as for :class:`SparseDistributionGP`.
        train_Y: The ``T`` labels: strings, integers or other values that NumPy can sort. ``None`` if the
            pieces carry their labels.
        covar_module: A kernel on rows, as for :class:`SparseDistributionGP`.
        num_inducing: Number ``M`` of inducing clouds.
        alpha_epsilon: The concentration of the classes that are not the label, as for
            :class:`ClassificationGP`.
        temperature: The temperature of the probabilities, as for :class:`ClassificationGP`.
        input_transform: A transform from the model's inputs to rows.
        feature_dtype: Precision of the features of clouds, as for :class:`SparseDistributionGP`.
        seed: As for :class:`SparseDistributionGP`.
        client: As for :class:`SparseDistributionGP`. Its workers also find the classes of delayed
            pieces.
        progress: As for :class:`SparseDistributionGP`.

    Attributes:
        classes_: The ``C`` distinct labels in sorted order, as an array. :class:`ShardedClouds` are
            searched for all their labels: in files, the columns of labels are read, and delayed pieces
            are computed once more. Other data in pieces give all labels by a method ``targets()``;
            without it, those in the random sample count.

    Raises:
        TypeError: As for :class:`SparseDistributionGP`.
        ValueError: As for :class:`SparseDistributionGP`; if there are fewer than two classes; if a piece
            has a label that is not one of ``classes_``; or if ``alpha_epsilon`` or ``temperature`` is
            not positive.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SparseClassificationGP, fit
        >>> noise = torch.randn(40, 15, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> wide = torch.arange(40) % 2
        >>> clouds = PointClouds(noise * (1 + 2 * wide).reshape(-1, 1, 1))
        >>> labels = ["wide" if w else "narrow" for w in wide]
        >>> model = SparseClassificationGP(clouds[:36], labels[:36], num_inducing=20)
        >>> fit(model, restarts=0).predict(clouds[36:]).tolist()
        ['narrow', 'wide', 'narrow', 'wide']

    Sources: Milios, Camoriano, Michiardi, Rosasco and Filippone 2018; Titsias 2009.
    """

    def __init__(
        self,
        train_X: Inputs | Tensor | Pieces,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        num_inducing: int = 1000,
        alpha_epsilon: float = 0.01,
        temperature: float = 1.0,
        input_transform: InputTransform | None = None,
        feature_dtype: torch.dtype = torch.float64,
        seed: int = 0,
        client: Any = None,
        progress: bool = True,
    ) -> None:
        options: Any = {"client": client, "progress": progress}
        sample = num_candidates(num_inducing), seed
        pieces, classes, kept, drawn = _labelled(train_X, train_Y, sample, options)
        super().__init__(
            LabelledPieces(pieces, Labelling(kept, float(alpha_epsilon)), drawn),
            None,
            covar_module,
            num_inducing=num_inducing,
            outcome_transform=None,
            input_transform=input_transform,
            feature_dtype=feature_dtype,
            seed=seed,
            **options,
        )
        self.classes_ = classes
        self._alpha_epsilon = float(alpha_epsilon)
        self.temperature = temperature

    @classmethod
    def from_sums(  # type: ignore[override]
        cls,
        features: InducingFeatures,
        sums: CollapsedSums,
        *,
        classes: Labels,
        alpha_epsilon: float,
        temperature: float = 1.0,
        **parts: Any,
    ) -> Self:
        """Make a classifier that has sums over training clouds, but not the training clouds.

        Args:
            features: As for :class:`SparseDistributionGP`.
            sums: As for :class:`SparseDistributionGP`.
            classes: The distinct labels in sorted order.
            alpha_epsilon: The concentration of the classes that are not the label.
            temperature: The temperature of the probabilities.
            **parts: Further arguments, as for :class:`SparseDistributionGP`.

        Returns:
            The model.
        """
        model = super().from_sums(features, sums, **parts)
        model.classes_, model._alpha_epsilon = classes, alpha_epsilon
        model.temperature = temperature
        return model

    @property
    def alpha_epsilon(self) -> float:
        """Concentration of the classes that are not the label. Setting it changes targets and noise.

        The ``state_dict`` of the model does not contain it, nor the temperature.
        """
        return self._alpha_epsilon

    @alpha_epsilon.setter
    def alpha_epsilon(self, value: float) -> None:
        data = self.training_data()
        labelling = replace(data.labelling, alpha_epsilon=float(value))
        _, variances = labelling(self.sample()[1])
        noise = self.likelihood.noise_covar.noise
        self.data = replace(data, labelling=labelling)
        self.likelihood.noise_covar.noise = variances.mean(0, keepdim=True).mT.to(noise)
        self._alpha_epsilon = float(value)

    @property
    def temperature(self) -> float:
        """Temperature of the probabilities."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._temperature = float(positive(value, "temperature"))

    def training_data(self) -> LabelledPieces:
        """Return the training data in pieces, with their labels."""
        data = super().training_data()
        assert isinstance(data, LabelledPieces)
        return data

    def predict_proba(
        self,
        X: Inputs | Tensor | ShardedClouds,
        *,
        batch_size: int = 1024,
        client: Any = None,
        progress: bool = True,
    ) -> Tensor:
        """Predict class probabilities of clouds.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows; or :class:`ShardedClouds`,
                which are read and predicted piece by piece.
            batch_size: Number of clouds to process at a time, which bounds memory.
            client: As for :meth:`SparseDistributionGP.predict`.
            progress: As for :meth:`SparseDistributionGP.predict`.

        Returns:
            A detached ``... x N x C`` tensor, with columns in the order of :attr:`classes_`.

        Raises:
            ValueError: If the width of the rows does not fit the kernel, ``batch_size < 1``, or there
                is a client but no :class:`ShardedClouds`.
            PieceError: If a piece cannot be read; the message names its file.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> (model.predict_proba(clouds[:1])[0, 0] > 0.5).item()
            True
        """
        check_batch_size(batch_size)
        self.check_client(X, client)
        self.eval()
        if isinstance(X, ShardedClouds):
            self.collapsed(client=client, progress=progress)
            options: Any = {"batch_size": batch_size, "client": client, "progress": progress}
            return torch.cat(list(self.over_shards("predict_proba", X, **options)))
        rows = self._rows_of(X)
        current = self.collapsed(progress=progress)
        with torch.no_grad():
            parts = [
                self._probabilities(current, part) for part in rows.flatten(0, -2).split(batch_size)
            ]
        found = tempered(torch.cat(parts), self.temperature)
        return found.unflatten(0, rows.shape[:-1]).to(self.dtype)

    def predict(  # type: ignore[override]
        self,
        X: Inputs | Tensor | ShardedClouds,
        *,
        batch_size: int = 1024,
        client: Any = None,
        progress: bool = True,
    ) -> Labels:
        """Predict the labels of clouds: the classes with the largest :meth:`predict_proba`.

        Args:
            X: As for :meth:`predict_proba`.
            batch_size: As for :meth:`predict_proba`.
            client: As for :meth:`predict_proba`.
            progress: As for :meth:`predict_proba`.

        Returns:
            An array of labels of shape ``... x N``.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> model.predict(clouds[1:3]).tolist()
            ['left', 'right']
        """
        options: Any = {"batch_size": batch_size, "client": client, "progress": progress}
        return self.classes_[self.predict_proba(X, **options).argmax(-1).cpu().numpy()]

    def leave_one_out(  # type: ignore[override]
        self,
        *,
        temperatures: Sequence[float] | None = None,
        client: Any = None,
        progress: bool = True,
    ) -> Tensor:
        """Compute leave-one-out log probabilities of the labels, at the current hyperparameters.

        This takes a second pass over the data.

        Args:
            temperatures: ``K`` temperatures to compare. Default: that of the model.
            client: As for :meth:`SparseDistributionGP.leave_one_out`.
            progress: As for :meth:`SparseDistributionGP.leave_one_out`.

        Returns:
            The logarithms of the probabilities of the labels in :meth:`leave_one_out_proba`, a detached
            tensor of length ``T``; with ``temperatures``, a ``T x K`` tensor.

        Raises:
            ValueError: If the model was loaded, without its training data.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> (model.leave_one_out().exp() > 0.5).tolist()
            [True, True, True, True]
        """
        index_of = self.training_data().labelling.index_of
        several = read_temperatures(temperatures, self.temperature)
        task = LabelDensities(index_of, several)
        options: Any = {"client": client, "progress": progress}
        found = torch.cat(self.left_out(task, observation_noise=False, **options)).to(self.dtype)
        return found.squeeze(-1) if temperatures is None else found

    def leave_one_out_proba(self, *, client: Any = None, progress: bool = True) -> Tensor:
        """Predict the class probabilities of each training cloud from all others.

        The hyperparameters and the inducing clouds stay the same. This takes a second pass over the
        data.

        Args:
            client: As for :meth:`SparseDistributionGP.leave_one_out`.
            progress: As for :meth:`SparseDistributionGP.leave_one_out`.

        Returns:
            A detached ``T x C`` tensor, with columns in the order of :attr:`classes_`.

        Raises:
            ValueError: If the model was loaded, without its training data.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> model.leave_one_out_proba().argmax(-1).tolist()
            [0, 0, 1, 1]
        """
        options: Any = {"client": client, "progress": progress}
        found = self.left_out(left_out_proba, observation_noise=False, **options)
        return tempered(torch.cat(found), self.temperature).to(self.dtype)

    def _probabilities(self, current: CollapsedPosterior, part: Tensor) -> Tensor:
        rows = self.transform_inputs(part)
        mean, spread, left = current.marginals(rows)
        return expected_softmax(mean + self.means().flatten(), (left + spread).mT.sqrt())


def _labelled(
    train_X: Inputs | Tensor | Pieces,
    train_Y: Tensor | ArrayLike | None,
    sampled: tuple[int, int],
    options: dict[str, Any],
) -> tuple[Pieces, Labels, Labels, Sample | None]:
    """Return the data in pieces, the distinct labels in sorted order and as the pieces have them.

    Return also the sample of the data, if it had to be drawn to find the labels.
    """
    if not isinstance(train_X, Inputs | Tensor) and isinstance(train_X, Pieces):
        if train_Y is not None:
            raise ValueError("Expected train_Y=None for data in pieces, which carry their labels.")
        labels, drawn = _labels_of(train_X, sampled, **options)
        if labels is None:
            raise ValueError("Expected pieces that carry labels, got labels of None.")
        classes, _ = read_labels(labels, len(labels))
        return train_X, classes, classes, drawn
    if train_Y is None:
        raise ValueError("Expected train_Y, the labels of the clouds, got None.")
    first_row(train_X)
    check_order(train_X, train_Y)
    classes, index = read_labels(train_Y, len(train_X))
    return MemoryPieces(train_X, index), classes, np.arange(len(classes)), None


def _labels_of(
    data: Pieces, sampled: tuple[int, int], *, client: Any, progress: bool
) -> tuple[Any, Sample | None]:
    """Return labels that include all classes, or None if there are none; and the sample, if drawn."""
    if isinstance(data, ShardedClouds) and any(piece.count is None for piece in data.pieces):
        label = "Labels" if progress else None  # to read labels means to compute the pieces
        found = list(run(DistinctLabels(), data.pieces, client=client, progress=label))
        known = [labels for labels in found if labels is not None]
        return np.concatenate(known) if len(known) == len(found) else None, None
    if callable(targets := getattr(data, "targets", None)):
        return targets(), None
    drawn = Sample.draw(data, *sampled, client=client, progress=progress)
    return drawn.content[1], drawn
