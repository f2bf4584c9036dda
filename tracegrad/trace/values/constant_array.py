"""Fold constants at trace time: arrays whose elements are known, such as index tables, grids and weights.

No argument and no captured variable takes part in a constant array, so NumPy computes it during tracing. A
`ConstantArray` is a tracer that has an ndarray. Operations on hosts alone, including in-place updates and views,
operate on their ndarrays. If a host meets a traced value, or is used in a way an ndarray does not support, it *joins*
the graph: it becomes a plain `Tracer`, and its present elements are a constant of the program. All arrays that share
its memory join too, as views.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, supported
from tracegrad.errors import DTypeError, UnsupportedError
from tracegrad.ir import GraphNode
from tracegrad.ir.builder import node_of
from tracegrad.numpy_api.creation import eye
from tracegrad.numpy_api.registry import dispatch_function, dispatch_ufunc
from tracegrad.ops import Carrier, Op
from tracegrad.ops.core.memory_order import is_row_major
from tracegrad.ops.elementwise.table import multiply
from tracegrad.ops.shape.linear import full
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import TraceFact
from tracegrad.trace.values.python_arithmetic import BINARY, UNARY
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.values.views import set_shape
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


MAX_CONSTANT_SIZE = TUNING.tracing.max_constant
MAX_FROM_A_LINE = TUNING.tracing.max_constants_of_line


class Constants:
    """The constants of one trace that have joined the graph."""

    def __init__(self) -> None:
        self._nodes: dict[Any, GraphNode] = {}
        self._lines: dict[str, int] = {}

    def node(self, builder: TraceBuilder, array: NDArray) -> GraphNode:
        """The node of a constant: an input with the same array at each call, or a fill."""
        text = array.tobytes()
        if array.size and array.dtype.kind in "biuf" and text == text[: array.itemsize] * array.size:
            return node_of(full(shape=array.shape, value=array.flat[0].item(), dtype=array.dtype.name))
        if (identity := _multiple_of_identity(array)) is not None:
            return identity
        key = (array.dtype, array.shape, text)
        result = self._nodes.get(key)
        if result is None:
            line = builder.locate()
            count = self._lines[line] = self._lines.get(line, 0) + 1
            if count > MAX_FROM_A_LINE:
                raise builder.restarts(TraceFact.COMPUTED, "another constant is met in each iteration of a loop")
            result = self._nodes[key] = builder.capture(np.array(array, order="C")).node
        return result


def _multiple_of_identity(array: NDArray) -> GraphNode | None:
    """A multiple of the identity, in the form that passes recognize; None for other arrays."""
    n = len(array) if array.ndim else 0
    if array.shape != (n, n) or n < 2 or array.dtype.kind not in "biuf" or np.count_nonzero(array) > n:
        return None
    number = array[0, 0]
    with np.errstate(all="ignore"):
        if array.tobytes() != (np.eye(n, dtype=array.dtype) * number).tobytes():
            return None
    result = eye(n, dtype=array.dtype)
    return node_of(result if number == 1 else multiply(result, number.item()))


class _ConstantState:
    """State of a `ConstantArray`: its ndarray; the node it was created as, or its base with a function that makes this
    view of another array; its views; and its last tracer in the graph, with the version of the array at that time."""

    __slots__ = ("again", "array", "changes", "children", "node", "parent", "tracer")

    def __init__(self, array: NDArray, node: GraphNode | None, parent: Any, again: Any):
        self.array, self.node, self.parent, self.again = array, node, parent, again
        self.children: list[Any] = []
        self.changes = 0
        self.tracer: tuple[int, Any] = -1, None


# Operators, and methods that return numbers or new arrays.
_READ = {*BINARY, *UNARY, *[name.replace("__", "__r", 1) for name in BINARY]} | {
    "__matmul__", "__rmatmul__", "__invert__", "__bool__", "__int__", "__float__", "__index__", "__contains__", "sum",
    "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin", "cumsum", "cumprod", "copy", "item",
    "tolist", "dot", "round", "clip", "argsort", "searchsorted", "nonzero", "take", "repeat", "trace", "ptp",
}  # fmt: skip
_PROPERTIES = {"T", "mT", "real", "imag"}
# The methods and properties of tracers that arrays of constants compute by NumPy.
_OF_TRACERS = {
    name: usual
    for name in sorted(set(dir(np.ndarray)) & set(dir(Tracer)) - ({*dir(object), "__iter__", "__len__"} - _READ))
    if not name.startswith("__array") and (callable(usual := getattr(Tracer, name)) or name in _PROPERTIES)
}
_TRACER_FIELDS = ("node", "layout_inputs", "frozen", "is_array", "origin", "outside", "stand_in", "starts", "views")


def _joined(name: str) -> Any:
    """A tracer attribute of an array, which joins the graph first."""

    def get(self: Any) -> Any:
        _join(self)
        return getattr(self, name)

    def assign(self: object, value: object) -> None:
        _join(self)
        setattr(self, name, value)

    return property(get, assign)


def _by_numpy(name: str, usual: Any) -> Any:
    """A method or property of tracers that NumPy computes for constants."""
    if isinstance(usual, property):
        real_getter: Any = getattr(np.ndarray, name).__get__
        traced: Any = usual.__get__
        write = getattr(np.ndarray, name).__set__

        def assign(self: ConstantArray, value: object) -> None:
            apply_to_constants(write, (self, value), {}, usual.__set__, self.builder, (self,))

        get = property(lambda self: apply_to_constants(real_getter, (self,), {}, traced, self.builder))
        return get.setter(assign) if usual.fset is not None else get

    def method(self: ConstantArray, *args: object, **kwargs: object) -> Any:
        return _done(name, self, *args, **kwargs)

    return wraps(usual)(method)


class ConstantArray(Tracer):
    """An array of the trace with known elements, until it joins the graph."""

    __slots__ = ()
    known: Any
    vars().update({name: _by_numpy(name, usual) for name, usual in _OF_TRACERS.items()})
    vars().update({name: _joined(name) for name in _TRACER_FIELDS if name != "is_array"})
    __hash__ = Tracer.__hash__

    def __init__(self, builder: TraceBuilder, array: Any, node: Any = None, parent: Any = None, again: Any = None):
        self.builder, self.is_array, self.known = builder, True, _ConstantState(array, node, parent, again)
        if parent is not None:
            children = parent.known.children
            if len(children) & (len(children) - 1) == 0:  # as in `Tracer._add_view`
                children[:] = [r for r in children if r() is not None]
            children.append(weakref.ref(self))

    @property
    def node(self) -> GraphNode:
        """The node of the present elements."""
        node: GraphNode = _as_tracer(self).node
        return node

    @node.setter
    def node(self, node: GraphNode) -> None:
        _join(self)
        self.node = node

    @property
    def aval(self) -> Aval:
        return self.builder.aval(self.known.array.shape, self.known.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.known.array.shape
        return shape

    @shape.setter
    def shape(self, shape: object) -> None:
        set_shape(self, shape)

    @property
    def dtype(self) -> Any:
        return self.known.array.dtype

    def concrete(self, query: str) -> NDArray:
        self.builder.require_open()
        result: NDArray = self.known.array.copy()
        return result

    def shown(self) -> Any:
        return self.known.array.copy()

    def _plain(self, query: str) -> Any:
        return self.known.array.copy()

    def __array__(self, dtype: Any = None, copy: object = None) -> Any:
        return np.array(self.concrete("the value"), dtype)

    def __getitem__(self, index: object) -> Any:
        if self.known is None:  # a bound method of an array that has joined since
            return Tracer.__getitem__(self, index)
        if type(index) in _INDEX_TYPES or (type(index) is tuple and _INDEX_TYPES.issuperset(map(type, index))):
            result = self.known.array[index]
            if type(result) is not np.ndarray:
                return result
        return _done("__getitem__", self, index)

    def __setitem__(self, index: object, value: object) -> None:
        kind, plain = type(value), type(index) in _INDEX_TYPES and self.known is not None
        plain = plain or (type(index) is tuple and _INDEX_TYPES.issuperset(map(type, index)))
        if plain and kind in _NUMBERS and self.builder.inner is None:
            self.known.array[index] = value
            _root(self).known.changes += 1
        elif plain and kind is Tracer:
            Tracer.__setitem__(self.join(), index, value)
        else:
            _done("__setitem__", self, index, value)

    def __array_ufunc__(self, ufunc: object, method: str, *inputs: Any, **kwargs: Any) -> object:
        def traced(*inputs: object, **kwargs: object) -> Any:
            return dispatch_ufunc(ufunc, method, inputs, kwargs)

        shares = [x for x in kwargs.get("out") or () if type(x) is ConstantArray] if method != "at" else inputs[:1]
        return apply_to_constants(getattr(ufunc, method), inputs, kwargs, traced, self.builder, tuple(shares))

    def __array_function__(self, func: object, types: object, args: object, kwargs: object) -> Any:
        return of_function(func, args, kwargs, self.builder)

    def __copy__(self) -> Any:
        return ConstantArray(self.builder, self.known.array.copy())

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return _as_tracer(self).bind(
            op, tuple([_as_tracer(x) if type(x) is ConstantArray else x for x in operands]), params
        )

    def join(self) -> Any:
        _join(self)
        return self


def of_function(function: Any, args: Any, kwargs: Any, builder: TraceBuilder) -> Any:
    """The result of a NumPy function for arguments with a `ConstantArray` among them."""

    def traced(*args: object, **kwargs: object) -> Any:
        return dispatch_function(function, args, kwargs)

    return apply_to_constants(function, args, kwargs, traced, builder, () if function in _READING else None)


# Functions that return new arrays, and no views.
_READING = {
    np.all, np.any, np.argmax, np.argmin, np.argsort, np.clip, np.column_stack, np.concatenate, np.convolve, np.cross,
    np.cumprod, np.cumsum, np.diff, np.dot, np.dstack, np.hstack, np.inner, np.interp, np.kron, np.linalg.cholesky,
    np.linalg.det, np.linalg.inv, np.linalg.norm, np.linalg.solve, np.max, np.mean, np.min, np.outer, np.prod,
    np.repeat, np.roll, np.searchsorted, np.sort, np.stack, np.std, np.sum, np.take, np.tensordot, np.tile, np.trace,
    np.var, np.vdot, np.vstack, np.where,
}  # fmt: skip


_INDEX_TYPES = frozenset({int, np.int64})
_NUMBERS = frozenset({int, float, bool, np.float64, np.int64, np.bool_})


# -- joining the graph ---------------------------------------------------------------------------------------------
def _root(x: Any) -> Any:
    """The base array of this memory."""
    while x.known.parent is not None:
        x = x.known.parent
    return x


def _as_tracer(x: Any) -> Any:
    """The present elements, as a plain tracer."""
    known, changes = x.known, _root(x).known.changes
    if known.tracer[0] != changes:
        x.builder.require_open()
        with x.builder.outside():
            result = None if known.parent is None else _view_of(x, _as_tracer)
            result = _as_root(x) if result is None else result
        result.frozen = "constants"  # not the array itself, which joins before an update
        known.tracer = changes, result
    return known.tracer[1]


def _as_root(x: Any) -> Any:
    """A plain tracer with these elements."""
    known, builder = x.known, x.builder
    node = known.node
    if node is None or (known.changes and builder.compute(node).tobytes() != known.array.tobytes()):
        node = builder.constant_arrays.node(builder, known.array)
    tracer = Tracer(builder, node)
    tracer.is_array = True
    if len(tracer.shape) > 1 and not is_row_major(known.array):
        tracer.stand_in = builder.memory.allocate(tracer.shape, tracer.dtype, known.array.strides)
    return tracer


def _view_of(x: Any, replace: Callable[[Any], Any]) -> Any:
    """This view of the tracer that `replace` returns for the base; None if traced arrays have no view of this kind."""
    try:
        view = x.known.again(replace)
    except UnsupportedError:
        return None
    if type(view) is Tracer and view is replace(x.known.parent):
        view = view[...]
    return view if type(view) is Tracer and view.origin is not None and view.shape == x.known.array.shape else None


def _join(x: object) -> None:
    """Convert an array, and all arrays that share its memory, to plain tracers."""
    if type(x) is not ConstantArray:
        return
    x.builder.require_open()
    with x.builder.outside():
        root = _root(x)
        _become(root, _as_root(root))


def _become(x: Any, result: Operand) -> None:
    children = [each for r in x.known.children if (each := r()) is not None]
    x.__class__, x.known = Tracer, None
    for name in _TRACER_FIELDS:
        setattr(x, name, getattr(result, name))
    for each in children:
        view = _view_of(each, lambda y: y)
        if view is None:
            raise x.builder.abort("a view of an array of constants is none that a trace has")
        base = view.origin.base
        _become(each, view)
        base.views.append(weakref.ref(each))


# -- operations by NumPy --------------------------------------------------------------------------------------------
class _NotConstant(Exception):
    """Raised for a value that is no constant."""


def _ndarrays(x: Any, arrays: list[Any]) -> Any:
    """`x` with ndarrays in place of its hosts, which are added to `arrays`."""
    kind = type(x)
    if kind is ConstantArray:
        arrays.append(x)
        return x.known.array
    if isinstance(x, Carrier):
        raise _NotConstant
    if kind is list or kind is tuple:
        return kind([_ndarrays(each, arrays) for each in x])
    if kind is slice and (isinstance(x.start, Carrier) or isinstance(x.stop, Carrier) or isinstance(x.step, Carrier)):
        raise _NotConstant
    return x


def apply_to_constants(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    traced: Callable[..., Any],
    builder: TraceBuilder,
    shares: Any = None,
) -> Any:
    """The result of a NumPy function for these arguments; `traced` is the function for tracers. The function may change
    the arguments it `shares`, or return views of them; None means all arguments."""
    results: list[Any] = []
    shares = None if shares == () and "out" in kwargs else shares
    try:
        if builder.inner is not None or not builder.open:
            raise _NotConstant
        inputs = _ndarrays(args, results)
        named = {k: _ndarrays(x, results) for k, x in kwargs.items()} if kwargs else kwargs
        if _is_large(function, results):
            raise _NotConstant
    except _NotConstant:
        if shares is None:
            return traced(*_exchanged(args, _joined_or_same), **_named(kwargs, _joined_or_same))
        for x in shares:
            _join(x)
        return traced(*_exchanged(args, _tracer_or_same), **_named(kwargs, _tracer_or_same))
    if shares != ():
        for x in results:
            _root(x).known.changes += 1
    with np.errstate(all="ignore"):
        result = function(*inputs, **named)
    return _wrapped(builder, result, results, _Again(traced, args, kwargs))


def _tracer_or_same(x: object) -> Any:
    return _as_tracer(x) if type(x) is ConstantArray else x


def _joined_or_same(x: object) -> Any:
    return x.join() if type(x) is ConstantArray else x


def _named(kwargs: dict[str, Any], replace: Callable[[object], object]) -> dict[str, Any]:
    return {k: _exchanged(x, replace) for k, x in kwargs.items()}


def _exchanged(x: Any, replace: Callable[[Any], Any]) -> Any:
    """`x` with each object in it replaced by `replace`."""
    return type(x)([_exchanged(each, replace) for each in x]) if type(x) in (list, tuple) else replace(x)


class _Again:
    """A function call that can be repeated for tracers, which returns a view, or several views and the picked one."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, result_indices: tuple[int, ...] = ()):
        self.function, self.args, self.kwargs, self.result_indices = function, args, kwargs, result_indices

    def __call__(self, replace: Callable[[Any], Any]) -> Any:
        def replaced(x: object) -> Any:
            return replace(x) if type(x) is ConstantArray else x

        result = self.function(*_exchanged(self.args, replaced), **_named(self.kwargs, replaced))
        for k in self.result_indices:
            result = result[k]
        return result

    def pick(self, k: int) -> _Again:
        return _Again(self.function, self.args, self.kwargs, (*self.result_indices, k))


