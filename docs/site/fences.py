"""What mkdocstrings does with the docstrings: their doctests become blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 +\S.*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """A docstring with its doctests in fences; Markdown would take `>>>` for quotations of quotations."""

    def block(found: re.Match[str]) -> str:
        margin = found[1]
        return f"{margin}```pycon\n{found[0]}\n{margin}```"

    return _DOCTEST.sub(block, docstring)


class DoctestFences(Extension):
    """Puts fences around the doctests of everything that has a docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
