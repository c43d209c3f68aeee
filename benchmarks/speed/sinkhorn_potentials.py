"""How fast and how accurate are entropic potentials, compared with POT, OTT and GeomLoss?

The work: potentials on a reference of 20 atoms for 100 clouds of 30 points, from the Gaussian toy
of Bachoc et al. (means in [-0.3, 0.3]^2, standard deviations 0.01 to 0.02; reference N(0, 0.1 I)),
for epsilon from 1e-1 to 1e-6. A second task has references of 300 and 1000 atoms for 5 clouds of
100 points; there, our solver computes the potentials on the clouds. Every side stops at a
marginal error of 1e-9 if it can:

- ours: ``transport_potentials``, all clouds at once;
- POT: ``ot.sinkhorn(method="sinkhorn_log")`` in a loop over clouds, with at most 20000 iterations
  each; where it is slow, it runs on the first clouds only, and the time is scaled up;
- OTT: ``Sinkhorn`` under ``vmap`` and ``jit``, compiled beforehand, with at most 20000 iterations;
- GeomLoss: its epsilon-scaling loop, which stops by its schedule (``scaling=0.99``) and not by an
  error.

The ``error`` columns are the L1 distance between the marginal of the plan on the reference and its
weights, the largest over clouds, computed in the same way for all sides from the potentials on the
reference. ``agree`` is the largest difference between their centred potentials and ours. Sides that
are not installed are skipped.

    python -m benchmarks.speed.sinkhorn_potentials [--quick] [--repeats 3]
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
import torch
from torch import Tensor

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main
from benchmarks.judging import limit
from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials

TOLERANCE = 1e-9
MAX_ITERATIONS = 20_000
Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def toy(clouds: int, atoms: int, size: int) -> Problem:
    """Points and weights of clouds, and support and masses of a reference."""
    generator = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    means, stds = 0.6 * uniform(clouds, 1, 2) - 0.3, 0.01 + 0.01 * uniform(clouds, 1, 1)
    points = means + stds * normal(clouds, atoms, 2)
    weights = torch.full((clouds, atoms), 1 / atoms, dtype=torch.float64)
    support, masses = 0.1**0.5 * normal(size, 2), torch.full((size,), 1 / size, dtype=torch.float64)
    return points, weights, support, masses


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
            _, log = ot.sinkhorn(
                a,
                masses,
                ot.dist(x, support),
                epsilon,
                method="sinkhorn_log",
                stopThr=TOLERANCE,
                numItermax=MAX_ITERATIONS,
                log=True,
            )
        potentials.append(epsilon * (log["log_v"] - np.log(masses)))
    return torch.from_numpy(np.stack(potentials))


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


def make_geomloss(problem: Problem, epsilon: float) -> Callable[[], Tensor]:
    """The epsilon-scaling loop of GeomLoss, whose cost is half of ours."""
    geomloss = importlib.import_module("geomloss")
    points, weights, support, masses = problem
    loss = geomloss.SamplesLoss(
        "sinkhorn",
        p=2,
        blur=(epsilon / 2) ** 0.5,
        scaling=0.99,
        debias=False,
        potentials=True,
        backend="tensorized",
    )
    u, b = support.expand(len(points), -1, -1), masses.expand(len(points), -1)
    return lambda: 2 * loss(weights, points, b.contiguous(), u.contiguous())[1]


def marginal_error(problem: Problem, potentials: Tensor, epsilon: float) -> float:
    """Largest L1 error of the marginal on the reference."""
    points, weights, support, masses = problem
    count = len(potentials)
    scalar = torch.tensor(epsilon, dtype=torch.float64)
    conditional = conditional_plan(points[:count], support, masses, scalar, potentials)
    marginal = (weights[:count].unsqueeze(-2) @ conditional).squeeze(-2)
    return float((marginal - masses).abs().sum(-1).max())


TARGETS = tuple(
    limit(
        f"potentials, 100 clouds x 30 points, m = 20, epsilon 1e-3: {peer}, over ours",
        target,
        "ratio",
        name=f"{name} / ours, 20 atoms, epsilon 0.001",
        asked=True,
    )
    for name, peer, target in (("POT", "POT's loop", ">= 100"), ("OTT", "OTT's `vmap`", ">= 15"))
)


def run(options: Options) -> list[Row]:
    """Return one row per epsilon and peer."""
    clouds = 5 if options.quick else 100
    problem = toy(clouds, 30, 20)
    repeats = min(options.repeats, 3)
    rows = []
    for epsilon in (1e-1, 1e-2) if options.quick else (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        rows += beside_peers(problem, epsilon, repeats)
    for size in () if options.quick else (300, 1000):
        for epsilon in (1e-1, 1e-2, 1e-3):
            rows += beside_peers(toy(5, 100, size), epsilon, repeats)
    return rows


def beside_peers(problem: Problem, epsilon: float, repeats: int) -> list[Row]:
    """Time all sides at one epsilon, interleaved."""
    size = len(problem[2])
    # POT needs minutes for all clouds if epsilon is small, so it gets only some of them.
    counts = {"POT": len(problem[0]) if epsilon >= 1e-3 else min(3, len(problem[0]))}
    some: Problem = (problem[0][: counts["POT"]], problem[1][: counts["POT"]], *problem[2:])
    works: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: ours(problem, epsilon),
        "POT": lambda: pot(some, epsilon),
    }
    if importlib.util.find_spec("ott") and epsilon >= 1e-4:
        works["OTT"] = make_ott(problem, epsilon)
    if importlib.util.find_spec("geomloss"):
        works["GeomLoss"] = make_geomloss(problem, epsilon)
    found = {name: work() for name, work in works.items()}
    exact = _centred(found["ours"], problem)

    def side(work: Work) -> Side:
        return lambda: work

    sides = {name: side(work) for name, work in works.items()}
    timings = interleave(sides, repeats=repeats, label=f"epsilon {epsilon:g}", warmup=0)
    rows = []
    for name in list(works)[1:]:
        scale = len(problem[0]) / counts.get(name, len(problem[0]))
        theirs = _centred(found[name], problem)
        rows.append(
            compare(
                f"{name} / ours, {size} atoms, epsilon {epsilon:g}",
                timings["ours"].median,
                scale * timings[name].median,
                inverse=True,
                error_ours=marginal_error(problem, found["ours"], epsilon),
                error_theirs=marginal_error(problem, found[name], epsilon),
                agree=float((theirs - exact[: len(theirs)]).abs().max()),
            )
        )
    return rows


def _centred(potentials: Tensor, problem: Problem) -> Tensor:
    return potentials - (potentials @ problem[3]).unsqueeze(-1)


if __name__ == "__main__":
    main(run)
