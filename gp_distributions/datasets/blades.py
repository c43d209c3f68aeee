"""Propeller blades: surfaces between two airfoils with their thrust and efficiency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gp_distributions.datasets.airfoils import airfoils_with_parameters

_BLADES = 2
_SPEED = 0.8 / np.pi  # advance ratio J: flight speed V / (Omega R) = J / pi
_REYNOLDS = 5e6  # Omega R^2 over the kinematic viscosity
_RADII = np.linspace(0.2, 0.98, 12)
_ANGLES = np.radians(np.linspace(-10.0, 20.0, 31))
_MIN_CONFIDENCE = 0.9
_MIN_TRAILING_EDGE = 0.002  # chords
_ROUND = 64  # designs drawn at once, which keeps the batches of NeuralFoil small
# Chords at the hub, the middle and the tip in radii; angles over the helix of flight at the hub and the
# tip; sweep of the tip in radii.
_LOW = np.array([0.08, 0.08, 0.03, *np.radians([-0.5, -0.5]), -0.15])
_HIGH = np.array([0.20, 0.25, 0.12, *np.radians([8.0, 6.0]), 0.15])

Mesh = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Blades:
    """Surfaces of propeller blades, with the thrust and the efficiency of their propellers.

    Attributes:
        meshes: For each of the ``N`` blades, ``n_i x 3`` vertices in radii of the propeller (forward,
            in the direction of rotation, outward along the blade) and ``f_i x 3`` triangles, which
            close the surface and are counterclockwise seen from outside.
        thrust: The ``N`` thrust coefficients ``T / (rho n^2 D^4)``.
        efficiency: The ``N`` efficiencies ``T V / P``.
        parameters: An ``N x 42`` array: for the airfoil of the hub and then of the tip, 8 upper and 8
            lower Kulfan weights, the weight of the leading edge and the thickness of the trailing edge
            in chords; the chords at the hub, the middle and the tip in radii; the angles at the hub and
            the tip between the chord and the helix of flight, in radians; and the sweep of the tip
            against the rotation, in radii.
    """

    meshes: tuple[Mesh, ...]
    thrust: NDArray[np.float64]
    efficiency: NDArray[np.float64]
    parameters: NDArray[np.float64]


def random_blades(num: int, *, seed: int = 0, meshing_seed: int = 0) -> Blades:
    r"""Draw blades of propellers, and compute thrust and efficiency by blade-element momentum theory.

    A propeller has two blades and flies at an advance ratio :math:`J = V / (n D) = 0.8`. A blade has 12
    sections from 0.2 to 0.98 of the radius. Their airfoils interpolate the Kulfan parameters of two
    airfoils, drawn from those of :func:`load_airfoils`. Chord, twist and sweep are random. At each
    section the inflow angle :math:`\phi` solves

    .. math::
        \sin\phi - \lambda \cos\phi
        - \frac{\sigma \, (c_n + \lambda c_t)}{4 F \sin\phi} = 0,
        \qquad \lambda = \frac{V}{\Omega r}, \quad \sigma = \frac{2 c}{2 \pi r},

    by bisection, with Prandtl's factor :math:`F` of the losses at the tip and with the force
    coefficients :math:`c_n` along and :math:`c_t` across the axis, from NeuralFoil's model
    ``"xlarge"`` at 31 angles of attack from -10 to 20 degrees. The Reynolds number is :math:`5 \times
    10^6` times the chord times the speed in units of :math:`\Omega R`. Sweep does not enter.

    A design is drawn again if a section has no solution in this range of angles, an analysis confidence
    is below 0.9 at a solution, or the thrust or the torque is not positive: of the designs drawn for
    ``num=1200``, 23% are. The first designs are the same for each ``num``. Efficiencies are skewed, with
    0.86 in the middle, 0.78 to 0.89 in 90% and 0.06 to 0.91 in all of 1200.

    Meshes have 12 to 30 sections of 40 to 80 vertices at random places on the same surface.

    Args:
        num: Number ``N`` of blades.
        seed: Random seed of the designs.
        meshing_seed: Random seed of the numbers and places of vertices, which changes the meshes only.

    Returns:
        The blades.

    Raises:
        ImportError: If NeuralFoil is not installed.

    Example:
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.datasets import random_blades
        >>> blades = random_blades(1200)  # doctest: +SKIP
        >>> clouds = PointClouds.from_meshes(blades.meshes)  # doctest: +SKIP

    Source: Ning 2014 (the equation of one unknown); Sharpe and Hansman 2025 (NeuralFoil).
    """
    _, airfoils = airfoils_with_parameters()
    airfoils[:, -1] = np.maximum(airfoils[:, -1], _MIN_TRAILING_EDGE)
    rng = np.random.default_rng(seed)
    found = np.empty((0, 44))
    while len(found) < num:
        pairs = rng.integers(len(airfoils), size=(_ROUND, 2))
        plans = rng.uniform(_LOW, _HIGH, (_ROUND, len(_LOW)))
        designs = np.hstack([airfoils[pairs].reshape(_ROUND, -1), plans])
        performance = _performance(designs)
        sound = np.isfinite(performance).all(-1)
        found = np.vstack([found, np.hstack([designs, performance])[sound]])
    return _made(found[:num, :-2], found[:num, -2:], meshing_seed)


def propeller_blades(parameters: ArrayLike, *, meshing_seed: int = 0) -> Blades:
    """Make blades of given parameters, and compute their thrust and efficiency as :func:`random_blades`.

    Args:
        parameters: An ``N x 42`` array, as :attr:`Blades.parameters`.
        meshing_seed: Random seed of the numbers and places of vertices.

    Returns:
        The blades. Thrust and efficiency are NaN where :func:`random_blades` draws again.

    Raises:
        ImportError: If NeuralFoil is not installed.
        ValueError: If the parameters have another shape.

    Example:
        >>> from gp_distributions.datasets import propeller_blades, random_blades
        >>> parameters = random_blades(1).parameters.copy()  # doctest: +SKIP
        >>> parameters[:, 39:41] += 0.01  # a steeper blade  # doctest: +SKIP
        >>> propeller_blades(parameters).thrust  # doctest: +SKIP
    """
    designs = np.asarray(parameters, dtype=float)
    if designs.ndim != 2 or designs.shape[1] != 42:
        raise ValueError(f"Expected an N x 42 array of parameters, got shape {designs.shape}.")
    return _made(designs, _performance(designs), meshing_seed)


def _made(
    designs: NDArray[np.float64], performance: NDArray[np.float64], meshing_seed: int
) -> Blades:
    """Mesh designs whose performance is known."""
    places = np.random.default_rng(meshing_seed)
    meshes = tuple(_mesh(design, places) for design in designs)
    return Blades(meshes, performance[:, 0], performance[:, 1], designs)


def _sections(
    designs: NDArray[np.float64], radii: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Return Kulfan parameters, chord, pitch over the plane of rotation and sweep at some radii."""
    part = (radii - _RADII[0]) / (_RADII[-1] - _RADII[0])
    values = designs[..., None]
    hub, tip, (first, middle, last, inner, outer, sweep) = (
        values[..., :18, :],
        values[..., 18:36, :],
        np.moveaxis(values[..., 36:, :], -2, 0),
    )
    chord = (
        first + (4 * middle - 3 * first - last) * part + 2 * (first - 2 * middle + last) * part**2
    )
    pitch = np.arctan(_SPEED / radii) + inner + (outer - inner) * part
    return hub + (tip - hub) * part, chord, pitch, sweep * part**2


