"""Drawing of atoms, of pairs of atoms and of inducing inputs; effective sizes and median distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gp_distributions.numerics.quantiles import argsort

# Two points or clouds coincide if their computed distance is at most this many rounding errors of
# the largest distance.
COINCIDENT = 100
_GOLDEN = (5**0.5 - 1) / 2


def apart(distances: Tensor, *, rounding: Tensor | float = 0.0) -> Tensor:
    """Return a mask of the distances, or squared distances, that exceed rounding of the largest one.

    Args:
        distances: A non-empty tensor of distances.
        rounding: Rounding error of each distance, whatever the largest one is.
    """
    relative = COINCIDENT * torch.finfo(distances.dtype).eps * distances.max()
    return (distances > relative) & (distances > rounding)


def median_apart(distances: Tensor, *, rounding: Tensor | float = 0.0) -> Tensor:
    """Median of the distances, or squared distances, between points or clouds that do not coincide.

    Args:
        distances: A non-empty tensor, which may hold each pair twice, as a symmetric matrix does.
        rounding: Rounding error of each distance, whatever the largest one is.

    Returns:
        The median as a scalar tensor: the lower of the two middle values if the number of distances is
        even, and NaN if all points or clouds coincide.
    """
    return distances[apart(distances, rounding=rounding)].median()


# Largest number of atoms that are sorted at a time.
_PART = 2**22


def draw_atoms(
    points: Tensor, weights: Tensor, count: int, *, seed: int = 0, covariance: Tensor | None = None
) -> Tensor:
    """Draw atoms from the average of weighted clouds, with replacement.

    An atom is drawn as the quantile of its cloud along a random direction, at a random level. The draws
    therefore depend neither on padding nor on the order of atoms, and atoms may be split into copies.

    Args:
        points: A ``C x n x d`` tensor of atoms, or of the means of Gaussian components.
        weights: A ``C x n`` tensor of weights; all clouds count equally.
        count: Smallest number of draws. Each of ``count`` clouds, or of all if they are fewer, gives
            equally many.
        seed: Random seed. The draws are the same on every device.
        covariance: A ``C x n x d x d`` tensor, the covariances of Gaussian components.

    Returns:
        An ``M x d`` tensor on the CPU, in double precision, with ``count <= M < 2 * count``.
    """
    generator = torch.Generator().manual_seed(seed)
    clouds = torch.randperm(len(points), generator=generator)[:count]
    each = -(-count // len(clouds))
    levels = torch.rand(len(clouds), each, generator=generator, dtype=torch.float64)
    direction = torch.randn(2, points.shape[-1], generator=generator, dtype=torch.float64)
    size = max(1, _PART // weights.shape[-1])
    drawn = []
    for some, level in zip(clouds.split(size), levels.split(size), strict=True):
        cloud = some.to(points.device)
        places = points[cloud].to(levels) @ direction[0]
        if covariance is not None:  # components of one mean may differ in their spread
            variances = covariance[cloud].to(levels).diagonal(dim1=-2, dim2=-1)
            places = places + variances.clamp_min(0).sqrt() @ direction[1]
        order = argsort(places)
        cumulative = weights[cloud].to(levels).gather(-1, order).cumsum(-1)
        index = torch.searchsorted(cumulative, level * cumulative[:, -1:], right=True)
        drawn.append(order.gather(-1, index).to(points.device))
    index = torch.cat(drawn).flatten()
    clouds = clouds.to(points.device).repeat_interleave(each)
    atoms = points[clouds, index].to(levels)
    if covariance is None:
        return atoms
    variances, axes = torch.linalg.eigh(covariance[clouds, index].to(levels))
    normal = torch.randn(atoms.shape, generator=generator, dtype=torch.float64)
    moves = axes @ (variances.clamp_min(0).sqrt() * normal).unsqueeze(-1)
    return atoms + moves.squeeze(-1)


def median_distance(atoms: Tensor) -> float:
    """Return the median distance between atoms that do not coincide, or zero if all coincide.

    Args:
        atoms: An ``M x d`` tensor of at least two atoms.
    """
    rounding = COINCIDENT * torch.finfo(atoms.dtype).eps * atoms.abs().max()
    return median_apart(torch.pdist(atoms), rounding=rounding).nan_to_num(0.0).item()


def draw_pairs(
    weights: Tensor, count: int, *, self_pairs: bool, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Draw pairs with replacement, with probabilities proportional to :math:`w_i w_j`.

    Without pairs of an atom with itself, the first atom is drawn with probabilities proportional to
    :math:`w_i (1 - w_i)`, and then the second among the others with probabilities
    :math:`w_j / (1 - w_i)`. One first atom comes from each of ``count`` parts of equal weight, and the
    uniform numbers that choose the second ones lie multiples of the golden ratio apart. So pairs spread
    evenly if neighbours in the order of the atoms are close, as along a curve. Memory does not grow with
    the number of all pairs.

    Args:
        weights: A ``B x n`` tensor of weights.
        count: Number of pairs drawn from each cloud.
        self_pairs: Whether the two atoms may be the same.
        generator: Random number generator.

    Returns:
        The indices of the first and of the second atoms, both ``B x count``.
    """
    weights = weights.detach()
    shape, device = (len(weights), count + 1), weights.device
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=device)
    number = torch.arange(count, dtype=torch.float64, device=device)
    parts = (number + drawn[:, 1:]) / count, (_GOLDEN * number + drawn[:, :1]) % 1
    fractions = [part.to(weights) for part in parts]
    ends = weights.cumsum(-1)
    total = ends[:, -1:]
    if self_pairs:
        first, second = (_step(ends, fraction * total) for fraction in fractions)
        return first, second
    before, after = torch.nn.functional.pad(ends[:, :-1], (1, 0)), total - ends
    steps = (weights * (before + after)).cumsum(-1)
    first = _step(steps, fractions[0] * steps[:, -1:])
    below, above = before.gather(-1, first), after.gather(-1, first)
    target = fractions[1] * (below + above)
    lower = (target < below) | (above == 0)
    beyond = ends.gather(-1, first) + (target - below)
    target = torch.where(lower, torch.minimum(target, _just_below(below)), beyond)
    return first, _step(ends, target)


