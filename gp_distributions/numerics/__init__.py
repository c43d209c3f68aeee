"""Functions of tensors: the bottom layer, which imports nothing from the package but the row layout."""
