"""Private names of GPyTorch, BoTorch and PyTorch on which this package relies, each with the reason.

Hosts may rename them without notice. A test looks each of them up, and fails with its line here.
"""

from botorch.utils.types import _DefaultType as DefaultType
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase as GaussianBase
from gpytorch.likelihoods.likelihood import _OneDimensionalLikelihood as OneDimensionalLikelihood
from gpytorch.variational._variational_distribution import (
    _VariationalDistribution as VariationalDistribution,
)

__all__ = [
    "NAMES",
    "DefaultType",
    "GaussianBase",
    "OneDimensionalLikelihood",
    "VariationalDistribution",
]

#: Why each name is used, by the class of the host and the name.
NAMES = {
    "SingleTaskGP._aug_batch_shape": "Outputs that share a kernel are one batch; so are members.",
    "SingleTaskGP._has_transformed_inputs": "Says whether train_inputs are those before the transform.",
    "SingleTaskGP._input_batch_shape": "Members are a batch although their training data have none.",
    "SingleTaskGP._original_train_inputs": "Training data before the transform, moved with the model.",
    "SingleTaskGP._revert_to_original_inputs": "Replaced: inputs and flag change in one step.",
    "SingleTaskGP._set_transformed_inputs": "Replaced: no thread finds only one of them changed.",
    "SingleTaskGP._subset_batch_dict": "The axis of outputs of each parameter, for subset_output.",
    "SingleTaskGP._validate_tensor_args": "Warns of single precision, which loading must not repeat.",
    "Standardize._is_linear": "Only under linear transforms are mixtures of normals such mixtures.",
    "Standardize._is_trained": "Scaled targets have a scale that is given, not learned.",
    "Standardize._stdvs_sq": "The same scale, squared.",
    "LogExpectedImprovement._log": "Averages over members are those of exponentials.",
    "GPyTorchPosterior._extended_shape": "Samples of mixtures have the shape of those of a member.",
    "GaussianLikelihood._shaped_noise_covar": "Noise that depends on rows, and that of training rows.",
    "ConstantMean._priors": "Prior densities are left out where a parameter has its best value.",
    "MultitaskMultivariateNormal._interleaved": "The order of values and outputs in a covariance.",
    "RBFKernel._lengthscale_closure": "Priors that can be pickled refer to methods of the kernel.",
    "RBFKernel._lengthscale_param": "The same.",
    "RBFKernel._set_lengthscale": "A plain number keeps its double precision.",
    "VariationalStrategy._clear_cache": "The strategy forgets a distribution that is replaced.",
    "VariationalStrategy._variational_distribution": "A fit replaces it by one of fewer parameters.",
    "ExactMarginalLogLikelihood._load_state_dict_pre_hooks": "A hook that keeps models in memory.",
    "ExactMarginalLogLikelihood._register_load_state_dict_pre_hook": "The same, in models.",
    "ExactMarginalLogLikelihood._buffers": "Copies of a module have dictionaries of their own.",
    "ExactMarginalLogLikelihood._modules": "The same.",
    "ExactMarginalLogLikelihood._parameters": "The values on which what was computed depends.",
    "Tensor._version": "Says whether a tensor was changed since it was read.",
}
