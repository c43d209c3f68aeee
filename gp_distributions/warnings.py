"""The categories of the warnings that this package raises, so that each can be filtered alone."""


class DistributionWarning(UserWarning):
    """Base class of every warning of this package."""


class PrecisionWarning(DistributionWarning):
    """Data are in single precision where double is advised."""


class ConvergenceWarning(DistributionWarning):
    """An optimiser stopped before it converged."""


class JitterWarning(DistributionWarning):
    """A covariance matrix was not positive definite in floating point and its diagonal was raised."""


class ReferenceWarning(DistributionWarning):
    """A reference measure sees too little of the data to be trusted."""


class TiesWarning(DistributionWarning):
    """Equal atoms of a bag are taken for copies of one, though they may be measurements that agree."""


class NotHilbertianWarning(DistributionWarning):
    """A distance has kernels that are not positive semi-definite."""
