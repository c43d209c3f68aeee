"""Gaussians and their mixtures as inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from gp_distributions.measures._bags import pad_arrays
from gp_distributions.measures._container import Container, WeightedContainer
from gp_distributions.measures.arrays import (
    Data,
    Name,
    Wording,
    check_entries,
    check_type,
    equal_weights,
    integer,
    real_array,
    row_tensor,
    seeded,
    to_tensors,
    validated,
)
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import in_one_order, in_order
from gp_distributions.rows.clouds import pad_rows
from gp_distributions.rows.layout import (
    join_gaussians,
    join_mixtures,
    split_gaussians,
    split_mixtures,
)

_GAUSSIAN, _MIXTURE = Wording("Gaussian"), Wording("Mixture")

# The population of true values is found in at most so many steps, to this share of its variance.
_STEPS, _SAME = 1000, 1e-8


@dataclass(frozen=True, init=False, eq=False, repr=False)
class GaussianMixtures(WeightedContainer):
    """Mixtures of Gaussians: the probability measures ``sum_k w_k N(m_k, S_k)``.

    The data are validated once, at construction, and cannot be changed afterwards. Arrays are copied
    to the CPU. Tensors keep their device, and gradients flow through them. Single precision is kept,
    with a warning. ``len(mixtures)`` is the length of the last batch axis, and ``mixtures[index]``
    indexes it.

    Args:
        mean: A ``batch_shape x K x d`` tensor or array, the means of the components.
        covariance: A ``batch_shape x K x d x d`` tensor or array, the covariances of the components.
            Asymmetry within rounding is accepted, and the symmetric part is kept. Variances of zero are
            allowed.
        weights: A ``batch_shape x K`` tensor or array of weights >= 0, which are divided by their sum
            over each mixture. Default: equal weights.

    Attributes:
        mean: A ``batch_shape x K x d`` tensor.
        covariance: A ``batch_shape x K x d x d`` tensor of symmetric matrices.
        weights: A ``batch_shape x K`` tensor of weights that sum to one over each mixture. Components
            of weight zero are padding, which changes no result and remains when mixtures are indexed.
        labels: An array of shape ``batch_shape`` with the labels of the Gaussians that these mixtures
            were made from, or None.

    Raises:
        ValueError: If an entry is not finite, a covariance is not symmetric or not positive
            semi-definite, a weight is negative, the weights of a mixture are all zero, or the shapes
            or dtypes are wrong.

    Example:
        >>> import torch
        >>> from gp_distributions import GaussianMixtures
        >>> mean, covariance = [[[0.0], [4.0]]], torch.ones(1, 2, 1, 1)
        >>> mixtures = GaussianMixtures(mean, covariance, weights=[[1.0, 3.0]])
        >>> mixtures
        GaussianMixtures(1 mixture, 2 components, d=1, float64)
        >>> mixtures.weights
        tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """

    _noun: ClassVar[str] = "mixture"
    _part: ClassVar[str] = "component"
    _axes: ClassVar[dict[str, int]] = {"mean": 2, "covariance": 3, "weights": 1}

    mean: Tensor
    covariance: Tensor

    def __init__(self, mean: Data, covariance: Data, weights: Data | None = None) -> None:
        given = [mean, covariance, *([] if weights is None else [weights])]
        means, covariances, *rest = moments(given, "K, d")
        self._fill(*valid_mixtures(means, covariances, *(rest or [equal_weights(means)])))
        self._warn()

    @classmethod
    def from_list(cls, mixtures: Iterable[tuple[Data, Data, Data]]) -> GaussianMixtures:
        """Read mixtures with different numbers of components, padded with components of weight zero.

        Args:
            mixtures: For each mixture, ``K_i x d`` means, ``K_i x d x d`` covariances and ``K_i``
                weights >= 0, as tensors or arrays.

        Returns:
            The mixtures, in order.

        Raises:
            ValueError: As for the class, or if there are no mixtures or dimensions differ.

        Example:
            >>> from gp_distributions import GaussianMixtures
            >>> one = ([[0.0]], [[[1.0]]], [1.0])
            >>> two = ([[0.0], [4.0]], [[[1.0]], [[2.0]]], [1.0, 3.0])
            >>> GaussianMixtures.from_list([one, two])
            GaussianMixtures(2 mixtures, 1-2 components, d=1, float64)
        """
        read = [moments(m, "K, d", f"Mixture {i}: ") for i, m in enumerate(mixtures)]
        if not read:
            raise ValueError("Expected at least one mixture, got an empty list.")
        dim = read[0][0].shape[-1]
        for i, (mean, *_) in enumerate(read):
            if mean.dim() != 2 or mean.shape[1] != dim:
                raise ValueError(
                    f"Mixture {i}: expected means of shape (K, {dim}), got {tuple(mean.shape)}."
                )
        return cls._read(*valid_mixtures(*map(pad_arrays, zip(*read, strict=True))))

    @classmethod
    def unpack(cls, rows: Data, dim: int) -> GaussianMixtures:
        """Read mixtures from rows: the inverse of ``pack``, except that rows do not hold labels.

        Args:
            rows: A ``batch_shape x K*(d+d*d+1)`` tensor or array.
            dim: Dimension ``d``.

        Returns:
            The mixtures.

        Raises:
            ValueError: As for the class, or if the width of the rows is not a multiple of
                ``d + d*d + 1``.

        Example:
            >>> from gp_distributions import GaussianMixtures
            >>> GaussianMixtures.unpack([[0.0, 1.0, 0.25, 4.0, 2.0, 0.75]], dim=1)
            GaussianMixtures(1 mixture, 2 components, d=1, float64)
        """
        return cls._read(*valid_mixtures(*split_mixtures(*row_tensor(rows, dim))))

    def pack(self, components: int | None = None) -> Tensor:
        """Write the mixtures as rows: for each component its mean, covariance and weight.

        The covariance is written row by row.

        Args:
            components: Number ``K`` of components in a row, to give several sets of mixtures the same
                width. Default: the stored number. A smaller number only removes padding.

        Returns:
            A ``batch_shape x K*(d+d*d+1)`` tensor.

        Raises:
            ValueError: If ``components`` is too small for the largest mixture.

        Example:
            >>> from gp_distributions import GaussianMixtures
            >>> mixtures = GaussianMixtures([[[0.0], [4.0]]], [[[[1.0]], [[2.0]]]])
            >>> mixtures.pack()
            tensor([[0.0000, 1.0000, 0.5000, 4.0000, 2.0000, 0.5000]], dtype=torch.float64)
            >>> mixtures.pack(components=5).shape
            torch.Size([1, 15])
        """
        count = self._row_size(components)
        rows = join_mixtures(self.mean, self.covariance, self.weights)
        return pad_rows(rows, count * (self.dim + self.dim**2 + 1))

    def sample(self, n: int, *, seed: int | torch.Generator = 0) -> PointClouds:
        """Draw independent points from each mixture, without gradients.

        Args:
            n: Number of points drawn from each mixture.
            seed: Random seed, or a generator on the device of the mixtures.

        Returns:
            Clouds of ``n`` atoms of weight ``1 / n``, with the labels of the mixtures.

        Raises:
            ValueError: If ``n`` is not an integer >= 1.

        Example:
            >>> from gp_distributions import GaussianMixtures
            >>> GaussianMixtures([[[0.0], [4.0]]], [[[[1.0]], [[2.0]]]]).sample(100, seed=0)
            PointClouds(1 cloud, 100 atoms, d=1, float64)
        """
        count, generator = integer(n, "n"), seeded(seed, self.device)
        chosen = self._drawn(count, generator)
        shape = (*self.batch_shape, count, self.dim)
        normal = torch.randn(shape, generator=generator, dtype=self.dtype, device=self.device)
        # Every component transforms every draw; each draw keeps the result of its own component.
        moved = normal.unsqueeze(-3) @ symmetric_root(self.covariance)
        moved = moved + self.mean.detach().unsqueeze(-2)
        index = chosen[..., None, :, None].expand(*self.batch_shape, 1, count, self.dim)
        points = moved.gather(-3, index).squeeze(-3)
        return PointClouds._unchecked(points, equal_weights(points), labels=self.labels)

    def _components(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.mean, self.covariance.diagonal(dim1=-2, dim2=-1), self.weights

    def _scaled(self, centre: Tensor, scale: Tensor) -> GaussianMixtures:
        mean, scale = (self.mean - centre) / scale, scale.expand(self.dim)
        covariance = self.covariance / (scale.unsqueeze(-1) * scale)
        return self._alike(mean, covariance, self.weights)


def symmetric_root(covariance: Tensor) -> Tensor:
    """Return the symmetric positive semi-definite square root of each matrix, without a gradient.

    This root is unique, whereas a factor made of eigenvectors is not.
    """
    eigenvalues, vectors = torch.linalg.eigh(covariance.detach())
    return (vectors * eigenvalues.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT


def moments(given: Sequence[Data], axes: str, prefix: str = "") -> list[Tensor]:
    """Convert a mean, a covariance and possibly weights of matching shapes to tensors.

    Args:
        given: The arrays.
        axes: The axes of the mean after the batch axes, ``"d"`` or ``"K, d"``.
        prefix: What the names of the arrays begin with in error messages.
    """
    names = [prefix + name for name in ("Mean", "Covariance", "Weights")[: len(given)]]
    arrays = [real_array(array, name) for array, name in zip(given, names, strict=True)]
    shape = tuple(arrays[0].shape)
    if len(shape) < len(axes.split(", ")) or 0 in shape:
        raise ValueError(
            f"{names[0]}: expected a non-empty array of shape (..., {axes}), got {shape}."
        )
    needed = (shape, (*shape, shape[-1]), shape[:-1])
    for array, name, expected in zip(arrays, names, needed, strict=False):
        if tuple(array.shape) != expected:
            raise ValueError(
                f"{name}: expected shape {expected} for a mean of shape {shape}, got "
                f"{tuple(array.shape)}. Pass variances as torch.diag_embed(variances), and n numbers, "
                "which are one mean in n dimensions, as an array of shape (n, 1)."
            )
    return to_tensors(arrays)


def valid_gaussians(
    mean: Tensor, covariance: Tensor, name: Name = _GAUSSIAN
) -> tuple[Tensor, Tensor]:
    """Check ``batch_shape x d`` means and their covariances; return the means and symmetric parts.

    The tolerance is ``1000 d`` times the machine epsilon, relative to the largest entry for symmetry
    and to the largest eigenvalue for definiteness.

    Raises:
        ValueError: If a mean is not finite, or a covariance is not finite, symmetric and positive
            semi-definite.
    """
    check_entries(mean.isfinite(), mean, name, "a finite mean", " in coordinate {}")
    finite, where = covariance.isfinite(), " in entry ({}, {})"
    check_entries(finite, covariance, name, "a finite covariance", where)
    values = covariance.detach()
    rounding = 1000 * values.shape[-1] * torch.finfo(values.dtype).eps
    allowed = rounding * values.abs().amax((-2, -1), keepdim=True)
    asymmetry = values - values.mT
    expected = "a symmetric covariance, with differences of 0"
    check_entries(asymmetry.abs() <= allowed, asymmetry, name, expected, where)
    symmetric = (covariance + covariance.mT) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric.detach())
    low, high = eigenvalues[..., 0], eigenvalues[..., -1]
    expected = "a positive semi-definite covariance, whose eigenvalues are >= 0"
    check_entries(low >= -rounding * high, low, name, expected, "")
    return mean, symmetric


def valid_mixtures(
    mean: Tensor, covariance: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Check ``batch_shape x K x d`` means, their covariances and weights, and normalise the weights."""

    def component(index: tuple[int, ...]) -> str:
        return f"{_MIXTURE(index[:-1])}, component {index[-1]}"

    _, covariance = valid_gaussians(mean, covariance, component)
    mean, weights, _ = validated(mean, weights, _MIXTURE)
    return mean, covariance, weights


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
    def from_mean_std(cls, mean: Data, std: Data, population: Gaussians | None = None) -> Gaussians:
        r"""Make Gaussians of independent coordinates, such as numbers with their standard errors.

        .. math:: N(m, \operatorname{diag}(s^2))

        This is the distribution of a true value if it varies around the recorded one, as doses around
        their settings. An error of measurement varies around the true value instead. With a population
        :math:`N(\mu, \Sigma)` of true values and :math:`S = \operatorname{diag}(s^2)`, the true value
        then has the distribution

        .. math::
            N\bigl(\mu + G (m - \mu),\; \Sigma - G \Sigma\bigr), \qquad G = \Sigma (\Sigma + S)^{-1}.

        Args:
            mean: A ``batch_shape x d`` tensor or array of means, or a data frame with a column for each
                coordinate; ``n`` numbers, such as a column of it, are the means of ``n`` Gaussians in
                one dimension.
            std: The standard deviations, in the same shape and units; zero for exact numbers.
            population: The recorded values of the training inputs with their errors, ``N`` Gaussians as
                this function returns them without a population, if errors are those of measurements.
                The population is the most likely one of their true values. Pass the same for new inputs.

        Returns:
            The Gaussians.

        Raises:
            ValueError: If the shapes differ, an entry is not finite, or a standard deviation is
                negative.

        Example:
            >>> import pandas as pd
            >>> from gp_distributions import Gaussians
            >>> table = pd.DataFrame({"x": [1.0, 2.0], "x_err": [0.1, 0.0]})
            >>> recorded = Gaussians.from_mean_std(table[["x"]], table[["x_err"]])
            >>> recorded.covariance.flatten()
            tensor([0.0100, 0.0000], dtype=torch.float64)
            >>> true = Gaussians.from_mean_std(table[["x"]], table[["x_err"]], recorded)
            >>> bool(true.mean[0] > 1)  # nearer to the other
            True

        Source: Carroll et al. 2006, chapter 4 (regression calibration).
        """
        (mean,), columns = in_one_order([mean], _GAUSSIAN)
        (std,), others = in_one_order([std], _GAUSSIAN)
        if {*(columns or ())} & {*(others or ())}:  # not x and x_err
            std = in_order(std, columns, "Std")
        means, deviations = to_tensors([real_array(mean, "Mean"), real_array(std, "Std")])
        if means.dim() == deviations.dim() == 1:
            means, deviations = means.unsqueeze(-1), deviations.unsqueeze(-1)
        if means.shape != deviations.shape:
            raise ValueError(
                f"Std: expected shape {tuple(means.shape)}, that of the mean, got "
                f"{tuple(deviations.shape)}."
            )
        known, expected = deviations.isfinite() & (deviations >= 0), "a standard deviation >= 0"
        check_entries(known, deviations, Wording("Gaussian"), expected, " in coordinate {}")
        gaussians = valid_gaussians(means, torch.diag_embed(deviations.square()))
        found = cls._read(*gaussians, columns=columns)
        if population is None:
            return found
        check_type(population, Gaussians)
        return cls._unchecked(*_given(found, *_population(population)), columns=columns)

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
        return cls._unchecked(mean, covariance, labels=clouds.labels, columns=clouds.columns)

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


