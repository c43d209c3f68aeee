"""Gaussian processes of a function of atoms, of which each target is a sum, a mean or a draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from linear_operator import to_linear_operator
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.hosts import DefaultType
from gp_distributions.kernels.aggregates import Kinds
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures import Gaussians, PointClouds
from gp_distributions.measures.inputs import AtomEncoding, TrainingData
from gp_distributions.models.arguments import SamplingNoise, gaussian_noise
from gp_distributions.models.atoms import AtomPredictions, aggregate_parts, check_one_output
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.draw_noise import (
    AddedNoiseLikelihood,
    DrawNoiseLikelihood,
    draws_of,
)
from gp_distributions.models.exact_inference import ExactMultivariateNormal, Moments

# Number of covariances of draws with training targets that are held at a time.
_HELD = 2**22


class AggregateGP(AtomPredictions, DistributionGP):
    r"""Gaussian process regression on a function of atoms that is observed through distributions.

    The unknown function :math:`f` of the ``d`` coordinates of an atom is a Gaussian process with the
    covariances :math:`k`. The target of a distribution :math:`P` is

    .. math::
        y = \int f\, dP + \epsilon \quad (\texttt{"mean"}), \qquad
        y = \sum_a m_a f(x_a) + \epsilon \quad (\texttt{"sum"}), \qquad
        y = f(x) + \epsilon,\ x \sim P \quad (\texttt{"draw"}).

    A mean is, for example, the vote of a region, as a function of its people. A sum is the energy of a
    molecule; the masses :math:`m_a` are the weights as they were given, one for each atom by default. If
    atoms have kinds, as elements, there is a function of each kind. A draw is a measurement at
    an input that is known with an error: pass :meth:`Gaussians.from_mean_std`. Both have the prior
    covariances :math:`\mathrm E_{x \sim P, x' \sim P'} k(x, x')`, see :class:`ExpectedKernel`. A draw
    has further noise, the variance of :math:`f` within :math:`P`, see :class:`DrawNoiseLikelihood`;
    predictions for a new :math:`P` are those of :math:`f(x)`, whose variance is the mean posterior
    variance over :math:`x \sim P` plus the variance of the posterior mean. All parameters are learned by
    :func:`fit`. For more than some thousand targets, use :class:`SparseAggregateGP`.

    Predictions, leave-one-out predictions, posteriors, acquisition functions and files are those of
    :class:`DistributionGP`. :meth:`predict_atoms` predicts :math:`f` itself, and :meth:`contributions`
    the part of each atom. Targets that are means or sums determine :math:`f` only where the composition
    of the distributions differs.

    Args:
        train_X: The ``T`` training distributions, as :class:`PointClouds` or :class:`Gaussians`.
        train_Y: The ``T`` targets, or ``T x 1``. For labels, make a
            ``ClassificationGP(X, labels, aggregate_kernel(X))``, see :func:`kernels.aggregate_kernel`.
        covar_module: A GPyTorch kernel of atoms, ``N x d`` tensors in the units of the data. For
            :class:`Gaussians` or with ``num_features``, a sum of RBF, linear and constant kernels. A
            constant is added for sums and for kinds. Default: an RBF kernel with a lengthscale for each
            coordinate, or one if there are fewer than ten clouds for each, and a linear kernel, both of
            coordinates in units of their standard deviation over all atoms; for clouds that are
            ``geometric``, whose coordinates have one unit, an RBF kernel with one lengthscale.
        aggregate: What a target is: ``"mean"``, ``"sum"`` or ``"draw"``.
        num_features: Number of random features in place of an RBF kernel, for clouds. The time of a fit
            grows with the number of atoms times that of features, without them with the square of the
            number of atoms. Default: 256, or 1,024 for the default kernel with one lengthscale, if the
            training clouds have more than 3,000 atoms in all and ``covar_module`` allows them.
        kinds: Whether the functions of kinds of atoms are ``"independent"`` or ``"correlated"``, with
            correlations that are learned.
        likelihood: The likelihood. Default: Gaussian noise, or a :class:`DrawNoiseLikelihood`.
        mean_module: The mean of :math:`f`, which must be a constant. Default: a learned constant; zero
            for sums and with kinds, of which the constant kernel is the mean of each kind.
        outcome_transform: Transform of the targets, as for :class:`DistributionGP`. Default: sums are
            divided by what a line in the masses of kinds leaves of them, and not shifted.
        train_Yvar: Known variances :math:`v_i` of the errors of the targets, such as squared standard
            errors. The noise is :math:`a + v_i` with a learned :math:`a`, what regions differ by; that
            of new targets has the mean of the :math:`v_i`.
        sampling_noise: Whether atoms are independent samples of larger populations, so that smaller
            clouds have more noise, as for :class:`DistributionGP`; for means only.

    Raises:
        TypeError: If ``train_X`` is neither :class:`PointClouds` nor :class:`Gaussians`, is
            :class:`Gaussians` and targets are sums, or ``covar_module`` is not a kernel.
        ValueError: As for :class:`DistributionGP`; or ``aggregate`` has another value, ``train_Y`` has
            several outputs, ``covar_module`` is of a kind that has no closed form under
            :class:`Gaussians` or no random features, or a draw comes with ``likelihood`` or
            ``sampling_noise``.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import AggregateGP, PointClouds, fit
        >>> rng = np.random.default_rng(0)
        >>> clouds = PointClouds(rng.normal(size=(30, 5, 1)))
        >>> noise = 0.01 * rng.normal(size=30)
        >>> model = fit(AggregateGP(clouds, clouds.points.square().mean((-2, -1)).numpy() + noise))
        >>> mean, std = model.predict_atoms([[0.0], [2.0]])  # close to 0 and 4
        >>> bool((mean[1] - 4).abs() < 0.5)
        True

    Sources: Law et al. 2018 (means); Girard et al. 2003 (draws); Muandet et al. 2012.
    """

    def __init__(
        self,
        train_X: PointClouds | Gaussians | TrainingData,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        aggregate: Literal["mean", "sum", "draw"] = "mean",
        num_features: int | None = None,
        kinds: Kinds = "independent",
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        train_Yvar: Tensor | ArrayLike | None = None,
        sampling_noise: SamplingNoise = None,
    ) -> None:
        data = TrainingData.read(train_X, train_Y, train_Yvar)
        check_one_output(data.targets)
        if aggregate not in ("mean", "sum", "draw"):
            raise ValueError(
                f'Expected aggregate to be "mean", "sum" or "draw", got {aggregate!r}.'
            )
        if not isinstance(covar_module, ExpectedKernel):
            covar_module, outcome_transform = aggregate_parts(
                data.X,
                data.targets,
                covar_module,
                outcome_transform,
                aggregate=aggregate,
                num_features=num_features,
                kinds=kinds,
            )
        if covar_module.total or covar_module.num_kinds:  # kinds have constants of their own
            mean_module = mean_module or ZeroMean()
        if covar_module.total and isinstance(data.X, PointClouds):
            data = replace(data, encoding=AtomEncoding(data.X.kind_names, True, data.X.columns))
        if aggregate == "draw":
            if likelihood is not None or sampling_noise:
                raise ValueError(
                    'Expected no likelihood or sampling_noise with aggregate="draw", whose noise is '
                    "that of a DrawNoiseLikelihood."
                )
            if data.variances is None:
                likelihood = DrawNoiseLikelihood(covar_module, **gaussian_noise(data.dtype))
        super().__init__(
            data,
            None,
            covar_module,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            sampling_noise=sampling_noise,
        )
        if data.variances is not None:
            kernel = self.covar_module if aggregate == "draw" else None
            learned = gaussian_noise(data.dtype)
            del learned["batch_shape"]
            self.likelihood = AddedNoiseLikelihood(self.likelihood.noise, kernel, **learned)

    def latent_marginals(self, rows: EmbeddedRows, given: Any) -> Moments:
        """Return means and variances of the aggregates, or of draws, at rows, ``... x N x 1``."""
        mean, variance = super().latent_marginals(rows, given)
        if self.aggregate == "draw":
            variance = variance.maximum(self._of_draws(rows.rows, given))
        return mean, variance

    def latent(self, rows: EmbeddedRows, outputs: list[int]) -> list[MultivariateNormal]:
        """Return the joint posterior of aggregates, or of independent draws, at rows."""
        (found,) = super().latent(rows, outputs)
        if self.aggregate == "draw":
            known = found.lazy_covariance_matrix.to_dense()
            variance = known.diagonal(dim1=-2, dim2=-1)
            beside = self._of_draws(rows.rows, self.conditioned()).squeeze(-1) - variance
            covariances = to_linear_operator(known + torch.diag_embed(beside.clamp_min(0)))
            found = ExactMultivariateNormal(found.mean, covariances)
        return [found]

    def noise(self, rows: EmbeddedRows) -> Tensor:
        """Return noise variances at new rows, without what a function varies within them."""
        if self.aggregate != "draw" or self.noise_is_known:
            return super().noise(rows)
        noise: Tensor = self.likelihood.noise
        shape = torch.broadcast_shapes(rows.rows.shape[:-1], noise.shape)
        return noise.expand(shape).unsqueeze(-1)

    def _of_draws(self, rows: Tensor, given: Any) -> Tensor:
        r"""Return the variances of the function at draws from rows, ``... x N x 1``.

        With the mean :math:`m` and the variance :math:`v` of the posterior at a point, it is
        :math:`\mathrm E\, v(x) + \operatorname{Var} m(x)` over draws :math:`x`.
        """
        found = []
        atoms, weights = draws_of(self.covar_module, rows)
        size = max(1, _HELD // (weights.shape[-1] * self.train_targets.shape[-1]))
        for some, shares in zip(atoms.split(size, -3), weights.split(size, -2), strict=True):
            moments = super().latent_marginals(EmbeddedRows(some.flatten(-3, -2)), given)
            mean, variance = (each.squeeze(-1).unflatten(-1, shares.shape[-2:]) for each in moments)
            apart = mean - (shares * mean).sum(-1, keepdim=True)
            found.append((shares * (variance + apart.square())).sum(-1, keepdim=True))
        return torch.cat(found, dim=-2)
