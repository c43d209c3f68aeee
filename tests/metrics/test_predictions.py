"""Scores of predictions and of their mixtures, against distributions of PyTorch and scikit-learn."""

import pytest
import torch
from cases import randn
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from gp_distributions.metrics import ClassPredictions, NormalPredictions

T, K, OUTPUTS = 30, 3, 2
GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return randn(*shape, seed=GENERATOR)


TARGETS, MEANS, STDS = (
    10 + random(T, OUTPUTS),
    10 + random(K, T, OUTPUTS),
    random(K, T, OUTPUTS).exp(),
)
WEIGHTS = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)


def members() -> list[NormalPredictions]:
    return [NormalPredictions.of(TARGETS, m, s) for m, s in zip(MEANS, STDS, strict=True)]


def test_log_densities_are_sums_over_outputs() -> None:
    for member, mean, std in zip(members(), MEANS, STDS, strict=True):
        expected = Normal(mean, std).log_prob(TARGETS).sum(-1)
        torch.testing.assert_close(member.log_density, expected)


def test_mixture_is_that_of_pytorch() -> None:
    mixture = NormalPredictions.mixed(members(), WEIGHTS)
    assert len(mixture.weights) == 2
    kept = [0, 2]
    mean, std = MEANS[kept].movedim(0, 1), STDS[kept].movedim(0, 1)
    joint = MixtureSameFamily(
        Categorical(torch.full((T, 2), 0.5).double()), Independent(Normal(mean, std), 1)
    )
    torch.testing.assert_close(mixture.log_density, joint.log_prob(TARGETS))
    below = Normal(mean, std).cdf(TARGETS.unsqueeze(1)).mean(1)
    expected = (below > 0.1) & (below < 0.9)
    assert torch.equal(mixture.covered(0.8), expected)
    assert 0 < expected.double().mean() < 1
    scores = mixture.scores()
    assert scores["rmse"] == pytest.approx(
        root_mean_squared_error(TARGETS.T.flatten(), mean.mean(1).T.flatten())
    )
    assert scores["r2"] == pytest.approx(r2_score(TARGETS, mean.mean(1)))


def test_parts_are_joined_in_the_order_of_the_targets() -> None:
    (whole, *_) = members()
    order = torch.randperm(T, generator=torch.Generator().manual_seed(1))
    places = order.split([7, 3, 20])
    parts = [NormalPredictions.of(TARGETS[i], MEANS[0, i], STDS[0, i]) for i in places]
    joined = NormalPredictions.joined(parts, places)
    torch.testing.assert_close(joined.log_density, whole.log_density)
    torch.testing.assert_close(joined.targets, whole.targets)


def test_classes() -> None:
    labels = torch.arange(T) % 3
    probabilities = random(K, T, 3).softmax(-1)
    found = [ClassPredictions.of(labels, p) for p in probabilities]
    mixed = ClassPredictions.mixed(found, WEIGHTS)
    average = (probabilities[0] + probabilities[2]) / 2
    assert -mixed.log_density.mean().item() == pytest.approx(log_loss(labels, average))
    expected = accuracy_score(labels, average.argmax(-1))
    assert mixed.scores() == {"accuracy": pytest.approx(expected)}
    joined = ClassPredictions.joined(
        [ClassPredictions.of(labels[i], probabilities[0, i]) for i in (slice(5, T), slice(5))],
        [torch.arange(5, T), torch.arange(5)],
    )
    torch.testing.assert_close(joined.log_density, found[0].log_density)
