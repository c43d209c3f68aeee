"""Search for clouds with given embeddings, to draw the results of methods on embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances.base import Distance
from gp_distributions.distances.rigid_sliced_wasserstein import RigidSlicedWasserstein
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.transport import LinearTransport
from gp_distributions.measures import Gaussians, PointClouds
from gp_distributions.numerics.nearest import nearest_cloud, procrustes
from gp_distributions.rows.clouds import join_rows
from gp_distributions.warnings import ConvergenceWarning, warn

# Distance between embeddings at which the search stops, relative to the root mean square distance
# between two atoms.
_ENOUGH = 1e-4


@dataclass(frozen=True, eq=False)
class Inversion:
    """Clouds whose embeddings are close to given embeddings.

    Attributes:
        clouds: The ``N`` clouds.
        distances: The ``N`` distances between the embeddings of the clouds and the given embeddings.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> from gp_distributions.distances import invert_embedding
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(2, 10, 2)))
        >>> distance = SlicedWasserstein(2, num_slices=20, num_quantiles=10)
        >>> inversion = invert_embedding(distance, distance.embed(clouds.pack()), atoms=10)
        >>> inversion.clouds
        PointClouds(2 clouds, 10 atoms, d=2, float64)
        >>> bool((inversion.distances < 1e-3).all())
        True
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
    r"""Find clouds whose embeddings are closest to given embeddings.

    The function turns means, combinations and directions of embeddings into shapes: barycentres, k-means
    centres, and the mean plus a multiple of a principal component or of the normal of a linear
    classifier.

    L-BFGS minimises the distance between the embedding :math:`\varphi(X, w)` of atoms :math:`X` with
    weights :math:`w` and the given embedding :math:`z`,

    .. math::
        \min_{X, w} |\varphi(X, w) - z|^2,

    until 20 iterations gain less than 1%.

    The search starts from

    - normal samples with the mean and the size that the embedding encodes, for
      :class:`SlicedWasserstein` of order 2. With ``center=True``, the clouds are centred at zero;
    - normal samples with the size that the embedding encodes, for :class:`RigidSlicedWasserstein`. The
      embedding does not determine the pose: the clouds are returned in the pose in which their atoms
      are closest to those of the start. To compare clouds, use :func:`align`;
    - the transported atoms of the reference, with the weights of the reference, for
      :class:`LinearTransport`, whose embedding consists of these atoms. ``max_iterations=0`` returns
      them unchanged; they differ from the embedded cloud by the entropic blur.

    In two or more dimensions, most combinations of embeddings are not the embedding of any cloud, so
    the distance stays positive for any number of atoms.

    Args:
        distance: Distance between clouds.
        embeddings: An ``N x D`` tensor of embeddings from ``distance.embed``, or combinations of these.
        atoms: Number of atoms. Default: twice ``num_quantiles`` for sliced Wasserstein, four times for
            its rigid version, and the size of the reference for linear transport. For linear transport,
            a given number of atoms is drawn from the transported atoms.
        learn_weights: Whether to optimise the weights if the atoms alone do not reach the embedding.
        start: One cloud, or ``N`` clouds, to start from instead of the clouds described above.
        max_iterations: Maximum number of iterations for each cloud.
        tolerance: Distance above which to warn, as a multiple of the root mean square distance between
            two atoms of the start.
        seed: Random seed for the start.
        progress: Whether to show a progress bar.

    Returns:
        The clouds and the distances between their embeddings and the given embeddings.

    Raises:
        TypeError: If embeddings of the distance cannot be inverted, or ``embeddings`` is not a
            floating-point tensor.
        ValueError: If the distance reads normals, the number of features does not match the distance, a
            feature is not finite, ``start`` does not match the embeddings, or ``atoms`` is given
            although ``start``, or a sliced Wasserstein distance with ``num_quantiles=None``, determines
            the number of atoms.

    Warns:
        ConvergenceWarning: If a distance exceeds ``tolerance``.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> from gp_distributions.distances import invert_embedding
        >>> points = np.random.default_rng(0).normal(size=(10, 2))
        >>> clouds = PointClouds(np.stack([points - 1, points + 3]))
        >>> distance = SlicedWasserstein(2, num_slices=20, num_quantiles=10)
        >>> mean = distance.embed(clouds.pack()).mean(0, keepdim=True)
        >>> barycentre = invert_embedding(distance, mean, atoms=10, learn_weights=False).clouds
        >>> np.allclose(barycentre.points.mean(1), points.mean(0) + 1, atol=1e-3)
        True

    Sources: Bonneel et al. 2015 (sliced barycentres); Kolouri, Zou and Rohde 2016; Wang et al. 2013.
    """
    sliced = isinstance(distance, SlicedWasserstein) and distance.euclidean
    other = isinstance(distance, LinearTransport | RigidSlicedWasserstein)
    if distance.inputs != "clouds" or not (sliced or other):
        raise TypeError(
            "Expected a SlicedWasserstein distance of order 2, a RigidSlicedWasserstein or a "
            f"LinearTransport between clouds, got {distance!r}, whose embeddings cannot be inverted."
        )
    if isinstance(distance, RigidSlicedWasserstein) and distance.normals:
        raise ValueError(
            f"Expected a distance without normals, got {distance!r}: normals cannot move freely."
        )
    _check_embeddings(distance, embeddings)
    embeddings = embeddings.detach()
    if atoms is not None and (start is not None or _is_exact(distance)):
        given = "start" if start is not None else "num_quantiles=None"
        raise ValueError(
            f"Expected atoms=None, as {given} determines the number of atoms, got atoms={atoms}."
        )
    if start is None:
        start = _start(distance, embeddings.double(), atoms, seed)
    elif not start.batch_shape or len(start) == 1:
        start = PointClouds.unpack(start.pack().double().expand(len(embeddings), -1), start.dim)
    if len(start) != len(embeddings) or start.dim != distance.dim or len(start.batch_shape) != 1:
        raise ValueError(
            f"Expected one start, or one for each of {len(embeddings)} embeddings, in "
            f"{distance.dim} dimensions, got {start!r}."
        )
    # The size of a point mass is zero up to rounding.
    rounding = torch.finfo(embeddings.dtype).eps ** 0.5 * embeddings.norm(dim=-1)
    sizes = torch.maximum(_atom_distances(start).to(embeddings), rounding)

    def embed(points: Tensor, weights: Tensor) -> Tensor:
        return distance.represent_rows(join_rows(points, weights))

    search = partial(
        nearest_cloud, embed, learn_weights=learn_weights, max_iterations=max_iterations
    )
    found = []
    for target, points, weights, size in zip(
        tqdm(embeddings, desc="Inverting", disable=not progress),
        start.points.detach().to(embeddings),
        start.weights.detach().to(embeddings),
        sizes.tolist(),
        strict=True,
    ):
        points, weights = points[weights > 0], weights[weights > 0]
        moved, masses, reached = search(target, points, weights, enough=_ENOUGH * size)
        if isinstance(distance, RigidSlicedWasserstein):
            moved = _in_pose(distance, moved, masses, points)
            # By the error of the quadrature, the embedding depends on the pose.
            reached = float((embed(moved[None], masses[None])[0] - target).norm())
        found.append((moved.double(), masses.double(), reached))
    atoms_found, masses_found, distances_found = zip(*found, strict=True)
    clouds = PointClouds.from_list(atoms_found, masses_found)
    distances = sizes.new_tensor(distances_found)
    excess = distances - tolerance * sizes
    worst = int(excess.argmax())
    if excess[worst] > 0:
        warn(
            f"No cloud was found within the tolerance {tolerance:g} for {int((excess > 0).sum())} of "
            f"{len(distances)} embeddings. The worst is embedding {worst}: the closest cloud found is "
            f"at distance {distances[worst].item():.2g}, while the root mean square distance between "
            f"atoms of the start is {sizes[worst].item():.2g}. The embedding may not be that of any "
            "cloud, or may need more atoms or iterations.",
            ConvergenceWarning,
        )
    return Inversion(clouds.to(embeddings), distances)


