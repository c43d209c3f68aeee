r"""Random Fourier features of distribution kernels, from which BoTorch draws sample paths.

Every radial profile is a scale mixture of Gaussian profiles (Schoenberg 1938),

.. math::
    \varphi(s) = \mathrm E \exp(-\tau^2 s / 2).

If the distance is the Euclidean distance between embeddings :math:`\phi`, and :math:`z` is standard
normal, then

.. math::
    k(P, P') = \mathrm E \cos(\tau \langle z, \phi(P) - \phi(P') \rangle / \ell).

In a product of kernels, angles :math:`\theta` add up, as :math:`\mathrm E \cos(\theta + \theta')` is the
product of both expectations of symmetric angles. Categories have the angle 0, with a probability that is
the kernel between different ones, and otherwise multiples of a random angle.

Importing this module registers the features with BoTorch, so that ``draw_matheron_paths``,
``get_matheron_path_model`` and ``PathwiseThompsonSampling`` accept models with these kernels. As with
BoTorch's own kernels, the features give a draw from the prior, and the update on the data uses the
exact kernel.

Example:
    >>> import torch
    >>> from botorch.sampling.pathwise import draw_matheron_paths
    >>> from gp_distributions import DistributionGP, PointClouds
    >>> clouds = PointClouds(torch.linspace(0, 1, 8).double().reshape(4, 2, 1))
    >>> model = DistributionGP(clouds, [0.0, 1.0, 4.0, 9.0]).eval()
    >>> paths = draw_matheron_paths(model, torch.Size([5]))
    >>> paths(clouds.pack()).shape
    torch.Size([5, 4])

Source: Rahimi and Recht 2007; Wilson et al. 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.kernels.categorical import CategoricalKernel
from botorch.sampling.pathwise.features.generators import GenKernelFeatures, gen_kernel_features
from botorch.sampling.pathwise.features.maps import FeatureMap, KernelFeatureMap
from botorch.sampling.pathwise.utils import FeatureSelector, SineCosineTransform
from gpytorch.kernels import Kernel, ProductKernel
from torch import Tensor

from gp_distributions.kernels import profiles
from gp_distributions.kernels.covariances import BlockKernel
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.rows.layout import Columns, select_columns


def _gamma(concentration: Tensor | float, like: Tensor) -> Tensor:
    """Draw from the gamma distribution of rate one, once for each entry of ``like``."""
    return torch._standard_gamma(torch.zeros_like(like) + concentration)


def _stable(power: float, like: Tensor) -> Tensor:
    """Draw positive numbers whose distribution has the Laplace transform ``exp(-s^power)``.

    Source: Kanter 1975.
    """
    if power == 1:
        return torch.ones_like(like)
    angle, waiting = math.pi * torch.rand_like(like), _gamma(1.0, like)
    tail = (torch.sin((1 - power) * angle) / waiting) ** (1 / power - 1)
    return torch.sin(power * angle) / torch.sin(angle) ** (1 / power) * tail


# Functions that draw tau^2, by profile class. Subclasses are left out: they may change the profile.
_SQUARED_SCALES: dict[type[profiles.Profile], Callable[..., Tensor]] = {
    profiles.Gaussian: lambda _, like: torch.ones_like(like),
    profiles.Exponential: lambda _, like: 0.5 / _gamma(0.5, like),
    profiles.Matern32: lambda _, like: 1.5 / _gamma(1.5, like),
    profiles.Matern52: lambda _, like: 2.5 / _gamma(2.5, like),
    profiles.RationalQuadratic: lambda profile, like: (
        _gamma(profile.alpha.detach(), like) / profile.alpha.detach()
    ),
    profiles.Cauchy: lambda _, like: 2 * _gamma(1.0, like),
    profiles.InverseMultiquadric: lambda _, like: 2 * _gamma(0.5, like),
    profiles.PowerExponential: lambda profile, like: 2 * _stable(profile.beta, like),
    profiles.StudentT: lambda profile, like: (
        2 * _gamma(1.0, like) ** (2 / profile.t) * _stable(profile.t / 2, like)
    ),
}


def _waves(kernel: Kernel, num_outputs: int) -> SineCosineTransform:
    """Return the transform of angles to features, half of which are sines."""
    if num_outputs % 2:
        raise UnsupportedError(
            f"Expected an even number of features, half of them sines, got {num_outputs}."
        )
    scale = math.sqrt(2 / num_outputs)
    return SineCosineTransform(torch.tensor(scale, dtype=kernel.dtype, device=kernel.device))


class _KernelFeatureMap(FeatureMap):
    """Features of a kernel, of which each call uses the current lengthscale.

    Args:
        kernel: The kernel.
        num_outputs: Number of features.
    """

    def __init__(self, kernel: Kernel, num_outputs: int) -> None:
        super().__init__()
        self.kernel: Any = kernel
        self.num_outputs = num_outputs
        # BoTorch chains these transforms with those of a ScaleKernel, so they must not be None.
        columns = kernel.active_dims
        self.input_transform = torch.nn.Identity() if columns is None else FeatureSelector(columns)
        self.output_transform: torch.nn.Module = torch.nn.Identity()

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the kernel."""
        shape: torch.Size = self.kernel.batch_shape
        return shape


