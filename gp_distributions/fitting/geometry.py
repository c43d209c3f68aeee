"""The choice of the pose of shapes, and of the factor of their normals."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch

from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.fitting.ascent import Ascent, on_subset, set_values, stays_at_start, values_of
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.kernels.orientation import may_be_turned
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.rows.clouds import drop_copies, random_order
from gp_distributions.warnings import UndeterminedWarning, silenced

# Factors of normals to choose from, and the one with which poses are compared.
_FACTORS, _FACTOR = (1.0, 3.0, 6.0), 3.0
# Shapes keep their pose unless they gain so many nats for each target without it.
_GAIN = 0.1
# At most so many random clouds judge distances in any pose, whose features take long.
_TURNED = 100


def choose_geometry(
    model: DistributionGP, *, seed: int = 0, tick: Callable[[], object] = lambda: None
) -> None:
    """Choose how the isotropic default compares shapes, in place.

    Log densities of targets that are left out decide, each at its hyperparameters. Shapes that
    :func:`may_be_turned` are compared in any pose, not in the one that they have, if the mean gains 0.1.
    The factor of normals is the best of 1, 3 and 6.

    Args:
        model: A model in training mode, whose kernel is the default one.
        seed: Random seed of the clouds, of which at most 500 count, and 100 where the pose does not.
        tick: Function that is called at each evaluation of the marginal likelihood.
    """
    geometric = [
        (kernel.distance, block)
        for kernel, block in distribution_kernels(model.covar_module)
        if isinstance(kernel.distance, ScaledDistance) and kernel.distance.geometric
    ]
    if not geometric or stays_at_start(model):
        return
    model = on_subset(model, seed=seed)
    rows = drop_copies(model.compared_rows.rows)
    rows = rows[..., random_order(rows), :]
    density = cache(partial(_density, tick))
    for distance, block in geometric:
        distance.any_pose = any_pose = False
        judge, factor = model, _FACTOR
        if distance.unposed is not None and may_be_turned(
            distance, block.select(rows), distance.num_normals
        ):
            few = on_subset(model, seed=seed, most=_TURNED)
            fixed, turned = (density(few, distance, each, _FACTOR) for each in (False, True))
            if any_pose := turned - fixed > _GAIN:
                judge = few
        if distance.num_normals:
            factor = max(_FACTORS, key=partial(density, judge, distance, any_pose))
        distance.any_pose, distance.normals_factor = any_pose, factor


def _density(
    tick: Callable[[], object],
    model: DistributionGP,
    distance: ScaledDistance,
    any_pose: bool,
    factor: float,
) -> float:
    """Return the mean log density of targets that are left out, and restore the hyperparameters."""
    start = values_of(model)
    distance.any_pose, distance.normals_factor = any_pose, factor
    with silenced(UndeterminedWarning):  # if shapes differ only in their pose
        start_at_medians(model)
    Ascent(model, tick, None).maxima(model, [values_of(model)], loose=True)
    with torch.no_grad():
        index = torch.arange(model.train_targets.shape[-1], device=model.train_targets.device)
        found = model.eval().log_densities(*model.latent_left_out(), index)
    set_values(model.train(), start)
    return found.mean().item()
