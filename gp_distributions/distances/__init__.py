"""Hilbertian distances between distributions, one per file."""

from gp_distributions.distances.base import Distance
from gp_distributions.distances.fourier import Fourier
from gp_distributions.distances.inverse import Inversion, invert_embedding
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.precomputed import PrecomputedDistance
from gp_distributions.distances.principal import PrincipalDistance
from gp_distributions.distances.rigid_sliced_wasserstein import RigidSlicedWasserstein
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.distances.shared_support import ChiSquared, Hellinger, TotalVariation
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.transport import LinearTransport, SinkhornPotential

__all__ = [
    "MMD",
    "ChiSquared",
    "Distance",
    "Fourier",
    "Hellinger",
    "Inversion",
    "LinearTransport",
    "PrecomputedDistance",
    "PrincipalDistance",
    "RigidSlicedWasserstein",
    "ScaledDistance",
    "SinkhornPotential",
    "SlicedWasserstein",
    "TotalVariation",
    "invert_embedding",
]