class FourierFeatureMap(_KernelFeatureMap):
    """Sines and cosines of random projections of embeddings.

    Args:
        kernel: The kernel. Each call uses its current lengthscale.
        num_outputs: Number of features, half of which are sines.
    """

    def __init__(self, kernel: DistributionKernel, num_outputs: int) -> None:
        super().__init__(kernel, num_outputs)
        lengthscale = kernel.lengthscale.detach()
        like = lengthscale.new_empty(*kernel.batch_shape, 1, num_outputs // 2)
        squared_scales = _SQUARED_SCALES[type(kernel.profile)](kernel.profile, like)
        # Draws from heavy tails may overflow. The limit acts like an infinite scale.
        self.register_buffer("scales", squared_scales.clamp_max(1e30).sqrt())
        # Directions are drawn in the first call, when the dimension of the embedding is known.
        self.directions: Tensor | None
        self.register_buffer("directions", None)
        self.output_transform = _waves(kernel, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the angles of rows, ``batch_shape x N x num_outputs/2``."""
        kernel = self.kernel
        embedded = kernel.scaled_features(x) if kernel.is_ard else kernel.features(x)
        if self.directions is None:
            shape = (self.num_outputs // 2, embedded.shape[-1])
            self.directions = torch.randn(shape, dtype=x.dtype, device=x.device)
        angles = embedded @ self.directions.mT * self.scales
        return angles if kernel.is_ard else angles / kernel.lengthscale


class LinearFeatureMap(_KernelFeatureMap):
    """The embedding about the origin, in lengthscales, as features of a linear kernel.

    Embeddings of fewer dimensions than features are padded, which is exact; larger ones are projected at
    random, which preserves inner products on average.

    Args:
        kernel: The kernel. Each call uses its current lengthscale.
        num_outputs: Number of features.
    """

    def __init__(self, kernel: DistributionKernel, num_outputs: int) -> None:
        super().__init__(kernel, num_outputs)
        # Projections are drawn in the first call, when the dimension of the embedding is known.
        self.projection: Tensor | None
        self.register_buffer("projection", None)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features of rows, ``batch_shape x N x num_outputs``."""
        embedded = self.kernel.scaled_features(x)
        if self.kernel.origin is not None:
            origin = self.kernel.scaled_features(self.kernel.origin.to(x))
            embedded = embedded - origin.mean(-2, keepdim=True)
        missing = self.num_outputs - embedded.shape[-1]
        if missing >= 0:
            return torch.nn.functional.pad(embedded, (0, missing))
        if self.projection is None:
            shape = (embedded.shape[-1], self.num_outputs)
            drawn = torch.randn(shape, dtype=x.dtype, device=x.device)
            self.projection = drawn / math.sqrt(self.num_outputs)
        return embedded @ self.projection


def _gen_kernel_features(
    kernel: DistributionKernel, *, num_inputs: int, num_outputs: int
) -> FeatureMap:
    """Create the features of a distribution kernel for BoTorch's ``gen_kernel_features``.

    Raises:
        UnsupportedError: If the distance has no ``embed``, the profile has no Fourier features, or
            ``num_outputs`` is odd.
    """
    distance, profile = type(kernel.distance).__name__, type(kernel.profile)
    if not hasattr(kernel.distance, "embed"):
        raise UnsupportedError(
            f"Sample paths need a distance with finitely many features (embed), but this {distance} "
            "has none. Use SlicedWasserstein with p=2, MMD with num_features or a polynomial kernel, "
            "LinearTransport, SinkhornPotential, Hellinger or Fourier."
        )
    if profile is profiles.Linear:
        return LinearFeatureMap(kernel, num_outputs)
    if profile not in _SQUARED_SCALES:
        supported = ", ".join(each.__name__ for each in _SQUARED_SCALES)
        raise UnsupportedError(
            f"The {profile.__name__} profile has no random features. Use Linear or one of {supported}."
        )
    return FourierFeatureMap(kernel, num_outputs)


class ProductFeatureMap(_KernelFeatureMap):
    """Sines and cosines of sums of angles of a product of kernels, or of the kernel of a block.

    Args:
        kernel: The product, or a :class:`BlockKernel`.
        num_inputs: Number of columns.
        num_outputs: Number of features, half of which are sines.
    """

    def __init__(
        self, kernel: ProductKernel | BlockKernel, *, num_inputs: int, num_outputs: int
    ) -> None:
        super().__init__(kernel, num_outputs)
        block = isinstance(kernel, BlockKernel)
        self.columns: Columns = kernel.columns if block else None
        count = len(self.columns) if isinstance(self.columns, tuple) else num_inputs
        self.factors = torch.nn.ModuleList(
            gen_kernel_features(each, num_inputs=count, num_outputs=num_outputs)
            for each in ([kernel.base_kernel] if block else kernel.kernels)
        )
        self.output_transform = _waves(kernel, num_outputs)
        if not all(isinstance(each.output_transform, SineCosineTransform) for each in self.factors):
            raise UnsupportedError("Sample paths of products need factors with Fourier features.")

    def forward(self, x: Tensor) -> Tensor:
        """Compute the angles of rows, ``batch_shape x N x num_outputs/2``."""
        x = select_columns(x, self.columns)
        factors: Iterable[Any] = self.factors
        angles: Tensor = sum(each.forward(each.input_transform(x)) for each in factors)
        return angles


def _of_categories(kernel: CategoricalKernel, *, num_inputs: int, num_outputs: int) -> FeatureMap:
    lengthscale = kernel.lengthscale.detach()
    turns, chance = lengthscale.new_empty(
        2, *kernel.batch_shape, num_outputs // 2, num_inputs
    ).uniform_()
    differs = chance > torch.exp(-1 / (num_inputs * lengthscale))
    found = KernelFeatureMap(kernel, 2 * math.pi * turns * differs)
    found.input_transform, found.output_transform = torch.nn.Identity(), _waves(kernel, num_outputs)
    return found


GenKernelFeatures.add((DistributionKernel,), _gen_kernel_features)
GenKernelFeatures.add((BlockKernel,), ProductFeatureMap)
GenKernelFeatures.add((ProductKernel,), ProductFeatureMap)
GenKernelFeatures.add((CategoricalKernel,), _of_categories)
