"""Work in a child of this process, which inherits all that has been imported."""

import contextlib
import json
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """Return what ``work`` returns in a child, or None where that takes longer or the child dies."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()  # so that what the tests start ends with the child
        os.close(reader)
        try:
            answer = json.dumps(work()).encode()
        except BaseException as error:
            answer = json.dumps({"error": repr(error)}).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    end = time.monotonic() + seconds
    parts = []
    with os.fdopen(reader, "rb") as pipe:
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = os.read(pipe.fileno(), 1 << 16)
            if not part:
                break
            parts.append(part)
        else:
            parts = []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(b"".join(parts)) if parts else None


def side_by_side(work: Callable[[int], None], workers: int) -> None:
    """Call ``work`` with the number of each worker, the first here and the others in children.

    Raises:
        RuntimeError: If a child fails.
    """
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(n,)) for n in range(1, workers)]  # type: ignore[attr-defined]
    for child in children:
        child.start()
    work(0)
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise RuntimeError("A worker failed; its error is above.")
