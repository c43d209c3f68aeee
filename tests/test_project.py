"""What the project says of itself holds: links, versions, public names."""

import ast
import contextlib
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from fault_tasks import Children, loaded
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import gp_distributions

ROOT = Path(__file__).parent.parent
INSTALL = (ROOT / "docs" / "install.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def bounds(*requirements: str) -> dict[str, Version]:
    """Lower bounds by name; a reference from one extra to another has none."""
    parsed = [Requirement(requirement) for requirement in requirements]
    return {
        canonicalize_name(requirement.name): Version(specifier.version)
        for requirement in parsed
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }


def constraints(file: str) -> dict[str, Version]:
    pairs = [line.split("==") for line in (ROOT / file).read_text().split()]
    return {canonicalize_name(name): Version(pin) for name, pin in pairs}


GROUPS = {"required": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
OURS = ("docs", "dev")  # the tools of developers, who install the pins
TOOLS = bounds(*(r for name in OURS for r in GROUPS[name]))
FLOORS = bounds(*(r for name, group in GROUPS.items() if name not in OURS for r in group))
PINS = constraints("constraints.txt")
OLDEST = constraints("constraints-oldest.txt")
# No test runs on this lower bound: docs/install.md says why.
UNTESTED = {"torch"}


def test_floors_are_the_oldest_versions_tested() -> None:
    assert {name: floor for name, floor in FLOORS.items() if name not in UNTESTED} == OLDEST


def test_pins_are_within_the_bounds() -> None:
    for name, bound in (FLOORS | TOOLS).items():
        assert bound <= PINS[name], name


def test_environment_is_one_of_the_two_that_are_tested() -> None:
    installed = {name: Version(Version(version(name)).public) for name in FLOORS | TOOLS}
    daily = {name: PINS[name] for name in installed}
    assert installed in (daily, daily | OLDEST)


@pytest.mark.parametrize("name", FLOORS)
def test_install_page_lists_the_versions(name: str) -> None:
    rows = re.findall(r"^\| (\S+) \| ([\d.]+)(?: \S+)? \| (\S+) \|$", INSTALL, re.MULTILINE)
    listed = {canonicalize_name(name): versions for name, *versions in rows}
    assert [Version(text) for text in listed[name]] == [FLOORS[name], PINS[name]]


def test_python_versions() -> None:
    classifiers = PROJECT["classifiers"]
    declared = re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))
    assert PROJECT["requires-python"] == f">={declared[0]}"
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    assert re.search(r"python: \[(.*)\]", workflow)[1] == ", ".join(f'"{v}"' for v in declared)  # type: ignore[index]


def test_public_names() -> None:
    assert len(gp_distributions.__all__) <= 56
    assert all(hasattr(gp_distributions, name) for name in gp_distributions.__all__)
    tree = ast.parse((ROOT / "gp_distributions" / "__init__.pyi").read_text())
    stated = {
        alias.name: str(node.module).removeprefix("gp_distributions.")
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert stated == gp_distributions._HOMES
    with pytest.raises(AttributeError, match="has no attribute 'DistributionGp'"):
        gp_distributions.DistributionGp  # noqa: B018


def test_models_load_neither_scikit_learn_nor_plots(children: Children) -> None:
    found = children.call(loaded)
    assert "gp_distributions.fitting" in found
    assert not {"sklearn", "pandas", "matplotlib", "dask", "pyarrow", "scipy.stats"} & found


def test_seeds_are_zero_unless_given() -> None:
    seeds = []
    for name in gp_distributions.__all__:
        with contextlib.suppress(TypeError, ValueError):  # not all classes have a signature
            parameters = inspect.signature(getattr(gp_distributions, name)).parameters
            seeds += [parameters["seed"].default] if "seed" in parameters else []
    assert len(seeds) > 10
    assert set(seeds) == {0}


def test_version_is_the_same_everywhere() -> None:
    assert version("gp_distributions") == gp_distributions.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {gp_distributions.__version__}\n" in citation
    assert f"## {gp_distributions.__version__} " in (ROOT / "CHANGELOG.md").read_text()
