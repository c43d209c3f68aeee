"""Rows: distributions as the flat tensors that GPyTorch and BoTorch see."""
