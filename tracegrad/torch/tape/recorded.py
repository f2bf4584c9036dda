"""Recorded: a carrier that computes at once and leaves a tape; what the Tensor and its NumPy face have in common.

It holds an ndarray (`array`; inside a trace, a tracer) and, if an op on a value that requires grad made it, the edge
of the tape that leads to that op's node (`_edge`, as nodes have them). Tensors that share memory share a version
counter, a list of the number and, after a recorded update, the name of the operation; an inference tensor has none.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, Aval, is_literal, supported
from tracegrad.errors import TraceError, located, warn_of_constant
from tracegrad.ops import TABLE
from tracegrad.ops.declare import Elementwise
from tracegrad.ops.linear import broadcast_to, cast
from tracegrad.ops.op import Carrier, Level, Op
from tracegrad.quiet import QUIET, reset_traps, set_traps
from tracegrad.torch.tape import views
from tracegrad.torch.tape.composite import Recipe, composite_class
from tracegrad.torch.tape.modes import STATE
from tracegrad.torch.tape.opnode import OpNode, node_class, of_inference, plan_of, step_node
from tracegrad.torch.tape.parts import PARTS
from tracegrad.torch.tape.tape import AccumulateGrad, Node, Spec, next_number

__all__ = ["FLOATS", "Recorded", "new_node"]

_ndarray = np.ndarray
_new = object.__new__
FLOATS = frozenset({np.dtype(np.float64), np.dtype(np.float32)})
# Ops that NumPy computes as views of their operand.
ALIASING = frozenset(
    {
        TABLE[name]
        for name in (
            "reshape", "transpose", "broadcast_to", "slice", "real", "imag", "view_as_real", "view_as_complex",
        )
    }
)  # fmt: skip
# Ops whose derivative is 0 wherever there is one: they have a node all the same.
STEPS = frozenset({TABLE[name] for name in ("sign", "floor", "ceil", "trunc", "rint")})
SQRT = TABLE["sqrt"]


class Recorded(Carrier):
    """An array that operations are recorded on."""

    level = Level.ARRAY_ON_TAPE
    takes_any = True
    _concrete_masks = True

    array: Any
    _counter: Any
    _requires = False
    _edge: Any = None
    _grad: Any = None
    _base: Any = None
    _steps: Any = None  # of a view: the steps of what it is a view of, and the one from there
    _kind_of_view = ""
    _views: Any = None
    _accumulator: Any = None
    _hooks: Any = None
    _retains = False

    # -- what ops ask ------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Any:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def aval(self) -> Aval:
        return Aval(self.array.shape, self.array.dtype)

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        arrays = tuple([x.array if isinstance(x, Recorded) else x for x in operands])
        token = set_traps(QUIET)
        try:
            answer = self._computed(op, operands, arrays, params)
        finally:
            reset_traps(token)
        if answer.__class__ is not _ndarray:
            answer = np.asarray(answer)
        return self._result(op, operands, arrays, params, answer)

    def _computed(self, op: Op, operands: tuple[Any, ...], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The answer for ndarrays. Floating operands of one dtype need no promotion, and NumPy broadcasts."""
        if not isinstance(op, Elementwise):
            return op.impl(*arrays, **params)
        dtype = None
        for x in arrays:
            kind = x.__class__
            if kind is _ndarray:
                if dtype is None and x.dtype in FLOATS:
                    dtype = x.dtype
                elif x.dtype is not dtype:
                    break
            elif kind is not float and kind is not int:
                break
        else:
            if dtype is not None and op._floating and not any(getattr(x, "weak", False) for x in operands):  # type: ignore[attr-defined]
                try:
                    return op.impl(*arrays)
                except ValueError:
                    pass  # the op says more about shapes than NumPy
        weak = [x.array.item() if isinstance(x, Recorded) and x.weak else a for x, a in zip(operands, arrays)]
        return op(*weak)

    def _result(
        self, op: Op, operands: tuple[Any, ...], arrays: tuple[Any, ...], params: dict[str, Any], answer: Any
    ) -> Any:
        out = self._like(answer)
        node = None
        if op in ALIASING and isinstance(operands[0], Recorded) and self._shares(answer, arrays[0]):
            views.register(out, operands[0], _step(op, params))
        if STATE.enabled and answer.dtype.kind in "fc" and not STATE.inference:
            edges, kinds, tracked = [], [], False
            for i, x in enumerate(operands):
                if isinstance(x, Recorded):
                    if x._requires and op.differentiable_in(i):
                        edges.append(x._edge or x._source())
                        kinds.append(2)
                        tracked = True
                    else:
                        edges.append(None if op.differentiable_in(i) else False)
                        kinds.append(1)
                elif x.__class__ in LITERALS:
                    edges.append(None if op in _WRAPS_NUMBERS else False)
                    kinds.append(0)
                else:
                    edges.append(None if op.differentiable_in(i) else False)
                    kinds.append(1)
            if tracked:
                out._requires = True
                out._edge = node = _recorded(op, tuple(kinds), tuple(edges), operands, arrays, params, out)
            elif op in STEPS and isinstance(operands[0], Recorded) and operands[0]._requires:
                out._requires, out._edge = True, step_node(op, operands[0]._edge_of(), answer)
        if STATE.unusual:
            self._unusually(out, node)
        return out

    def _shares(self, answer: Any, array: Any) -> bool:
        """Whether `answer` is a view of `array`."""
        base = answer.base
        return base is not None and (base is array or base is array.base)

    def _like(self, array: Any) -> Any:
        """A value of this face for an array that nothing is recorded of."""
        out = _new(self._face)
        out.array = array
        out._counter = [0]
        return out

    # The class of results: a weak value's are not weak.
    _face: Any = None

    @staticmethod
    def _unusually(out: Any, node: Node | None) -> None:
        """In a mode in which more is done about each result; `node` has just been recorded for it."""
        if STATE.inference and out._base is None:
            out._counter = None
        if node is not None:
            if STATE.watching:
                node.metadata["traceback_"] = traceback.format_stack()
            if STATE.saving:
                node.pack(*STATE.saving[-1])

    # -- functions of several ops --------------------------------------------------------------------------------
    def named(self, name: str) -> Any:
        node = self._edge
        if isinstance(node, OpNode):
            node.__class__ = node_class(name)
            if node.op is SQRT and node.checks:
                # A power saves its operand in PyTorch, so the result may be updated in place.
                node.answer, node.checks = node.answer.copy() if self._concrete() else node.answer, []
        return self

    def _concrete(self) -> bool:
        return isinstance(self.array, np.ndarray)

    def composed(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in PARTS and isinstance(args[0], Recorded):
            return PARTS[name](*args, **kwargs)
        if not STATE.enabled or STATE.inference or not _any_requires(args):
            return _told_of_several(fn(*args, **kwargs))
        recipe = Recipe()
        try:
            result = fn(*_as_parts(recipe, args), **kwargs)
            several = isinstance(result, tuple | list)
            outputs = self._outputs(composite_class(name), recipe, result if several else (result,), kwargs, several)
        finally:
            recipe.close()
        if not several:
            return outputs[0]
        return type(result)(outputs) if type(result) in (tuple, list) else type(result)(*outputs)

    def _outputs(self, cls: Any, recipe: Recipe, results: Any, options: dict[str, Any], several: bool) -> list[Any]:
        """The results of a function of several ops, with one node."""
        arrays = [recipe.array_of(x) for x in results]
        node = cls(recipe, arrays, options)
        outputs = [self._output(node, k, x, several) for k, x in enumerate(arrays)]
        views.register_parts(outputs, recipe, "several" if several else "")
        node.guard(outputs, arrays)
        if STATE.unusual:
            self._unusually(outputs[0], node)
        return outputs

    def _output(self, node: Node, k: int, array: Any, several: bool) -> Any:
        out = self._like(array)
        if array.dtype.kind in "fc":
            out._requires = True
            out._edge = (node, k) if several and k else node
        return out

    def _snapshot(self) -> Any:
        """The array as it is now, for a node to keep."""
        return self.array

    # -- the tape ------------------------------------------------------------------------------------------------
    def _edge_of(self) -> Any:
        """The edge that a recorded use of this value leads back along, or None."""
        return (self._edge or self._source()) if self._requires else None

    def _source(self) -> Any:
        """The edge, where it is not at hand: of a leaf, and of a view whose base was updated in place."""
        if self._edge is not None:
            views.restore(self)
            if self._edge:
                return self._edge
        found = self._accumulator() if self._accumulator is not None else None
        if found is None:
            found = AccumulateGrad(self, self._hooks)
            self._accumulator = weakref.ref(found)
        return found

    def _leaf_hooks(self) -> Any:
        raise NotImplementedError

    @property
    def grad_fn(self) -> Any:
        """The node of the operation that made this value, or None."""
        edge = self._edge
        if edge is None:
            return None
        if not edge:
            views.restore(self)
            edge = self._edge
        return edge[0] if edge.__class__ is tuple else edge

    @property
    def output_nr(self) -> int:
        """The number of this value among the outputs of `grad_fn`."""
        edge = self._edge
        return edge[1] if edge.__class__ is tuple else 0

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this value are recorded, or on the base of this view."""
        return self._requires or (self._base is not None and self._base._requires)

    # -- what both faces ask -------------------------------------------------------------------------------------
    def concrete(self, asked: str) -> np.ndarray[Any, Any]:
        """The value, for Python that wants a number."""
        if self._requires and STATE.enabled and STATE.depth and asked in ("float()", "item()", "tolist()"):
            warn_of_constant(asked)
        return self.array  # type: ignore[no-any-return]

    def _lift(self, x: Any) -> Any:
        if isinstance(x, Recorded):
            return x
        if isinstance(x, Carrier):
            raise TraceError(located(f"a {type(x).__name__} cannot become a Tensor"))
        array = np.asarray(x)
        supported(array.dtype)
        return self._like(array)

    def _become(self, new: Any) -> Any:
        """Update this value in place to `new`; returns itself."""
        if not isinstance(new, Recorded):
            new = self._like(np.asarray(new)) if not isinstance(new, Carrier) else self._lift(new)
        views.update(self, new)
        return self

    def _assign(self, new: Any) -> None:
        self._become(new)

    def _store(self, array: Any) -> None:
        """Overwrite the memory."""
        views.writeable(self.array)[...] = array

    def _converted(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The array in this shape and dtype, for an update in place of another one."""
        array = self.array
        if array.dtype != dtype:
            array = cast(array, dtype=dtype.name)
        return array if array.shape == shape else broadcast_to(array, shape=shape)

    def _holds(self, array: Any) -> bool:
        """Whether a saved `array` is the value of this leaf."""
        own = self.array
        if own is array:
            return True
        if not isinstance(array, np.ndarray) or array.base is None or own.shape != array.shape:
            return False
        return own.__array_interface__ == array.__array_interface__  # type: ignore[no-any-return]


_WRAPS_NUMBERS = frozenset({TABLE[name] for name in ("add", "subtract", "multiply", "divide")})


def _recorded(
    op: Op, kinds: tuple[int, ...], edges: tuple[Any, ...], operands: tuple[Any, ...], arrays: tuple[Any, ...],
    params: dict[str, Any], out: Any,
) -> OpNode:  # fmt: skip
    """The node of an op that has just been applied, with what its rules read saved."""
    plan = plan_of(op, kinds)
    node = _new(plan.cls)
    node.op, node.params, node.edges, node.hooks = op, params, edges, None
    checks: list[Any] | None = [] if plan.saves else None
    saved: list[Any] = []
    elementwise = isinstance(op, Elementwise)
    for k, (x, array) in enumerate(zip(operands, arrays)):
        if plan.operands[k]:
            if isinstance(x, Recorded):
                saved.append(x._snapshot())
                checks.append(_check(x, k))  # type: ignore[union-attr]
            else:
                saved.append(array)
        elif elementwise or array.__class__ in LITERALS:
            saved.append(None)
        else:
            saved.append(Spec(array.shape, array.dtype))
    node.operands = tuple(saved)
    if plan.answer:
        node.answer = out._snapshot()
        checks.append((out._counter, 0, -1))  # type: ignore[union-attr]
    else:
        node.answer = None if elementwise else Spec(out.array.shape, out.array.dtype)
    node.checks = checks
    node.shapes = _shapes(arrays, out.array) if elementwise else None
    node.number = next_number()
    return node


def _check(x: Any, position: int) -> tuple[Any, int, int]:
    counter = x._counter
    if counter is None:
        raise of_inference()
    return counter, counter[0], position


def _shapes(arrays: tuple[Any, ...], answer: Any) -> Any:
    """Specs of the operands if any differs from the answer in shape or dtype."""
    shape, dtype = answer.shape, answer.dtype
    for x in arrays:
        if x.__class__ not in LITERALS and (x.shape != shape or x.dtype is not dtype):
            return tuple([None if is_literal(a) else Spec(a.shape, a.dtype) for a in arrays])
    return None


def new_node(cls: Any, edges: tuple[Any, ...]) -> Any:
    """A node of a class without `__init__`."""
    node = _new(cls)
    node.edges, node.hooks, node.number = edges, None, next_number()
    return node


def _step(op: Op, params: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda x: op(x, **params)


def _told_of_several(result: Any) -> Any:
    """The views that one function has made, which know that there are several of them."""
    if isinstance(result, tuple | list):
        for x in result:
            if isinstance(x, Recorded) and x._base is not None and not x._kind_of_view:
                x._kind_of_view = "several"
    return result


def _any_requires(args: Any) -> bool:
    for x in args:
        if isinstance(x, Recorded):
            if x._requires:
                return True
        elif isinstance(x, list | tuple) and _any_requires(x):
            return True
    return False


def _as_parts(recipe: Recipe, x: Any) -> Any:
    if isinstance(x, Recorded):
        return recipe.part(x)
    if type(x) in (list, tuple):
        return type(x)([_as_parts(recipe, v) for v in x])
    return x
