"""Optimisation of acquisition functions over a fixed set of clouds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from gp_distributions.bayesopt.one_by_one import one_by_one
from gp_distributions.bayesopt.pool_distances import PoolLookUp, Table
from gp_distributions.distances.evaluation import looking_up
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures import PointClouds
from gp_distributions.measures.kinds import Distributions, as_rows, kind_of
from gp_distributions.models.arguments import check_batch_size
from gp_distributions.rows.columns import Columns
from gp_distributions.rows.fingerprint import fingerprint
from gp_distributions.rows.layout import Block


class Pool:
    """A fixed set of candidate clouds that remembers their distances.

    Between calls of :func:`optimize_over_pool`, a pool keeps the squared distances between all
    candidates and the training clouds of the model: ``N`` numbers for each training cloud. It also
    keeps the features of the candidates if there is enough memory, so that every candidate is embedded
    only once. Otherwise, candidates are embedded again, in blocks, whenever there are new training
    clouds. A later model may have a new kernel; the stored distances are used as long as the distance
    of that kernel has the same settings and parameters.

    Args:
        candidates: The ``N`` clouds, as :class:`PointClouds`, :class:`Gaussians`,
            :class:`GaussianMixtures` or an ``N x m*(d+1)`` tensor of rows.
        memory: Number of bytes for the features of the candidates, for each distance. Default: half of
            the memory that is free before the features of a distance are stored, or 2 GiB if that is
            unknown.

    Attributes:
        rows: The candidates, ``N x width``.
        dim: Dimension of the atoms of :class:`PointClouds`, else ``None``.
        block: Kind and dimension of the candidates; ``None`` for a tensor of rows.
        labels: Labels of the candidates, or ``None``.

    Raises:
        TypeError: If ``candidates`` has another type, such as a list.
        ValueError: If there are no candidates, or rows have batch axes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.bayesopt import Pool
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(10, 5, 2)))
        >>> pool = Pool(clouds)  # for optimize_over_pool
        >>> len(pool), pool.rows.shape
        (10, torch.Size([10, 15]))
    """

    def __init__(self, candidates: Distributions | Tensor, *, memory: float | None = None) -> None:
        rows = as_rows(candidates)
        if rows.dim() != 2 or not len(rows):
            raise ValueError(
                f"Expected N >= 1 clouds or an N x width tensor of rows, got shape {tuple(rows.shape)}."
            )
        self.rows = rows.detach()
        self.dim = candidates.dim if isinstance(candidates, PointClouds) else None
        kind = kind_of(candidates)
        self.block = None if isinstance(candidates, Tensor) else Block(str(kind), candidates.dim)
        self.labels = getattr(candidates, "labels", None)
        self.memory = memory
        self._tables: dict[Hashable, Table] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        """Forget all distances and features of the candidates."""
        self._tables.clear()

    def look_up(self, module: torch.nn.Module, columns: Columns = None) -> PoolLookUp:
        """Return a look-up of distances for the kernels of a module, for use with ``looking_up``.

        Args:
            module: An acquisition function or a model.
            columns: Columns of the inputs of the kernels that hold the candidates; ``None`` if the
                candidates are whole inputs.
        """
        used: set[Hashable] = set()
        here: dict[Hashable, Table] = {}
        for kernel, block in distribution_kernels(module):
            inside = block if columns is None else Block(block.kind, block.dim)
            key = fingerprint(kernel.distance), inside
            used.add(key)
            if columns is None or block.columns == columns:
                if key not in self._tables:
                    selected = inside.select(self.rows)
                    self._tables[key] = Table(kernel.distance, selected, memory=self.memory)
                here[key] = self._tables[key]
        # Drop the tables that the module does not use; they belong to the distances of earlier models.
        # Those of other columns stay, because several parts of a candidate may be in the same pool.
        self._tables = {key: table for key, table in self._tables.items() if key in used}
        return PoolLookUp(list(here.values()))


def optimize_over_pool(
    acquisition: AcquisitionFunction,
    pool: Pool | Distributions | Tensor,
    q: int = 1,
    *,
    exclude: Iterable[int] | Tensor = (),
    batch_size: int = 2048,
) -> tuple[Tensor, Tensor]:
    """Find the candidates of a pool with the largest values of an acquisition function.

    Candidates are selected one by one, each with the previous ones as pending points. The acquisition
    function is evaluated on the rows of the candidates as usual; only the distances in its kernels are
    looked up.

    Args:
        acquisition: BoTorch acquisition function of a model on rows. For ``q > 1`` it must support
            pending points, as Monte Carlo acquisition functions do.
        pool: The candidates. For several calls, use a :class:`Pool`, which remembers distances.
        q: Number of candidates to select.
        exclude: Indices of candidates that must not be selected, such as those already evaluated.
        batch_size: Number of candidates to evaluate at a time, which bounds memory.

    Returns:
        The indices of the selected candidates, a tensor of ``q`` distinct integers, and the value of the
        acquisition function at each candidate when it was selected.

    Raises:
        ValueError: If fewer than ``q`` candidates are left, an excluded index is not in the pool, ``q``
            or ``batch_size`` is less than one, or a value of the acquisition function is NaN.
        UnsupportedError: If the acquisition function is one-shot, or ``q > 1`` and it does not support
            pending points.

    Example:
        >>> import numpy as np
        >>> from botorch.acquisition import LogExpectedImprovement
        >>> from gp_distributions import DistributionGP, PointClouds
        >>> from gp_distributions.bayesopt import optimize_over_pool
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(30, 5, 2)))
        >>> y = clouds.points.mean((1, 2))
        >>> model = DistributionGP(clouds[:10], y[:10])
        >>> acquisition = LogExpectedImprovement(model, best_f=y[:10].max())
        >>> indices, values = optimize_over_pool(acquisition, clouds, exclude=range(10))
        >>> len(indices), bool(indices >= 10)
        (1, True)
    """
    check_batch_size(batch_size)
    pool = pool if isinstance(pool, Pool) else Pool(pool)
    left = _remaining(len(pool), exclude, pool.rows.device)
    if not 1 <= q <= len(left):
        raise ValueError(
            f"Expected 1 <= q <= {len(left)}, the number of remaining candidates, got {q}."
        )
    look_up = pool.look_up(acquisition)
    values: list[Tensor] = []

    def find(found: list[Tensor]) -> Tensor:
        choices = left[~torch.isin(left, torch.stack(found))] if found else left
        parts = []
        for look_up.batch in choices.split(batch_size):
            parts.append(acquisition(pool.rows[look_up.batch].unsqueeze(-2)))
        best, place = torch.cat(parts).max(0)  # NaN if any value is
        values.append(best)
        return choices[place]

    with torch.no_grad(), looking_up(look_up):
        found = one_by_one(acquisition, q, find, lambda found: pool.rows[torch.stack(found)])
    if bool(torch.stack(values).isnan().any()):
        raise ValueError(f"Expected values of {acquisition} that are not NaN, got {values}.")
    return torch.stack(found), torch.stack(values)


def _remaining(size: int, exclude: Iterable[int] | Tensor, device: torch.device) -> Tensor:
    """Return the indices from 0 to ``size - 1`` that are not in ``exclude``."""
    given = exclude if isinstance(exclude, Tensor) else list(exclude)
    indices = torch.as_tensor(given, device=device).flatten()
    if indices.numel() and (indices.is_floating_point() or indices.dtype == torch.bool):
        raise ValueError(f"Expected integer indices in exclude, got dtype {indices.dtype}.")
    wrong = (indices < 0) | (indices >= size)
    if bool(wrong.any()):
        raise ValueError(
            f"Expected indices from 0 to {size - 1} in exclude, got {int(indices[wrong][0])}."
        )
    left = torch.ones(size, dtype=torch.bool, device=device)
    left[indices.long()] = False
    return left.nonzero().squeeze(-1)
