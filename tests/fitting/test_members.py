"""What a model without a kernel is made of: members, scales, the factor of normals."""

import pickle
from functools import partial
from typing import Any

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.sampling.pathwise import draw_matheron_paths
from cases import reloaded
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    MixedInputs,
    PointClouds,
    PrincipalDistance,
    ScaledDistance,
    SharedKernelGP,
    SlicedWasserstein,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
    integrate_hyperparameters,
)
from gp_distributions.fitting import ascent, lbfgs
from gp_distributions.fitting.geometry import choose_geometry
from gp_distributions.fitting.scales import learn_scales
from gp_distributions.kernels.reading import default_distances
from gp_distributions.models.choice import Choice


def blobs(num: int, *, seed: int = 0) -> tuple[PointClouds, torch.Tensor]:
    """Clouds whose wide directions say nothing of the target, which their thin direction gives."""
    generator = torch.Generator().manual_seed(seed)
    shape = torch.randn(num, 1, 3, generator=generator).double() * torch.tensor([1.0, 1.0, 0.1])
    noise = 0.05 * torch.randn(num, 15, 3, generator=generator).double()
    return PointClouds(shape + noise, geometric=True), torch.sin(20 * shape[:, 0, 2])


@pytest.fixture(scope="module")
def chosen() -> DistributionGP:
    X, y = blobs(60)
    return fit(DistributionGP(X, y), progress=False)


def test_many_shapes_have_members_and_few_are_integrated(chosen: DistributionGP) -> None:
    assert chosen.choice == Choice("mixture")
    assert len(chosen.members) == 3
    new, truth = blobs(200, seed=1)
    errors = [
        (model.predict(new)[0] - truth).square().mean() for model in (chosen, chosen.members[0])
    ]
    assert errors[0] < 0.7 * errors[1]
    few = fit(DistributionGP(*blobs(29)), progress=False)
    assert few.choice == Choice(integrated=True)
    assert len(few.parts) == 1
    assert len(few.members) > 10


