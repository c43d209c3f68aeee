"""Real and simulated data for the demo, the tutorials and the benchmarks."""

from gp_distributions.datasets.airfoils import Airfoils, load_airfoils
from gp_distributions.datasets.patients import Patients, random_patients
from gp_distributions.datasets.solids import Solids, random_solids

__all__ = [
    "Airfoils",
    "Patients",
    "Solids",
    "load_airfoils",
    "random_patients",
    "random_solids",
]
