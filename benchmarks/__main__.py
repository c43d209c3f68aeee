"""``python -m benchmarks``: see :mod:`benchmarks.everything`."""

# Processes side by side import what they run by name, which this module has for none of them.
from benchmarks.everything import main

main()
