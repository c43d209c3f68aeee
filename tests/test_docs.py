"""Code in the documentation runs, links exist, and the API reference is complete."""

import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import gp_distributions

ROOT = Path(__file__).parent.parent
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [str(path.relative_to(ROOT)) for path in TEXTS]
PUBLIC = ("bayesopt", "calibration", "datasets", "distances", "estimators", "kernels", "measures")
PUBLIC += ("fitting", "models", "plotting", "saving", "scoring", "testing", "warnings")
# Pages whose code needs a package that make test-interop installs; tests/interop runs it.
ELSEWHERE = {"docs/guides/ax.md"}
CODE = [name for name in IDS if name not in ELSEWHERE]
DOCUMENTED = [
    line.removeprefix("::: ")
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for line in page.read_text().splitlines()
    if line.startswith("::: ")
]


@pytest.mark.parametrize("name", CODE)
def test_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / name
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", plt.close)
    namespace = {"__name__": "__main__"}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), namespace)
    plt.close("all")


@pytest.mark.parametrize("path", TEXTS, ids=IDS)
def test_links_exist(path: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:)([^)#\s]+)", path.read_text())
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_pages_are_listed_on_the_first() -> None:
    first = (ROOT / "docs" / "index.md").read_text()
    pages = (path.relative_to(ROOT / "docs") for path in TEXTS if ROOT / "docs" in path.parents)
    missing = [str(page) for page in pages if f"]({page})" not in first]
    assert [page for page in missing if page != "index.md" and not page.startswith("api/")] == []


def test_entries_of_the_reference_are_paragraphs() -> None:
    for page in (ROOT / "docs" / "api").glob("*.md"):
        assert not re.findall(r"\S\n(:::.*)", page.read_text()), page.name


def test_all_public_names_are_documented_once() -> None:
    counts = Counter(map(id, map(resolved, DOCUMENTED)))
    assert [name for name in DOCUMENTED if counts[id(resolved(name))] != 1] == []
    assert [name for name in public_names() if not counts[id(resolved(name))]] == []


def test_names_of_modules_are_not_taken_for_those_of_functions() -> None:
    for name in DOCUMENTED:
        short = name.rpartition(".")[2]
        if list((ROOT / "gp_distributions").rglob(f"{short}.py")):
            described = resolved(name)
            assert name == f"{described.__module__}.{described.__qualname__}"


def test_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not built.returncode, built.stdout + built.stderr
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    everything = "".join(pages.values())
    for name in DOCUMENTED:
        assert everything.count(f'id="{name}"') == 1, name
    for path, text in pages.items():
        for picture in re.findall('<img [^>]*src="([^"]*)"', text):
            assert (path.parent / picture).exists(), (path.name, picture)
    notebooks = [path.stem for path in (ROOT / "tutorials").glob("*.ipynb")]
    for page in (tmp_path / "index.html", tmp_path / "tutorials" / "index.html"):
        linked = re.findall('<a href="([^"]*)"><img ', pages[page])
        assert sorted(Path(link).name for link in linked) == sorted(notebooks)
        assert all((page.parent / link / "index.html") in pages for link in linked)
    reference = "".join(text for path, text in pages.items() if "api" in path.parts)
    assert "<math" in reference
    for left in (":math:", ":class:", ":func:", ".. math::", "$"):
        assert left not in re.sub(r"<script.*?</script>", "", reference, flags=re.DOTALL)
    assert '<span class="gp">&gt;&gt;&gt; </span>' in reference
    for left in ("<blockquote", "&gt;&gt;&gt;"):  # examples that did not become code
        assert left not in re.sub(r"<pre>.*?</pre>", "", everything, flags=re.DOTALL)
    fetched = re.findall(r'(?:src|<link [^>]*href)="((?:https?:)?//[^"]*)', everything)
    assert not fetched


def resolved(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public_names() -> list[str]:
    names = [f"gp_distributions.{name}" for name in gp_distributions.__all__]
    for part in PUBLIC:
        module = importlib.import_module(f"gp_distributions.{part}")
        own = [
            name
            for name, value in vars(module).items()
            if (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ]
        names += [f"{module.__name__}.{name}" for name in getattr(module, "__all__", own)]
    return names
