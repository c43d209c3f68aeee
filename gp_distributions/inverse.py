"""The way back from embeddings to clouds, to draw what machines on embeddings have found."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances import Distance, LinearTransport, SlicedWasserstein
from gp_distributions.measures import PointClouds
from gp_distributions.numerics.nearest_cloud import nearest_cloud
from gp_distributions.warnings import ConvergenceWarning

# Distances of embeddings at which the search ends, in root mean square distances of two atoms.
_ENOUGH = 1e-4


@dataclass(frozen=True, eq=False)
class Inversion:
    """Clouds near given embeddings.

    Attributes:
        clouds: The ``N`` clouds.
        distances: The ``N`` distances between their embeddings and those given, in the units of the
            distance.
    """

    clouds: PointClouds
    distances: Tensor


def invert_embedding(
    distance: Distance,
    embeddings: Tensor,
    atoms: int | None = None,
    *,
    learn_weights: bool = True,
    start: PointClouds | None = None,
    max_iterations: int = 500,
    tolerance: float = 0.05,
    seed: int = 0,
    progress: bool = False,
) -> Inversion:
    r"""Find the clouds of given embeddings, or the nearest where there are none.

    Means, combinations and directions of embeddings become shapes: barycentres, centres of k-means, the
    mean plus a multiple of a principal component or of the normal of a linear machine.

    L-BFGS on atoms and weights minimises the distance between their embedding :math:`\varphi(X, w)` and
    the given one,

    .. math::
        \min_{X, w} |\varphi(X, w) - z|^2,

    from

    - for :class:`SlicedWasserstein` of order 2, normal samples of the mean and the size that the
      embedding tells. Where the distance is blind to means, clouds lie about zero;
    - for :class:`LinearTransport`, the transported atoms of the reference, with its weights: the
      embedding is made of them. With ``max_iterations=0`` they are the result, which differs from the
      cloud that was embedded by the blur of epsilon.

    Where a combination is the embedding of no cloud, as most are in two and more dimensions, the
    distance stays positive however many atoms there are.

    Args:
        distance: A distance between clouds.
        embeddings: An ``N x D`` tensor, as ``distance.embed`` gives and as is made of such.
        atoms: The number of atoms. Default: for sliced Wasserstein twice ``num_quantiles``; for linear
            transport those of the reference, of which so many are drawn if a number is given.
        learn_weights: Whether weights move where those of the start do not reach the embedding.
        start: The cloud, or the ``N`` clouds, that the search starts from instead.
        max_iterations: The largest number of iterations for each cloud.
        tolerance: The distance, in root mean square distances between two atoms of the start, above
            which a warning is given.
        seed: Of the random start.
        progress: Whether to show a progress bar.

    Returns:
        Clouds and their distances from the embeddings.

    Raises:
        TypeError: If the distance has no way back.
        ValueError: If the number of features is not that of the distance, a feature is not finite,
            ``start`` does not fit, or ``atoms`` is given where the start has its own: with ``start``,
            and for sliced Wasserstein without ``num_quantiles``.

    Warns:
        ConvergenceWarning: Where the distance that is reached exceeds ``tolerance``.

    Sources: Bonneel et al. 2015 (sliced barycentres); Kolouri, Zou and Rohde 2016; Wang et al. 2013.
    """
    sliced = isinstance(distance, SlicedWasserstein) and distance.euclidean
    if distance.inputs != "clouds" or not (sliced or isinstance(distance, LinearTransport)):
        raise TypeError(
            "Expected a SlicedWasserstein distance of order 2 or a LinearTransport between clouds, got "
            f"{distance!r}: the embeddings of others have no way back to clouds."
        )
    _check_embeddings(distance, embeddings)
    embeddings = embeddings.detach()
    fixed = start is not None or (
        isinstance(distance, SlicedWasserstein) and distance.num_quantiles is None
    )
    if atoms is not None and fixed:
        raise ValueError(
            f"Expected either atoms or a start that has them, got atoms={atoms} with "
            f"{'start' if start is not None else 'a distance that keeps the atoms of its clouds'}."
        )
    if start is None:
        start = _start(distance, embeddings, atoms, seed)
    elif not start.batch_shape or len(start) == 1:
        start = PointClouds.unpack(start.pack().expand(len(embeddings), -1), start.dim)
    if len(start) != len(embeddings) or start.dim != distance.dim or len(start.batch_shape) != 1:
        raise ValueError(
            f"Expected one start, or one for each of {len(embeddings)} embeddings, in "
            f"{distance.dim} dimensions, got {start!r}."
        )
    # Point masses have no size but rounding.
    rounding = torch.finfo(embeddings.dtype).eps ** 0.5 * embeddings.norm(dim=-1)
    sizes = torch.maximum(_atom_distances(start).to(embeddings), rounding)
    found = []
    for target, points, weights, size in zip(
        tqdm(embeddings, desc="Inverting", disable=not progress),
        start.points.detach().to(embeddings),
        start.weights.detach().to(embeddings),
        sizes.tolist(),
        strict=True,
    ):
        kept = weights > 0
        found.append(
            nearest_cloud(
                distance.represent,
                target,
                points[kept],
                weights[kept],
                learn_weights=learn_weights,
                enough=_ENOUGH * size,
                max_iterations=max_iterations,
            )
        )
    clouds = PointClouds.from_list([x for x, _, _ in found], [w for _, w, _ in found])
    distances = sizes.new_tensor([reached for _, _, reached in found])
    _warn(distances, sizes, tolerance)
    return Inversion(clouds, distances)


def _check_embeddings(distance: Distance, embeddings: Tensor) -> None:
    if embeddings.dim() != 2 or not len(embeddings):
        raise ValueError(
            f"Expected embeddings as an N x D tensor, got shape {tuple(embeddings.shape)}."
        )
    if isinstance(distance, SlicedWasserstein):
        count = distance.num_quantiles
        rest = 0 if distance.center else distance.dim
        fits = (embeddings.shape[-1] - rest) % distance.num_slices == 0
        expected = f"{distance.num_slices} x {count or 'n'} + {rest}"
        if count is not None:
            fits = embeddings.shape[-1] == distance.num_slices * count + rest
    else:
        assert isinstance(distance, LinearTransport)
        expected = f"{distance.reference.size} x {distance.dim}"
        fits = embeddings.shape[-1] == distance.reference.size * distance.dim
    if not fits:
        raise ValueError(f"Expected embeddings of {expected} features, got {embeddings.shape[-1]}.")
    finite = embeddings.isfinite().all(-1)
    if not bool(finite.all()):
        raise ValueError(
            f"Expected finite embeddings, but embedding {int((~finite).nonzero()[0])} is not."
        )


def _start(distance: Distance, embeddings: Tensor, atoms: int | None, seed: int) -> PointClouds:
    if isinstance(distance, LinearTransport):
        weights = distance.reference.weights.detach().to(embeddings)
        scaled = embeddings.unflatten(-1, (len(weights), distance.dim))
        points = scaled / weights.sqrt().unsqueeze(-1)
        clouds = PointClouds(points, weights.expand(points.shape[:-1]))
        return clouds if atoms is None else clouds.resample(atoms, seed=seed)
    assert isinstance(distance, SlicedWasserstein)
    dim = distance.dim
    if distance.center:
        quantiles, means = embeddings, embeddings.new_zeros(len(embeddings), dim)
    else:
        quantiles, means = embeddings[:, :-dim], embeddings[:, -dim:] * math.sqrt(dim)
    count = distance.num_quantiles
    size = quantiles.shape[-1] // distance.num_slices if count is None else atoms or 2 * count
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    # The mean square of centred quantiles over slices is the variance of a coordinate.
    deviations = quantiles.square().sum(-1).sqrt()
    return PointClouds(means[:, None, :] + deviations[:, None, None] * normal.to(embeddings))


def _atom_distances(clouds: PointClouds) -> Tensor:
    """The root mean square distance between two atoms of each cloud."""
    points, weights = clouds.points.detach(), clouds.weights.detach().unsqueeze(-1)
    centred = points - (weights * points).sum(-2, keepdim=True)
    return (2 * (weights * centred.square()).sum((-1, -2))).sqrt()


def _warn(distances: Tensor, sizes: Tensor, tolerance: float) -> None:
    far = distances > tolerance * sizes
    if bool(far.any()):
        worst = int((distances - tolerance * sizes).argmax())
        warnings.warn(
            f"For {int(far.sum())} of {len(distances)} embeddings no cloud was found within the "
            f"tolerance {tolerance:g}: for embedding {worst} the nearest is at distance "
            f"{distances[worst].item():.2g}, with atoms {sizes[worst].item():.2g} apart. It may be the "
            "embedding of no cloud, or need more atoms or iterations.",
            ConvergenceWarning,
            stacklevel=3,
        )
