"""The outputscale that models give to kernels without one."""

from __future__ import annotations

from gpytorch.kernels import Kernel, ScaleKernel

from gp_distributions.kernels.expected_kernel import ExpectedKernel


def with_outputscale(kernel: Kernel) -> Kernel:
    """Return a kernel with an outputscale, the variance of functions, for a fit to learn.

    Without one, the variance of the function is that of the targets with noise, and only the noise and
    the lengthscale fit the data.

    Args:
        kernel: A kernel, which the result holds. A kernel with an outputscale in any of its parts stays
            as it is; to fix the variance at one, pass ``ScaleKernel(kernel)`` with
            ``raw_outputscale.requires_grad_(False)``.

    Returns:
        ``ScaleKernel(kernel)`` with an outputscale of one, so that covariances do not change. An
        :class:`ExpectedKernel` gets it inside, because its variances are those of its atoms.
    """
    if any(isinstance(part, ScaleKernel) for part in kernel.modules()):
        return kernel
    if isinstance(kernel, ExpectedKernel):
        kernel.base_kernel = with_outputscale(kernel.base_kernel)
        return kernel
    scaled = ScaleKernel(kernel, batch_shape=kernel.batch_shape)
    scaled.raw_outputscale.data = scaled.raw_outputscale.data.double()  # one to the last digit
    scaled.outputscale = 1.0
    return scaled
