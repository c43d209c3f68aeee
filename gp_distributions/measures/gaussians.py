"""Gaussians as inputs: probability measures given by a mean and a covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gp_distributions.measures._container import Container
from gp_distributions.measures._validation import Wording, check_entries
from gp_distributions.measures.arrays import Data, real_array, row_tensor, to_tensors
from gp_distributions.measures.described import check_type
from gp_distributions.measures.gaussian_mixtures import (
    GaussianMixtures,
    moments,
    valid_gaussians,
)
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.gaussians import join_gaussians, split_gaussians


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Gaussians(Container):
    """Gaussian probability measures ``N(m, S)``.

    The data are validated once, at construction, and cannot be changed afterwards. Arrays are copied
    to the CPU. Tensors keep their device, and gradients flow through them. Single precision is kept,
    with a warning. ``len(gaussians)`` is the length of the last batch axis, and ``gaussians[index]``
    indexes it.

    Args:
        mean: A ``batch_shape x d`` tensor or array.
        covariance: A ``batch_shape x d x d`` tensor or array. Asymmetry within rounding is accepted,
            and the symmetric part is kept. Variances of zero are allowed. Pass variances alone as
            ``torch.diag_embed(variances)``.

    Attributes:
        mean: A ``batch_shape x d`` tensor.
        covariance: A ``batch_shape x d x d`` tensor of symmetric matrices.
        labels: An array of shape ``batch_shape`` with the labels of the clouds passed to
            ``from_clouds``, or None.

    Raises:
        ValueError: If an entry is not finite, a covariance is not symmetric or not positive
            semi-definite, or the shapes or dtypes are wrong.

    Example:
        >>> import torch
        >>> from gp_distributions import Gaussians
        >>> gaussians = Gaussians([[0.0, 1.0], [2.0, 3.0]], torch.eye(2).expand(2, 2, 2))
        >>> gaussians
        Gaussians(2 Gaussians, d=2, float64)
        >>> gaussians[0].mean
        tensor([0., 1.], dtype=torch.float64)
    """

    _noun: ClassVar[str] = "Gaussian"
    _axes: ClassVar[dict[str, int]] = {"mean": 1, "covariance": 2}

    mean: Tensor
    covariance: Tensor

    def __init__(self, mean: Data, covariance: Data) -> None:
        means, covariances = moments([mean, covariance], "d")
        self._fill(*valid_gaussians(means, covariances))
        self._warn()

    @classmethod
    def from_mean_std(cls, mean: Data, std: Data) -> Gaussians:
        r"""Make Gaussians of independent coordinates, such as numbers with their standard errors.

        .. math:: N(m, \operatorname{diag}(s^2))

        Args:
            mean: A ``batch_shape x d`` tensor or array of means, or a data frame with a column for each
                coordinate.
            std: The standard deviations, in the same shape and units; zero for exact numbers.

        Returns:
            The Gaussians.

        Raises:
            ValueError: If the shapes differ, an entry is not finite, or a standard deviation is
                negative.

        Example:
            >>> import pandas as pd
            >>> from gp_distributions import Gaussians
            >>> table = pd.DataFrame({"x": [1.0, 2.0], "x_err": [0.1, 0.0]})
            >>> Gaussians.from_mean_std(table[["x"]], table[["x_err"]]).covariance.flatten()
            tensor([0.0100, 0.0000], dtype=torch.float64)
        """
        means, deviations = to_tensors([real_array(mean, "Mean"), real_array(std, "Std")])
        if means.shape != deviations.shape:
            raise ValueError(
                f"Std: expected shape {tuple(means.shape)}, that of the mean, got "
                f"{tuple(deviations.shape)}."
            )
        known, expected = deviations.isfinite() & (deviations >= 0), "a standard deviation >= 0"
        check_entries(known, deviations, Wording("Gaussian"), expected, " in coordinate {}")
        return cls(means, torch.diag_embed(deviations.square()))

    @classmethod
    def from_clouds(cls, clouds: PointClouds) -> Gaussians:
        """Make Gaussians with the means and covariances of clouds.

        The covariance is that of the cloud as a measure, ``sum_i w_i (x_i - m)(x_i - m)'``, without
        the correction ``n / (n - 1)`` for samples.

        Args:
            clouds: The clouds.

        Returns:
            The Gaussians, with the labels of the clouds.

        Example:
            >>> from gp_distributions import Gaussians, PointClouds
            >>> gaussians = Gaussians.from_clouds(PointClouds([[[0.0], [4.0]]]))
            >>> gaussians.mean.item(), gaussians.covariance.item()
            (2.0, 4.0)
        """
        check_type(clouds, PointClouds)
        weights = clouds.weights
        mean = (weights.unsqueeze(-2) @ clouds.points).squeeze(-2)
        centred = clouds.points - mean.unsqueeze(-2)
        covariance = centred.mT @ (weights.unsqueeze(-1) * centred)
        covariance = (covariance + covariance.mT) / 2
        return cls._unchecked(mean, covariance, labels=clouds.labels)

    @classmethod
    def unpack(cls, rows: Data, dim: int) -> Gaussians:
        """Read Gaussians from rows: the inverse of ``pack``, except that rows do not hold labels.

        Args:
            rows: A ``batch_shape x (d+d*d)`` tensor or array.
            dim: Dimension ``d``.

        Returns:
            The Gaussians.

        Raises:
            ValueError: As for the class, or if the rows have another width.

        Example:
            >>> from gp_distributions import Gaussians
            >>> Gaussians.unpack([[5.0, 2.0]], dim=1).covariance
            tensor([[[2.]]], dtype=torch.float64)
        """
        return cls._read(*valid_gaussians(*split_gaussians(*row_tensor(rows, dim))))

    def pack(self) -> Tensor:
        """Write the Gaussians as rows: the mean, then the covariance row by row.

        Returns:
            A ``batch_shape x (d+d*d)`` tensor.

        Example:
            >>> from gp_distributions import Gaussians
            >>> Gaussians([[5.0, 6.0]], [[[2.0, 1.0], [1.0, 3.0]]]).pack()
            tensor([[5., 6., 2., 1., 1., 3.]], dtype=torch.float64)
        """
        return join_gaussians(self.mean, self.covariance)

    def as_mixtures(self) -> GaussianMixtures:
        """Return the same measures as mixtures of one component.

        Example:
            >>> from gp_distributions import Gaussians
            >>> Gaussians([[5.0]], [[[2.0]]]).as_mixtures()
            GaussianMixtures(1 mixture, 1 component, d=1, float64)
        """
        mean, covariance = self.mean.unsqueeze(-2), self.covariance.unsqueeze(-3)
        weights = mean.new_ones(mean.shape[:-1])
        return GaussianMixtures._unchecked(mean, covariance, weights, labels=self.labels)

    def sample(self, n: int, *, seed: int | torch.Generator = 0) -> PointClouds:
        """Draw independent points from each Gaussian, without gradients.

        Args:
            n: Number of points drawn from each Gaussian.
            seed: Random seed, or a generator on the device of the Gaussians.

        Returns:
            Clouds of ``n`` atoms of weight ``1 / n``, with the labels of the Gaussians.

        Raises:
            ValueError: If ``n`` is not an integer >= 1.

        Example:
            >>> from gp_distributions import Gaussians
            >>> Gaussians([[5.0]], [[[2.0]]]).sample(100, seed=0)
            PointClouds(1 cloud, 100 atoms, d=1, float64)
        """
        return self.as_mixtures().sample(n, seed=seed)

    def _components(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.as_mixtures()._components()

    def _scaled(self, centre: Tensor, scale: Tensor) -> Gaussians:
        normal = self.as_mixtures()._scaled(centre, scale)
        mean, covariance = normal.mean.squeeze(-2), normal.covariance.squeeze(-3)
        return self._alike(mean, covariance)
