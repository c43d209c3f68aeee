"""Tutorial notebooks; ``python -m tutorials`` runs them."""
