"""Examples in docstrings run, and every public class and function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import gp_distributions

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(gp_distributions.__path__, "gp_distributions.")
    if not name.startswith("gp_distributions.demo")
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert not failed


@pytest.mark.parametrize("name", gp_distributions.__all__)
def test_public_names_have_an_example(name: str) -> None:
    described = getattr(gp_distributions, name)
    if isinstance(described, type) and issubclass(described, Exception):
        return
    assert ">>>" in (inspect.getdoc(described) or "")
