"""Gaussian processes of counts, shares and numbers with outliers, by variational inference."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.models import ApproximateGP
from gpytorch.priors import LogNormalPrior
from gpytorch.utils.memoize import cached
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.operators import DiagLinearOperator
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import Parameter

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.inputs import Inputs, TrainingData
from gp_distributions.models.arguments import adapt_kernel, chooses_metric, kernel_for
from gp_distributions.models.choice import Choice
from gp_distributions.models.exact_inference import ExactMultivariateNormal, Moments
from gp_distributions.models.inducing import choose_features
from gp_distributions.models.likelihoods import check_targets, likelihood_for
from gp_distributions.models.target_predictions import TargetPredictions
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.rows.clouds import same_tensor

Known = Tensor | ArrayLike | None


# Jitter of the covariance of inducing clouds, a share of the mean prior variance.
_JITTER = 1e-6
# The smallest variance of the effects of clouds, of which the prior needs the logarithm.
_LEAST_EFFECT = 1e-8


class CloudStrategy(VariationalStrategy):
    """GPyTorch's whitened strategy, on rows of any width that hold what was computed from them."""

    @property
    def variational_distribution(self) -> MultivariateNormal:
        """The distribution of whitened inducing values, which GPyTorch would not see change."""
        return self._within_call() if self.training else self._variational_distribution()

    @cached(name="variational_distribution_memo")  # type: ignore[untyped-decorator]
    def _within_call(self) -> MultivariateNormal:
        """Return the distribution, which the bound needs twice."""
        return self._variational_distribution()

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what whitened inducing values explain of rows, ``M x N``, and variances left over.

        In training, the values of training clouds include the effects of clouds.
        """
        whole = self.training and x is self.model.train_rows
        return self._project_training(x) if whole else self._project(x)

    @cached(name="projected_memo", ignore_args=True)  # type: ignore[untyped-decorator]
    def _project_training(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what is explained of the training rows, which the bound needs twice."""
        return self._project(x)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        model = self.model
        kernel, effect = model.covar_module, model.effect_variance
        inducing, rows = model.held(self.inducing_points), model.held(x)
        prior = covariance(kernel, inducing)
        every = inducing is model.held(model.train_rows)
        extra = _JITTER * prior.diagonal().mean() + (effect if every else 0.0)
        factor = cholesky(prior + torch.diag_embed(extra.expand(len(prior))))
        if self.training and every and rows is inducing:
            return factor.mT, None
        found = torch.linalg.solve_triangular(
            factor, covariance(kernel, inducing, rows), upper=False
        )
        left = covariance(kernel, rows, diag=True) - found.square().sum(-2)
        return found, left.clamp_min(0) + (effect if self.training else 0.0)

    def forward(
        self,
        x: Tensor,
        inducing_points: Tensor,
        inducing_values: Tensor,
        variational_inducing_covar: LinearOperator | None = None,
        diag: bool = True,
        marginal: bool = False,
        **kwargs: Any,
    ) -> MultivariateNormal:
        """Return the posterior at rows; in training and with ``marginal``, only its variances."""
        projected, left = self.projected(x)
        mean = self.model.mean_module(x) + (projected.mT @ inducing_values.unsqueeze(-1)).squeeze(
            -1
        )
        assert variational_inducing_covar is not None
        spread = projected.mT @ variational_inducing_covar.root_decomposition().root.to_dense()
        if marginal or (self.training and diag):
            variance = spread.square().sum(-1) + (0.0 if left is None else left)
            return MultivariateNormal(mean, DiagLinearOperator(variance))
        within = covariance(self.model.covar_module, self.model.held(x))
        full = within - projected.mT @ projected + spread @ spread.mT
        return ExactMultivariateNormal(mean, to_linear_operator(full))


