"""The maximum mean discrepancy: the distance of mean embeddings."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from gp_distributions.distances import evaluation
from gp_distributions.distances.base import Distance
from gp_distributions.numerics.embedding_kernels import (
    EMBEDDING_KERNELS,
    EnergyKernel,
    IsotropicKernel,
    PolynomialKernel,
)
from gp_distributions.numerics.frequencies import (
    fourier_features,
    orthogonal_frequencies,
    quasi_random_frequencies,
)
from gp_distributions.numerics.gaussian_expectations import gaussian_expectation
from gp_distributions.numerics.landmarks import landmark_features, spread_landmarks
from gp_distributions.numerics.mean_embeddings import inner_products
from gp_distributions.numerics.pairwise import zero_diagonal
from gp_distributions.numerics.pooled_atoms import draw_atoms, median_distance
from gp_distributions.numerics.tensor_moments import moment_features
from gp_distributions.rows.gaussians import join_gaussians, split_gaussians
from gp_distributions.rows.layout import check_weights

_FREQUENCIES = {"orthogonal": orthogonal_frequencies, "quasi_random": quasi_random_frequencies}
_FEATURES = (*_FREQUENCIES, "landmarks")
# Atoms whose distances the median is taken of.
_MEDIAN_ATOMS = 1000


class MMD(Distance):
    r"""Maximum mean discrepancy, the distance of mean embeddings :math:`\mu_P = \mathrm E\,k(X, \cdot)`.

    With weights ``w``, ``v`` and atoms ``x``, ``y`` of the clouds, as a V-statistic,

    .. math::
        d^2(P, Q) = |\mu_P - \mu_Q|^2
        = \sum_{ij} w_i w_j k(x_i, x_j) + \sum_{ij} v_i v_j k(y_i, y_j)
        - 2 \sum_{ij} w_i v_j k(x_i, y_j).

    The kernels ``k`` of points at distance ``r``, with bandwidth ``l``:

    - ``"gaussian"``: :math:`\exp(-r^2 / 2 l^2)`; ``"laplace"``: :math:`\exp(-r / l)`;
    - ``"matern32"``: :math:`(1 + a) e^{-a}` with :math:`a = \sqrt 3 r / l`; ``"matern52"``:
      :math:`(1 + a + a^2 / 3) e^{-a}` with :math:`a = \sqrt 5 r / l`;
    - ``"inverse_multiquadric"``: :math:`(1 + r^2 / l^2)^{-1/2}`;
    - ``"energy"``: :math:`-r`, the energy distance
      :math:`2 \mathrm E|X - Y| - \mathrm E|X - X'| - \mathrm E|Y - Y'|`;
    - ``"linear"``: :math:`\langle x, y \rangle`, the distance of the means; ``"polynomial2"`` and
      ``"polynomial3"``: :math:`(\langle x, y \rangle + 1)^p`, that of the moments up to order ``p``.

    Without ``num_features`` it is exact. The inner product of mean embeddings is what ``"linear"`` and
    ``"polynomial"`` profiles use; for ``"energy"`` the origin is all mass at zero.

    Args:
        dim: The dimension ``d`` of the atoms.
        kernel: The name of the embedding kernel.
        bandwidth: The bandwidth ``l``, in the units of the points. Default: the median distance of
            1000 atoms drawn from the first rows seen, then stored. The logarithm is the parameter
            ``raw_bandwidth``, which is fixed until ``raw_bandwidth.requires_grad_()``.
        num_features: The number ``D`` of features for an approximation. Default: exact.
        features: ``"orthogonal"`` or ``"quasi_random"`` Fourier features; or ``"landmarks"``, D points
            chosen by k-means from the first rows seen, then stored.
        normalize: Whether mean embeddings are brought to unit length,
            :math:`d^2 = 2 - 2 \langle \mu_P, \mu_Q \rangle / |\mu_P| |\mu_Q|`.
        seed: Of the features and of the atoms drawn.
        inputs: What the rows hold: ``"clouds"``, ``"gaussians"`` or ``"mixtures"`` of Gaussians. The
            latter have closed forms for the Gaussian, linear and polynomial kernels, and for all
            Fourier features.

    Raises:
        ValueError: If there is no kernel or kind of features of that name, a bandwidth is given to a
            kernel that has none or is not positive, ``num_features`` does not fit ``features``, or the
            kernel does not have the features, the closed form or the unit length that is asked for; on
            evaluation, if all atoms coincide while a bandwidth is sought.

    Sources: Gretton et al. 2012; Muandet et al. 2012, table 1; Szekely and Rizzo 2013; Rahimi and Recht
    2007; Yu et al. 2016.
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds", "gaussians", "mixtures")
    # Polynomial kernels have as many features at most; beyond, pairs of atoms are compared.
    _max_moments = 10_000

    def __init__(
        self,
        dim: int,
        *,
        kernel: str = "gaussian",
        bandwidth: float | None = None,
        num_features: int | None = None,
        features: str = "orthogonal",
        normalize: bool = False,
        seed: int = 0,
        inputs: str = "clouds",
    ) -> None:
        super().__init__(dim, inputs=inputs)
        if kernel not in EMBEDDING_KERNELS:
            names = ", ".join(EMBEDDING_KERNELS)
            raise ValueError(f"There is no embedding kernel {kernel!r}; choose from {names}.")
        self.kernel = kernel
        self.num_features = num_features
        self.features = features
        self.normalize = normalize
        self.seed = seed
        if normalize and kernel == "energy":
            raise ValueError("The energy kernel has no unit length: use normalize=False.")
        self._set_up_bandwidth(bandwidth)
        self._set_up_features()

    def _set_up_bandwidth(self, bandwidth: float | None) -> None:
        # Not a number until it is known.
        raw = torch.nn.Parameter(torch.tensor(math.nan).double(), requires_grad=False)
        self.raw_bandwidth: torch.nn.Parameter | None
        self.register_parameter("raw_bandwidth", raw if self._has_bandwidth else None)
        if bandwidth is not None:
            self.bandwidth = bandwidth

    def _set_up_features(self) -> None:
        kernel = EMBEDDING_KERNELS[self.kernel]
        count = self.num_features
        if self.features not in _FEATURES:
            raise ValueError(f"Expected features of {_FEATURES}, got {self.features!r}.")
        if count is None and self.features == "landmarks":
            raise ValueError('Expected num_features, the number of landmarks, with "landmarks".')
        if count is not None and self.features in _FREQUENCIES:
            if not self._has_bandwidth:
                raise ValueError(
                    f"The {self.kernel} kernel has no Fourier features: leave num_features out, or "
                    'give features="landmarks".'
                )
            if count < 2 or count % 2:
                raise ValueError(
                    f"Expected num_features even, for cosines and sines, and >= 2, got {count}."
                )
            assert isinstance(kernel, IsotropicKernel)
            sample = _FREQUENCIES[self.features]
            self.frequencies: Tensor
            self.register_buffer(
                "frequencies", sample(kernel, self.dim, count // 2, seed=self.seed)
            )
            return
        if self.inputs != "clouds" and gaussian_expectation(kernel, self.dim) is None:
            raise ValueError(
                f"The {self.kernel} kernel has no closed form between Gaussians; the gaussian, linear, "
                "polynomial2 and polynomial3 kernels have one. The laplace, matern32, matern52 and "
                "inverse_multiquadric kernels have one with Fourier features: give num_features."
            )
        if count is not None:
            if count < 1:
                raise ValueError(f"Expected num_features >= 1, got {count}.")
            self.landmarks: Tensor
            self.register_buffer("landmarks", torch.full((count, self.dim), math.nan).double())

    @property
    def _kernel(self) -> Any:
        """The kernel of points, or its expectation under Gaussians."""
        kernel = EMBEDDING_KERNELS[self.kernel]
        return kernel if self.inputs == "clouds" else gaussian_expectation(kernel, self.dim)

    @property
    def _has_bandwidth(self) -> bool:
        kernel = EMBEDDING_KERNELS[self.kernel]
        return isinstance(kernel, IsotropicKernel) and not isinstance(kernel, EnergyKernel)

    @property
    def _degree(self) -> int | None:
        """The order of the moments that are the features, where these are."""
        kernel = EMBEDDING_KERNELS[self.kernel]
        if not isinstance(kernel, PolynomialKernel) or self.num_features is not None:
            return None
        few = kernel.degree == 1 or self.dim**kernel.degree <= self._max_moments
        return kernel.degree if few else None

    @property
    def euclidean(self) -> bool:
        """Whether distances are the Euclidean ones of the representations."""
        return self.num_features is not None or self._degree is not None

    @property
    def bandwidth(self) -> Tensor | None:
        """The bandwidth, in the units of the points; ``None`` where there is none or none yet.

        Raises:
            ValueError: When set, if it is not positive and finite, or the kernel has none.
        """
        if self.raw_bandwidth is None or bool(self.raw_bandwidth.isnan()):
            return None
        return self.raw_bandwidth.exp()

    @bandwidth.setter
    def bandwidth(self, value: Tensor | float) -> None:
        if self.raw_bandwidth is None:
            raise ValueError(f"The {self.kernel} kernel has no bandwidth, got {value}.")
        raw = self.raw_bandwidth
        number = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).detach()
        if number.numel() != 1 or not 0 < number.item() < math.inf:
            raise ValueError(f"Expected bandwidth > 0 and finite, got {value}.")
        with torch.no_grad():
            raw.copy_(number.reshape(()).log())

    def adapt(self, rows: Tensor) -> None:
        """Set bandwidth and landmarks from the first rows seen, if they are open."""
        seeks_bandwidth = self._has_bandwidth and self.bandwidth is None
        seeks_landmarks = "landmarks" in self._buffers and bool(self.landmarks.isnan().any())
        if not (seeks_bandwidth or seeks_landmarks) or not rows.numel():
            return
        atoms, weights = self.block.split(rows)
        check_weights(weights)
        weights = weights.flatten(0, -2)
        points, covariance = self._moments(atoms.flatten(0, -3))
        if seeks_bandwidth:
            drawn = draw_atoms(
                points, weights, _MEDIAN_ATOMS, seed=self.seed, covariance=covariance
            )
            median = median_distance(drawn)
            if median == 0:
                raise ValueError(
                    "Expected atoms that differ, to take the median of their distances as the "
                    "bandwidth, but all coincide: give bandwidth=."
                )
            self.bandwidth = median
        if seeks_landmarks:
            count = len(self.landmarks)
            pool = max(_MEDIAN_ATOMS, 20 * count)
            if covariance is None and int((weights > 0).sum()) <= pool:
                drawn = points[weights > 0]
            else:
                drawn = draw_atoms(points, weights, pool, seed=self.seed, covariance=covariance)
            self.landmarks.copy_(spread_landmarks(drawn, count, seed=self.seed))

    def _moments(self, atoms: Tensor) -> tuple[Tensor, Tensor | None]:
        """Points, and the covariances about them where atoms are Gaussians."""
        if self.inputs == "clouds":
            return atoms, None
        return split_gaussians(atoms, self.dim)

    def chunk_size(self, num_atoms: int) -> int:
        """How many clouds of ``num_atoms`` atoms are represented at a time."""
        if "frequencies" in self._buffers:
            return max(1, self.chunk_elements // (num_atoms * len(self.frequencies)))
        if self._degree is not None:
            return max(1, self.chunk_elements // (num_atoms * self.dim**self._degree))
        return 2**62  # blocks within bound the memory

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Features; for the exact distance the cloud in bandwidths, and its squared norm."""
        atoms = self._in_bandwidths(points, weights)
        if self.euclidean:
            features = self._features(atoms, weights)
            return self._unit(features, features.square().sum(-1)) if self.normalize else features
        cloud = atoms.unsqueeze(-3), weights.unsqueeze(-2)
        squared_norms = inner_products(self._kernel, *cloud, *cloud).flatten()
        if self.normalize:
            weights = self._unit(weights, squared_norms)
            squared_norms = torch.ones_like(squared_norms)
        return torch.cat([atoms.flatten(-2), weights, squared_norms.unsqueeze(-1)], dim=-1)

    @property
    def _scale(self) -> Tensor:
        """What the points are divided by."""
        if self.raw_bandwidth is None:
            return torch.ones(())
        if self.bandwidth is None:
            raise ValueError("Expected a bandwidth: set it, or give rows to adapt first.")
        return self.bandwidth

    def _in_bandwidths(self, points: Tensor, weights: Tensor) -> Tensor:
        if not (weights.requires_grad and torch.is_grad_enabled()):
            # What padding holds is moved where it does no harm to rounding.
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
            if self.inputs != "clouds":  # Gaussians of no spread
                landmarks = torch.nn.functional.pad(landmarks, (0, self.dim**2))
            return landmark_features(self._kernel, landmarks, atoms, weights)
        points, covariance = self._moments(atoms)
        if self._degree is not None:
            return moment_features(points, weights, self._degree, covariance)
        return fourier_features(points, weights, self.frequencies.to(points), covariance)

    def _unit(self, vectors: Tensor, squared_norms: Tensor) -> Tensor:
        if bool((squared_norms <= 0).any()):
            raise ValueError(
                f"Expected mean embeddings of positive length under the {self.kernel} kernel, which "
                "normalize=True divides by, but a cloud has the length zero."
            )
        return vectors / squared_norms.sqrt().unsqueeze(-1)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Squared distances of all pairs of representations."""
        if self.euclidean:
            return super().compare_all(r1, r2)
        batch_shape = torch.broadcast_shapes(r1.shape[:-2], r2.shape[:-2])
        symmetric = r1 is r2
        if r1.dim() > r2.dim() == 2:  # all batches are one set of clouds
            r1 = r1.flatten(0, -2)
        (x1, w1, s1), (x2, w2, s2) = self._read(r1), self._read(r2)
        products = inner_products(self._kernel, x1, w1, x2, w2, symmetric=symmetric)
        squared = (s1.unsqueeze(-1) + s2.unsqueeze(-2) - 2 * products).clamp_min(0)
        squared = zero_diagonal(squared) if symmetric else squared
        return squared.reshape(*batch_shape, -1, squared.shape[-1])

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Squared distances of corresponding representations."""
        if self.euclidean:
            return super().compare_paired(r1, r2)
        pairs = self.compare_all(r1.unsqueeze(-2), r2.unsqueeze(-2))
        return pairs.flatten(-3)

    def _read(self, representation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Atoms, weights and squared norms."""
        count = (representation.shape[-1] - 1) // (self.block.atom_dim + 1)
        sizes = [count * self.block.atom_dim, count, 1]
        atoms, weights, squared_norms = representation.split(sizes, dim=-1)
        return atoms.unflatten(-1, (count, self.block.atom_dim)), weights, squared_norms.squeeze(-1)

    def squared_norms(self, rows: Tensor) -> Tensor:
        """Squared norms of mean embeddings; for the energy kernel, distances to all mass at zero."""
        if self.kernel == "energy":
            return super().squared_norms(rows)
        evaluation.adapt(self, rows)
        representation = evaluation.representations(self, rows)
        norms = representation.square().sum(-1) if self.euclidean else representation[..., -1]
        return norms.expand(rows.shape[:-1]).clone()

    def extra_repr(self) -> str:
        """The settings, for printing."""
        bandwidth = None if self.bandwidth is None else f"{self.bandwidth.item():.3g}"
        settings: dict[str, Any] = {
            "dim": self.dim,
            "kernel": self.kernel,
            "bandwidth": bandwidth,
            "num_features": self.num_features,
            "features": self.features if self.num_features else None,
            "normalize": self.normalize or None,
            "inputs": self.inputs,
        }
        return ", ".join(f"{k}={v}" for k, v in settings.items() if v is not None)
