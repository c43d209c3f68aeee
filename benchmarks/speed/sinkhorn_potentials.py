"""How fast are entropic potentials, compared with POT and OTT, and learned references?

The work: potentials on a reference of 20 atoms for 100 clouds of 30 points, from the Gaussian toy
of Bachoc et al. (means in [-0.3, 0.3]^2, standard deviations 0.01 to 0.02; reference N(0, 0.1 I)),
for epsilon from 1e-1 to 1e-6. A second task has references of 300 and 1000 atoms for 5 clouds of
100 points; there, our equations have the size of the clouds. Every side stops at a marginal error of
1e-9 if it can:

- ours: ``transport_potentials``, all clouds at once;
- POT: ``ot.sinkhorn(method="sinkhorn_log")`` in a loop over clouds, with at most 20000 iterations
  each; where it is slow, it runs on the first clouds only, and the time is scaled up; ``POT batch`` is
  ``ot.batch.solve_batch(method="log_sinkhorn")`` on all clouds at once, with as many iterations;
- OTT: ``Sinkhorn`` under ``vmap`` and ``jit``, compiled beforehand, with at most 20000 iterations.

The ``error`` columns are the L1 distance between the marginal of the plan on the reference and its
weights, the largest over clouds, computed in the same way for all sides from the potentials on the
reference. ``agree`` is the largest difference between their centred potentials and ours. Sides that
are not installed are skipped.

``fit_reference(model, steps=50, guard=None)`` after ``fit`` is timed for 200 clouds of 100 points of the
same toy and a reference of 20 atoms, with the default epsilon (0.05 times the mean squared distance
between its atoms) or another. ``seconds`` are medians over repeats, ``steps`` are those of L-BFGS, and
``mll_start`` and ``mll_end`` are log marginal likelihoods per cloud.

    python -m benchmarks.speed.sinkhorn_potentials [--quick] [--repeats 3]
"""

from __future__ import annotations

import importlib
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import ot
import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, compare, interleave, main
from benchmarks.judging import limit
from benchmarks.speed import clouds
from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials

TOLERANCE = 1e-9
MAX_ITERATIONS = 20_000
STOP = (MAX_ITERATIONS, TOLERANCE)
# Points and weights of clouds, and support and masses of a reference.
Problem = tuple[Tensor, Tensor, Tensor, Tensor]


TARGETS = (
    *(
        limit(
            f"potentials, 100 clouds x 30 points, m = 20, epsilon 1e-3: {peer}, over ours",
            target,
            "ratio",
            name=f"{name} / ours, 20 atoms, epsilon 0.001",
            asked=name == "OTT",
        )
        for name, peer, target in (
            ("POT", "POT's loop", ">= 100"),
            ("OTT", "OTT's `vmap`", ">= 15"),
        )
    ),
    limit(
        "`fit_reference`, T = 200, n = 100, m = 20, 50 steps, no guard, default epsilon",
        "<= 10 s",
        "seconds",
        name="fit_reference, T=200 n=100 m=20, 50 steps, default epsilon",
        asked=True,
    ),
)


def toy(count: int, atoms: int, size: int) -> Problem:
    """Draw a problem."""
    drawn, _, support = clouds.toy(count, atoms, size)
    return drawn.points, drawn.weights, support, clouds.equal_masses(size)


def ours(problem: Problem, epsilon: float) -> Tensor:
    """Newton's method on all clouds at once."""
    scalar = torch.tensor(epsilon, dtype=torch.float64)
    return transport_potentials(*problem, scalar, tolerance=TOLERANCE)[0]


