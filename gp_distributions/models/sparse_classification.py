"""Sparse Gaussian process classification of many distributions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.classification import dirichlet_targets
from gp_distributions.models.collapsed import CollapsedSums, InducingFeatures
from gp_distributions.models.kernel_ridge import Labels, read_labels
from gp_distributions.models.pieces import MemoryPieces, Pieces
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP, Values
from gp_distributions.models.targets import check_order
from gp_distributions.numerics.expected_softmax import expected_softmax


class SparseClassificationGP(SparseDistributionGP):
    r"""Sparse Gaussian process classification of distributions, with calibrated probabilities.

    The model is to :class:`ClassificationGP` what :class:`SparseDistributionGP` is to
    :class:`DistributionGP`: each class has a latent function, all of them share one kernel, and the
    labels become regression targets of known noise. One pass over the data forms the sums of all
    classes. :func:`gp_distributions.fit` learns the hyperparameters from an exact model of 1000 random
    clouds, and :func:`fit_classification` also selects ``alpha_epsilon``.

    Args:
        train_X: The training clouds, as for :class:`SparseDistributionGP`.
        train_Y: The ``T`` labels: strings, integers or other values that NumPy can sort. ``None`` if the
            pieces carry their labels.
        covar_module: A kernel on rows, as for :class:`SparseDistributionGP`.
        num_inducing: Number ``M`` of inducing clouds.
        alpha_epsilon: The concentration of the classes that are not the label, as for
            :class:`ClassificationGP`.
        input_transform: A transform from the model's inputs to rows.
        feature_dtype: Precision of the features of clouds, as for :class:`SparseDistributionGP`.
        seed: Random seed for the samples and for the choice of the inducing clouds.

    Attributes:
        classes_: The ``C`` distinct labels in sorted order, as an array. For data in pieces, those in a
            random sample of 10,000 clouds.

    Raises:
        TypeError: As for :class:`SparseDistributionGP`.
        ValueError: As for :class:`SparseDistributionGP`; if there are fewer than two classes; if a piece
            has a label that is not one of ``classes_``; or if ``alpha_epsilon`` is not positive.

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

    data: LabelledPieces | None
    _alpha_epsilon: float = 0.01

    def __init__(
        self,
        train_X: Inputs | Tensor | Pieces,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        num_inducing: int = 1000,
        alpha_epsilon: float = 0.01,
        input_transform: InputTransform | None = None,
        feature_dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> None:
        pieces, classes, kept = _labelled(train_X, train_Y, seed)
        super().__init__(
            LabelledPieces(pieces, kept, alpha_epsilon),
            None,
            covar_module,
            num_inducing=num_inducing,
            outcome_transform=None,
            input_transform=input_transform,
            feature_dtype=feature_dtype,
            seed=seed,
        )
        self.classes_ = classes
        self._alpha_epsilon = float(alpha_epsilon)

    @classmethod
    def from_sums(  # type: ignore[override]
        cls,
        features: InducingFeatures,
        sums: CollapsedSums,
        *,
        classes: Labels,
        alpha_epsilon: float,
        **parts: Any,
    ) -> Self:
        """Make a classifier that has sums over training clouds, but not the training clouds.

        Args:
            features: As for :class:`SparseDistributionGP`.
            sums: As for :class:`SparseDistributionGP`.
            classes: The distinct labels in sorted order.
            alpha_epsilon: The concentration of the classes that are not the label.
            **parts: Further arguments, as for :class:`SparseDistributionGP`.

        Returns:
            The model.
        """
        model = super().from_sums(features, sums, **parts)
        model.classes_, model._alpha_epsilon = classes, alpha_epsilon
        model.take_sums(features, sums)
        return model

    @property
    def alpha_epsilon(self) -> float:
        """Concentration of the classes that are not the label. Setting it changes targets and noise."""
        return self._alpha_epsilon

    @alpha_epsilon.setter
    def alpha_epsilon(self, value: float) -> None:
        self.data = replace(self.training_data(), alpha_epsilon=value)
        self._alpha_epsilon = float(value)

    def training_data(self) -> LabelledPieces:
        """Return the training data in pieces, with the regression targets of the labels."""
        data = super().training_data()
        assert isinstance(data, LabelledPieces)
        return data

    def predict_proba(self, X: Inputs | Tensor, *, batch_size: int = 1024) -> Tensor:
        """Predict class probabilities of clouds.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows.
            batch_size: Number of clouds to process at a time, which bounds memory.

        Returns:
            A detached ``... x N x C`` tensor, with columns in the order of :attr:`classes_`.

        Raises:
            ValueError: If the width of the rows does not fit the kernel, or ``batch_size < 1``.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> (model.predict_proba(clouds[:1])[0, 0] > 0.5).item()
            True
        """
        if batch_size < 1:
            raise ValueError(f"Expected batch_size >= 1, got {batch_size}.")
        self.eval()
        rows = self._rows_of(X)
        with torch.no_grad():
            parts = [self._probabilities(part) for part in rows.flatten(0, -2).split(batch_size)]
        return torch.cat(parts).unflatten(0, rows.shape[:-1])

    def predict(  # type: ignore[override]
        self, X: Inputs | Tensor, *, batch_size: int = 1024
    ) -> Labels:
        """Predict the labels of clouds: the classes with the largest :meth:`predict_proba`.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows.
            batch_size: Number of clouds to process at a time, which bounds memory.

        Returns:
            An array of labels of shape ``... x N``.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> model.predict(clouds[1:3]).tolist()
            ['left', 'right']
        """
        return self.classes_[self.predict_proba(X, batch_size=batch_size).argmax(-1).cpu().numpy()]

    def leave_one_out(self) -> Tensor:  # type: ignore[override]
        """Compute leave-one-out log probabilities of the labels, at the current hyperparameters.

        This takes a second pass over the data.

        Returns:
            The logarithms of the probabilities of the labels in :meth:`leave_one_out_proba`, a detached
            tensor of length ``T``.

        Raises:
            ValueError: If the model was loaded, without its training data.

        Example:
            >>> from gp_distributions import PointClouds, SparseClassificationGP
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = SparseClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> (model.leave_one_out().exp() > 0.5).tolist()
            [True, True, True, True]
        """
        data, probabilities = self.training_data(), self.leave_one_out_proba()
        labels = torch.cat([data.labels(index) for index in range(data.num_pieces)])
        labels = labels.to(probabilities.device).unsqueeze(-1)
        return probabilities.gather(-1, labels).squeeze(-1).log()

    def leave_one_out_proba(self) -> Tensor:
        """Predict the class probabilities of each training cloud from all others.

        The hyperparameters and the inducing clouds stay the same. This takes a second pass over the
        data.

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
        mean, variance = self._without_each(observation_noise=False)
        return expected_softmax(mean, variance.clamp_min(0).sqrt())

    def _values(self) -> Values:
        return [*super()._values(), ("alpha_epsilon", torch.tensor(self._alpha_epsilon))]

    def _probabilities(self, part: Tensor) -> Tensor:
        rows, current = self.transform_inputs(part), self.collapsed()
        phi = current.features(rows)
        prior = covariance(self.covar_module, rows, diag=True)
        left = (prior - phi.square().sum(-1)).clamp_min(0)
        mean = phi @ current.weights + self._mean().flatten()
        return expected_softmax(mean, (left + current.spread(phi)).mT.sqrt())


@dataclass(frozen=True, eq=False)
class LabelledPieces:
    """Pieces of data whose labels become the targets and noise of a classifier.

    Args:
        pieces: Pieces of data with labels.
        classes: The distinct labels in sorted order, as the pieces have them.
        alpha_epsilon: The concentration of the classes that are not the label.
    """

    pieces: Pieces
    classes: Labels
    alpha_epsilon: float

    @property
    def encoding(self) -> MixedEncoding | None:
        """The encoding that mixed inputs define, or ``None``."""
        return getattr(self.pieces, "encoding", None)

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return self.pieces.num_pieces

    def piece(self, index: int) -> tuple[Any, ...]:
        """Return the distributions of a piece, their targets and noise variances, ``N x C``."""
        return self._with_targets(*self.pieces.piece(index))

    def sample(self, n: int, seed: int) -> tuple[Any, ...]:
        """Return a random sample of ``n`` clouds, as :meth:`piece` does."""
        return self._with_targets(*self.pieces.sample(n, seed))

    def labels(self, index: int) -> Tensor:
        """Return the class indices of the clouds of a piece."""
        return self._indices(self.pieces.piece(index)[1])

    def _with_targets(self, X: Any, labels: Any) -> tuple[Any, ...]:
        members = torch.nn.functional.one_hot(self._indices(labels), len(self.classes)).double()
        return X, *dirichlet_targets(members.to(X.device), self.alpha_epsilon)

    def _indices(self, labels: Any) -> Tensor:
        values = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
        index = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        strange = np.flatnonzero(self.classes[index] != values)
        if len(strange):
            raise ValueError(
                f"Expected one of the labels {self.classes.tolist()}, but that of cloud {strange[0]} is "
                f"{values[strange[0]]!r}."
            )
        return torch.from_numpy(index)


# For data in pieces, the classes are those in a sample of this size.
_SAMPLE = 10000


def _labelled(
    train_X: Inputs | Tensor | Pieces, train_Y: Tensor | ArrayLike | None, seed: int
) -> tuple[Pieces, Labels, Labels]:
    """Return the data in pieces, the distinct labels in sorted order, and as the pieces have them."""
    if not isinstance(train_X, Inputs | Tensor) and isinstance(train_X, Pieces):
        if train_Y is not None:
            raise ValueError("Expected train_Y=None for data in pieces, which carry their labels.")
        _, labels, *_ = train_X.sample(_SAMPLE, seed)
        if labels is None:
            raise ValueError("Expected pieces that carry labels, got labels of None.")
        classes, _ = read_labels(labels, len(labels))
        return train_X, classes, classes
    if train_Y is None:
        raise ValueError("Expected train_Y, the labels of the clouds, got None.")
    check_order(train_X, train_Y)
    count = train_X.shape[-2] if isinstance(train_X, Tensor) else len(train_X)
    classes, index = read_labels(train_Y, count)
    return MemoryPieces(train_X, index), classes, np.arange(len(classes))
