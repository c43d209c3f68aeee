"""Gaussian processes of a function of atoms, of which each target is a mean or a draw."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures import Gaussians, PointClouds
from gp_distributions.measures.arrays import given_points
from gp_distributions.measures.described import described
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.training_data import TrainingData
from gp_distributions.models.arguments import gaussian_noise, noise_floor
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.draw_noise import DrawNoiseLikelihood
from gp_distributions.models.regression import Moments
from gp_distributions.numerics.expected_kernels import has_terms

# With more atoms in all training clouds, random features replace pairs of atoms, so many of them.
_MANY_ATOMS, _NUM_FEATURES = 3000, 256


class AggregateGP(DistributionGP):
    r"""Gaussian process regression on a function of atoms that is observed through distributions.

    The unknown function :math:`f` of the ``d`` coordinates of an atom is a Gaussian process with the
    covariances :math:`k`. The target of a distribution :math:`P` is

    .. math::
        y = \int f\, dP + \epsilon \quad (\texttt{"mean"}), \qquad
        y = f(x) + \epsilon,\ x \sim P \quad (\texttt{"draw"}).

    A mean is, for example, the vote of a region, as a function of its people. A draw is a measurement at
    an input that is known with an error: pass :meth:`Gaussians.from_mean_std`. Both have the prior
    covariances :math:`\mathrm E_{x \sim P, x' \sim P'} k(x, x')`, see :class:`ExpectedKernel`. A draw
    has further noise, the variance of :math:`f` within :math:`P`, see :class:`DrawNoiseLikelihood`. All
    parameters are learned by :func:`fit`.

    Predictions, leave-one-out predictions, posteriors, acquisition functions and files are those of
    :class:`DistributionGP`. :meth:`predict_atoms` predicts :math:`f` itself. Targets that are means
    determine :math:`f` only where the composition of the distributions differs.

    Args:
        train_X: The ``T`` training distributions, as :class:`PointClouds` or :class:`Gaussians`.
        train_Y: The ``T`` targets, or ``T x 1``.
        covar_module: A GPyTorch kernel of atoms, ``N x d`` tensors in the units of the data. For
            :class:`Gaussians` or with ``num_features``, a sum of RBF and linear kernels. Default: an RBF
            kernel with a lengthscale for each coordinate and a linear kernel, both of coordinates in
            units of their standard deviation over all atoms.
        aggregate: What a target is: ``"mean"`` or ``"draw"``.
        num_features: Number of random features in place of an RBF kernel, for clouds. The time of a fit
            grows with the number of atoms times that of features, without them with the square of the
            number of atoms. Default: 256 if the training clouds have more than 3,000 atoms in all and
            ``covar_module`` allows them.
        likelihood: The likelihood. Default: Gaussian noise, or a :class:`DrawNoiseLikelihood`.
        mean_module: The mean of :math:`f`, which must be a constant. Default: a learned constant.
        outcome_transform: Transform of the targets, as for :class:`DistributionGP`.
        train_Yvar: Known noise variances of the targets, for means only.
        sampling_noise: Whether atoms are independent samples of larger populations, so that smaller
            clouds have more noise, as for :class:`DistributionGP`; for means only.

    Raises:
        TypeError: If ``train_X`` is neither :class:`PointClouds` nor :class:`Gaussians`, or
            ``covar_module`` is not a kernel.
        ValueError: As for :class:`DistributionGP`; or ``aggregate`` has another value, ``train_Y`` has
            several outputs, ``covar_module`` is of a kind that has no closed form under
            :class:`Gaussians` or no random features, or a draw comes with ``train_Yvar``, ``likelihood``
            or ``sampling_noise``.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import AggregateGP, PointClouds, fit
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(30, 5, 1)))
        >>> model = fit(AggregateGP(clouds, clouds.points.square().mean((-2, -1))))
        >>> mean, std = model.predict_atoms([[0.0], [2.0]])  # close to 0 and 4
        >>> bool((mean[1] - 4).abs() < 0.5)
        True

    Sources: Law et al. 2018 (means); Girard et al. 2003 (draws); Muandet et al. 2012.
    """

    covar_module: ExpectedKernel

    def __init__(
        self,
        train_X: PointClouds | Gaussians | TrainingData,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        aggregate: Literal["mean", "draw"] = "mean",
        num_features: int | None = None,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        train_Yvar: Tensor | ArrayLike | None = None,
        sampling_noise: bool | Literal["ties"] = False,
    ) -> None:
        data = TrainingData.read(train_X, train_Y, train_Yvar)
        if data.targets.shape[-1] > 1:
            raise ValueError(
                f"Expected one output, got {data.targets.shape[-1]}. Make a model for each output."
            )
        if not isinstance(covar_module, ExpectedKernel):
            covar_module = _expected_kernel(data.X, covar_module, num_features)
        if aggregate == "draw":
            if likelihood is not None or data.variances is not None or sampling_noise:
                raise ValueError(
                    'Expected no likelihood, train_Yvar or sampling_noise with aggregate="draw", whose '
                    "noise is that of a DrawNoiseLikelihood."
                )
            likelihood = DrawNoiseLikelihood(
                covar_module, **gaussian_noise(noise_floor(data.dtype))
            )
        elif aggregate != "mean":
            raise ValueError(f'Expected aggregate to be "mean" or "draw", got {aggregate!r}.')
        super().__init__(
            data,
            None,
            covar_module,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            sampling_noise=sampling_noise,
        )

    @property
    def aggregate(self) -> str:
        """What a target is: the ``"mean"`` of the function over atoms, or a ``"draw"`` of it."""
        return "draw" if isinstance(self.likelihood, DrawNoiseLikelihood) else "mean"

    def predict_atoms(self, points: Tensor | ArrayLike, **options: Any) -> Moments:
        """Predict the function of atoms.

        Args:
            points: An ``N x d`` tensor or array of atoms.
            **options: ``batch_size``, as for :meth:`predict`.

        Returns:
            The means and standard deviations of the function at the atoms, ``N`` each, in the units of
            ``train_Y``.

        Raises:
            ValueError: If the shape is wrong or a coordinate is not finite.

        Example:
            >>> from gp_distributions import AggregateGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> mean, std = AggregateGP(clouds, [0.0, 1.0, 2.0]).predict_atoms([[0.1], [2.1]])
            >>> mean.shape, bool(mean[0] < mean[1])
            (torch.Size([2]), True)
        """
        given = given_points(points, "Points", ("N", self.covar_module.dim))
        atoms = PointClouds(given.unsqueeze(-2))
        if self.covar_module.inputs == "gaussians":
            at: PointClouds | Gaussians = Gaussians.from_clouds(atoms)
        else:
            at = atoms
        mean, std = self.predict(at, observation_noise=False, **options)
        return mean.reshape(len(atoms)), std.reshape(len(atoms))

    def contributions(self, X: PointClouds, **options: Any) -> Moments:
        r"""Predict what each atom contributes to the mean of its cloud.

        The contribution of atom :math:`x_a` of weight :math:`w_a` is :math:`w_a f(x_a)`. Their means
        sum to the predicted mean of the cloud; their errors are not independent.

        Args:
            X: The ``N`` clouds, of up to ``m`` atoms.
            **options: ``batch_size``, as for :meth:`predict`, counts atoms.

        Returns:
            The means and standard deviations of the contributions, ``N x m`` each, in the units of
            ``train_Y``; zero for padding.

        Raises:
            TypeError: If ``X`` are not :class:`PointClouds`.

        Example:
            >>> from gp_distributions import AggregateGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> model = AggregateGP(clouds, [0.0, 1.0, 2.0])
            >>> mean, std = model.contributions(clouds)
            >>> bool((mean.sum(-1) - model.predict(clouds)[0]).abs().max() < 1e-10)
            True
        """
        if not isinstance(X, PointClouds):
            raise TypeError(f"Expected PointClouds, whose atoms contribute, got {described(X)}.")
        weights = X.weights.to(self.dtype)
        used = weights > 0
        found = []
        for moment in self.predict_atoms(X.points[used], **options):
            spread = weights.new_zeros(weights.shape)
            spread[used] = moment
            found.append(weights * spread)
        return found[0], found[1]


def _expected_kernel(
    X: Inputs | Tensor, covar_module: Kernel | None, num_features: int | None
) -> ExpectedKernel:
    """Return the kernel of the distributions that a kernel of atoms, or the default one, defines."""
    if not isinstance(X, PointClouds | Gaussians):
        raise TypeError(f"Expected PointClouds or Gaussians as train_X, got {described(X)}.")
    inputs: Literal["clouds", "gaussians"] = "gaussians" if isinstance(X, Gaussians) else "clouds"
    centre = scale = None
    if covar_module is None:
        centre, scale = _centre_and_scale(X)
        covar_module = _default_kernel(X.dim)
    if num_features is None and isinstance(X, PointClouds):
        many = int((X.weights > 0).sum()) > _MANY_ATOMS
        num_features = _NUM_FEATURES if many and has_terms(covar_module) else None
    return ExpectedKernel(
        covar_module, X.dim, inputs=inputs, num_features=num_features, centre=centre, scale=scale
    )


def _centre_and_scale(X: PointClouds | Gaussians) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each coordinate over all atoms; 1 if it is constant."""
    mean, variance, weights = (moment.detach() for moment in X._components())
    shares = (weights / weights.sum()).unsqueeze(-1)
    axes = tuple(range(mean.dim() - 1))
    centre = (shares * mean).sum(axes)
    scale = (shares * (variance + (mean - centre).square())).sum(axes).sqrt()
    return centre, torch.where(scale > 0, scale, 1.0)


def _default_kernel(dim: int) -> Kernel:
    """Return an RBF kernel with lengthscales, which have BoTorch's prior, plus a linear kernel."""
    prior = LogNormalPrior(math.sqrt(2) + math.log(dim) / 2, math.sqrt(3))
    smooth = RBFKernel(
        ard_num_dims=dim, lengthscale_prior=prior, lengthscale_constraint=_log(prior.mode)
    )
    linear = LinearKernel(variance_constraint=_log(torch.tensor(0.1)))
    scaled = ScaleKernel(smooth, outputscale_constraint=_log(torch.tensor(1.0)))
    return (scaled + linear).double()


def _log(start: Tensor) -> Positive:
    """Return a constraint of a positive parameter whose logarithm is learned."""
    return Positive(torch.exp, torch.log, initial_value=start)
