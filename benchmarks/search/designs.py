"""Wings of ten CST (Kulfan) weights: outlines, clouds with normals, and gated lift to drag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.shapes import flow
from gp_distributions import PointClouds

WEIGHTS = 5  # of each surface
CONFIDENCE, THICKNESS = 0.9, 0.09
# A design holds the weights of the upper surface, then those of the lower surface.
BOUNDS = torch.tensor(
    [
        [0.05] + [0.0] * (WEIGHTS - 1) + [-0.4] * WEIGHTS,
        [0.5] * WEIGHTS + [-0.05] + [0.3] * (WEIGHTS - 1),
    ],
    dtype=torch.float64,
)


def bernstein(count: int, x: Tensor) -> Tensor:
    """Return Bernstein polynomials of degree ``count - 1`` at ``x``, ``len(x) x count``."""
    k = torch.arange(count, dtype=x.dtype)
    n = torch.tensor(count - 1.0, dtype=x.dtype)
    binomial = (torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)).exp()
    return binomial * x[:, None] ** k * (1 - x[:, None]) ** (n - k)


def outlines_of(designs: Tensor, points: int = 64) -> Tensor:
    """Return the closed outlines of designs by class-shape transformation, ``N x points x 2``."""
    x = (1 - torch.cos(torch.linspace(0, torch.pi, points // 2 + 1, dtype=designs.dtype))) / 2
    shape = (x.sqrt() * (1 - x)).unsqueeze(-1) * bernstein(WEIGHTS, x)
    upper, lower = (part @ shape.T for part in designs.split(WEIGHTS, dim=-1))
    y = torch.cat([upper.flip(-1), lower[:, 1:-1]], dim=-1)
    return torch.stack([torch.cat([x.flip(-1), x[1:-1]]).expand_as(y), y], dim=-1)


def decode(designs: Tensor) -> PointClouds:
    """Return outline points with their unit normals, in four dimensions."""
    points = outlines_of(designs)
    tangents = points.roll(-1, dims=-2) - points.roll(1, dims=-2)
    normals = torch.stack([-tangents[..., 1], tangents[..., 0]], dim=-1)
    lengths = normals.norm(dim=-1, keepdim=True)
    # Where two points of a thin wing coincide, there is no tangent.
    normals = torch.where(
        lengths > 1e-9, normals / lengths.clamp_min(1e-9), normals.new_tensor([1, 0])
    )
    return PointClouds(torch.cat([points, normals], dim=-1), num_normals=2)


def gated_ratio(design: Tensor) -> float:
    """Return the gated lift-to-drag ratio at 4 degrees and a Reynolds number of 1e6."""
    # NeuralFoil's eight weights can represent every polynomial of five weights.
    x = torch.linspace(0.01, 0.99, 50, dtype=design.dtype)
    elevate = torch.linalg.lstsq(bernstein(8, x), bernstein(WEIGHTS, x)).solution
    upper, lower = ((elevate @ part).numpy() for part in design.split(WEIGHTS))
    parameters = {"upper_weights": upper, "lower_weights": lower}
    parameters |= {"leading_edge_weight": 0.0, "TE_thickness": 0.0}
    found = flow(parameters, 4.0)
    outline = outlines_of(design[None])[0]
    half = len(outline) // 2
    thickness = float((outline[1:half, 1] - outline[half + 1 :, 1].flip(0)).max())
    return gated(found, thickness)


def gated(found: Mapping[str, Any], thickness: float) -> float:
    """Return the ratio of lift to drag, times gates on NeuralFoil's confidence and on thickness."""
    confidence = float(np.squeeze(found["analysis_confidence"]))
    gate = 1 / (1 + np.exp((CONFIDENCE - confidence) / 0.02))
    gate /= 1 + np.exp((THICKNESS - thickness) / 0.005)
    return float(np.squeeze(found["CL"] / found["CD"]) * gate)
