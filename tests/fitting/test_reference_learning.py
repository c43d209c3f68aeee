"""Learning the reference: monotone, guarded, in place, and with a warning of bad references."""

import pytest
import torch
from cases import rand, randn
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean

from gp_distributions import (
    DistributionGP,
    PointClouds,
    ReferenceMeasure,
    SinkhornKernel,
    fit,
    fit_reference,
)
from gp_distributions.bayesopt import Decoder
from gp_distributions.fitting import reference_learning
from gp_distributions.warnings import ReferenceWarning


def toy(num: int = 40) -> tuple[PointClouds, torch.Tensor]:
    """Small clouds whose target changes along both axes."""
    generator = torch.Generator().manual_seed(0)
    means = 0.6 * rand(num, 1, 2, seed=generator) - 0.3
    spread = 0.015 * randn(num, 12, 2, seed=generator)
    return PointClouds(means + spread), means[:, 0, 0] - (means[:, 0, 1] + 0.5).square()


CLOUDS, TARGETS = toy()

# These tests start from references on a line.
pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::gp_distributions.warnings.ReferenceWarning"),
]


def make_model(points: list[list[float]], weights: list[float] | None = None) -> DistributionGP:
    reference = ReferenceMeasure(torch.tensor(points, dtype=torch.float64), weights)
    return DistributionGP(
        *(CLOUDS[:30], TARGETS[:30], ScaleKernel(SinkhornKernel(reference, epsilon=0.05))),
        mean_module=ZeroMean(),
    )


# The target changes little along this line, and more across it.
LINE = [[-0.3, -0.3], [0.0, 0.01], [0.3, 0.3]]


def error(model: DistributionGP) -> float:
    return float((model.predict(CLOUDS[30:])[0] - TARGETS[30:]).square().mean() / TARGETS.var())


@pytest.mark.usefixtures("whole_fits")
def test_unguarded_steps_raise_the_likelihood_and_the_accuracy() -> None:
    fixed = fit(make_model(LINE))
    model = make_model(LINE)
    reference = model.covar_module.base_kernel.distance.reference
    start = reference.points.clone()
    result = fit_reference(model, guard=None, steps=30, progress=False)
    assert result.chosen == "final"
    assert result.mll == sorted(result.mll)
    assert result.mll[-1] > result.mll[0]
    assert len(result.mll) == len(result.path)
    torch.testing.assert_close(result.path[0], start)
    torch.testing.assert_close(result.points, reference.points)
    torch.testing.assert_close(result.path[-1], reference.points)
    torch.testing.assert_close(result.weights, reference.weights)
    assert not any(p.requires_grad for p in reference.parameters())
    assert not model.training
    assert error(model) < error(fixed) / 2


def test_guard_chooses_by_held_out_density() -> None:
    model = make_model(LINE)
    result = fit_reference(model, guard=2, steps=10, progress=False)
    best = max(result.held_out, key=lambda steps: result.held_out[steps])
    assert {0: "start", 10: "final"}.get(best, "stopped") == result.chosen
    assert len(result.mll) <= best + 1
    assert list(result.held_out) == [0, 1, 2, 3, 4, 6, 9, 10]


def make_noisy_model(num: int = 20, *, scaled: bool = True) -> DistributionGP:
    """A model of few and noisy standardised targets, which a learned reference overfits."""
    noise = randn(num, seed=2)
    targets = TARGETS[:num] + 0.05 * noise
    targets = (targets - targets.mean()) / targets.std()
    reference = ReferenceMeasure.from_data(CLOUDS[:num], 6, method="ball")
    kernel = SinkhornKernel(reference, epsilon=0.05)
    return DistributionGP(
        *(CLOUDS[:num], targets, ScaleKernel(kernel) if scaled else kernel),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )


