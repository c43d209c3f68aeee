"""Reports on the predictions of a model, for readers who do not program.

Requires the extra ``plot`` (matplotlib).
"""

from gp_distributions.reporting.page import report

__all__ = ["report"]
