"""State that is read by calls, and how it is read again at each call: the environment, context variables, settings."""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.quiet import handling
from tracegrad.trace.builder import current_trace
from tracegrad.trace.garbage import thresholds
from tracegrad.trace.sources import Fixed, Item
from tracegrad.trace.state import Called, Context

__all__ = ["READERS", "ContextVariable", "Environment", "Modules", "of_settings", "reader"]

_UNSET = Context.UNSET


def _world() -> Any:
    """The world of the trace under way, if there is one."""
    trace = current_trace()
    return trace.world if trace is not None and trace.world.open else None


def _outside(what: str) -> UnsupportedError:
    text = f"{what} in a traced function would be done once, while it is traced; do it outside"
    return UnsupportedError(located(text))


class Modules(Mapping[str, Any]):
    """`sys.modules` in traced code."""

    def __getitem__(self, name: str) -> Any:
        world = _world()
        if world is None:
            return sys.modules[name]
        source = Item(Fixed(sys.modules, "sys.modules"), name)
        if name not in sys.modules:
            world.assume(source, "absent", None)
            raise KeyError(name)
        return world.translate(sys.modules[name], source)

    def __iter__(self) -> Iterator[str]:
        return iter(list(sys.modules))

    def __len__(self) -> int:
        return len(sys.modules)


def _held() -> Any:
    """What `os.environ` has in the encoding of the system."""
    return vars(os.environ)["_data"]


class Environment(Mapping[str, str]):
    """`os.environ` in traced code."""

    def __getitem__(self, name: str) -> str:
        world = _world()
        if world is not None:
            held, key = _held(), os.environ.encodekey(name)
            present = key in held
            world.assume(
                Item(Fixed(held, "os.environ"), key), "equals" if present else "absent", held[key] if present else None
            )
        return os.environ[name]

    def __iter__(self) -> Iterator[str]:
        world = _world()
        if world is not None:
            held = _held()
            world.assume(Fixed(held, "os.environ"), "keys", (dict, tuple(held)))
        return iter(list(os.environ))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> dict[str, str]:
        """The variables as a dict."""
        return dict(self)

    def __setitem__(self, name: str, value: str) -> None:
        raise _outside("a change of os.environ")

    def _refused(self, *_: Any, **__: Any) -> None:
        raise _outside("a change of os.environ")

    __delitem__ = pop = popitem = update = setdefault = clear = __ior__ = _refused

    def __repr__(self) -> str:
        return repr(os.environ)


_ENVIRONMENT = Environment()


class ContextVariable:
    """A `contextvars.ContextVar` in traced code."""

    __slots__ = ("_real",)

    def __init__(self, real: Any):
        self._real = real

    @property
    def name(self) -> str:
        """The name of the variable."""
        return str(self._real.name)

    def get(self, *default: Any) -> Any:
        """Its value in the context of the call."""
        world, source = _world(), Context(self._real, self._real.name)
        if world is None:
            return self._real.get(*default)
        found = self._real.get(_UNSET)
        if found is not _UNSET:
            return world.translate(found, source)
        world.assume(source, "absent", None)
        return self._real.get(*default)

    def set(self, value: Any) -> Any:
        raise _outside(f"setting the context variable {self._real.name}")

    def reset(self, token: Any) -> Any:
        raise _outside(f"setting the context variable {self._real.name}")

    def __repr__(self) -> str:
        return repr(self._real)


# -- functions whose answer can be asked for again ----------------------------------------------------
def _getenv(key: str, default: Any = None) -> Any:
    return _ENVIRONMENT.get(key, default)


def _geterr() -> Any:
    world = _world()
    if world is not None:
        world.assume(Called(handling, ()), "equals", handling())
    return np.geterr()


def reader(real: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose answer is a guard: it is called again at each call."""

    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        world = _world()
        if world is None or kwargs or not all(isinstance(x, str | int | bytes | os.PathLike) for x in args):
            return real(*args, **kwargs)
        source = Called(real, args)
        try:
            answer = real(*args)
        except OSError:
            world.assume(source, "absent", None)
            raise
        return world.translate(answer, source)

    return call


# -- what the functions and objects of a module read -------------------------------------------------------
def _decimals() -> Any:
    """What decides how Decimals are computed with, in the context of the call."""
    now: Any = sys.modules["decimal"].getcontext()
    traps = tuple([(signal.__name__, on) for signal, on in now.traps.items()])
    return now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, traps


_SETTINGS: dict[Any, Callable[[], Any]] = {"decimal": _decimals}
_CONTEXT = ("getcontext", "setcontext")


def of_settings(world: Any, x: Any) -> Any:
    """Guard the settings of the module that a function, a class or an object of a class is of. What stands for one that
    hands these out to be changed, in a way that no trace sees; None for all others."""
    read = _SETTINGS.get(getattr(x, "__module__", None))
    if read is None or world.once:
        return None
    if getattr(x, "__name__", "") in _CONTEXT:
        return functools.wraps(x)(functools.partial(_hands_out, world, x))
    world.assume(Called(read, ()), "equals", read())
    return None


def _hands_out(world: Any, real: Any, *args: Any) -> Any:
    if not world.open:
        return real(*args)
    text = f"decimal.{real.__name__} hands out settings, which may be changed unseen; use decimal.localcontext"
    raise world.builder.gives_up(text)


_ASKED = (
    os.getcwd, os.getpid, os.path.exists, os.path.isfile, os.path.isdir, os.path.getsize, os.path.getmtime, os.listdir,
    os.cpu_count, sys.getrecursionlimit, sys.getswitchinterval, threading.get_ident, threading.active_count,
    threading.current_thread, threading.main_thread, gc.isenabled, np.geterrcall, np.getbufsize, np.get_printoptions,
)  # fmt: skip

# By the identity of what they replace.
READERS: dict[int, Any] = {
    **{id(f): reader(f) for f in _ASKED},
    id(os.getenv): functools.wraps(os.getenv)(_getenv),
    id(np.geterr): functools.wraps(np.geterr)(_geterr),
    id(os.environ): _ENVIRONMENT,
    id(gc.get_threshold): reader(thresholds),
}
