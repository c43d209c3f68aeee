"""What the project says of itself holds: links, pinned versions, public names."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import gp_distributions

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_readme_links_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    missing = [t for t in targets if "://" not in t and not (ROOT / t).exists()]
    assert targets
    assert not missing


def test_lower_bounds_are_the_versions_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [requirement for group in groups for requirement in group]
    bounds = dict(r.split(">=") for r in requirements if ">=" in r)
    pins = dict(line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split())
    for name, bound in bounds.items():
        pin = pins[name if name in pins else name.replace("-", "_")]
        assert pin.startswith(bound), name
        assert version(name).split("+")[0] == pin, name


def test_public_names() -> None:
    assert all(hasattr(gp_distributions, name) for name in gp_distributions.__all__)
    assert version("gp_distributions") == gp_distributions.__version__