def _check_embeddings(distance: Distance, embeddings: Tensor) -> None:
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise TypeError(f"Expected embeddings as a tensor of floating-point numbers, got {kind}.")
    atom = join_rows(embeddings.new_zeros(1, 1, distance.dim), embeddings.new_ones(1, 1))
    count = distance.represent_rows(atom).shape[-1]
    step = (
        int(getattr(distance, "num_slices", 0)) if _is_exact(distance) else 0
    )  # for each further atom
    fits = embeddings.dim() == 2 and len(embeddings) > 0
    further = embeddings.shape[-1] - count if fits else -1
    if further < 0 or (further % step if step else further):
        raise ValueError(
            f"Expected embeddings as an N x D tensor with {count} features"
            f"{f', and {step} for each further atom' if step else ''}, got shape "
            f"{tuple(embeddings.shape)}."
        )
    bad = (~embeddings.isfinite().all(-1)).nonzero()
    if len(bad):
        raise ValueError(f"Expected finite embeddings, but embedding {int(bad[0])} is not finite.")


def _is_exact(distance: Distance) -> bool:
    """Whether the embedding has a quantile for each atom."""
    return isinstance(distance, SlicedWasserstein) and distance.num_quantiles is None


def _start(distance: Distance, embeddings: Tensor, atoms: int | None, seed: int) -> PointClouds:
    if isinstance(distance, LinearTransport):
        weights = distance.reference.weights.detach().to(embeddings)
        scaled = embeddings.unflatten(-1, (len(weights), distance.dim))
        points = scaled / weights.sqrt().unsqueeze(-1)
        clouds = PointClouds(points, weights.expand(points.shape[:-1]))
        return clouds if atoms is None else clouds.resample(atoms, seed=seed)
    dim = distance.dim
    quantiles, means = embeddings, embeddings.new_zeros(len(embeddings), dim)
    if isinstance(distance, RigidSlicedWasserstein):
        size = atoms or 4 * distance.num_quantiles
    else:
        assert isinstance(distance, SlicedWasserstein)
        if distance.slices_means and not distance.center:
            quantiles, means = _without_means(distance, embeddings)
        elif not distance.center:
            quantiles, means = embeddings[:, :-dim], embeddings[:, -dim:] * math.sqrt(dim)
        count = distance.num_quantiles
        size = quantiles.shape[-1] // distance.num_slices if count is None else atoms or 2 * count
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    # The variance of a coordinate is the mean square of the centred quantiles over the slices, which
    # is the squared norm of the harmonic coefficients too.
    deviations = quantiles.square().sum(-1).sqrt()
    return PointClouds(means[:, None, :] + deviations[:, None, None] * normal.to(embeddings))