def test_members_of_many_shapes_are_fitted_to_a_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the isotropic kernel is fitted to all of them."""
    sizes: dict[bool, set[int]] = {True: set(), False: set()}
    loss = ascent.Ascent.loss

    def noted(self: ascent.Ascent, mll: Any, *known: Any) -> torch.Tensor:
        kernel = mll.model.covar_module.base_kernel
        sizes[kernel.is_ard].add(mll.model.train_targets.shape[-1])
        return loss(self, mll, *known)

    monkeypatch.setattr(ascent.Ascent, "loss", noted)
    monkeypatch.setattr(ascent, "LARGE", 50)
    monkeypatch.setattr(ascent, "SUBSET", 40)
    X, y = blobs(60)
    model = fit(DistributionGP(X, y), restarts=0, progress=False)
    assert sizes == {True: {40}, False: {40, 60}}
    assert [member.train_targets.shape[-1] for member in model.members] == [60] * 3


def test_averages_over_atoms_are_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    kinds = torch.rand(120, 3, generator=generator).double()
    people = torch.multinomial(kinds, 100, replacement=True, generator=generator)
    X = PointClouds(torch.nn.functional.one_hot(people, 3).double())
    y = (people == 0).double().mean(-1)
    model = fit(DistributionGP(X[:60], y[:60]), progress=False)
    assert model.choice == Choice(linear=True)
    error = model.predict(X[60:])[0] - y[60:]
    assert error.square().mean() < 1e-3 * y.var()


def test_the_order_of_bags_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(130, 4, generator=generator).double()
    sizes = torch.randint(10, 40, (130,), generator=generator).tolist()
    bags = [
        m + torch.randn(n, 4, generator=generator).double()
        for m, n in zip(means, sizes, strict=True)
    ]
    X, y = PointClouds.from_list(bags), torch.sin(2 * means[:, 0])
    order = torch.randperm(110, generator=generator)
    first, second = (
        fit(DistributionGP(X[index], y[index]), progress=False)
        for index in (torch.arange(110), order)
    )
    assert first.choice is not None
    assert first.choice.scales
    found = [model.predict(X[110:]) for model in (first, second)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-6 * y.std().item())


def test_members_are_those_of_principal_distances(chosen: DistributionGP) -> None:
    X, y = blobs(60)
    new, _ = blobs(7, seed=1)
    for member, exponent, number in zip(chosen.members[1:], (0.5, 1.0), (50, 20), strict=True):
        base = chosen.covar_module.base_kernel.distance
        distance = PrincipalDistance(base, num_components=number, exponent=exponent)
        kernel = ScaleKernel(DistributionKernel(distance))
        alone = DistributionGP(X, y, kernel).eval()
        with torch.no_grad():
            for value, known in zip(alone.parameters(), member.parameters(), strict=True):
                value.copy_(known)
        torch.testing.assert_close(member.predict(new), alone.predict(new), rtol=1e-6, atol=1e-6)


def test_botorch_takes_it(chosen: DistributionGP) -> None:
    new, targets = blobs(4, seed=2)
    rows = new.pack().requires_grad_()
    value = LogExpectedImprovement(chosen, best_f=targets.max())(rows.unsqueeze(-2)).sum()
    assert torch.autograd.grad(value, rows)[0].isfinite().all()
    more = chosen.condition_on_observations(new, targets)
    again = [model.condition_on_observations(new, targets) for model in chosen.members]
    torch.testing.assert_close(
        more.posterior(new).mean, sum(model.posterior(new).mean for model in again) / 3
    )
    assert len(chosen.train_targets) == 60
    integrated = integrate_hyperparameters(chosen)
    assert len(integrated.parts) == 3
    assert len(integrated.members) > 3
    for model in (chosen, chosen.members[1], integrated):
        assert draw_matheron_paths(model, torch.Size([2]))(new.pack()).shape == (2, 4)


def test_it_comes_back(chosen: DistributionGP) -> None:
    new, _ = blobs(5, seed=1)
    copies = reloaded(chosen), pickle.loads(pickle.dumps(chosen))
    for copied in copies:
        assert copied.choice == chosen.choice
        assert all(map(torch.equal, copied.predict(new), chosen.predict(new)))
    assert copies[0].chooses_metric
    with pytest.raises(ValueError, match=r"several members.*gp_distributions\.save"):
        DistributionGP(*blobs(60)).load_state_dict(chosen.state_dict())


def test_several_outputs() -> None:
    X, y = blobs(30)
    model = fit(DistributionGP(X, torch.stack([y, -y], dim=-1)), progress=False)
    assert len(model.members) == 3


@pytest.mark.parametrize("num", [1, 2, 3])
def test_very_few_clouds(num: int) -> None:
    X, y = blobs(3)
    model = fit(DistributionGP(X[:num], y[:num]), progress=False)
    assert model.choice == Choice(integrated=num == 3)
    mean, std = model.predict(blobs(5, seed=1)[0])
    assert bool(mean.isfinite().all() and (std > 0).all())


@pytest.mark.filterwarnings("ignore::gp_distributions.warnings.UndeterminedWarning")
def test_identical_clouds() -> None:
    X, y = blobs(30)
    for number in (20, 30):
        model = fit(DistributionGP(X[[0] * number], y[:number]), progress=False)
        assert model.predict(X)[0].isfinite().all()


def test_a_kernel_that_is_passed_stays() -> None:
    X, y = blobs(20)
    kernel = ScaleKernel(DistributionKernel(SlicedWasserstein(3)))
    model = fit(DistributionGP(X, y, kernel), progress=False)
    assert model.covar_module is kernel
    assert (model.choice, model.members) == (None, [model])


def marked(num: int, *, geometric: bool = False) -> tuple[PointClouds, torch.Tensor]:
    """Bags of four coordinates, of which the first has the target."""
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(num, 1, 4, generator=generator).double()
    noise = torch.randn(num, 20, 4, generator=generator).double()
    return PointClouds(means + noise, geometric=geometric), torch.sin(2 * means[:, 0, 0])


def fitted(model: Any, **options: object) -> Any:
    """A rough fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascent, "minimise", partial(lbfgs.minimise, gtol=0.1))
        return fit(model, restarts=0, progress=False, **options)


@pytest.fixture(scope="module")
def scaled() -> DistributionGP:
    return fitted(DistributionGP(*marked(100)))


@pytest.mark.parametrize("kind", ["one output", "several outputs", "labels", "mixed inputs"])
def test_coordinates_that_matter_have_large_scales(kind: str, scaled: DistributionGP) -> None:
    X, y = marked(200 if kind == "labels" else 100)
    model = scaled
    if kind == "several outputs":
        model = fitted(SharedKernelGP(X, torch.stack([y, -y], -1)))
    elif kind == "labels":
        model = fitted(ClassificationGP(X, (y > 0).tolist()), alpha_epsilons=[0.1])
    elif kind == "mixed inputs":
        age = torch.rand(100, generator=torch.Generator().manual_seed(2)).double()
        model = fitted(DistributionGP(MixedInputs(cells=X, age=age), y + age))
    (scales,) = (distance.scales for distance in default_distances(model.covar_module))
    assert scales[0] > 3 * scales[1:].max()
    assert model.choice is not None
    assert tuple(model.choice.scales) == tuple(scales.tolist())
    loaded = reloaded(model)
    assert loaded.choice == model.choice
    (distance,) = default_distances(loaded.covar_module)
    assert torch.equal(distance.scales, scales)


