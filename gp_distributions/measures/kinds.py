"""The containers of distributions, and the names that distances give to their kinds."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.point_clouds import PointClouds

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
        "Expected PointClouds, Gaussians, GaussianMixtures or a tensor of rows, got "
        f"{type(X).__name__}. Convert a list of arrays with PointClouds.from_list, and one array X as "
        "[X]; read tables with PointClouds.from_frame or MixedInputs.from_frame, single cells "
        "with PointClouds.from_anndata, and shapes with PointClouds.from_curves or from_meshes. Pass "
        "mixed inputs as rows, X.pack(model.encoding), where only rows are read."
    )
