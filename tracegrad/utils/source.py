"""Compile generated Python: tracebacks show its lines, and the log topic `source` prints its text.

A generated text has a filename such as `<tracegrad: fast path 12>`, under which `linecache` has its lines. Equal texts
with equal titles are compiled once.
"""

from __future__ import annotations

import functools
import itertools
import linecache
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any

from tracegrad.errors import GENERATED_PREFIX
from tracegrad.utils.log import enabled, log

_MAX_TEXTS = 1024  # texts whose code and lines are cached
_numbers = itertools.count(1)
_filenames: deque[str] = deque()  # of the cached lines, the oldest first


def define(name: str, text: str, space: dict[str, Any], title: str) -> Callable[..., Any]:
    """Execute a generated text in the namespace `space`, and return the function that it defines under `name`.

    `title` describes the text in tracebacks and in the log.

    >>> half = define("half", "def half(x):\\n    return x / divisor", {"divisor": 2}, "example")
    >>> half(3)
    1.5
    """
    code = _compiled(text, title)
    if enabled("source"):
        log("source", "%s\n%s", code.co_filename, text)
    exec(code, space)
    function: Callable[..., Any] = space[name]
    return function


@functools.lru_cache(maxsize=_MAX_TEXTS)
def _compiled(text: str, title: str) -> CodeType:
    filename = f"{GENERATED_PREFIX}: {title} {next(_numbers)}>"
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    _filenames.append(filename)
    if len(_filenames) > _MAX_TEXTS:
        linecache.cache.pop(_filenames.popleft(), None)
    return compile(text, filename, "exec")
