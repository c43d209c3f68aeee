"""Distances between clouds and Gaussians in arbitrary precision, straight from their formulas.

Numbers are those of ``mpmath``: a cloud is a list of atoms, an atom a list of coordinates, and the
weights of a cloud sum to one. ``mp.workdps(40)`` around a call computes with 40 digits. Nothing here is
shared with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpmath import mp

Number = Any  # a number of mpmath
Vector = Sequence[Number]
Points = Sequence[Vector]
Feature = list[Number]


def angles(count: int, shift: float) -> list[Number]:
    """Equal angles on the half circle, the first at ``shift`` steps."""
    return [(k + mp.mpf(shift)) * mp.pi / count for k in range(count)]


def mean(points: Points, weights: Vector) -> Vector:
    """Return the mean of a cloud."""
    return [mp.fsum(w * x[i] for w, x in zip(weights, points, strict=True)) for i in range(2)]


def cells(values: Vector, weights: Vector, number: int) -> Feature:
    """Averages of the quantile function over equal cells, by the overlap of each atom with each cell."""
    found = [mp.mpf(0)] * number
    start = mp.mpf(0)
    for value, weight in sorted(zip(values, weights, strict=True)):
        end = start + weight
        for k in range(int(mp.floor(start * number)), min(int(mp.ceil(end * number)), number)):
            lower, upper = max(start, mp.mpf(k) / number), min(end, mp.mpf(k + 1) / number)
            found[k] += max(upper - lower, mp.mpf(0)) * number * value
        start = end
    return found


def quantiles(points: Points, weights: Vector, turns: Vector, number: int) -> list[Feature]:
    """Cells of the slices of a cloud at some angles."""
    found = []
    for turn in turns:
        cosine, sine = mp.cos(turn), mp.sin(turn)
        found.append(cells([cosine * x + sine * y for x, y in points], weights, number))
    return found


def squares(left: Vector, right: Vector) -> Number:
    """Squared Euclidean distance."""
    return mp.fsum((a - b) ** 2 for a, b in zip(left, right, strict=True))


def sliced(one: Any, other: Any, *, p: int, slices: int, number: int) -> Number:
    """SW1 or SW2 squared in the plane: averages over equispaced slices and over cells."""
    turns = angles(slices, 0.5)
    pairs = list(
        zip(
            *(quantiles(_moved(cloud, p == 2), cloud[1], turns, number) for cloud in (one, other)),
            strict=True,
        )
    )
    if p == 1:
        total = mp.fsum(abs(a - b) for q, r in pairs for a, b in zip(q, r, strict=True))
        return total / (slices * number)
    shift = squares(mean(*one), mean(*other)) / 2
    return shift + mp.fsum(squares(q, r) for q, r in pairs) / (slices * number)


def _moved(cloud: Any, centred: bool) -> Points:
    points, weights = cloud
    middle = mean(points, weights) if centred else (0, 0)
    return [[a - b for a, b in zip(point, middle, strict=True)] for point in points]


def embedding(one: Any, other: Any, *, kernel: Callable[[Number], Number]) -> Number:
    """Squared distance between mean embeddings by a function of the squared distance of atoms."""

    def product(a: Any, b: Any) -> Number:
        return mp.fsum(
            w * v * kernel(squares(x, y))
            for x, w in zip(*a, strict=True)
            for y, v in zip(*b, strict=True)
        )

    return product(one, one) + product(other, other) - 2 * product(one, other)


def characteristic(one: Any, other: Any, *, frequencies: Points) -> Number:
    """Mean squared difference of characteristic functions."""
    total = mp.mpf(0)
    for frequency in frequencies:
        values = [
            mp.fsum(
                w * mp.expj(mp.fsum(f * c for f, c in zip(frequency, x, strict=True)))
                for x, w in zip(*cloud, strict=True)
            )
            for cloud in (one, other)
        ]
        total += abs(values[0] - values[1]) ** 2
    return total / len(frequencies)


def rigid(one: Any, other: Any, *, slices: int, number: int, degrees: int) -> Number:
    r"""Squared distance between the absolute values of Fourier coefficients of quantiles."""
    turns = angles(slices, 0)
    forth = [quantiles(_moved(cloud, True), cloud[1], turns, number) for cloud in (one, other)]
    total = mp.mpf(0)
    for degree in range(degrees + 1):
        rows = []
        for cloud in forth:
            row = [mp.mpc(0)] * number
            for turn, ahead in zip(turns, cloud, strict=True):
                back = [-value for value in reversed(ahead)]  # the slice in the opposite direction
                for sign, values in ((1, ahead), ((-1) ** degree, back)):
                    factor = sign * mp.expj(-degree * turn)
                    row = [r + factor * v for r, v in zip(row, values, strict=True)]
            rows.append([r / (2 * slices * mp.sqrt(number)) for r in row])
        first, second = (_absolute(row) for row in rows)
        part = mp.fsum(abs(a - b) ** 2 for a, b in zip(first, second, strict=True))
        total += part if degree == 0 else 2 * part
    return total


def _absolute(row: Vector) -> Feature:
    norm = mp.sqrt(mp.fsum(abs(r) ** 2 for r in row)) or mp.mpf(1)
    return [mp.conj(a) * b / norm for a in row for b in row]


def potential(one: Any, other: Any, *, reference: Points, epsilon: Number) -> Number:
    """Squared distance between the centred potentials on a reference of equal weights."""
    found = [_potentials(x, w, reference, mp.mpf(epsilon)) for x, w in (one, other)]
    return squares(*found) / len(reference)


def _potentials(points: Points, weights: Vector, reference: Points, epsilon: Number) -> Feature:
    """Maximise the semi-dual by Newton's method, at falling values of epsilon."""
    size = len(reference)
    costs = [[squares(x, u) for u in reference] for x in points]
    # What depends on one side only moves the potentials by as much; without it, the start is closer.
    offset = [
        mp.fsum(w * row[j] for w, row in zip(weights, costs, strict=True)) for j in range(size)
    ]
    costs = [[c - o for c, o in zip(row, offset, strict=True)] for row in costs]
    costs = [[c - mp.fsum(row) / size for c in row] for row in costs]
    found, current = mp.zeros(size, 1), max(max(map(abs, row)) for row in costs)
    while True:
        current = max(current / 3, epsilon)
        goal = mp.mpf(10) ** (4 - mp.dps) if current == epsilon else mp.mpf("0.01")
        residual, hessian = _derivatives(costs, weights, found, current)
        while (error := mp.norm(residual, 1)) > goal:
            step = current * mp.lu_solve(hessian, residual)
            while True:
                trial = found + step
                residual, hessian = _derivatives(costs, weights, trial, current)
                if mp.norm(residual, 1) < error:
                    break
                step = step / 2
            found = trial
        if current == epsilon:
            moved = [g + o for g, o in zip(found, offset, strict=True)]
            return [g - mp.fsum(moved) / size for g in moved]


