"""How much each block of inputs, and each coordinate of a block, matters to a fitted model."""

from gp_distributions.relevances.exchange import relevance
from gp_distributions.relevances.results import Relevance, RelevanceEntry

__all__ = ["Relevance", "RelevanceEntry", "relevance"]