def pot(problem: Problem, epsilon: float) -> Tensor:
    """POT in a loop over clouds."""
    points, weights, support, masses = (t.numpy() for t in problem)
    potentials = []
    for x, a in zip(points, weights, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warns about convergence, which the error shows too
            cost = ot.dist(x, support)
            _, log = ot.sinkhorn(a, masses, cost, epsilon, "sinkhorn_log", *STOP, log=True)
        potentials.append(epsilon * (log["log_v"] - np.log(masses)))
    return torch.from_numpy(np.stack(potentials))


def pot_batch(problem: Problem, epsilon: float) -> Tensor:
    """POT's solver of batches, in torch."""
    points, weights, support, masses = problem
    cost, b = torch.cdist(points, support).square(), masses.expand(len(points), -1)
    solved = ot.batch.solve_batch(cost, epsilon, weights, b, *STOP, "log_sinkhorn", grad="detach")
    return epsilon * (solved.potentials[1] - masses.log())


def make_ott(problem: Problem, epsilon: float) -> Callable[[], Tensor]:
    """The compiled, vectorised solver of OTT."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    pointcloud = importlib.import_module("ott.geometry.pointcloud")
    linear = importlib.import_module("ott.problems.linear.linear_problem")
    sinkhorn = importlib.import_module("ott.solvers.linear.sinkhorn")
    points, weights, support, masses = (jax.numpy.asarray(t.numpy()) for t in problem)
    solver = sinkhorn.Sinkhorn(threshold=TOLERANCE, max_iterations=MAX_ITERATIONS)

    def one(x: Any, a: Any) -> Any:
        geometry = pointcloud.PointCloud(x, support, epsilon=epsilon)
        return solver(linear.LinearProblem(geometry, a=a, b=masses)).g

    compiled = jax.jit(jax.vmap(one))
    compiled(points, weights).block_until_ready()
    log_masses = problem[3].log()

    def work() -> Tensor:
        g = torch.from_numpy(np.array(compiled(points, weights).block_until_ready()))
        return g - epsilon * log_masses

    return work


def marginal_error(problem: Problem, potentials: Tensor, epsilon: float) -> float:
    """Largest L1 error of the marginal on the reference."""
    points, weights, support, masses = problem
    count = len(potentials)
    scalar = torch.tensor(epsilon, dtype=torch.float64)
    conditional = conditional_plan(points[:count], support, masses, scalar, potentials)
    marginal = (weights[:count].unsqueeze(-2) @ conditional).squeeze(-2)
    return float((marginal - masses).abs().sum(-1).max())


def beside_peers(problem: Problem, epsilon: float, repeats: int) -> list[Row]:
    """Time all sides at one epsilon, interleaved."""
    total = len(problem[0])
    # POT needs minutes for all clouds if epsilon is small, so it gets only some of them.
    few = total if epsilon >= 1e-3 else min(3, total)
    some: Problem = (problem[0][:few], problem[1][:few], *problem[2:])
    works: dict[str, Callable[[], Tensor]] = {
        "ours": partial(ours, problem, epsilon),
        "POT": partial(pot, some, epsilon),
    }
    if epsilon >= 1e-4:  # where both already stop at the last iteration
        works["POT batch"] = partial(pot_batch, problem, epsilon)
        if find_spec("ott"):
            works["OTT"] = make_ott(problem, epsilon)
    found = {name: work() for name, work in works.items()}
    centred = {name: g - (g @ problem[3]).unsqueeze(-1) for name, g in found.items()}
    errors = {name: marginal_error(problem, g, epsilon) for name, g in found.items()}
    sides = {name: clouds.fixed(work) for name, work in works.items()}
    timings = interleave(sides, repeats=repeats, label=f"epsilon {epsilon:g}", warmup=0)
    return [
        compare(
            f"{name} / ours, {len(problem[2])} atoms, epsilon {epsilon:g}",
            timings["ours"].median,
            timings[name].median * total / len(found[name]),
            inverse=True,
            error_ours=errors["ours"],
            error_theirs=errors[name],
            agree=float((centred[name] - centred["ours"][: len(found[name])]).abs().max()),
        )
        for name in works
        if name != "ours"
    ]


def learning(options: Options) -> list[Row]:
    """Time learning of a reference, one row per epsilon."""
    (count, atoms, size), steps = ((20, 20, 5), 5) if options.quick else ((200, 100, 20), 50)
    X, targets, support = clouds.toy(count, atoms, size)
    rows: list[Row] = []
    for epsilon in (None, 0.05, 0.01):
        seconds = []
        for _ in range(min(options.repeats, 3)):
            kernel = gd.SinkhornKernel(
                gd.ReferenceMeasure(support), profile="gaussian", epsilon=epsilon
            )
            model = gd.fit(gd.DistributionGP(X, targets, kernel))
            start = time.perf_counter()
            result = gd.fit_reference(model, steps=steps, guard=None, progress=False)
            seconds.append(time.perf_counter() - start)
        what = "default epsilon" if epsilon is None else f"epsilon {epsilon:g}"
        rows.append(
            {
                "name": f"fit_reference, T={count} n={atoms} m={size}, {steps} steps, {what}",
                "epsilon": kernel.distance.get_buffer("epsilon").item(),
                "seconds": statistics.median(seconds),
                "steps": len(result.mll) - 1,
                "mll_start": result.mll[0],
                "mll_end": result.mll[-1],
            }
        )
    return rows


def run(options: Options) -> list[Row]:
    """Return one row per epsilon and peer, and those of learned references."""
    if options.quick:
        tasks = [(toy(5, 30, 20), epsilon) for epsilon in (1e-1, 1e-2)]
    else:
        tasks = [(toy(100, 30, 20), 10.0**power) for power in range(-1, -7, -1)]
        for size in (300, 1000):
            tasks += [(toy(5, 100, size), epsilon) for epsilon in (1e-1, 1e-2, 1e-3)]
    rows = [row for task in tasks for row in beside_peers(*task, min(options.repeats, 3))]
    return rows + learning(options)


if __name__ == "__main__":
    main(run)
