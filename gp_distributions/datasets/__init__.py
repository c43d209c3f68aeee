"""Real and simulated data for the demo, the tutorials and the benchmarks."""

from gp_distributions.datasets.airfoils import Airfoils, load_airfoils
from gp_distributions.datasets.solids import Solids, random_solids

__all__ = ["Airfoils", "Solids", "load_airfoils", "random_solids"]
