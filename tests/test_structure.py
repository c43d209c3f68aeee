"""The structure that CONTRIBUTING describes: layers, no circles, private modules, no hidden modules."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("gp_distributions", "benchmarks", "tutorials", "tests")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
# Bottom up: a layer imports only from those before it, and from itself.
LAYERS = (
    ("warnings",),
    ("files",),
    ("hosts",),
    ("rows",),
    ("numerics",),
    ("measures",),
    ("sharding",),
    ("distances",),
    ("kernels",),
    ("models",),
    ("fitting", "testing"),
    ("metrics",),
    ("bayesopt", "datasets"),
    ("estimators", "plotting"),
    ("comparison",),
    ("saving",),
    ("demo",),
)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in FILES}


def imports(path: Path) -> Iterator[str]:
    """Names of the modules of this repository that a file imports when it is loaded."""
    tree = ast.parse(path.read_text())
    # Types alone are not loaded.
    tree.body = [
        n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in NAMES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


GRAPH = {
    name: {found for found in imports(path) if found in NAMES and found != name}
    for name, path in NAMES.items()
}


def folder(name: str) -> str:
    return name if NAMES[name].name == "__init__.py" else name.rpartition(".")[0]


def test_private_modules_stay_in_their_folder() -> None:
    strangers = [
        f"{name} imports {found}"
        for name, needed in GRAPH.items()
        for found in needed
        if found.rpartition(".")[2].startswith("_")
        and not found.endswith("__")
        and folder(found) != folder(name)
    ]
    assert strangers == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    left = {
        # A package's __init__ hands on what is in its folder, which may import each other freely.
        name: {found for found in needed if NAMES[found].name != "__init__.py"}
        for name, needed in GRAPH.items()
        if NAMES[name].name != "__init__.py"
    }
    while leaves := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in leaves:
            del left[name]
    assert left == {}


def test_layers_import_only_those_below() -> None:
    floor = {layer: number for number, layers in enumerate(LAYERS) for layer in layers}
    wrong = []
    for name, needed in GRAPH.items():
        parts = name.split(".")
        if parts[0] != "gp_distributions" or len(parts) == 1:
            continue
        for found in needed:
            below = found.split(".")
            if len(below) > 1 and below[1] != parts[1] and floor[below[1]] >= floor[parts[1]]:
                wrong.append(f"{name} imports {found}")
    assert wrong == []


def test_layers_are_those_documented() -> None:
    design = (ROOT / "docs" / "design.md").read_text()
    table = design.partition("## Layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert documented == [name for layer in LAYERS for name in layer]
    floor = {layer: number for number, layers in enumerate(LAYERS) for layer in layers}
    lines = [
        line.partition(" | ")[0] for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    ]
    cells = "".join(cell for cell in lines if cell.startswith("| ["))
    floors = [floor[name] for name in re.findall(r"\]\(gp_distributions/(\w+)", cells)]
    assert floors == sorted(floors)


@pytest.mark.parametrize(
    "name", [n for n, path in NAMES.items() if path.name == "__init__.py" and n[:2] == "gp"]
)
def test_no_name_hides_a_module(name: str) -> None:
    package = importlib.import_module(name)
    for value in vars(package).values():
        if inspect.isfunction(value) or inspect.isclass(value):
            assert f"{name}.{value.__name__}" not in NAMES
