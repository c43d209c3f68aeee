"""Outlines of airfoils and other shapes, in known and in unknown pose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import gp_distributions as gd
from benchmarks.draws import Draws
from gp_distributions.datasets import Airfoils, load_airfoils

Outline = NDArray[np.float64]


def some_airfoils(count: int | None) -> Airfoils:
    """Return the first airfoils of the data set."""
    foils = load_airfoils()
    return Airfoils(foils.names[:count], foils.outlines[:count], foils.lift_to_drag[:count])


def airfoil_clouds(count: int | None, atoms: int) -> tuple[Airfoils, gd.PointClouds, Tensor]:
    """Return airfoils, their outlines as points at equal arc length, and their lift to drag."""
    foils = some_airfoils(count)
    clouds = gd.PointClouds.from_curves(foils.outlines, atoms=atoms)
    return foils, clouds, torch.from_numpy(foils.lift_to_drag)


def remeshed(outline: Outline, rng: np.random.Generator) -> Outline:
    r"""Resample an outline at 30 to 200 vertices with random density.

    They lie at arc lengths of density proportional to
    :math:`\exp(\alpha \sin(2 \pi s + \phi) + \beta \sin(4 \pi s + \psi))`, with random phases and normal
    :math:`\alpha, \beta` of standard deviation 1/2.
    """
    grid = np.linspace(0, 1, 2001)
    slow, fast = (
        0.5 * rng.standard_normal() * np.sin(2 * np.pi * (k * grid + rng.uniform())) for k in (1, 2)
    )
    share = np.concatenate([[0], np.cumsum(np.exp(slow + fast)[1:])])
    count = int(rng.integers(30, 200, endpoint=True))
    places = np.interp((np.arange(count) + rng.uniform()) / count, share / share[-1], grid)
    closed = np.concatenate([outline, outline[:1]])
    ends = np.concatenate([[0], np.linalg.norm(np.diff(closed, axis=0), axis=1).cumsum()])
    return np.stack([np.interp(places * ends[-1], ends, axis) for axis in closed.T], axis=-1)


def ordinates(outlines: tuple[Outline, ...]) -> Tensor:
    """Return standardised heights of both surfaces of airfoils, 34 each."""
    at = (1 - np.cos(np.linspace(0, np.pi, 36)[1:-1])) / 2
    rows = []
    for outline in outlines:
        nose = outline[:, 0].argmin()
        upper, lower = outline[: nose + 1][::-1], outline[nose:]
        rows.append(np.concatenate([np.interp(at, s[:, 0], s[:, 1]) for s in (upper, lower)]))
    heights = torch.from_numpy(np.stack(rows))
    return (heights - heights.mean(0)) / heights.std(0)


def circularity(outlines: Iterable[Outline]) -> Tensor:
    r"""Return :math:`4 \pi A / P^2` of outlines."""
    found = []
    for outline in outlines:
        sides = np.roll(outline, -1, axis=0) - outline
        area = 0.5 * abs(np.sum(outline[:, 0] * sides[:, 1] - outline[:, 1] * sides[:, 0]))
        found.append(4 * math.pi * area / np.linalg.norm(sides, axis=1).sum() ** 2)
    return torch.tensor(found, dtype=torch.float64)


def turned(points: Tensor, seed: int) -> Tensor:
    """Turn every shape at random."""
    normal = Draws(seed).normal(len(points), *2 * points.shape[-1:])
    rotations, upper = torch.linalg.qr(normal)
    rotations = rotations * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    rotations[:, :, 0] *= torch.linalg.det(rotations).unsqueeze(-1)
    return points @ rotations.mT


def principal_axes(points: Tensor) -> Tensor:
    """Turn every shape to its principal axes, with non-negative third moments."""
    centred = points - points.mean(-2, keepdim=True)
    _, axes = torch.linalg.eigh(centred.mT @ centred)
    aligned = centred @ axes
    return aligned * torch.where(aligned.pow(3).sum(-2, keepdim=True) < 0, -1.0, 1.0)


def kulfan_parameters(foils: Airfoils) -> dict[str, Any]:
    """Return the parameters of airfoils that NeuralFoil reads, the airfoils along the last axis."""
    import aerosandbox  # takes seconds

    fits = [
        aerosandbox.Airfoil(name, coordinates=outline)
        .to_kulfan_airfoil(normalize_coordinates=False)
        .kulfan_parameters
        for name, outline in zip(foils.names, foils.outlines, strict=True)
    ]
    keys = ("upper_weights", "lower_weights", "leading_edge_weight", "TE_thickness")
    return {key: np.stack([each[key] for each in fits], axis=-1) for key in keys}


def flow(parameters: Mapping[str, Any], angle: float) -> Mapping[str, Any]:
    """Return what NeuralFoil predicts at an angle of attack and a Reynolds number of 1e6."""
    import neuralfoil

    found: Mapping[str, Any] = neuralfoil.get_aero_from_kulfan_parameters(
        dict(parameters), alpha=angle, Re=1e6, model_size="xlarge"
    )
    return found