def _step(ends: Tensor, targets: Tensor) -> Tensor:
    """Return the index of the step on which each target lies, never one of length zero."""
    inside = torch.minimum(targets, _just_below(ends[:, -1:]))
    return torch.searchsorted(ends, inside, right=True)


def _just_below(values: Tensor) -> Tensor:
    return torch.nextafter(values, torch.zeros_like(values))


def random_partners(weights: Tensor, given: Tensor, generator: torch.Generator) -> Tensor:
    r"""Pair each atom of a distribution with one of another at random, in proportion to both weights.

    The atoms lie side by side in random order, each as long as its weight, and so do those of the other
    distribution in their own order. The partner of an atom is the one beside a uniform random place on
    it. Hence the atoms with partner :math:`b` have the total weight of :math:`b` in expectation, and
    exactly if both have the same number of atoms of equal weight.

    Args:
        weights: Weights of the atoms, ``batch_shape x m``; zero for padding.
        given: Weights of the others, ``batch_shape x m'``.
        generator: Random generator.

    Returns:
        Indices of the partners, ``batch_shape x m``.
    """
    order, places = (
        torch.rand(weights.shape, generator=generator, dtype=torch.float64).to(weights.device)
        for _ in range(2)
    )
    order = order.argsort(-1)
    lengths = weights.double().gather(-1, order)
    places = (lengths.cumsum(-1) - lengths * places) / lengths.sum(-1, keepdim=True)
    places = torch.empty_like(places).scatter_(-1, order, places)
    edges = given.double().cumsum(-1)
    edges = edges / edges[..., -1:]
    last = edges.argmax(-1, keepdim=True)  # the rest is padding
    return torch.searchsorted(edges, places).minimum(last)


# Multiplier of hashes, an odd number (Steele, Lea and Flood 2014, Fast splittable generators).
_ODD = -0x61C8864680B583EB


def effective_sizes(points: Tensor, weights: Tensor, *, merge: bool = True) -> Tensor:
    r"""Compute the effective sample sizes of weighted clouds.

    Let :math:`w_i` be the weights of the atoms, by default after equal atoms have been merged. The
    effective sample size

    .. math:: n_\mathrm{eff} = \frac{(\sum_i w_i)^2}{\sum_i w_i^2}

    is the number of atoms if all weights are equal.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        merge: Whether equal atoms count as copies of one sample, rather than as separate measurements
            that agree.

    Returns:
        A tensor of sizes, of shape ``batch_shape``.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.sampling import effective_sizes
        >>> points, weights = torch.tensor([[0.0], [1.0], [1.0]]), torch.ones(3)
        >>> effective_sizes(points, weights), effective_sizes(points, weights, merge=False)
        (tensor(1.8000), tensor(3.0000))

    Source: Kish 1965, Survey Sampling.
    """
    weights = weights / weights.sum(-1, keepdim=True)
    if not merge:
        return 1 / weights.square().sum(-1)
    # Equal atoms are adjacent in the order of their keys, and compared with each other.
    order = _keys(points.detach()).argsort(dim=-1)
    points = points.gather(-2, order.unsqueeze(-1).expand(points.shape))
    differs = (points[..., 1:, :] != points[..., :-1, :]).any(-1)
    atom = torch.nn.functional.pad(differs.cumsum(-1), (1, 0))
    weights = weights.gather(-1, order)
    return 1 / torch.zeros_like(weights).scatter_add(-1, atom, weights).square().sum(-1)


