"""Wrong inputs of public functions: each raises a ValueError or a TypeError that the package wrote."""

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from botorch.exceptions.errors import BotorchError
from botorch.exceptions.warnings import BotorchWarning
from fuzzing.models import warned
from gpytorch.kernels import RBFKernel
from hypothesis import strategies as st

import gp_distributions
from gp_distributions import (
    MMD,
    ClassificationGP,
    ConformalCorrection,
    DistributionGP,
    DistributionGPRegressor,
    Fourier,
    GaussianMixtures,
    Gaussians,
    MixedInputs,
    PoolSearch,
    ReferenceMeasure,
    RigidSlicedWasserstein,
    ShapeOptimizer,
    ShardedClouds,
    SinkhornKernel,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    compare,
    fit,
    load,
    relevance,
    save,
    sensitivity,
)
from gp_distributions.bayesopt import Pool
from gp_distributions.kernels import planar_rotations
from gp_distributions.measures import align
from gp_distributions.models import KernelRidgeClassifier
from gp_distributions.testing.clouds import random_clouds

BAGS = [points for points, _ in random_clouds(6, sizes=(2, 4))]
CLOUDS = gp_distributions.PointClouds.from_list(BAGS)
Y = torch.arange(6.0, dtype=torch.float64)
NAN, INF = float("nan"), float("inf")


def kernel() -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=3, num_quantiles=4)


MODEL = DistributionGP(CLOUDS, Y, kernel())
SPARSE = SparseDistributionGP(CLOUDS, Y, kernel(), num_inducing=3)
CLASSES = ClassificationGP(CLOUDS, list("ababab"), kernel())
DISTANCE = SlicedWasserstein(2, num_slices=3)
REGRESSOR = DistributionGPRegressor(restarts=0).fit(BAGS, Y.numpy())

ODD: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 3, 40, 0.5, NAN, INF, "", "clouds", b"bytes", object(), len, {}, []),
    *([[]], [[0.0]], [[[0.0]]], [[NAN, 0.0]], {"a": 1}, set(), range(3), slice(2), 1j),
    *(np.zeros(()), np.zeros(3), np.zeros((3, 2)), np.zeros((0, 2)), np.zeros((2, 0, 2))),
    *(np.zeros((2, 3, 0)), np.zeros((6, 3, 2)), np.full((6, 3, 2), NAN), np.array(["a", "b"])),
    *(np.array([None, 1]), np.zeros((6, 3, 2), dtype=complex), np.ma.masked_array([1.0], [True])),
    *(torch.zeros(()), torch.zeros(6), torch.zeros(6, 12), torch.zeros(6, 7), torch.zeros(0, 12)),
    *(torch.zeros(2, 6, 12), torch.zeros(6, 12, dtype=torch.int64), torch.full((6, 12), NAN)),
    torch.rand(6, 12).half(),
    *(torch.rand(6, 12).bfloat16(), -torch.rand(6, 12), torch.zeros(6, dtype=torch.bool)),
    *(CLOUDS, CLOUDS[0], CLOUDS[:0], CLOUDS[:1], CLOUDS.to(torch.float32)),
    *(gp_distributions.PointClouds(np.zeros((6, 3, 5))), gp_distributions.PointClouds([[[1e200]]])),
    *(Gaussians(np.zeros((6, 2)), np.eye(2).repeat(6).reshape(2, 2, 6).T), MixedInputs(a=CLOUDS)),
    *(Y, Y[:3], Y.tolist(), list("ababab"), pd.DataFrame({"a": [1]}), pd.Series([1.0] * 6)),
    *(
        torch.float32,
        MODEL,
        DISTANCE,
        RBFKernel(),
        ReferenceMeasure([[0.0, 0.0]]),
        "nowhere/at/all",
    ),
)

