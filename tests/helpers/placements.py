"""Where a program of the meaning tests can stand: what a user's file says must hold for installed code just as well.

- *installed*: the module of tests is imported once more, from a folder called `site-packages`;
- *decorated*: an installed package's decorator stands between the function and `trace`, and copies no attributes;
- *wrapped*: the same with `functools.wraps`;
- *plain path*: such a decorator takes a lock first, so the call leaves the compiled path and runs as plain Python.

Each program runs in its own file, and in one other placement that its name chooses; in all with `--placements`.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import tempfile
import types
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tracegrad as tg

__all__ = ["FAULTS", "PLACEMENTS", "Placement", "chosen", "installed_module", "placed"]

PLACEMENTS = ("installed", "decorated", "wrapped", "plain path")

# Programs that do not hold in a placement, and why: each is noticed, and taken out, once it does.
FAULTS = {
    ("test_a_warning_that_is_an_error", "plain path"): "the warning of the plain path is an error there, too",
}

PACKAGE = """
import functools
import threading

LOCK = threading.Lock()


def decorated(function):
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def wrapped(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def locked(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        LOCK.acquire()
        LOCK.release()
        return function(*args, **kwargs)

    return call
"""
DECORATORS = {"decorated": "decorated", "wrapped": "wrapped", "plain path": "locked"}

Decorator = Callable[..., Any]


@dataclass(frozen=True)
class Placement:
    """A program where it stands, what it is decorated with, plainly and traced, and what is around its calls."""

    script: Callable[..., Any]
    plain: Decorator
    traced: Decorator
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


def chosen(name: str) -> str:
    """The placement of a program beside its own file: the same in every run."""
    return PLACEMENTS[zlib.crc32(name.encode()) % len(PLACEMENTS)]


def placed(script: Callable[..., Any], placement: str, plain: Decorator) -> Placement:
    """A program as it stands in a placement; `plain` is what it is decorated with to run as Python."""
    if placement == "installed":
        return Placement(_installed_twin(script), plain, tg.trace)
    decorator = getattr(installed_module("third_party_decorators", PACKAGE), DECORATORS[placement])
    script = _leaving_the_compiled_path(script) if placement == "plain path" else script
    return Placement(script, _behind(decorator, plain), _behind(decorator, tg.trace))


def _leaving_the_compiled_path(script: Callable[..., Any]) -> Callable[..., Any]:
    """Calls that run as plain Python say so once; here that is what is meant, also of transforms in the program."""

    @functools.wraps(script)
    def quietly(trace: Decorator) -> Iterator[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tg.PerformanceWarning)
            yield from script(trace)

    return quietly


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tracegrad-placements-")


@functools.cache
def installed_module(name: str, text: str) -> types.ModuleType:
    """The module that `text` is as a module of an installed package, imported once."""
    package = Path(_folder().name) / "site-packages" / "third_party"
    package.mkdir(parents=True, exist_ok=True)
    path = package / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"third_party.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _installed_twin(script: Callable[..., Any]) -> Callable[..., Any]:
    """The program of the same name in the installed copy of its module."""
    module = sys.modules[script.__module__]
    twin = installed_module(module.__name__.rpartition(".")[2], inspect.getsource(module))
    return getattr(twin, script.__name__).script  # type: ignore[no-any-return]


def _behind(decorator: Decorator, outer: Decorator) -> Decorator:
    """`outer` of what the decorator makes of a function."""

    def decorate(function: Any = None, **options: Any) -> Any:
        if function is None:
            return functools.partial(decorate, **options)
        return outer(decorator(function), **options)

    return decorate
