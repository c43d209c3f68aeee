"""The maximum mean discrepancy: the distance between mean embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.distances.precomputed import AtomKernel
from gp_distributions.measures.arrays import Data, integer, positive
from gp_distributions.numerics.embedding_kernels import (
    EMBEDDING_KERNELS,
    EmbeddingKernel,
    EnergyKernel,
    GaussianKernel,
    IsotropicKernel,
    PointKernel,
    PolynomialKernel,
    gaussian_expectation,
)
from gp_distributions.numerics.gaussian_features import gaussian_features
from gp_distributions.numerics.mean_embeddings import inner_products
from gp_distributions.numerics.pairwise import squared_euclidean, zero_diagonal
from gp_distributions.numerics.random_features import (
    fourier_features,
    landmark_features,
    moment_features,
    orthogonal_frequencies,
    quasi_random_frequencies,
    spread_landmarks,
)
from gp_distributions.numerics.sampling import draw_atoms, median_distance
from gp_distributions.rows.clouds import Cloud
from gp_distributions.rows.layout import check_weights, join_gaussians, split_gaussians
from gp_distributions.rows.tensors import is_tracked

SAMPLINGS = {"orthogonal": orthogonal_frequencies, "quasi_random": quasi_random_frequencies}
_FEATURES = (*SAMPLINGS, "landmarks")
# Number of atoms drawn to estimate the median distance.
_MEDIAN_ATOMS = 1000


class MMD(Distance):
    r"""Maximum mean discrepancy: the distance between mean embeddings.

    For two clouds with atoms ``x``, ``y``, weights ``w``, ``v`` and mean embeddings
    :math:`\mu_P = \mathrm E\,k(X, \cdot)`, the squared distance is the V-statistic

    .. math::
        d^2(P, Q) = |\mu_P - \mu_Q|^2
        = \sum_{ij} w_i w_j k(x_i, x_j) + \sum_{ij} v_i v_j k(y_i, y_j)
        - 2 \sum_{ij} w_i v_j k(x_i, y_j).

    The embedding kernels ``k``, for points at distance ``r`` and with bandwidth ``l``, are:

    - ``"gaussian"``: :math:`\exp(-r^2 / 2 l^2)`; ``"laplace"``: :math:`\exp(-r / l)`;
    - ``"matern32"``: :math:`(1 + a) e^{-a}` with :math:`a = \sqrt 3 r / l`; ``"matern52"``:
      :math:`(1 + a + a^2 / 3) e^{-a}` with :math:`a = \sqrt 5 r / l`;
    - ``"inverse_multiquadric"``: :math:`(1 + r^2 / l^2)^{-1/2}`;
    - ``"energy"``: :math:`-r`, the energy distance
      :math:`2 \mathrm E|X - Y| - \mathrm E|X - X'| - \mathrm E|Y - Y'|`;
    - ``"linear"``: :math:`\langle x, y \rangle`, the distance between means; ``"polynomial2"`` and
      ``"polynomial3"``: :math:`(\langle x, y \rangle + 1)^p`, the distance between moments up to
      order ``p``.

    Any other symmetric, positive semi-definite kernel can be given as a function or a GPyTorch kernel.
    It must not change afterwards. The hyperparameters of a GPyTorch kernel are those at construction:
    they are not learned. Gradients with respect to atoms and weights pass through the kernel, and memory
    is bounded as for other kernels. :func:`gp_distributions.save` stores no code, so it refuses models
    with such a kernel. They can be pickled if the kernel can.

    Atoms of any kind, such as strings and graphs, are indices into a list ``atoms`` of them, so that
    rows stay numbers. The kernel is then its matrix, or a function of two atoms. To predict for clouds
    with new atoms, append these to the list: the function is called for pairs with a new atom. A matrix
    knows only its own atoms.

    Between Gaussians, expectations are over independent draws, also for a Gaussian and itself. So the
    linear kernel lacks the term :math:`\delta_{ij} \operatorname{tr} \Sigma_i` of Muandet et al., which
    depends on the index of a Gaussian rather than on the Gaussian.

    The distance is exact unless ``num_features`` is given. With the Gaussian kernel and up to four
    coordinates, clouds are compared by features that are exact up to rounding, where that takes less
    time than pairs of atoms. The ``"linear"`` and ``"polynomial"`` profiles use the inner products of
    mean embeddings; for ``"energy"``, the origin is a point mass at zero.

    Args:
        dim: Dimension ``d`` of the atoms, 1 for indices.
        kernel: Name of the embedding kernel; or a function that maps a ``batch_shape x N x d`` and a
            ``batch_shape x M x d`` tensor of atoms to their ``batch_shape x N x M`` kernel matrix; or a
            GPyTorch kernel, which is copied. For atoms of any kind, the ``A x A`` kernel matrix of the
            atoms, or a symmetric function of two atoms, which returns a number.
        atoms: The ``A`` atoms, if points are indices into a list of them.
        bandwidth: Bandwidth ``l``, in the units of the points. Default: the median distance between
            at least 1000 atoms, drawn equally from the first rows. Its logarithm is the parameter
            ``raw_bandwidth``, which is fixed unless ``raw_bandwidth.requires_grad_()`` is called.
        num_features: Number ``D`` of features that approximate the kernel. Default: no approximation.
        features: Kind of features: ``"orthogonal"`` or ``"quasi_random"`` Fourier features; or
            ``"landmarks"``, which are ``D`` points chosen by k-means from the first rows.
        normalize: Whether to scale mean embeddings to unit length, so that
            :math:`d^2 = 2 - 2 \langle \mu_P, \mu_Q \rangle / |\mu_P| |\mu_Q|`.
        seed: Random seed for the features, and for the atoms drawn to choose the bandwidth.
        inputs: What the rows hold: ``"clouds"``, ``"gaussians"`` or ``"mixtures"`` of Gaussians. The
            last two have closed forms for the Gaussian, linear and polynomial kernels, and for all
            Fourier features.

    Raises:
        TypeError: If ``kernel`` is neither a name nor a matrix, and cannot be called, or if it is a name
            although ``atoms`` are given.
        ValueError: If ``kernel`` or ``features`` is unknown, the bandwidth is not positive or the
            kernel has none, ``num_features`` does not match ``features``, or the kernel does not
            support the kind of features, the inputs or ``normalize``; if the kernel matrix of ``atoms``
            is not symmetric and positive semi-definite, with its smallest eigenvalue; on evaluation, if
            all atoms coincide, so that their median distance is not a bandwidth, if a function returns
            a matrix of another shape, or if a point is not the index of an atom.

    Example:
        >>> import torch
        >>> from gp_distributions import MMD, PointClouds
        >>> clouds = PointClouds.from_list([[[0.0], [2.0]], [[1.0]], [[5.0]]])
        >>> MMD(1, kernel="energy").squared(clouds.pack())
        tensor([[0., 1., 7.],
                [1., 0., 8.],
                [7., 8., 0.]], dtype=torch.float64)
        >>> MMD(1, bandwidth=1.0, num_features=20).embed(clouds.pack()).shape
        torch.Size([3, 20])

        A kernel of one's own, here on positions modulo 5:

        >>> def periodic(x, y):
        ...     return torch.cos(2 * torch.pi / 5 * (x - y.mT))
        >>> MMD(1, kernel=periodic).squared(clouds.pack()).round(decimals=4)
        tensor([[0.0000, 0.4775, 0.9045],
                [0.4775, 0.0000, 1.3820],
                [0.9045, 1.3820, 0.0000]], dtype=torch.float64)

        Bags of words, by common letters:

        >>> words = ["oak", "oat", "elm"]
        >>> distance = MMD(kernel=lambda a, b: len(set(a) & set(b)), atoms=words)
        >>> clouds = PointClouds.from_list([[[0.0]], [[0.0], [1.0]], [[2.0]]])
        >>> distance.squared(clouds.pack())
        tensor([[0.0000, 0.5000, 6.0000],
                [0.5000, 0.0000, 5.5000],
                [6.0000, 5.5000, 0.0000]], dtype=torch.float64)

    Sources: Gretton et al. 2012; Szabo et al. 2015, section 2 (any kernel on atoms); Muandet et al.
    2012, table 1; Szekely and Rizzo 2013; Rahimi and Recht 2007; Yu et al. 2016; Trefethen and Weideman
    2014 (exact features).
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds", "gaussians", "mixtures")
    # Largest number of moments to use as features of polynomial kernels, instead of pairs of atoms.
    _max_moments = 10_000

    def __init__(
        self,
        dim: int = 1,
        *,
        kernel: str | Data | Callable[..., Any] = "gaussian",
        atoms: Sequence[Any] | None = None,
        bandwidth: float | None = None,
        num_features: int | None = None,
        features: str = "orthogonal",
        normalize: bool = False,
        seed: int = 0,
        inputs: str = "clouds",
    ) -> None:
        super().__init__(dim, inputs=inputs)
        if isinstance(kernel, str) and kernel not in EMBEDDING_KERNELS:
            names = ", ".join(EMBEDDING_KERNELS)
            raise ValueError(f"There is no embedding kernel {kernel!r}; choose from {names}.")
        if normalize and isinstance(kernel, str) and kernel == "energy":
            raise ValueError("The energy kernel cannot be normalised: use normalize=False.")
        given: Any = kernel
        if atoms is not None or isinstance(given, Tensor | np.ndarray | list | tuple):
            given = AtomKernel(given, atoms)
        self.kernel: str | PointKernel = (
            given if isinstance(given, str | PointKernel) else PointKernel(given)
        )
        if isinstance(self.kernel, AtomKernel):
            if self.dim != 1 or num_features is not None:
                raise ValueError("Indices of atoms have dim=1, and their kernel has no features.")
            self.reads_coordinates = False
        self.num_features = num_features
        self.features = features
        self.normalize = normalize
        self.seed = seed
        # NaN until the bandwidth is known.
        raw = torch.nn.Parameter(torch.tensor(math.nan).double(), requires_grad=False)
        self.raw_bandwidth: torch.nn.Parameter | None
        self.register_parameter("raw_bandwidth", raw if self._has_bandwidth else None)
        if bandwidth is not None:
            self.bandwidth = bandwidth
        self._set_up_features()

    def _set_up_features(self) -> None:
        self.frequencies: Tensor
        self.landmarks: Tensor
        kernel, count = self._point_kernel, self.num_features
        if self.features not in _FEATURES:
            raise ValueError(f"Expected features from {_FEATURES}, got {self.features!r}.")
        if count is None and self.features == "landmarks":
            raise ValueError(
                'Expected num_features, the number of landmarks, with features="landmarks".'
            )
        if count is not None and self.features in SAMPLINGS:
            if not (self._has_bandwidth and isinstance(kernel, IsotropicKernel)):
                raise ValueError(
                    f"The {self.kernel} kernel has no Fourier features: leave num_features out, or "
                    'use features="landmarks".'
                )
            if integer(count, "num_features", least=2) % 2:
                raise ValueError(f"Expected an even number of features, got num_features={count}.")
            drawn = SAMPLINGS[self.features](kernel, self.dim, count // 2, seed=self.seed)
            self.register_buffer("frequencies", drawn)
        elif self._kernel is None:
            raise ValueError(
                f"The {self.kernel} kernel has no closed form for Gaussians; the gaussian, linear, "
                "polynomial2 and polynomial3 kernels have one. For the laplace, matern32, matern52 and "
                "inverse_multiquadric kernels, use Fourier features: set num_features."
            )
        elif count is not None:
            integer(count, "num_features")
            unknown = torch.full((count, self.dim), math.nan, dtype=torch.float64)
            self.register_buffer("landmarks", unknown)

    @property
    def atoms(self) -> Sequence[Any] | None:
        """The objects whose indices the points are; ``None`` if points are no indices."""
        return self.kernel.atoms if isinstance(self.kernel, AtomKernel) else None

    @property
    def _point_kernel(self) -> EmbeddingKernel:
        """The kernel between points, in units of the bandwidth."""
        return EMBEDDING_KERNELS[self.kernel] if isinstance(self.kernel, str) else self.kernel

    @property
    def _kernel(self) -> Any:
        """The kernel between points, or its expectation under Gaussians (``None`` if unknown)."""
        kernel = self._point_kernel
        return kernel if self.inputs == "clouds" else gaussian_expectation(kernel, self.dim)

    @property
    def _has_bandwidth(self) -> bool:
        kernel = self._point_kernel
        return isinstance(kernel, IsotropicKernel) and not isinstance(kernel, EnergyKernel)

    @property
    def _degree(self) -> int | None:
        """Order of the moments used as features, or ``None`` if moments are not used."""
        kernel = self._point_kernel
        if not isinstance(kernel, PolynomialKernel) or self.num_features is not None:
            return None
        few = kernel.degree == 1 or self.dim**kernel.degree <= self._max_moments
        return kernel.degree if few else None

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance between representations."""
        return self.num_features is not None or self._degree is not None

    @property
    def bandwidth(self) -> Tensor | None:
        """Bandwidth, in the units of the points; ``None`` if there is none or it is not chosen yet.

        Raises:
            ValueError: On assignment, if the value is not positive and finite, or the kernel has no
                bandwidth.
        """
        if self.raw_bandwidth is None or bool(self.raw_bandwidth.isnan()):
            return None
        return self.raw_bandwidth.exp()

    @bandwidth.setter
    def bandwidth(self, value: Tensor | float) -> None:
        if self.raw_bandwidth is None:
            raise ValueError(f"The {self.kernel} kernel has no bandwidth, got {value}.")
        number = self.raw_bandwidth.new_tensor(positive(value, "bandwidth"))
        with torch.no_grad():
            self.raw_bandwidth.copy_(number.log())

    def adapt(self, rows: Tensor) -> None:
        """Choose the bandwidth and the landmarks from these rows, if they are not known yet."""
        seeks_bandwidth = self._has_bandwidth and self.bandwidth is None
        seeks_landmarks = "landmarks" in self._buffers and bool(self.landmarks.isnan().any())
        if not (seeks_bandwidth or seeks_landmarks) or not rows.numel():
            return
        atoms, weights = self.block.split(rows)
        check_weights(weights)
        weights = weights.flatten(0, -2)
        points, covariance = self._moments(atoms.flatten(0, -3))
        draw = partial(draw_atoms, points, weights, seed=self.seed, covariance=covariance)
        if seeks_bandwidth:
            median = median_distance(draw(_MEDIAN_ATOMS))
            if median == 0:
                raise ValueError(
                    "Expected distinct atoms to choose the bandwidth as their median distance, but "
                    "all atoms coincide: give bandwidth=."
                )
            self.bandwidth = median
        if seeks_landmarks:
            count = len(self.landmarks)
            pool = max(_MEDIAN_ATOMS, 20 * count)
            few = covariance is None and int((weights > 0).sum()) <= pool
            drawn = points[weights > 0].unique(dim=0) if few else draw(pool)
            self.landmarks.copy_(spread_landmarks(drawn, count, seed=self.seed))

    def _moments(self, atoms: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the points of clouds and ``None``, or the means and covariances of Gaussians."""
        if self.inputs == "clouds":
            return atoms, None
        return split_gaussians(atoms, self.dim)

    @property
    def trims_padding(self) -> bool:  # type: ignore[override]
        """Whether representations do not depend on padding."""
        return self.euclidean

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        if "frequencies" in self._buffers:
            return max(1, self.chunk_elements // (num_atoms * len(self.frequencies)))
        if self._degree is not None:
            return max(1, self.chunk_elements // (num_atoms * self.dim**self._degree))
        return 2**62  # no limit is needed: inner_products works in blocks

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return features, or scaled atoms, weights and squared norms if the distance is exact."""
        atoms = self._in_bandwidths(points, weights)
        if self.euclidean:
            features = self._features(atoms, weights)
            return self._unit(features, features.square().sum(-1)) if self.normalize else features
        cloud = atoms.unsqueeze(-3), weights.unsqueeze(-2)
        exact = self._exact_features(cloud, cloud)
        if exact is None:
            squared_norms = inner_products(self._kernel, *cloud, *cloud).flatten()
        else:
            squared_norms = exact[0].square().sum(-1).flatten()
        if self.normalize:
            weights = self._unit(weights, squared_norms)
            squared_norms = torch.ones_like(squared_norms)
        return torch.cat([atoms.flatten(-2), weights, squared_norms.unsqueeze(-1)], dim=-1)

    @property
    def _scale(self) -> Tensor:
        """The number by which points are divided: the bandwidth, or one if the kernel has none."""
        if self.raw_bandwidth is None:
            return torch.ones(())
        if self.bandwidth is None:
            raise ValueError("Expected a bandwidth: set it, or call adapt() with rows first.")
        return self.bandwidth

    def _in_bandwidths(self, points: Tensor, weights: Tensor) -> Tensor:
        """Divide atoms by the bandwidth; the covariances of Gaussians are divided by its square."""
        if isinstance(self.kernel, AtomKernel):
            return self.kernel.indices(points, weights)
        if not is_tracked(weights):
            # Padding is moved to the mean, so that its values do not add rounding errors.
            middle = weights.unsqueeze(-2) @ points
            points = torch.where((weights > 0).unsqueeze(-1), points, middle)
        scale = self._scale.to(points)
        points, covariance = self._moments(points)
        if covariance is None:
            return points / scale
        return join_gaussians(points / scale, (covariance + covariance.mT) / (2 * scale**2))

    def _features(self, atoms: Tensor, weights: Tensor) -> Tensor:
        if "landmarks" in self._buffers:
            landmarks = self.landmarks / self._scale.to(self.landmarks)
            if self.inputs != "clouds":  # landmarks are Gaussians of covariance zero
                landmarks = torch.nn.functional.pad(landmarks, (0, self.dim**2))
            return landmark_features(self._kernel, landmarks, atoms, weights)
        points, covariance = self._moments(atoms)
        if self._degree is not None:
            return moment_features(points, weights, self._degree, covariance)
        return fourier_features(points, weights, self.frequencies.to(points), covariance)

    def _exact_features(self, one: Cloud, two: Cloud) -> tuple[Tensor, Tensor] | None:
        return gaussian_features(one, two) if isinstance(self._kernel, GaussianKernel) else None

    def _unit(self, vectors: Tensor, squared_norms: Tensor) -> Tensor:
        if bool((squared_norms <= 0).any()):
            raise ValueError(
                f"Expected mean embeddings of positive length under the {self.kernel} kernel, for "
                "normalize=True, but that of a cloud has length zero."
            )
        return vectors / squared_norms.sqrt().unsqueeze(-1)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations."""
        if self.euclidean:
            return super().compare_all(r1, r2)
        batch_shape = torch.broadcast_shapes(r1.shape[:-2], r2.shape[:-2])
        symmetric = r1 is r2
        if r1.dim() > r2.dim() == 2:  # compare all batches as one set of clouds
            r1 = r1.flatten(0, -2)
        (x1, w1, s1), (x2, w2, s2) = self._read(r1), self._read(r2)
        one = x1, w1
        two = one if symmetric else (x2, w2)
        exact = self._exact_features(one, two)
        if exact is not None:
            squared = squared_euclidean(*exact)
        else:
            products = inner_products(self._kernel, *one, *two, symmetric=symmetric)
            squared = (s1.unsqueeze(-1) + s2.unsqueeze(-2) - 2 * products).clamp_min(0)
            squared = zero_diagonal(squared) if symmetric else squared
        return squared.reshape(*batch_shape, -1, squared.shape[-1])

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations."""
        if self.euclidean:
            return super().compare_paired(r1, r2)
        return self.compare_all(r1.unsqueeze(-2), r2.unsqueeze(-2)).flatten(-3)

    def _read(self, representation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the atoms, weights and squared norms that representations hold."""
        dim = self.block.atom_dim
        count = (representation.shape[-1] - 1) // (dim + 1)
        atoms, weights, norms = representation.split([count * dim, count, 1], dim=-1)
        return atoms.unflatten(-1, (count, dim)), weights, norms.squeeze(-1)

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute squared norms of mean embeddings, or energy distances to a point mass at zero."""
        if self.kernel == "energy":
            return super().squared_norms(rows)
        representation = self.represented(rows)
        norms = representation.square().sum(-1) if self.euclidean else representation[..., -1]
        return norms.expand(rows_of(rows).shape[:-1]).clone()

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        shown = f"dim={self.dim}, kernel={self.kernel}"
        if self.bandwidth is not None:
            shown += f", bandwidth={self.bandwidth.item():.3g}"
        if self.num_features is not None:
            shown += f", num_features={self.num_features}, features={self.features}"
        return f"{shown}{', normalize=True' if self.normalize else ''}, inputs={self.inputs}"
