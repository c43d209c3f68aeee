"""What a fit chose: one distance for all directions, or a mixture over the exponents of components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: The default, and its alternative in models of numbers and of classes, and in variational ones; and the
#: default of mixed inputs.
ISOTROPIC, MIXTURE, PRINCIPAL, PRODUCT = "isotropic", "mixture", "principal", "product"


@dataclass(frozen=True)
class Choice:
    """The metric that :func:`fit` chose for a model without a kernel, and why.

    Attributes:
        name: ``"isotropic"``, the default kernel; ``"mixture"``, the equal mixture of it with others;
            ``"principal"``, a Gaussian kernel with a lengthscale for each principal component; or
            ``"product"``, the kernel of mixed inputs, which has no alternative.
        log_densities: Mean log density of a held-out target by the name of the alternative, in units in
            which the targets have a standard deviation of one; of classes, mean log probability of a
            held-out label. Empty if there were too few clouds, equal targets or nothing to choose.
        num_folds: Number of folds in which the alternatives were compared.
        num_clouds: Number of clouds in the folds; 0 if there was nothing to choose.
        normals_factor: Factor of the normals relative to positions, which have a spread of one; None
            for clouds without normals. Of mixed inputs, that of the first block that has normals.
        scales: By how much each coordinate of a bag counts, beyond its spread; empty if all count alike.
            Coordinates of the blocks of mixed inputs follow each other.
        any_pose: Whether shapes, in one of the blocks, are compared in any pose, by
            :class:`RigidSlicedWasserstein`.

    Example:
        >>> from gp_distributions.models.choice import Choice
        >>> print(Choice("mixture", {"isotropic": -0.52, "mixture": -0.31}, 5, 60))
        Mixture of kernels: held-out log density -0.310, isotropic -0.520 (5 folds of 60 clouds)
    """

    name: str
    log_densities: Mapping[str, float] = field(default_factory=dict)
    num_folds: int = 0
    num_clouds: int = 0
    normals_factor: float | None = None
    scales: Sequence[float] = ()
    any_pose: bool = False

    @property
    def gain(self) -> float:
        """By how much the held-out log density of what was chosen is above that of the alternative."""
        if not self.log_densities:
            return 0.0
        chosen = self.log_densities[self.name]
        return chosen - min(self.log_densities.values())

    def __str__(self) -> str:
        scales = " ".join(f"{scale:.2g}" for scale in self.scales)
        found = self._compared + (f"; scales of coordinates {scales}" if scales else "")
        return found + ("; shapes in any pose" if self.any_pose else "")

    @property
    def _compared(self) -> str:
        title = {
            ISOTROPIC: "One isotropic kernel",
            MIXTURE: "Mixture of kernels",
            PRINCIPAL: "Gaussian kernel of principal components",
            PRODUCT: "Product of isotropic kernels",
        }
        if not self.num_clouds:
            return f"{title[self.name]}, not compared with alternatives"
        if not self.log_densities:
            return (
                f"{title[self.name]}: not compared with alternatives, as {self.num_clouds} clouds are "
                "too few or their targets are equal"
            )
        (other,) = (name for name in self.log_densities if name != self.name)
        return (
            f"{title[self.name]}: held-out log density {self.log_densities[self.name]:.3f}, {other} "
            f"{self.log_densities[other]:.3f} ({self.num_folds} folds of {self.num_clouds} clouds)"
        )
