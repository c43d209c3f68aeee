"""Mutants: one small change each, by the operators of cosmic-ray, drawn with a seed.

Not drawn are changes that no test can or should see: annotations, imports, ``__all__``, messages (what
is raised, warned or logged, and f-strings), ``strict=True`` of ``zip``, overloads, and code for type
checkers.
"""

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

Place = tuple[int, int]
# Operators replace each other within a group: a bit operator in place of a sum of tensors fails at
# once, and would be counted as found.
_GROUPS = (
    {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"},
    {"BitOr", "BitAnd", "BitXor"},
    {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"},
    {"Is", "IsNot"},
    {"USub", "Invert"},
    {"Delete", "USub"},
    {"Delete", "Invert"},
    {"Delete", "Not"},
)
# They need arguments, or change nothing.
_NOT_USED = ("VariableReplacer", "VariableInserter", "NoOp")
_SILENT_CALLS = {"warn", "debug", "info", "warning", "log"}


@dataclass(frozen=True)
class Mutant:
    """One occurrence of one operator in a file, at a line.

    Args:
        path: Path to the file, from the root of the repository.
        operator: Name of cosmic-ray's operator.
        occurrence: Which of the places in the file where the operator applies.
        line: Line of the change.
        lines: Lines of the statement, whose execution may show the change; None for all of the file.
    """

    path: str
    operator: str
    occurrence: int
    line: int
    lines: tuple[int, int] | None

    def source(self) -> str:
        """Return the changed source."""
        changed = mutate_code(
            Path(self.path).read_text(), get_operator(self.operator)(), self.occurrence
        )
        assert changed is not None
        return changed

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.operator.partition('/')[2]} {self.occurrence}"


def sample(folder: Path, number: int, seed: int) -> list[Mutant]:
    """Draw places at random, without replacement, and one change at each.

    All changes at one place have the same weight together, so that operators with many alternatives
    (one of ``+ - * / // % ** >> << | & ^`` for another) do not outnumber the others.
    """
    rng = random.Random(seed)
    places: dict[tuple[str, Place, str], list[Mutant]] = defaultdict(list)
    for path in sorted(folder.glob("*.py")):
        for place, mutant in _mutants(path):
            family = mutant.operator.partition("/")[2].partition("_")[0]
            places[str(path), place, family].append(mutant)
    drawn = []
    for place in rng.sample(sorted(places), len(places)):
        mutant = rng.choice(places[place])
        if len(drawn) < number and _differs(mutant):
            drawn.append(mutant)
    return drawn


def _differs(mutant: Mutant) -> bool:
    """Return whether the source is still a program, and another one."""
    try:
        changed = ast.dump(ast.parse(mutant.source()))
    except (SyntaxError, ValueError):
        return False
    return changed != ast.dump(ast.parse(Path(mutant.path).read_text()))


def _mutants(path: Path) -> Iterator[tuple[Place, Mutant]]:
    source = path.read_text()
    tree = ast.parse(source)
    silent = [_span(node) for node in _silent(tree)]
    nodes = list(ast_nodes(get_ast(source)))
    for name in sorted(operator_names()):
        if not _used(name):
            continue
        operator = get_operator(name)()
        occurrence = -1
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                occurrence += 1
                if not any(first <= start < last for first, last in silent):
                    lines = _lines(tree, start[0])
                    yield start, Mutant(str(path), name, occurrence, start[0], lines)


def _used(operator: str) -> bool:
    name, *swapped = operator.partition("/")[2].split("_")
    if name.endswith("Operator"):
        return any(set(swapped) <= group for group in _GROUPS)
    return name not in _NOT_USED


def _span(node: ast.AST) -> tuple[Place, Place]:
    # Columns are in bytes here and in characters in parso: the same outside of texts.
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _silent(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes whose changes are not drawn."""
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Raise() | ast.JoinedStr():
                yield node
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.AST() as annotation):
                yield annotation
            case ast.FunctionDef(returns=returns, decorator_list=decorators):
                if returns is not None:
                    yield returns
                if any(ast.unparse(decorator) == "overload" for decorator in decorators):
                    yield from (node, *decorators)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), keywords=keywords):
                if name in _SILENT_CALLS:
                    yield node
                if name == "zip":
                    yield from keywords
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield node
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if name == "__all__" or _is_type(value):
                    yield node


def _is_type(value: ast.expr) -> bool:
    """Return whether an assignment gives a name to a type."""
    match value:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type(left) or _is_type(right)
        case ast.Subscript(value=ast.Name(id=name)):
            return name in {"Callable", "Literal", "Union", "dict", "list", "tuple"}
        case ast.Name(id=name):
            return name[:1].isupper()
        case ast.Call(func=ast.Name(id="TypeVar")):
            return True
    return False


def _lines(tree: ast.AST, line: int) -> tuple[int, int] | None:
    """First and last line of what runs when the statement of a line runs."""
    found: tuple[int, int] | None = None
    node = tree
    while True:
        inner = next(
            (s for s in _statements(node) if _first(s) <= line <= (s.end_lineno or 0)), None
        )
        if inner is None:
            return found
        if isinstance(inner, ast.FunctionDef | ast.ClassDef):
            found = inner.lineno, inner.end_lineno or inner.lineno
        elif isinstance(node, ast.ClassDef):
            return found  # runs when the class is made: any method may show it
        elif not isinstance(node, ast.Module):
            bodies = [s.lineno for s in _statements(inner)]
            found = (
                inner.lineno,
                max(min(bodies) - 1, inner.lineno) if bodies else inner.end_lineno or 0,
            )
        node = inner


def _first(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _statements(node: ast.AST) -> list[ast.stmt]:
    """Statements inside of a node, also those of handlers and cases."""
    found: list[ast.stmt] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            found.append(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            found += _statements(child)
    return found
