"""The examples in the docstrings of PyTorch's functions, which pytest does not find behind the registry's wrappers."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tracegrad import linalg
from tracegrad.nn import functional
from tracegrad.torch.functions.core.registry import FUNCTIONS, METHODS


def documented() -> dict[str, Callable[..., Any]]:
    """The functions by the names they are defined under."""
    results = [*FUNCTIONS.values(), *METHODS.values(), *vars(functional).values(), *vars(linalg).values()]
    functions = [inspect.unwrap(f) for f in results if callable(f) and getattr(f, "__doc__", None)]
    return {f"{f.__module__.removeprefix('tracegrad.')}.{f.__qualname__}": f for f in functions if ">>>" in f.__doc__}


CASES = documented()


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_example_of_a_function_is_right(name: str) -> None:
    function = CASES[name]
    (test,) = doctest.DocTestFinder(recurse=False).find(
        function, name, module=False, globs={"np": np, **function.__globals__}
    )
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert result.attempted > 0
    assert not result.failed, "".join(report)


def test_the_registry_has_examples() -> None:
    assert len(CASES) > 150
