"""Where do distances lose digits?

Each figure is the number of correct digits of results: minus the decimal logarithm of the largest
relative error over all pairs of three clouds, against a computation with 40 digits from the formulas
(``exact``). Next to it stands how many digits the data determine: how far the exact
results move if each number of the data is changed by its own rounding error. What is missing between
the two is lost by the computation.

Columns: ``double`` and ``single``, the digits in either precision; ``double_data`` and ``single_data``,
the digits that data in this precision determine; ``lost``, the digits lost in double precision.

- offset: clouds of spread one, so far from the origin;
- scale: clouds and bandwidths multiplied by a number;
- near: two clouds whose atoms differ by so much, beside a third one, for a spread of one;
- atoms: number of atoms;
- epsilon: of entropic transport, for a spread of one.

    python -m benchmarks.numerics.correct_digits [--quick]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from mpmath import mp
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, Value, main
from benchmarks.judging import Rows, Target, number
from benchmarks.numerics import exact
from gp_distributions.distances import Distance

DIGITS = 40
SLICES, CELLS = 5, 6
REFERENCE = ((-1.0, -1.0), (1.0, -0.5), (0.0, 1.25), (0.5, 0.25))
# Numbers of atoms beside eight, where the time is not quadratic in them.
MANY = {"SW1": (100, 1000), "SW2": (100, 1000)}

Array = np.ndarray[Any, np.dtype[np.float64]]
Results = list[Any]  # of mpmath


# Squared distances are then differences of sums of size one, or of potentials of the size of epsilon.
_SUBTRACTED = ("MMD, gaussian: near", "Sinkhorn potentials: epsilon 1e4")


def most_lost(rows: Rows) -> tuple[str, bool]:
    """Judge the most digits lost in double precision."""
    # Some rows are in single precision only.
    known = [row for row in rows if row.get("lost") is not None]
    kept = [row for row in known if not str(row["name"]).startswith(_SUBTRACTED)]
    value, worst = max((number(row, "lost"), str(row["name"])) for row in kept)
    return f"{value:.1f} ({worst})", value <= 2.5


TARGETS = (
    Target(
        "digits lost by a distance, except MMD between close clouds and potentials at epsilon 1e4",
        "<= 2.5",
        most_lost,
        "Where clouds differ by .001, rounding of a matrix product loses 1 to 3 digits, by chance.",
        asked=True,
    ),
)


@dataclass(frozen=True)
class Quantity:
    """Results of the package, and their exact values.

    Attributes:
        name: Name of the quantity.
        ours: Function of the data as tensors that returns a tensor of results.
        exact: Function of the data as numbers of mpmath that returns the results.
        cases: Returns the cases of a quick or whole run, in single precision or not.
    """

    name: str
    ours: Callable[..., Tensor]
    exact: Callable[..., Results]
    cases: Callable[[bool, bool], Iterator[Case]]


@dataclass(frozen=True)
class Case:
    """A difficulty, and data that have it.

    Attributes:
        name: Name of the case.
        data: Arrays, the arguments of a quantity; results may depend on their rounding errors.
        fixed: Numbers that both sides take beside them.
    """

    name: str
    data: tuple[Array, ...]
    fixed: dict[str, float]


def exactly(array: Any) -> Any:
    """Convert an array into one of numbers of mpmath."""
    return np.frompyfunc(lambda number: mp.mpf(float(number)), 1, 1)(array)


def pairs(distance: Callable[[Any, Any], Any], items: Sequence[Any]) -> Results:
    """Evaluate an exact distance for all pairs."""
    return [distance(one, other) for one, other in combinations(items, 2)]


def measured(distance: Distance, rows: Tensor) -> Tensor:
    """Evaluate a distance of the package for all pairs, as one set and as two."""
    inside = distance.squared(rows)
    distance.clear_cache()
    across = distance.squared(rows, rows.flip(-2)).flip(-1)
    upper = torch.triu_indices(len(rows), len(rows), offset=1).unbind()
    return torch.stack([inside[upper], across[upper]])


def of_clouds(
    name: str,
    distance: Callable[..., Distance],
    formula: Callable[..., Any],
    settings: Callable[..., dict[str, Any]],
) -> Quantity:
    """Return a quantity of clouds; ``settings`` are those of the formula for what is fixed."""

    def ours(points: Tensor, weights: Tensor, **fixed: float) -> Tensor:
        shares = weights / weights.sum(-1, keepdim=True)
        rows = torch.cat([points, shares.unsqueeze(-1)], dim=-1).flatten(-2)
        return measured(distance(**fixed), rows)

    def reference(points: Any, weights: Any, **fixed: float) -> Results:
        shares = weights / weights.sum(-1, keepdims=True)
        clouds = list(zip(points, shares, strict=True))
        return pairs(partial(formula, **settings(**fixed)), clouds)

    return Quantity(name, ours, reference, partial(cloud_cases, name))


def sliced(name: str, p: int, number: int | None) -> Quantity:
    """Return a sliced Wasserstein distance."""
    return of_clouds(
        name,
        lambda **fixed: gd.SlicedWasserstein(2, p=p, num_slices=SLICES, num_quantiles=number),
        exact.sliced,
        lambda atoms=8, **fixed: {"p": p, "slices": SLICES, "number": int(number or atoms)},
    )


def embedded(name: str, kernel: str, function: Callable[[Any], Any]) -> Quantity:
    """Return an MMD whose kernel is a function of squared distances in units of the bandwidth."""

    def distance(scale: float = 1.0, **fixed: float) -> Distance:
        return gd.MMD(2, kernel=kernel, bandwidth=scale)

    def settings(scale: float = 1.0, **fixed: float) -> dict[str, Any]:
        unit = mp.mpf(scale) ** 2
        return {"kernel": lambda s: function(s / unit)}

    return of_clouds(name, distance, exact.embedding, settings)


def transport(*, scale: float = 1.0, epsilon: float = 0.5, **fixed: float) -> Distance:
    """Make a distance between potentials."""
    reference = gd.ReferenceMeasure(scale * torch.tensor(REFERENCE, dtype=torch.float64))
    return gd.SinkhornPotential(reference, epsilon=epsilon * scale**2)


def clouds(atoms: int = 8, *, near: float = 1.0) -> Array:
    """Draw three clouds of spread one; the atoms of the first two differ by ``near``."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(1, atoms, 2))
    apart = np.array([near, near, 1.0])[:, None, None]
    return np.asarray(first + apart * rng.normal(size=(3, atoms, 2)))


