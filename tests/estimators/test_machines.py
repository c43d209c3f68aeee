"""Methods from the papers, in a few lines each, on data for which the right answer is known."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA, KernelPCA
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from gp_distributions.estimators import EmbeddingTransformer, GramTransformer
from tutorials.seven_gaussians import draw, machines, seven_gaussians

Array = NDArray[np.float64]
FEW = {"num_slices": 20, "num_quantiles": 20}


def normal_bags(means: Array, deviations: Array, *, atoms: int, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(len(means), atoms, means.shape[1]))
    return list(means[:, None] + deviations[:, None, None] * z)


# Kernel ridge regression


# Support measure machines


def test_linear_support_measure_machine_sees_the_means() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(40, 3))
    labels = (means @ [1.0, -1.0, 0.5] > 0).astype(int)
    X = normal_bags(means, np.ones(40), atoms=15, seed=1)
    linear = {"options": {"kernel": "linear"}, "profile": "linear", "lengthscale": 1.0}
    machine = make_pipeline(GramTransformer("mmd", **linear), SVC(kernel="precomputed"))
    machine.fit(X, labels)
    averages = np.array([bag.mean(0) for bag in X])
    vector = SVC(kernel="linear").fit(averages, labels)
    np.testing.assert_allclose(
        machine.decision_function(X), vector.decision_function(averages), atol=1e-6
    )


def test_seven_gaussians() -> None:
    """The support measure machine moves the boundary away from wide Gaussians."""
    gaussians, labels = seven_gaussians()
    decide = machines(gaussians, labels)
    samples = gaussians.sample(400, seed=1).points.numpy().reshape(-1, 2)
    accuracies = {
        name: np.mean((decision(samples) > 0) == np.repeat(labels, 400))
        for name, decision in decide.items()
    }
    # 1.9% of the samples lie on the wrong side of the SVM boundary, 1.5% for the SMM.
    assert 1 - accuracies["SMM"] < 0.8 * (1 - accuracies["SVM"])
    ax = draw(plt.figure().gca())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["SVM", "ASVM", "SMM"]


# Sliced Wasserstein kernels (Kolouri, Zou and Rohde 2016)


def test_principal_components_of_translations_and_scalings() -> None:
    """Translations in the plane and scalings span a three-dimensional subspace of the embedding."""
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(20, 2))
    shape -= shape.mean(0)
    moves = rng.normal(size=(25, 2)) * [3.0, 1.0]
    scales = rng.uniform(0.5, 1.5, 25)
    X = list(scales[:, None, None] * shape + moves[:, None])
    features = EmbeddingTransformer(options=FEW).fit_transform(X)
    principal = PCA().fit(features)
    assert principal.explained_variance_ratio_[:3].sum() == pytest.approx(1.0, abs=1e-12)
    # Squared distances are |m - m'|^2 / d for translations, (s - s')^2 |shape|^2 / (n d) for scalings.
    variances = np.append(moves.var(0, ddof=1), scales.var(ddof=1) * (shape**2).sum() / 20) / 2
    assert principal.explained_variance_.sum() == pytest.approx(variances.sum(), rel=1e-9)
    # The Gram matrix gives the same eigenvalues.
    gram = GramTransformer(options=FEW, profile="linear", lengthscale=1.0).fit_transform(X)
    kernel = KernelPCA(n_components=3, kernel="precomputed").fit(gram)
    np.testing.assert_allclose(kernel.eigenvalues_ / 24, principal.explained_variance_[:3])


def test_principal_direction_as_shapes() -> None:
    """Along the first principal component of translated copies, only the mean moves."""
    rng = np.random.default_rng(0)
    shape, steps = rng.normal(size=(20, 2)), rng.normal(size=10)
    X = list(shape + steps[:, None, None] * [2.0, 1.0])
    machine = make_pipeline(EmbeddingTransformer(options=FEW), PCA(1)).fit(X)
    scores = machine.transform(X)
    along = machine.inverse_transform([[scores.min()], [scores.max()]])
    means = (along.weights.unsqueeze(-1) * along.points).sum(-2).numpy()
    ends = [X[steps.argmin()].mean(0), X[steps.argmax()].mean(0)]
    ends = ends if scores[steps.argmin()] < 0 else ends[::-1]
    np.testing.assert_allclose(means, ends, atol=1e-2)
