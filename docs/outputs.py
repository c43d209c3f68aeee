"""Put what the code of a page prints and draws into the page: ``python -m docs.outputs [pages]``.

The Python blocks of a page run from top to bottom. The block of text directly below a Python block is
what the code prints, and the pictures below that are the figures it draws, in the order of their
creation. The command writes both; what a picture shows is written by hand, as
``![...](figures/NAME.png)``. Each picture holds a digest of the code that drew it
(tests/test_docs.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from PIL import Image

ROOT = Path(__file__).parent.parent
STYLE = ROOT / "docs" / "figures.mplstyle"
# The code of one page needs a package that make test-interop installs; tests/interop runs it. Blocks of
# the API reference are signatures.
ELSEWHERE = {ROOT / "docs" / "guides" / "ax.md", *ROOT.glob("docs/api/*.md")}
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page not in ELSEWHERE
]
_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n.*?^```\n)?"
    r"(?P<pictures>(?:\n!\[[^\]]*\]\([^)]*\)\n)*)",
    re.DOTALL | re.MULTILINE,
)


def current(page: Path, save: Callable[[Path, str], None]) -> str:
    """Run the code of a page in the working directory, and return its text with current outputs.

    ``save`` is called for each picture, with its path and the digest of the code so far, while the
    figure is the current one of matplotlib.

    Raises:
        ValueError: If a block draws more or fewer figures than there are pictures below it.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = ""
    plt.close("all")  # figures of a page that failed

    def run(block: re.Match[str]) -> str:
        nonlocal ran
        ran += block["code"]
        where = f"{page.name}, line {page.read_text().count(chr(10), 0, block.start()) + 1}"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], where, "exec"), namespace)
        pictures = re.findall(r"\((.*)\)", block["pictures"])
        figures = plt.get_fignums()
        if len(pictures) != len(figures):
            raise ValueError(
                f"Expected a picture for each of {len(figures)} figures below the code at {where}, got "
                f"{len(pictures)}. Write ![what it shows](figures/NAME.png)."
            )
        for figure, picture in zip(figures, pictures, strict=True):
            plt.figure(figure)
            save(page.parent / picture, hashlib.sha256(ran.encode()).hexdigest()[:16])
        plt.close("all")
        shown = printed.getvalue().rstrip()
        output = f"\n```text\n{shown}\n```\n" if shown else ""
        return f"```python\n{block['code']}```\n{output}{block['pictures']}"

    return _BLOCK.sub(run, page.read_text())


def draw(path: Path, digest: str) -> None:
    """Save the current figure."""
    path.parent.mkdir(exist_ok=True)
    marks = {"Software": None, "Code": digest}
    plt.savefig(path, bbox_inches="tight", metadata=marks, pil_kwargs={"optimize": True})


def drawn_by(path: Path) -> str:
    """Return the digest of the code that drew a picture."""
    with Image.open(path) as picture:
        return str(picture.info["Code"])


def main(names: list[str]) -> None:
    """Run the named pages, by default all, and write their outputs."""
    mpl.use("Agg")
    plt.style.use(STYLE)
    for page in [Path(name).resolve() for name in names] or PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            page.write_text(current(page, draw))


if __name__ == "__main__":
    main(sys.argv[1:])
