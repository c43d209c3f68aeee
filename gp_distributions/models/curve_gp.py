"""Models of curves: many outputs that move together, with a covariance of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.means import Mean
from linear_operator import to_linear_operator
from linear_operator.operators import RootLinearOperator
from linear_operator.utils.memoize import add_to_cache
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.arrays import given_points, integer
from gp_distributions.measures.inputs import Inputs, TrainingData
from gp_distributions.measures.targets import as_curves, as_positions
from gp_distributions.models.exact_inference import Moments
from gp_distributions.models.observations import noise_of_outputs
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.numerics.kronecker import KroneckerSystem

# Missing entries whose parts in variances are computed at a time.
_CHUNK = 64
# Standardised targets of outputs that are the same for all curves are no larger.
_CONSTANT = 1e-6
_ONE_SAMPLE = torch.Size()


class CurveGP(SharedKernelGP):
    r"""Exact Gaussian process regression of curves: many outputs that move together.

    The value :math:`j` of the curve of a cloud :math:`P` is

    .. math::
        y_j = \mu_j + f_j(P) + e_j + \epsilon_j, \qquad
        \mathrm{cov}(f_j(P), f_l(P')) = k(P, P')\, C_{jl}, \quad
        \mathrm{cov}(e_j, e_l) = \tau\, C_{jl}, \quad \epsilon_j \sim N(0, d_j).

    The errors :math:`e` are smooth curves as well: what the kernel cannot tell from the cloud. The noise
    :math:`\epsilon` is that of each value. Draws from the ``posterior`` are therefore curves, and
    intervals of integrals are those of correlated values; see :meth:`predict_functionals`. One
    eigendecomposition of the ``T x T`` covariances of clouds and one of the ``M x M`` covariances of
    outputs serve all :math:`TM` values. Missing values are left out exactly, by a Schur complement.

    :func:`fit` first finds :math:`k` and the noise as for :class:`SharedKernelGP`, where all outputs
    count alike, and then :math:`C`, :math:`d` and the share of :math:`\tau` by the marginal likelihood
    of the curves. A joint likelihood would count the directions of :math:`C` alike instead, most of
    which carry hardly any variance, and :math:`k` would fit these.

    Args:
        train_X: The ``T`` training clouds, as for :class:`DistributionGP`, without a batch axis.
        train_Y: Their curves, ``T x M``; NaN marks a missing value.
        covar_module: A kernel on rows. Default: as for :class:`DistributionGP`, before it chooses.
        positions: Positions of the values along the curve, ``M`` or ``M x p``. :math:`C` is then a
            kernel of them; without them it is a learned matrix.
        output_covar_module: The GPyTorch kernel of positions. Default: Matern 5/2.
        rank: Rank of a learned :math:`C`, to which :math:`d` adds a diagonal. Default: ``M``, the most
            accurate. From fewer than ``M`` curves, :math:`C` is nearly singular: values and sums are
            predicted as well, but not joint densities of whole curves.
        mean_module: The mean. Default: a constant for each output.

    Raises:
        TypeError: As for :class:`DistributionGP`.
        ValueError: As for :class:`DistributionGP`; if curves differ in their lengths; a curve has no
            known value, or an output fewer than two; too many are missing, for which an array of their
            number times :math:`TM` would exceed 1 GiB; or positions do not match.

    Example:
        >>> import torch
        >>> from gp_distributions import CurveGP, PointClouds, fit
        >>> points = torch.randn(30, 20, 1, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, at = PointClouds(points), torch.linspace(-1, 1, 25).double()
        >>> curves = (points <= at).double().mean(1)  # the distribution function of each cloud
        >>> model = fit(CurveGP(clouds[:25], curves[:25]), restarts=0)
        >>> mean, std = model.predict(clouds[25:])
        >>> area, error = model.predict_functionals(clouds[25:], torch.full((1, 25), 2 / 25))
        >>> mean.shape, area.shape
        (torch.Size([5, 25]), torch.Size([5, 1]))

    Source: Rakitsch et al. 2013 (decomposition); Bonilla, Chai and Williams 2008.
    """

    #: The means of outputs are estimated.
    integrates_level = False

    def __init__(
        self,
        train_X: Inputs | Tensor,
        train_Y: Tensor | ArrayLike,
        covar_module: Kernel | None = None,
        *,
        positions: Tensor | ArrayLike | None = None,
        output_covar_module: Kernel | None = None,
        rank: int | None = None,
        mean_module: Mean | None = None,
    ) -> None:
        curves = as_curves(train_Y)
        missing = curves.isnan()
        data = TrainingData.read(train_X, torch.where(missing, curves.nanmean(0), curves))
        super().__init__(data, None, covar_module, mean_module=mean_module)
        self.chooses_metric = False
        targets = self.train_targets
        self.missing: Tensor
        self.register_buffer("missing", missing.to(targets.device), persistent=False)
        self.rank = curves.shape[-1] if rank is None else integer(rank, "rank", least=1)
        self.positions: Tensor | None = None
        if positions is None and output_covar_module is not None:
            raise ValueError(
                "Expected positions, of which output_covar_module is a kernel, got None."
            )
        if positions is not None:
            points = as_positions(positions, curves).to(targets)
            self.positions = points
            if output_covar_module is None:
                output_covar_module = MaternKernel(2.5).to(targets)
                output_covar_module.lengthscale = points.std(0).norm()
        self.output_covar_module = output_covar_module
        self.output_factor: Tensor
        self.output_noise: Tensor
        values, vectors = torch.linalg.eigh(targets @ targets.mT / len(curves))
        factor = vectors * values.clamp_min(0).sqrt()
        self.register_buffer("output_factor", factor[:, -self.rank :].contiguous())
        self.register_buffer("output_noise", self.likelihood.noise.detach() + 0 * values)

    @property
    def output_covariance(self) -> Tensor:
        """The covariances :math:`C` of the standardised outputs, ``M x M``; zero for constant ones."""
        if self.output_covar_module is not None and self.positions is not None:
            varies = (self.train_targets.abs().amax(-1) > _CONSTANT).to(self.train_targets)
            return covariance(self.output_covar_module, self.positions) * torch.outer(
                varies, varies
            )
        return self.output_factor @ self.output_factor.mT

    def decomposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the errors of the mean, ``T x M``, and eigenvalues and eigenvectors of :math:`k`.

        Errors of missing values are those of what stands in for them.
        """
        rows = self.embedded_rows(self.train_inputs[0])
        K = covariance(self.covar_module, self._compared(rows)).squeeze(-3)
        errors = (self.train_targets - self.mean_module(rows.rows)).mT
        return errors, *torch.linalg.eigh(K)

    def conditioned(self) -> KroneckerSystem:
        """Return the decomposition given the training curves."""
        errors, values, vectors = self.decomposed()
        shared = values + self.likelihood.noise
        known = errors.masked_fill(self.missing, torch.nan)
        return KroneckerSystem.of(known, shared, vectors, self.output_covariance, self.output_noise)

    def latent_marginals(
        self, rows: EmbeddedRows, given: KroneckerSystem, functionals: Tensor | None = None
    ) -> Moments:
        """Return means and variances of outputs, or of sums of them, at ``... x N x width`` rows.

        Args:
            rows: The rows.
            given: The decomposition.
            functionals: Weights of the outputs in each sum, ``K x M``. Default: the outputs themselves.
        """
        C = self.output_covariance
        if functionals is None:
            functionals = torch.eye(len(C)).to(C)
        mean, scaled, prior, rotated = self._projected(rows, given, diag=True)
        scaled = functionals @ scaled
        variance = prior.unsqueeze(-1) * ((functionals @ C) * functionals).sum(-1)
        variance = variance - (rotated.square() @ given.gains) @ scaled.square().mT
        for part in given.reduction.split(_CHUNK):
            lost = rotated.unsqueeze(-3) @ part @ scaled.mT
            variance = variance + lost.square().sum(-3)
        return mean @ functionals.mT, variance

    def _projected(
        self, rows: EmbeddedRows, given: KroneckerSystem, *, diag: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return means, covariances with the basis of outputs, those within rows and with the basis."""
        each = self._of_each_output(rows)
        to_train, within = self._covariances_at(each, diag=diag)
        rotated = to_train.squeeze(-3) @ given.rows
        scaled = self.output_covariance @ given.columns
        mean = self.mean_module(each.rows).mT + rotated @ given.weights @ scaled.mT
        return mean, scaled, within.squeeze(-2 if diag else -3), rotated

    def latent_left_out(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, variances and noise variances, ``T x M``, without each curve."""
        errors, covariances = self.conditioned().left_out()
        (rows,) = self.train_inputs
        noise = self._output_noises().diagonal().expand(errors.shape)
        mean = self.mean_module(rows).mT + errors
        return mean, torch.linalg.diagonal(covariances) - noise, noise

    def _output_noises(self) -> Tensor:
        """Return the covariances of the noise of the values of a curve, ``M x M``."""
        return self.likelihood.noise * self.output_covariance + self.output_noise.diag()

    def noise(self, rows: EmbeddedRows) -> Tensor:
        """Return noise variances of the values of curves, ``... x N x M``."""
        return self._output_noises().diagonal().expand(*rows.rows.shape[:-1], -1)

    def joint(
        self, rows: EmbeddedRows, output_indices: list[int] | None, observation_noise: bool | Tensor
    ) -> Posterior:
        """Return the joint posterior of the values of curves at ``... x q x width`` rows."""
        given, transform = self.conditioned(), self.outcome_transform
        index = slice(None) if output_indices is None else output_indices
        units = transform.stdvs.squeeze(0).diag()[index]
        mean, scaled, prior, rotated = self._projected(self.transformed(rows), given)
        scaled = units @ scaled
        spread = torch.einsum("...pa,...qa,ab->...pqb", rotated, rotated, given.gains)
        full = prior[..., None, None] * (units @ self.output_covariance @ units.mT)
        full = full - (scaled * spread.unsqueeze(-2)) @ scaled.mT
        for part in given.reduction.split(_CHUNK):
            lost = torch.einsum("...pa,kab,...jb->...kpj", rotated, part, scaled)
            full = full + torch.einsum("...kpj,...kql->...pqjl", lost, lost)
        if isinstance(observation_noise, Tensor) or observation_noise:
            noise = self._output_noises()
            if isinstance(observation_noise, Tensor):
                noise = torch.diag_embed(noise_of_outputs(observation_noise, self.num_outputs))
            same = torch.eye(mean.shape[-2]).to(mean)[..., None, None]
            full = full + same * (units @ noise @ units.mT).unsqueeze(-3)
        mean = transform.means[..., index] + mean @ units.mT
        full = full.transpose(-3, -2).flatten(-2).flatten(-3, -2)
        return GPyTorchPosterior(CurveNormal(mean, to_linear_operator(full)))

    def predict_functionals(
        self,
        X: Inputs | Tensor,
        weights: Tensor | ArrayLike,
        *,
        observation_noise: bool = True,
        batch_size: int = 1024,
    ) -> Moments:
        r"""Predict weighted sums of the values of each curve, such as its integral.

        Args:
            X: The ``N`` clouds.
            weights: The weights of the values in each sum, ``K x M``; for an integral, those of a
                quadrature rule.
            observation_noise: Whether to return the standard deviation of sums of noisy values.
            batch_size: Number of clouds to process at a time.

        Returns:
            The means and standard deviations of the sums, ``N x K`` each.

        Raises:
            ValueError: If the weights are not a finite ``K x M`` array.

        Example:
            >>> import torch
            >>> from gp_distributions import CurveGP, PointClouds
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> model = CurveGP(clouds, [[0.0, 1.0, 0.0], [1.0, 2.0, 1.0], [2.0, 3.0, 2.0]])
            >>> mean, std = model.predict_functionals(clouds, [[0.5, 1.0, 0.5]])
            >>> mean.shape, bool(mean[0] < mean[2])
            (torch.Size([3, 1]), True)
        """
        given = given_points(weights, "weights", ("K", self.num_outputs)).to(self.train_targets)
        found: Moments = self.in_batches(  # type: ignore[assignment]
            X,
            "functional_marginals",
            batch_size=batch_size,
            weights=given,
            observation_noise=observation_noise,
        )
        return found[0], found[1].sqrt()

    def functional_marginals(
        self,
        rows: EmbeddedRows,
        given: Sequence[KroneckerSystem],
        *,
        weights: Tensor,
        observation_noise: bool,
    ) -> Moments:
        """Return means and variances of weighted sums, ``... x N x K``, in the units of the targets."""
        functionals = weights * self.outcome_transform.stdvs
        (known,) = given
        mean, variance = self.latent_marginals(self.transformed(rows), known, functionals)
        if observation_noise:
            variance = variance + ((functionals @ self._output_noises()) * functionals).sum(-1)
        mean = mean + (weights * self.outcome_transform.means).sum(-1)
        return mean, variance.clamp_min(0)

    def condition_on_observations(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse further curves.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("Make a new CurveGP of all curves, and fit it.")

    def subset_output(self, idcs: list[int]) -> NoReturn:
        """Refuse a model of some outputs.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("Use posterior(X, output_indices=...).")


class CurveNormal(MultitaskMultivariateNormal):
    """Normal distributions of curves, whose draws need no jitter where values determine each other."""

    def rsample(
        self, sample_shape: torch.Size = _ONE_SAMPLE, base_samples: Tensor | None = None
    ) -> Tensor:
        """Draw reparametrised samples, a ``sample_shape x batch_shape x q x M`` tensor."""
        covariances = self.lazy_covariance_matrix.to_dense()
        values, vectors = torch.linalg.eigh(covariances.detach())
        limit = values.shape[-1] * torch.finfo(values.dtype).eps * values[..., -1:]
        roots = values.clamp_min(0).sqrt().unsqueeze(-2)
        inverse = torch.where(values > limit, values, torch.inf).rsqrt().unsqueeze(-2)
        # A root R with d(R R') = dC, so that gradients are those of C, without gaps of eigenvalues.
        moving = covariances @ (vectors * inverse)
        root = vectors * roots + 0.5 * (moving - moving.detach())
        add_to_cache(self.lazy_covariance_matrix, "root_decomposition", RootLinearOperator(root))
        return super().rsample(sample_shape, base_samples)
