"""Hilbertian distances between distributions, one a file."""

from gp_distributions.distances.base import Distance
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.transport import LinearTransport, SinkhornPotential

__all__ = ["Distance", "LinearTransport", "SinkhornPotential", "SlicedWasserstein"]