def _keys(points: Tensor) -> Tensor:
    """Hash atoms to integers, equal for equal atoms: no rounding, unlike a projection of them."""
    keys = torch.zeros(points.shape[:-1], dtype=torch.int64, device=points.device)
    for coordinate in (points.double() + 0.0).view(torch.int64).unbind(-1):  # -0.0 becomes 0.0
        keys = (keys ^ coordinate) * _ODD
        keys ^= keys >> 32
    return keys


# Largest number of pivots that are proposed together, so that most of the work is matrix products.
_BLOCK = 128


def choose_pivots(
    covariances: Callable[[Tensor | None, Tensor], Tensor],
    variances: Tensor,
    count: int,
    *,
    tolerance: float,
    seed: int = 0,
) -> Tensor:
    r"""Choose inputs whose span under a kernel is close to all inputs.

    Let :math:`K` be the covariance matrix of ``N`` inputs and
    :math:`K_{\cdot Z} K_{ZZ}^{-1} K_{Z \cdot}` its approximation from the inputs :math:`Z` chosen so
    far. The next input is drawn with a probability proportional to its residual variance, the diagonal
    of the difference. Inputs are proposed in blocks, and a proposal is rejected with a probability
    equal to the share of its residual variance that the block has explained already. This draws from
    the same distribution as one proposal at a time.

    Args:
        covariances: Function of two tensors of indices that returns the covariances between the inputs
            with these indices; ``None`` stands for all inputs.
        variances: The ``N`` prior variances, in double precision.
        count: Largest number of inputs to choose.
        tolerance: Residual variance below which an input is not chosen.
        seed: Random seed.

    Returns:
        Indices of the chosen inputs, in the order of choice. There are fewer than ``count`` if no other
        input has a residual variance above ``tolerance``.

    Source: Chen, Epperly, Tropp and Webber 2025 (randomly pivoted Cholesky); Epperly, Tropp and Webber
    2024 (algorithm 2.2, blocks with rejection).
    """
    generator = torch.Generator().manual_seed(seed)
    residual = variances.clone()
    factor = variances.new_empty(min(count, len(variances)), len(variances))
    chosen = torch.empty(0, dtype=torch.long, device=variances.device)
    while len(chosen) < count:
        residual[residual <= tolerance] = 0
        if not bool(residual.any()):
            break
        size = min(_BLOCK, count - len(chosen))
        proposed = torch.multinomial(
            residual.cpu(), size, replacement=True, generator=generator
        ).to(residual.device)
        known = factor[: len(chosen)]
        within = covariances(proposed, proposed) - known[:, proposed].mT @ known[:, proposed]
        thresholds = torch.rand(size, generator=generator, dtype=torch.float64)
        thresholds = residual[proposed].cpu() * thresholds
        places = _accepted(within.cpu(), proposed.tolist(), thresholds, tolerance).to(proposed)
        pivots = proposed[places]
        left = covariances(None, pivots) - known.mT @ known[:, pivots]
        # Rounding errors of distances are not small beside a tiny lengthscale: two evaluations of one
        # covariance can differ, and only this one has been checked.
        left[pivots] = within[places][:, places]
        root = torch.linalg.cholesky(left[pivots])
        new = torch.linalg.solve_triangular(root, left.mT, upper=False)
        factor[len(chosen) : len(chosen) + len(pivots)] = new
        residual -= new.square().sum(0)
        residual[pivots] = 0
        chosen = torch.cat([chosen, pivots])
    return chosen


def _accepted(
    within: Tensor, proposed: Sequence[int], thresholds: Tensor, tolerance: float
) -> Tensor:
    """Return the places of the proposals that are accepted, each input at most once.

    They have a residual variance above a threshold, given those accepted before them.
    """
    places: list[int] = []
    taken: set[int] = set()
    for i, index in enumerate(proposed):
        pivot = within[i, i]
        if index not in taken and pivot > max(float(thresholds[i]), tolerance):
            places.append(i)
            taken.add(index)
            within = within - torch.outer(within[:, i], within[i]) / pivot
    return torch.tensor(places, dtype=torch.long)
