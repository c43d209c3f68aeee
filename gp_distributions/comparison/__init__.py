"""Which kernel? Candidates fitted to the same data, their held-out scores and stacking weights."""

from gp_distributions.comparison.comparing import compare
from gp_distributions.comparison.comparison import Comparison

__all__ = ["Comparison", "compare"]
