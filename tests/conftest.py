import gc
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.multi_objective import logei
from fault_tasks import Children
from hypothesis import HealthCheck, settings

from gp_distributions.datasets import airfoils, blades
from gp_distributions.fitting import ascent, lbfgs, reference_learning, scales

# POT, the oracle, would try every library that is installed, and JAX warns of double precision.
os.environ.setdefault("POT_BACKEND_DISABLE_JAX", "1")
os.environ["MPLBACKEND"] = "Agg"  # opens no window

# Properties are tested on the same examples in every run, however busy the machine is.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through the modules and tests that are loaded."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let what the fixtures of a test draw depend neither on the tests before it nor on chance."""
    seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Let what a test draws not depend on whether its fixtures are made for it or found."""
    seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Close all figures: Matplotlib warns of the 21st, whichever tests have left the others open."""
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def seed() -> None:
    """Seed the global generators of random numbers, from which BoTorch and scikit-learn draw."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.default_generator.manual_seed(0)
    # torch.manual_seed keeps a formatted stack for each kind of device that is not there.
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(scope="session", autouse=True)
def uncompiled_hypervolumes() -> Iterator[None]:
    """BoTorch's hypervolumes in Python: no test depends on a compiler and on what it left behind.

    At first use BoTorch compiles them for half a minute, under a lock in the user's cache that a
    killed run leaves there and on which every later run would wait without end.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logei, "_load_attempted", True)
        yield


@pytest.fixture(scope="session", autouse=True)
def airfoils_loaded_once() -> Iterator[None]:
    """Load the database of airfoils once: it takes seconds, and two dozen tests use it."""
    loaded = cache(airfoils.airfoils_with_parameters)

    @wraps(loaded)
    def load(*, progress: bool = False) -> Any:  # for the cache, a default is another argument
        return loaded(progress=progress)

    with pytest.MonkeyPatch.context() as patch:
        for module in (airfoils, blades):
            patch.setattr(module, "airfoils_with_parameters", load)
        yield


@pytest.fixture(scope="module")
def short_fits() -> Iterator[None]:
    """Let fits end where the slope is small, in modules that do not ask where they end."""

    def minimise(*arguments: Any, **options: Any) -> lbfgs.Minimum:
        return lbfgs.minimise(*arguments, **options | {"gtol": 0.1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascent, "minimise", minimise)
        yield


@pytest.fixture
def shortest_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fits end after a step, in tests of whether something runs."""

    def minimise(*arguments: Any, **options: Any) -> lbfgs.Minimum:
        return replace(lbfgs.minimise(*arguments, **options | {"maxiter": 1}), converged=True)

    for module in (ascent, reference_learning, scales):
        monkeypatch.setattr(module, "minimise", minimise)


@pytest.fixture
def whole_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fits of a test, in a module of short ones, end where they do for users."""
    monkeypatch.setattr(ascent, "minimise", lbfgs.minimise)


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    """Processes to kill, which are forked from one."""
    with Children() as children:
        yield children
