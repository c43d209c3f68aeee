"""The pages of the API reference, from docstrings.

In a page of ``docs/api``, the comment ``<!-- gp_distributions.NAME -->`` stands for the documentation of
this object, which is put in its place when the site is built. ``<!-- NAME: a, b -->`` adds the members
``a`` and ``b`` of a class, its own or inherited ones, in this order: those that users call. One that an
earlier class has, too, becomes a link. Roles become links, and mathematics becomes ``$...$`` and
``$$...$$``.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import griffe

PAGES = sorted((Path(__file__).parent / "api").glob("*.md"))
_ENTRY = re.compile(
    r"^<!-- (?P<name>gp_distributions[\w.]*)(?:: (?P<members>.*))? -->$", re.MULTILINE
)
_ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):`~?([\w.]+)`")
_MATH = re.compile(
    r"^(?P<indent> *)\.\. math::[ ]*(?P<tex>.*(?:\n(?:(?P=indent) +.*|\s*(?=\n(?P=indent) +)))*)",
    re.MULTILINE,
)
_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent).*\S.*)*", re.MULTILINE)
_SPLIT_ROLE = re.compile("(meth|class|func|attr):`")
_TITLES = {"parameters": "Parameters", "attributes": "Attributes", "returns": "Returns"}
_TITLES |= {"yields": "Yields", "raises": "Raises", "warns": "Warns"}
WIDTH = 88


@functools.cache
def package() -> Any:
    """Return the package as griffe reads it from its source."""
    options: Any = {
        "returns_multiple_items": False,
        "returns_named_value": False,
        "warnings": False,
    }
    return griffe.load("gp_distributions", docstring_parser="google", docstring_options=options)


def found(name: str) -> Any:
    """Return an object of the package by its full name."""
    described = package()[name.removeprefix("gp_distributions.")]
    return described.final_target if described.is_alias else described


def members(entry: re.Match[str]) -> list[Any]:
    """Return the members of a class that its comment names."""
    described = found(entry["name"])
    everything = described.all_members if entry["members"] else {}
    named = [everything[name] for name in (entry["members"] or "").split(", ") if name]
    return [member.final_target if member.is_alias else member for member in named]


@functools.cache
def places() -> dict[str, str]:
    """Return where each object and member is documented, ``PAGE#NAME``, by where it is defined."""
    first: dict[str, str] = {}
    for page in PAGES:
        for entry in _ENTRY.finditer(page.read_text()):
            for member in members(entry):
                place = f"{page.name}#{entry['name']}.{member.name}"
                first.setdefault(member.canonical_path, place)
    return first


@functools.cache
def anchors() -> dict[str, str]:
    """Return the page of each documented object and member, by full name."""
    pages = {}
    for page in PAGES:
        for entry in _ENTRY.finditer(page.read_text()):
            pages[entry["name"]] = page.name
            pages |= {f"{entry['name']}.{member.name}": page.name for member in members(entry)}
    return pages


@functools.cache
def full_names() -> dict[str, str]:
    """Return the full names of documented objects by their short names."""
    entries = [entry["name"] for page in PAGES for entry in _ENTRY.finditer(page.read_text())]
    return {name.rpartition(".")[2]: name for name in entries}


def link(name: str, page: str) -> str:
    """Return a name as code, with a link to its documentation if there is one."""
    name = name.removeprefix("gp_distributions.")
    first, *rest = name.split(".")
    whole = full_names().get(first, first)
    for target in (f"gp_distributions.{name}", ".".join([whole, *rest]), whole):
        if target in anchors():
            there = anchors()[target]
            return f"[`{name}`]({'' if there == page else there}#{target})"
    return f"`{name}`"


def markdown(text: str, page: str) -> str:
    """Return a part of a docstring as Markdown."""

    def formula(match: re.Match[str]) -> str:
        lines = ["$$", *textwrap.dedent(match["tex"]).strip().splitlines(), "$$"]
        return "\n" + "\n".join(match["indent"] + line.strip() for line in lines) + "\n"

    def example(match: re.Match[str]) -> str:
        code = re.sub(r" *# doctest:.*|<BLANKLINE>", "", match[0])
        return f"{match['indent']}```pycon\n{code}\n{match['indent']}```"

    text = re.sub(
        r":math:`([^`]+)`", lambda m: f"${' '.join(m[1].split())}$", _MATH.sub(formula, text)
    )
    text = _ROLE.sub(lambda match: link(match[1], page), text)
    return _DOCTEST.sub(example, re.sub(r"``([^`]+)``", r"`\1`", text))


