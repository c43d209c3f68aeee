"""The members of a model of shapes: isotropic, and on principal components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.distances.principal import PrincipalDistance
from gp_distributions.fitting.ascent import (
    Ascent,
    ascending,
    climb,
    has_subsets,
    on_subset,
    stays_at_start,
    values_of,
)
from gp_distributions.fitting.sampling_noise import learn_sampling_noise
from gp_distributions.fitting.starts import give_signal, start_at_medians
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.reading import (
    default_distances,
    distribution_kernels,
    with_kernels,
)
from gp_distributions.models.choice import Choice
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.ensemble import Ensemble
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.warnings import JitterWarning, collected

#: Fewer clouds do not tell directions apart.
FEWEST = 30
# Exponents of the principal members, the most components, and the most as a share of the clouds.
_EXPONENTS, _COMPONENTS, _SHARES = (0.5, 1.0), 50, (1.0, 1 / 3)


def kernels_of_shapes(model: Any) -> list[DistributionKernel]:
    """Return the kernels of a model that compare shapes, whose thin directions often matter."""
    found = [kernel for kernel, _ in distribution_kernels(model.covar_module)]
    return [kernel for kernel in found if getattr(kernel.distance, "geometric", False)]


def give_members(
    model: DistributionGP,
    kernels: Sequence[DistributionKernel],
    *,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = False,
    principal: Sequence[PrincipalDistance] | None = None,
) -> None:
    r"""Give a fitted model two further members, on principal components, with equal weights, in place.

    The distances of their kernels are a :class:`PrincipalDistance` with exponent 1/2, of at most 50 and
    ``T - 1`` components, and one with exponent 1, of at most 50 and ``T / 3`` components, for ``T``
    different clouds, in place of the distance of the model, with a lengthscale for each component. All
    else is as in the kernel of the model; the members fit their hyperparameters, noise and level. A
    model whose distances have no features, or whose targets are all equal, stays as it is.

    Args:
        model: A fitted model whose kernel is the default one.
        kernels: Parts of the kernel, in whose place the members have others.
        seed: Random seed of the fits.
        options: Options of the fits.
        progress: Whether to show a progress bar if the fits take more than a few seconds.
        principal: Distances of the members. Default: :func:`principal_distances` of the training clouds.
    """
    model.ensemble = None
    places = {
        kernel: model.compared_rows.select(block.columns)
        for kernel, block in distribution_kernels(model.covar_module)
        if kernel in kernels
    }
    if stays_at_start(model) or not all(kernel.distance.euclidean for kernel in kernels):
        return
    # A cloud that is measured several times counts once.
    size = min(len(each.rows.flatten(0, -2).unique(dim=0)) for each in places.values())
    known = {
        kernel: principal or principal_distances(kernel.distance, rows)
        for kernel, rows in places.items()
    }
    members = [model.with_kernel(model.covar_module)]
    members[0].likelihood, members[0].mean_module = model.likelihood, model.mean_module
    with (
        ascending(model, "Fitting members", options, progress=progress) as ascent,
        collected(JitterWarning),
    ):
        for place, share in enumerate(_SHARES):
            number = max(1, min(int(share * size), size - 1))
            others = {
                kernel: _on_components(kernel, found[place].first(number))
                for kernel, found in known.items()
            }
            member = model.with_kernel(with_kernels(model.covar_module, others)).train()
            start_at_medians(member)
            # The isotropic member may take for noise what depends on few directions.
            starts = [values_of(member)]
            give_signal(member)
            starts.append(values_of(member))
            # A subset of many clouds determines a lengthscale for each component as well.
            known_by = on_subset(member, seed=seed) if has_subsets(member) else member
            climb(Ascent(known_by, ascent.tick, options), starts, seed=seed)
            learn_sampling_noise(member, seed=seed)
            members.append(member.eval())
    model.ensemble = Ensemble(members)


def _on_components(kernel: DistributionKernel, distance: PrincipalDistance) -> DistributionKernel:
    """Return a kernel like another, with a lengthscale for each principal component."""
    found = DistributionKernel(distance, kernel.profile, batch_shape=kernel.batch_shape)
    return found.to(kernel.raw_lengthscale)


def chosen(model: Any) -> Choice:
    """Return what a model that makes its own kernel is made of."""
    kernels = distribution_kernels(model.covar_module)
    distances = default_distances(model.covar_module)
    factors = [each.normals_factor.item() for each in distances if each.num_normals]
    scales = [scale for each in distances for scale in each.scales.tolist()]
    parts = getattr(model, "parts", [model])
    unlike = getattr(model, "unlike_bags", ())
    samples = isinstance(model.likelihood, SamplingNoiseLikelihood)
    return Choice(
        members="mixture" if len(parts) > 1 else "isotropic",
        linear=any(kernel.linear for kernel, _ in kernels),
        integrated=any(part.is_batch for part in parts),
        sampling_noise=None if len(unlike) > 1 and not samples else samples,
        normals_factor=factors[0] if factors else None,
        scales=tuple(scales) if set(scales) != {1.0} else (),
        any_pose=any(each.any_pose for each in distances),
    )


def principal_distances(distance: Distance, rows: EmbeddedRows) -> list[PrincipalDistance]:
    """Make the distances of the principal members, with the components of some clouds.

    Args:
        distance: The distance of the isotropic member.
        rows: The clouds, ``... x N x width``. There are at most ``N - 1`` components.
    """
    number = max(1, min(_COMPONENTS, rows.rows.shape[-2] - 1))
    found = [PrincipalDistance(distance, num_components=number, exponent=e) for e in _EXPONENTS]
    for each in found:
        each.adapt_to(rows)
    return found
