"""Convert list elements to rows of arrays and back: the schema (pytree structure) of an element."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.linear import full, reshape
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.values.container_proxies import LentDict, LentList, real_of
from tracegrad.trace.values.float_or_scalar import Either, as_either, plain
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer

__all__ = [
    "FORMS", "Form", "Instead", "arrays", "class_of", "fits", "form", "leaves", "made", "parts_of", "row", "starts",
    "together", "values",
]  # fmt: skip


class _Leaf(NamedTuple):
    """A leaf of an element's schema: its kind, and the dtype and shape of its value."""

    kind: str
    dtype: str
    shape: tuple[int, ...]


class _Parts(NamedTuple):
    """A container in an element's schema: its class, the keys of a dict, and the schemas of the parts."""

    cls: str
    keys: tuple[Any, ...]
    parts: tuple[Any, ...]


Form = Any  # _Leaf or _Parts; None if an element cannot be stored as rows
FORMS = _Leaf, _Parts
_KINDS: dict[Any, str] = {
    Tracer: "scalar", Number: "number", Either: "either", np.ndarray: "array", np.float64: "scalar",
}  # fmt: skip
_FLOATS = ("number", "scalar", "either")
_NO_ROWS = (bool, str, type(None))


def form(x: Any, classes: Collection[Any] = (tuple,)) -> Form:
    """The schema of an element whose containers are of these classes; None if it cannot be stored as rows."""
    cls = class_of(x)
    if cls in classes:
        if cls is dict and any(type(each) in _NO_ROWS for each in real_of(x).values()):
            return None  # checked first, because the trace depends on every item that is read
        parts = tuple([form(each, classes) for each in parts_of(x)])
        return _Parts(cls.__name__, tuple(x) if cls is dict else (), parts) if parts and None not in parts else None
    if isinstance(x, Tracer):
        x.join()
    if type(x) in (int, float):
        return _Leaf("number", "int64" if type(x) is int else "float64", ())
    if type(x) not in _KINDS or x.dtype.kind not in "fic":
        return None
    array = isinstance(x, np.ndarray) or (type(x) is Tracer and (x.shape or x.is_array))
    return _Leaf("array" if array else _KINDS[type(x)], x.dtype.name, tuple(x.shape))


def class_of(x: Any) -> type:
    """The class of an element; for a container proxy, the class of the real container."""
    cls = type(x)
    return list if cls is LentList else dict if cls is LentDict else cls


def parts_of(x: Any) -> list[Any]:
    """The parts of a list, a tuple or a dict; empty for other objects."""
    cls = class_of(x)
    return list(x.values()) if cls is dict else list(x) if cls in (list, tuple) else []


def together(forms: Iterable[Form]) -> Form:
    """The common schema of elements with these schemas; None if there is none."""
    result, *others = forms
    for each in others:
        result = _of_both(result, each)
    return result


def _of_both(x: Form, y: Form) -> Form:
    if x == y:
        return x
    if isinstance(x, _Leaf) and isinstance(y, _Leaf):
        floats = x.kind in _FLOATS and y.kind in _FLOATS and x.dtype == y.dtype == "float64"
        return _Leaf("either", "float64", ()) if floats else None
    if isinstance(x, _Parts) and isinstance(y, _Parts) and len(x.parts) == len(y.parts) and x[:2] == y[:2]:
        parts = tuple(map(_of_both, x.parts, y.parts))
        return None if None in parts else x._replace(parts=parts)
    return None


def fits(found: Form, known: Form) -> bool:
    """Whether an element of the first schema is also an element of the second."""
    return found is not None and _of_both(found, known) == known


def leaves(known: Form) -> list[_Leaf]:
    """The leaves of a schema, one per row array."""
    if isinstance(known, _Parts):
        return [x for each in known.parts for x in leaves(each)]
    return [known, _Leaf("boolean", "bool", ())] if known.kind == "either" else [known]


def values(builder: TraceBuilder, x: Any, known: Form) -> list[Any]:
    """The values to store in the rows of the leaves."""
    if isinstance(known, _Parts):
        return [value for part, each in zip(parts_of(x), known.parts) for value in values(builder, part, each)]
    if known.kind == "either":
        either = as_either(x, builder)
        return [plain(either), either.python]
    if isinstance(x, Tracer):
        return [x]
    return [builder.lift(x) if isinstance(x, np.ndarray) else full(shape=(), value=x, dtype=known.dtype)]


def arrays(x: Any) -> list[Any]:
    """The traced arrays in an element."""
    if class_of(x) in (tuple, list, dict):
        return [part for each in parts_of(x) for part in arrays(each)]
    return [x] if type(x) is Tracer and (x.shape or x.is_array) else []


def made(builder: TraceBuilder, known: Form, found: Iterator[Any], shared: Callable[[Any], None]) -> Any:
    """Rebuild an element from the row values of `values`; `shared` is called with each array made."""
    if isinstance(known, _Parts):
        parts = [made(builder, each, found, shared) for each in known.parts]
        return dict(zip(known.keys, parts)) if known.cls == "dict" else tuple(parts) if known.cls == "tuple" else parts
    node = next(found).node
    if known.kind == "number":
        return Number(builder, node)
    if known.kind == "either":
        return Either(builder, node, next(found))
    x = Tracer(builder, node)
    if known.kind == "array":
        x.is_array = True
        shared(x)
    return x


# -- stand-ins in local variables --------------------------------------------------------------------
class Instead:
    """Base of list stand-ins in variables. An unsupported use restarts the trace with a `varying` key, by which the
    loop is recorded iteration by iteration."""

    __slots__ = ("_builder", "_iterations")

    def __init__(self, builder: TraceBuilder, iterations: Hashable):
        self._builder, self._iterations = builder, iterations

    def misused(self, *_: Any, **__: Any) -> NoReturn:
        """Restart the trace, because of an unsupported use."""
        raise self._builder.restarts(self._iterations)

    def __getattr__(self, name: str) -> NoReturn:
        self.misused()

    def _share(self, x: Any) -> None:
        """Record that the list holds the array object itself: a write to it or to a base of it would be visible there,
        and ends the trace."""
        listed, entry = self._builder.listed, self._iterations
        listed.setdefault(id(x), (x, entry))
        while x.origin is not None:
            x = x.origin.base
            listed.setdefault(id(x), (x, entry))


_OF_LISTS = (
    "len", "iter", "getitem", "setitem", "delitem", "contains", "reversed", "bool", "repr", "str", "format", "hash",
    "add", "radd", "iadd", "mul", "rmul", "imul", "eq", "ne", "lt", "le", "gt", "ge", "copy", "deepcopy",
)  # fmt: skip
for _name in _OF_LISTS:
    setattr(Instead, f"__{_name}__", Instead.misused)


# -- rows ------------------------------------------------------------------------------------------
def starts(rows: Any, at: Any) -> list[Any]:
    """The start position of a row."""
    zero = full(shape=(), value=0, dtype="int64")
    return [full(shape=(), value=at, dtype="int64") if type(at) is int else at, *[zero] * (len(rows.shape) - 1)]


def row(rows: Any, at: Any) -> Any:
    """The row at a position."""
    n = rows.shape
    result = dynamic_slice(rows, *starts(rows, at), sizes=(1, *n[1:]), step=(1,) * len(n))
    return reshape(result, shape=n[1:])
