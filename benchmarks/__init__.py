"""Measurements of accuracy and speed; each script starts with the question it answers."""
