"""The distance of characteristic functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scipy.special import gammainc
from torch import Tensor

from gp_distributions.distances import evaluation
from gp_distributions.distances.base import Distance
from gp_distributions.measures.arrays import Data, common_device, point_array, to_tensor
from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS, IsotropicKernel
from gp_distributions.numerics.frequencies import (
    fourier_features,
    orthogonal_frequencies,
    quasi_random_frequencies,
)
from gp_distributions.rows.clouds import drop_padding
from gp_distributions.rows.gaussians import split_gaussians

# Measures of frequencies, and the kernels that they are the spectral measures of.
_KERNELS = {
    "gaussian": "gaussian",
    "cauchy": "laplace",
    "student_t3": "matern32",
    "student_t5": "matern52",
    "ball": None,
}
_SAMPLINGS: dict[str, Callable[..., Tensor]] = {
    "orthogonal": orthogonal_frequencies,
    "quasi_random": quasi_random_frequencies,
}


class Fourier(Distance):
    r"""The distance of characteristic functions, in :math:`L^2` of a measure of frequencies.

    With :math:`\phi_P(\omega) = \mathrm E_P \, e^{i \langle \omega, X \rangle}`, and frequencies
    :math:`\omega_k` drawn from a probability measure :math:`\Lambda`,

    .. math::
        d^2(P, P') = \int |\phi_P - \phi_{P'}|^2 \, d\Lambda
        \approx \frac1F \sum_{k=1}^F |\phi_P(\omega_k) - \phi_{P'}(\omega_k)|^2.

    It is the :class:`MMD` of the kernel whose spectral measure is :math:`\Lambda`; what this class
    adds is the choice of :math:`\Lambda`. Heavy tails see fine structure at every scale; a ball of
    frequencies, or a list of some, sees nothing beyond its band. The distance is Hilbertian for
    any frequencies, and tells distributions apart that differ at one of them. Rows of Gaussians and
    of mixtures have :math:`\phi(\omega) = \sum_j w_j e^{i \langle \omega, m_j \rangle -
    \omega^\top S_j \omega / 2}`. Inner products are those of the characteristic functions.

    Args:
        dim: The dimension ``d`` of the atoms.
        measure: What frequencies are drawn from, at a scale of 1: ``"gaussian"``, the standard normal
            distribution (of the Gaussian kernel); ``"cauchy"`` (of the Laplace kernel),
            ``"student_t3"`` and ``"student_t5"`` (of the Matern kernels), t distributions with 1, 3
            and 5 degrees of freedom; ``"ball"``, the uniform distribution on the unit ball.
        scale: Multiplies frequencies, in radians per unit of the coordinates: the inverse of the
            kernel's bandwidth, the radius of the ball.
        num_frequencies: The number ``F``.
        frequencies: An ``F x d`` tensor or array of frequencies in place of drawn ones, in radians per
            unit of the coordinates.
        sampling: ``"orthogonal"``: frequencies in orthogonal blocks; ``"quasi_random"``: by a
            scrambled Sobol sequence.
        seed: Of the draws. Frequencies are fixed at construction and saved with the state.
        inputs: ``"clouds"``, ``"gaussians"`` or ``"mixtures"``.

    Raises:
        ValueError: If an option is unknown, a number not positive, or ``frequencies`` of another
            shape or not finite; on evaluation, if a covariance is not positive semi-definite.

    Source: Sriperumbudur et al. 2010, corollary 4; Yu et al. 2016 (orthogonal frequencies).
    """

    supported_inputs = ("clouds", "gaussians", "mixtures")
    trims_padding = True

    def __init__(
        self,
        dim: int,
        *,
        measure: str = "gaussian",
        scale: float = 1.0,
        num_frequencies: int = 100,
        frequencies: Data | None = None,
        sampling: str = "orthogonal",
        seed: int = 0,
        inputs: str = "clouds",
    ) -> None:
        super().__init__(dim, inputs=inputs)
        if frequencies is not None:
            drawn = _given(frequencies, self.dim)
        else:
            for name, value, choices in (
                ("measure", measure, _KERNELS),
                ("sampling", sampling, _SAMPLINGS),
            ):
                if value not in choices:
                    raise ValueError(
                        f"There is no {name} {value!r}; choose from {', '.join(choices)}."
                    )
            if num_frequencies < 1:
                raise ValueError(f"Expected num_frequencies >= 1, got {num_frequencies}.")
            if not 0 < scale < float("inf"):
                raise ValueError(f"Expected scale > 0 and finite, got {scale}.")
            drawn = scale * _draw(measure, self.dim, num_frequencies, sampling, seed)
        self.measure = measure if frequencies is None else "given"
        self.frequencies: Tensor
        self.register_buffer("frequencies", drawn)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Real and imaginary parts of characteristic functions, over the root of ``F``."""
        if not (weights.requires_grad and torch.is_grad_enabled()):
            points, weights = drop_padding(points, weights)
        frequencies = self.frequencies.to(points)
        if self.inputs == "clouds":
            return fourier_features(points, weights, frequencies)
        mean, covariance = split_gaussians(points, self.dim)
        features = fourier_features(mean, weights, frequencies, covariance)
        self._check_bound(features.detach())
        return features

    def _check_bound(self, features: Tensor) -> None:
        """No characteristic function exceeds one."""
        squares = features.unflatten(-1, (2, -1)).square().sum(-2) * len(self.frequencies)
        if not bool((squares <= 1 + 1e3 * torch.finfo(squares.dtype).eps).all()):
            raise ValueError(
                "Expected rows with positive semi-definite covariances, but a characteristic function "
                f"is {squares.max().sqrt().item():.4g} at a frequency. Rows come from "
                "Gaussians.pack(), which checks them."
            )

    def squared_norms(self, rows: Tensor) -> Tensor:
        """Squared norms of the characteristic functions, ``batch_shape x N``."""
        return evaluation.representations(self, rows).square().sum(-1).expand(rows.shape[:-1])

    def chunk_size(self, num_atoms: int) -> int:
        """How many clouds of ``num_atoms`` atoms are represented at a time."""
        return max(1, self.chunk_elements // (num_atoms * len(self.frequencies)))

    def extra_repr(self) -> str:
        """The settings, for printing."""
        settings: dict[str, Any] = {
            "dim": self.dim,
            "measure": self.measure,
            "num_frequencies": len(self.frequencies),
            "inputs": self.inputs,
        }
        return ", ".join(f"{name}={value}" for name, value in settings.items())


def _draw(measure: str, dim: int, count: int, sampling: str, seed: int) -> Tensor:
    kernel = EMBEDDING_KERNELS[_KERNELS[measure] or "gaussian"]
    assert isinstance(kernel, IsotropicKernel)
    frequencies = _SAMPLINGS[sampling](kernel, dim, count, seed=seed)
    if measure != "ball":
        return frequencies
    # The share of the normal distribution within a radius is uniform; so is the volume in the ball.
    radius = frequencies.norm(dim=-1, keepdim=True)
    share = torch.from_numpy(gammainc(dim / 2, radius.square().numpy() / 2))
    return frequencies / radius * share ** (1 / dim)


def _given(frequencies: Data, dim: int) -> Tensor:
    array = point_array(frequencies, "frequencies", f"(F, {dim})")
    if array.ndim != 2 or array.shape[1] != dim:
        raise ValueError(f"Expected frequencies of shape (F, {dim}), got {tuple(array.shape)}.")
    given = to_tensor(array, torch.float64, common_device([array])).detach()
    if not bool(given.isfinite().all()):
        raise ValueError("Expected finite frequencies.")
    return given
