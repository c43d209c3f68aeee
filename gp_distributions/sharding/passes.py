"""One pass over pieces, in this process or on the workers of a Dask cluster.

The order in which results are returned does not depend on who computes them, or on who is first: sums
that are added in this order have the same bits wherever the tasks run, if each runs on one thread.
"""

from __future__ import annotations

import contextvars
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeAlias, TypeVar

import torch
from tqdm import tqdm

from gp_distributions.sharding.pieces import Piece, named

Result = TypeVar("Result")

# One piece is read and embedded while sums over another are computed.
_THREADS = 2
# How often Dask runs a task again that has failed, as a read from a network drive may.
_RETRIES = 2
# A bar appears only if a pass takes longer than this many seconds.
_PATIENCE = 3.0


# What is computed from each piece: a function of its number and of what reading it returns (clouds, and
# their targets or None). It can be pickled and changes nothing, and may be called more than once for a
# piece, in any process.
Task: TypeAlias = Callable[..., Result]


def run(
    task: Task[Result],
    pieces: Sequence[Piece],
    *,
    client: Any = None,
    progress: str | None = None,
) -> Generator[Result, None, None]:
    """Compute a result from each piece, and yield the results in order.

    In this process, two threads take turns: one reads a piece while the other computes. On a cluster,
    at most two pieces for each thread of the workers are in progress, and Dask runs tasks of workers
    that died again elsewhere.

    Args:
        task: What to compute, without gradients.
        pieces: The pieces.
        client: A client of ``dask.distributed``. Default: this process.
        progress: Label of a progress bar, which appears after three seconds. Default: no bar.

    Yields:
        The results, in the order of the pieces.

    Raises:
        PieceError: If a task fails; the message names the piece and its file.
    """
    results = _here(task, pieces) if client is None else _there(task, pieces, client)
    bar = tqdm(
        total=len(pieces), desc=progress, unit="piece", disable=not progress, delay=_PATIENCE
    )
    with closing(results), bar:
        for result in results:
            yield result
            bar.update()


def _here(task: Task[Result], pieces: Sequence[Piece]) -> Generator[Result, None, None]:
    """Compute results in threads of this process."""
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="piece")
    try:
        for number, piece in enumerate(pieces):
            if len(waiting) == _THREADS:
                yield waiting.popleft().result()
            context = contextvars.copy_context()
            waiting.append(pool.submit(context.run, compute, task, number, piece))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _there(
    task: Task[Result], pieces: Sequence[Piece], client: Any
) -> Generator[Result, None, None]:
    """Compute results on the workers of a cluster."""
    from distributed import Client

    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(
            f"Expected client to be a synchronous distributed.Client, got {type(client).__name__}."
        )
    with warnings.catch_warnings():
        # The scheduler keeps the task, so that no death of workers loses it.
        warnings.filterwarnings("ignore", "Sending large graph")
        sent = client.submit(_given, task, pure=False)
    waiting: deque[Any] = deque()
    left = deque(enumerate(pieces))
    try:
        for piece in pieces:
            # The number of workers may change at any time.
            while left and len(waiting) < max(2, 2 * sum(client.nthreads().values())):
                number, after = left.popleft()
                given = sent, number, after.sent()
                waiting.append(client.submit(compute, *given, pure=False, retries=_RETRIES))
            with named(piece.name):
                result = waiting[0].result()
            waiting.popleft()
            yield result
    finally:
        if client.status == "running":
            client.cancel(list(waiting))


def _given(task: Task[Result]) -> Task[Result]:
    return task


def compute(task: Task[Result], number: int, piece: Piece) -> Result:
    """Read a piece and compute its result.

    Raises:
        PieceError: If this fails; the message names the piece.
    """
    with named(piece.name), torch.no_grad():
        return task(number, *piece.read())
