"""Aggregates of a function of atoms, for many distributions, in random features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.hosts import DefaultType
from gp_distributions.kernels.aggregates import Kinds
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import described, integer
from gp_distributions.measures.inputs import AtomEncoding
from gp_distributions.models.atoms import AtomPredictions, aggregate_parts, check_one_output
from gp_distributions.models.collapsed import ExplicitFeatures
from gp_distributions.models.passes import Reader
from gp_distributions.models.pieces import Pieces, SampledPieces
from gp_distributions.models.sparse_distribution_gp import SparseDistributionGP


class SparseAggregateGP(AtomPredictions, SparseDistributionGP):
    r"""Regression on a function of atoms that is observed through many distributions.

    This is :class:`AggregateGP` for up to millions of clouds. The features :math:`\phi(P)` of a cloud
    are sums over its atoms of ``num_features`` random cosines and sines for each kind of atoms. The
    posterior, exact for the kernel :math:`\phi(P)^\top \phi(P')`, is Bayesian linear regression on
    them: :class:`SparseDistributionGP` with these features in place of inducing clouds. Sums over the
    training clouds are formed in one pass, in a time of :math:`T D^2` for :math:`D` features in all.

    :func:`fit` learns the hyperparameters from pairs of atoms of 128 clouds of the sample, unless there
    is one lengthscale and nothing else; then a common factor of the lengthscales from the features of
    1000 clouds; and at last, from the sums over all clouds, the outputscale and the noise.

    Args:
        train_X: The ``T`` training clouds, or data in pieces, as for :class:`SparseDistributionGP`. All
            kinds of atoms must occur in a random sample of 1000 clouds.
        train_Y: The targets, ``T`` or ``T x 1``; ``None`` if the pieces carry them.
        covar_module: A kernel of atoms, as for :class:`AggregateGP`.
        aggregate: What a target is: ``"mean"`` or ``"sum"``.
        num_features: Number of random features for each RBF kernel and kind of atoms.
        kinds: As for :class:`AggregateGP`.
        likelihood: A ``GaussianLikelihood``. Default: noise that is learned.
        outcome_transform: As for :class:`AggregateGP`; scales are those of a sample of 1000 clouds.
        seed: Random seed of the sample and the frequencies.
        client: As for :class:`SparseDistributionGP`.
        progress: As for :class:`SparseDistributionGP`.

    Raises:
        TypeError: If ``train_X`` are other distributions than :class:`PointClouds`.
        ValueError: As for :class:`AggregateGP` and :class:`SparseDistributionGP`.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SparseAggregateGP, fit
        >>> generator = torch.Generator().manual_seed(0)
        >>> points = torch.randn(60, 5, 2, generator=generator).double()
        >>> clouds = PointClouds(points)
        >>> targets = points.square().sum((-2, -1)) + 0.5 * torch.randn(60, generator=generator)
        >>> model = SparseAggregateGP(clouds[:50], targets[:50], aggregate="sum", num_features=100)
        >>> mean, std = fit(model, restarts=0).predict(clouds[50:])
        >>> bool((mean - targets[50:]).abs().mean() < 0.5 * targets.std())
        True

    Sources: Rahimi and Recht 2007; Law et al. 2018; Bartok et al. 2010 (sums over atoms).
    """

    def __init__(
        self,
        train_X: PointClouds | Pieces,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        aggregate: Literal["mean", "sum"] = "mean",
        num_features: int = 2000,
        kinds: Kinds = "independent",
        likelihood: GaussianLikelihood | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        seed: int = 0,
        client: Any = None,
        progress: bool = True,
    ) -> None:
        if aggregate not in ("mean", "sum"):
            raise ValueError(f'Expected aggregate to be "mean" or "sum", got {aggregate!r}.')
        options: Any = {"num_inducing": 1, "seed": seed, "client": client, "progress": progress}
        data = SampledPieces.read(train_X, train_Y, **options)
        X, *known = data.adapted
        if not isinstance(X, PointClouds):
            raise TypeError(f"Expected PointClouds as train_X, got {described(X)}.")
        targets, _ = Reader(None, None, None).targets(X, *known)
        check_one_output(targets)
        covar_module, outcome_transform = aggregate_parts(
            X,
            targets,
            covar_module,
            outcome_transform,
            aggregate=aggregate,
            num_features=integer(num_features, "num_features"),
            kinds=kinds,
        )
        super().__init__(
            replace(data, encoding=AtomEncoding(X.kind_names, aggregate == "sum", X.columns)),
            None,
            covar_module,
            likelihood=likelihood,
            outcome_transform=outcome_transform,
            **options,
        )
        if self.covar_module.total:
            self.mean_module.constant = 0.0
            self.mean_module.raw_constant.requires_grad_(False)

    def choose_features(self) -> ExplicitFeatures:
        """Return the features of the kernel."""
        return ExplicitFeatures(self.covar_module)
