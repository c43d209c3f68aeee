"""The kernel of distributions whose targets are sums, means or draws of a function of atoms."""

from __future__ import annotations

from typing import Literal

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import ConstantKernel, Kernel, LinearKernel, RBFKernel, ScaleKernel
from torch import Tensor

from gp_distributions.kernels.copies import with_outputscale
from gp_distributions.kernels.distribution_kernel import dimension_scaled_prior
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures.arrays import described
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.expected_kernels import has_terms
from gp_distributions.warnings import CostWarning, warn

# With more atoms in all training clouds, random features replace pairs of atoms: so many of them if
# coordinates have lengthscales, and if they share one.
_MANY_ATOMS, _NUM_FEATURES, _NUM_ISOTROPIC = 3000, 256, 1024
# Fits to more atoms with the default number of features warn.
_COSTLY = 100_000
# With fewer clouds than this for each coordinate, all share a lengthscale: one for each would overfit.
_CLOUDS_EACH = 10
# The isotropic lengthscale starts at so many times the root mean squared distance between atoms.
_OF_DISTANCE = 1.5

Kinds = Literal["independent", "correlated"]


def aggregate_kernel(
    X: object,
    covar_module: Kernel | None = None,
    *,
    level: float | None = None,
    num_features: int | None = None,
    kinds: Kinds = "independent",
) -> ExpectedKernel:
    """Make the kernel of distributions that a kernel of atoms, or the default one, defines.

    :class:`AggregateGP` makes it itself. For labels, pass it to a :class:`ClassificationGP`, whose
    latent functions then are means of functions of atoms. If all coordinates share a lengthscale,
    :func:`fit` chooses it by labels that are left out.

    Args:
        X: The training inputs, :class:`PointClouds` or :class:`Gaussians`.
        covar_module: A kernel of atoms, as for :class:`AggregateGP`. Default: that of
            :class:`AggregateGP`.
        level: If targets are sums, the variance of the constants that the function of each kind has.
        num_features: Number of random features for each RBF kernel. Default: none for up to 3000 atoms.
        kinds: Whether the functions of kinds of atoms are ``"independent"`` or ``"correlated"``.

    Returns:
        The kernel, in units of the coordinates.

    Raises:
        TypeError: If ``X`` are neither clouds nor Gaussians, or are Gaussians and targets are sums.
        ValueError: If ``kinds`` is another word.

    Example:
        >>> import torch
        >>> from gp_distributions import ClassificationGP, PointClouds, fit
        >>> from gp_distributions.kernels import aggregate_kernel
        >>> noise = torch.randn(20, 15, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> wide = torch.arange(20) % 2
        >>> X = PointClouds(noise * (1 + wide).reshape(-1, 1, 1))
        >>> model = fit(ClassificationGP(X[:16], wide[:16], aggregate_kernel(X[:16])))
        >>> model.predict(X[16:]).tolist()
        [0, 1, 0, 1]
    """
    if not isinstance(X, PointClouds | Gaussians) or (level and not isinstance(X, PointClouds)):
        expected = "PointClouds" if level else "PointClouds or Gaussians"
        raise TypeError(f"Expected {expected} as train_X, got {described(X)}.")
    if kinds not in ("independent", "correlated"):
        raise ValueError(f'Expected kinds to be "independent" or "correlated", got {kinds!r}.')
    inputs: Literal["clouds", "gaussians"] = "gaussians" if isinstance(X, Gaussians) else "clouds"
    num_kinds = 0 if isinstance(X, Gaussians) else len(X.kind_names)
    centre = scale = None
    count = _NUM_FEATURES
    if covar_module is None and isinstance(X, PointClouds) and X.geometric:
        covar_module, count = _isotropic(X), _NUM_ISOTROPIC
    elif covar_module is None:
        centre, scale = _centre_and_scale(X)
        dim = len(scale)
        if isinstance(X, PointClouds) and len(X) < _CLOUDS_EACH * dim:
            covar_module, count = _isotropic(X, scale) + _linear(1 / dim), _NUM_ISOTROPIC
        else:
            covar_module = _of_coordinates(dim)
    if isinstance(covar_module, Kernel):  # ExpectedKernel refuses anything else
        covar_module = with_outputscale(covar_module)
        parts = list(covar_module.modules())
        if (level or num_kinds) and not any(isinstance(part, ConstantKernel) for part in parts):
            constant = ConstantKernel(constant_constraint=_log(torch.tensor([level or 1.0])))
            covar_module = covar_module + constant.double()
    if num_features is None and isinstance(X, PointClouds):
        atoms = int((X.weights > 0).sum())
        num_features = count if atoms > _MANY_ATOMS and has_terms(covar_module) else None
        if atoms > _COSTLY:
            warn(
                f"A fit to {atoms:,} atoms takes minutes: time grows with their number times that of "
                f"random features, {num_features}. Pass a smaller num_features=, or use "
                "SparseAggregateGP.",
                CostWarning,
            )
    return ExpectedKernel(
        covar_module,
        X.dim,
        inputs=inputs,
        num_features=num_features,
        num_kinds=num_kinds,
        correlated=num_kinds > 1 and kinds == "correlated",
        total=level is not None,
        centre=centre,
        scale=scale,
    )


