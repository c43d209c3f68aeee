"""Plots of clouds, kernels and predictions. Requires the extra ``plot`` (matplotlib).

Every function accepts and returns ``Axes``. All plots are readable in greyscale.
"""

from gp_distributions.plotting.clouds import (
    plot_cloud,
    plot_clouds,
    plot_gram,
    plot_plan,
    plot_reference_path,
    plot_sensitivity,
)
from gp_distributions.plotting.effects import plot_effect, plot_relevance
from gp_distributions.plotting.predictions import (
    plot_calibration,
    plot_comparison,
    plot_predictions,
    plot_traces,
)
from gp_distributions.plotting.surfaces import plot_surface

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
    "plot_surface",
    "plot_traces",
]
