"""Hilbertian distances between distributions, one a file."""

from gp_distributions.distances.base import Distance
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein

__all__ = ["Distance", "SlicedWasserstein"]
