"""Do support measure machines separate two classes of Gaussians as well as they should?

Table 2 and figure 1b of Muandet et al. 2012. There are two classes of Gaussians in ten dimensions. Their
means are from N((1, ..., 1), I / 2) and N((2, ..., 2), I / 2). Their covariances are Wishart with ten
degrees of freedom and scales 0.6 I and 1.2 I. As printed, there are 500 of each class for training and
100 of each for testing. Scikit-learn's support vector machine is trained on Gram matrices: the level-2
``kernel`` of mean embeddings with an ``embedding`` kernel, both in closed form. The grids are those of
the paper: C from 2^-3 to 2^7, gamma from 10^-3 to 10^2 for Gaussian kernels exp(-gamma |x - y|^2 / 2) of
either level, degrees 2 to 6 for the polynomial level-2 kernel.

Three things differ. There are 5 repetitions (``--seeds``) instead of 30; figure 1b has 30. Ten-fold
cross-validation uses 200 of the 1000 training Gaussians; the selected machine is trained on all. The
solver stops after 20,000 iterations, because entries of polynomial Gram matrices reach 10^30. The header
of Table 2 has a column URBF where the text has RBF, unnormalised, and NRBF, normalised: which column is
which is ambiguous, and normalised is not defined; here it means embeddings of length one.

Columns: ``accuracy`` in % on test Gaussians, the mean over repetitions, with standard deviation, lowest
and highest; ``published``, that of Table 2.

The protocol as printed does not reproduce Table 2: the means alone separate the classes with an accuracy
of 98.7%, the Bayes rate (in closed form), so a linear kernel should not stop at 85%. The rows below the
table are attempts at the reason:

- ``mean covariances``: Wishart matrices divided by ten, so that 0.6 I and 1.2 I are their means;
- ``trace term``: the linear entry of Table 1 in full, with tr(Sigma_i) added to the diagonal of the
  training Gram matrix;
- ``two dimensions``: the same classes in the plane, where the Bayes rate of the means is 84.1%. This is
  the only attempt near the published level.

Figure 1b is run on its own grids, gamma from 10^-3 to 10^3 and degrees 2 to 8, with means over 30
experiments: accuracy in cross-validation, with the best C, by the parameters of both levels. That
POLY-RBF is a polynomial level-2 kernel on a Gaussian embedding kernel is our reading: polynomial
embedding kernels of degree 4 and more are not in Table 1. The last table has its lowest and highest
accuracies, with these parameters.

    python -m benchmarks.papers.support_measure_machines [--quick] [--seeds 5]
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, main
from benchmarks.judging import limit
from benchmarks.papers.machines import Array, Labels, cross_validate, machine
from gp_distributions import MMD, DistributionKernel, Gaussians
from gp_distributions.kernels import Polynomial
from gp_distributions.kernels.profiles import Profile

FREEDOM = 10
GAMMAS = tuple(10.0**k for k in range(-3, 3))
DEGREES = (2, 3, 4, 5, 6)
# Grids and number of experiments of figure 1b.
FIGURE_GAMMAS, FIGURE_DEGREES, EXPERIMENTS = tuple(10.0**k for k in range(-3, 4)), range(2, 9), 30
# Columns and rows of Table 2: embedding kernels, level-2 kernels and published accuracies.
EMBEDDINGS = ("linear", "polynomial2", "polynomial3", "gaussian", "gaussian, normalised")
PUBLISHED = {
    "linear": (85.20, 81.04, 81.10, 87.74, 85.39),
    "polynomial": (83.95, 81.34, 82.66, 88.06, 86.84),
    "gaussian": (87.80, 73.12, 78.28, 89.65, 86.86),
}
Pair = tuple[str, str]
LINEAR, GAUSSIAN = ("linear", "linear"), ("gaussian", "gaussian")
REACH = {LINEAR: 97.0, GAUSSIAN: 99.0}


@dataclass(frozen=True)
class Protocol:
    """Sizes and classes.

    Attributes:
        train: Number of training Gaussians.
        test: Number of test Gaussians.
        selection: Number of training Gaussians for cross-validation.
        dim: Dimension.
        scale: Factor of the Wishart matrices.
        trace: Whether the linear kernel of two linear levels has its trace term.
    """

    train: int = 1000
    test: int = 200
    selection: int = 200
    dim: int = 10
    scale: float = 1.0
    trace: bool = False


def classes(protocol: Protocol, seed: int) -> tuple[Gaussians, Labels]:
    """Draw Gaussians and their classes, alternating; test Gaussians come last."""
    generator = torch.Generator().manual_seed(seed)
    count, dim = protocol.train + protocol.test, protocol.dim

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.arange(count) % 2
    mean = 1.0 + labels.double().unsqueeze(-1) + 0.5**0.5 * normal(count, dim)
    scale = protocol.scale * torch.where(labels == 0, 0.6, 1.2).double()
    factors = scale.sqrt()[:, None, None] * normal(count, dim, FREEDOM)
    return Gaussians(mean, factors @ factors.mT), labels.numpy()


@dataclass(frozen=True)
class Choice:
    """Kernels of both levels and the parameters of a machine, with its accuracy in cross-validation.

    Attributes:
        distance: Distance between mean embeddings.
        gamma: Parameter of a Gaussian embedding kernel.
        kernel: Name of the level-2 kernel.
        parameter: Parameter of the level-2 kernel, if there is one.
        penalty: C.
        accuracy: Accuracy in cross-validation.
    """

    distance: MMD
    gamma: float | None
    kernel: str
    parameter: float | None
    penalty: float = 1.0
    accuracy: float = 0.0

    def gram(self, rows: Tensor, others: Tensor) -> Array:
        """Compute a Gram matrix."""
        profile: str | Profile = self.kernel
        if self.kernel == "polynomial":
            profile = Polynomial(power=int(self.parameter or 1))
        kernel = DistributionKernel(self.distance, profile).double()
        if self.kernel == "gaussian":
            kernel.lengthscale = (self.parameter or 1.0) ** -0.5
        with torch.no_grad():
            matrix: Array = kernel(rows, others).to_dense().numpy()
        return matrix


def candidates(
    embedding: str,
    kernel: str,
    dim: int,
    *,
    gammas: Sequence[float] = GAMMAS,
    degrees: Sequence[int] = DEGREES,
) -> Iterator[Choice]:
    """Return all choices of parameters for the kernels of both levels, by default those of Table 2."""
    name, _, normalised = embedding.partition(", ")
    grids: dict[str, Sequence[float | None]] = {
        "linear": (None,),
        "polynomial": degrees,
        "gaussian": gammas,
    }
    for gamma in gammas if name == "gaussian" else (None,):
        distance = MMD(
            dim,
            kernel=name,
            bandwidth=None if gamma is None else gamma**-0.5,
            normalize=bool(normalised),
            inputs="gaussians",
        )
        for parameter in grids[kernel]:
            yield Choice(distance, gamma, kernel, parameter)


def cross_validated(
    choices: Iterable[Choice], rows: Tensor, labels: Labels, trace: Array
) -> list[Choice]:
    """Return all choices with their best C, and its accuracy in ten-fold cross-validation."""
    tried = []
    for choice in choices:
        gram = choice.gram(rows, rows) + np.diag(trace)
        folds = StratifiedKFold(10).split(gram, labels)
        penalty, score = cross_validate(gram, labels, folds)
        tried.append(replace(choice, penalty=penalty, accuracy=score))
    return tried


def accuracy(embedding: str, kernel: str, protocol: Protocol, seed: int) -> float:
    """Select a machine by cross-validation, and return its accuracy on test Gaussians in %."""
    gaussians, labels = classes(protocol, seed)
    rows, train, few = gaussians.pack(), protocol.train, protocol.selection
    trace = gaussians.covariance.diagonal(dim1=-2, dim2=-1).sum(-1).numpy() * protocol.trace
    choices = candidates(embedding, kernel, protocol.dim)
    tried = cross_validated(choices, rows[:few], labels[:few], trace[:few])
    chosen = max(tried, key=lambda choice: choice.accuracy)
    gram = chosen.gram(rows, rows[:train])
    gram[:train] += np.diag(trace[:train])
    fitted = machine(chosen.penalty).fit(gram[:train], labels[:train])
    return 100 * float(fitted.score(gram[train:], labels[train:]))


def tested(pair: Pair, protocol: Protocol, seeds: Sequence[int]) -> list[float]:
    """Return the accuracies of a pair of kernels by seed."""
    return [accuracy(*pair, protocol, seed) for seed in seeds]


def described(pair: Pair, scores: Sequence[float]) -> Row:
    """Return the columns of a pair of kernels."""
    return {
        "accuracy": statistics.fmean(scores),
        "std": statistics.pstdev(scores),
        "lowest": min(scores),
        "highest": max(scores),
        "published": PUBLISHED[pair[1]][EMBEDDINGS.index(pair[0])],
    }


def table_2(pairs: Sequence[Pair], protocol: Protocol, seeds: Sequence[int]) -> list[Row]:
    """Return one row per pair of kernels."""
    rows: list[Row] = []
    for pair in tqdm(pairs, desc="Table 2", leave=False, disable=None):
        scores = tested(pair, protocol, seeds)
        rows.append({"embedding": pair[0], "kernel": pair[1], **described(pair, scores)})
    return rows


def attempts(printed: Protocol, seeds: Sequence[int]) -> list[Row]:
    """Return one row per attempt at the published level."""
    rows: list[Row] = []
    for label, protocol, pairs in (
        ("mean covariances", replace(printed, scale=0.1), (LINEAR, GAUSSIAN)),
        ("trace term", replace(printed, trace=True), (LINEAR,)),
        ("two dimensions", replace(printed, dim=2), (LINEAR, GAUSSIAN)),
    ):
        for pair in pairs:
            scores = tested(pair, protocol, seeds)
            name = f"{label}: {pair[1]} on {pair[0]}"
            rows.append({"attempt": name, **described(pair, scores)})
    return rows


def bayes(dim: int) -> Row:
    """Return the Bayes rate of the means, in closed form."""
    rate = 100 * NormalDist().cdf(dim**0.5 / (2 * 0.5**0.5))
    return {"bayes": f"means in {dim} dimensions", "accuracy": rate}


def figure_1b(protocol: Protocol, seeds: Sequence[int], *, quick: bool) -> list[Row]:
    """Return the lowest and highest accuracy of figure 1b for each level-2 kernel."""
    few, step = protocol.selection, 6 if quick else 1
    gammas, degrees = FIGURE_GAMMAS[::step], FIGURE_DEGREES[::step]
    rows: list[Row] = []
    for kernel in ("gaussian", "polynomial"):
        choices = list(candidates("gaussian", kernel, protocol.dim, gammas=gammas, degrees=degrees))
        total = np.zeros(len(choices))
        for seed in tqdm(seeds, desc=f"Figure 1b, {kernel}", leave=False, disable=None):
            gaussians, labels = classes(protocol, seed)
            some = gaussians.pack()[:few]
            tried = cross_validated(choices, some, labels[:few], np.zeros(few))
            total += [choice.accuracy for choice in tried]
        for which, i in (("lowest", total.argmin()), ("highest", total.argmax())):
            rows.append(
                {
                    "figure 1b": f"{which}, {kernel}",
                    "accuracy": float(100 * total[i] / len(seeds)),
                    "gamma of the embedding": choices[i].gamma,
                    "gamma or degree": choices[i].parameter,
                }
            )
    return rows


TARGETS = tuple(
    limit(
        f"support measure machines, {text}: accuracy in %",
        f">= {REACH[pair]:g}",
        "accuracy",
        embedding=pair[0],
        kernel=pair[1],
    )
    for text, pair in (("LIN-LIN", LINEAR), ("RBF-RBF", GAUSSIAN))
)


def run(options: Options) -> list[Row]:
    """Return Table 2, with one row per pair of kernels, the attempts at its level, and figure 1b."""
    seeds = range(options.seeds)
    printed = Protocol(60, 40, 20) if options.quick else Protocol()
    pairs = [(embedding, kernel) for kernel in PUBLISHED for embedding in EMBEDDINGS]
    if options.quick:
        pairs = [LINEAR, GAUSSIAN, ("gaussian", "polynomial")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # solvers stop early, by design
        rows = table_2(pairs, printed, seeds)
        rows += [bayes(printed.dim), bayes(2)]
        rows += [] if options.quick else attempts(printed, seeds)
        rows += figure_1b(printed, range(1 if options.quick else EXPERIMENTS), quick=options.quick)
    return rows


if __name__ == "__main__":
    main(run)
