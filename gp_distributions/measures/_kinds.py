"""The containers of distributions, and what distances call their kinds."""

from __future__ import annotations

from typing import TypeAlias

from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.point_clouds import PointClouds

Distributions: TypeAlias = PointClouds | Gaussians | GaussianMixtures

KINDS = {PointClouds: "clouds", Gaussians: "gaussians", GaussianMixtures: "mixtures"}
