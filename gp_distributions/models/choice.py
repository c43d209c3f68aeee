"""What a model that makes its own kernel is made of, after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """What :func:`fit` has made of a model without a kernel.

    Attributes:
        members: The kernels that predict: ``"isotropic"``, or ``"mixture"`` for the equal mixture of it
            and of two on principal components.
        linear: Whether a kernel has a term that is linear in the features of the distance.
        integrated: Whether hyperparameters are integrated, rather than those at the mode.
        sampling_noise: Whether smaller bags have more noise. None: several blocks hold bags of unlike
            sizes, of which none is named.
        normals_factor: Factor of the normals relative to positions, which have a spread of one; None
            for clouds without normals. Of mixed inputs, that of the first block that has normals.
        scales: By how much each coordinate of a bag counts, beyond its spread; empty if all count alike.
            Coordinates of the blocks of mixed inputs follow each other.
        any_pose: Whether shapes, in one of the blocks, are compared in any pose, by
            :class:`RigidSlicedWasserstein`.

    Example:
        >>> from gp_distributions.models.choice import Choice
        >>> print(Choice(linear=True, sampling_noise=True))
        One isotropic kernel, with a linear term; noise that depends on the size of a bag
    """

    members: str = "isotropic"
    linear: bool = False
    integrated: bool = False
    sampling_noise: bool | None = False
    normals_factor: float | None = None
    scales: Sequence[float] = ()
    any_pose: bool = False

    def __str__(self) -> str:
        kernel = (
            "Equal mixture of kernels in all directions alike and on principal components"
            if self.members == "mixture"
            else "One isotropic kernel"
        )
        parts = [f"{kernel}, with a linear term" if self.linear else kernel]
        if self.integrated:
            parts.append("hyperparameters integrated")
        if self.sampling_noise is None:
            parts.append(
                "noise that does not depend on the sizes of bags, since several blocks have unlike "
                'sizes: name one, sampling_noise="block"'
            )
        elif self.sampling_noise:
            parts.append("noise that depends on the size of a bag")
        if self.normals_factor is not None:
            parts.append(f"normals times {self.normals_factor:g}")
        if self.scales:
            parts.append("scales of coordinates " + " ".join(f"{s:.2g}" for s in self.scales))
        if self.any_pose:
            parts.append("shapes in any pose")
        return "; ".join(parts)
