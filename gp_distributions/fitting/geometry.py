"""The choice of the pose of shapes, and of the factor of their normals."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch

from gp_distributions.distances.standardized import StandardizedDistance
from gp_distributions.fitting.ascent import Ascent, on_subset, set_values, stays_at_start, values_of
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.kernels.orientation import may_be_turned
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.rows.clouds import drop_copies
from gp_distributions.warnings import UndeterminedWarning, silenced

# Factors of normals to choose from, and the one with which poses are compared.
_FACTORS, _FACTOR = (1.0, 3.0, 6.0), 3.0
# Shapes keep their pose unless they gain so many nats for each target without it.
_GAIN = 0.1
# As many random clouds, at most, choose for shapes that may be turned, whose features take long.
_TURNED = 100


def choose_geometry(
    model: DistributionGP, *, seed: int = 0, tick: Callable[[], object] = lambda: None
) -> None:
    """Choose how the isotropic default compares shapes, in place.

    Shapes that :func:`may_be_turned` are compared in any pose, not in the one that they have, if the log
    densities of targets that are left out gain 0.1 on average. The factor of normals is the one of 1, 3
    and 6 with the largest marginal likelihood.

    Args:
        model: A model in training mode, whose kernel is the default one.
        seed: Random seed of the clouds, of which at most 500 count, and 100 if shapes may be turned.
        tick: Function that is called at each evaluation of the marginal likelihood.
    """
    if stays_at_start(model):
        return
    model = on_subset(model, seed=seed)
    rows = drop_copies(model.compared_rows.rows)
    order = torch.randperm(rows.shape[-2], generator=torch.Generator().manual_seed(seed))
    few = model.subset(order[:_TURNED].sort().values.to(rows.device))
    for kernel, block in distribution_kernels(model.covar_module):
        distance = kernel.distance
        if isinstance(distance, StandardizedDistance) and distance.geometric:
            distance.any_pose = False
            turned = may_be_turned(distance, block.select(rows), distance.num_normals)
            _choose(few if turned else model, distance, turned, tick)


def _choose(
    model: DistributionGP,
    distance: StandardizedDistance,
    turned: bool,
    tick: Callable[[], object],
) -> None:
    """Choose whether the pose counts, if shapes may be turned, and the factor of normals, in place."""
    start = values_of(model)
    index = torch.arange(model.train_targets.shape[-1], device=model.train_targets.device)

    @cache
    def fitted(any_pose: bool, factor: float) -> tuple[float, float]:
        """Return the loss and the mean log density of targets that are left out."""
        set_values(model, start)
        distance.any_pose, distance.normals_factor = any_pose, factor
        start_at_medians(model)
        ascent = Ascent(model, tick, None)
        best = ascent.maxima(model, [values_of(model)], loose=True)[0]
        with torch.no_grad():
            densities = model.eval().log_densities(*model.latent_left_out(), index)
        model.train()
        return best.loss, densities.mean().item()

    with silenced(UndeterminedWarning):  # if shapes differ only in their pose
        any_pose = turned and fitted(True, _FACTOR)[1] - fitted(False, _FACTOR)[1] > _GAIN
        losses = {each: fitted(any_pose, each)[0] for each in _FACTORS if distance.num_normals}
    set_values(model, start)
    distance.any_pose = any_pose
    distance.normals_factor = min(losses, key=losses.__getitem__) if losses else _FACTOR
