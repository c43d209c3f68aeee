"""The distance between characteristic functions."""

from __future__ import annotations

import scipy
import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import Rows, rows_of
from gp_distributions.distances.mmd import SAMPLINGS
from gp_distributions.measures.arrays import Data, given_points, integer, positive
from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS, IsotropicKernel
from gp_distributions.numerics.random_features import fourier_features
from gp_distributions.rows.layout import split_gaussians

# Each measure of frequencies, with the kernel that has it as its spectral measure.
_KERNELS = {
    "gaussian": "gaussian",
    "cauchy": "laplace",
    "student_t3": "matern32",
    "student_t5": "matern52",
    "ball": None,
}


class Fourier(Distance):
    r"""The :math:`L^2` distance between characteristic functions, under a measure of frequencies.

    With :math:`\phi_P(\omega) = \mathrm E_P \, e^{i \langle \omega, X \rangle}`, and frequencies
    :math:`\omega_k` drawn from a probability measure :math:`\Lambda`,

    .. math::
        d^2(P, P') = \int |\phi_P - \phi_{P'}|^2 \, d\Lambda
        \approx \frac1F \sum_{k=1}^F |\phi_P(\omega_k) - \phi_{P'}(\omega_k)|^2.

    This is the :class:`MMD` of the kernel with spectral measure :math:`\Lambda`, and any
    :math:`\Lambda` can be chosen. Heavy-tailed measures resolve fine structure at every scale; a ball
    or a given list of frequencies resolves nothing outside its band. The distance is Hilbertian for
    any choice of frequencies. It is positive if the characteristic functions differ at one of them. For
    Gaussians and mixtures, :math:`\phi(\omega) = \sum_j w_j e^{i \langle \omega, m_j \rangle -
    \omega^\top S_j \omega / 2}`. Inner products of distributions are those of their characteristic
    functions.

    Args:
        dim: Dimension ``d`` of the atoms.
        measure: Distribution of the frequencies before scaling: ``"gaussian"``, the standard normal
            distribution (for the Gaussian kernel); ``"cauchy"`` (for the Laplace kernel),
            ``"student_t3"`` and ``"student_t5"`` (for the Matern kernels), t distributions with 1, 3
            and 5 degrees of freedom; or ``"ball"``, the uniform distribution on the unit ball.
        scale: Factor by which frequencies are multiplied, in radians per unit of the coordinates: the
            inverse of the kernel's bandwidth, or the radius of the ball.
        num_frequencies: Number ``F`` of frequencies.
        frequencies: An ``F x d`` tensor or array of frequencies to use instead of random ones, in
            radians per unit of the coordinates.
        sampling: How to draw frequencies: ``"orthogonal"``, in orthogonal blocks, or
            ``"quasi_random"``, from a scrambled Sobol sequence.
        seed: Random seed for the frequencies, which are fixed at construction and saved with the state.
        inputs: What the rows hold: ``"clouds"``, ``"gaussians"`` or ``"mixtures"``.

    Raises:
        ValueError: If an option is unknown, a number is not positive, or ``frequencies`` has the wrong
            shape or is not finite; on evaluation, if a covariance is not positive semi-definite.

    Example:
        >>> from gp_distributions import Fourier, PointClouds
        >>> clouds = PointClouds.from_list([[[0.0], [2.0]], [[1.0]]])
        >>> Fourier(1, frequencies=[[1.0], [3.0]]).squared(clouds.pack())
        tensor([[0.0000, 2.0857],
                [2.0857, 0.0000]], dtype=torch.float64)
        >>> Fourier(1, measure="cauchy", num_frequencies=50).embed(clouds.pack()).shape
        torch.Size([2, 100])

    Sources: Christmann and Steinwart 2010; Meunier, Pontil and Ciliberto 2022, eq. 10; Sriperumbudur et
    al. 2010, corollary 4; Yu et al. 2016 (orthogonal frequencies).
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
            drawn = given_points(frequencies, "frequencies", ("F", self.dim))
        else:
            for name, value, choices in (
                ("measure", measure, _KERNELS),
                ("sampling", sampling, SAMPLINGS),
            ):
                if value not in choices:
                    raise ValueError(
                        f"There is no {name} {value!r}; choose from {', '.join(choices)}."
                    )
            count = integer(num_frequencies, "num_frequencies")
            factor = positive(scale, "scale")
            drawn = factor * _draw(measure, self.dim, count, sampling, seed)
        self.measure = measure if frequencies is None else "given"
        self.frequencies: Tensor
        self.register_buffer("frequencies", drawn)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return the real and imaginary parts of characteristic functions, divided by ``sqrt(F)``."""
        frequencies = self.frequencies.to(points)
        if self.inputs == "clouds":
            return fourier_features(points, weights, frequencies)
        mean, covariance = split_gaussians(points, self.dim)
        features = fourier_features(mean, weights, frequencies, covariance)
        self._check_bound(features.detach())
        return features

    def _check_bound(self, features: Tensor) -> None:
        """Raise an error if the modulus of a characteristic function exceeds one."""
        squares = features.unflatten(-1, (2, -1)).square().sum(-2) * len(self.frequencies)
        if not bool((squares <= 1 + 1e3 * torch.finfo(squares.dtype).eps).all()):
            raise ValueError(
                "Expected rows with positive semi-definite covariances, but a characteristic function "
                f"has modulus {squares.max().sqrt().item():.4g} > 1. Create rows with "
                "Gaussians.pack(), which checks covariances."
            )

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute the squared norms of the characteristic functions, ``batch_shape x N``."""
        norms = self.represented(rows).square().sum(-1)
        return norms.expand(rows_of(rows).shape[:-1])

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        return max(1, self.chunk_elements // (num_atoms * len(self.frequencies)))

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        count = len(self.frequencies)
        return (
            f"dim={self.dim}, measure={self.measure}, num_frequencies={count}, inputs={self.inputs}"
        )


def _draw(measure: str, dim: int, count: int, sampling: str, seed: int) -> Tensor:
    kernel = EMBEDDING_KERNELS[_KERNELS[measure] or "gaussian"]
    assert isinstance(kernel, IsotropicKernel)
    frequencies = SAMPLINGS[sampling](kernel, dim, count, seed=seed)
    if measure != "ball":
        return frequencies
    # Normal frequencies become uniform on the ball if each radius is changed so that the fraction of the
    # ball's volume within it equals the normal probability of a smaller radius.
    radius = frequencies.norm(dim=-1, keepdim=True)
    share = torch.from_numpy(scipy.special.gammainc(dim / 2, radius.square().numpy() / 2))
    return frequencies / radius * share ** (1 / dim)
