"""The choice of the metric of a model without a kernel: isotropic, or on principal components."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.principal import PrincipalDistance
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.fitting.ascent import (
    Ascent,
    ascending,
    climb,
    on_subset,
    stays_at_start,
    values_of,
)
from gp_distributions.fitting.lbfgs import Pair
from gp_distributions.fitting.sampling_noise import learn_sampling_noise
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.reading import default_distances, with_distances
from gp_distributions.models.choice import ISOTROPIC, MIXTURE, PRINCIPAL, PRODUCT, Choice
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.ensemble import Ensemble
from gp_distributions.rows.clouds import rows_at
from gp_distributions.warnings import JitterWarning, collected

# A function of a model that makes the other members of its mixture, which are not fitted yet.
Others: TypeAlias = Callable[[DistributionGP], Iterable[DistributionGP]]

# Fewer clouds are not compared.
_FEWEST, _FOLDS = 10, 5
# Exponents of the principal members, the most components, and the most as a share of the clouds.
_EXPONENTS, _COMPONENTS, _SHARES = (0.5, 1.0), 50, (1.0, 1 / 3)
# Number of random features of mean embeddings.
_FEATURES = 500
# A smaller gain, in nats per target, does not pay for several models.
_GAIN = 0.02


class _Member(NamedTuple):
    """A fitted member of the mixture, and an estimate of the curvature of its likelihood."""

    model: DistributionGP
    pairs: Sequence[Pair]


def choose_metric(
    model: DistributionGP,
    *,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = False,
    pairs: Sequence[Pair] = (),
    name: str | None = None,
    principal: Sequence[PrincipalDistance] | None = None,
    alternative: str = MIXTURE,
) -> None:
    r"""Choose the metric of a model in place, after its isotropic default kernel has been fitted.

    The alternative is the equal mixture of the isotropic kernel; of kernels on a
    :class:`PrincipalDistance` with exponent 1/2, of at most 50 and ``T - 1`` components, and exponent
    1, of at most 50 and ``T / 3`` components; and, in a model of bags without a kernel, of a kernel
    linear in mean embeddings (:class:`MMD`), because many targets are averages over atoms. Five folds
    decide by the mean log density of held-out targets, or log probability of held-out labels, of which
    the mixture must gain 0.02. In each, components and hyperparameters are found anew without the fold,
    starting from the hyperparameters that were fitted to all clouds. Of more than 1,000 clouds, a
    random 500 decide. Fewer than 10 clouds, or equal targets, compare nothing, and neither do mixed
    inputs, whose product of kernels stays.

    Args:
        model: A fitted model whose kernel is the default one.
        seed: Random seed of the folds and of the random clouds.
        options: Options of the fits of members to all clouds.
        progress: Whether to show a progress bar if the choice takes more than a few seconds.
        pairs: Estimate of the curvature of the likelihood of the model, from its fit.
        name: ``"isotropic"`` or ``"mixture"`` to skip the comparison. Default: compare.
        principal: Distances of the principal members, which are then the same in all folds. Default:
            :func:`principal_distances` of the training clouds, or of those of a fold.
        alternative: ``"mixture"``, or ``"principal"`` for the first principal member alone, with a
            Gaussian profile. The model then takes its kernel, noise and mean.
    """
    model.ensemble = model.choice = None
    if not isinstance(model.covar_module.base_kernel, DistributionKernel):
        model.choice = chosen(model.covar_module)
        return
    # The distance of the linear member is the same in all folds.
    others: Others = partial(_unfitted, principal=principal, embeddings=_mean_embeddings(model))
    if alternative == PRINCIPAL:
        others = _smooth
    with (
        ascending(model, "Choosing", options, progress=progress) as ascent,
        collected(JitterWarning),
    ):
        some = on_subset(model, seed=seed)
        num_clouds = 0
        found: dict[str, float] = {}
        fitted: list[_Member] = []
        if name is None:
            num_clouds = some.train_targets.shape[-1]
            if num_clouds >= _FEWEST and not stays_at_start(some):
                fitted = _fitted(others(some), seed, ascent)
                members = [_Member(some, pairs), *fitted]
                found = _compared(members, others, seed, ascent.tick, alternative)
            gains = found and found[alternative] - found[ISOTROPIC] > _GAIN
            name = alternative if gains else ISOTROPIC
        choice = chosen(model.covar_module, name, found, num_clouds)
        if name != ISOTROPIC and (not fitted or some is not model):
            fitted = _fitted(others(model), seed, ascent)  # those of a subset do not serve all
        if name == MIXTURE:
            first = model.with_kernel(model.covar_module)
            first.likelihood, first.mean_module = model.likelihood, model.mean_module
            model.ensemble = Ensemble([first, *(member.model for member in fitted)])
        elif name == PRINCIPAL:
            for part in ("covar_module", "likelihood", "mean_module"):
                setattr(model, part, getattr(fitted[0].model, part))
        model.choice = choice


def chosen(
    kernel: Kernel,
    name: str | None = None,
    log_densities: Mapping[str, float] | None = None,
    num_clouds: int = 0,
) -> Choice:
    """Return what was chosen, with what a default kernel has learned of scales and shapes.

    Args:
        kernel: The default kernel.
        name: Name of what was chosen. Default: the kernel itself, without a choice.
        log_densities: As in :class:`Choice`.
        num_clouds: As in :class:`Choice`.
    """
    if name is None:
        name = ISOTROPIC if isinstance(kernel.base_kernel, DistributionKernel) else PRODUCT
    distances = default_distances(kernel)
    factors = [each.normals_factor.item() for each in distances if each.num_normals]
    scales = [scale for each in distances for scale in each.scales.tolist()]
    return Choice(
        name,
        log_densities or {},
        _FOLDS if log_densities else 0,
        num_clouds,
        factors[0] if factors else None,
        tuple(scales) if set(scales) != {1.0} else (),
        any(each.any_pose for each in distances),
    )


def _fitted(models: Iterable[DistributionGP], seed: int, ascent: Ascent) -> list[_Member]:
    """Fit the other members of the mixture."""
    found = []
    for model in models:
        own = Ascent(model, ascent.tick, ascent.options)
        best = climb(own, [values_of(model)], seed=seed)
        found.append(_Member(model, best.minimum.pairs))
    learn_sampling_noise(*(member.model for member in found), seed=seed)
    return found


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


def _mean_embeddings(model: DistributionGP) -> Distance | None:
    """Return the distance of the linear member of a model of bags without a kernel."""
    distance = model.covar_module.base_kernel.distance
    if not model.chooses_metric or distance.inputs != "clouds" or distance.geometric:
        return None
    points, weights = distance.block.split(model.train_inputs[0])
    atoms = points[weights > 0]
    if bool((atoms == atoms[:1]).all()):  # no bandwidth tells them apart
        return None
    return ScaledDistance(MMD(distance.dim, num_features=_FEATURES), learn=False)


def _unfitted(
    model: DistributionGP,
    *,
    principal: Sequence[PrincipalDistance] | None,
    embeddings: Distance | None,
) -> Iterator[DistributionGP]:
    """Yield models on principal components, with lengthscales at the mode of their prior, and linear."""
    rows = model.compared_rows
    base = model.covar_module.base_kernel
    principal = principal or principal_distances(base.distance, rows)
    size = rows.rows.shape[-2]
    kernels = [
        DistributionKernel(
            distance.first(max(1, min(int(share * size), size - 1))),
            base.profile,
            batch_shape=base.batch_shape,
        )
        for distance, share in zip(principal, _SHARES, strict=True)
    ]
    if embeddings is not None:
        kernels.append(DistributionKernel(embeddings, "linear", batch_shape=base.batch_shape))
    for kernel in kernels:
        scaled = ScaleKernel(kernel, batch_shape=model.covar_module.batch_shape).to(rows.rows)
        yield model.with_kernel(scaled)


def _smooth(model: DistributionGP) -> Iterator[DistributionGP]:
    """Yield a model with a Gaussian profile and a lengthscale for each principal component."""
    rows = model.compared_rows
    distance = principal_distances(model.covar_module.base_kernel.distance, rows)[0]
    yield model.with_kernel(ScaleKernel(DistributionKernel(distance, "gaussian")).to(rows.rows))


def _compared(
    fitted: Sequence[_Member],
    others: Others,
    seed: int,
    tick: Callable[[], object],
    name: str,
) -> dict[str, float]:
    """Return the mean held-out log density of each alternative, given its members, fitted."""
    model = fitted[0].model
    totals = {ISOTROPIC: 0.0, name: 0.0}
    for train, test in _folds(model, seed):
        part = model.subset(train)
        isotropic = part.with_kernel(with_distances(model.covar_module))
        members = [isotropic, *others(part)]
        for member, (start, pairs) in zip(members, fitted, strict=True):
            with torch.no_grad():
                for value, known in zip(member.parameters(), start.parameters(), strict=True):
                    value.copy_(known[..., : value.shape[-1]] if value.dim() else known)
            ascent = Ascent(member, tick, None)
            ascent.maxima(member, [values_of(member)], pairs=pairs, loose=True)
            member.eval()
        other = members if name == MIXTURE else members[-1:]
        rows = _rows_of(model, test)
        with torch.no_grad():
            for each, parts in ((ISOTROPIC, [isotropic]), (name, other)):
                totals[each] += model.log_densities(*_mixed(parts, rows), test).sum().item()
    size = model.train_targets.shape[-1]
    return {name: total / size for name, total in totals.items()}


def _mixed(members: Sequence[DistributionGP], rows: EmbeddedRows) -> tuple[Tensor, Tensor, Tensor]:
    """Return means, variances and noise variances of equal mixtures at transformed rows."""
    found = [
        torch.broadcast_tensors(*m.latent_marginals(rows, m.conditioned()), m.noise(rows))
        for m in members
    ]
    means, variances, noises = (torch.stack(part) for part in zip(*found, strict=True))
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0), noises.mean(0)


def _folds(model: DistributionGP, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return the training and the held-out clouds of each fold, of classes in equal shares."""
    size = model.train_targets.shape[-1]
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    if isinstance(model, ClassificationGP):
        order = order[model.likelihood.labels.cpu()[order].sort(stable=True).indices]
    order = order.to(model.train_targets.device)
    parts = [order[k::_FOLDS].sort().values for k in range(_FOLDS)]
    return [
        (torch.cat([*parts[:k], *parts[k + 1 :]]).sort().values, part)
        for k, part in enumerate(parts)
    ]


def _rows_of(model: DistributionGP, index: Tensor) -> EmbeddedRows:
    """Return some training rows, transformed, with what was computed of them."""
    whole = model.embedded_rows(model.train_inputs[0])
    if model.num_outputs > 1:
        first = whole.rows.select(-3, 0)
        return EmbeddedRows(first.index_select(-2, index))
    return whole.take(index, rows_at(whole.rows, index))
