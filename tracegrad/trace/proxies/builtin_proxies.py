"""Proxies of built-in functions that would not recognize traced values (`type`, `isinstance`, `id` and others)."""

from __future__ import annotations

import functools
import heapq
import inspect
import operator
import sys
import types
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.cpython.frames import frame_at, local_variables
from tracegrad.errors import located, numpys
from tracegrad.ir import GraphValue
from tracegrad.ir.builder import recorder
from tracegrad.numpy_api.creation import empty
from tracegrad.numpy_api.faces import REWRITTEN, agreed_result, has, itself, represented_type
from tracegrad.numpy_api.operands import peer_of
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import Carrier, DispatchLevel
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.loops.element_schema import Instead
from tracegrad.trace.loops.range_counter import before_output
from tracegrad.trace.random.rejected_reads import ClassProxy
from tracegrad.trace.rewriting.constant_identity import is_same
from tracegrad.trace.sources.class_patching import genuine, hook
from tracegrad.trace.sources.code_origin import is_library_module
from tracegrad.trace.sources.consumed_iterators import IteratorProxy
from tracegrad.trace.sources.sources import Attribute
from tracegrad.trace.sources.state_sources import FunctionResult
from tracegrad.trace.values.array_creation import making
from tracegrad.trace.values.container_proxies import Shadowed, real_of, touching
from tracegrad.trace.values.differentiated_keys import hash_of
from tracegrad.trace.values.text_conversions import EVALUATED
from tracegrad.trace.values.tracer import Tracer

_get = object.__getattribute__
_OF_CLASSES = (types.MethodDescriptorType, types.WrapperDescriptorType)


def unshadowed(x: Any) -> Any:
    """The real object of a shadow, or the class behind a class stand-in; other objects unchanged."""
    if type(x) in (ClassProxy, IteratorProxy):
        return x.real
    return _get(x, "_real") if isinstance(type(x), type) and issubclass(type(x), Shadowed) else real_of(x)


def _isinstance(x: object, classes: tuple[type, ...] | type) -> bool:
    """`isinstance`, which treats traced values as the values they stand for."""
    if not _is_traced(x):
        return isinstance(x, classes) or _not_of(type(unshadowed(x)), classes)
    if type(classes) is tuple:
        return any([_isinstance(x, each) for each in classes])  # noqa: C419 (no frame of its own)
    meta: Any = type(classes)
    decides_itself = getattr(meta, "takes_traced", False) or hook(meta, "__instancecheck__") is not None
    if decides_itself:
        return bool(meta.__instancecheck__(classes, x))
    return bool(agreed_result(x, lambda cls: _issubclass(cls, classes)))


def _issubclass(cls: Any, classes: Any) -> bool:
    """`issubclass`, guarded for abstract base classes, whose result may change between calls."""
    return issubclass(cls, classes) or _not_of(cls, classes)


def _not_of(cls: object, classes: object) -> bool:
    """Return False and guard it: a class may later be registered with an abstract base class."""
    world: Any = getattr(recorder(), "world", None)
    if world is not None and world.open and isinstance(cls, type):
        for base in classes if type(classes) is tuple else getattr(classes, "__args__", (classes,)):
            if type(base) is tuple:
                _not_of(cls, base)
            else:
                world.natives.is_none_of(cls, base)
    return False


def _is_traced(x: Any) -> bool:
    if issubclass(type(x), Instead):
        x.misused()
    return isinstance(x, GraphValue) or (isinstance(x, Carrier) and x.level is DispatchLevel.SPAN)


def _array(
    shape: Any, dtype: Any = float, buffer: Any = None, offset: Any = 0, strides: Any = None, order: Any = None
) -> object:
    """`np.ndarray` as a function: an uninitialized array, or an array in the memory of a buffer."""
    if strides is None and buffer is None:
        return _EMPTY(shape, dtype, order or "C")
    if peer_of(shape, buffer, offset, strides) is not None:
        raise refuse("np.ndarray of the memory of an array", "use np.lib.stride_tricks.as_strided, or x.view(dtype)")
    return np.ndarray(shape, dtype, buffer, offset, strides, order)


def _unbound(method: Any) -> object:
    """A method of the array class as a function, which also takes traced arrays."""
    name: str = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        traced = _is_traced(self) and represented_type(self) is np.ndarray
        return getattr(self, name)(*args, **kwargs) if traced else method(self, *args, **kwargs)

    return call


_METHODS = {
    name: _unbound(method)
    for name, method in vars(np.ndarray).items()
    if isinstance(method, _OF_CLASSES) and getattr(Tracer, name, None) is not getattr(object, name, None)
}
_EMPTY: Any = making(np.empty, empty)
# The stand-in of `np.ndarray` in traced code.
ARRAYS: Any = ClassProxy("ndarray", (), {"real": np.ndarray, "other": {**_METHODS, "__call__": _array}})
REWRITTEN[np.ndarray] = ARRAYS