def cloud_cases(name: str, quick: bool, single: bool) -> Iterator[Case]:
    """Yield the cases of a quantity of clouds."""

    def weights(atoms: int = 8) -> Array:
        random = np.random.default_rng(1).random(atoms) + 0.1
        return np.tile(np.ones(atoms) if name.endswith("exact") else random, (3, 1))

    for power in (8,) if quick else (0, 2, 4, 6, 8):
        yield Case(f"offset 1e{power}", (clouds() + (10.0**power if power else 0), weights()), {})
    most = 15 if single else 150
    if name.startswith("Sinkhorn"):
        most //= 2  # squared distances between potentials are fourth powers of lengths
    for power in () if quick else (-most, most):
        scale = 10.0**power
        yield Case(f"scale 1e{power}", (scale * clouds(), weights()), {"scale": scale})
    for power in (-6,) if quick else (-3, -6, -9):
        yield Case(f"near 1e{power}", (clouds(near=10.0**power), weights()), {})
    for atoms in () if quick else MANY.get(name, (100,)):
        yield Case(f"atoms {atoms}", (clouds(atoms), weights(atoms)), {"atoms": atoms})
    for power in () if quick or not name.startswith("Sinkhorn") else (4, 2, -1, -2, -3):
        yield Case(f"epsilon 1e{power}", (clouds(), weights()), {"epsilon": 10.0**power})


