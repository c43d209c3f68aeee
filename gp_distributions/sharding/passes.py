"""One pass over pieces, in this process or on the workers of a Dask cluster.

The order in which results are returned does not depend on who computes them, or on who is first: sums
that are added in this order have the same bits wherever the tasks run, if each runs on one thread.
"""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol, TypeVar

import torch
from tqdm import tqdm

from gp_distributions.sharding.optional import needed
from gp_distributions.sharding.pieces import (
    Piece,
    PieceError,
    Readable,
    failure,
    raise_named,
    read_piece,
)

Result = TypeVar("Result", covariant=True)

_log = logging.getLogger(__name__)

# One piece is read and embedded while sums over another are computed.
_THREADS = 2
# How often data that were lost with the workers that held them are sent again.
_LOSSES = 5
# A bar appears only if a pass takes longer than this many seconds.
_PATIENCE = 3.0


class Task(Protocol[Result]):
    """What is computed from each piece: a function that can be pickled and changes nothing.

    It may be called more than once for a piece, in any process.
    """

    def __call__(self, number: int, *content: Any) -> Result:
        """Compute a result.

        Args:
            number: Number of the piece.
            *content: What reading it returns: clouds, and their targets or None.
        """


def run(
    task: Task[Result],
    pieces: Sequence[Piece],
    numbers: Sequence[int] | None = None,
    *,
    client: Any = None,
    progress: str | None = None,
) -> Generator[Result, None, None]:
    """Compute a result from each piece, and yield the results in order.

    In this process, two threads take turns: one reads a piece while the other computes. On a cluster,
    at most two pieces for each thread of the workers are in progress, and tasks of workers that died are
    run again elsewhere.

    Args:
        task: What to compute, without gradients.
        pieces: The pieces.
        numbers: Numbers of the pieces to use. Default: all.
        client: A client of ``dask.distributed``. Default: this process.
        progress: Label of a progress bar, which appears after three seconds. Default: no bar.

    Yields:
        The results, in the order of ``numbers``.

    Raises:
        PieceError: If a task fails; the message names the piece and its file.
    """
    order = range(len(pieces)) if numbers is None else numbers
    results = _here(task, pieces, order) if client is None else _there(task, pieces, order, client)
    bar = tqdm(total=len(order), desc=progress, unit="piece", disable=not progress, delay=_PATIENCE)
    with closing(results), bar:
        for result in results:
            yield result
            bar.update()


def _here(
    task: Task[Result], pieces: Sequence[Piece], order: Sequence[int]
) -> Generator[Result, None, None]:
    """Compute results in threads of this process."""
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="piece")
    try:
        for number in order:
            if len(waiting) == _THREADS:
                yield waiting.popleft().result()
            context = contextvars.copy_context()
            waiting.append(pool.submit(context.run, compute, task, number, pieces[number]))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _there(
    task: Task[Result], pieces: Sequence[Piece], order: Sequence[int], client: Any
) -> Generator[Result, None, None]:
    """Compute results on the workers of a cluster."""
    needed("distributed", "dask", "Clusters")
    from distributed import Client, KilledWorker

    if not isinstance(client, Client):
        raise TypeError(f"Expected client to be a distributed.Client, got {type(client).__name__}.")
    if client.asynchronous:
        raise TypeError("Expected a synchronous client: Client(..., asynchronous=False).")
    waiting: deque[Any] = deque()
    done = losses = 0
    sent = _send(task, client)
    try:
        while done < len(order):
            ahead = order[done + len(waiting) : done + _capacity(client)]
            waiting.extend(_submit(sent, number, pieces[number], client) for number in ahead)
            name = pieces[order[done]].name
            try:
                result = waiting[0].result()
            except CancelledError as error:  # all workers that held the task are gone
                losses += 1
                if losses > _LOSSES or client.status != "running":
                    raise failure(name, error) from error
                _log.warning("The cluster lost data; sending them again (%s).", error)
                waiting.clear()
                sent = _send(task, client)
                continue
            except KilledWorker as error:
                text = (
                    "the workers that computed this piece died, most likely out of memory: "
                    f"{error} Give workers more memory, or make smaller pieces by piece_atoms=."
                )
                raise failure(name, PieceError(text)) from error
            except Exception as error:
                # That of a task names the piece, but not that of what Dask computes before it.
                raise_named(name, error)
            waiting.popleft()
            done += 1
            yield result
    finally:
        if client.status == "running":
            client.cancel(list(waiting))


def _send(task: Any, client: Any) -> Any:
    """Send what is common to all pieces to every worker, once."""
    if not client.nthreads():
        _log.warning("Waiting for workers: the cluster has none.")
    client.wait_for_workers(1)
    return client.scatter(task, broadcast=True, hash=False)


def _submit(sent: Any, number: int, piece: Piece, client: Any) -> Any:
    readable, inputs = piece.remote(client)
    return client.submit(compute, sent, number, readable, *inputs, pure=False)


def _capacity(client: Any) -> int:
    """Return how many pieces may be in progress; the number of workers may change at any time."""
    return max(2, 2 * sum(client.nthreads().values()))


def compute(task: Task[Result], number: int, piece: Readable, *inputs: Any) -> Result:
    """Read a piece and compute its result.

    Raises:
        PieceError: If this fails; the message names the piece.
    """
    contents = read_piece(piece, *inputs)
    try:
        with torch.no_grad():
            return task(number, *contents)
    except Exception as error:
        raise_named(piece.name, error)
