"""Puts a changed source in the place of a module's."""

import gc
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def replaced(path: str, source: str) -> bool:
    """Give the functions of a module that has been imported the code of another source.

    Every function that runs the code of the module is changed, wherever it is kept.

    Returns:
        Whether that was possible: False, and nothing is changed, if code differs that has run already,
        such as constants, classes, decorators and defaults.
    """
    # The loader compiled the same text under the same name: the code objects are equal.
    name = str(Path(path).resolve())
    before = compile(Path(path).read_text(), name, "exec", dont_inherit=True)
    after = compile(source, name, "exec", dont_inherit=True)
    pairs = list(_pairs(before, after))
    if not all(old.co_flags & inspect.CO_OPTIMIZED for old, new in pairs if _differ(old, new)):
        return False
    changed = {old: new for old, new in pairs if old != new and old.co_flags & inspect.CO_OPTIMIZED}
    functions = [
        f for f in gc.get_objects() if type(f) is FunctionType
    ]  # asking a proxy has effects
    for function in functions:
        code = function.__code__
        if code.co_filename == name and code in changed:
            function.__code__ = changed[code]
    return True


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield before, after
    if len(_inner(before)) == len(_inner(after)):
        for old, new in zip(_inner(before), _inner(after), strict=True):
            yield from _pairs(old, new)


def _differ(old: CodeType, new: CodeType) -> bool:
    """Return whether two code objects differ in more than the functions inside them."""
    constants = [[c for c in code.co_consts if not isinstance(c, CodeType)] for code in (old, new)]
    same = repr(constants[0]) == repr(constants[1]) and len(_inner(old)) == len(_inner(new))
    # The table of lines knows in which column a function ends.
    bare = [code.replace(co_consts=(), co_linetable=b"") for code in (old, new)]
    return not same or bare[0] != bare[1]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.source = source

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self.source)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self.source = source

    def get_code(self, fullname: str) -> Any:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def import_instead(path: str, source: str) -> None:
    """Let later imports of a module read another source."""
    name = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    sys.meta_path.insert(0, _Finder(name, source))
