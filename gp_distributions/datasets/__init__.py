"""Data sets of distributions with targets."""

from gp_distributions.datasets.airfoils import Airfoils, load_airfoils

__all__ = ["Airfoils", "load_airfoils"]