def _derivatives(
    costs: Sequence[Vector], weights: Vector, potentials: Any, epsilon: Number
) -> tuple[Any, Any]:
    """Return the residual of the marginal, and the Hessian plus the square of the constants."""
    size = len(costs[0])
    residual = mp.matrix([mp.mpf(1) / size] * size)
    hessian = mp.ones(size) / size**2
    for row, weight in zip(costs, weights, strict=True):
        logits = [(g - c) / epsilon for g, c in zip(potentials, row, strict=True)]
        shares = [mp.exp(value - max(logits)) for value in logits]
        total = mp.fsum(shares)
        shares = [share / total for share in shares]
        for j in range(size):
            residual[j] -= weight * shares[j]
            hessian[j, j] += weight * shares[j]
            for k in range(size):
                hessian[j, k] -= weight * shares[j] * shares[k]
    return residual, hessian


def sliced_normals(one: Any, other: Any, *, p: int, slices: int) -> Number:
    """SW1 or SW2 squared between normal distributions in the plane; each is a mean and a covariance."""
    total = mp.mpf(0)
    for turn in angles(slices, 0.5):
        line = mp.cos(turn), mp.sin(turn)
        shift = mp.fsum(t * (a - b) for t, a, b in zip(line, one[0], other[0], strict=True))
        stretch = abs(_deviation(one[1], line) - _deviation(other[1], line))
        if p == 2:
            total += stretch**2
        elif stretch:
            ratio = shift / (mp.sqrt(2) * stretch)
            total += mp.sqrt(2 / mp.pi) * stretch * mp.exp(-(ratio**2)) + shift * mp.erf(ratio)
        else:
            total += abs(shift)
    return total / slices + (squares(one[0], other[0]) / 2 if p == 2 else 0)


def _deviation(covariance: Points, line: tuple[Number, Number]) -> Number:
    (a, b), (c, d) = covariance
    x, y = line
    return mp.sqrt(a * x * x + (b + c) * x * y + d * y * y)


def hellinger(one: Vector, other: Vector) -> Number:
    """Squared Hellinger distance between weights."""
    return mp.fsum((mp.sqrt(a) - mp.sqrt(b)) ** 2 for a, b in zip(one, other, strict=True)) / 2


def total_variation(one: Vector, other: Vector) -> Number:
    """Total variation between weights."""
    return mp.fsum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2


def chi_squared(one: Vector, other: Vector) -> Number:
    """Symmetric chi-squared distance between weights."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a + b]
    return mp.fsum((a - b) ** 2 / (a + b) for a, b in pairs) / 2


def matern52(squared: Number) -> Number:
    """The Matern profile of smoothness 5/2 at a squared distance in units of the lengthscale."""
    root = mp.sqrt(5 * squared)
    return (1 + root + root**2 / 3) * mp.exp(-root)


def log_likelihood(covariance: Any, targets: Vector) -> Number:
    """Log density of targets under a centred normal distribution."""
    factor = mp.cholesky(covariance)
    size = len(targets)
    solved = mp.lu_solve(covariance, mp.matrix(list(targets)))
    squares_ = mp.fsum(a * b for a, b in zip(targets, solved, strict=True))
    logdet = 2 * mp.fsum(mp.log(factor[i, i]) for i in range(size))
    return -(squares_ + logdet + size * mp.log(2 * mp.pi)) / 2


def left_out(covariance: Any, targets: Vector) -> Feature:
    """Means and variances of each target given all others, by conditioning on them."""
    size = len(targets)
    means, variances = [], []
    for i in range(size):
        kept = [j for j in range(size) if j != i]
        inner = mp.matrix([[covariance[j, k] for k in kept] for j in kept])
        cross = mp.matrix([covariance[i, j] for j in kept])
        solved = mp.lu_solve(inner, cross)
        means.append(mp.fsum(solved[n] * targets[j] for n, j in enumerate(kept)))
        variances.append(
            covariance[i, i] - mp.fsum(a * b for a, b in zip(solved, cross, strict=True))
        )
    return means + variances
