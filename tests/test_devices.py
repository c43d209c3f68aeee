"""Fits, predictions and searches on a graphics card agree with those on the processor."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from cases import DISTANCES, halving, rand, randn
from gpytorch.kernels import ScaleKernel
from torch import Tensor

import gp_distributions as gd
from gp_distributions import plotting
from gp_distributions.bayesopt import Decoder, DesignSearch, FreeSearch, MixedSearch, PoolSearch
from gp_distributions.distances import invert_embedding
from gp_distributions.kernels import default_kernels
from gp_distributions.measures import align
from gp_distributions.models import KernelRidgeClassifier, ensemble_of
from gp_distributions.testing.clouds import random_clouds, random_gaussians

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:A not p.d., added jitter"),
    pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32"),
    pytest.mark.filterwarnings("ignore::gp_distributions.warnings.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning"),
]

Run = Callable[[torch.device], Any]

TRAIN, TEST = 30, 8
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return randn(shape, seed=GENERATOR)


BAGS = random_clouds(TRAIN + TEST, seed=0)
MEANS = torch.stack([(w[:, None] * x).sum(0)[0] / w.sum() for x, w in BAGS])
LEVELS = MEANS + 0.05 * drawn(TRAIN + TEST)
# Targets and labels are on the processor: models move them to their bags.
Y, NEW_Y = LEVELS[:TRAIN], LEVELS[TRAIN:]
LABELS = ["low" if value < Y.median() else "high" for value in Y]
COUNTS = (2 * Y).exp().round().clamp_max(50)
ANGLES = torch.arange(12, dtype=torch.float64) * (2 * torch.pi / 12) + 0.1
CIRCLE = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=-1)
AXES = 0.2 + 0.8 * rand(TRAIN + TEST, 2, seed=GENERATOR)
AREAS = AXES.prod(-1) + 0.05 * drawn(TRAIN + TEST)
# So many, and so large, that fits choose scales, thin atoms and learn from some of the bags.
MANY = drawn(140, 1, 3) + drawn(140, 200, 3)
MANY_Y = MANY[..., 0].mean(-1).sin() + 0.1 * drawn(140)


def bags(device: torch.device) -> gd.PointClouds:
    points, weights = zip(*BAGS, strict=True)
    return gd.PointClouds.from_list(list(points), weights=list(weights)).to(device)


def ellipses(axes: Tensor) -> Tensor:
    return axes.unsqueeze(-2) * CIRCLE.to(axes)


def shapes(device: torch.device, *, normals: bool = True) -> gd.PointClouds:
    return gd.PointClouds.from_curves(ellipses(AXES), normals=normals).to(device)


def sliced(**options: Any) -> ScaleKernel:
    """A kernel on the processor: models move it to their bags."""
    return ScaleKernel(gd.SlicedWassersteinKernel(2, **options))


def fitted(model: Any, restarts: int = 0) -> Any:
    return gd.fit(model, restarts=restarts, progress=False)


def exact(device: torch.device, *more: Any, **options: Any) -> tuple[Any, gd.PointClouds]:
    """A fitted model of bags, and new bags."""
    X = bags(device)
    kernel = () if more else (sliced(),)
    return fitted(gd.DistributionGP(X[:TRAIN], Y, *kernel, *more, **options)), X[TRAIN:]


def predicting(
    make: Callable[[Any], Any], data: Callable[[torch.device], Any] = bags, train: int = TRAIN
) -> Run:
    """Predictions of the model that is made of the first inputs and fitted, at the others."""

    def run(device: torch.device) -> Any:
        X = data(device)
        model = fitted(make(X[:train]))
        return getattr(model, "predict_proba", model.predict)(X[train:])

    return run


def many(device: torch.device) -> gd.PointClouds:
    return gd.PointClouds(MANY).to(device)


def gaussians(device: torch.device) -> gd.Gaussians:
    rows = torch.stack([x.flatten() for x, _ in random_gaussians(TRAIN + TEST, seed=0)])
    return gd.Gaussians.unpack(rows, 2).to(device)


def kinds(device: torch.device) -> gd.PointClouds:
    points = [x for x, _ in BAGS]
    return gd.PointClouds.from_list(
        points, kinds=[["ab"[i % 2] for i in range(len(x))] for x in points]
    ).to(device)


def atoms(device: torch.device) -> gd.PointClouds:
    return gd.PointClouds((torch.arange(TRAIN + TEST)[:, None, None] % 6).double()).to(device)


SIMILARITIES = torch.exp(-(torch.arange(6)[:, None] - torch.arange(6)).abs().double())
MODELS: dict[str, Run] = {
    "kernel": predicting(lambda X: gd.DistributionGP(X, Y, sliced())),
    "outputs": predicting(lambda X: gd.DistributionGP(X, torch.stack([Y, Y**2], -1), sliced())),
    "shared kernel": predicting(
        lambda X: gd.SharedKernelGP(X, torch.stack([Y, Y**2], -1), sliced())
    ),
    "known noise": predicting(
        lambda X: gd.DistributionGP(X, Y, sliced(), train_Yvar=torch.full_like(Y, 0.01))
    ),
    "sampling noise": predicting(lambda X: gd.DistributionGP(X, Y, sliced(), sampling_noise=True)),
    "transformed": predicting(
        lambda X: gd.DistributionGP(X, Y, sliced(), input_transform=halving(X.pack().shape[-1]))
    ),
    "shapes": predicting(lambda X: gd.DistributionGP(X, AREAS[:TRAIN]), shapes),
    "Gaussians": predicting(lambda X: gd.DistributionGP(X, X.mean[:, 0].cpu()), gaussians),
    "atoms": predicting(
        lambda X: gd.DistributionGP(
            X, Y, ScaleKernel(gd.DistributionKernel(gd.MMD(kernel=SIMILARITIES)))
        ),
        atoms,
    ),
    "many": predicting(lambda X: gd.DistributionGP(X, MANY_Y[:120]), many, 120),
    "turned in space": predicting(
        lambda X: gd.DistributionGP(
            X, MANY_Y[:20], ScaleKernel(gd.DistributionKernel(gd.RigidSlicedWasserstein(3)))
        ),
        many,
        20,
    ),
    "classes": predicting(lambda X: gd.ClassificationGP(X, LABELS)),
    "sparse": predicting(lambda X: gd.SparseDistributionGP(X, Y, num_inducing=12, progress=False)),
    "sparse classes": predicting(
        lambda X: gd.SparseClassificationGP(X, LABELS, num_inducing=12, progress=False)
    ),
    "means over atoms": predicting(lambda X: gd.AggregateGP(X, Y)),
    "sums over kinds": predicting(lambda X: gd.AggregateGP(X, Y, aggregate="sum"), kinds),
    "uncertain inputs": predicting(
        lambda X: gd.AggregateGP(X, AREAS[:TRAIN], aggregate="draw"),
        lambda device: gd.Gaussians.from_mean_std(AXES, 0.05 * AXES).to(device),
    ),
    "sparse means": predicting(
        lambda X: gd.SparseAggregateGP(X, Y, num_features=100, progress=False)
    ),
    "Poisson": predicting(lambda X: gd.VariationalDistributionGP(X, COUNTS)),
    "curves": predicting(
        lambda X: gd.CurveGP(
            X, Y[:, None] * torch.linspace(0, 1, 9) + 1, positions=torch.linspace(0, 1, 9)
        )
    ),
}


def of_distance(name: str) -> Run:
    def run(device: torch.device) -> Any:
        tested = DISTANCES[name]
        rows = tested.inputs.rows(TRAIN + TEST, seed=0).to(device)
        distance = tested()
        model = gd.DistributionGP(rows[:TRAIN], Y, ScaleKernel(gd.DistributionKernel(distance)))
        return distance.squared(rows), *fitted(model).predict(rows[TRAIN:])

    return run


def default(device: torch.device) -> Any:
    X = bags(device)
    model, new = fitted(gd.DistributionGP(X[:TRAIN], Y), restarts=1), X[TRAIN:]
    found = model.posterior(new)
    assert found.rsample(torch.Size([8])).device.type == device.type
    mean, std = model.predict(new)
    correction = gd.models.ConformalCorrection(NEW_Y, mean, std, level=0.8)
    again = model.condition_on_observations(new, NEW_Y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gpd")
        gd.save(model, path)
        loaded = gd.load(path).to(device)
    return (
        *(mean, std, correction.rescale(std), *again.predict(new), *loaded.predict(new)),
        *model.leave_one_out(),
        found.quantile(torch.tensor([0.025, 0.975])),
    )


def uses(device: torch.device) -> Any:
    """What users do with a model of one kernel."""
    model, new = exact(device)
    assert model.posterior(new).rsample(torch.Size([8])).device.type == device.type
    integrated = gd.integrate_hyperparameters(model)
    mixture = ensemble_of([model, exact(device, sliced(p=1))[0]])
    sensitivity = gd.sensitivity(model, new)
    str(gd.diagnose(model.covar_module, new))
    return (
        *(sensitivity.mean_points, sensitivity.mean_weights, sensitivity.variance_points),
        *(*integrated.predict(new), *mixture.predict(new), *mixture.leave_one_out()),
        *model.condition_on_observations(new, NEW_Y).leave_one_out(),
        torch.tensor([each.direction for each in gd.relevance(model).coordinates]),
    )


def acquisitions(device: torch.device) -> Any:
    model, new = exact(device)
    value = qLogNoisyExpectedImprovement(model, model.train_inputs[0], prune_baseline=True)
    index, _ = gd.optimize_over_pool(value, new, q=2)  # draws differ between devices
    assert index.device.type == device.type
    return ()


def pictures(device: torch.device) -> Any:
    model, new = exact(device)
    plotting.plot_clouds(new)
    plotting.plot_clouds(shapes(device)[:4])
    plotting.plot_predictions(NEW_Y, *model.predict(new))
    plotting.plot_gram(model.covar_module(new.pack()), NEW_Y)
    plotting.plot_relevance(gd.relevance(model))
    plotting.plot_sensitivity(gd.sensitivity(model, new))
    mixed = gd.MixedInputs(bag=new, age=NEW_Y)
    plotting.plot_effect(fitted(gd.DistributionGP(mixed, NEW_Y)), mixed, "age")
    plt.close("all")
    return ()


def compared(device: torch.device) -> Any:
    X = bags(device)[:TRAIN]
    gd.compare(default_kernels(X), X, Y, progress=False, restarts=0)
    kernels = {"sw2": sliced(), "mmd": ScaleKernel(gd.MMDKernel(2))}
    found = gd.compare(kernels, X, Y, progress=False, restarts=0)
    return torch.tensor([entry.rmse for entry in found.table])


def reference(device: torch.device) -> Any:
    X = bags(device)
    kernel = ScaleKernel(gd.SinkhornKernel(gd.ReferenceMeasure.from_data(X[:TRAIN], 6)))
    model, new = exact(device, kernel)
    gd.fit_reference(model, steps=3, progress=False)
    return model.predict(new)


def ridge(device: torch.device) -> Any:
    X = bags(device)
    return KernelRidgeClassifier(X[:TRAIN], LABELS, sliced().to(device), ridge=0.1).scores(X)


def moved(device: torch.device) -> Any:
    model, new = exact(torch.device("cpu"))
    return model.to(device).predict(new.to(device))


def single_precision(device: torch.device) -> Any:
    X = bags(device).to(torch.float32)
    mean, _ = fitted(gd.DistributionGP(X[:TRAIN], Y, sliced())).predict(X[TRAIN:])
    assert (mean.dtype, mean.device.type) == (torch.float32, device.type)
    return ()


def measures(device: torch.device) -> Any:
    X = bags(device)
    normal = torch.nn.functional.normalize(MANY[:3, :60], dim=-1)
    surface = gd.PointClouds(normal).to(device).estimate_normals()
    molecules = gd.PointClouds(MANY[:3, :6], kinds=torch.arange(6).expand(3, 6) % 2)
    curves = gd.PointClouds.from_curves(ellipses(AXES).to(device), normals=True, atoms=19)
    same = gd.PointClouds(ellipses(AXES)).to(device).pack().requires_grad_()
    every = gd.SlicedWasserstein(2, num_quantiles=None).to(device).squared(same)
    every.sum().backward()
    distance = gd.SlicedWasserstein(2).to(device)
    invert_embedding(distance, distance.embed(X[:2].pack()))
    return (
        *(X.normalize(X[:5]).points, align(X[:TEST]).points, surface.points.abs()),
        *(gd.measures.surroundings(molecules.to(device)).points, curves.points, every, same.grad),
    )


def searching(
    search: Callable[[torch.device], Any],
    values: Callable[[Any], float | Sequence[float]],
    **options: Any,
) -> Run:
    def run(device: torch.device) -> Any:
        optimizer = gd.ShapeOptimizer(search(device), initial=5, restarts=0, seed=0, **options)
        optimizer.run(values, 7, progress=False)
        optimizer.ask(2)
        return ()

    return run


def box(device: torch.device, low: float) -> Tensor:
    return torch.tensor([[low, low], [1.0, 1.0]], dtype=torch.float64, device=device)


def of_area(index: int) -> float:
    return float(AREAS[index])


SEARCHES: dict[str, Run] = {
    "pool": searching(lambda device: PoolSearch(shapes(device)), of_area),
    "objectives": searching(
        lambda device: PoolSearch(shapes(device)),
        lambda i: [of_area(i), float(AXES[i, 0]), float(AXES[i, 1]) - 0.9],
        objectives=2,
        constraints=1,
    ),
    "design": searching(
        lambda device: DesignSearch(Decoder(ellipses), box(device, 0.2), dim=2),
        lambda design: float(torch.as_tensor(design).sum()),
    ),
    "free": searching(
        lambda device: FreeSearch(
            shapes(device, normals=False), box(device, -1.0), maxiter=5, num_restarts=2
        ),
        lambda cloud: float(cloud.points.mean()),
    ),
    "mixed": searching(
        lambda device: MixedSearch(
            shape=PoolSearch(shapes(device)), angle=(0.0, 1.0), wood=["oak", "ash"]
        ),
        lambda candidate: of_area(candidate["shape"]) + candidate["angle"],
    ),
}

FUNCTIONS = (
    *(default, uses, acquisitions, pictures, compared, reference),
    *(ridge, moved, single_precision, measures),
)
CASES: dict[str, Run] = {
    **{function.__name__: function for function in FUNCTIONS},
    **{f"model: {name}": run for name, run in MODELS.items()},
    **{f"search: {name}": run for name, run in SEARCHES.items()},
    **{f"distance: {name}": of_distance(name) for name in DISTANCES},
}


def tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found.detach().cpu().double()]
    return [tensor for part in found for tensor in tensors(part)]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_processor(name: str) -> None:
    found, expected = (tensors(CASES[name](torch.device(kind))) for kind in ("cuda", "cpu"))
    for actual, known in zip(found, expected, strict=True):
        # Fits end within their tolerance of the maximum, and the card rounds in its own way.
        scale = float(known.std()) if known.numel() > 1 else 1.0
        torch.testing.assert_close(actual, known, rtol=1e-3, atol=1e-3 * scale)