def _given(recorded: Gaussians, centre: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and covariances of true values, given recorded ones and their population."""
    gain = torch.linalg.solve(
        spread + recorded.covariance, spread.expand_as(recorded.covariance)
    ).mT
    mean = centre + (gain @ (recorded.mean - centre).unsqueeze(-1)).squeeze(-1)
    covariance = spread - gain @ spread
    return mean, (covariance + covariance.mT) / 2


def _population(recorded: Gaussians) -> tuple[Tensor, Tensor]:
    """Return the most likely mean and covariance of true values, by steps of the EM algorithm."""
    centre = recorded.mean.mean(0)
    apart = recorded.mean - centre
    spread = apart.mT @ apart / len(apart)
    for _ in range(_STEPS):
        means, covariances = _given(recorded, centre, spread)
        centre, before = means.mean(0), spread
        apart = means - centre
        spread = covariances.mean(0) + apart.mT @ apart / len(apart)
        if bool((spread - before).abs().max() <= _SAME * before.diagonal().max()):
            break
    return centre, spread


Distributions: TypeAlias = PointClouds | Gaussians | GaussianMixtures
KINDS: dict[type[Distributions], str] = {
    PointClouds: "clouds",
    Gaussians: "gaussians",
    GaussianMixtures: "mixtures",
}
