"""Extensions of Markdown for the site: mathematics, references to the API, tutorials, and links.

MkDocs loads this file as a hook. Mathematics, ``$...$`` and ``$$...$$``, becomes MathML when the site
is built, so pages need neither scripts nor a network. The name of a documented object, written as code,
links to it. The tutorials are pages with their outputs; ``<!-- gallery -->`` becomes a picture of each
with a link, and ``<!-- README: HEADING -->`` the text below a heading of the README. Links are relative
to the repository: some of its files outside ``docs`` are pages of the site, as the results of benchmarks
are, to which their commands are links; links to other files become text.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs import reference

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("tutorials/*.ipynb"))
# Pages and pictures of the site that are files of the repository outside docs.
PAGES = (
    {
        f"figures/{path.name}": f"benchmarks/figures/{path.name}"
        for path in ROOT.glob("benchmarks/figures/*.png")
    }
    | {
        f"figures/{path.name}": f"tutorials/figures/{path.name}"
        for path in ROOT.glob("tutorials/figures/*.png")
    }
    | {
        f"results/{path.name}": f"benchmarks/results/{path.name}"
        for path in sorted(ROOT.glob("benchmarks/results/*.md"))
    }
    | {
        "benchmarks.md": "benchmarks/README.md",
        "results.md": "benchmarks/RESULTS.md",
        "contributing.md": "CONTRIBUTING.md",
        "changelog.md": "CHANGELOG.md",
    }
    | {f"tutorials/{name}.md": f"tutorials/{name}.ipynb" for name in NOTEBOOKS}
)
# The number of the figure that stands for a notebook in the gallery, if it is not the first.
FIGURES = {
    "01_quickstart": 5,
    "02_choosing_a_kernel": 3,
    "06_small_bags": 2,
    "08_images_and_meshes": 3,
    "09_shapes_in_unknown_pose": 7,
    "10_patients_cells_and_covariates": 3,
}
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")

_COMMAND = re.compile(r"(?<![\[`])`(python -m benchmarks\.(?:\w+\.)*(\w+)[^`\n]*)`(?!\])")
_README = re.compile(r"<!-- README: (.*) -->")


def documented() -> dict[str, str]:
    """Return the addresses of all objects in the API reference and their members, by their names."""
    modules = {whole.rpartition(".")[0] for whole in reference.full_names().values()}
    addresses = {}
    for name, page in reference.anchors().items():
        module = max((m for m in modules if name.startswith(f"{m}.")), key=len)
        addresses[name.removeprefix(f"{module}.")] = f"api/{page}#{name}"
    return addresses


def mathml(tex: str, *, block: bool = False) -> str:
    """Convert TeX to MathML.

    Raises:
        ValueError: If the TeX has an unknown command.
    """
    # Brackets of a fixed size do not sit at the height of the line: let them fit what they enclose.
    tex = re.sub(r"\\[bB]igg?[lr]?(?=[(\[])", r"\\left", " ".join(tex.split()))
    tex = re.sub(r"\\[bB]igg?[lr]?(?=[)\]])", r"\\right", tex)
    markup = convert(tex, display="block" if block else "inline")
    if "\\" in markup:
        raise ValueError(f"Expected TeX that MathML can show, got an unknown command in: {tex}")
    # A browser takes a vertical bar for a relation, and a slash for an operation with space around it.
    tight = r"<mo((?: (?!form)\w+=\"\w+\")*)>(&#x0007C;|&#x02016;|&#x0002F;|/)</mo>"
    markup = re.sub(tight, r'<mo\1 lspace="0" rspace="0">\2</mo>', markup)
    # It takes a minus after a bracket, comma or equals sign for the difference of two numbers.
    signed = r"(<mo[^>]*>(?:&#x00028;|\[|&#x0002C;|&#x0003D;)</mo>)<mo>(&#x02212;)</mo>"
    markup = re.sub(signed, r'\1<mo form="prefix">\2</mo>', markup)
    # It puts no space beside functions such as log.
    space = '<mspace width="0.167em"/>'
    before = r"(</m(?:frac|i|n|style|su\w+)>)(<mi>(?:log|exp|sin|cos)</mi>)"
    markup = re.sub(before, rf"\1{space}\2", markup)
    bare = r"(<mi>(?:log|exp|sin|cos)</mi>)(?!<mo|<mrow><mo|</)"
    markup = re.sub(bare, rf"\1{space}", markup)
    return markup.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # a relation


class _Blocks(Preprocessor):
    """Replace ``$$`` blocks."""

    def run(self, lines: list[str]) -> list[str]:
        block = re.compile(r"^( *)\$\$\n(.+?)\n\1\$\$$", re.MULTILINE | re.DOTALL)
        return block.sub(self._show, "\n".join(lines)).split("\n")

    def _show(self, match: re.Match[str]) -> str:
        markup = mathml(match[2], block=True)
        shown = self.md.htmlStash.store(f'<div class="formula">{markup}</div>')
        return f"\n{match[1]}{shown}\n"


class _Inline(InlineProcessor):
    """Replace mathematics within a line."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        return self.md.htmlStash.store(mathml(html.unescape(m[1]))), m.start(0), m.end(0)


