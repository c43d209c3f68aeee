"""Predictions of targets whose distribution, given a latent value, is that of any likelihood."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from gpytorch.likelihoods import Likelihood
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import as_targets, as_variances, check_order, label_of
from gp_distributions.models.exact_inference import Moments
from gp_distributions.models.likelihoods import check_targets
from gp_distributions.models.regression import Regression, tails
from gp_distributions.numerics.densities import integrated, quantile

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

    def moments(self, X: Any, *, observation_noise: bool, **options: Any) -> Moments:
        """Return means and variances of targets, or of their expectations, ``... x N x 1``."""

        def of(found: MixtureSameFamily, part: slice) -> Tensor:
            if observation_noise:
                return torch.stack([found.mean, found.variance])
            errors = found.component_distribution.mean - found.mean.unsqueeze(-1)
            spread = (found.mixture_distribution.probs * errors.square()).sum(-1)
            return torch.stack([found.mean, spread])

        mean, variance = self._evaluated(X, of, **options).unsqueeze(-1)
        return mean, variance

    def latent_moments(self, rows: EmbeddedRows, given: Sequence[Any]) -> Moments:
        """Return means and variances of latent values at rows, ``... x N x 1``."""
        return self.latent_marginals(self.seen(rows), *given)

    def interval(  # type: ignore[override]
        self, X: Inputs | Tensor, level: float = 0.95, **options: Any
    ) -> Moments:
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
        levels = tails(level)

        def ends(found: MixtureSameFamily, part: slice) -> Tensor:
            return torch.stack([quantile(found, each) for each in levels])

        lower, upper = self._evaluated(X, ends, **options)
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
        check_order(X, Y)
        rows = self.rows_of(X)
        targets = as_targets(Y, rows)[0].squeeze(-1)
        given = {name: value for name, value in options.items() if name != "batch_size"}
        check_targets(targets, self.likelihood, self.known(X, rows, **given), Y)
        return self._evaluated(X, lambda found, part: found.log_prob(targets[..., part]), **options)

    @torch.no_grad()
    def predictive(self, X: Inputs | Tensor, **options: Any) -> MixtureSameFamily:
        """Return the predictive distributions of targets as a distribution of PyTorch.

        Args:
            X: The ``N`` clouds, as for :meth:`predict`.
            **options: As for :meth:`predict`.

        Returns:
            A mixture over latent values with ``mean``, ``variance``, ``log_prob`` and ``sample``, which
            holds 65 to 4,097 latent values for each cloud.
        """
        ((_, found),) = self._mixtures(X, whole=True, **options)
        return found

    def known(
        self,
        X: Any,
        rows: Tensor,
        *,
        exposure: Tensor | ArrayLike | None = None,
        trials: Tensor | ArrayLike | None = None,
        training: bool = False,
    ) -> dict[str, Tensor]:
        """Check what the likelihood is told about clouds, and return it as a tensor of ``... x N``."""
        takes = getattr(self.likelihood, "argument", None)
        given = {"exposure": exposure, "trials": trials}
        value = None if takes is None else given.pop(takes)
        for name, other in given.items():
            if other is not None:
                raise ValueError(
                    f"Expected {name}=None, which {type(self.likelihood).__name__} does not take. Pass "
                    f"likelihood={'binomial' if name == 'trials' else 'poisson'!r}."
                )
        if takes is None:
            return {}
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

    @torch.no_grad()
    def _evaluated(
        self, X: Any, function: Callable[[MixtureSameFamily, slice], Tensor], **options: Any
    ) -> Tensor:
        """Return a function of the predictive distributions of a slice of clouds, slice by slice."""
        found = [function(mixture, part) for part, mixture in self._mixtures(X, **options)]
        return torch.cat(found, dim=-1)

    def _mixtures(
        self, X: Any, *, batch_size: int = _BATCH, whole: bool = False, **given: Any
    ) -> Iterator[tuple[slice, MixtureSameFamily]]:
        """Yield slices of clouds, or one of all, and their predictive distributions."""
        rows = self.rows_of(X)
        known = self.known(X, rows, **given)
        count = max(rows.shape[-2], 1)  # without clouds, one slice is empty
        size = count if whole else batch_size
        for start in range(0, count, size):
            part = slice(start, start + size)
            at = {name: value[..., part, None] for name, value in known.items()}
            conditional = partial(self.likelihood, **at)
            yield part, self.integrated_at(rows[..., part, :], conditional, batch_size=batch_size)

    def integrated_at(
        self, rows: Tensor, conditional: Callable[[Tensor], Distribution], **options: Any
    ) -> MixtureSameFamily:
        """Return the predictive distributions at rows, given that of ``... x N x K`` latent values."""
        moments = self.in_batches(rows, "latent_moments", **options)
        mean, variance = (each.squeeze(-1) for each in moments)
        return integrated(conditional, mean, (variance.clamp_min(0) + self.effect_variance).sqrt())