class VariationalDistributionGP(TargetPredictions, ApproximateGP):
    r"""Gaussian process of counts, of shares, or of numbers with outliers, given distributions.

    Each cloud :math:`P` has a latent value :math:`F(P)`, a Gaussian process under any kernel, and

    .. math::
        y \sim \mathrm{Poisson}(e\, e^{F(P)}), \qquad
        y \sim \mathrm{Binomial}\bigl(n, 1 / (1 + e^{-F(P)})\bigr), \qquad
        y \sim c + s\, (F(P) + \sigma\, t_\nu)

    with exposures :math:`e` or numbers of trials :math:`n` that are known. The posterior of :math:`F` at
    inducing clouds is approximated by a normal distribution, GPyTorch's variational one. :func:`fit`
    maximises the evidence lower bound over it and the hyperparameters together. If all training clouds
    are inducing, the normal shape is the only approximation. Predictions integrate over :math:`F` by
    quadrature.

    ``posterior``, acquisition functions and gradients are those of :math:`F`.

    Args:
        train_X: The ``T`` training clouds, as for :class:`DistributionGP` but without batch axes.
        train_Y: The ``T`` targets: counts, numbers of successes, or numbers.
        covar_module: A kernel on rows. Default: as for :class:`DistributionGP`, until :func:`fit`
            chooses between it and a Gaussian kernel with a lengthscale for each principal component of
            its distance (``choice``), by the held-out log density of link values.
        likelihood: ``"poisson"``, ``"binomial"``, ``"student_t"``, or a likelihood of GPyTorch with one
            latent value, such as ``NegativeBinomialLikelihood``.
        exposure: Exposures of the training clouds, for ``"poisson"``: populations, areas or hours.
            Default: 1.
        trials: Numbers of trials of the training clouds, for ``"binomial"``.
        overdispersion: Whether clouds have effects :math:`\epsilon \sim N(0, \tau^2)` beside
            :math:`F(P)`, so that counts and shares vary more than Poisson or binomial ones; :func:`fit`
            learns :math:`\tau^2`.
        num_inducing: Largest number of inducing clouds, chosen out of the training clouds as in
            :class:`SparseDistributionGP`. A fit takes time that grows with its cube. With fewer than all
            clouds, intervals are too short.
        mean_module: The mean of :math:`F`. Default: a learned constant.
        seed: Random seed for the choice of the inducing clouds.

    Raises:
        TypeError: As for :class:`DistributionGP`.
        ValueError: As for :class:`DistributionGP`; if there is a batch axis or several outputs; a count
            is negative or not whole; there are more successes than trials; an exposure or a number of
            trials is not positive; or the likelihood does not take what is given.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, VariationalDistributionGP, fit
        >>> generator = torch.Generator().manual_seed(0)
        >>> points = torch.randn(40, 20, 2, generator=generator).double()
        >>> counts = torch.poisson((1 + 4 * points.mean((1, 2))).exp(), generator=generator)
        >>> model = fit(VariationalDistributionGP(PointClouds(points), counts), restarts=0)
        >>> lower, upper = model.interval(PointClouds(points))
        >>> bool(((lower <= counts) & (counts <= upper)).double().mean() > 0.9)
        True

    Sources: Hensman, Matthews and Ghahramani 2015; Opper and Archambeau 2009.
    """

    num_outputs = 1
    batch_shape = torch.Size()

    def __init__(
        self,
        train_X: Inputs | Tensor | TrainingData,
        train_Y: Known = None,
        covar_module: Kernel | None = None,
        *,
        likelihood: Literal["poisson", "binomial", "student_t"] | Likelihood = "poisson",
        exposure: Known = None,
        trials: Known = None,
        overdispersion: bool = True,
        num_inducing: int = 400,
        mean_module: Mean | None = None,
        seed: int = 0,
    ) -> None:
        data = TrainingData.read(train_X, train_Y)
        if data.rows.dim() > 2 or data.targets.shape[-1] > 1:
            raise ValueError(
                "Expected clouds without a batch axis and one target for each, got targets of shape "
                f"{tuple(data.targets.shape)}. Make a model for each output."
            )
        rows, targets = data.rows.double(), data.targets.squeeze(-1)
        kernel = kernel_for(data.X, covar_module, None).to(rows)
        findings = adapt_kernel(kernel, data.X, rows)
        with torch.no_grad():
            number = integer(num_inducing, "num_inducing")
            inducing = choose_features(
                kernel, rows, number, noise=1.0, dtype=rows.dtype, seed=seed
            ).rows
        normal = CholeskyVariationalDistribution(len(inducing), mean_init_std=0.0)
        super().__init__(CloudStrategy(self, inducing, normal, learn_inducing_locations=False))
        self.covar_module = kernel
        self.likelihood = likelihood_for(likelihood, targets)
        self.mean_module = ConstantMean() if mean_module is None else mean_module
        self.raw_effect_variance: Parameter | None
        self.register_parameter("raw_effect_variance", None)
        if overdispersion and getattr(self.likelihood, "argument", None) is not None:
            prior = LogNormalPrior(loc=-6.0, scale=2.0)
            self.raw_effect_variance = Parameter(torch.tensor(-4.0))
            floor = GreaterThan(_LEAST_EFFECT, torch.exp, torch.log)
            self.register_constraint("raw_effect_variance", floor)
            self.register_prior("effect_prior", prior, _effect_variance, _set_effect_variance)
        self.unit_findings = findings
        self.choice: Choice | None = None
        self.chooses_metric = chooses_metric(data.X, covar_module)
        self.encoding, self._squeeze_output = data.encoding, data.squeeze
        self.num_inducing, self.seed = number, seed
        self._held: list[EmbeddedRows] = []
        self.train_rows: Tensor
        self.train_targets: Tensor
        self.train_argument: Tensor | None
        known = self.known(data.X, rows, exposure=exposure, trials=trials, training=True)
        argument = next(iter(known.values()), None)
        buffers = {"train_rows": rows, "train_targets": targets, "train_argument": argument}
        for name, value in buffers.items():  # data, which a state dict does not contain
            self.register_buffer(name, value, persistent=False)
        self.to(rows)
        check_targets(targets, self.likelihood, known, train_Y)
        with torch.no_grad():
            self(rows)  # the variational distribution becomes the prior

    @property
    def effect_variance(self) -> Tensor | float:
        """Variance of the effects of clouds beside :math:`F`, 0 without them."""
        raw = self.raw_effect_variance
        return 0.0 if raw is None else self.raw_effect_variance_constraint.transform(raw)

    @effect_variance.setter
    def effect_variance(self, value: Tensor) -> None:
        raw = self.raw_effect_variance_constraint.inverse_transform(value)
        self.initialize(raw_effect_variance=raw)

    @property
    def train_inputs(self) -> tuple[Tensor, ...]:
        """The training rows."""
        return (self.train_rows,)

    @property
    def train_known(self) -> dict[str, Tensor]:
        """What the likelihood is told about the training clouds: exposures or numbers of trials."""
        known = self.train_argument
        return {} if known is None else {self.likelihood.argument: known}

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model, which is double."""
        return self.train_rows.dtype

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior of the latent values at rows."""
        return ExactMultivariateNormal(
            self.mean_module(x), to_linear_operator(covariance(self.covar_module, self.held(x)))
        )

    def held(self, rows: Tensor) -> EmbeddedRows:
        """Return rows with what was computed from them, if they are inducing or training rows."""
        for each in self._held:
            if each.rows is rows or same_tensor(each.rows, rows):
                return each
        found = EmbeddedRows(rows)
        if any(rows is own for own in (self.variational_strategy.inducing_points, self.train_rows)):
            self._held = [found, *self._held[:1]]
        return found

    def conditioned(self) -> None:
        """Return nothing: the variational distribution has what predictions need."""

    def latent(self, rows: EmbeddedRows, outputs: list[int]) -> list[MultivariateNormal]:
        """Return the joint posterior of latent values at ``... x q x width`` rows."""
        return [self.variational_strategy(rows.rows)]

    def latent_marginals(self, rows: EmbeddedRows, given: Any = None) -> Moments:
        """Return means and variances of latent values at rows, ``... x N x 1``."""
        found = self.variational_strategy(rows.rows, marginal=True)
        return found.mean.unsqueeze(-1), found.variance.unsqueeze(-1)

    def noise(self, rows: EmbeddedRows) -> NoReturn:
        """Refuse noise of the posterior, which is that of latent values.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "The posterior of this model is that of latent values, without noise. Use "
            "model.predictive(X) for the distribution of targets."
        )

    def latent_left_out(self, **options: Any) -> NoReturn:
        """Refuse leave-one-out predictions, which have no closed form here.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "Variational models have no leave-one-out predictions: hold out clouds."
        )


def _effect_variance(model: VariationalDistributionGP) -> Tensor | float:
    return model.effect_variance


def _set_effect_variance(model: VariationalDistributionGP, value: Tensor) -> None:
    model.effect_variance = value