def masses_of_kinds(X: PointClouds) -> Tensor:
    """Return the mass of the atoms of each kind, ``N x kinds``; of all atoms if they have no kinds."""
    if not X.kind_names:
        return X.mass.unsqueeze(-1)
    kinds = torch.arange(len(X.kind_names), device=X.device)
    return (X.masses.unsqueeze(-1) * (X.points[..., -1:].long() == kinds)).sum(-2)


def scale_and_level(X: PointClouds, targets: Tensor) -> tuple[float, float]:
    """Return the scale of sums, and the variance of constants of atoms in that scale.

    The scale is the standard deviation of what a line in the masses of kinds leaves of ``N`` targets,
    and the constants are its slopes.
    """
    masses = masses_of_kinds(X).detach().to(targets)
    slopes = torch.linalg.pinv(masses) @ targets
    left = targets - masses @ slopes
    size = float(targets.square().mean().sqrt())
    spread = float(left.square().mean().sqrt())
    scale = spread if spread > 1e-9 * size else (size or 1.0)
    return scale, max(float(slopes.square().mean()) / scale**2, 1e-6)


def _centre_and_scale(X: PointClouds | Gaussians) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each coordinate over all atoms; 1 if it is constant."""
    mean, variance, weights = (moment.detach() for moment in X._components())
    size = X.positions.shape[-1] if isinstance(X, PointClouds) else X.dim
    mean, variance = mean[..., :size], variance[..., :size]
    shares = (weights / weights.sum()).unsqueeze(-1)
    axes = tuple(range(mean.dim() - 1))
    centre = (shares * mean).sum(axes)
    scale = (shares * (variance + (mean - centre).square())).sum(axes).sqrt()
    rounding = 64 * torch.finfo(scale.dtype).eps * centre.abs()
    return centre, torch.where(scale > rounding, scale, 1.0)


def _of_coordinates(dim: int) -> Kernel:
    """Return an RBF kernel with lengthscales, which have BoTorch's prior, plus a linear kernel."""
    prior = dimension_scaled_prior(dim)
    smooth = RBFKernel(
        ard_num_dims=dim, lengthscale_prior=prior, lengthscale_constraint=_log(prior.mode)
    )
    scaled = ScaleKernel(smooth, outputscale_constraint=_log(torch.tensor(1.0)))
    return (scaled + _linear(0.1)).double()


def _linear(variance: float) -> Kernel:
    return LinearKernel(variance_constraint=_log(torch.tensor(variance))).double()


def _isotropic(X: PointClouds, scale: Tensor | float = 1.0) -> Kernel:
    """Return an RBF kernel with one lengthscale, which starts at distances between atoms of a kind."""
    atoms = (X.positions.detach() / scale).flatten(0, -2)
    shares = X.weights.detach().flatten()
    kinds = (
        X.points[..., -1].detach().long().flatten()
        if X.kind_names
        else torch.zeros_like(shares, dtype=torch.long)
    )
    masses = shares.new_zeros(max(1, len(X.kind_names))).index_add(0, kinds, shares)
    sums = atoms.new_zeros(len(masses), atoms.shape[-1])
    sums = sums.index_add(0, kinds, shares.unsqueeze(-1) * atoms)
    centres = sums / masses.clamp_min(torch.finfo(masses.dtype).tiny).unsqueeze(-1)
    variance = (shares * (atoms - centres[kinds]).square().sum(-1)).sum() / shares.sum()
    start = _OF_DISTANCE * (2 * variance).sqrt() if variance > 0 else torch.tensor(1.0)
    smooth = RBFKernel(lengthscale_constraint=_log(start))
    return ScaleKernel(smooth, outputscale_constraint=_log(torch.tensor(1.0))).double()


def _log(start: Tensor) -> Positive:
    """Return a constraint of a positive parameter whose logarithm is learned."""
    return Positive(torch.exp, torch.log, initial_value=start)
