"""Convert list elements to rows of arrays and back: the schema (pytree structure) of an element."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np

from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.linear import full, reshape
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import ContainerSchema, ElementSchema, Fact, LeafSchema
from tracegrad.trace.values.container_proxies import DictProxy, ListProxy, real_of
from tracegrad.trace.values.float_or_scalar import Either, as_either, plain
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer

_KINDS: dict[Any, str] = {
    Tracer: "scalar",
    Number: "number",
    Either: "either",
    np.ndarray: "array",
    np.float64: "scalar",
}
_FLOATS = ("number", "scalar", "either")
_NOT_STORED = (bool, str, type(None))


def form(x: Any, classes: Collection[Any] = (tuple,)) -> ElementSchema | None:
    """The schema of an element whose containers are of these classes; None if it cannot be stored as rows."""
    cls = class_of(x)
    if cls in classes:
        if cls is dict and any(type(each) in _NOT_STORED for each in real_of(x).values()):
            return None  # checked first, because the trace depends on every item that is read
        parts = [form(each, classes) for each in children_of(x)]
        children = tuple([each for each in parts if each is not None])
        is_stored = bool(parts) and len(children) == len(parts)
        return ContainerSchema(cls.__name__, tuple(x) if cls is dict else (), children) if is_stored else None
    if isinstance(x, Tracer):
        x.join()
    if type(x) in (int, float):
        return LeafSchema("number", "int64" if type(x) is int else "float64", ())
    if type(x) not in _KINDS or x.dtype.kind not in "fic":
        return None
    array = isinstance(x, np.ndarray) or (type(x) is Tracer and (x.shape or x.is_array))
    return LeafSchema("array" if array else _KINDS[type(x)], x.dtype.name, tuple(x.shape))


def class_of(x: object) -> type:
    """The class of an element; for a container proxy, the class of the real container."""
    cls = type(x)
    return list if cls is ListProxy else dict if cls is DictProxy else cls


def children_of(x: Any) -> list[Any]:
    """The parts of a list, a tuple or a dict; empty for other objects."""
    cls = class_of(x)
    return list(x.values()) if cls is dict else list(x) if cls in (list, tuple) else []


def together(forms: Iterable[ElementSchema | None]) -> ElementSchema | None:
    """The common schema of elements with these schemas; None if there is none."""
    result, *others = forms
    for each in others:
        result = _of_both(result, each)
    return result


def _of_both(x: ElementSchema | None, y: ElementSchema | None) -> ElementSchema | None:
    if x == y:
        return x
    if isinstance(x, LeafSchema) and isinstance(y, LeafSchema):
        floats = x.kind in _FLOATS and y.kind in _FLOATS and x.dtype == y.dtype == "float64"
        return LeafSchema("either", "float64", ()) if floats else None
    if (
        isinstance(x, ContainerSchema)
        and isinstance(y, ContainerSchema)
        and len(x.children) == len(y.children)
        and x[:2] == y[:2]
    ):
        children = tuple([each for each in map(_of_both, x.children, y.children) if each is not None])
        return x._replace(children=children) if len(children) == len(x.children) else None
    return None


def fits(schema: ElementSchema | None, known: ElementSchema) -> bool:
    """Whether an element of the first schema is also an element of the second."""
    return schema is not None and _of_both(schema, known) == known


def leaf_schemas(known: ElementSchema) -> list[LeafSchema]:
    """The leaves of a schema, one per row array."""
    if isinstance(known, ContainerSchema):
        return [x for each in known.children for x in leaf_schemas(each)]
    return [known, LeafSchema("boolean", "bool", ())] if known.kind == "either" else [known]


def values(builder: TraceBuilder, x: Any, known: ElementSchema) -> list[Any]:
    """The values to store in the rows of the leaves."""
    if isinstance(known, ContainerSchema):
        return [value for child, each in zip(children_of(x), known.children) for value in values(builder, child, each)]
    if known.kind == "either":
        either = as_either(x, builder)
        return [plain(either), either.python]
    if isinstance(x, Tracer):
        return [x]
    return [builder.lift(x) if isinstance(x, np.ndarray) else full(shape=(), value=x, dtype=known.dtype)]


def arrays(x: Any) -> list[Any]:
    """The traced arrays in an element."""
    if class_of(x) in (tuple, list, dict):
        return [array for each in children_of(x) for array in arrays(each)]
    return [x] if type(x) is Tracer and (x.shape or x.is_array) else []


def rebuilt(
    builder: TraceBuilder, known: ElementSchema, values_iter: Iterator[Any], shared: Callable[[Any], None]
) -> Any:
    """Rebuild an element from the row values of `values`; `shared` is called with each array made."""
    if isinstance(known, ContainerSchema):
        children = [rebuilt(builder, each, values_iter, shared) for each in known.children]
        return (
            dict(zip(known.keys, children))
            if known.cls == "dict"
            else tuple(children)
            if known.cls == "tuple"
            else children
        )
    node = next(values_iter).node
    if known.kind == "number":
        return Number(builder, node)
    if known.kind == "either":
        return Either(builder, node, next(values_iter))
    x = Tracer(builder, node)
    if known.kind == "array":
        x.is_array = True
        shared(x)
    return x


# -- stand-ins in local variables --------------------------------------------------------------------
class Instead:
    """Base of list stand-ins in variables. An unsupported use restarts the trace with a fact, by which the
    loop is recorded iteration by iteration."""

    __slots__ = ("_builder", "_iterations")

    def __init__(self, builder: TraceBuilder, iterations: Fact):
        self._builder, self._iterations = builder, iterations

    def misused(self, *_: Any, **__: Any) -> NoReturn:
        """Restart the trace, because of an unsupported use."""
        raise self._builder.restarts(self._iterations)

    def __getattr__(self, name: str) -> NoReturn:
        self.misused()

    def _share(self, x: Any) -> None:
        """Record that the list holds the array object itself: a write to it or to a base of it would be visible there,
        and ends the trace."""
        listed, entry = self._builder.loops.listed, self._iterations
        listed.setdefault(id(x), (x, entry))
        while x.origin is not None:
            x = x.origin.base
            listed.setdefault(id(x), (x, entry))


_OF_LISTS = [
    "len",
    "iter",
    "getitem",
    "setitem",
    "delitem",
    "contains",
    "reversed",
    "bool",
    "repr",
    "str",
    "format",
    "hash",
    "add",
    "radd",
    "iadd",
    "mul",
    "rmul",
    "imul",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "copy",
    "deepcopy",
]
for _name in _OF_LISTS:
    setattr(Instead, f"__{_name}__", Instead.misused)


# -- rows ------------------------------------------------------------------------------------------
def starts(column: Any, at: Any) -> list[Any]:
    """The start position of a row."""
    zero = full(shape=(), value=0, dtype="int64")
    return [full(shape=(), value=at, dtype="int64") if type(at) is int else at, *[zero] * (len(column.shape) - 1)]


def row_at(column: Any, at: Any) -> Any:
    """The row at a position."""
    n = column.shape
    result = dynamic_slice(column, *starts(column, at), sizes=(1, *n[1:]), step=(1,) * len(n))
    return reshape(result, shape=n[1:])
