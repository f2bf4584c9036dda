"""Read LLVM IR from the `.ll` files of the package, and fill in their fields.

A field is written `$name` and has a value, or `$Layout.name` and is a member of a layout: a mapping of names to
numbers, such as the offsets in a record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FIELD = re.compile(r"\$(\w+)(?:\.(\w+))?")


def ir_template(path: str, **fields: int | str | Mapping[str, int]) -> str:
    """The text of a `.ll` file, whose path is relative to the package, with its fields filled in.

    Raises `KeyError` for a field without a value, `ValueError` for a value that is no field of the file.

    >>> "call i32 @clock_gettime(i32 6, ptr %time)" in ir_template("runtime/threads/clock.ll", clock=6)
    True
    """
    with open(os.path.join(_PACKAGE, path), encoding="utf-8") as file:
        text = file.read()
    used = set[str]()

    def value(match: re.Match[str]) -> str:
        used.add(match[1])
        field = fields[match[1]]
        return str(field[match[2]]) if isinstance(field, Mapping) else match[0].replace(f"${match[1]}", str(field))

    result = _FIELD.sub(value, text)
    if used != fields.keys():
        raise ValueError(f"{path} has no field {', '.join(sorted(fields.keys() - used))}")
    return result
