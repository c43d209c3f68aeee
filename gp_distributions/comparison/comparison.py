"""The result of a comparison: a table, a picture, the best model and the mixture of all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.comparison.trials import Trial
from gp_distributions.metrics.entries import ComparisonEntry
from gp_distributions.metrics.leave_one_out import PRIOR
from gp_distributions.metrics.predictions import Predictions
from gp_distributions.models import ensemble_of
from gp_distributions.numerics.predictions import stacking_weights
from gp_distributions.plotting.drawing import Axes
from gp_distributions.plotting.predictions import plot_comparison

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = {
    "log_density": ("log density", ".3f"),
    "difference": ("difference", ".3f"),
    "error": ("error", ".3f"),
    "rmse": ("RMSE", ".3g"),
    "r2": ("R²", ".3f"),
    "coverage": ("cover 0.95", ".3f"),
    "accuracy": ("accuracy", ".3f"),
    "weight": ("weight", ".3f"),
    "seconds": ("seconds", ".1f"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Result of :func:`compare`. Print it to see the table, the best candidate first.

    Attributes:
        table: The scores of all candidates, the best first and those that failed last.
        stacked: The scores of the weighted mixture. Its weights have seen the targets, which flatters it
            if there are few clouds.
        models: The models fitted to all clouds by name, without those of candidates that failed.
        log_density: Log density of each cloud's targets, or log probability of its label, by name:
            tensors of length ``T``.
        predictions: The held-out predictions by name.

    Example:
        >>> import torch
        >>> from gp_distributions import MMDKernel, PointClouds, SlicedWassersteinKernel, compare
        >>> points = torch.randn(15, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> X, y = PointClouds(points), points.mean((-2, -1))
        >>> kernels = {"sw2": SlicedWassersteinKernel(2), "mmd": MMDKernel(2, bandwidth=0.1)}
        >>> found = compare(kernels, X, y)
        >>> found.best is found.models["sw2"]
        True
        >>> round(sum(found.weights.values()), 6)
        1.0
        >>> found.log_density["mmd"].shape
        torch.Size([15])
    """

    table: tuple[ComparisonEntry, ...]
    stacked: ComparisonEntry
    models: dict[str, Any]
    predictions: dict[str, Predictions]

    @classmethod
    def of(
        cls,
        results: Mapping[str, tuple[Trial, Predictions | None]],
        clusters: NDArray[Any] | None = None,
    ) -> Comparison:
        """Rank and weigh candidates.

        Args:
            results: The trial of each candidate on all data, and its held-out predictions.
            clusters: The number of the group of each cloud, or None.

        Raises:
            RuntimeError: If every candidate failed.
        """
        scored: dict[str, Predictions] = {}
        failures = []
        for name, (trial, predictions) in results.items():
            message = trial.message
            if predictions is not None:
                densities = predictions.log_density
                bad = (~densities.isfinite()).nonzero().flatten().tolist()
                if not bad:
                    scored[name] = predictions
                    continue
                message = f"ValueError: the log density of cloud {bad[0]} is {densities[bad[0]]}"
            failures.append(ComparisonEntry(name, message=message))
        if not scored:
            reasons = "; ".join(f"{entry.name!r}: {entry.message}" for entry in failures)
            raise RuntimeError(f"Expected at least one candidate that can be scored, but {reasons}")
        names = sorted(scored, key=lambda name: -scored[name].log_density.mean().item())
        members = [scored[name] for name in names]
        best = members[0].log_density
        each = torch.stack([member.log_density for member in members], dim=-1)
        weights = stacking_weights(each, prior=PRIOR)
        table = [
            _entry(name, scored[name], best, clusters, weight, results[name][0].seconds)
            for name, weight in zip(names, weights.tolist(), strict=True)
        ]
        mixture = type(members[0]).mixed(members, weights.to(best))
        total = sum(entry.seconds for entry in table)
        stacked = _entry("stacked", mixture, best, clusters, 1.0, total)
        models = {name: results[name][0].model for name in names}
        return cls((*table, *failures), stacked, models, dict(zip(names, members, strict=True)))

    @property
    def best(self) -> Any:
        """The fitted model of the candidate with the largest held-out log density."""
        return self.models[self.table[0].name]

    def model(self) -> Any:
        """Return the stacked predictions as a model, whose members are all that did not fail.

        Returns:
            A :class:`DistributionGP` or a classifier.

        Raises:
            TypeError: If a candidate is sparse.
        """
        kept = {name: weight for name, weight in self.weights.items() if weight > 0}
        return ensemble_of([self.models[name] for name in kept], list(kept.values()))

    @property
    def weights(self) -> dict[str, float]:
        """Stacking weights by name, which sum to one; those of candidates that failed are zero."""
        return {entry.name: entry.weight for entry in self.table}

    @property
    def log_density(self) -> dict[str, Tensor]:
        """Log density of each cloud's targets, or log probability of its label, by name."""
        return {name: found.log_density for name, found in self.predictions.items()}

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the differences in log density to the best candidate, with weights.

        Args:
            ax: Axes to draw on. Default: axes of a new figure.

        Returns:
            The axes.
        """
        return plot_comparison([*self.table, self.stacked], ax=ax)

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas data frame, with one row for each candidate."""
        import pandas as pd

        columns = ["name", *_COLUMNS, "message"]
        rows = [[getattr(entry, column) for column in columns] for entry in self.table]
        return pd.DataFrame(rows, columns=columns).set_index("name")

    def __repr__(self) -> str:
        entries = [entry for entry in self.table if not entry.failed] + [self.stacked]
        shown = {
            column: form
            for column, form in _COLUMNS.items()
            if not all(math.isnan(getattr(entry, column)) for entry in entries)
        }
        lines = [["Comparison", *(title for title, _ in shown.values())]]
        lines += [
            [entry.name, *(format(getattr(entry, c), form) for c, (_, form) in shown.items())]
            for entry in entries
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        ]
        text += [f"{entry.name}: {entry.message}" for entry in self.table if entry.failed]
        return "\n".join(text)


def _entry(
    name: str,
    predictions: Predictions,
    best: Tensor,
    clusters: NDArray[Any] | None,
    weight: float,
    seconds: float,
) -> ComparisonEntry:
    scores: dict[str, Any] = dict(predictions.scores())
    densities = predictions.log_density
    differences = densities - best
    return ComparisonEntry(
        name,
        log_density=densities.mean().item(),
        difference=differences.mean().item(),
        error=_standard_error(differences, clusters),
        weight=weight,
        seconds=seconds,
        **scores,
    )


def _standard_error(differences: Tensor, clusters: NDArray[Any] | None) -> float:
    """Return the standard error of a mean, if the sums over clusters are independent."""
    centred = differences - differences.mean()
    if clusters is not None:
        index = torch.from_numpy(clusters).to(centred.device)
        centred = centred.new_zeros(int(index.max()) + 1).index_add(0, index, centred)
    number = len(centred)
    total = centred.square().sum().item() * number / (number - 1)
    return math.sqrt(total) / len(differences)
