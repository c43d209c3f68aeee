"""Plots of clouds, kernels and predictions. Requires the extra ``plot`` (matplotlib).

Every function accepts and returns ``Axes``. All plots are readable in greyscale.
"""

from gp_distributions.plotting.calibration_curves import plot_calibration
from gp_distributions.plotting.clouds import plot_cloud, plot_clouds
from gp_distributions.plotting.comparisons import plot_comparison
from gp_distributions.plotting.effects import plot_effect
from gp_distributions.plotting.gram_matrices import plot_gram
from gp_distributions.plotting.plans import plot_plan
from gp_distributions.plotting.predictions import plot_predictions
from gp_distributions.plotting.reference_paths import plot_reference_path
from gp_distributions.plotting.relevances import plot_relevance
from gp_distributions.plotting.sensitivities import plot_sensitivity
from gp_distributions.plotting.traces import plot_traces

__all__ = [
    "plot_calibration",
    "plot_cloud",
    "plot_clouds",
    "plot_comparison",
    "plot_effect",
    "plot_gram",
    "plot_plan",
    "plot_predictions",
    "plot_reference_path",
    "plot_relevance",
    "plot_sensitivity",
    "plot_traces",
]
