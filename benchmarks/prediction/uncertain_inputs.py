r"""What does it bring to know the errors of inputs?

Inputs :math:`x` are uniform on [-1.5, 1.5]^2, and :math:`y = \sin(3 x_1) + x_2^2 / 2 + x_1 x_2` with
noise of .05. The inputs are measured with normal errors, whose known standard deviations are drawn for
each number from .02, .1, .3 and .6. There are 200 rows to train and 200 to test, of the seeds from 100.

- ``draws``: ``AggregateGP(Gaussians.from_mean_std(x, std), y, aggregate="draw")``;
- ``exact``: BoTorch's ``SingleTaskGP`` on the measured inputs, normalised, with its default fit.

Scores are means over seeds: root mean square error, coverage of 95% intervals, also of the third of rows
with the largest errors, and mean negative log density, ``nlpd``. The last row has the difference of
``nlpd`` from ``exact``, in how many seeds it is lower, and the mean ratio of errors.

    python -m benchmarks.prediction.uncertain_inputs [--quick] [--seeds 20]
"""

from __future__ import annotations

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import limit
from benchmarks.regression import Scores, score_of

SEEDS = 20
FIRST, ERRORS, NOISE = 100, (0.02, 0.1, 0.3, 0.6), 0.05
TARGETS = (
    limit(
        "uncertain inputs: nlpd below that of SingleTaskGP on the means, in nats",
        ">= 0.18",
        "gain",
        model="draws / exact",
    ),
    limit("uncertain inputs: seeds with lower nlpd", ">= 19", "lower in", model="draws / exact"),
    limit("uncertain inputs: coverage of 95% intervals", "0.92 to 0.98", "coverage", model="draws"),
    limit(
        "uncertain inputs: coverage of the third with the largest errors",
        "0.92 to 0.98",
        "coverage, widest",
        model="draws",
    ),
    limit("uncertain inputs: ratio of errors", "<= 0.95", "rmse", model="draws / exact"),
)


def table(seed: int, num: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw measured inputs, their standard errors, and targets."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(-1.5, 1.5, (num, 2))
    error = rng.choice(ERRORS, true.shape)
    measured = true + error * rng.normal(size=true.shape)
    y = np.sin(3 * true[:, 0]) + true[:, 1] ** 2 / 2 + true[:, 0] * true[:, 1]
    y += NOISE * rng.normal(size=num)
    return torch.from_numpy(measured), torch.from_numpy(error), torch.from_numpy(y)


def scores(y: Tensor, moments: tuple[Tensor, Tensor], widest: Tensor) -> Scores:
    """Return the scores of predictions, and the coverage of some of them."""
    mean, std = moments
    found = score_of(y, mean, std)
    of_widest = score_of(y[widest], mean[widest], std[widest])
    return {name: found[name] for name in ("rmse", "coverage", "nlpd")} | {
        "coverage, widest": of_widest["coverage"]
    }


def both(seed: int, train: int) -> dict[str, Scores]:
    """Return the scores of both models on the data of a seed."""
    measured, error, y = table(seed, 2 * train)
    X = gd.Gaussians.from_mean_std(measured, error)
    draws = gd.AggregateGP(X[:train], y[:train], aggregate="draw")
    predicted = gd.fit(draws, progress=False).predict(X[train:])
    exact = SingleTaskGP(measured[:train], y[:train, None], input_transform=Normalize(2))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(exact.likelihood, exact))
    posterior = exact.posterior(measured[train:], observation_noise=True)
    moments = posterior.mean.detach()[:, 0], posterior.variance.detach().sqrt()[:, 0]
    widest = error[train:].square().sum(-1).argsort()[-(train // 3) :]
    return {
        "draws": scores(y[train:], predicted, widest),
        "exact": scores(y[train:], moments, widest),
    }


def run(options: Options) -> list[Row]:
    """Return one row per model, and one that compares them."""
    train = 30 if options.quick else 200
    seeds = range(FIRST, FIRST + options.seeds)
    runs = [both(seed, train) for seed in progress(seeds, "uncertain inputs")]
    rows: list[Row] = [{"model": name, **means([run[name] for run in runs])} for name in runs[0]]
    gains = [run["exact"]["nlpd"] - run["draws"]["nlpd"] for run in runs]
    ratios = [run["draws"]["rmse"] / run["exact"]["rmse"] for run in runs]
    compared: Row = {"model": "draws / exact", "rmse": float(np.mean(ratios))}
    compared |= {"gain": float(np.mean(gains)), "lower in": sum(gain > 0 for gain in gains)}
    return [*rows, compared | {"of": len(runs)}]


if __name__ == "__main__":
    main(run)
