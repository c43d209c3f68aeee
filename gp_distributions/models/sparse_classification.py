"""Sparse Gaussian process classification of many distributions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import Labels, positive
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import read_labels
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.models.pieces import (
    LabelTargets,
    Pieces,
    SampledPieces,
    as_labels,
    distinct_labels,
)
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP
from gp_distributions.sharding.passes import run
from gp_distributions.sharding.sharded_clouds import ShardedClouds


class SparseClassificationGP(Classification, SparseDistributionGP):  # type: ignore[misc]
    r"""Sparse Gaussian process classification of distributions, with calibrated probabilities.

    The model is to :class:`ClassificationGP` what :class:`SparseDistributionGP` is to
    :class:`DistributionGP`: each class has a latent function, all of them share one kernel, and the
    labels become regression targets of known noise, in the process that reads them. One pass over the
    data forms the sums of all classes. :func:`gp_distributions.fit` learns the hyperparameters from an
    exact model of 1000 random clouds, and selects ``alpha_epsilon`` and ``temperature``.

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
        options: Any = {"seed": seed, "client": client, "progress": progress}
        data = SampledPieces.read(
            train_X, train_Y, num_inducing=num_inducing, classify=True, **options
        )
        if data.memory is None:
            classes = kept = _classes_of(data, client=client, progress=progress)
        else:
            classes = data.memory.known_classes
            kept = np.arange(len(classes))
        super().__init__(
            replace(data, labelling=LabelTargets(kept, float(alpha_epsilon))),
            None,
            covar_module,
            num_inducing=num_inducing,
            outcome_transform=None,
            input_transform=input_transform,
            feature_dtype=feature_dtype,
            **options,
        )
        self.classes_ = classes
        self._alpha_epsilon = float(alpha_epsilon)
        self.temperature = temperature

    @property
    def alpha_epsilon(self) -> float:
        """Concentration of the classes that are not the label. Setting it changes targets and noise.

        The ``state_dict`` of the model does not contain it, nor the temperature.
        """
        return self._alpha_epsilon

    @alpha_epsilon.setter
    def alpha_epsilon(self, value: float) -> None:
        data = self.training_data()
        assert data.labelling is not None
        self._alpha_epsilon = positive(value, "alpha_epsilon")
        self.data = replace(data, labelling=replace(data.labelling, alpha_epsilon=float(value)))
        _, variances = self.adapted_to()
        assert variances is not None
        noise = self.likelihood.noise_covar.noise
        self.likelihood.noise_covar.noise = variances.mean(0, keepdim=True).mT.to(noise)

    @property
    def temperature(self) -> float:
        """Temperature of the probabilities."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._temperature = float(positive(value, "temperature"))


def _classes_of(data: SampledPieces, *, client: Any, progress: bool) -> Labels:
    """Return the distinct labels of data in pieces in sorted order."""
    source = data.source
    if isinstance(source, ShardedClouds) and all(each.count is not None for each in source.pieces):
        labels = as_labels(source.targets())  # without the clouds
    else:
        label = "Labels" if progress else None
        found = run(distinct_labels, data.pieces, client=client, progress=label)
        labels = np.concatenate(list(found))
    return read_labels(labels, len(labels))[0]
