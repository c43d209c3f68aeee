"""Gaussian process classification of distributions, with calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.transforms.input import InputTransform
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.arrays import positive
from gp_distributions.measures.inputs import Inputs, TrainingData
from gp_distributions.models.dirichlet import DirichletFactors, dirichlet_targets
from gp_distributions.models.dirichlet_classification import Classification
from gp_distributions.models.exact_inference import ExactMultivariateNormal
from gp_distributions.models.shared_kernel import SharedKernelGP
from gp_distributions.numerics.predictions import expected_softmax, log_probabilities


class ClassificationGP(Classification, SharedKernelGP):  # type: ignore[misc]
    r"""Gaussian process classification of distributions, with calibrated probabilities.

    Each class has a latent function. All latent functions share one kernel, and the class probabilities
    are their softmax. The label of a cloud is treated as a draw from a Dirichlet distribution with
    concentrations :math:`\alpha_c = \alpha_\epsilon + [y = c]`, whose gamma variates are approximated
    by log-normal ones. This gives exact regression on targets with known noise:

    .. math::
        \tilde y_c = \log \alpha_c - \sigma_c^2 / 2, \qquad \sigma_c^2 = \log(1 / \alpha_c + 1).

    :func:`gp_distributions.fit` maximises the marginal likelihood of all classes. The noise variance of
    a class has one value at its members and another at all other clouds. By Woodbury's identity, the
    model therefore needs only one Cholesky factor of a ``T x T`` matrix, which all classes share, and
    for each class one of a matrix with as many rows as the class has members.

    Args:
        train_X: The ``T`` training clouds, rows or designs, as for :class:`DistributionGP`.
        train_Y: The ``T`` labels: strings, integers or other values that NumPy can sort.
        covar_module: A kernel on rows. The default for :class:`PointClouds` and :class:`Gaussians` is
            that of :class:`DistributionGP`.
        alpha_epsilon: The concentration :math:`\alpha_\epsilon` of the classes that are not the label.
            Smaller values give more confident probabilities. :func:`fit` selects a value.
        temperature: The temperature :math:`\tau` of the probabilities, which are
            :math:`p_c^{1 / \tau} / \sum_j p_j^{1 / \tau}` for expectations :math:`p` of the softmax.
            Smaller values give more confident probabilities, and the labels stay the same.
            :func:`fit` selects a value.
        input_transform: A transform from the model's inputs to rows.

    Attributes:
        classes_: The ``C`` distinct labels in sorted order, as an array.

    Raises:
        TypeError: As for :class:`DistributionGP`.
        ValueError: If the numbers of clouds and labels differ, there are fewer than two classes, or
            ``alpha_epsilon`` or ``temperature`` is not positive.

    Example:
        >>> import torch
        >>> from gp_distributions import ClassificationGP, PointClouds, fit
        >>> noise = torch.randn(13, 15, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> wide = torch.arange(13) % 2
        >>> clouds = PointClouds(noise * (1 + wide).reshape(-1, 1, 1))
        >>> labels = ["wide" if w else "narrow" for w in wide]
        >>> model = fit(ClassificationGP(clouds[:9], labels[:9]), restarts=0)
        >>> model.predict(clouds[9:]).tolist()
        ['wide', 'narrow', 'wide', 'narrow']
        >>> model.predict_proba(clouds[9:]).shape
        torch.Size([4, 2])

    Sources: Milios, Camoriano, Michiardi, Rosasco and Filippone 2018, section 3; Guo, Pleiss, Sun and
    Weinberger 2017, section 4.2, for the temperature.
    """

    #: The means of classes are estimated.
    integrates_level = False

    def __init__(
        self,
        train_X: Inputs | Tensor | TrainingData,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        alpha_epsilon: float = 0.01,
        temperature: float = 1.0,
        input_transform: InputTransform | None = None,
    ) -> None:
        data = TrainingData.read(train_X, train_Y, classify=True)
        labels, classes = data.targets, data.known_classes
        targets, noise = dirichlet_targets(labels, len(classes), alpha_epsilon, data.dtype)
        super().__init__(
            replace(data, targets=targets),
            None,
            covar_module,
            likelihood=DirichletNoise(labels, noise.T, alpha_epsilon, temperature),
            outcome_transform=None,
            input_transform=input_transform,
        )
        self.classes_ = classes
        self.register_load_state_dict_post_hook(_take_concentration)

    def _likelihood_of(self, index: Tensor) -> Likelihood:
        part = super()._likelihood_of(index)
        part.labels = part.labels[index]
        return part

    @property
    def alpha_epsilon(self) -> float:
        """Concentration of the classes that are not the label. Setting it updates targets and noise."""
        return float(self.likelihood.alpha_epsilon)

    @alpha_epsilon.setter
    def alpha_epsilon(self, value: float) -> None:
        likelihood = self.likelihood
        number = len(self.classes_)
        targets, noise = dirichlet_targets(likelihood.labels, number, value, self.dtype)
        self.set_train_data(targets=targets.T, strict=False)
        for part in (self, *self.parts):
            part.likelihood.noise_covar.noise = noise.T
            part.likelihood.alpha_epsilon.fill_(value)

    @property
    def temperature(self) -> float:
        """Temperature of the probabilities."""
        return float(self.likelihood.temperature)

    @temperature.setter
    def temperature(self, value: float) -> None:
        for part in (self, *self.parts):
            buffer = part.likelihood.temperature
            buffer.fill_(positive(buffer.new_tensor(positive(value, "temperature")), "temperature"))

    def log_densities(self, mean: Tensor, variance: Tensor, noise: Tensor, index: Tensor) -> Tensor:
        """Return log probabilities of training labels; see :meth:`DistributionGP.log_densities`."""
        chances = expected_softmax(mean, variance.clamp_min(0).sqrt())
        chances = chances.clamp_min(torch.finfo(chances.dtype).tiny)
        labels = self.likelihood.labels[index]
        return log_probabilities(chances, labels, [self.temperature]).squeeze(-1)

    def condition_on_observations(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse further labels, which would need latent targets and noise.

        Raises:
            UnsupportedError: Always. Make the model anew with all clouds and labels, and load the
                ``state_dict`` of this one to keep its hyperparameters.
        """
        raise UnsupportedError(
            "A classifier cannot be conditioned on further labels. Make it anew with all clouds and "
            "labels, and load model.state_dict() to keep the hyperparameters."
        )

    def conditioned(self) -> Any:
        """Return the Cholesky factors of all classes, and the weights of the training clouds."""
        (rows,) = self.train_inputs
        prior = covariance(self.covar_module, self.compared_rows).squeeze(-3)
        factors = DirichletFactors(prior, self.likelihood.labels, self.likelihood.noise)
        return _Conditioned(factors, factors.solve(self.train_targets - self.mean_module(rows)))


@dataclass(frozen=True, eq=False)
class _Conditioned:
    """What predictions of class probabilities need of the training clouds.

    Args:
        factors: Cholesky factors of the covariance matrices of the targets.
        mean_cache: The weights of the training clouds in latent means, ``C x T``.
    """

    factors: DirichletFactors
    mean_cache: Tensor

    @property
    def precision(self) -> Tensor:
        """The diagonals of the inverse covariance matrices of the targets, ``C x T``."""
        size, like = self.mean_cache.shape[-1], self.mean_cache
        return self.factors.inv_quad(torch.eye(size, dtype=like.dtype, device=like.device))

    def marginals(self, to_train: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the training clouds add to prior means and take from prior variances."""
        to_train = to_train.squeeze(-3)
        return self.mean_cache @ to_train.T, self.factors.inv_quad(to_train)


def _take_concentration(model: ClassificationGP, _: Any) -> None:
    """Set the targets and noise to those of the concentration in a state dict that was loaded."""
    model.alpha_epsilon, model.temperature = model.alpha_epsilon, model.temperature


class DirichletNoise(FixedNoiseGaussianLikelihood):
    """Likelihood of :class:`ClassificationGP`, whose noise variances are known.

    Args:
        labels: The ``T`` class indices.
        noise: A ``C x T`` tensor of variances with two distinct values: one at the members of a class
            and one at all other clouds.
        alpha_epsilon: The concentration from which ``noise`` was computed.
        temperature: The temperature of the probabilities.
    """

    def __init__(
        self, labels: Tensor, noise: Tensor, alpha_epsilon: float, temperature: float = 1.0
    ) -> None:
        super().__init__(noise)
        self.labels: Tensor
        self.alpha_epsilon: Tensor
        self.temperature: Tensor
        # Labels are data, which a state dict does not contain.
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("alpha_epsilon", noise.new_tensor(alpha_epsilon))
        self.register_buffer("temperature", noise.new_tensor(positive(temperature, "temperature")))

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """Return the distribution of the targets, given that of the latent functions."""
        noisy = super().marginal(function_dist, *params, **kwargs)
        return ExactMultivariateNormal(noisy.mean, noisy.lazy_covariance_matrix)