def _performance(designs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the ``N x 2`` thrust coefficients and efficiencies; NaN without a sound solution."""
    airfoils, chord, pitch, _ = _sections(designs, _RADII)
    speed = _REYNOLDS * chord * np.hypot(_SPEED, _RADII)
    polars = _polars(airfoils, speed)
    solidity = _BLADES * chord / (2 * np.pi * _RADII)
    ratio = _SPEED / _RADII

    def forces(angle: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        place = np.clip((pitch - angle - _ANGLES[0]) / (_ANGLES[1] - _ANGLES[0]), 0, 30)
        before = np.minimum(place.astype(int), 29)[..., None]
        part = place - before[..., 0]
        lift, drag, confidence = (
            np.take_along_axis(polar, before, -1)[..., 0] * (1 - part)
            + np.take_along_axis(polar, before + 1, -1)[..., 0] * part
            for polar in polars
        )
        sin, cos = np.sin(angle), np.cos(angle)
        return lift * cos - drag * sin, lift * sin + drag * cos, confidence

    def loss(angle: NDArray[np.float64]) -> NDArray[np.float64]:
        reach = _BLADES / 2 * (1 - _RADII) / (_RADII * np.sin(angle))
        return 2 / np.pi * np.arccos(np.exp(-reach))

    def residual(angle: NDArray[np.float64]) -> NDArray[np.float64]:
        normal, tangential, _ = forces(angle)
        sin = np.sin(angle)
        load = solidity * (normal + ratio * tangential) / (4 * loss(angle) * sin)
        return sin - ratio * np.cos(angle) - load

    low = np.maximum(pitch - _ANGLES[-1], 1e-3)
    high = np.minimum(pitch - _ANGLES[0], np.pi / 2)
    solved = (residual(low) < 0) & (residual(high) > 0)
    for _ in range(50):
        middle = (low + high) / 2
        below = residual(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    normal, tangential, confidence = forces(low)
    sin = np.sin(low)
    factor = solidity / (4 * loss(low) * sin)
    # Speeds through the disc in units of Omega R: axial V (1 + a), and against the rotation.
    axial = _SPEED / (1 - factor * normal / sin)
    across = _RADII / (1 + factor * tangential / np.cos(low))
    pressure = (axial**2 + across**2) / 2 * _BLADES * chord
    thrust = np.trapezoid(pressure * normal, _RADII)
    torque = np.trapezoid(pressure * tangential * _RADII, _RADII)
    sound = (solved & (confidence >= _MIN_CONFIDENCE)).all(-1) & (thrust > 0) & (torque > 0)
    performance = np.stack([thrust * np.pi**2 / 4, _SPEED * thrust / torque], axis=-1)
    return np.where(sound[:, None], performance, np.nan)


def _polars(
    airfoils: NDArray[np.float64], reynolds: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Compute lift and drag coefficients and confidences, ``N x 12 x 31``."""
    import neuralfoil

    count = len(_ANGLES)
    columns = airfoils.swapaxes(0, 1).reshape(18, -1).repeat(count, axis=1)
    flow = neuralfoil.get_aero_from_kulfan_parameters(
        {
            "upper_weights": columns[:8],
            "lower_weights": columns[8:16],
            "leading_edge_weight": columns[16],
            "TE_thickness": columns[17],
        },
        alpha=np.tile(np.degrees(_ANGLES), reynolds.size),
        Re=reynolds.ravel().repeat(count),
        model_size="xlarge",
    )
    return tuple(
        np.asarray(flow[key]).reshape(*reynolds.shape, count)
        for key in ("CL", "CD", "analysis_confidence")
    )


def _mesh(design: NDArray[np.float64], rng: np.random.Generator) -> Mesh:
    """Divide the surface of a blade, with its two ends, into triangles."""
    around = 2 * np.pi * _spaced(int(rng.integers(40, 81)), rng)
    radii = _RADII[0] + (_RADII[-1] - _RADII[0]) * _spaced(int(rng.integers(12, 31)), rng)
    kulfan, chord, pitch, sweep = _sections(design, radii)
    along, height = _outlines(kulfan, around)
    forward = (0.25 - along) * chord[:, None], height * chord[:, None]
    sin, cos = np.sin(pitch)[:, None], np.cos(pitch)[:, None]
    vertices = np.stack(
        [
            forward[0] * sin + forward[1] * cos,
            forward[0] * cos - forward[1] * sin - sweep[:, None],
            np.broadcast_to(radii[:, None], along.shape),
        ],
        axis=-1,
    )
    index = np.arange(along.size).reshape(along.shape)
    here, beside = index, np.roll(index, -1, axis=1)
    sides = np.stack([here[:-1], beside[:-1], beside[1:], here[:-1], beside[1:], here[1:]], axis=-1)
    end = _filled(around)
    faces = np.concatenate([sides.reshape(-1, 3), index[0][end[:, ::-1]], index[-1][end]])
    return vertices.reshape(-1, 3), faces


def _spaced(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return increasing numbers from 0 to 1 at random, denser towards one of the ends."""
    gaps = rng.uniform(0.3, 1.0, count - 1).cumsum()
    places: NDArray[np.float64] = np.concatenate([[0.0], gaps / gaps[-1]])
    return places ** rng.uniform(0.75, 1.35)


def _outlines(
    kulfan: NDArray[np.float64], around: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return chordwise places and heights, in chords, from the upper trailing edge to the lower one."""
    along = (1 + np.cos(around)) / 2
    binomials = np.array([1, 7, 21, 35, 35, 21, 7, 1])
    powers = np.arange(8)[:, None]
    shapes = np.sqrt(along) * (1 - along)
    shapes = shapes * binomials[:, None] * along**powers * (1 - along) ** (7 - powers)
    above = around < np.pi
    upper, lower = kulfan[:8].T @ shapes, kulfan[8:16].T @ shapes
    height = np.where(above, upper, lower) + kulfan[16][:, None] * along * (1 - along) ** 8.5
    height += np.where(above, 0.5, -0.5) * along * kulfan[17][:, None]
    return np.broadcast_to(along, height.shape), height


def _filled(around: NDArray[np.float64]) -> NDArray[np.int64]:
    """Divide the inside of an outline into triangles between its upper and lower sides."""
    first, last, triangles = 0, len(around) - 1, []
    while last - first > 1:
        if around[first + 1] < 2 * np.pi - around[last - 1]:
            triangles.append((first, first + 1, last))
            first += 1
        else:
            triangles.append((first, last - 1, last))
            last -= 1
    return np.array(triangles)
