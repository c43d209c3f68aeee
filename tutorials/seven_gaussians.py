"""Seven Gaussians and three decision boundaries, after figure 1 of Muandet et al. 2012.

The support vector machine (SVM) sees only the means, the augmented one (ASVM) sees samples from each
Gaussian, and the support measure machine (SMM) sees the Gaussians themselves.

    python -m tutorials.seven_gaussians
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from gp_distributions import Gaussians
from gp_distributions.estimators import GramTransformer

# The paper has gamma = 0.25, in exp(-gamma |x - y|^2 / 2) if its table 1 says what it is.
BANDWIDTH = 2.0
SAMPLES = 30
PENALTY = 100.0
FIGURE = Path(__file__).parent / "figures" / "seven_gaussians.png"

Array = NDArray[np.float64]


def seven_gaussians() -> tuple[Gaussians, NDArray[np.int64]]:
    """Return seven Gaussians in the plane with very different covariances, and their two classes."""
    means = [[-3, 2], [0, 3], [3, 2], [-3, -1], [0, -2.5], [3, -1], [0, 0.5]]
    spreads = [(0.2, 1.0), (1.0, 0.2), (0.2, 0.2), (0.2, 0.2), (1.0, 0.2), (0.2, 1.0), (0.2, 0.5)]
    covariance = [np.diag(np.square(spread)) for spread in spreads]
    labels = np.array([0, 0, 0, 1, 1, 1, 0])
    return Gaussians(np.array(means, dtype=float), np.array(covariance)), labels


def machines(gaussians: Gaussians, labels: NDArray[np.int64]) -> dict[str, Any]:
    """Return the decision function of each machine on ``n x 2`` points."""
    gamma = 1 / (2 * BANDWIDTH**2)
    vector = SVC(gamma=gamma, C=PENALTY).fit(gaussians.mean.numpy(), labels)
    samples = gaussians.sample(SAMPLES, seed=0).points.numpy().reshape(-1, 2)
    augmented = SVC(gamma=gamma, C=PENALTY).fit(samples, np.repeat(labels, SAMPLES))
    options = {"bandwidth": BANDWIDTH}
    gram = GramTransformer("mmd", options=options, profile="linear", lengthscale=1.0)
    measure = make_pipeline(gram, SVC(kernel="precomputed", C=PENALTY)).fit(gaussians, labels)
    return {
        "SVM": vector.decision_function,
        "ASVM": augmented.decision_function,
        "SMM": lambda points: measure.decision_function(point_masses(points)),
    }


def point_masses(points: Array) -> Gaussians:
    """Return Gaussians without spread at the given points."""
    return Gaussians(points, np.zeros((len(points), 2, 2)))


def draw(ax: Any) -> Any:
    """Draw the Gaussians, at one and two standard deviations, and the decision boundaries."""
    from matplotlib.patches import Ellipse

    gaussians, labels = seven_gaussians()
    x, y = np.meshgrid(np.linspace(-5, 5, 60), np.linspace(-5.5, 5.5, 60))
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    styles = {"SVM": ":", "ASVM": "--", "SMM": "-"}
    for name, decide in machines(gaussians, labels).items():
        values = decide(points).reshape(x.shape)
        ax.contour(x, y, values, levels=[0], colors="black", linestyles=styles[name])
        ax.plot([], [], "k" + styles[name], label=name)
    for mean, covariance, label in zip(gaussians.mean, gaussians.covariance, labels, strict=True):
        width, height = 2 * covariance.diagonal().sqrt().numpy()
        color = "#2166ac" if label else "#b2182b"
        for scale in (1, 2):
            ax.add_patch(
                Ellipse(mean.tolist(), scale * width, scale * height, fill=False, ec=color)
            )
        ax.plot(*mean.tolist(), "s" if label else "o", color=color, markersize=4)
    ax.set_aspect("equal")
    ax.legend(frameon=False, loc="upper right")
    return ax


if __name__ == "__main__":
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 5.2), layout="constrained")
    draw(axes)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=150)
