"""The containers of distributions, and what distances call their kinds."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.point_clouds import PointClouds

Distributions: TypeAlias = PointClouds | Gaussians | GaussianMixtures

KINDS = {PointClouds: "clouds", Gaussians: "gaussians", GaussianMixtures: "mixtures"}


def as_rows(X: Distributions | Tensor) -> Tensor:
    """Rows of distributions; rows as they are.

    Raises:
        TypeError: If it is something else.
    """
    if isinstance(X, Distributions):
        return X.pack()
    if isinstance(X, Tensor):
        if not X.is_floating_point():
            raise TypeError(
                f"Expected rows of floating-point numbers, got {X.dtype}. Give rows.double()."
            )
        return X
    raise _neither(X)


def kind_of(X: Distributions | Tensor) -> str | None:
    """What distances call the kind of some distributions; None for rows.

    Raises:
        TypeError: If it is something else.
    """
    if isinstance(X, Distributions):
        return KINDS[type(X)]
    if isinstance(X, Tensor):
        return None
    raise _neither(X)


def _neither(X: object) -> TypeError:
    return TypeError(
        f"Expected PointClouds, Gaussians, GaussianMixtures or a tensor of rows, got "
        f"{type(X).__name__}. Make clouds of a list of arrays with PointClouds.from_list."
    )