QUANTITIES = (
    *(
        sliced(f"SW{p}{'' if number else ', exact'}", p, number)
        for p in (1, 2)
        for number in (CELLS, None)
    ),
    of_clouds(
        "rigid",
        lambda **fixed: gd.RigidSlicedWasserstein(
            2, num_slices=2 * SLICES, num_quantiles=CELLS, max_degree=3
        ),
        exact.rigid,
        lambda **fixed: {"slices": 2 * SLICES, "number": CELLS, "degrees": 3},
    ),
    embedded("MMD, gaussian", "gaussian", lambda s: mp.exp(-s / 2)),
    embedded("MMD, laplace", "laplace", lambda s: mp.exp(-mp.sqrt(s))),
    of_clouds(
        "Sinkhorn potentials",
        transport,
        exact.potential,
        lambda scale=1.0, epsilon=0.5, **fixed: {
            "reference": exactly(scale * np.array(REFERENCE)),
            "epsilon": mp.mpf(epsilon * scale**2),
        },
    ),
)


def digits(ours: Sequence[Any], reference: Results) -> float:
    """Return the number of digits in which results agree."""
    errors = [abs(a - b) for a, b in zip(ours, reference, strict=True)]
    sizes = map(abs, reference)
    worst = max((e / s if s else mp.mpf(bool(e)) for e, s in zip(errors, sizes, strict=True)))
    return 40.0 if not worst else float(-mp.log10(worst)) if mp.isfinite(worst) else 0.0


def assess(quantity: Quantity, case: Case, dtype: torch.dtype) -> tuple[float, float]:
    """Return the correct digits of results, and those that the data determine."""
    data = [torch.tensor(array).to(dtype) for array in case.data]
    with torch.no_grad(), mp.workdps(DIGITS):
        found = quantity.ours(*data, **case.fixed)
        numbers = [tensor.double().numpy() for tensor in data]
        reference = quantity.exact(*map(exactly, numbers), **case.fixed)
        rng = np.random.default_rng(5)
        signs = [rng.choice([-1, 1], size=array.shape) for array in numbers]
        # Covariance matrices stay symmetric.
        signs = [s if s.ndim < 3 or s.shape[-1] != s.shape[-2] else _symmetric(s) for s in signs]
        eps = torch.finfo(dtype).eps / 2
        moved = [
            exactly(array) * (1 + exactly(sign) * mp.mpf(eps))
            for array, sign in zip(numbers, signs, strict=True)
        ]
        again = quantity.exact(*moved, **case.fixed)
        groups = map(exactly, found.double().reshape(-1, len(reference)).numpy())
        ours = min(digits(group, reference) for group in groups)
        return ours, digits(again, reference)


def _symmetric(signs: Any) -> Any:
    return np.triu(signs) + np.triu(signs, 1).swapaxes(-1, -2)


def run(options: Options) -> list[Row]:
    """Count correct digits of every quantity in every case, in both precisions."""
    rows: dict[str, dict[str, Value]] = {}
    columns = (("double", torch.float64), ("single", torch.float32))
    for column, dtype in columns[:1] if options.quick else columns:
        most = -math.log10(torch.finfo(dtype).eps / 2)
        for quantity in QUANTITIES:
            for case in quantity.cases(options.quick, column == "single"):
                name = f"{quantity.name}: {case.name}"
                row = rows.setdefault(name, {"name": name})
                ours, data = (min(value, most) for value in assess(quantity, case, dtype))
                row[column], row[f"{column}_data"] = round(ours, 1), round(data, 1)
                if column == "double":
                    row["lost"] = round(max(0.0, data - ours), 1)
    return list(rows.values())


if __name__ == "__main__":
    main(run)
