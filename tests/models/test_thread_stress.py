"""Many threads that use one model at once, switching as often as Python can: results as in turn."""

import copy
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from cases import MODELS, NEW_ROWS, as_rows, random_clouds
from library_settings import settings
from torch import Tensor

from gp_distributions import SparseDistributionGP, fit, load, save

THREADS = 4
WIDE = as_rows(random_clouds(3, seed=1, sizes=(12, 16)))


def samples(model: Any, rows: Tensor) -> Tensor:
    posterior = model.posterior(rows)
    shape = posterior.base_sample_shape
    base = torch.linspace(-1, 1, 2 * shape.numel(), dtype=torch.float64).reshape(2, *shape)
    return posterior.rsample_from_base_samples(torch.Size([2]), base)


def conditioned(model: Any, rows: Tensor) -> tuple[Tensor, ...]:
    targets = rows[:2, :1].repeat(1, model.num_outputs)
    noise = torch.full_like(targets, 0.2) if "FixedNoise" in repr(model) else None
    options = {} if noise is None else {"noise": noise}
    more = model.condition_on_observations(rows[:2], targets, **options)
    return more.predict(rows)


def saved(model: Any, path: Path) -> tuple[bytes]:
    save(model.eval(), path)
    return (b"".join(value.numpy().tobytes() for value in load(path).state_dict().values()),)


Task = Callable[[Path], tuple[Any, ...]]


def tasks(model: Any) -> dict[str, Task]:
    """All that a model does, each for several inputs, by name."""
    found: dict[str, Task] = {}
    regression = hasattr(model, "posterior") and not hasattr(model, "predict_proba")
    names = ("scores", "predict_proba", "predict")
    predict = next(getattr(model, name) for name in names if hasattr(model, name))
    wide = NEW_ROWS if hasattr(model, "input_transform") else WIDE  # inputs have one width
    for name, rows in {"new": NEW_ROWS, "wide": wide}.items():
        found[f"predict {name}"] = lambda _, rows=rows: _as_tuple(predict(rows))
        if regression:
            found[f"sample {name}"] = lambda _, rows=rows: (samples(model, rows),)
    if regression and not isinstance(model, SparseDistributionGP):
        found["condition"] = lambda _: conditioned(model, wide)
    if hasattr(model, "leave_one_out"):
        found["leave one out"] = lambda _: _as_tuple(model.leave_one_out())
    if not hasattr(model, "scores"):
        found["save"] = lambda path: saved(model, path)
    return found


def state_of(model: Any) -> list[Tensor]:
    if not isinstance(model, torch.nn.Module):
        return []
    inputs = [rows for m in model.modules() for rows in getattr(m, "train_inputs", None) or ()]
    return [tensor.detach().clone() for tensor in (*model.state_dict().values(), *inputs)]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether results are the same up to rounding, and what files hold to the last bit.

    What a distance remembers decides in which order it adds, but not what.
    """
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, Tensor):
            tolerance = 1e-10 * other.abs().max().item()
            if not torch.allclose(one, other, rtol=0, atol=tolerance):
                return False
        elif one != other:
            return False
    return True


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("name", MODELS)
def test_threads_get_what_one_thread_gets(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    if isinstance(model, torch.nn.Module):
        model.eval()
    expected = {task: do(tmp_path / "serial") for task, do in tasks(copy.deepcopy(model)).items()}
    shared, known, before = tasks(model), settings(), state_of(model)
    names, start = list(shared), Barrier(THREADS)

    def work(thread: int) -> list[str]:
        start.wait()
        wrong = []
        if name == "exact" and thread == 0:  # others predict meanwhile
            fit(MODELS["exact"](), restarts=0)
        for step in range(len(names)):
            task = names[(step + thread * 5) % len(names)]
            try:
                found = shared[task](tmp_path / f"{thread}")
            except Exception as error:
                wrong.append(f"{task}: {error!r}")
                continue
            if not same(found, expected[task]):
                wrong.append(task)
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [[]] * THREADS
    assert settings() == known
    # One wide cloud would widen the training rows for good.
    assert all(map(torch.equal, state_of(model), before))
