"""Eager dispatch: for each op and the classes of its operands, the function that applies and records it.

Bookkeeping dominates the time of an eager op on few elements. The function knows its op, and handles the common case:
floating arrays and numbers in the usual modes, without promotion, and with broadcasting by NumPy. All other cases use
the `general` path. It caches a recorder (`node_recorder`) for each kind of operands; ops of more operands look up a
case of dtypes and shapes, which also says whether NumPy can compute the op without conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracegrad.avals import LITERALS, Aval
from tracegrad.errors import DTypeError
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op, dispatch_operand
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.node import Spec
from tracegrad.torch.tape.recording.node_recorder import Recorder, recorder_of, shapes_of
from tracegrad.torch.tape.tensors import aliasing
from tracegrad.typing import NDArray
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

if TYPE_CHECKING:
    from tracegrad.typing import Array


_ndarray, _asarray = np.ndarray, np.asarray
_new = object.__new__
_F64, _F32 = np.dtype(np.float64), np.dtype(np.float32)
_NONE: dict[str, Any] = {}

Params = dict[str, Any]
# A function of the operands and the parameters of an op.
Applied = Callable[[tuple[Any, ...], Params], Any]


# -- elementwise ops, and products ---------------------------------------------------------------------------------
def of_one(op: Op, cls: type[Any], general: Callable[[Any], Any], node: str = "") -> Callable[[Any], Any]:
    """Return the function for a unary op on the class `cls`; `node` is the node's name, if not the op's."""
    function, recorders = (
        op.impl_unchecked,
        _KindRecorders(lambda dtype: recorder_of(op, (0,), (Aval((), dtype),), node)),
    )

    def apply(input: Any) -> Any:
        x = input
        if x.__class__ is not cls or STATE.unusual:
            return general(x)
        array = x.array
        dtype = array.dtype
        if dtype is not _F64 and dtype is not _F32:
            return general(x)
        before = traps()
        try:
            set_traps(QUIET)
            ans = function(array)
        finally:
            restore_traps(before)
        out: Any = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if x._requires and STATE.enabled:
            recorders[dtype](out, _NONE, None, x, array)
        return out

    return apply


def of_two(op: Op, cls: type[Any], general: Callable[[Any, Any], Any], node: str = "") -> Callable[[Any, Any], Any]:
    """Return the function for a binary op on two operands of the class `cls`, or one operand and a number."""
    function, recorders = op.impl_unchecked, _KindRecorders(partial(_binary_recorder, op, node))
    shaped = not isinstance(op, Elementwise)
    # 4 for a number on the right, 8 for a number on the left. 1 and 2 are added for operands that require grad.
    cases = {(cls, cls): 0, (cls, float): 4, (cls, int): 4, (float, cls): 8, (int, cls): 8}

    def apply(x: Any, y: Any) -> Any:
        case = cases.get((x.__class__, y.__class__))
        if case is None or STATE.unusual:
            return general(x, y)
        a = x if case == 8 else x.array
        b = y if case == 4 else y.array
        dtype = b.dtype if case == 8 else a.dtype
        if (dtype is not _F64 and dtype is not _F32) or (case == 0 and b.dtype is not dtype):
            return general(x, y)
        before = traps()
        try:
            set_traps(QUIET)
            ans = function(a, b)
        except (ValueError, OverflowError):  # the error of the op is clearer than NumPy's
            ans = None
        finally:
            restore_traps(before)
        if ans is None:
            return general(x, y)
        out: Any = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if ((case != 8 and x._requires) or (case != 4 and y._requires)) and STATE.enabled:
            if case != 8 and x._requires:
                case += 1
            if not case & 4 and y._requires:
                case += 2
            if shaped:
                recorders[case, dtype, a.shape, b.shape](out, _NONE, None, x, y, a, b)
            else:
                broadcasts = case < 4 and a.shape != b.shape
                shapes = (Spec(a.shape, dtype), Spec(b.shape, dtype)) if broadcasts else None
                recorders[case if dtype is _F64 else case + 16](out, _NONE, shapes, x, y, a, b)
        return out

    return apply


class _KindRecorders(dict[Any, Recorder]):
    """Recorders by the kind of operands; `create` makes one at first use."""

    def __init__(self, create: Callable[[Any], Recorder]):
        self.create = create

    def __missing__(self, kind: object) -> Recorder:
        return remember(self, kind, self.create(kind))


def _binary_recorder(op: Op, node: str, kind: Any) -> Recorder:
    """Return the recorder of a binary op; `kind` is the case, with dtype and shapes if it is not elementwise."""
    case, dtype, *shapes = kind if kind.__class__ is tuple else (kind & 15, _F32 if kind & 16 else _F64, (), ())
    operands = [Aval(shape, dtype) for shape in shapes]
    wanted = tuple([k for k in (0, 1) if case & (1, 2)[k]])
    return recorder_of(op, wanted, (1.0 if case & 8 else operands[0], 1.0 if case & 4 else operands[1]), node)


# -- unary ops with parameters or several results ------------------------------------------------------------------
def of_form(
    op: Op,
    cls: type[Any],
    general: Applied,
    node: str = "",
    function: Callable[[Any, Params], Any] | None = None,
    fixed: bool = False,
) -> Applied:
    """Return the function for a unary op that is not elementwise.

    `function(array, params)` computes the op, if not the op's own implementation. With `fixed`, the shape determines
    the parameters.
    """
    aliases, meaning, recorders = op.aliases, op.impl_unchecked, _FormRecorders(op, node)
    several = _of_several(op, cls, recorders)

    def apply(operands: tuple[Any, ...], params: Params) -> Any:
        (x,) = operands
        if x.__class__ is not cls or STATE.unusual:
            return general(operands, params)
        array = x.array
        dtype = array.dtype
        if dtype is not _F64 and dtype is not _F32:
            return general(operands, params)
        before = traps()
        try:
            set_traps(QUIET)
            ans = meaning(array, **params) if function is None else function(array, params)
        finally:
            restore_traps(before)
        if ans.__class__ is tuple:
            return several(x, array, params, ans)
        out: Any = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if aliases and aliasing.shared(ans, array):
            aliasing.register(out, x, (op, params))
        if x._requires and STATE.enabled:
            key = (array.shape, dtype) if fixed else (array.shape, dtype, *params, *params.values())
            try:
                record = recorders[key]
            except (KeyError, TypeError):
                record = recorders.created(key, out.array.dtype.kind in "fc", array, params)
            record(out, params, None, x, array)
        return out

    return apply


class _FormRecorders(dict[Hashable, Recorder]):
    """Recorders of a unary op by shape, dtype and parameters."""

    def __init__(self, op: Op, node: str):
        self.op, self.node = op, node

    def created(self, key: Hashable, smooth: bool, array: NDArray, params: Params) -> Recorder:
        wanted = (0,) if smooth and self.op.differentiable_in(0) else ()
        recorder = recorder_of(self.op, wanted, (Aval(array.shape, array.dtype),), self.node, params)
        return remember(self, key, recorder)


def _of_several(op: Op, cls: type[Any], recorders: _FormRecorders) -> Callable[..., tuple[Any, ...]]:
    """Return the function that wraps and records the results of a unary op with several results."""
    aliases = op.aliases

    def wrap(x: Any, array: NDArray, params: Params, results: tuple[Array, ...]) -> tuple[Any, ...]:
        outs = []
        for ans in results:
            out: Any = _new(cls)
            out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
            out._counter = [0]
            outs.append(out)
        if aliases:
            aliasing.register_all(outs, x, op, params)
        if outs and x._requires and STATE.enabled:
            key = (array.shape, array.dtype, *params, *params.values())
            try:
                record = recorders[key]
            except (KeyError, TypeError):
                record = recorders.created(key, True, array, params)
            record(outs, params, None, x, array)
        return tuple(outs)

    return wrap


# -- all other ops -------------------------------------------------------------------------------------------------
def of_some(op: Op, cls: type[Any], kinds: tuple[type, ...], general: Applied) -> Applied:
    """Return the function for an op of operands of these `kinds`: arrays of the class `cls`, and numbers."""
    if not all([kind is cls or kind is float or kind is int for kind in kinds]):  # noqa: C419 (a list is faster)
        return general
    function, mixed = op.impl, _mixed_key(op, cls)
    plain = all([kind is cls for kind in kinds])  # noqa: C419
    known: dict[Hashable, _Case] = {}

    def apply(operands: tuple[Any, ...], params: Params) -> Any:
        if STATE.unusual:
            return general(operands, params)
        key = (*map(_traits, operands), *params.items()) if plain else mixed(operands, params)
        try:
            case = known[key]
        except (KeyError, TypeError):
            case = remember(known, key, _Case(op, operands))
        if not case.ready:
            return general(operands, params)
        arrays = [x.array for x in operands] if plain else [x.array if x.__class__ is cls else x for x in operands]
        before = traps()
        try:
            set_traps(QUIET)
            ans = function(*arrays, **params)
        except (ValueError, OverflowError):  # the error of the op is clearer than NumPy's
            ans = None
        finally:
            restore_traps(before)
        if ans is None or ans.__class__ is tuple:
            value: Any = dispatch_operand(operands)
            return value._result(op, operands, tuple(arrays), params, ans) if ans else general(operands, params)
        out: Any = _new(cls)
        out.array = ans if ans.__class__ is _ndarray else _asarray(ans)
        out._counter = [0]
        if case.tracked and STATE.enabled:
            case.record(out, params, case.shapes, *operands, *arrays)
        return out

    return apply


_traits = attrgetter("array.dtype", "array.shape", "_requires")


def _mixed_key(op: Op, cls: type[Any]) -> Callable[[tuple[Any, ...], Params], tuple[Hashable, ...]]:
    """Return the key function of cases with numbers among the operands."""
    number = _class_of if isinstance(op, Elementwise) else _known_number

    def key(operands: tuple[Any, ...], params: Params) -> tuple[Hashable, ...]:
        return (*[_traits(x) if x.__class__ is cls else number(x) for x in operands], *params.items())

    return key


_class_of = attrgetter("__class__")


def _known_number(x: float) -> tuple[type, float]:
    return x.__class__, x


class _Case:
    """Case of operand dtypes and shapes.

    `ready`: whether NumPy computes the op on the operands without conversion. `tracked`: whether any requires grad.
    The first call of `record` sets the recorder, and the `shapes` of the operands of an elementwise op that broadcasts.
    """

    __slots__ = ("ready", "record", "shapes", "tracked")
    record: Recorder
    shapes: tuple[Spec | None, ...] | None

    def __init__(self, op: Op, operands: tuple[Any, ...]):
        kinds = tuple([type(x) if type(x) in LITERALS else x.array.dtype for x in operands])
        self.ready = not isinstance(op, Elementwise) or is_ready(op, kinds)
        self.tracked = any([getattr(x, "_requires", False) for x in operands])  # noqa: C419
        self.record, self.shapes = partial(self._first_record, op), None

    def _first_record(self, op: Op, out: Any, params: Params, _: None, *values: Any) -> None:
        operands, arrays = values[: len(values) // 2], values[len(values) // 2 :]
        elementwise = isinstance(op, Elementwise)
        smooth = out.array.dtype.kind in "fc"
        tracked = [k for k, x in enumerate(operands) if x is not arrays[k] and x._requires and op.differentiable_in(k)]
        avals = [a if x is a else Aval(() if elementwise else a.shape, a.dtype) for x, a in zip(operands, arrays)]
        self.shapes = shapes_of(arrays, out.array) if elementwise else None
        self.record = recorder_of(op, tuple(tracked) if smooth else (), tuple(avals), params=params)
        self.record(out, params, self.shapes, *values)


def is_ready(op: Elementwise, kinds: tuple[Any, ...]) -> bool:
    """Whether an elementwise op computes in these dtypes without promotion; a number needs a floating loop dtype."""
    try:
        loop = op.loop_dtypes(*kinds)
    except DTypeError:
        return False
    for kind, dtype in zip(kinds, loop):
        if isinstance(kind, type):
            if kind not in (float, int) or dtype.kind != "f":
                return False
        elif kind != dtype:
            return False
    return not all(isinstance(kind, type) for kind in kinds)


_MAX_KINDS = 4096
Known = TypeVar("Known")


def remember(known: dict[Any, Known], key: Hashable, value: Known) -> Known:
    """Cache what is known of a kind of operands, unless the key cannot be hashed."""
    if len(known) >= _MAX_KINDS:
        known.clear()
    with suppress(TypeError):
        known[key] = value
    return value


# -- choice of the function --------------------------------------------------------------------------------------------
def of_kinds(op: Op, cls: type[Any], kinds: tuple[type, ...]) -> Applied:
    """Return the function for operands of the classes `kinds`; `cls` is the class of the dispatch operand."""
    general = partial(_generally, op)
    if op.piecewise_constant:
        return general
    if isinstance(op, Elementwise) and len(kinds) <= 2 and _is_smooth(op):
        if len(kinds) == 1:
            first = of_one(op, cls, lambda x: general((x,), _NONE))
            return lambda operands, params: first(operands[0])
        both = of_two(op, cls, lambda x, y: general((x, y), _NONE))
        return lambda operands, params: both(operands[0], operands[1])
    if len(kinds) == 1 and not op.variadic and not isinstance(op, Elementwise):
        return of_form(op, cls, general)
    return of_some(op, cls, kinds, general)


def _is_smooth(op: Elementwise) -> bool:
    """Whether the op of floating arrays has a floating result, and a derivative in each operand."""
    double = (_F64,) * (len(op.operands) + 1)
    smooth = all(map(op.differentiable_in, range(len(op.operands))))
    return op._floating and op.loop_dtypes(*double[:-1]) == double and smooth


def _generally(op: Op, operands: tuple[Array, ...], params: Params) -> Any:
    owner: Any = dispatch_operand(operands)
    return owner._applied(op, operands, params)
