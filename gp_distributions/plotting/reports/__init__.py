"""Reports on the predictions of a model, for readers who do not program.

Requires the extra ``plot`` (matplotlib).
"""

from gp_distributions.plotting.reports.page import report

__all__ = ["report"]
