"""Refuse to trace on a Python that is not as the tracer assumes: never a wrong trace.

The self-test of `tracegrad.trace.rewriting.self_test` runs before the first trace, once per interpreter and version of
the package. The disk cache keeps its result. Functions that are not traced work on any Python.
"""

from __future__ import annotations

import functools
import platform
import sys

from tracegrad.cpython.instruction_set import FIRST_UNKNOWN
from tracegrad.errors import UnsupportedError
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.runtime.compile.fingerprint import digest, process_key
from tracegrad.settings import settings


def require_known_python() -> None:
    """Raise `UnsupportedError` if functions cannot be traced on this Python, unless the setting allows it."""
    if not settings.unknown_python and (reasons := problems()):
        raise UnsupportedError.everywhere(
            f"functions cannot be traced on this Python, {platform.python_implementation()} "
            f"{platform.python_version()}: {'; '.join(reasons)}. Code that is not traced, such as operations on "
            "Tensors, works; use a version of Python that tracegrad supports, or set TRACEGRAD_UNKNOWN_PYTHON=1 to "
            "trace at your own risk"
        )


@functools.cache
def problems() -> tuple[str, ...]:
    """Why functions cannot be traced on this Python; nothing if they can."""
    if sys.implementation.name != "cpython":
        return ("its instructions are not those of CPython",)
    if sys.version_info[:2] < FIRST_UNKNOWN:
        return _failed()
    version = ".".join(map(str, FIRST_UNKNOWN))
    return (f"Python {version} and later are not known", *_failed())


def _failed() -> tuple[str, ...]:
    """The checks of the self-test that fail, from the disk cache if it has run before."""
    cache, key = default_cache(), digest(f"self-test\n{process_key()}")
    record = cache.get(key)
    if record is None:
        from tracegrad.trace.rewriting.self_test import failed_checks

        record = {"failed": [f"the self-test found that not: {name}" for name in failed_checks()]}, b""
        cache.put(key, *record)
    return tuple(record[0]["failed"])
