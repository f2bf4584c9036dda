"""What mkdocstrings does with the docstrings: their doctests become blocks of code."""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 +\S.*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """A docstring with its doctests in fences; Markdown would take `>>>` for quotations of quotations."""

    def block(found: re.Match[str]) -> str:
        margin = found[1]
        return f"{margin}```pycon\n{found[0]}\n{margin}```"

    return _DOCTEST.sub(block, docstring)


def documented(obj: Object) -> str | None:
    """The docstring of a function of `tracegrad.random` as it runs, with the sections that a table adds."""
    if obj.is_function and obj.module.path in sys.modules and obj.path.startswith("tracegrad.random."):
        return inspect.getdoc(pkgutil.resolve_name(obj.path))
    return None


class DoctestFences(Extension):
    """Puts fences around the doctests of everything that has a docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(documented(obj) or obj.docstring.value)
