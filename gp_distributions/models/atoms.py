"""Models of a function of atoms: their kernel, the unit of their targets, and their predictions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.hosts import DefaultType
from gp_distributions.kernels.aggregates import aggregate_kernel, scale_and_level
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures import Gaussians, PointClouds
from gp_distributions.measures.arrays import described, given_points
from gp_distributions.models.exact_inference import Moments
from gp_distributions.models.regression import Regression


class AtomPredictions(Regression):
    """Predictions of the function of atoms that a model with an :class:`ExpectedKernel` has learned."""

    covar_module: ExpectedKernel

    @property
    def aggregate(self) -> str:
        """What a target is: the ``"mean"`` of the function over atoms, its ``"sum"`` or a ``"draw"``."""
        if getattr(self.likelihood, "kernel", None) is not None:
            return "draw"
        return "sum" if self.covar_module.total else "mean"

    def predict_atoms(
        self, points: Tensor | ArrayLike, kinds: ArrayLike | None = None, **options: Any
    ) -> Moments:
        """Predict the function of atoms.

        Args:
            points: An ``N x d`` tensor or array of atoms.
            kinds: The ``N`` kinds of the atoms, if those of the training clouds have kinds.
            **options: ``batch_size``, as for :meth:`predict`.

        Returns:
            The means and standard deviations of the function at the atoms, ``N`` each, in the units of
            ``train_Y``.

        Raises:
            ValueError: If the shape is wrong, a coordinate is not finite, kinds are missing, or an atom
                has a kind that is unknown.

        Example:
            >>> from gp_distributions import AggregateGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = AggregateGP(clouds, [0.0, 1.0, 2.0]).predict_atoms([[0.1], [2.1]])
            >>> mean.shape, bool(mean[0] < mean[1])
            (torch.Size([2]), True)
        """
        atoms = clouds_of_atoms(self.covar_module, points, kinds)
        gaussian = self.covar_module.inputs == "gaussians"
        at = Gaussians.from_clouds(atoms) if gaussian else atoms
        mean, std = self.predict(at, observation_noise=False, **options)
        return mean.reshape(len(atoms)), std.reshape(len(atoms))

    def contributions(self, X: PointClouds, **options: Any) -> Moments:
        r"""Predict what each atom contributes to the sum or the mean of its cloud.

        The contribution of atom :math:`x_a` is :math:`w_a f(x_a)`, where :math:`w_a` is its mass for
        sums, and its weight for means. Their means sum to the predicted mean of the cloud; their errors
        are not independent.

        Args:
            X: The ``N`` clouds, of up to ``m`` atoms.
            **options: ``batch_size``, as for :meth:`predict`, counts atoms.

        Returns:
            The means and standard deviations of the contributions, ``N x m`` each, in the units of
            ``train_Y``; zero for padding.

        Raises:
            TypeError: If ``X`` are not :class:`PointClouds`.

        Example:
            >>> from gp_distributions import AggregateGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> model = AggregateGP(clouds, [0.0, 1.0, 2.0])
            >>> mean, std = model.contributions(clouds)
            >>> bool((mean.sum(-1) - model.predict(clouds)[0]).abs().max() < 1e-10)
            True
        """
        if not isinstance(X, PointClouds):
            raise TypeError(f"Expected PointClouds, whose atoms contribute, got {described(X)}.")
        weights = (X.masses if self.covar_module.total else X.weights).to(self.dtype)
        used = weights > 0
        kinds = None if X.kinds is None else X.kinds[used.numpy(force=True)]
        found = []
        for moment in self.predict_atoms(X.positions[used], kinds, **options):
            spread = weights.new_zeros(weights.shape)
            spread[used] = moment
            found.append(weights * spread)
        return found[0], found[1]


def clouds_of_atoms(
    kernel: ExpectedKernel, points: Tensor | ArrayLike, kinds: ArrayLike | None
) -> PointClouds:
    """Return clouds of one atom each, as :meth:`AggregateGP.predict_atoms` takes them."""
    given = given_points(points, "Points", ("N", kernel.num_coordinates))
    marks = None if kinds is None else np.asarray(kinds)[:, None]
    return PointClouds(given.unsqueeze(-2), kinds=marks)


def check_one_output(targets: Tensor) -> None:
    """Check that ``T x outputs`` targets have one output.

    Raises:
        ValueError: If there are several.
    """
    if targets.shape[-1] > 1:
        raise ValueError(
            f"Expected one output, got {targets.shape[-1]}. Make a model for each output."
        )


def aggregate_parts(
    X: Any,
    targets: Tensor,
    covar_module: Kernel | None,
    outcome_transform: OutcomeTransform | DefaultType | None,
    *,
    aggregate: str,
    **options: Any,
) -> tuple[ExpectedKernel, OutcomeTransform | DefaultType | None]:
    """Return the kernel of distributions and the transform of targets, for a kernel of atoms.

    Args:
        X: The training distributions.
        targets: Their targets, ``T x 1``.
        covar_module: A kernel of atoms, as for :class:`AggregateGP`.
        outcome_transform: The transform, as for :class:`AggregateGP`.
        aggregate: What a target is.
        **options: Further options of :func:`aggregate_kernel`.
    """
    level = 1.0 if aggregate == "sum" else None
    if level and isinstance(X, PointClouds):
        scale, level = scale_and_level(X, targets.squeeze(-1))
        if isinstance(outcome_transform, DefaultType):
            outcome_transform = ScaledTargets(scale).to(targets.device, X.dtype)
    return aggregate_kernel(X, covar_module, level=level, **options), outcome_transform


class ScaledTargets(Standardize):
    """Division of targets of one output by a known scale, which leaves zero where it is.

    Args:
        scale: The scale.
    """

    def __init__(self, scale: float) -> None:
        super().__init__(m=1)
        self.means = torch.zeros(1, 1, dtype=torch.float64)
        self.stdvs = torch.full((1, 1), scale, dtype=torch.float64)
        self._stdvs_sq = self.stdvs.square()
        self._is_trained = torch.tensor(True)
        self.eval()

    @property
    def scale(self) -> float:
        """The scale."""
        return float(self.stdvs)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, in which targets do not change the scale."""
        return super().train(False)
