"""A distance between the principal components of the features of distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance, DistanceWrapper
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.measures.arrays import integer
from gp_distributions.numerics.linear_algebra import matmul
from gp_distributions.rows.clouds import drop_copies, random_order

# Largest number of clouds from which the components are computed, and of clouds whose features are
# held for other distances around the same one.
_CLOUDS, _HELD = 1024, 2048


class PrincipalDistance(DistanceWrapper):
    r"""A distance between the principal components of the features of a distance.

    Let :math:`f(P)` be the features of the distance, :math:`v_1, \dots, v_r` their principal directions
    on the first clouds that it sees, usually the training clouds, and :math:`s_1 \ge s_2 \ge \dots` the
    standard deviations of their components there. With the exponent :math:`e`, the features of this
    distance are

    .. math:: z_j(P) = \frac{\langle v_j, f(P) \rangle}{s_1^{1 - e} s_j^e}, \qquad j = 1, \dots, r.

    With the exponent 0 it is a distance between a few numbers that is nearly proportional to the
    original one, up to the small components that are left out; with 1, clouds are whitened. Neither
    depends on the unit of the coordinates.

    In a :class:`DistributionKernel`, each component has a lengthscale of its own by default, under the
    prior that BoTorch scales by the number of inputs: :math:`\operatorname{LogNormal}(\sqrt 2 +
    \log(r) / 2, \sqrt 3)`. The lengthscales tell which components matter, so that clouds may be whitened
    first. :class:`DistributionKernel` with ``ard_num_dims=1`` has one lengthscale for all. Features take
    ``r`` numbers per cloud instead of, for example, the 10,002 of ``SlicedWasserstein(2)``, and the time
    to compare clouds falls by the same factor, which pays where many clouds are compared with many.

    With about as many whitened components as clouds, all clouds are equally far from each other: with
    ``exponent=1``, choose at most a third of the number of training clouds.

    Args:
        distance: Distance that has ``embed``, and no parameters to learn.
        num_components: Number ``r`` of components. Components without variance are zero.
        exponent: Exponent :math:`e` of the standard deviations, between 0 and 1.

    Attributes:
        components: Principal directions divided by their scales, a ``D x K`` tensor with ``K <= r``. It
            is empty until the distance has seen clouds. They are computed from at most 1,024 random
            clouds.
        explained: Share of the variance that the components keep, between 0 and 1.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the distance has no features, or parameters that require a gradient; or a number
            is out of range.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, PrincipalDistance, SlicedWasserstein
        >>> points = torch.randn(100, 40, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> rows = PointClouds(points).pack()
        >>> distance = PrincipalDistance(SlicedWasserstein(2), num_components=40)
        >>> distance.embed(rows).std(0).round(decimals=6)[[0, -1]]
        tensor([1., 1.], dtype=torch.float64)
        >>> bool(distance.explained > 0.95)
        True

    Sources: Scholkopf, Smola and Muller 1998 (kernel principal components); Hvarfner, Hellsten and Nardi
    2024 (the prior).
    """

    components: Tensor
    explained: Tensor
    _resized = ("components",)

    def __init__(
        self, distance: Distance, *, num_components: int = 50, exponent: float = 1.0
    ) -> None:
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
        if not 0 <= exponent <= 1:
            raise ValueError(f"Expected an exponent between 0 and 1, got {exponent!r}.")
        self.exponent = float(exponent)
        self.register_buffer("components", torch.empty(0, 0, dtype=torch.float64))
        self.register_buffer("explained", torch.tensor(float("nan"), dtype=torch.float64))

    @property
    def ard_num_dims(self) -> int:  # type: ignore[override]
        """Number of features that have a lengthscale each, unless a kernel says otherwise."""
        return self.num_components

    def adapt(self, rows: Tensor) -> None:
        """Compute the components from these rows, if they are not known yet."""
        self.adapt_to(EmbeddedRows(rows))

    def adapt_to(self, rows: EmbeddedRows) -> None:
        """Compute the components from rows that may hold their features, if they are not known yet."""
        super().adapt(rows.rows)
        if len(self.components) or not rows.rows.numel():
            return
        step = -(-drop_copies(rows.rows).shape[:-1].numel() // _CLOUDS)
        if step > 1:
            every = drop_copies(rows.rows).flatten(0, -2)
            rows = EmbeddedRows(every[random_order(every)[::step]])
        features = self.distance.represented(rows).flatten(0, -2).double()
        features = features - features.mean(0)
        values, vectors = torch.linalg.eigh(features @ features.mT)
        kept = values.clamp_min(0).flip(-1)[: self.num_components]
        # Directions of rounding errors are not orthogonal, and carry nothing.
        kept = kept[kept > kept[0] * len(values) * torch.finfo(kept.dtype).eps]
        chosen = vectors.flip(-1)[:, : len(kept)]
        deviations = (kept / max(len(values) - 1, 1)).sqrt()
        scales = deviations[:1] ** (1 - self.exponent) * deviations**self.exponent
        self.components = features.mT @ (chosen / (kept.sqrt() * scales))
        self.explained = kept.sum() / values.clamp_min(0).sum()

    def first(self, num_components: int) -> PrincipalDistance:
        """Return the distance between at most so many first components, which are known already."""
        number = min(num_components, self.num_components)
        found = PrincipalDistance(self.distance, num_components=number, exponent=self.exponent)
        found.components = self.components[:, :number].contiguous()
        return found

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return the scaled principal components of the features of clouds."""
        return self.project(self.distance.represent(points, weights))

    def project(self, features: Tensor) -> Tensor:
        """Return the scaled principal components of features of the distance, ``... x D``."""
        if len(self.components) != features.shape[-1]:
            raise ValueError(
                f"Expected clouds with {len(self.components)} features, got {features.shape[-1]}: the "
                "number of features must not depend on the size of a cloud."
            )
        found = matmul(features, self.components.to(features))
        missing = self.num_components - found.shape[-1]
        return torch.nn.functional.pad(found, (0, missing))

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows, one chunk of clouds at a time."""
        try:
            return super().represent_rows(rows, factors)
        except ValueError:
            self.distance.represent_rows(rows, factors)  # its error names the row
            raise

    def represent_once(self, rows: EmbeddedRows) -> Tensor:
        """Represent rows that hold features, of which other distances can be made, too."""
        if rows.rows.shape[:-1].numel() > _HELD and not rows.holds(
            "representation", by=self.distance
        ):
            return super().represent_once(rows)
        return self.project(self.distance.represented(rows))

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        return f"num_components={self.num_components}, exponent={self.exponent}"
