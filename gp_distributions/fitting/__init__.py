"""Functions that fit models: hyperparameters, reference measures, sampling noise, concentrations."""

import gp_distributions.fitting.aggregates
import gp_distributions.fitting.classification
import gp_distributions.fitting.curves
import gp_distributions.fitting.sparse
import gp_distributions.fitting.variational  # noqa: F401, registers with fit
from gp_distributions.fitting.integration import integrate_hyperparameters
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.reference_learning import ReferenceFit, fit_reference

__all__ = [
    "ReferenceFit",
    "fit",
    "fit_reference",
    "integrate_hyperparameters",
]
