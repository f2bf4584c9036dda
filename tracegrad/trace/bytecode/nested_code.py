"""The code objects of nested functions, and the names in them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """The code object, and the code objects nested in it."""
    yield code
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from code_objects(x)


@functools.lru_cache(maxsize=4096)
def names_in(code: CodeType) -> tuple[str, ...]:
    """The global and attribute names that the code uses, nested functions included, in order.

    >>> names_in((lambda xs: [abs(x.real) for x in xs]).__code__)
    ('abs', 'real')
    """
    return tuple(dict.fromkeys(name for each in code_objects(code) for name in each.co_names))