def test_a_fit_forgets_earlier_scales(scaled: DistributionGP) -> None:
    model = DistributionGP(*marked(100))
    model.covar_module.base_kernel.distance.scales[1] = 50.0
    fitted(model)
    scales = [each.covar_module.base_kernel.distance.scales for each in (scaled, model)]
    assert torch.equal(*scales)


def waves(num: int) -> tuple[PointClouds, torch.Tensor]:
    """Bags of six coordinates, of which one has a wave, and another a slope."""
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(num, 1, 6, generator=generator).double()
    X = PointClouds(means + 0.3 * torch.randn(num, 10, 6, generator=generator).double())
    return X, torch.cos(3 * means[:, 0, 0]) + means[:, 0, 1]


def test_a_shorter_lengthscale_is_found_once_few_coordinates_count() -> None:
    distance = ScaledDistance(SlicedWasserstein(6, num_slices=60, num_quantiles=20))
    model = DistributionGP(*waves(60), ScaleKernel(DistributionKernel(distance)))
    model.covar_module.base_kernel.lengthscale = 100.0
    model.covar_module.outputscale, model.likelihood.noise = 100.0, 0.9
    assert learn_scales(model.train(), [distance], rougher=False)
    assert distance.scales[0] > 2 * distance.scales[1] > 20 * distance.scales[2:].max()


@pytest.mark.parametrize("labels", [False, True])
def test_a_sparse_model_learns_scales_of_its_sample(labels: bool) -> None:
    X, y = waves(200 if labels else 120)
    if labels:
        made = SparseClassificationGP(X, (y > 0).tolist(), num_inducing=20)
        model = fitted(made, alpha_epsilons=[0.01])
    else:
        model = fitted(SparseDistributionGP(X, y, num_inducing=20))
    assert model.choice is not None
    assert min(model.choice.scales[:2]) > 3 * max(model.choice.scales[2:])
    assert reloaded(model).choice == model.choice


@pytest.mark.usefixtures("shortest_fits")
@pytest.mark.parametrize("kind", ["few bags", "few labels", "shapes"])
def test_other_coordinates_count_alike(kind: str) -> None:
    X, y = marked({"few bags": 99, "few labels": 199}.get(kind, 100), geometric=kind == "shapes")
    made = ClassificationGP(X, (y > 0).tolist()) if kind == "few labels" else DistributionGP(X, y)
    model = fit(made, restarts=0, progress=False)
    assert bool((model.covar_module.base_kernel.distance.scales == 1).all())
    assert model.choice is not None
    assert model.choice.scales == ()


@pytest.mark.parametrize("what", ["waves", "size"])
def test_the_factor_of_normals_predicts_best(what: str) -> None:
    generator = torch.Generator().manual_seed(0)
    waves, size = torch.rand(2, 30, generator=generator).double()
    angles = torch.linspace(0, 2 * torch.pi, 61).double()[:-1]
    radius = (1 + size[:, None]) * (1 + 0.02 * waves[:, None] * torch.cos(6 * angles))
    outlines = radius[..., None] * torch.stack([angles.cos(), angles.sin()], dim=-1)
    X = PointClouds.from_curves(list(outlines.numpy()), atoms=60, normals=True)
    y = {"waves": waves, "size": size}[what]
    model = DistributionGP(MixedInputs(outline=X), y).train()
    choose_geometry(model)
    densities = {}
    for factor in (1.0, 3.0, 6.0):
        kernel = DistributionGP(X, y).covar_module
        kernel.base_kernel.distance.normals_factor = factor
        passed = fit(DistributionGP(X, y, kernel), restarts=0)
        mean, std = passed.leave_one_out()
        densities[factor] = torch.distributions.Normal(mean, std).log_prob(y).mean().item()
    (distance,) = default_distances(model.covar_module)
    assert distance.normals_factor == max(densities, key=densities.__getitem__)
    assert distance.normals_factor == {"waves": 6.0, "size": 1.0}[what]