class _References(InlineProcessor):
    """Link names of documented objects to their documentation."""

    def __init__(self, pattern: str, md: Markdown, addresses: dict[str, str], uri: str) -> None:
        super().__init__(pattern, md)
        self.addresses = addresses
        self.uri = uri

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: N802
        name = m["name"].removeprefix("gp_distributions.")
        address = self.addresses.get(name) or self.addresses[name.partition(".")[0]]
        reference = Element("a", href=os.path.relpath(address, PurePosixPath(self.uri).parent))
        code = SubElement(reference, "code")
        code.text = AtomicString(name)
        return reference, m.start(0), m.end(0)


class _Reading(Extension):
    """Register all of the above with Markdown."""

    uri = ""  # of the page that is read

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        addresses = documented()
        names = [name for name in addresses if "." not in name]
        name = rf"(?P<name>(?:gp_distributions\.)?(?:{'|'.join(map(re.escape, names))})(?:\.\w+)?)"
        # Names that are common words are linked only if the package name precedes them. Links are not
        # nested.
        common = (
            rf"(?!(?:{'|'.join(name for name in names if name.isalpha() and name.islower())})\b)"
        )
        code = rf"(?<![`\[])(`{{1,2}}){common}{name}\1(?![`\]])"
        md.preprocessors.register(_Blocks(md), "math", 22)  # after fences of code
        md.inlinePatterns.register(_References(code, md, addresses, self.uri), "name", 194)
        md.inlinePatterns.register(
            _Inline(r"(?<![\\$\w])\$(?!\s)([^$]+?)(?<!\s)\$(?![\w$])", md), "math", 185
        )


_READING = _Reading()


def read_notebook(name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown (texts, code and outputs), and its figures by their file names."""
    cells = json.loads((ROOT / "tutorials" / f"{name}.ipynb").read_text())["cells"]
    parts: list[str] = []
    figures: dict[str, bytes] = {}
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            printed = "".join(output.get("text", data.get("text/plain", [])))
            if "image/png" in data:
                figure = f"{name}-{len(figures) + 1}.png"
                figures[figure] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![{cell['metadata']['alt']}](figures/{figure})")
            elif printed.strip():
                parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts), figures


def gallery(page: File, files: Files) -> str:
    """Return links from a page to all notebooks, each with its picture and title."""

    def address(uri: str) -> str:
        return files.src_uris[uri].url_relative_to(page)

    cards = []
    for name in NOTEBOOKS:
        title = read_notebook(name)[0].partition("\n")[0].removeprefix("# ")
        figure = address(f"tutorials/figures/{name}-{FIGURES.get(name, 1)}.png")
        cards.append(
            f'<a href="{address(f"tutorials/{name}.md")}"><img src="{figure}" alt="" loading="lazy">'
            f"<span>{html.escape(title)}</span></a>"
        )
    return f'<div class="gallery">{"".join(cards)}</div>'


def of_readme(heading: str) -> str:
    """Return the text below a heading of the README, with links as from ``docs``."""
    text = (ROOT / "README.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return _LINK.sub(r"[\1](../\2\3)", text).strip()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the extension, and the results of each subject to the navigation."""
    config.markdown_extensions.append(_READING)
    of_subjects = [
        uri
        for uri in PAGES
        if uri.startswith("results/") and (ROOT / "benchmarks" / Path(uri).stem).is_dir()
    ]
    results = next(section["Results"] for section in config.nav or () if "Results" in section)
    results[1:1] = [{Path(uri).stem.capitalize(): uri} for uri in of_subjects]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs."""
    for uri, path in PAGES.items():
        if not path.endswith(".ipynb"):
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for name in NOTEBOOKS:
        text, figures = read_notebook(name)
        files.append(File.generated(config, f"tutorials/{name}.md", content=text))
        for figure, content in figures.items():
            files.append(File.generated(config, f"tutorials/figures/{figure}", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Rewrite links within the repository as links within the site; add docstrings and the gallery."""
    _READING.uri = uri = page.file.src_uri
    if uri.startswith(("results", "changelog")):  # searches find guides first
        page.meta["search"] = {"boost": 0.5}
    if uri.startswith("api/"):
        markdown = reference.rendered(ROOT / "docs" / uri)
    markdown = _README.sub(lambda match: of_readme(match[1]), markdown)
    folder = PurePosixPath(PAGES.get(uri, f"docs/{uri}")).parent
    pages = {path: uri for uri, path in PAGES.items()}

    def relink(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = os.path.normpath(folder / target)
        if path.startswith("docs/") and not path.endswith((".py", ".mplstyle")):
            to = path.removeprefix("docs/")
        elif path in pages:
            to = pages[path]
        elif (ROOT / path).exists():
            return text
        else:
            return match[0]
        return f"[{text}]({os.path.relpath(to, PurePosixPath(uri).parent)}{anchor})"

    def measured(match: re.Match[str]) -> str:
        to = f"results/{match[2]}.md"
        if to not in PAGES or to == uri:
            return match[0]
        return f"[`{match[1]}`]({os.path.relpath(to, PurePosixPath(uri).parent)})"

    marker = "<!-- gallery -->"
    if marker in markdown:
        markdown = markdown.replace(marker, gallery(page.file, files))
    return _COMMAND.sub(measured, _LINK.sub(relink, markdown))
