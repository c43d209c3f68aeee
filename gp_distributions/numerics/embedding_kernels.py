r"""Embedding kernels: kernels on atoms, which define the mean embeddings of distributions.

Points are in units of the bandwidth. An isotropic kernel is a function of the squared distance
:math:`s = |x - y|^2`. Isotropic kernels with a Fourier transform are scale mixtures of the Gaussian
kernel, :math:`k = \mathrm E \exp(-\tau^2 s / 2)`.

Embedding kernels between Gaussians in closed form: :math:`\mathrm E\,k(X, Y)` of independent draws.

A Gaussian is a point with ``d + d*d`` coordinates: the mean, then the row-major covariance.

Source: Muandet et al. 2012, table 1, whose term of degree 3 should read
:math:`6 m_i^\top \Sigma_j \Sigma_i m_j`. Its linear entry has a term
:math:`\delta_{ij} \operatorname{tr} \Sigma_i`, the variance of one draw, which independent draws do not
have: it is left out here.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, mul
from typing import Any

import numpy as np
import scipy
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from linear_operator import to_dense
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.numerics.linear_algebra import by_torch, square_root
from gp_distributions.rows.layout import split_gaussians
from gp_distributions.rows.tensors import is_tracked

PairFunction = Callable[[Tensor, Tensor], Tensor]

# Largest rounding error allowed in squared distances that come from inner products.
_ROUNDING = 2e-13
# Below this exponent the exponential underflows to denormal numbers, which are ten times slower.
_UNDERFLOW = -700.0


class EmbeddingKernel(ABC):
    """A symmetric kernel on points."""

    # How many numbers must be stored to compute one value of the kernel.
    workspace: int = 1

    @abstractmethod
    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of points."""

    def prepare(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, PairFunction]:
        """Transform points to the coordinates in which the kernel is fastest to evaluate.

        Args:
            x: A ``... x d`` tensor.
            y: A ``... x d`` tensor.

        Returns:
            The coordinates of ``x``, the coordinates of ``y``, and a differentiable function that
            evaluates the kernel: it maps a ``batch_shape x N x D`` and a ``batch_shape x M x D`` tensor
            of coordinates to a ``batch_shape x N x M`` tensor. By default, the coordinates are the
            points themselves.
        """
        return x, y, self.pairs

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the ``batch_shape x N x M`` kernel matrix of ``x`` and ``y``."""
        left, right, pairs = self.prepare(x, y)
        return pairs(left, right)


class IsotropicKernel(EmbeddingKernel):
    """A function of the squared distance."""

    workspace = 2
    # Whether the kernel has a kink at zero distance, so that rounding of small distances matters.
    _has_kink = False

    @abstractmethod
    def profile(self, squared: Tensor) -> Tensor:
        """Evaluate the kernel at squared distances, which may be overwritten.

        If the kernel has a kink at zero distance, its derivative is set to 0 there.
        """

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of points, accurately even near zero distance."""
        return self.profile(squares_by_differences(x, y))

    def prepare(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, PairFunction]:
        """Transform points so that one matrix product gives squared distances, if it is accurate."""
        left, right, squares, _ = _factors(x, y, 1.0, exact=self._has_kink)
        return left, right, lambda a, b: self.profile(squares(a, b))

    def mixing(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        r"""Evaluate the quantile function of :math:`\tau`, the scale of the Gaussian mixture.

        Raises:
            NotImplementedError: If the kernel has no Fourier transform.
        """
        raise NotImplementedError


class GaussianKernel(IsotropicKernel):
    r"""Gaussian kernel, :math:`\exp(-s / 2)`, where :math:`s` is the squared distance."""

    workspace = 1

    def profile(self, squared: Tensor) -> Tensor:
        """Evaluate the kernel at squared distances."""
        return (-0.5 * squared).exp_()

    def prepare(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, PairFunction]:
        """Transform points so that one matrix product gives the exponents, if it is accurate."""
        left, right, exponents, bound = _factors(x, y, -0.5, exact=False)
        if bound < -_UNDERFLOW:
            return left, right, lambda a, b: exponents(a, b).exp_()
        return left, right, lambda a, b: exponents(a, b).clip(_UNDERFLOW).exp_()

    def mixing(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the quantile function of the scale of the mixture, which is always one."""
        return np.ones_like(u)


class MaternKernel(IsotropicKernel):
    r"""Matern kernel of smoothness :math:`\nu / 2`: :math:`p(r) e^{-r}` with :math:`r = \sqrt{\nu s}`.

    The polynomial :math:`p(r)` is 1 for :math:`\nu = 1`, the Laplace kernel, :math:`1 + r` for 3 and
    :math:`1 + r + r^2 / 3` for 5.

    Args:
        degrees: The number :math:`\nu`, which is also the degrees of freedom of the t distribution of
            frequencies.
    """

    def __init__(self, degrees: int) -> None:
        self.degrees = degrees
        self.workspace = 2 if degrees == 1 else 4
        self._has_kink = degrees == 1

    def profile(self, squared: Tensor) -> Tensor:
        """Evaluate the kernel at squared distances."""
        root = math.sqrt(self.degrees) * _root(squared)
        if self.degrees == 1:
            return (-root).exp_()
        polynomial = 1 + root if self.degrees == 3 else 1 + root + root * root / 3
        return polynomial * (-root).exp_()

    def mixing(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the quantile function of the scale of the Gaussian mixture."""
        half = self.degrees / 2
        return np.sqrt(half / scipy.special.gammaincinv(half, u))


class InverseMultiquadricKernel(IsotropicKernel):
    r"""Inverse multiquadric kernel, :math:`(1 + s)^{-1/2}`."""

    def profile(self, squared: Tensor) -> Tensor:
        """Evaluate the kernel at squared distances."""
        return 1 / _root(1 + squared)

    def mixing(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Evaluate the quantile function of the scale of the Gaussian mixture."""
        return np.sqrt(2 * scipy.special.gammaincinv(0.5, u))


class EnergyKernel(IsotropicKernel):
    r"""Kernel of the energy distance, :math:`-\sqrt s`, up to terms that depend on one point only.

    This kernel is only conditionally positive definite, that is, on differences of distributions.
    """

    _has_kink = True

    def profile(self, squared: Tensor) -> Tensor:
        """Evaluate the kernel at squared distances."""
        return -_root(squared)


class PolynomialKernel(EmbeddingKernel):
    r"""Polynomial kernel, :math:`(\langle x, y \rangle + c)^p`.

    The offset :math:`c` is 0 if :math:`p = 1`, and 1 otherwise.

    Args:
        degree: Degree ``p``: 1, 2 or 3.
    """

    workspace = 2

    def __init__(self, degree: int) -> None:
        self.degree = degree

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of points."""
        products = _product(x, y)
        return products if self.degree == 1 else (products + 1).pow(self.degree)


EMBEDDING_KERNELS: dict[str, EmbeddingKernel] = {
    "gaussian": GaussianKernel(),
    "laplace": MaternKernel(1),
    "matern32": MaternKernel(3),
    "matern52": MaternKernel(5),
    "inverse_multiquadric": InverseMultiquadricKernel(),
    "energy": EnergyKernel(),
    "linear": PolynomialKernel(1),
    "polynomial2": PolynomialKernel(2),
    "polynomial3": PolynomialKernel(3),
}


def _factors(
    x: Tensor, y: Tensor, factor: float, *, exact: bool
) -> tuple[Tensor, Tensor, PairFunction, float]:
    """Prepare points for a function that returns ``factor`` times their squared distances.

    The function computes one matrix product. It computes differences instead if ``exact`` is true, or
    if the points are so far apart that rounding errors of the product would be too large.

    Returns:
        The transformed ``x`` and ``y``, the function, and an upper bound on its absolute values.
    """
    centre = y.detach().flatten(0, -2).mean(0)
    x, y = x - centre, y - centre
    squares_x, squares_y = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    spread = max(float(squares_x.detach().amax()), float(squares_y.detach().amax()))
    bound = 4 * abs(factor) * spread
    if exact or not torch.finfo(x.dtype).eps * spread <= _ROUNDING:
        if factor == 1:
            return x, y, squares_by_differences, bound
        return x, y, lambda a, b: factor * squares_by_differences(a, b), bound
    left = torch.cat([-2 * factor * x, factor * squares_x, torch.ones_like(squares_x)], -1)
    right = torch.cat([y, torch.ones_like(squares_y), factor * squares_y], -1)
    return left, right, _product, bound


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.mT


def squares_by_differences(x: Tensor, y: Tensor) -> Tensor:
    """Compute squared distances of all pairs of points from differences, accurate even near zero."""
    if x.dim() == 2 and not by_torch(x, y):  # several times faster
        squares = scipy.spatial.distance.cdist(x.detach(), y.detach(), "sqeuclidean")
        return torch.from_numpy(squares).to(x.dtype)
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()


def _root(squared: Tensor) -> Tensor:
    """Square root, as by :func:`square_root`."""
    if is_tracked(squared):
        return square_root(squared)
    return squared.clamp_min_(0).sqrt_()


class PointKernel(EmbeddingKernel):
    """A kernel on points that does not change.

    It is not a module, so that its hyperparameters and its scale are not taken for those of a kernel on
    distributions.

    Args:
        function: A GPyTorch kernel, or a function that maps a ``batch_shape x N x d`` and a
            ``batch_shape x M x d`` tensor to a ``batch_shape x N x M`` tensor. A kernel or other module
            is copied, and its parameters are fixed.

    Raises:
        TypeError: If ``function`` cannot be called.
        ValueError: If a GPyTorch kernel has batch axes.
    """

    workspace = 2  # unknown; larger blocks make up for the overhead of a call

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(
                "Expected the name of an embedding kernel, a function of points or a GPyTorch kernel, "
                f"got {type(function).__name__}."
            )
        if isinstance(function, Kernel) and function.batch_shape:
            raise ValueError(
                f"Expected a kernel on points without batch axes, got batch_shape="
                f"{tuple(function.batch_shape)}."
            )
        if isinstance(function, torch.nn.Module):
            function = copy.deepcopy(function).requires_grad_(False).eval()
        self.function = function

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of points."""
        function = self.function
        if isinstance(function, torch.nn.Module):
            function = function.to(x.device)
        values = (
            point_covariances(function, x, y) if isinstance(function, Kernel) else function(x, y)
        )
        expected = torch.broadcast_shapes(x.shape[:-1], (1,)) + y.shape[-2:-1]
        if not isinstance(values, Tensor) or values.shape != expected:
            found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"Expected {self} to return a tensor of shape {tuple(expected)} for points of shapes "
                f"{tuple(x.shape)} and {tuple(y.shape)}, got {found}."
            )
        return values.to(x.dtype)

    def __repr__(self) -> str:
        """Return the name of the function or of the class of the kernel."""
        return getattr(self.function, "__name__", type(self.function).__name__)


def point_covariances(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """Evaluate a GPyTorch kernel without lazy tensors, which are not safe in threads."""
    if kernel.active_dims is not None:
        x, y = (points.index_select(-1, kernel.active_dims) for points in (x, y))
    return _of_columns(kernel, x, y)


def _of_columns(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """Evaluate a GPyTorch kernel on its columns."""
    if type(kernel) is ScaleKernel:  # it has already selected the columns of its base kernel
        return kernel.outputscale * _of_columns(kernel.base_kernel, x, y)
    if type(kernel) in (AdditiveKernel, ProductKernel):
        terms = (point_covariances(part, x, y) for part in kernel.kernels)
        return reduce(add if type(kernel) is AdditiveKernel else mul, terms)
    return to_dense(kernel.forward(x, y))


def gaussian_expectation(kernel: EmbeddingKernel, dim: int) -> EmbeddingKernel | None:
    """Return the kernel between Gaussians, or ``None`` if there is no closed form.

    Args:
        kernel: Embedding kernel, whose expectation over two Gaussians is the kernel between them.
        dim: Dimension ``d`` of the Gaussians.
    """
    if isinstance(kernel, GaussianKernel):
        return _Expectation(dim, expected_gaussian, 2 * dim * (dim + 1))
    if isinstance(kernel, PolynomialKernel):
        polynomial = partial(_polynomial, kernel.degree)
        return _Expectation(dim, polynomial, 2 * dim if kernel.degree == 3 else 1)
    return None


@dataclass(frozen=True, eq=False)
class _Expectation(EmbeddingKernel):
    """Kernel between Gaussians that is given as a function of their means and covariances."""

    dim: int
    function: Callable[..., Tensor]
    workspace: int

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of Gaussians."""
        return self.function(*split_gaussians(x, self.dim), *split_gaussians(y, self.dim))


def expected_gaussian(
    mean1: Tensor, covariance1: Tensor, mean2: Tensor, covariance2: Tensor
) -> Tensor:
    r"""Expectation of the Gaussian kernel, :math:`|C|^{-1/2} \exp(-\delta^\top C^{-1} \delta / 2)`.

    Here :math:`\delta = m - m'` and :math:`C = S + S' + I`.
    """
    identity = torch.eye(mean1.shape[-1]).to(mean1)
    factor = torch.linalg.cholesky(covariance1.unsqueeze(-3) + covariance2.unsqueeze(-4) + identity)
    difference = (mean1.unsqueeze(-2) - mean2.unsqueeze(-3)).unsqueeze(-1)
    whitened = torch.linalg.solve_triangular(factor, difference, upper=False).squeeze(-1)
    log_root = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.exp(-0.5 * whitened.square().sum(-1) - log_root)


def _polynomial(
    degree: int, mean1: Tensor, covariance1: Tensor, mean2: Tensor, covariance2: Tensor
) -> Tensor:
    r"""Expectation of the polynomial kernel of degree 1, 2 or 3.

    The expectations are :math:`t`, :math:`(t + 1)^2 + q` and
    :math:`(t + 1)^3 + 3 (t + 1) q + 6 m^\top S' S m'`, where :math:`t = \langle m, m' \rangle` and
    :math:`q = m^\top S' m + m'^\top S m' + \mathrm{tr}\, S S'`.
    """
    inner = mean1 @ mean2.mT
    if degree == 1:
        return inner
    # Inner product of the second moments m m' + S, minus the inner product of the m m'.
    second1, second2 = (
        (mean.unsqueeze(-1) * mean.unsqueeze(-2) + covariance).flatten(-2)
        for mean, covariance in ((mean1, covariance1), (mean2, covariance2))
    )
    mixed = second1 @ second2.mT - inner.square()
    if degree == 2:
        return (inner + 1).square() + mixed
    crossed1 = torch.einsum("...jab,...ib->...ija", covariance2, mean1)  # S' m
    crossed2 = torch.einsum("...iab,...jb->...ija", covariance1, mean2)  # S m'
    cubic = (crossed1 * crossed2).sum(-1)
    return (inner + 1) ** 3 + 3 * (inner + 1) * mixed + 6 * cubic
