"""The kernels that a search compares if none are given."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.bayesopt.search import Search
from gp_distributions.bayesopt.searches import DesignSearch, FreeSearch, PoolSearch
from gp_distributions.kernels.defaults import default_kernels
from gp_distributions.measures import PointClouds
from gp_distributions.measures.kinds import KINDS, Distributions
from gp_distributions.rows.clouds import pad_rows

# Bandwidths and the reference of linear transport come from the shapes of so many random designs.
_DESIGNS = 50


def default_candidates(search: Search, seed: int) -> dict[str, Kernel]:
    """Make the kernels to compare in a search.

    They are the :func:`default_kernels` of the clouds of a pool, of the first clouds of a free search,
    or of the shapes of random designs. Searches of designs add two kernels of the designs themselves:
    BoTorch's default, which has a Gaussian profile, and the same with Matern 5/2.

    Args:
        search: The search.
        seed: Random seed for the kernels and the designs.

    Returns:
        The kernels by name.

    Raises:
        ValueError: If the search is of another kind, or the kind or dimension of its clouds is not
            known.
    """
    if isinstance(search, DesignSearch):
        return _of_designs(search, seed)
    if isinstance(search, FreeSearch):
        return default_kernels(PointClouds.unpack(search.starts, search.dim), seed=seed)
    if isinstance(search, PoolSearch) and search.pool.block is not None:
        block = search.pool.block
        kinds: dict[str, Any] = {name: kind for kind, name in KINDS.items()}
        clouds: Distributions = kinds[block.kind].unpack(search.pool.rows, block.dim)
        return default_kernels(clouds, seed=seed)
    raise ValueError(
        "Expected a PoolSearch of distributions, a DesignSearch or a FreeSearch for "
        f'model="compare", got {type(search).__name__}'
        f"{' of rows' if isinstance(search, PoolSearch) else ''}. Pass kernels by name, such as "
        "model={'sw2': kernel, 'mmd': another}."
    )


def _of_designs(search: DesignSearch, seed: int) -> dict[str, Kernel]:
    size = search.bounds.shape[-1]
    kernels = {
        f"designs {name}": get_covar_module_with_dim_scaled_prior(
            ard_num_dims=size, use_rbf_kernel=name == "gaussian"
        )
        for name in ("gaussian", "matern52")
    }
    if search.input_transform is None:
        return kernels
    if search.dim is None:
        raise ValueError(
            'Expected a DesignSearch whose shapes have a known dimension for model="compare". Pass '
            "dim= to the search."
        )
    designs = search.inputs(search.initial(_DESIGNS, seed))
    shapes = PointClouds.unpack(_decoded(search.input_transform, designs), search.dim)
    return default_kernels(shapes, seed=seed) | kernels


@torch.no_grad()
def _decoded(decoder: InputTransform, designs: Tensor) -> Tensor:
    """Decode designs to rows, without those that cannot be decoded."""
    rows = []
    for design in designs.split(1):
        try:
            rows.append(decoder.transform(design))
        except Exception as error:  # decoders may raise any kind of error
            failure = error
    if not rows:
        raise failure
    width = max(row.shape[-1] for row in rows)
    return torch.cat([pad_rows(row, width) for row in rows])
