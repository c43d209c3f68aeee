"""Run the notebooks in place: ``python -m tutorials [names]``.

A name is the beginning of a file name, such as ``01``; without names, all notebooks run. The written
file depends on the notebook alone: it contains no times, paths or progress bars, and cell ids are
numbers. A digest of the code shows whether the outputs belong to it (tests/tutorials/test_tutorials.py).
Warnings are shown but not stored. A notebook that fails stays unchanged.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from PIL import Image
from tqdm import tqdm
from traitlets.config import Config

FOLDER = Path(__file__).parent

# With this, a notebook might not keep its figures.
_UNSET = "MPLBACKEND"


class TutorialError(RuntimeError):
    """A cell of a notebook failed."""


def notebooks(names: Sequence[str] = (), folder: Path = FOLDER) -> list[Path]:
    """Return the notebooks whose names begin as given, in order; all by default.

    Raises:
        ValueError: If no notebook matches a name.
    """
    paths = sorted(folder.glob("[0-9]*.ipynb"))
    for name in names:
        if not any(path.name.startswith(name) for path in paths):
            raise ValueError(
                f"Expected the name of a notebook ({', '.join(p.stem for p in paths)}), got {name!r}."
            )
    return [path for path in paths if not names or path.name.startswith(tuple(names))]


def run(path: Path, *, progress: bool = True) -> None:
    """Run a notebook and write its outputs to the file.

    Raises:
        TutorialError: If a cell fails. The file stays unchanged.
    """
    notebook = nbformat.read(path, as_version=4)
    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    current = 0

    def begin(cell: NotebookNode, cell_index: int) -> None:
        nonlocal current
        current = cell_index

    with tqdm(total=len(code), desc=path.stem, unit="cell", disable=not progress) as bar:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=None,
            record_timing=False,
            resources={"metadata": {"path": str(path.parent)}},
            config=Config(KernelManager={"transport_encryption": "auto"}),
            on_cell_execute=begin,
            on_cell_executed=lambda **_: bar.update(),
        )
        environment = {key: value for key, value in os.environ.items() if key != _UNSET}
        environment["MATPLOTLIBRC"] = str(FOLDER.parent / "docs" / "figures.mplstyle")
        try:
            client.execute(env=environment)
        except (CellExecutionError, DeadKernelError) as error:
            message = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()  # without colours
            raise TutorialError(
                f"{path.name}, cell {current} ({cell_id(path, current)}) failed; the file is "
                f"unchanged.\n\n{message}"
            ) from error
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                tqdm.write(f"{path.name}, cell {index}: {output.text.strip()}", file=sys.stderr)
    normalize(notebook, path)
    whole = path.with_suffix(".tmp")
    whole.write_text(nbformat.writes(notebook) + "\n")
    whole.replace(path)


def normalize(notebook: NotebookNode, path: Path) -> None:
    """Remove everything from an executed notebook that does not depend on its code alone."""
    for index, cell in enumerate(notebook.cells):
        cell.id = cell_id(path, index)
        # The alternative text of the figure is written by hand.
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k == "alt"})
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
            for output in cell.outputs:
                output.pop("transient", None)
                if "metadata" in output:
                    output.metadata = NotebookNode()
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = fewer_colours(output.data["image/png"])
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "executed": digest(notebook),
        }
    )


def fewer_colours(png: str, colours: int = 64) -> str:
    """Reduce a base64-encoded picture to at most ``colours`` colours, to make it small."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    buffer = io.BytesIO()
    picture.quantize(colours).save(buffer, "png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def cell_id(path: Path, index: int) -> str:
    """Return a cell id made of the numbers of the notebook and the cell."""
    return f"{path.name[:2]}-{index:02d}"


def digest(notebook: NotebookNode) -> str:
    """Return a digest of the code."""
    sources: list[Any] = [c.source for c in notebook.cells if c.cell_type == "code"]
    return hashlib.sha256("\n\n".join(sources).encode()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named notebooks."""
    parser = argparse.ArgumentParser(
        prog="python -m tutorials",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01 (default: all)")
    names = parser.parse_args(arguments).names
    try:
        for path in notebooks(names):
            run(path)
    except (TutorialError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
