"""The containers of distributions, and the names that distances give to their kinds."""

from __future__ import annotations

from os import PathLike
from typing import Any, TypeAlias

from torch import Tensor

from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import is_table

Distributions: TypeAlias = PointClouds | Gaussians | GaussianMixtures

KINDS: dict[type[Distributions], str] = {
    PointClouds: "clouds",
    Gaussians: "gaussians",
    GaussianMixtures: "mixtures",
}


def as_rows(X: Distributions | Tensor) -> Tensor:
    """Convert distributions to rows; return rows unchanged.

    Raises:
        TypeError: If ``X`` is of another type, or a tensor of integers.
    """
    kind_of(X)
    if not isinstance(X, Tensor):
        return X.pack()
    if not X.is_floating_point():
        raise TypeError(
            f"Expected rows of floating-point numbers, got {X.dtype}. Pass rows.double()."
        )
    return X


def kind_of(X: Distributions | Tensor) -> str | None:
    """Return the name that distances give to the kind of distributions, or None for rows.

    Raises:
        TypeError: If ``X`` is of another type.
    """
    if isinstance(X, Tensor):
        return None
    if isinstance(X, Distributions):
        return KINDS[type(X)]
    raise TypeError(
        f"Expected PointClouds, Gaussians, GaussianMixtures or a tensor of rows, got "
        f"{type(X).__name__}. {_advice(X)}"
    )


def _advice(X: Any) -> str:
    """Return how to make distributions from data of another kind."""
    if hasattr(X, "encoding"):
        return "Pass mixed inputs as rows: X.pack(model.encoding)."
    if hasattr(X, "obsm"):
        return "Read it with PointClouds.from_anndata(adata, sample=...)."
    if is_table(X):
        return (
            "Read a long table, with a row for each atom, with PointClouds.from_frame, and a table with "
            "bags in its columns with MixedInputs.from_frame."
        )
    first = next(iter(X), None) if isinstance(X, list | tuple) else None
    if (
        hasattr(first, "__geo_interface__")
        or hasattr(first, "vertices")
        or isinstance(first, PathLike)
    ):
        return "Read shapes with PointClouds.from_curves or PointClouds.from_meshes."
    return "Convert a list of arrays with PointClouds.from_list, and one array X as [X]."
