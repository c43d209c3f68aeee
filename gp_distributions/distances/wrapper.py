"""The base class of distances that change what another distance reads or returns."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from gp_distributions.distances.base import Distance


class DistanceWrapper(Distance):
    """Base class of distances around another distance, which they resemble unless they say otherwise.

    Args:
        distance: The other distance.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds", "gaussians", "mixtures")

    def __init__(self, distance: Distance) -> None:
        if not isinstance(distance, Distance):
            raise TypeError(f"Expected a Distance, got {type(distance).__name__}.")
        super().__init__(distance.dim, inputs=distance.inputs)
        self.distance = distance

    @property
    def inner(self) -> Distance:
        """The distance that this one resembles."""
        return self.distance

    def adapt(self, rows: Tensor) -> None:
        """Choose the settings of the distance."""
        self.distance.adapt(rows)

    @property
    def reads_coordinates(self) -> bool:  # type: ignore[override]
        """Whether distances depend on the coordinates of atoms as numbers."""
        return self.inner.reads_coordinates

    @property
    def rotating(self) -> tuple[int, ...]:  # type: ignore[override]
        """Sizes of the leading groups of coordinates that rotate together."""
        return self.inner.rotating

    @property
    def trims_padding(self) -> bool:  # type: ignore[override]
        """Whether :meth:`represent` drops padding."""
        return self.inner.trims_padding

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance between representations."""
        return self.inner.euclidean

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        return self.inner.chunk_size(num_atoms)

    def clear_cache(self) -> None:
        """Forget all clouds that this and the wrapped distance remember."""
        super().clear_cache()
        self.distance.clear_cache()
