"""Passes over pieces of data, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from gp_distributions.sharding.checkpoint import Checkpoint
from gp_distributions.sharding.passes import Task, run
from gp_distributions.sharding.pieces import Piece

Sums = TypeVar("Sums")

_NOWHERE = Checkpoint(None, "", "")


@dataclass(frozen=True, eq=False)
class PredictedPieces:
    """A task that predicts the clouds of a piece.

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


def sums_over_pieces(
    task: Task[Sums],
    pieces: Sequence[Piece],
    *,
    progress: bool = True,
    client: Any = None,
    checkpoint: Checkpoint = _NOWHERE,
    kind: Callable[..., Any] = dict,
) -> Sums:
    """Add the results of a task over all pieces of data, in the order of the pieces.

    Args:
        task: The task. It can be pickled, and depends on nothing else.
        pieces: The pieces.
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
    done, values = checkpoint.read()
    so_far: tuple[int, Any] = done, kind(**values) if done else None  # which changes in one step
    left = range(done, len(pieces))
    results = run(task, pieces, left, client=client, progress="Pieces" if progress else None)

    def write(*, now: bool) -> None:
        done, total = so_far
        if total is not None:
            kept = {field.name: getattr(total, field.name) for field in fields(total)}
            checkpoint.write(done, kept, now=now)

    try:
        for part in results:
            done, total = so_far
            so_far = done + 1, part if total is None else total + part
            write(now=False)
    finally:
        results.close()
        if len(left):
            write(now=True)
    sums: Sums = so_far[1]
    return sums
