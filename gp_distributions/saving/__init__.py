"""Save models to files and load them."""

from gp_distributions.saving.archive import SavedModelError
from gp_distributions.saving.files import load, save

__all__ = ["SavedModelError", "load", "save"]
