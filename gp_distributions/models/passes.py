"""Passes over pieces of data, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from gp_distributions.models.pieces import Pieces, described
from gp_distributions.sharding.checkpoint import Checkpoint
from gp_distributions.sharding.passes import run

State = TypeVar("State")
Sums = TypeVar("Sums")

_NOWHERE = Checkpoint(None, "", "")


@dataclass(frozen=True)
class Step(Generic[State, Sums]):
    """The result of one piece.

    Attributes:
        task: Function of a state and of the content of a piece.
        state: What the function needs besides the data.
    """

    task: Callable[..., Sums]
    state: State

    def __call__(self, number: int, *content: Any) -> Sums:
        """Compute the result of the content of a piece."""
        return self.task(self.state, *content)


@dataclass(frozen=True, eq=False)
class PredictedPieces:
    """Predictions of a model for the clouds of a piece.

    Attributes:
        model: The model, which is sent to workers.
        method: Name of its method, as for :meth:`Regression.in_batches`.
        arguments: Further arguments of that method.
    """

    model: Any
    method: str
    arguments: dict[str, Any]

    def __call__(self, number: int, X: Any, *rest: Any) -> Any:
        """Predict the clouds of a piece."""
        return self.model.in_batches(X, self.method, progress=False, **self.arguments)


def results_of_pieces(
    task: Callable[..., Sums],
    state: State,
    data: Pieces,
    *,
    progress: bool = True,
    client: Any = None,
) -> Generator[Sums, None, None]:
    """Yield the result of a function for each piece of data, in order; see :func:`sums_over_pieces`."""
    label = "Pieces" if progress else None
    return run(Step(task, state), described(data), client=client, progress=label)


def sums_over_pieces(
    task: Callable[..., Sums],
    state: State,
    data: Pieces,
    *,
    progress: bool = True,
    client: Any = None,
    checkpoint: Checkpoint = _NOWHERE,
    kind: Callable[..., Any] = dict,
) -> Sums:
    """Add the results of a function over all pieces of data, in the order of the pieces.

    Args:
        task: Function of a state and of what ``data.piece`` returns. It can be pickled, and depends on
            nothing else.
        state: What the function needs besides the data; it can be pickled.
        data: Data in pieces.
        progress: Whether to show a progress bar if it takes more than a few seconds.
        client: A client of ``dask.distributed`` whose workers compute the sums. Default: this process.
        checkpoint: Where the sums so far are kept, and from where they are taken. If the pass is
            interrupted in any way other than the end of the process, those of all pieces done are kept.
        kind: The class of the sums, a dataclass, or a function that makes them of their fields. Required
            with a checkpoint, which holds the fields.

    Returns:
        The sum of the results.

    Raises:
        PieceError: If a piece cannot be read or summed; the message names it.
        ValueError: If the checkpoint belongs to something else.
    """
    pieces = described(data)
    done, values = checkpoint.read()
    so_far: tuple[int, Any] = done, kind(**values) if done else None
    left = range(done, len(pieces))
    label = "Pieces" if progress else None
    results = run(Step(task, state), pieces, left, client=client, progress=label)
    try:
        for part in results:
            done, total = so_far
            so_far = done + 1, part if total is None else total + part
            _write(checkpoint, so_far)
    finally:
        results.close()
        if len(left):
            _write(checkpoint, so_far, now=True)
    sums: Sums = so_far[1]
    return sums


def _write(checkpoint: Checkpoint, so_far: tuple[int, Any], *, now: bool = False) -> None:
    done, total = so_far
    if total is not None:
        values = {field.name: getattr(total, field.name) for field in fields(total)}
        checkpoint.write(done, values, now=now)
