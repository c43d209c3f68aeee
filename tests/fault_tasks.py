"""Work in other processes, which are children of one that has imported all once.

A child is forked for each task. Some die, or are interrupted, at a given line of some files.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from cases import randn

ROOT = Path(__file__).parents[1]


class Children:
    """Runs functions, each in a process of its own, within a ``with`` block.

    They have nothing of this process; not even the seed of the hashes of strings is the same.
    """

    def __enter__(self) -> Self:
        environment = os.environ | {
            "PYTHONHASHSEED": str(int(os.environ.get("PYTHONHASHSEED", "random") == "0")),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",  # whose gradients have threads, which a fork would lose
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", "import fault_tasks; fault_tasks.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, task: str, *arguments: Any) -> int:
        """Start a task; return the number of its process."""
        return int(self._ask(["start", task, *arguments]))

    def end(self, process: int) -> int:
        """Wait for a task; return its exit status, or minus the signal that killed it."""
        return int(self._ask(["end", process]))

    def run(self, task: str, *arguments: Any) -> int:
        """Run a task; return its exit status, or minus the signal that killed it."""
        return self.end(self.start(task, *arguments))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of a module returns, which has as many threads as here."""
        import torch

        with tempfile.TemporaryDirectory() as folder:
            call, result = Path(folder, "call"), Path(folder, "result")
            call.write_bytes(pickle.dumps((torch.get_num_threads(), function, arguments)))
            assert self.run("called", call, result) == 0
            return pickle.loads(result.read_bytes())

    def _ask(self, question: list[Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps([str(q) if isinstance(q, Path) else q for q in question])
        )
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def serve() -> None:
    """Fork a child for each line of the standard input."""
    import torch
    from tqdm import tqdm

    from gp_distributions import DistributionGP, fit  # noqa: F401

    LOADED.update(sys.modules)
    torch.broadcast_shapes((1,))  # imports SymPy at its first use
    torch.set_num_threads(1)
    # A child that is killed while it holds the lock that processes share would stop all others.
    tqdm.set_lock(threading.RLock())
    tqdm.monitor_interval = 0
    with tempfile.TemporaryDirectory() as folder:  # what libraries do at first use is done once
        saved(0.0, f"{folder}/model", "never", 0)
        search("pool", None, "never", 0, None)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        if what == "end":
            answer = os.waitstatus_to_exitcode(os.waitpid(rest[0], 0)[1])
        elif not (answer := os.fork()):
            _child(*rest)
        os.write(1, f"{answer}\n".encode())


def _child(task: str, *arguments: Any) -> None:
    import torch

    os.dup2(2, 1)  # what a task prints is no answer
    # Renews PyTorch's threads, which two threads of a child cannot do at once.
    torch.set_num_threads(1)
    try:
        globals()[task](*arguments)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


# The modules that a fit needs.
LOADED: set[str] = set()


def loaded() -> set[str]:
    """Return the names of the modules that a fit needs."""
    return LOADED


def called(call: str, result: str) -> None:
    """Call a function, and write what it returns."""
    import torch

    threads, function, arguments = pickle.loads(Path(call).read_bytes())
    torch.set_num_threads(threads)
    write(result, function(*arguments))


# Where results are kept.
KEPT = ("bayesopt/records.py", "files.py")


class AtLine:
    """Does something when a number of lines of some files are reached.

    Args:
        line: The number.
        action: What it does.
        files: The files. Default: those that keep results.

    Attributes:
        count: How many lines were reached.
    """

    def __init__(self, line: int, action: Callable[[], None], files: Sequence[str] = KEPT) -> None:
        self.files = tuple(f"{os.sep}gp_distributions{os.sep}{file}" for file in files)
        self.line, self.action, self.count = line, action, 0

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of which lines are counted."""

        @functools.wraps(function)
        def counted(*arguments: Any, **options: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(self._entered)
            try:
                return function(*arguments, **options)
            finally:
                sys.settrace(before)

        return counted

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._reached if frame.f_code.co_filename.endswith(self.files) else None

    def _reached(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.line:
                self.action()
        return self._reached


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying(when: str, number: int) -> None:
    """Arrange for the death of this process.

    Args:
        when: What is done when it dies: "reading and writing" for the lines of files that keep results,
            "anything" for milliseconds of processor time, or "never".
        number: After how many lines or milliseconds.
    """
    if when == "anything":  # nothing handles this signal: the system ends the process at once
        signal.setitimer(signal.ITIMER_PROF, number / 1000)
    if when == "reading and writing":
        from gp_distributions.bayesopt import ShapeOptimizer
        from gp_distributions.bayesopt.records import Checkpoint as Record
        from gp_distributions.saving import files

        at = AtLine(number, die)
        owners = [(Record, "__init__"), (ShapeOptimizer, "tell"), (files, "write_tensors")]
        for owner, name in owners:
            setattr(owner, name, at.within(getattr(owner, name)))


def write(path: str, found: Any) -> None:
    """Write results for the parent."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    Path(path).write_bytes(pickle.dumps(found))


# Searches.


def clouds(count: int = 40) -> Any:
    """Return random clouds."""
    import torch

    from gp_distributions import PointClouds

    generator = torch.Generator().manual_seed(0)
    points = randn(count, 4, 2, seed=generator)
    return PointClouds(points + randn(count, 1, 2, seed=generator))


def optimizer(kind: str, path: str | None) -> Any:
    """Make the optimizer of a search."""
    from gp_distributions import MixedSearch, PoolSearch, ShapeOptimizer

    options: dict[str, Any] = {"initial": 3, "restarts": 0, "path": path}
    if kind == "random":
        options["initial"] = 7
    if kind == "mixed":
        parts = {"shape": PoolSearch(clouds()), "angle": (0.0, 1.0)}
        search = MixedSearch(**parts, num_restarts=2, raw_samples=4, maxiter=5)
        return ShapeOptimizer(search, **options)
    return ShapeOptimizer(PoolSearch(clouds()), **options)


def value(candidate: Any) -> float:
    """Evaluate a candidate of a search."""
    shape, angle = (
        (candidate["shape"], candidate["angle"]) if isinstance(candidate, dict) else (candidate, 0)
    )
    return float((shape * 7919 % 40) / 40 - (angle - 0.3) ** 2)


def search(kind: str, path: str | None, when: str, number: int, result: str | None) -> None:
    """Search to 6 evaluations, and write them to a file."""
    dying(when, number)
    made = optimizer(kind, path).run(value, 6, progress=False)
    if result is not None:
        write(result, [(e.candidate, e.outcomes) for e in made.evaluations])


# Saves.


def saved(constant: float, path: str, when: str, number: int) -> None:
    """Save a model with a constant mean."""
    import torch

    from gp_distributions import DistributionGP, SlicedWassersteinKernel
    from gp_distributions.saving import files

    X = clouds(5)
    kernel = SlicedWassersteinKernel(2, num_slices=4, num_quantiles=4)
    model = DistributionGP(X, X.points.mean((1, 2)), kernel)
    model.mean_module.constant = torch.tensor(constant)
    dying(when, number)
    files.save(model, path)


# Interrupts.


def interrupt() -> None:
    """Do what the interrupt key does."""
    raise KeyboardInterrupt


def fit_until_interrupted(ready: str, result: str) -> None:
    """Fit a model again and again until a signal comes, and write what became of it."""
    from gp_distributions import DistributionGP, fit
    from gp_distributions.warnings import DistributionWarning, silenced

    signal.signal(signal.SIGINT, signal.default_int_handler)
    X = clouds(15)
    model = DistributionGP(X, X.points.mean((1, 2)))
    try:
        with silenced(DistributionWarning):
            while True:
                fit(model, restarts=0, progress=False)
                Path(ready).touch()
    except KeyboardInterrupt:
        finite = bool(model.predict(X[:3])[0].isfinite().all())
        Path(result).write_text(f"interrupted, {model.training}, {finite}")
