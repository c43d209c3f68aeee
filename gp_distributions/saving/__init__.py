"""Save models to files and load them."""

from gp_distributions.saving.files import SavedModelError, load, save

__all__ = ["SavedModelError", "load", "save"]
