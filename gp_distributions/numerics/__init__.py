"""Functions of tensors: the bottom layer, which imports only the layout of rows from the package."""
