"""Code in the documentation runs and shows its outputs, links exist, the API reference is complete."""

import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

import gp_distributions
from docs.outputs import PAGES, current, draw, drawn_by
from docs.reference import PAGES as REFERENCE
from docs.reference import anchors, full_names, markdown, rendered
from docs.site import PAGES as SITE_PAGES
from docs.site import mathml

ROOT = Path(__file__).parent.parent
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [str(path.relative_to(ROOT)) for path in TEXTS]
PUBLIC = ("bayesopt", "datasets", "distances", "estimators", "fitting", "metrics", "kernels")
PUBLIC += ("measures", "models", "plotting", "saving", "testing", "warnings")
NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
DOCUMENTED = list(full_names().values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_runs_and_shows_its_outputs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(picture: Path, digest: str) -> None:
        drawn.add(picture)
        assert drawn_by(picture) == digest, f"run: python -m docs.outputs {page.relative_to(ROOT)}"

    drawn: set[Path] = set()
    monkeypatch.chdir(tmp_path)
    text = current(page, compare)
    pictures = {page.parent / name for name in re.findall(r"!\[.*\]\((.*)\)", page.read_text())}
    folder = ROOT / "docs" / "figures"
    if page != ROOT / "README.md":  # it shows figures of other pages
        assert {path.resolve() for path in drawn} == {
            path.resolve() for path in pictures if path.resolve().parent == folder
        }
    # Where fits end depends on the versions of libraries, in the last of the digits that are printed.
    words, numbers = parsed(text)
    assert words == parsed(page.read_text())[0], f"run: python -m docs.outputs {page}"
    assert numbers == pytest.approx(parsed(page.read_text())[1], rel=0.05, abs=0.02)


def test_outputs_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code = "import matplotlib.pyplot as plt\nprint(1 + 1)\nfigure = plt.figure()\n"
    page.write_text(f"```python\n{code}```\n\n```text\n3\n```\n\n![A frame](figures/frame.png)\n")
    page.write_text(current(page, draw))
    assert "\n```text\n2\n```\n\n![A frame](figures/frame.png)\n" in page.read_text()
    first = drawn_by(tmp_path / "figures" / "frame.png")
    page.write_text(page.read_text().replace("1 + 1", "1 + 2"))
    current(page, draw)
    assert drawn_by(tmp_path / "figures" / "frame.png") != first
    page.write_text(page.read_text().replace("plt.figure()", "None"))
    with pytest.raises(ValueError, match=r"0 figures below the code at page.md, line 1, got 1"):
        current(page, draw)


def test_figures_belong_to_a_page() -> None:
    shown = {
        name for path in TEXTS for name in re.findall(r"figures/([\w-]+\.png)", path.read_text())
    }
    assert {path.name for path in (ROOT / "docs" / "figures").iterdir()} <= shown


@pytest.mark.parametrize("path", TEXTS, ids=IDS)
def test_links_exist(path: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:)([^)#\s]+)", path.read_text())
    assert not [target for target in targets if not (path.parent / target).exists()]


@pytest.mark.parametrize("path", TEXTS, ids=IDS)
def test_references_lead_to_pages_of_the_site(path: Path) -> None:
    # Links to code become text.
    targets = re.findall(r"\]\((?!\w+:)([^)#\s]+\.(?:md|ipynb|png))", path.read_text())
    elsewhere = {(path.parent / target).resolve().relative_to(ROOT) for target in targets}
    texts = {Path(file) for file in SITE_PAGES.values()}
    assert {p for p in elsewhere - texts if p.parts[0] != "docs"} == set()


def test_references_have_links() -> None:
    papers = (ROOT / "docs" / "cite.md").read_text().partition("## Papers\n\n- ")[2].split("\n- ")
    unlinked = {paper.split(",")[0] for paper in papers if "](https://" not in paper}
    # These have neither a DOI nor a number of arXiv.
    assert unlinked == {"Allain", "Christmann and Steinwart", "Girard", "Hein and Bousquet"}


def test_pages_are_listed_on_the_first() -> None:
    first = (ROOT / "docs" / "index.md").read_text()
    pages = (path.relative_to(ROOT / "docs") for path in TEXTS if ROOT / "docs" in path.parents)
    missing = [str(page) for page in pages if f"]({page})" not in first]
    assert [page for page in missing if page != "index.md" and not page.startswith("api/")] == []


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_references_have_become_links(page: Path) -> None:
    assert not re.search(r"(meth|class|func|attr):`", rendered(page))


def test_reference_is_markdown() -> None:
    text = r"""
        Uses :class:`~gp_distributions.SlicedWasserstein`, :meth:`Distance.squared` and :class:`Unknown`.

        .. math::
            a &= b
            \\ &= c

        With :math:`a` and ``b``:

        >>> print([1,  # doctest: +SKIP
        ...        2])
        [1,
         2]
    """
    shown = markdown(textwrap.dedent(text), "distances.md")
    assert "Uses [`SlicedWasserstein`](#gp_distributions.SlicedWasserstein), " in shown
    assert (
        "[`Distance.squared`](#gp_distributions.distances.Distance.squared) and `Unknown`." in shown
    )
    assert "\n$$\na &= b\n\\\\ &= c\n$$\n" in shown
    assert "With $a$ and `b`:\n" in shown
    assert "```pycon\n>>> print([1,\n...        2])\n[1,\n 2]\n```" in shown
    assert "](distances.md#gp_distributions.SlicedWasserstein)" in markdown(text, "kernels.md")


def test_all_public_names_are_documented_once() -> None:
    counts = Counter(map(id, map(resolved, DOCUMENTED)))
    assert [name for name in DOCUMENTED if counts[id(resolved(name))] != 1] == []
    assert [name for name in public_names() if not counts[id(resolved(name))]] == []


@pytest.mark.parametrize("called", ["predict", "predict_proba", "plan", "from_list", "fit"])
def test_reference_has_the_methods_that_users_call(called: str) -> None:
    having = [f"{name}.{called}" for name in DOCUMENTED if hasattr(resolved(name), called)]
    assert having
    assert [name for name in having if name not in anchors()] == []


def test_reference_has_no_internals() -> None:
    shown = {name.rpartition(".")[2] for name in anchors()}
    assert {"leave_one_out", "posterior", "members"} <= shown
    assert not shown & {"embedded_rows", "share_rows", "latent_left_out", "extra_repr"}


def test_formulas() -> None:
    grown = mathml(r"\Bigl(\frac{a}{b}\Bigr)^2")
    assert grown.count('stretchy="true"') == 2
    assert "minsize" not in grown
    assert '<mo form="prefix">&#x02212;</mo>' in mathml(r"\exp(-d)")
    assert '<mo form="prefix">&#x02212;</mo>' not in mathml("a - b")
    assert mathml(r"2 \log p \exp(x)").count("<mspace") == 3  # none before the bracket
    with pytest.raises(ValueError, match="unknown command"):
        mathml(r"\unheardof{x}")


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
        shown = text.partition("<article")[2].replace('alt="" loading="lazy"', "")  # of the gallery
        assert 'alt=""' not in shown, path.name
    notebooks = [path.stem for path in (ROOT / "tutorials").glob("*.ipynb")]
    for page in (tmp_path / "index.html", tmp_path / "tutorials.html"):
        linked = re.findall('<a href="([^"]*)"><img ', pages[page])
        assert sorted(Path(link).stem for link in linked) == sorted(notebooks)
        assert all((page.parent / link) in pages for link in linked)
    # The commands that measure figures lead to these.
    assert re.search(
        r'<a href="results/\w+\.html"><code>python -m benchmarks\.', pages[tmp_path / "index.html"]
    )
    # A visitor sees at once what the package is for, how to install it, code, and what it prints.
    home = re.sub(r"<[^>]*>", "", pages[tmp_path / "index.html"].partition("<article")[2])
    order = (
        "inputs are probability distributions",
        "pip install",
        "fit(DistributionGP(",
        "truth 1.6",
    )
    order += ("Who it is for", "Where it is best", "instead", "What it is not for")
    places = [home.index(words) for words in order]
    assert places == sorted(places)
    reference = "".join(text for path, text in pages.items() if "api" in path.parts)
    assert "<math" in reference
    for left in (":math:", ":class:", ":func:", ".. math::", "$"):
        assert left not in re.sub(r"<script.*?</script>", "", reference, flags=re.DOTALL)
    assert '<span class="gp">&gt;&gt;&gt; </span>' in reference
    for left in ("<blockquote", "&gt;&gt;&gt;"):  # examples that did not become code
        assert left not in re.sub(r"<pre>.*?</pre>", "", everything, flags=re.DOTALL)
    fetched = re.findall(r'(?:src|<link [^>]*href)="((?:https?:)?//[^"]*)', everything)
    assert not fetched
    search = re.findall('<script src="([^"]*iframe-worker[^"]*)"', pages[tmp_path / "index.html"])
    assert [(tmp_path / script).exists() for script in search] == [True]  # it works from disk, too


def parsed(text: str) -> tuple[list[str], list[float]]:
    """Split a text into words without their numbers, and numbers."""
    return re.sub(NUMBER, "#", text).split(), [float(n) for n in re.findall(NUMBER, text)]


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
