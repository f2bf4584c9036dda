"""Guard ambient state that calls read: the environment, context variables, and settings."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.builder.gc_pause import thresholds
from tracegrad.trace.proxies.opaque_state import ObjectState, UnreadableState
from tracegrad.trace.sources.sources import Fixed, Item
from tracegrad.trace.sources.state_sources import Context, FunctionResult
from tracegrad.utils.errstate import handling

_UNSET = Context.UNSET


def _world() -> Any:
    """The world of the current trace, if there is one."""
    trace = current_trace()
    return trace.world if trace is not None and trace.world.open else None


def _outside(action: str) -> UnsupportedError:
    text = f"{action} in a traced function would be done once, while it is traced; do it outside"
    return UnsupportedError(located(text))


class Modules(Mapping[str, Any]):
    """Proxy of `sys.modules`."""

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
    """The variables of `os.environ` in the system's encoding."""
    return vars(os.environ)["_data"]


class Environment(Mapping[str, str]):
    """Proxy of `os.environ`."""

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

    def _refused(self, *_: object, **__: object) -> None:
        raise _outside("a change of os.environ")

    __delitem__ = pop = popitem = update = setdefault = clear = __ior__ = _refused

    def __repr__(self) -> str:
        return repr(os.environ)


_ENVIRONMENT = Environment()


class ContextVariable:
    """Proxy of a `contextvars.ContextVar`."""

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
        result = self._real.get(_UNSET)
        if result is not _UNSET:
            return world.translate(result, source)
        world.assume(source, "absent", None)
        return self._real.get(*default)

    def set(self, value: Any) -> Any:
        raise _outside(f"setting the context variable {self._real.name}")

    def reset(self, token: Any) -> Any:
        raise _outside(f"setting the context variable {self._real.name}")

    def __repr__(self) -> str:
        return repr(self._real)


# -- functions that each call can evaluate again ------------------------------------------------------
def _getenv(key: str, default: object = None) -> object:
    return _ENVIRONMENT.get(key, default)


def _geterr() -> Any:
    world = _world()
    if world is not None:
        world.assume(FunctionResult(handling, ()), "equals", handling())
    return np.geterr()


def _repeatable_call(
    world: Any, real: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Callable[..., Any], Any] | None:
    """The function to call again at each call, and its key: paths are texts, and keywords are part of the function.
    None if it is unknown, and called once."""
    args_key = tuple([os.fspath(x) if isinstance(x, os.PathLike) else x for x in args])
    if not all(map(_is_fixed, (*args_key, *kwargs.values()))):
        if world.once:
            return None
        description = f"the answer of {real.__name__} to what may change is to be read at each call"
        raise world.builder.abort(f"{description}; call it outside and pass the result")
    if kwargs:
        real = functools.wraps(real)(functools.partial(real, **kwargs))
    return real, args_key


def _is_fixed(x: object) -> bool:
    """Whether an argument is a constant that identifies the call."""
    return all(map(_is_fixed, x)) if type(x) is tuple else issubclass(type(x), _FIXED)  # isinstance lets tracers pass


_FIXED = (str, int, float, bytes, type(None), type, types.ModuleType)
# The number of parts above which a result is compared as a whole.
_MAX_ITEMS = 4


def _guarded_result(world: Any, result: Any, source: FunctionResult) -> Any:
    """The result that each call compares. A result with several parts is rebuilt each time, and compared as a whole."""
    if type(result) in (tuple, list, dict, set) and len(result) > _MAX_ITEMS:
        with contextlib.suppress(UnreadableState):
            world.assume(source, "state", ObjectState(result, compare=True).key)
            return result
    return world.translate(result, source)


def reader(real: Callable[..., Any]) -> Callable[..., object]:
    """A function whose result is a guard: each call evaluates it again."""

    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        world = _world()
        if world is None:
            return real(*args, **kwargs)
        repeatable = _repeatable_call(world, real, args, kwargs)
        if repeatable is None:
            return real(*args, **kwargs)
        function, call_args = repeatable
        source = FunctionResult(function, call_args)
        try:
            result = function(*call_args)
        except OSError:
            world.assume(source, "absent", None)
            raise
        except Exception as error:
            world.natives.raises_aside(real.__name__, error)
            raise
        return _guarded_result(world, result, source)

    return call


# -- settings that the functions and objects of a module read ----------------------------------------------
def _decimals() -> object:
    """The context settings that Decimal arithmetic depends on."""
    now: Any = sys.modules["decimal"].getcontext()
    traps = tuple([(signal.__name__, on) for signal, on in now.traps.items()])
    return now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, traps


def _time_zone() -> object:
    """The settings that the local time of the process depends on."""
    return time.tzname, time.timezone, _held().get(_TZ)


_TZ = os.environ.encodekey("TZ")
_SETTINGS: dict[Any, Callable[[], Any]] = {"decimal": _decimals, "datetime": _time_zone}
_CONTEXT = ("getcontext", "setcontext")


def of_settings(world: Any, x: Any) -> Any:
    """Guard the settings of the module that a function, a class or an instance belongs to. Returns a stand-in for a
    function that hands out mutable settings, which no trace could see change; None for all others."""
    module = x.__module__ if hasattr(x, "__module__") else type(x).__module__
    read = _SETTINGS.get(module.removeprefix("_")) if isinstance(module, str) else None  # or that of the C code
    if read is None or world.once:
        return None
    if getattr(x, "__name__", "") in _CONTEXT:
        return functools.wraps(x)(functools.partial(_hands_out, world, x))
    world.assume(FunctionResult(read, ()), "equals", read())
    return None


def _hands_out(world: Any, real: Any, *args: Any) -> object:
    if not world.open:
        return real(*args)
    text = f"decimal.{real.__name__} hands out settings, which may be changed unseen; use decimal.localcontext"
    raise world.builder.abort(text)


_REREAD = (
    os.getcwd,
    os.getpid,
    os.path.exists,
    os.path.isfile,
    os.path.isdir,
    os.path.getsize,
    os.path.getmtime,
    os.listdir,
    os.cpu_count,
    sys.getrecursionlimit,
    sys.getswitchinterval,
    threading.get_ident,
    threading.active_count,
    threading.current_thread,
    threading.main_thread,
    gc.isenabled,
    np.geterrcall,
    np.getbufsize,
    np.get_printoptions,
)

# The replacements, by the id of the replaced object.
READERS: dict[int, Any] = {
    **{id(f): reader(f) for f in _REREAD},
    id(os.getenv): functools.wraps(os.getenv)(_getenv),
    id(np.geterr): functools.wraps(np.geterr)(_geterr),
    id(os.environ): _ENVIRONMENT,
    id(gc.get_threshold): reader(thresholds),
}
