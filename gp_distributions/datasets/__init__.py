"""Airfoils and propeller blades, for the demo, the tutorials and the benchmarks."""

from gp_distributions.datasets.airfoils import Airfoils, load_airfoils
from gp_distributions.datasets.blades import Blades, propeller_blades, random_blades

__all__ = ["Airfoils", "Blades", "load_airfoils", "propeller_blades", "random_blades"]
