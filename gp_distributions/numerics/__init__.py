"""Functions of tensors: the bottom layer, which imports nothing else of the package."""
