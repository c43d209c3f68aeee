"""A distance between a few principal components of the features of distributions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.wrapper import DistanceWrapper
from gp_distributions.measures.arrays import integer
from gp_distributions.rows.clouds import drop_copies

# Largest number of clouds from which the components are computed.
_CLOUDS = 1024


class CompressedDistance(DistanceWrapper):
    r"""A distance between the principal components of the features of a distance, which are few.

    With the features :math:`f(P)` of the distance and the ``K`` principal directions
    :math:`v_1, \dots, v_K` of the features of the first clouds that it sees, usually the training
    clouds,

    .. math:: d_K(P, P')^2 = \sum_{k=1}^K \langle v_k, f(P) - f(P') \rangle^2 \le d(P, P')^2.

    It is the Euclidean distance between ``K`` features, so that kernels of it are positive definite.
    Features take ``K`` numbers per cloud instead of, for example, the 10,002 of
    ``SlicedWasserstein(2)``, and the time to compare clouds falls by the same factor. This pays where
    many clouds are compared with many, as in large exact and sparse models and in large pools. The time
    to embed a cloud stays.

    :attr:`explained` is the share of the variance of these features that the components keep. What is
    left out is mostly the sampling noise of bags. Distances between the clouds from which components
    are computed are exact if there are fewer clouds than components.

    Args:
        distance: Distance that has ``embed``, and no parameters to learn.
        num_components: Number ``K`` of components.

    Attributes:
        components: Principal directions, a ``D x K`` tensor. It is empty until the distance has seen
            clouds. They are computed from at most 1,024 clouds, evenly spaced in the data.
        explained: Share of the variance that the components keep, between 0 and 1.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the distance has no features, or parameters that require a gradient.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> from gp_distributions.distances import CompressedDistance
        >>> points = torch.randn(100, 40, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> rows = PointClouds(points).pack()
        >>> distance = CompressedDistance(SlicedWasserstein(2), num_components=40)
        >>> distance.embed(rows).shape
        torch.Size([100, 40])
        >>> bool(distance.explained > 0.95)
        True

    Source: Scholkopf, Smola and Muller 1998 (kernel principal components).
    """

    components: Tensor
    explained: Tensor

    def __init__(self, distance: Distance, *, num_components: int = 100) -> None:
        super().__init__(distance)
        if not distance.euclidean:
            raise ValueError(
                f"Expected a distance with features, got {distance!r}. Use p=2, or features of MMD."
            )
        if any(parameter.requires_grad for parameter in distance.parameters()):
            raise ValueError(
                f"Expected a distance without parameters to learn, got {distance!r}, whose components "
                "would change with them. Fix them with requires_grad_(False)."
            )
        self.num_components = integer(num_components, "num_components")
        self.register_buffer("components", torch.empty(0, 0, dtype=torch.float64))
        self.register_buffer("explained", torch.tensor(float("nan"), dtype=torch.float64))

    def adapt(self, rows: Tensor) -> None:
        """Compute the components from these rows, if they are not known yet."""
        super().adapt(rows)
        if self.components.numel() or not rows.numel():
            return
        rows = drop_copies(rows).flatten(0, -2)
        step = -(-len(rows) // _CLOUDS)
        features = self.distance.represent_rows(rows[::step]).double()
        features = features - features.mean(0)
        values, vectors = torch.linalg.eigh(features @ features.mT)
        kept = values.clamp_min(0).flip(-1)[: self.num_components]
        # Directions of rounding errors are not orthogonal, and carry nothing.
        kept = kept[kept > kept[0] * len(values) * torch.finfo(kept.dtype).eps]
        chosen = vectors.flip(-1)[:, : len(kept)]
        self.components = features.mT @ (chosen / kept.sqrt())
        self.explained = kept.sum() / values.clamp_min(0).sum()

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return the principal components of the features of clouds."""
        features = self.distance.represent(points, weights)
        if len(self.components) != features.shape[-1]:
            raise ValueError(
                f"Expected clouds with {len(self.components)} features, got {features.shape[-1]}: the "
                "number of features must not depend on the size of a cloud."
            )
        return features @ self.components.to(features)

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows, one chunk of clouds at a time."""
        try:
            return super().represent_rows(rows, factors)
        except ValueError:
            self.distance.represent_rows(rows, factors)  # its error names the row
            raise

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        return f"num_components={self.num_components}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        components = state_dict.get(f"{prefix}components")
        if components is not None:
            self.components = self.components.new_empty(components.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
