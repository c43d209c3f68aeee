"""Notebooks that show the package at work; ``python -m tutorials`` runs them."""
