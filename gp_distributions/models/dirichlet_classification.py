"""Classification, whatever the way of inference: labels, and probabilities from Dirichlet targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.measures.arrays import Labels, positive
from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.regression import Regression
from gp_distributions.numerics.predictions import expected_softmax, log_probabilities, tempered
from gp_distributions.sharding.sharded_clouds import ShardedClouds


class Labelling:
    """Models that predict labels."""

    classes_: Labels
    # Function of inputs that returns scores of all classes, ``... x N x C``.
    _scores: Callable[..., Tensor]

    def predict(self, X: Inputs | Tensor, **options: Any) -> Labels:
        """Predict the labels of clouds: the classes with the largest scores or probabilities.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows.
            **options: As for ``predict_proba``, of models that have it.

        Returns:
            An array of labels of shape ``... x N``.

        Example:
            >>> from gp_distributions import ClassificationGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = ClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> model.predict(clouds[1:3]).tolist()
            ['left', 'right']
        """
        return self.classes_[self._scores(X, **options).argmax(-1).cpu().numpy()]


class Classification(Labelling, Regression):  # type: ignore[misc]
    """Class probabilities, the expectations of the softmax of latent functions."""

    temperature: float

    def predict_proba(
        self, X: Inputs | Tensor | ShardedClouds, *, batch_size: int = 1024, **options: Any
    ) -> Tensor:
        """Predict class probabilities of clouds.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows. A sparse model also takes
                :class:`ShardedClouds`, which are read and predicted piece by piece.
            batch_size: Number of clouds to process at a time, which bounds memory.
            **options: ``client`` and ``progress`` of sparse models, as for
                :meth:`SparseDistributionGP.predict`.

        Returns:
            A detached ``... x N x C`` tensor, with columns in the order of :attr:`classes_`.

        Raises:
            ValueError: If the width of the rows does not fit the kernel, ``batch_size < 1``, or there
                is a client but no :class:`ShardedClouds`.
            PieceError: If a piece cannot be read; the message names its file.

        Example:
            >>> from gp_distributions import ClassificationGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = ClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> (model.predict_proba(clouds[:1])[0, 0] > 0.5).item()
            True
        """
        options |= {"batch_size": batch_size}
        return self.in_batches(X, "class_probabilities", **options)[0]

    _scores = predict_proba

    def leave_one_out(  # type: ignore[override]
        self, *, temperatures: Sequence[float] | None = None, **options: Any
    ) -> Tensor:
        """Compute leave-one-out log probabilities of the labels, at the current hyperparameters.

        Args:
            temperatures: ``K`` temperatures to compare. Default: that of the model.
            **options: As for :meth:`leave_one_out_proba`.

        Returns:
            The logarithms of the probabilities of the labels in :meth:`leave_one_out_proba`, a detached
            tensor of length ``T``; with ``temperatures``, a ``T x K`` tensor.

        Raises:
            ValueError: If a sparse model was loaded, without its training data.

        Example:
            >>> from gp_distributions import ClassificationGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = ClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> (model.leave_one_out().exp() > 0.5).tolist()
            [True, True, True, True]
        """
        several = [positive(each, "temperature") for each in temperatures or ()]
        found, labels = self.probabilities_left_out(**options)
        pairs = zip(self.parts, found, strict=True)
        each = [log_probabilities(p, labels, several or [part.temperature]) for part, p in pairs]
        logs = torch.stack(each)
        mixed = (logs + self.part_weights.to(logs).log()[:, None, None]).logsumexp(0)
        return mixed.squeeze(-1) if temperatures is None else mixed

    def leave_one_out_proba(self, **options: Any) -> Tensor:
        r"""Predict the class probabilities of each training cloud from all others.

        Let :math:`M_c` be the covariance matrix of the targets of class ``c``. Given the targets of all
        other clouds, the latent value at cloud ``i`` has the mean
        :math:`\tilde y_i - [M_c^{-1} (\tilde y - \mu)]_i / [M_c^{-1}]_{ii}` and the variance
        :math:`1 / [M_c^{-1}]_{ii} - \sigma_i^2`. The hyperparameters, and the inducing clouds of a
        sparse model, stay those that were found with all clouds. A sparse model takes a second pass
        over the data.

        Args:
            **options: ``client`` and ``progress`` of sparse models, as for
                :meth:`SparseDistributionGP.leave_one_out`.

        Returns:
            A detached ``T x C`` tensor, with columns in the order of :attr:`classes_`.

        Raises:
            ValueError: If a sparse model was loaded, without its training data.

        Example:
            >>> from gp_distributions import ClassificationGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[0.1], [0.3]], [[5.0], [5.2]], [[5.1], [5.4]]])
            >>> model = ClassificationGP(clouds, ["left", "left", "right", "right"])
            >>> model.leave_one_out_proba().argmax(-1).tolist()
            [0, 0, 1, 1]

        Source: Rasmussen and Williams 2006, eq. 5.12.
        """
        found, _ = self.probabilities_left_out(**options)
        return self._averaged(found)

    def class_probabilities(self, rows: EmbeddedRows, given: Sequence[Any]) -> tuple[Tensor]:
        """Return class probabilities at rows, ``... x N x C``, averaged over members."""
        found = []
        for part, known in zip(self.parts, given, strict=True):
            mean, variance = part.latent_marginals(part.seen(rows), known)
            found.append(expected_softmax(mean, variance.clamp_min(0).sqrt()))
        return (self._averaged(found),)

    def probabilities_left_out(self, **options: Any) -> tuple[list[Tensor], Tensor]:
        """Return probabilities of training clouds at temperature 1 of each part, and the labels."""
        self.eval()
        found = []
        with torch.no_grad():
            for part in self.parts:
                mean, variance, noise = part.latent_left_out(**options)
                found.append(expected_softmax(mean, variance.clamp_min(0).sqrt()).to(self.dtype))
        return found, noise.argmin(-1)  # the noise is least at the members of a class

    def _averaged(self, found: Sequence[Tensor]) -> Tensor:
        """Return the weighted mean of probabilities of the parts, each at its own temperature."""
        weights, temperatures = self.part_weights.tolist(), [p.temperature for p in self.parts]
        shares = zip(weights, found, temperatures, strict=True)
        return torch.stack([w * tempered(each, t) for w, each, t in shares]).sum(0)