def _without_means(distance: SlicedWasserstein, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Return the quantiles of slices about their means, and the mean whose slices fit best."""
    slices = embeddings.unflatten(-1, (distance.num_slices, -1))
    averages = slices.mean(-1, keepdim=True)
    projected = averages.squeeze(-1) * math.sqrt(embeddings.shape[-1])
    means = projected @ torch.linalg.pinv(distance.directions.to(embeddings)).mT
    return (slices - averages).flatten(-2), means


def _in_pose(
    distance: RigidSlicedWasserstein, points: Tensor, weights: Tensor, start: Tensor
) -> Tensor:
    """Move a cloud, without changing its embedding, so that its atoms are closest to the start."""
    sizes = [distance.dim - distance.marks, distance.marks]
    (moving, marks), (fixed, _) = points.split(sizes, dim=-1), start.split(sizes, dim=-1)
    posed = procrustes(moving, fixed, weights, center=distance.center, scale=distance.scale)
    return torch.cat([posed, marks], dim=-1)


def _atom_distances(clouds: PointClouds) -> Tensor:
    """Return the root mean square distance between two atoms of each cloud."""
    covariance = Gaussians.from_clouds(clouds).covariance.detach()
    return (2 * covariance.diagonal(dim1=-2, dim2=-1).sum(-1)).sqrt()
