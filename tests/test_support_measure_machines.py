"""Support measure machines of Muandet et al. 2012: scikit-learn's SVC on our Gram matrices.

Two classes of Gaussians in ten dimensions, whose means scatter about (1, ..., 1) and (2, ..., 2) with
covariance I/2 and whose covariances are Wishart: the means alone separate the classes at 98.7% (Bayes).
"""

import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor

from gp_distributions import Gaussians, MMDKernel

DIM = 10


def classes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of Gaussians and their classes, half of each."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.arange(count) % 2
    mean = 1.0 + labels.double().unsqueeze(-1) + 0.5**0.5 * normal(count, DIM)
    scale = torch.where(labels == 0, 0.6, 1.2).double() / DIM
    factors = scale.sqrt()[:, None, None] * normal(count, DIM, DIM)
    return Gaussians(mean, factors @ factors.mT).pack(), labels


@pytest.mark.parametrize(
    ("embedding", "profile", "reach"), [("linear", "linear", 0.97), ("gaussian", "gaussian", 0.99)]
)
def test_accuracy_is_near_that_of_bayes(embedding: str, profile: str, reach: float) -> None:
    accuracies = []
    for seed in range(2):
        (train, labels), (test, truth) = classes(400, seed), classes(400, 100 + seed)
        kernel = MMDKernel(DIM, kernel=embedding, inputs="gaussians", profile=profile).double()
        squared = kernel.distance.squared(train)
        kernel.lengthscale = squared[squared > 0].median().sqrt()
        with torch.no_grad():
            gram = kernel(train).to_dense().numpy()
            across = kernel(test, train).to_dense().numpy()
        machine = SVC(kernel="precomputed", C=1.0).fit(gram, labels.numpy())
        accuracies.append(machine.score(across, truth.numpy()))
    assert sum(accuracies) / 2 >= reach
