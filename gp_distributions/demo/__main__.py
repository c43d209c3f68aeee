"""Run the demo: ``python -m gp_distributions.demo``."""

from gp_distributions.demo import main

main()
