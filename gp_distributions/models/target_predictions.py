"""Predictions of targets whose distribution, given a latent value, is that of any likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpytorch.likelihoods import Likelihood
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import MixtureSameFamily

from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import as_targets, as_variances, check_order, label_of
from gp_distributions.models.likelihoods import check_targets
from gp_distributions.models.regression import Moments, Regression
from gp_distributions.numerics.predictive import integrated, quantile

# Number of clouds that predictions process at a time.
_BATCH = 1024
_NOUNS = {"exposure": "exposures", "trials": "numbers of trials"}


class TargetPredictions(Regression):
    """Means, intervals and probabilities of targets, integrated over normal latent values.

    Attributes:
        likelihood: The distribution of a target, given the latent value.
        effect_variance: Variance of the effects of clouds that a target has beside the latent value.
    """

    likelihood: Likelihood
    effect_variance: Any

    def predict(  # type: ignore[override]
        self, X: Inputs | Tensor, *, observation_noise: bool = True, **options: Any
    ) -> Moments:
        """Predict means and standard deviations of targets, in their units.

        Args:
            X: The ``N`` clouds, or a ``... x N x m*(d+1)`` tensor of rows, of any width.
            observation_noise: Whether to return the standard deviation of a target, rather than that of
                its expectation, such as a rate times the exposure, which differs between clouds.
            **options: ``exposure`` or ``trials`` of the clouds, 1 by default; and ``batch_size``, the
                number of clouds to process at a time.

        Returns:
            Two tensors of shape ``... x N``, or ``... x N x 1`` if ``train_Y`` has an axis of outputs.

        Raises:
            ValueError: If the width of the rows does not fit the kernel, or an exposure or a number of
                trials is not positive.
        """

        def moments(found: MixtureSameFamily, part: slice) -> Tensor:
            if observation_noise:
                return torch.stack([found.mean, found.variance])
            errors = found.component_distribution.mean - found.mean.unsqueeze(-1)
            spread = (found.mixture_distribution.probs * errors.square()).sum(-1)
            return torch.stack([found.mean, spread])

        mean, variance = self._evaluated(X, moments, options)
        return self._deviations(mean.unsqueeze(-1), variance.unsqueeze(-1))

    def interval(self, X: Inputs | Tensor, *, level: float = 0.95, **options: Any) -> Moments:
        """Predict central intervals of targets: quantiles, which for counts are whole numbers.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`.
            level: The probability of the intervals; those of counts hold at least as much.
            **options: As for :meth:`predict`.

        Returns:
            The lower and the upper ends, in the shapes of :meth:`predict`.

        Raises:
            ValueError: As for :meth:`predict`, or the level is not between 0 and 1.
            NotImplementedError: If PyTorch has no distribution function for a likelihood of GPyTorch.
        """
        if not 0 < level < 1:
            raise ValueError(f"Expected a level between 0 and 1, got {level!r}.")
        levels = (1 - level) / 2, (1 + level) / 2

        def ends(found: MixtureSameFamily, part: slice) -> Tensor:
            return torch.stack([quantile(found, each) for each in levels])

        lower, upper = self._evaluated(X, ends, options)
        return (lower, upper) if self._squeeze_output else (lower[..., None], upper[..., None])

    def log_prob(self, X: Inputs | Tensor, Y: Tensor | ArrayLike, **options: Any) -> Tensor:
        """Compute log probabilities of the targets of clouds, or log densities of numbers.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`.
            Y: Their targets.
            **options: As for :meth:`predict`.

        Returns:
            A tensor of shape ``... x N``.

        Raises:
            ValueError: As for :meth:`predict`, or if a target is not one of the likelihood.
        """
        rows = self.rows_of(X)
        check_order(X, Y)
        targets = as_targets(Y, rows)[0].squeeze(-1)
        check_targets(targets, self.likelihood, self.known(X, rows, options), Y)
        return self._evaluated(X, lambda found, part: found.log_prob(targets[..., part]), options)

    def predictive(self, X: Inputs | Tensor, **options: Any) -> MixtureSameFamily:
        """Return the predictive distributions of targets as a distribution of PyTorch.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`.
            **options: As for :meth:`predict`.

        Returns:
            A mixture over latent values with ``mean``, ``variance``, ``log_prob`` and ``sample``, which
            holds 65 to 4,097 latent values for each cloud.
        """
        return self._mixtures(X, options)(slice(None))

    def known(
        self, X: Any, rows: Tensor, given: Mapping[str, Any], *, training: bool = False
    ) -> dict[str, Tensor]:
        """Check what the likelihood is told about clouds, and return it as a tensor of ``... x N``."""
        takes = getattr(self.likelihood, "argument", None)
        for name in {"exposure", "trials"} & given.keys() - {takes}:
            if given[name] is not None:
                raise ValueError(
                    f"Expected {name}=None, which {type(self.likelihood).__name__} does not take."
                )
        if unknown := given.keys() - {"exposure", "trials", "batch_size"}:
            raise TypeError(f"Expected exposure, trials or batch_size, got {min(unknown)}.")
        if takes is None:
            return {}
        value = given.get(takes)
        if value is None and takes == "trials" and training:
            raise ValueError("Expected trials, the number of trials of each cloud, got None.")
        check_order(X, value, _NOUNS[takes])
        value = 1.0 if value is None else value
        columns = as_variances(value, rows, rows[..., :1], noun=takes.rstrip("s"), name=takes)
        broken = (columns != columns.round()).nonzero().tolist() if takes == "trials" else []
        if broken:
            place = tuple(broken[0])
            raise ValueError(
                f"Expected whole numbers of trials, but that of cloud {place[-2]}"
                f"{label_of(value, place[-2])} is {columns[place].item():g}."
            )
        return {takes: columns.squeeze(-1)}

    def _evaluated(
        self,
        X: Any,
        function: Callable[[MixtureSameFamily, slice], Tensor],
        options: dict[str, Any],
    ) -> Tensor:
        """Return a function of the predictive distributions of a slice of clouds, slice by slice."""
        rows, size = self.rows_of(X), options.get("batch_size", _BATCH)
        mixtures = self._mixtures(X, options)
        parts = [slice(start, start + size) for start in range(0, rows.shape[-2], size)]
        with torch.no_grad():
            return torch.cat([function(mixtures(part), part) for part in parts], dim=-1)

    def _mixtures(self, X: Any, options: dict[str, Any]) -> Callable[[slice], MixtureSameFamily]:
        """Return a function of a slice of clouds that returns their predictive distributions."""
        known = self.known(X, self.rows_of(X), options)
        size = options.get("batch_size", _BATCH)
        moments = self.in_batches(X, "latent_marginals", batch_size=size)
        mean, variance = (each.squeeze(-1) for each in moments)

        @torch.no_grad()
        def mixtures(part: slice) -> MixtureSameFamily:
            given = {name: value[..., part, None] for name, value in known.items()}
            std = (variance[..., part].clamp_min(0) + self.effect_variance).sqrt()
            return integrated(lambda f: self.likelihood(f, **given), mean[..., part], std)

        return mixtures
