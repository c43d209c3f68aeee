"""The covariance between averages of a function over distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gp_distributions.distances.embedded_rows import Rows, embedded, rows_of, state_of
from gp_distributions.kernels.distribution_kernel import RowKernel
from gp_distributions.measures.arrays import described, integer
from gp_distributions.numerics.embedding_kernels import point_covariances
from gp_distributions.numerics.expected_kernels import (
    between_gaussians,
    feature_map,
    feature_scales,
    keeps_slopes,
    terms_of,
    within_gaussians,
)
from gp_distributions.rows.clouds import drop_copies, drop_padding, expand_batches, split_rows
from gp_distributions.rows.layout import check_weights, normalized, split_gaussians

# Number of pairs of atoms, or of features of atoms, that are held at a time.
_HELD = 2**22


class ExpectedKernel(RowKernel):
    r"""Kernel of distributions: the mean of a kernel of atoms over two independent draws.

    .. math:: k(P, P') = \mathrm E_{x \sim P,\, x' \sim P'}\, k_0(x, x')

    If :math:`f` is a Gaussian process with the covariances :math:`k_0`, this is the covariance of its
    averages :math:`\int f\, dP` and :math:`\int f\, dP'`. It is linear on mean embeddings. Among clouds,
    it is a sum over pairs of atoms; among Gaussians, there is a closed form for RBF, linear and constant
    kernels.

    If atoms have kinds, there is a function of each kind, and :math:`k_0(x, x')` is multiplied by the
    correlation of the functions of the two kinds. It is zero unless ``correlated``; then it is
    :math:`L L^\top`, with the lower triangular :math:`L` of ``kind_factor`` to be learned.

    Args:
        base_kernel: The kernel of atoms :math:`k_0`, a GPyTorch kernel of points, whose parameters are
            learned.
        dim: Dimension ``d`` of the atoms, in which the number of a kind is one more coordinate.
        inputs: Kind of distributions, ``"clouds"`` or ``"gaussians"``.
        num_features: Number of random cosines and sines in place of an RBF kernel, for clouds of many
            atoms; the time grows with the number of atoms rather than of pairs. Default: all pairs.
        num_kinds: Number of kinds, whose numbers are the last coordinates of atoms. Default: none.
        correlated: Whether the functions of the kinds are correlated.
        total: Whether weights are masses, which are summed as they are, rather than divided by their
            sum.
        seed: Random seed of the frequencies.
        centre: The coordinates of the point about which atoms are centred. Default: zero.
        scale: The units in which :math:`k_0` measures the coordinates. Default: one.

    Raises:
        TypeError: If ``base_kernel`` is not a kernel of GPyTorch.
        ValueError: If it has batch axes; or ``inputs`` are ``"gaussians"`` or ``num_features`` is given,
            and it is not a sum of RBF, linear and constant kernels.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.kernels import ExpectedKernel
        >>> kernel = ExpectedKernel(RBFKernel(), dim=1)
        >>> rows = PointClouds.from_list([[[0.0], [2.0]], [[1.0]]]).pack()
        >>> kernel(rows).to_dense().shape
        torch.Size([2, 2])

    Source: Muandet et al. 2012; Girard et al. 2003 (Gaussians).
    """

    # Whether the coordinates are those of points in a space.
    reads_coordinates = True

    def __init__(
        self,
        base_kernel: Kernel,
        dim: int,
        *,
        inputs: Literal["clouds", "gaussians"] = "clouds",
        num_features: int | None = None,
        num_kinds: int = 0,
        correlated: bool = False,
        total: bool = False,
        seed: int = 0,
        centre: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(base_kernel, Kernel):
            raise TypeError(
                "Expected a GPyTorch kernel of atoms, such as ScaleKernel(RBFKernel()), got "
                f"{described(base_kernel)}."
            )
        if base_kernel.batch_shape:
            raise ValueError(
                f"Expected a kernel of atoms without batch axes, got {tuple(base_kernel.batch_shape)}."
            )
        self.base_kernel = base_kernel
        self.dim = dim
        self.inputs = inputs
        self.num_features = None if num_features is None else integer(num_features, "num_features")
        self.num_kinds = num_kinds
        self.total = total
        self.seed = seed
        if correlated:
            start = torch.eye(num_kinds, dtype=torch.float64)
            self.register_parameter("raw_kind_factor", torch.nn.Parameter(start))
        self.correlated = correlated
        one = torch.ones(self.num_coordinates, dtype=torch.float64)
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", 0 * one if centre is None else centre)
        self.register_buffer("scale", one if scale is None else scale)
        if inputs == "gaussians" or num_features is not None:
            terms_of(base_kernel)

    @property
    def num_coordinates(self) -> int:
        """Number of coordinates of atoms without that of kinds."""
        return self.dim - (self.num_kinds > 0)

    @property
    def kind_factor(self) -> Tensor:
        """The factor ``L`` of the correlations of the functions of kinds, whose rows have length one."""
        if not self.correlated:
            return torch.eye(self.num_kinds).to(self.scale)
        factor: Tensor = torch.nn.functional.normalize(self.raw_kind_factor.tril(), dim=-1)
        return factor

    @property
    def is_stationary(self) -> bool:
        """Whether the kernel depends only on differences of distributions, which it does not."""
        return False

    def forward(self, x1: Rows, x2: Rows, diag: bool = False, **params: Any) -> Tensor:
        """Compute covariances of rows: ``batch_shape x N x M``, or ``batch_shape x N`` with ``diag``."""
        rows1, rows2 = rows_of(x1), rows_of(x2)
        first = drop_copies(rows1)
        second = first if rows2 is rows1 else drop_copies(rows2)
        if self.num_features is not None:
            features = self._features(x1)
            others = features if second is first else self._features(x2)
            found = (features * others).sum(-1) if diag else features @ others.mT
        elif self.inputs == "gaussians":
            # A pair is a set of one with another.
            sets = [rows.unsqueeze(-2) if diag else rows for rows in (first, second)]
            found = between_gaussians(self.base_kernel, *map(self._gaussians, sets))
            found = found.flatten(-3) if diag else found
        elif diag:
            found = self._paired(first, second)
        elif second.dim() == 2:
            found = self._all(first.flatten(0, -2), second).unflatten(0, first.shape[:-1])
        else:  # the rows of each element of a batch with one another
            found = self._paired(first.unsqueeze(-2), second.unsqueeze(-3))
        return expand_batches(found, rows1, rows2, diag=diag)

    def variances(self, x: Rows) -> Tensor:
        r"""Compute :math:`\mathrm E\, k_0(x, x)`, the mean variance of the function, for each row."""
        if self.inputs == "gaussians":
            return within_gaussians(self.base_kernel, *self._gaussians(rows_of(x)))
        atoms, weights = self.clouds(rows_of(x))
        flat = atoms[..., : self.num_coordinates].reshape(-1, 1, self.num_coordinates)
        each = point_covariances(self.base_kernel, flat, flat).reshape(weights.shape)
        return (weights * each).sum(-1)

    def _all(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Compute the covariances of ``N x width`` with ``M x width'`` rows, ``N x M``."""
        atoms, weights = self.clouds(x2)
        used = weights > 0
        points, shares = atoms[used], weights[used]
        owners, count = used.nonzero()[:, 0], len(x2)

        def covariances(atoms: Tensor, weights: Tensor) -> Tensor:
            used = weights > 0
            values = self._of_atoms(atoms[used], points)
            values = weights[used].unsqueeze(-1) * values * shares
            values = values.new_zeros(len(values), count).index_add(1, owners, values)
            of_clouds = values.new_zeros(len(weights), count)
            return of_clouds.index_add(0, used.nonzero()[:, 0], values)

        atoms, weights = self.clouds(x1)
        return _in_chunks(covariances, atoms, weights, cost=atoms.shape[-2] * len(points))

    def _paired(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Compute the covariances of corresponding rows, whose batch axes broadcast."""
        shape = torch.broadcast_shapes(x1.shape[:-1], x2.shape[:-1])
        x1, x2 = (x.expand(*shape, -1).flatten(0, -2) for x in (x1, x2))

        def covariances(
            atoms1: Tensor, weights1: Tensor, atoms2: Tensor, weights2: Tensor
        ) -> Tensor:
            values = self._of_atoms(atoms1, atoms2)
            return (weights1.unsqueeze(-2) @ values @ weights2.unsqueeze(-1)).flatten()

        clouds = *self.clouds(x1), *self.clouds(x2)
        return _in_chunks(
            covariances, *clouds, cost=clouds[0].shape[-2] * clouds[2].shape[-2]
        ).reshape(shape)

    def _of_atoms(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute the covariances of atoms, ``... x N x M``."""
        size = self.num_coordinates
        values = point_covariances(self.base_kernel, x[..., :size], y[..., :size])
        if not self.num_kinds:
            return values
        factor = self.kind_factor.to(values)
        first, second = x[..., -1].detach().long(), y[..., -1].detach().long()
        return values * (factor[first] @ factor[second].mT)

    def features(self, rows: Tensor) -> Tensor:
        """Compute features of ``... x N x width`` rows whose inner products are the covariances.

        There are as many for each kind, one kind after the other: an ``... x N x D`` tensor.
        """
        return self._features(rows).expand(*rows.shape[:-1], -1)

    def _features(self, x: Rows) -> Tensor:
        """Compute features of the rows without the copies of a batch.

        If no lengthscale is learned, rows hold their features, which only the scales multiply.
        """
        count, held = self.num_features, embedded(x)
        assert count is not None
        smooth = [part for _, part, _ in terms_of(self.base_kernel) if isinstance(part, RBFKernel)]
        learned = any(parameter.requires_grad for part in smooth for parameter in part.parameters())
        if torch.is_grad_enabled() and (learned or held.rows.requires_grad):
            found = self._unscaled(held.rows, count)
        else:
            units = (tuple(each.tolist()) for each in (self.centre, self.scale))
            found = held.derived(
                ("features", count, self.seed, self.num_kinds, self.total),
                lambda: self._unscaled(held.rows, count),
                state=(*units, *map(state_of, smooth)),
            )
        found = found * feature_scales(self.base_kernel, self.num_coordinates, count).to(found)
        if self.correlated:
            found = self.kind_factor.to(found).mT @ found
        return found.flatten(-2)

    def _unscaled(self, rows: Tensor, count: int) -> Tensor:
        """Compute features without scales and correlations of kinds, ``... x N x kinds x D``."""
        rows = drop_copies(rows)
        of_kinds = feature_map(self.base_kernel, self.num_coordinates, count, seed=self.seed)
        atoms, weights = self.clouds(rows.flatten(0, -2))

        def features(atoms: Tensor, weights: Tensor) -> Tensor:
            atoms, weights = drop_padding(atoms, weights)
            points = atoms[..., : self.num_coordinates]
            return of_kinds(points, self._weights_of_kinds(atoms, weights))

        slopes = keeps_slopes(atoms, self._weights_of_kinds(atoms[:1], weights[:1]))
        found = _in_chunks(
            features,
            atoms,
            weights,
            cost=count * atoms.shape[-2],
            again=rows.requires_grad or not slopes,
        )
        return found.unflatten(0, rows.shape[:-1])

    def _weights_of_kinds(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Return the weights of atoms of each kind, ``C x kinds x n``; zero for those of others."""
        if not self.num_kinds:
            return weights.unsqueeze(-2)
        kinds = torch.arange(self.num_kinds, device=atoms.device).unsqueeze(-1)
        return weights.unsqueeze(-2) * (atoms[..., -1].long().unsqueeze(-2) == kinds)

    def clouds(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return atoms in the units of the kernel, and their weights or masses."""
        atoms, weights = split_rows(rows, self.dim)
        points = (atoms[..., : self.num_coordinates] - self.centre.to(rows)) / self.scale.to(rows)
        if self.num_kinds:
            points = torch.cat([points, atoms[..., -1:]], dim=-1)
        if not self.total:
            return points, normalized(weights)
        check_weights(weights)
        return points, weights

    def _gaussians(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, covariance = split_gaussians(rows, self.dim)
        scale = self.scale.to(rows)
        return (mean - self.centre.to(rows)) / scale, covariance / (scale.unsqueeze(-1) * scale)


def _in_chunks(
    function: Callable[..., Tensor], *tensors: Tensor, cost: int, again: bool = True
) -> Tensor:
    """Return what a function computes from some entries of the first axes at a time.

    Args:
        function: The function, whose results are concatenated.
        *tensors: The tensors.
        cost: Number of numbers that it holds for each entry.
        again: Whether to compute what it needs in a backward pass again there, rather than to keep it.
    """
    size = max(1, _HELD // max(1, cost))
    parts = list(zip(*(tensor.split(size) for tensor in tensors), strict=True))
    if len(parts) == 1:
        return function(*parts[0])
    if not again:
        return torch.cat([function(*part) for part in parts])
    return torch.cat([checkpoint(function, *part, use_reentrant=False) for part in parts])