def test_guard_widens_variances_by_what_held_out_targets_say() -> None:
    steps, num = 2, 20
    model = make_noisy_model()
    result = fit_reference(model, guard=2, steps=steps, progress=False)
    rows, targets = model.train_inputs[0], model.train_targets
    squares, stds = [], []
    for held in torch.randperm(num, generator=torch.Generator().manual_seed(0)).chunk(2):
        kept = torch.tensor([i for i in range(num) if i not in held])
        one = make_noisy_model()
        one.set_train_data(rows[kept], targets[kept], strict=False)
        fit_reference(one, guard=None, steps=steps, progress=False)
        mean, std = one.predict(rows[held])
        squares.append(((targets[held] - mean) / std).square())
        stds.append(std)
    widening = torch.cat(squares).mean()
    assert widening > 1
    density = torch.distributions.Normal(0.0, widening.sqrt() * torch.cat(stds)).log_prob(
        torch.cat(squares).sqrt() * torch.cat(stds)
    )
    assert result.held_out[steps] == pytest.approx(float(density.mean()), rel=1e-6)

    taken = len(result.path) - 1
    plain = make_noisy_model()
    fit_reference(plain, guard=None, steps=taken, progress=False)
    assert result.widening > 1
    assert result.held_out[taken] == max(result.held_out.values())
    (mean, std), (plain_mean, plain_std) = (m.predict(CLOUDS[num:]) for m in (model, plain))
    torch.testing.assert_close(mean, plain_mean)
    torch.testing.assert_close(std, result.widening**0.5 * plain_std)


def test_starts_again_where_the_reference_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target changes across the line through these two atoms, but not along it."""
    line, weights = [[-0.3, -0.3], [0.3, 0.3]], [0.4, 0.6]
    models = [make_model(line, weights) for _ in range(3)]
    options = {"guard": None, "steps": 30, "learn_weights": False, "progress": False}
    results = [fit_reference(model, **options) for model in models[:2]]
    assert error(models[0]) < 0.05
    assert torch.equal(results[0].points, results[1].points)
    torch.testing.assert_close(results[0].weights, torch.tensor(weights, dtype=torch.float64))
    monkeypatch.setattr(reference_learning, "_RETRIES", 0)
    result = fit_reference(models[2], **options)
    assert error(models[2]) > 0.5
    assert result.mll[-1] < results[0].mll[-1]


def test_is_reproducible_and_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    results = [
        fit_reference(make_model([*LINE, [0.2, -0.3]]), guard=2, steps=2, starts=2, progress=False)
        for _ in range(2)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0].points, results[1].points)
    assert results[0].held_out == results[1].held_out


def test_warns_of_a_reference_that_sees_one_direction() -> None:
    thin = [[0.0, -0.3], [0.0, 0.0], [0.0, 0.3]]
    with pytest.warns(ReferenceWarning, match="along one direction only"):
        result = fit_reference(make_model(thin), guard=None, steps=0, progress=False)
    assert result.effective_rank < 1.1


def test_folds_cannot_share_a_noise_for_each_cloud() -> None:
    kernel = make_model(LINE).covar_module
    model = DistributionGP(CLOUDS[:30], TARGETS[:30], kernel, train_Yvar=torch.full((30,), 1e-4))
    with pytest.raises(ValueError, match="Expected a noise that all folds share"):
        fit_reference(model, steps=1, progress=False)
    fit_reference(model, steps=1, guard=None, progress=False)


def test_bad_arguments() -> None:
    model = make_model(LINE)
    for options in ({"steps": -1}, {"guard": 31}):
        with pytest.raises(
            ValueError, match="Expected steps >= 0, starts >= 1 and 2 <= guard <= 30"
        ):
            fit_reference(model, progress=False, **options)
    with pytest.raises(ValueError, match="one reference measure, got 0"):
        fit_reference(DistributionGP(CLOUDS.pack(), TARGETS, RBFKernel()))
    with pytest.raises(ValueError, match="without an input_transform"):
        fit_reference(
            DistributionGP(
                *(torch.rand(30, 2, dtype=torch.float64), TARGETS[:30], model.covar_module),
                input_transform=Decoder(lambda designs: designs.unsqueeze(-2)),
            )
        )