def _is_large(function: object, arrays: list[Any]) -> bool:
    """Whether the result may have more elements than are stored as a constant."""
    total = 1
    for x in arrays:
        total *= max(x.known.array.size, 1)
    if total <= MAX_CONSTANT_SIZE:
        return False
    name = getattr(function, "__name__", "")
    if isinstance(function, np.ufunc) or isinstance(getattr(function, "__self__", None), np.ufunc) or "__" in name:
        try:
            return bool(np.prod(np.broadcast_shapes(*[x.shape for x in arrays])) > MAX_CONSTANT_SIZE) or name == "outer"
        except ValueError:
            return False
    return name in ("outer", "kron", "meshgrid", "ix_")


def _wrapped(builder: TraceBuilder, x: Any, arrays: list[Any], again: _Again) -> Any:
    """The result of a NumPy function, wrapped for traced code."""
    if type(x) in (list, tuple):
        return type(x)([_wrapped(builder, each, arrays, again.pick(k)) for k, each in enumerate(x)])
    if type(x) is not np.ndarray:
        return x
    for each in arrays:
        if each.known.array is x:
            _root(each).known.changes += 1
            return each
    owner = _owner(x)
    for each in arrays:
        if _owner(each.known.array) is owner:
            return ConstantArray(builder, x, None, each, again)
    return hosted(builder, x)


def hosted(builder: TraceBuilder, x: NDArray) -> object:
    """A new NumPy array as an array of the trace, if traces support its dtype."""
    try:
        supported(x.dtype)
    except (DTypeError, UnsupportedError):
        return x
    return ConstantArray(builder, x if x.base is None else x.copy())


def _owner(x: NDArray) -> Array:
    while type(x.base) is np.ndarray:
        x = x.base
    return x


def _done(name: str, x: Any, *args: Any, **kwargs: Any) -> object:
    """The result of the method."""
    shares = () if name in _READ else (x,)
    traced: Any = _OF_TRACERS[name]
    return apply_to_constants(getattr(np.ndarray, name), (x, *args), kwargs, traced, x.builder, shares)
