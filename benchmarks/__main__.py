"""Run all benchmarks with ``python -m benchmarks``: see :mod:`benchmarks.everything`."""

# Worker processes import what they run by name, so it must not live in this module.
from benchmarks.everything import main

main()
