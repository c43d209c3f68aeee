"""The page on Ax: its node searches a pool in an experiment that Ax keeps."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ax")
# Ax calls what it has deprecated itself, and what pandas 3.1 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ax")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "ax.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the code of the page defines."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), namespace)
    return namespace


def experiment(page: dict[str, Any], objective: str, **options: Any) -> tuple[Any, Any]:
    """A client and a node, without trials."""
    client = page["Client"]()
    client.configure_experiment(name="test", parameters=[page["shape"]])
    client.configure_optimization(objective=objective)
    node = page["PoolNode"](page["pool"], **options)
    client.set_generation_strategy(page["GenerationStrategy"](name="pool", nodes=[node]))
    return client, node


def shapes(client: Any) -> list[int]:
    return client.summarize()["shape"].tolist()


def heights(page: dict[str, Any]) -> list[float]:
    return [float(np.ptp(vertices[:, 2])) for vertices, _ in page["meshes"]]


def test_the_page_finds_one_of_the_flattest_meshes(page: dict[str, Any]) -> None:
    tried, order = shapes(page["client"]), np.argsort(heights(page))
    assert len(set(tried)) == len(tried) == 16
    assert page["best"]["shape"] in order[:3]
    assert len(page["node"].told) == 14  # the last two outcomes came after the last suggestion


def test_an_objective_without_a_minus_is_maximised(page: dict[str, Any]) -> None:
    client, node = experiment(page, "height", initial=4, restarts=0)
    values = heights(page)
    for _ in range(10):
        ((number, parameters),) = client.get_next_trials(max_trials=1).items()
        client.complete_trial(number, raw_data={"height": values[parameters["shape"]]})
    (best, _, _, _) = client.get_best_parameterization(use_model_predictions=False)
    assert best["shape"] in np.argsort(values)[-4:]
    assert node.optimizer.trace[-1] > 0


def test_failed_waiting_and_foreign_trials(page: dict[str, Any]) -> None:
    client, node = experiment(page, "-height", initial=3, restarts=0)
    first, second = client.get_next_trials(max_trials=2).items()
    client.mark_trial_failed(first[0])
    foreign = next(i for i in range(60) if i not in (first[1]["shape"], second[1]["shape"]))
    client.complete_trial(client.attach_trial({"shape": foreign}), raw_data={"height": 1.0})
    client.get_next_trials(max_trials=5)
    assert (2, "2_0") in node.told
    assert len(set(shapes(client))) == 8


def test_a_new_node_continues(page: dict[str, Any]) -> None:
    client, _ = experiment(page, "-height", initial=2, restarts=0)
    for number in client.get_next_trials(max_trials=3):
        client.complete_trial(number, raw_data={"height": 1.0 + number})
    client.get_next_trials(max_trials=2)  # these wait
    node = page["PoolNode"](page["pool"], initial=2, restarts=0)
    client.set_generation_strategy(page["GenerationStrategy"](name="new", nodes=[node]))
    client.get_next_trials(max_trials=3)
    assert len(node.told) == 3
    assert len(set(shapes(client))) == 8
