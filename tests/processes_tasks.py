"""What other processes, and processes with other defaults, compute in the tests of processes."""

import tempfile
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from gpytorch.kernels import ScaleKernel

import gp_distributions as gd

Array: TypeAlias = npt.NDArray[Any]

RNG = np.random.default_rng(0)
BAGS = [RNG.normal(size=(int(size), 3)) for size in RNG.integers(2, 6, size=14)]
TARGETS = np.array([bag.mean() for bag in BAGS])


def arrays(*values: Any) -> list[Array]:
    """Tensors as arrays."""
    return [np.asarray(value) for value in values]


def make_model() -> gd.DistributionGP:
    """A fitted model."""
    clouds = gd.PointClouds.from_list(BAGS[:10])
    kernel = ScaleKernel(gd.SlicedWassersteinKernel(3, num_slices=6, num_quantiles=5))
    return gd.fit(gd.DistributionGP(clouds, TARGETS[:10], kernel), restarts=0, progress=False)


def predicted(model: gd.DistributionGP) -> list[Array]:
    """What a model predicts."""
    return arrays(*model.predict(gd.PointClouds.from_list(BAGS[10:])))


def loaded_prediction(name: str, rows: Array) -> Array:
    """What a model in a file predicts, without a warning."""
    with warnings.catch_warnings(action="error"):
        return torch.stack(gd.load(name).predict(torch.from_numpy(rows))).numpy()


def everything() -> dict[str, list[Array]]:
    """Results of most parts of the package, made from NumPy arrays."""
    clouds, new = gd.PointClouds.from_list(BAGS[:10]), gd.PointClouds.from_list(BAGS[10:])
    reference = gd.ReferenceMeasure.from_data(clouds, size=3)
    distances = {
        "sliced": gd.SlicedWasserstein(3, num_slices=5),
        "random": gd.SlicedWasserstein(3, num_slices=5, sampling="random"),
        "rigid": gd.RigidSlicedWasserstein(3, num_slices=9, max_degree=3, num_quantiles=4),
        "mmd": gd.MMD(3),
        "features": gd.MMD(3, num_features=6, bandwidth=1.0),
        "landmarks": gd.MMD(3, num_features=4, features="landmarks"),
        "fourier": gd.Fourier(3, num_frequencies=5),
        "transport": gd.LinearTransport(reference),
        "scaled": gd.ScaledDistance(gd.MMD(3, bandwidth=1.0), standardize=False),
    }
    rows = clouds.pack()
    found = {name: arrays(d.squared(rows).detach()) for name, d in distances.items()}
    found["data"] = arrays(clouds.points, clouds.weights, clouds.normalize().points)
    found["drawn"] = arrays(clouds.resample(3).points, clouds.pairs().points)
    exact = make_model()
    found["exact"] = predicted(exact) + arrays(*exact.leave_one_out())
    more = exact.condition_on_observations(new, TARGETS[10:])
    found["more"] = arrays(*more.predict(clouds))
    noisy = gd.DistributionGP(clouds, TARGETS[:10], sampling_noise=True)
    found["noise"] = arrays(
        *gd.fit(noisy, restarts=0, progress=False, options={"maxiter": 3}).predict(new)
    )
    sparse = gd.SparseDistributionGP(
        clouds, TARGETS[:10], gd.SlicedWassersteinKernel(3), num_inducing=4
    )
    found["sparse"] = arrays(*gd.fit(sparse, restarts=0, progress=False).predict(new))
    classes = gd.ClassificationGP(clouds, ["a", "b"] * 5, gd.DistributionKernel(gd.Fourier(3)))
    found["classes"] = arrays(classes.predict_proba(new))
    found["integrated"] = arrays(*gd.integrate_hyperparameters(exact).predict(new))
    covariances = np.stack([np.cov(bag.T) + np.eye(3) for bag in BAGS])
    gaussians = gd.Gaussians(np.stack([bag.mean(0) for bag in BAGS]), covariances)
    found["gaussians"] = arrays(*gd.DistributionGP(gaussians, TARGETS).predict(gaussians))
    regressor = gd.DistributionGPRegressor(restarts=0).fit(BAGS[:10], TARGETS[:10])
    found["regressor"] = arrays(*regressor.predict(BAGS[10:], return_std=True))
    with tempfile.TemporaryDirectory() as folder:
        gd.save(exact, Path(folder, "model"))
        found["loaded"] = predicted(gd.load(Path(folder, "model")))
    optimizer = gd.ShapeOptimizer(gd.PoolSearch(clouds), initial=3, restarts=0)
    optimizer.run(lambda index: TARGETS[index], 5, progress=False)
    found["search"] = [np.array([e.candidate for e in optimizer.evaluations])]
    return found


def same_bits(found: list[Array], expected: list[Array]) -> bool:
    """Whether arrays have the same dtypes and bits."""
    pairs = zip(found, expected, strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def changed_by_defaults() -> tuple[list[str], list[str]]:
    """Names of the results that other defaults of PyTorch change, for the rest of a process.

    Returns:
        Those of which bits change, and those that differ by more than the rounding of the initial
        hyperparameters, which GPyTorch keeps in the default dtype.
    """
    expected = everything()
    torch.set_default_device("cpu")
    torch.set_default_dtype(torch.float64)
    found = everything()
    bits = [name for name in expected if not same_bits(found[name], expected[name])]
    digits = [
        name
        for name in bits
        for a, b in zip(found[name], expected[name], strict=True)
        if a.dtype != b.dtype or not np.allclose(a, b, rtol=1e-3, atol=1e-3)
    ]
    return bits, digits
