"""How long does learning a reference take, and does its memory depend on the iterations of the solver?

**Time**: ``fit_reference(model, steps=50, guard=None)`` after ``fit``, for 200 isotropic Gaussians of
100 points, with means in [-0.3, 0.3]^2, standard deviations in [0.01, 0.02] and the target of
``reference_learning``. The reference has 20 atoms from N(0, 0.1 I). Epsilon is the
default (0.05 times the mean squared distance between its atoms) or smaller. ``seconds`` are medians
over repeats, ``steps`` are those of L-BFGS, and ``mll_start`` and ``mll_end`` are log marginal
likelihoods per cloud.

**Memory**: ``saved_mib`` is the memory that the potentials of 2000 such clouds keep for their
gradient with respect to points, weights, reference and epsilon, after solves with few and with many
iterations. It must not depend on the number of iterations. ``peak_mib`` is the peak memory of solve
and gradient beyond the inputs, the least of three measurements, and ``ratio`` is relative to the
first row. Peaks are indicative only, because allocators reuse memory; keeping a plan for each
iteration would add 31 MiB each.

    python -m benchmarks.speed.reference_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, peak_memory, progress
from benchmarks.judging import Rows, Target, limit, number
from benchmarks.speed.clouds import equal_masses, toy
from gp_distributions.numerics.entropic_transport import transport_potentials

EPSILONS = (None, 0.05, 0.01)
# Epsilon and tolerance.
SOLVES = ((0.05, 1e-10), (1e-3, 1e-2), (1e-3, 1e-10), (1e-6, 1e-10))


def memory_kept(rows: Rows) -> tuple[str, bool]:
    """Compare the memory kept for a gradient after solves with few and with many iterations."""
    solves = [row for row in rows if "iterations" in row]
    if not solves:
        raise LookupError("no solves")
    ratio, most = (max(number(row, c) for row in solves) for c in ("ratio", "iterations"))
    kept = [number(row, "saved_mib") for row in solves]
    times = most / max(number(solves[0], "iterations"), 1)
    figure = (
        f"{max(kept) / min(kept):.3g} x kept, peak {ratio:.2f} x at {times:.0f} x the iterations"
    )
    return figure, max(kept) == min(kept)


TARGETS = (
    *(
        limit(
            f"`fit_reference`, T = 200, n = 100, m = 20, 50 steps, no guard, {name}",
            "<= 10 s",
            "seconds",
            name=f"fit_reference, T=200 n=100 m=20, 50 steps, {name}",
            asked=name.startswith("default"),
        )
        for name in ("default epsilon", "epsilon 0.05", "epsilon 0.01")
    ),
    Target(
        "gradient of potentials after 3 to 27 iterations: memory kept, largest over least",
        "1 x",
        memory_kept,
    ),
)


def times(options: Options) -> list[Row]:
    """Return one row per epsilon."""
    sizes, steps = ((20, 20, 5), 5) if options.quick else ((200, 100, 20), 50)
    clouds, targets, atoms = toy(*sizes)
    task = f"fit_reference, T={sizes[0]} n={sizes[1]} m={sizes[2]}, {steps} steps, "
    rows: list[Row] = []
    for epsilon in progress(EPSILONS, "fit_reference"):
        seconds = []
        for _ in range(min(options.repeats, 3)):
            reference = gd.ReferenceMeasure(atoms)
            kernel = gd.SinkhornKernel(reference, profile="gaussian", epsilon=epsilon)
            model = gd.fit(gd.DistributionGP(clouds, targets, kernel))
            start = time.perf_counter()
            result = gd.fit_reference(model, steps=steps, guard=None, progress=False)
            seconds.append(time.perf_counter() - start)
        rows.append(
            {
                "name": task + ("default epsilon" if epsilon is None else f"epsilon {epsilon:g}"),
                "epsilon": kernel.distance.get_buffer("epsilon").item(),
                "seconds": statistics.median(seconds),
                "steps": len(result.mll) - 1,
                "mll_start": result.mll[0],
                "mll_end": result.mll[-1],
            }
        )
    return rows


def solve(problem: list[Tensor], tolerance: float) -> tuple[Tensor, float]:
    """Return potentials, and the mean number of iterations."""
    points, weights, support, masses, epsilon = problem
    found, outcome = transport_potentials(
        points, weights, support, masses, epsilon, tolerance=tolerance
    )
    return found, float(outcome.iterations.double().mean())


def gradient(problem: list[Tensor], tolerance: float) -> None:
    """Solve, and compute the gradient with respect to everything."""
    torch.autograd.grad(solve(problem, tolerance)[0].square().sum(), problem)


def memory(options: Options) -> list[Row]:
    """Return one row per solve, those with few iterations first."""
    clouds, _, support = toy(*((50, 20, 5) if options.quick else (2000, 100, 20)))
    rows: list[Row] = []
    first = None
    for value, tolerance in SOLVES:
        epsilon = torch.tensor(value, dtype=torch.float64)
        inputs = [clouds.points, clouds.weights, support, equal_masses(len(support)), epsilon]
        problem = [tensor.clone().requires_grad_() for tensor in inputs]
        saved: dict[int, int] = {}

        def keep(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            potentials, iterations = solve(problem, tolerance)
        own = {tensor.untyped_storage().data_ptr() for tensor in problem}
        kept = sum(size for pointer, size in saved.items() if pointer not in own)
        del potentials
        saved.clear()
        work = partial(gradient, problem, tolerance)
        peaks = [peak_memory(work) for _ in range(min(options.repeats, 3))]
        peak = min((peak for peak in peaks if peak is not None), default=None)
        first = first or peak
        rows.append(
            {
                "name": f"gradient of potentials, epsilon {value:g}, tolerance {tolerance:g}",
                "iterations": iterations,
                "saved_mib": kept / 2**20,
                "peak_mib": peak,
                "ratio": peak / first if peak and first else None,
            }
        )
    return rows


def run(options: Options) -> list[Row]:
    """Measure times, then memory."""
    return times(options) + memory(options)


if __name__ == "__main__":
    main(run)