def signature(described: Any) -> str:
    """Return the call of a function or class, without annotations."""
    parts: list[str] = []
    kinds = griffe.ParameterKind
    given = [p for p in described.parameters if p.name not in ("self", "cls")]
    for index, parameter in enumerate(given):
        before = given[index - 1].kind if index else kinds.positional_or_keyword
        if before is kinds.positional_only and parameter.kind is not before:
            parts.append("/")
        starred = (kinds.keyword_only, kinds.var_positional)
        if parameter.kind is kinds.keyword_only and before not in starred:
            parts.append("*")
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(parameter.kind, "")
        default = "" if stars or parameter.default is None else f"={parameter.default}"
        parts.append(f"{stars}{parameter.name}{default}".replace("'", '"'))
    call = f"{described.name}({', '.join(parts)})"
    if len(call) > WIDTH:
        call = f"{described.name}(\n    " + ",\n    ".join(parts) + ",\n)"
    return call


def item(part: Any, page: str) -> str:
    """Return a line of a list of parameters, attributes, results or errors."""
    name = f"`{part.name}`" if getattr(part, "name", None) else ""
    if not name and _SPLIT_ROLE.match(part.description):  # griffe took what is before it for a type
        return f"- {markdown(f'{str(part.annotation).rstrip()} :{part.description}', page)}"
    type_ = f"`{part.annotation}`" if part.annotation is not None else ""
    if name and type_:
        value = None if part.name.startswith("*") else getattr(part, "value", None)
        default = f", default `{value}`" if value else ""
        name, type_ = f"**{name}**", f" ({type_}{default})"
    described = textwrap.indent(markdown(part.description, page), "    ").strip()
    return f"- {name}{type_}: {described}"


def sections(described: Any, page: str) -> Iterator[str]:
    """Yield the parts of a docstring."""
    for section in described.docstring.parsed:
        if section.kind.value == "text":
            yield markdown(section.value, page)
        elif section.kind.value == "admonition":
            yield f"**{section.title}**"
            yield markdown(section.value.description, page)
        else:
            yield f"**{_TITLES[section.kind.value]}**"
            yield "\n".join(item(part, page) for part in section.value)


def entry(described: Any, name: str, page: str, inner: Sequence[Any] = (), level: int = 2) -> str:
    """Return the documentation of an object and of its members ``inner``."""
    parts = [f'{"#" * level} <a id="{name}"></a>{described.name}']
    if described.is_class or described.is_function:
        parts.append(f"```python\n{signature(described)}\n```")
    elif described.annotation is not None:
        parts.append(f"```python\n{described.name}: {described.annotation}\n```")
    bases = {str(b).split("[")[0]: b.canonical_path for b in getattr(described, "bases", ())}
    shown = [
        link(base, page)
        for base, path in bases.items()
        if base in full_names() or not path.startswith("gp_distributions.")
    ]
    if shown:
        parts.append(f"Bases: {', '.join(shown)}")
    parts += sections(described, page)
    own, links = [], []
    for member in inner:
        whole = f"{name}.{member.name}"
        where = places()[member.canonical_path].removeprefix(page)
        if where == f"#{whole}":
            own.append(entry(member, whole, page, level=level + 1))
        else:
            links.append(f'<a id="{whole}"></a>[`{member.name}`]({where})')
    parts += [f"Inherited: {', '.join(links)}.", *own] if links else own
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(part.strip("\n") for part in parts))


def rendered(page: Path) -> str:
    """Return a page with the documentation of its objects."""

    def documentation(comment: re.Match[str]) -> str:
        name = comment["name"]
        return f"\n{entry(found(name), name, page.name, members(comment))}\n"

    return _ENTRY.sub(documentation, page.read_text())
