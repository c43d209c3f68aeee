"""Distances between clouds and Gaussians in arbitrary precision, straight from their formulas.

Arrays have numbers of ``mpmath``: a cloud is an array of atoms and one of weights, which sum to one.
``mp.workdps(40)`` around a call computes with 40 digits. Nothing here is shared with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath import mp

Number = Any  # a number of mpmath
Array = Any  # an array of such numbers
Cloud = tuple[Array, Array]

exp, expj, sqrt = (np.frompyfunc(function, 1, 1) for function in (mp.exp, mp.expj, mp.sqrt))


def directions(count: int, shift: float) -> tuple[Array, Array]:
    """Equal angles on the half circle, the first at ``shift`` steps, and their unit vectors."""
    turns = np.array([(k + mp.mpf(shift)) * mp.pi / count for k in range(count)])
    return turns, np.array([[mp.cos(turn), mp.sin(turn)] for turn in turns])


def cells(values: Array, weights: Array, number: int) -> Array:
    """Averages of the quantile function over equal cells, by the overlap of each atom with each cell."""
    found, start = [mp.mpf(0)] * number, mp.mpf(0)
    for value, weight in sorted(zip(values, weights, strict=True)):
        end = start + weight
        for k in range(int(mp.floor(start * number)), min(int(mp.ceil(end * number)), number)):
            lower, upper = max(start, mp.mpf(k) / number), min(end, mp.mpf(k + 1) / number)
            found[k] += max(upper - lower, mp.mpf(0)) * number * value
        start = end
    return np.array(found)


def quantiles(cloud: Cloud, lines: Array, number: int, *, centred: bool) -> Array:
    """Cells of the slices of a cloud along some lines, ``slices x number``."""
    points, weights = cloud
    moved = points - weights @ points if centred else points
    return np.array([cells(moved @ line, weights, number) for line in lines])


def squares(left: Array, right: Array) -> Array:
    """Squared Euclidean distances along the last axis."""
    return ((left - right) ** 2).sum(-1)


def sliced(one: Cloud, other: Cloud, *, p: int, slices: int, number: int) -> Number:
    """SW1 or SW2 squared in the plane: averages over equispaced slices and over cells."""
    _, lines = directions(slices, 0.5)
    left, right = (quantiles(cloud, lines, number, centred=p == 2) for cloud in (one, other))
    if p == 1:
        return abs(left - right).mean()
    means = [weights @ points for points, weights in (one, other)]
    return squares(*means) / 2 + ((left - right) ** 2).mean()


def embedding(one: Cloud, other: Cloud, *, kernel: Callable[[Number], Number]) -> Number:
    """Squared distance between mean embeddings by a function of the squared distance of atoms."""
    each = np.frompyfunc(kernel, 1, 1)

    def product(a: Cloud, b: Cloud) -> Number:
        return a[1] @ each(squares(a[0][:, None], b[0])) @ b[1]

    return product(one, one) + product(other, other) - 2 * product(one, other)


def rigid(one: Cloud, other: Cloud, *, slices: int, number: int, degrees: int) -> Number:
    r"""Squared distance between the absolute values of Fourier coefficients of quantiles."""
    turns, lines = directions(slices, 0)
    total = mp.mpf(0)
    forth = [quantiles(cloud, lines, number, centred=True) for cloud in (one, other)]
    for degree in range(degrees + 1):
        rows = []
        for ahead in forth:
            back = -ahead[:, ::-1]  # the slices in the opposite directions
            row = expj(-degree * turns) @ (ahead + (-1) ** degree * back)
            row = row / (2 * slices * mp.sqrt(number))
            norm = mp.sqrt((abs(row) ** 2).sum()) or mp.mpf(1)
            rows.append(np.outer([mp.conj(a) for a in row], row) / norm)
        part = (abs(rows[0] - rows[1]) ** 2).sum()
        total += part if degree == 0 else 2 * part
    return total


def potential(one: Cloud, other: Cloud, *, reference: Array, epsilon: Number) -> Number:
    """Squared distance between the centred potentials on a reference of equal weights."""
    found = [_potentials(cloud, reference, mp.mpf(epsilon)) for cloud in (one, other)]
    return squares(*found) / len(reference)


def _potentials(cloud: Cloud, reference: Array, epsilon: Number) -> Array:
    """Maximise the semi-dual by Newton's method, at falling values of epsilon."""
    points, weights = cloud
    costs = squares(points[:, None], reference)
    # What depends on one side only moves the potentials by as much; without it, the start is closer.
    offset = weights @ costs
    costs = costs - offset
    costs = costs - costs.mean(-1, keepdims=True)
    found, current = offset * 0, abs(costs).max()
    while True:
        current = max(current / 3, epsilon)
        goal = mp.mpf(10) ** (4 - mp.dps) if current == epsilon else mp.mpf("0.01")
        residual, hessian = _derivatives(costs, weights, found, current)
        while (error := abs(residual).sum()) > goal:
            solved = mp.lu_solve(mp.matrix(hessian.tolist()), mp.matrix(residual.tolist()))
            step = current * np.array(list(solved))
            while True:
                trial = found + step
                residual, hessian = _derivatives(costs, weights, trial, current)
                if abs(residual).sum() < error:
                    break
                step = step / 2
            found = trial
        if current == epsilon:
            return found + offset - (found + offset).mean()


def _derivatives(
    costs: Array, weights: Array, potentials: Array, epsilon: Number
) -> tuple[Array, Array]:
    """Return the residual of the marginal, and the Hessian plus the square of the constants."""
    logits = (potentials - costs) / epsilon
    shares = exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True)
    marginal, size = weights @ shares, len(potentials)
    hessian = np.diag(marginal) - shares.T @ (weights[:, None] * shares) + mp.mpf(1) / size**2
    return mp.mpf(1) / size - marginal, hessian