# Public functions, each with the number of arguments that are drawn.
CALLS: dict[str, tuple[Callable[..., Any], int]] = {
    "clouds": (gp_distributions.PointClouds, 2),
    "from_list": (lambda x, w: gp_distributions.PointClouds.from_list(x, weights=w), 2),
    "from_ragged": (gp_distributions.PointClouds.from_ragged, 2),
    "from_images": (gp_distributions.PointClouds.from_images, 1),
    "from_curves": (lambda x, n: gp_distributions.PointClouds.from_curves(x, atoms=n), 2),
    "from_frame": (
        lambda x, bag: gp_distributions.PointClouds.from_frame(x, bag=bag, columns=["a"]),
        2,
    ),
    "unpack": (gp_distributions.PointClouds.unpack, 2),
    "pack": (CLOUDS.pack, 1),
    "resample": (CLOUDS.resample, 2),
    "normalize": (lambda like, scale: CLOUDS.normalize(like=like, scale=scale), 2),
    "pairs": (lambda space, num: CLOUDS.pairs(space=space, num_pairs=num), 2),
    "gaussians": (Gaussians, 2),
    "mixtures": (GaussianMixtures, 3),
    "mixed": (lambda a, b: MixedInputs(a=a, b=b), 2),
    "reference": (ReferenceMeasure, 2),
    "reference of data": (lambda x, size: ReferenceMeasure.from_data(x, size=size), 2),
    "squared": (DISTANCE.squared, 2),
    "embed": (DISTANCE.embed, 1),
    "sliced": (lambda d, n: SlicedWasserstein(d, num_slices=n), 2),
    "mmd": (lambda d, b: MMD(d, bandwidth=b), 2),
    "fourier": (lambda d, n: Fourier(d, num_frequencies=n), 2),
    "frequencies": (lambda d, scale: Fourier(d, scale=scale), 2),
    "quantiles": (lambda d, n: SlicedWasserstein(d, num_quantiles=n), 2),
    "features": (lambda d, n: MMD(d, bandwidth=1.0, num_features=n), 2),
    "landmarks": (lambda n: MMD(2, bandwidth=1.0, num_features=n, features="landmarks"), 1),
    "transport": (lambda e: SinkhornKernel(ReferenceMeasure(BAGS[0]), epsilon=e), 1),
    "restarts": (lambda n: fit(MODEL, restarts=n, options={"maxiter": 1}, progress=False), 1),
    "slices": (lambda n: SlicedWasserstein(2, num_slices=n), 1),
    "rigid": (lambda n, d: RigidSlicedWasserstein(2, num_quantiles=n, max_degree=d), 2),
    "rotations": (planar_rotations, 1),
    "alpha": (lambda a: ClassificationGP(CLOUDS, list("ababab"), kernel(), alpha_epsilon=a), 1),
    "inducing": (lambda n: SparseDistributionGP(CLOUDS, Y, kernel(), num_inducing=n), 1),
    "conformal": (ConformalCorrection, 3),
    "kernel": (lambda d, profile: SlicedWassersteinKernel(d, profile=profile), 2),
    "exact": (DistributionGP, 3),
    "exact with variances": (lambda v: DistributionGP(CLOUDS, Y, kernel(), train_Yvar=v), 1),
    "exact with targets": (lambda y: DistributionGP(CLOUDS, y, kernel()), 1),
    "exact with inputs": (lambda x: DistributionGP(x, Y, kernel()), 1),
    "sparse": (lambda x, y: SparseDistributionGP(x, y, kernel(), progress=False), 2),
    "classes": (lambda x, y: ClassificationGP(x, y, kernel()), 2),
    "labels": (lambda y: ClassificationGP(CLOUDS, y, kernel()), 1),
    "ridge": (lambda y, r: KernelRidgeClassifier(CLOUDS, y, kernel(), ridge=r), 2),
    "predict": (MODEL.predict, 1),
    "predict in batches": (lambda n: MODEL.predict(CLOUDS, batch_size=n), 1),
    "predict sparse": (SPARSE.predict, 1),
    "predict_proba": (CLASSES.predict_proba, 1),
    "condition": (MODEL.condition_on_observations, 2),
    "fit": (lambda m, init: fit(m, init=init, options={"maxiter": 1}, progress=False), 2),
    "save": (lambda m: save(m, "/nowhere/at/all"), 1),
    "load": (lambda path: load(path if isinstance(path, str) else "nowhere"), 1),
    "pool": (Pool, 1),
    "search": (lambda pool, n: ShapeOptimizer(PoolSearch(pool), initial=n), 2),
    "tell": (lambda i, v: ShapeOptimizer(PoolSearch(CLOUDS)).tell(i, v), 2),
    "ask": (lambda q: ShapeOptimizer(PoolSearch(CLOUDS)).ask(q), 1),
    "arrays": (lambda x, o: ShardedClouds.from_arrays(x, offsets=o), 2),
    "array targets": (lambda y: ShardedClouds.from_arrays(np.zeros((6, 3, 2)), targets=y), 1),
    "align": (align, 1),
    "compare": (lambda x, y: compare({"a": kernel()}, x, y, progress=False), 2),
    "sensitivity": (lambda x: sensitivity(MODEL, x), 1),
    "relevance": (relevance, 1),
    "regressor": (DistributionGPRegressor(restarts=0).fit, 2),
    "regressor predict": (REGRESSOR.predict, 1),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """A function, and the numbers of its arguments in ``ODD``."""
    name = draw(st.sampled_from(sorted(CALLS)))
    numbers = st.integers(0, len(ODD) - 1)
    return name, tuple(draw(st.tuples(*[numbers] * CALLS[name][1])))


def refused(name: str, numbers: tuple[int, ...]) -> str | None:
    """Call a function with odd arguments; return what is wrong with its error, if anything.

    Right are ValueError and TypeError, OSError where files are named, and BoTorch's errors and warnings.
    Anything else, such as an IndexError or an AttributeError, comes from inside.
    """
    function, _ = CALLS[name]
    try:
        with warned():
            function(*(ODD[number] for number in numbers))
    except (ValueError, TypeError, OSError, ImportError):
        return None
    except (BotorchError, BotorchWarning, UserWarning):
        return None
    except RuntimeError as error:
        if name == "compare" and "at least one candidate" in str(error):
            return None  # the documented error if every candidate failed
        return f"{name}{numbers}: {traceback.format_exc()}"
    except Exception:
        return f"{name}{numbers}: {traceback.format_exc()}"
    return None
