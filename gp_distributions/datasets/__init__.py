"""Real and simulated data for the demo, the tutorials and the benchmarks."""

from gp_distributions.datasets.airfoils import Airfoils, load_airfoils
from gp_distributions.datasets.blades import Blades, propeller_blades, random_blades
from gp_distributions.datasets.cells import Cells, load_cells
from gp_distributions.datasets.molecules import Molecules, load_molecules
from gp_distributions.datasets.patients import Patients, random_patients
from gp_distributions.datasets.solids import Solids, random_solids

__all__ = [
    "Airfoils",
    "Blades",
    "Cells",
    "Molecules",
    "Patients",
    "Solids",
    "load_airfoils",
    "load_cells",
    "load_molecules",
    "propeller_blades",
    "random_blades",
    "random_patients",
    "random_solids",
]
