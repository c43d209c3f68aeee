"""Data sets of the benchmarks: read from files of installed packages, or simulated."""
