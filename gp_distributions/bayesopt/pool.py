"""Acquisition functions optimised over a fixed set of clouds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.exceptions import UnsupportedError
from botorch.optim import optimize_acqf_discrete
from torch import Tensor

from gp_distributions.bayesopt.pool_distances import PoolLookUp, Table
from gp_distributions.distances.base import Distance
from gp_distributions.distances.evaluation import looking_up
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures import PointClouds
from gp_distributions.measures.kinds import Distributions, as_rows
from gp_distributions.rows.memory import fingerprint


class Pool:
    """A fixed set of clouds that are candidates, and what is remembered of their distances.

    Between the calls of :func:`optimize_over_pool` a pool keeps the squared distances of all
    candidates to the clouds that were asked for, which are those a model was trained on: ``N`` numbers
    for each. With them it keeps the features of the candidates where there is room, so that every
    candidate is embedded once; where there is not, candidates are embedded again for every new
    training cloud, by blocks. A model of the next step may have a new kernel, as long as its distance
    has the same settings and parameters.

    Args:
        candidates: The ``N`` clouds, as :class:`PointClouds`, :class:`Gaussians`,
            :class:`GaussianMixtures` or an ``N x m*(d+1)`` tensor of rows.
        memory: Bytes that the features of the candidates may take for each distance. Default: half of
            the memory that is free, or 2 GiB where the system does not tell.

    Attributes:
        rows: The candidates, ``N x width``.
        dim: The dimension of the atoms of :class:`PointClouds`, else ``None``.

    Raises:
        TypeError: If candidates are something else, such as a list.
        ValueError: If there is no candidate, or rows have batch axes.
    """

    def __init__(self, candidates: Distributions | Tensor, *, memory: float | None = None) -> None:
        rows = as_rows(candidates)
        if rows.dim() != 2 or not len(rows):
            raise ValueError(
                f"Expected candidates as N >= 1 clouds or a tensor of N rows, got {tuple(rows.shape)}."
            )
        self.rows = rows.detach()
        self.dim = candidates.dim if isinstance(candidates, PointClouds) else None
        self.memory = _half_of_free_memory(self.rows.device) if memory is None else memory
        self._tables: list[Table] = []

    def __len__(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        """Forget all distances and features."""
        self._tables.clear()

    def _table(self, distance: Distance, columns: Tensor | None) -> Table:
        """What is known of a distance on some columns."""
        found = fingerprint(distance)
        for table in self._tables:
            if table.fingerprint == found and _same_columns(table.columns, columns):
                return table
        rows = self.rows if columns is None else self.rows.index_select(-1, columns)
        self._tables.append(Table(distance, rows, columns=columns, memory=self.memory))
        return self._tables[-1]

    @contextlib.contextmanager
    def _serving(self, module: torch.nn.Module) -> Iterator[PoolLookUp]:
        """Let the distances of a module look up what the pool knows, in this thread."""
        tables = [
            self._table(kernel.distance, columns)
            for kernel, columns in distribution_kernels(module)
        ]
        self._tables = list(dict.fromkeys(tables))  # others belong to distances of the past
        look_up = PoolLookUp(self._tables)
        with looking_up(look_up):
            yield look_up


def optimize_over_pool(
    acquisition: AcquisitionFunction,
    pool: Pool | Distributions | Tensor,
    q: int = 1,
    *,
    exclude: Iterable[int] | Tensor = (),
    batch_size: int = 2048,
) -> tuple[Tensor, Tensor]:
    """Find the candidates of a pool with the largest values of an acquisition function.

    Several candidates are found one after the other, each with those before it as pending points, by
    ``botorch.optim.optimize_acqf_discrete``. Values are those of the acquisition function on rows; only
    distances are looked up.

    Args:
        acquisition: A BoTorch acquisition function of a model on rows; for ``q > 1`` one that takes
            pending points, as the Monte Carlo ones do.
        pool: The candidates. Give a :class:`Pool`, which remembers, where there are several calls.
        q: The number of candidates wanted.
        exclude: Indices of candidates that must not be chosen: those evaluated.
        batch_size: Candidates whose values are computed at a time, which bounds memory.

    Returns:
        The indices of the candidates, a tensor of ``q`` integers without repetition, and the ``q``
        values that the acquisition function had for each when it was chosen.

    Raises:
        ValueError: If fewer than ``q`` candidates are left, an index is none of the pool, a number is
            less than one, or a value is not a number.
        UnsupportedError: If the acquisition function is a one-shot one, or takes no pending points.
    """
    if isinstance(acquisition, OneShotAcquisitionFunction):
        raise UnsupportedError(
            "A one-shot acquisition function is optimised jointly with its fantasies, which a pool "
            "does not allow. Take another, such as qLogNoisyExpectedImprovement."
        )
    if batch_size < 1:
        raise ValueError(f"Expected batch_size >= 1, got {batch_size}.")
    pool = pool if isinstance(pool, Pool) else Pool(pool)
    choices = _remaining(len(pool), exclude, pool.rows.device)
    if not 1 <= q <= len(choices):
        raise ValueError(
            f"Expected 1 <= q <= {len(choices)}, the number of candidates that are left, got {q}."
        )
    with pool._serving(acquisition) as look_up:
        indexed = _Indexed(acquisition, pool.rows, look_up)
        found, values = optimize_acqf_discrete(
            indexed, q, choices.double().unsqueeze(-1), max_batch_size=batch_size
        )
    values = values.reshape(q)
    if bool(values.isnan().any()):
        raise ValueError(f"Expected numbers as values of {acquisition}, got {values.tolist()}.")
    return found.reshape(q).long(), values


class _Indexed(AcquisitionFunction):
    """An acquisition function of indices, so that candidates are never told apart by their floats."""

    def __init__(self, acquisition: AcquisitionFunction, rows: Tensor, look_up: PoolLookUp) -> None:
        super().__init__(acquisition.model)
        self.acquisition = acquisition
        self.rows = rows
        self.look_up = look_up
        self._base_pending: Tensor | None = getattr(acquisition, "X_pending", None)
        self.X_pending: Tensor | None = None

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:  # noqa: N802
        """Add the rows of indices to the points that were pending before."""
        pending = self._base_pending
        if X_pending is not None:
            rows = self.rows[X_pending.squeeze(-1).long()]
            pending = rows if pending is None else torch.cat([pending, rows.to(pending)])
        self.acquisition.set_X_pending(pending)
        self.X_pending = X_pending

    def forward(self, X: Tensor) -> Tensor:
        """Values of a ``b x 1 x 1`` tensor of indices."""
        indices = X[:, 0, 0].long()
        self.look_up.batch = indices
        return self.acquisition(self.rows[indices].unsqueeze(-2))


def _remaining(size: int, exclude: Iterable[int] | Tensor, device: torch.device) -> Tensor:
    given = (
        exclude if isinstance(exclude, Tensor) else torch.tensor(list(exclude), dtype=torch.long)
    )
    indices = given.to(device).flatten()
    if indices.numel() and (indices.is_floating_point() or indices.dtype == torch.bool):
        raise ValueError(f"Expected exclude as indices, got a tensor of dtype {indices.dtype}.")
    wrong = (indices < 0) | (indices >= size)
    if bool(wrong.any()):
        raise ValueError(
            f"Expected indices from 0 to {size - 1} in exclude, got {int(indices[wrong][0])}."
        )
    left = torch.ones(size, dtype=torch.bool, device=device)
    left[indices.long()] = False
    return left.nonzero().squeeze(-1)


def _half_of_free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    except (AttributeError, OSError, ValueError):
        return 2.0**31


def _same_columns(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))