class _TypeMeta(type):
    """Metaclass of the `type` proxy: a traced value has the type of the value it stands for."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and (cls is _TypeProxy or _is_traced(args[0])):
            result = _class_of_traced(args[0]) if _is_traced(args[0]) else _class_of(args[0])
            return ARRAYS if result is np.ndarray else result
        return type(*args, **kwargs) if cls is _TypeProxy else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, type) if cls is _TypeProxy else super().__instancecheck__(x)


def _class_of_traced(x: object) -> object:
    """The class that a traced value stands for; the trace notes the read."""
    trace: Any = current_trace()
    if trace is not None and not trace.world.class_read:
        trace.world.class_read = located("type() is asked for the class of a value, ask isinstance()")
    return agreed_result(x, itself)


def _class_of(x: object) -> Any:
    """The class of an untraced object. Traced code may instantiate the class of a shadow."""
    result = numpys(type(genuine(unshadowed(x))))
    if isinstance(type(x), type) and issubclass(type(x), Shadowed):
        _get(x, "_world").natives.note(result)
        _get(x, "_world").assume(Attribute(_get(x, "_source"), "__class__"), "is", result)
    return result


class _TypeProxy(type, metaclass=_TypeMeta):
    """The proxy of `type`."""


def _print(*values: Any, file: Any = None, **options: Any) -> None:
    """`print`: shows the values of the call being traced on the console; other files, and a replaced `sys.stdout`, get
    the values of each call."""
    before_output()
    trace: Any = current_trace()
    streams = (sys.stdout, sys.stderr) if trace is None else trace.world.streams
    if (sys.stdout if file is None else file) in streams:
        values = tuple([tree.map(_shown, x) for x in values])
    if trace is not None and trace.world.open and (file is None or file is sys.stdout):
        trace.world.printed.add(*values, **options)
    else:
        print(*values, file=file, **options)


def _shown(x: object) -> object:
    return x.shown() if isinstance(x, Tracer) else x


def _hasattr(x: object, name: str) -> bool:
    """`hasattr`, for the values that traced values stand for."""
    return has(x, name) if _is_traced(x) else hasattr(x, name)


def _getattr(x: object, name: str, *default: object) -> object:
    """`getattr`, for the values that traced values stand for."""
    if name == "__class__" and _is_traced(x):
        return _TypeProxy(x)
    if _is_traced(x) and not has(x, name):
        if default:
            return default[0]
        raise AttributeError(f"'{represented_type(x).__name__}' object has no attribute {name!r}")
    if _is_traced(x) and not hasattr(type(x), name) and getattr(x, name, _ABSENT) is _ABSENT:
        raise refuse(f"ndarray.{name}")
    return _vars(x) if name == "__dict__" and isinstance(x, type) else getattr(x, name, *default)


def _dir(*args: object) -> list[str]:
    """`dir`, refused for user objects, classes and modules, because no guard can repeat the listing."""
    if not args:
        return sorted(local_variables(frame_at(1)))
    world: Any = getattr(recorder(), "world", None)
    of_users = isinstance(type(args[0]), type) and issubclass(type(args[0]), Shadowed | type | types.ModuleType)
    of_users = of_users and not (isinstance(args[0], types.ModuleType) and is_library_module(args[0]))
    if of_users and world is not None and world.open:
        raise world.builder.abort("dir(x) asks for all names that an object, a class or a module has")
    return dir(*args)


def _vars(*args: object) -> object:
    """`vars`, which guards all attributes of a listed class."""
    if not args:
        return local_variables(frame_at(1))
    world: Any = getattr(recorder(), "world", None)
    if world is not None and world.open and isinstance(args[0], type):
        return world.natives.list_all_of(args[0])
    return vars(*args)


@functools.wraps(id)
def _id(x: object, /) -> int:
    """`id`, of the outside object that a proxy stands for, guarded by identity."""
    trace: Any = current_trace()
    outside = trace is None or not trace.world.open or isinstance(x, Tracer)
    known = None if outside else trace.world.containers.real_and_source(x)
    if known is None:
        return id(x)
    real, source = known
    trace.world.assume(source, "is", real)
    return id(real)


BUILTINS: dict[str, Any] = {
    **EVALUATED,
    "dir": _dir,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "hash": hash_of,
    "id": _id,
    "isinstance": _isinstance,
    "issubclass": _issubclass,
    "print": _print,
    "type": _TypeProxy,
    "vars": _vars,
}


@functools.wraps(np.isscalar)
def _isscalar(element: object) -> bool:
    return represented_type(element) is not np.ndarray if _is_traced(element) else np.isscalar(element)


def _boolean(x: object) -> object:
    return bool(x) if isinstance(x, Tracer) and x.weak and x.dtype.kind == "b" else x


def _compare(*xs: object) -> None:
    for x in xs:
        if isinstance(x, Tracer) and x.builder.open:
            x.builder.world.compares()


@functools.wraps(operator.is_)
def _is(a: object, b: object) -> bool:
    _compare(a, b)
    return is_same(_boolean(a), _boolean(b))


@functools.wraps(operator.is_not)
def _is_not(a: object, b: object) -> bool:
    _compare(a, b)
    return not is_same(_boolean(a), _boolean(b))


def _static(x: object, name: str) -> Any:
    return inspect.getattr_static(x, name, _ABSENT)


@functools.wraps(inspect.getattr_static)
def _getattr_static(obj: object, attr: str, *default: object) -> object:
    """`inspect.getattr_static`, of the object that a shadow stands for."""
    real, world = unshadowed(obj), getattr(recorder(), "world", None)
    if world is None or not world.open or (real is obj and not isinstance(obj, type)):
        return inspect.getattr_static(real, attr, *default)
    result, source = _static(real, attr), FunctionResult(_static, (real, attr))
    if result is _ABSENT or real is obj:
        world.assume(source, "is", result)
        return inspect.getattr_static(real, attr, *default)
    return world.translate(result, source)


_ABSENT = object()
_READ_IN_C = (heapq.heapify, heapq.heappop, heapq.heappush, heapq.heappushpop, heapq.heapreplace, operator.concat)
# The replacements, by the id of the replaced object.
OTHERS: dict[int, Any] = {
    id(np.isscalar): _isscalar,
    id(np.ndarray): ARRAYS,
    **{id(vars(np.ndarray)[name]): method for name, method in _METHODS.items()},
    id(inspect.getattr_static): _getattr_static,
    id(operator.is_): _is,
    id(operator.is_not): _is_not,
    **{id(f): touching(f) for f in _READ_IN_C},
}
