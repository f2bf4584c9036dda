"""Class `Recorded`: a carrier that computes at once and records a tape, the base of Tensor and TapeArray.

It holds an ndarray (`array`; inside a trace, a tracer). If an op on a value that requires grad made it, it also holds
the edge to the node of that op (`_edge`, in the form of `Node.edges`). Tensors that share memory share a version
counter: a list of the version and, after a recorded update, the name of the operation. An inference tensor has no
version counter.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tracegrad.avals import LITERALS, Aval, supported
from tracegrad.errors import ShapeError, TraceError, located, warn_of_constant
from tracegrad.ops.core.dispatch import TapeCarrier
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.memory_order import arranged, has_order, relaid
from tracegrad.ops.core.op import Carrier, DispatchLevel, Op
from tracegrad.ops.shape.linear import broadcast_to, cast
from tracegrad.torch.functions.core.dims import as_pytorchs
from tracegrad.torch.functions.core.promotion import in_one_dtype
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward import dual
from tracegrad.torch.tape.recording.composite_node import composite_class
from tracegrad.torch.tape.recording.composite_trace import (
    RECIPES,
    Recipe,
    any_requires,
    key_of,
    record_recipe,
    remember,
)
from tracegrad.torch.tape.recording.eager_dispatch import is_ready, of_kinds
from tracegrad.torch.tape.recording.node import AccumulateGrad, Node, next_number
from tracegrad.torch.tape.recording.node_recorder import record_any, shapes_of
from tracegrad.torch.tape.recording.op_node import OpNode, RecordingPlan, node_class, piecewise_constant_node
from tracegrad.torch.tape.recording.saved_tensor import Borrowed, copy_if_borrowed
from tracegrad.torch.tape.tensors import aliasing, inplace_updates
from tracegrad.typing import NDArray
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

if TYPE_CHECKING:
    from tracegrad.typing import Array, DType, DTypeLike


_ndarray = np.ndarray
_new = object.__new__
FLOATS = frozenset({np.dtype(np.float64), np.dtype(np.float32)})


class Recorded(TapeCarrier):
    """An array that operations are recorded on."""

    level = DispatchLevel.ARRAY_ON_TAPE
    accepts_unconformed = True
    _concrete_masks = True

    array: Any
    _counter: Any
    _requires = False
    _edge: Any = None
    _grad: Any = None
    _base: Any = None
    _steps: Any = None  # for a view: the steps of its parent, and the step from the parent
    _kind_of_view = ""
    _frozen = ""  # for an array that must not be updated in place: its description, for errors
    _views: Any = None
    _accumulator: Any = None
    _hooks: Any = None
    _retains = False
    _uninitialized = False  # whether it is a parameter of a lazy module, whose shape is not known yet
    _dual: Any = None  # its tangent, in a dual level

    # -- recording of ops --------------------------------------------------------------------------------------
    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        kinds = tuple(map(type, operands))
        recorder = op.dispatch_cache.get(kinds)
        if recorder is None:
            recorder = op.dispatch_cache[kinds] = of_kinds(op, self._public_class, kinds)
        return recorder(operands, params)

    def _applied(self, op: Op, operands: tuple[object, ...], params: dict[str, object]) -> Any:
        """Compute any op on any operands, and record it."""
        arrays = tuple([x.array if isinstance(x, Recorded) else x for x in operands])
        if self.common_dtype is not None:
            arrays = in_one_dtype(op, arrays)
        before = traps()
        try:
            set_traps(QUIET)
            ans = _elementwise(op, operands, arrays) if isinstance(op, Elementwise) else op.impl(*arrays, **params)
        finally:
            restore_traps(before)
        return self._result(op, operands, arrays, params, ans)

    def _result(
        self, op: Op, operands: tuple[Any, ...], arrays: tuple[Any, ...], params: dict[str, Any], ans: Any
    ) -> Any:
        """Wrap computed arrays, with a node if an operand requires grad."""
        plan = None
        if STATE.enabled and not STATE.inference:
            wanted = [k for k, x in enumerate(operands) if isinstance(x, Recorded) and x._requires]
            if wanted:
                plan = _cached_plan(op, wanted, operands, arrays, params)
        if ans.__class__ is tuple:
            return self._wrap_results(plan, op, operands, arrays, params, ans)
        if ans.__class__ is not _ndarray and not isinstance(ans, Carrier):
            ans = np.asarray(ans)
        out = self._like(ans)
        if op.aliases and isinstance(operands[0], Recorded) and self._shares(ans, arrays[0]):
            aliasing.register(out, operands[0], (op, params))
        node = None
        if plan is not None and ans.dtype.kind in "fc":
            if plan.cls is None:
                out._requires, out._edge = True, piecewise_constant_node(op, operands[0]._edge_of(), ans)
            else:
                node = record_any(plan, out, params, shapes_of(operands, ans) if plan.elementwise else None, *operands)
        if STATE.unusual:
            self._unusually(out, node)
            if STATE.level is not None:
                dual.pushed(op, operands, params, out, node)
        return out

    def _wrap_results(
        self,
        plan: Any,
        op: Op,
        operands: tuple[object, ...],
        arrays: tuple[Any, ...],
        params: dict[str, object],
        results: Any,
    ) -> tuple[object, ...]:
        """Wrap the results of an op with several results."""
        if not op.aliases:
            results = [_unaliased(x, arrays) for x in results]
        outs = tuple([self._like(x) for x in results])
        if op.aliases and outs and isinstance(operands[0], Recorded) and self._shares(outs[0].array, arrays[0]):
            for k, out in enumerate(outs):
                aliasing.register(out, operands[0], (op, params, k), "several" if STATE.enabled else "")
        node = None
        if plan is not None and plan.cls is not None and outs:
            node = record_any(plan, outs, params, None, *operands)
        if STATE.unusual:
            for k, out in enumerate(outs):
                self._unusually(out, None if k else node)
            if STATE.level is not None:
                dual.pushed(op, operands, params, outs, node)
        return outs

    def _shares(self, ans: NDArray, array: object) -> bool:
        """Whether `ans` is a view of `array`."""
        return aliasing.shared(ans, array)

    def _like(self, array: object) -> Self:
        """Wrap an array without a record in this class."""
        out: Self = _new(self._public_class)
        out.array = array
        out._counter = [0]
        return out

    # The class of results, which are not weak even if this value is.
    _public_class: Any = None

    @staticmethod
    def _unusually(out: Recorded, node: Node | None) -> None:
        """Do the additional work of unusual modes for a result, and for its new `node`."""
        if STATE.inference and out._base is None:
            out._counter = None
        if node is not None:
            if STATE.watching:
                node.metadata["traceback_"] = traceback.format_stack()
                if STATE.sweep is not None:
                    node.metadata["parent_"] = STATE.sweep.running
            if STATE.saving:
                node.pack(*STATE.saving[-1])

    # -- functions of several ops --------------------------------------------------------------------------------
    def named(self, name: str, copies_result: bool = False) -> Recorded:
        node = self._edge
        if isinstance(node, OpNode):
            node.__class__ = node_class(name, node.is_multi_result)
            if copies_result:
                node.copy_saved_result()
        return self

    def composed(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors: list[Any] = []
        key = key_of(self._public_class, fn, args, kwargs, tensors)
        if not STATE.enabled or STATE.inference or not any_requires(args if key is None else tensors):
            try:
                return _mark_multi_views(fn(*args, **kwargs))
            except ShapeError as error:
                raise (error if self.common_dtype is None else as_pytorchs(error, ())) from None
        for x in tensors:
            copy_if_borrowed(x)
        recipe = RECIPES.get(key)
        if recipe is None:
            recipe, tensors, values = record_recipe(fn, args, kwargs)
            remember(key, recipe)
        else:
            values = recipe.run([x.array for x in tensors])
        outputs = self._outputs(composite_class(name)(recipe, tensors, values, kwargs), recipe, tensors, values)
        if recipe.kind is None:
            return outputs[0]
        return recipe.kind(outputs) if recipe.kind in (tuple, list) else recipe.kind(*outputs)

    def _outputs(self, node: Any, recipe: Recipe, tensors: Sequence[object], values: Sequence[Array]) -> list[Recorded]:
        """Wrap the results of a composite function, with one node."""
        is_multi = recipe.kind is not None
        outputs = []
        for n, (k, smooth) in enumerate(recipe.outputs):
            out = self._like(values[k])
            if smooth:
                out._requires = True
                out._edge = (node, n) if is_multi and n else node
            outputs.append(out)
        if recipe.has_views:
            aliasing.register_composite_views(outputs, recipe, tensors, "several" if is_multi else "")
        if recipe.guarded or node.saves_result:
            node.guard(outputs)
        if STATE.unusual:
            self._unusually(outputs[0], node)
            if STATE.level is not None:
                dual.pushed_through(recipe, tensors, outputs)
        return outputs

    def _snapshot(self) -> Array:
        """Return the current array, for a node to save."""
        result: Array = self.array
        return result

    # -- memory --------------------------------------------------------------------------------------------------
    def _in_memory_order(self, order: Any, *like: Any) -> Any:
        """Return this new value with the memory layout `order`: see `ops.core.memory_order.arranged`."""
        array, arrays = self.array, [x.array for x in like]
        if isinstance(array, Carrier):
            result = self._alias()
            result.array = array._in_memory_order(order, *arrays)  # type: ignore[attr-defined]
            return result
        strides = arranged(order, array.shape, array.dtype, *arrays)
        result = self if self._base is None else self._alias()
        new = relaid(result.array, strides)
        if new is not result.array:
            result = self._alias() if result is self else result
            result.array = new
        return result

    def _alias(self) -> Self:
        raise NotImplementedError

    def _in_order(self, order: str) -> Recorded:
        """Return this value if it has the memory layout `order`, else a copy."""
        (array,) = self._visible_layouts(self)
        return self if has_order(array, order) else self._alias()._in_memory_order(order, self)

    def _as_view(self, result: Array, step: Callable[..., object], make_view: Callable[..., object]) -> Any:
        """Register `result`, which `step` computed of this value, as a view; `make_view` makes the view of an array."""
        return aliasing.as_view(result, self, step, make_view)

    def _sealed(self) -> Recorded:
        """Make this view read-only, and return it."""
        if isinstance(self.array, Carrier):
            self.array._sealed()  # type: ignore[attr-defined]
        else:
            self.array.flags.writeable = False
        return self

    def _visible_layouts(self, *xs: Any) -> list[NDArray]:
        """Return arrays with the memory layout of these values, for a result that can be a view."""
        arrays = [x.array for x in xs]
        return self.array._visible_layouts(*arrays) if isinstance(self.array, Carrier) else arrays  # type: ignore[attr-defined]

    def _layouts(self, *xs: Any) -> Any:
        """Return arrays with the memory layout of these values."""
        arrays = [x.array for x in xs]
        return self.array._layouts(*arrays) if isinstance(self.array, Carrier) else arrays  # type: ignore[attr-defined]

    # -- the tape ------------------------------------------------------------------------------------------------
    def _edge_of(self) -> Any:
        """Return the edge to this value for a node that uses it, or None."""
        return (self._edge or self._source()) if self._requires else None

    def _source(self) -> Any:
        """Return the edge if `_edge` does not have it: for a leaf, and for a view whose base was updated in place."""
        if self._edge is not None:
            inplace_updates.restore(self)
            if self._edge:
                return self._edge
        result = self._accumulator() if self._accumulator is not None else None
        if result is None:
            result = _new(AccumulateGrad)
            result.variable = self
            result.hooks = self._hooks
            result.edges = ()
            result.number = next_number()
            self._accumulator = weakref.ref(result)
        return result

    def _leaf_hooks(self) -> Any:
        raise NotImplementedError

    def _reached(self) -> None:
        """Prepare for a backward pass that reaches this leaf."""

    @property
    def grad_fn(self) -> Any:
        """Return the node of the operation that made this value, or None."""
        edge = self._edge
        if edge is None:
            return None
        if not edge:
            inplace_updates.restore(self)
            edge = self._edge
        return edge[0] if edge.__class__ is tuple else edge

    @property
    def output_nr(self) -> int:
        """Return the number of this value among the outputs of `grad_fn`."""
        edge = self._edge
        return edge[1] if edge.__class__ is tuple else 0

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this value are recorded, or on the base of this view."""
        return self._requires or (self._base is not None and self._base._requires)

    # -- values, and updates in place ----------------------------------------------------------------------------
    def concrete(self, query: str) -> NDArray:
        """Return the value, for Python that needs a number."""
        # Outside of derivatives of functions, only `float()` warns: NumPy and `math` call it, users call `item()`.
        warned_queries = ("float()", "item()", "tolist()") if STATE.depth else ("float()",)
        if query in warned_queries and STATE.enabled and self.requires_grad:
            warn_of_constant(query)
        return self.array  # type: ignore[no-any-return]

    def stored(self, dtype: DTypeLike) -> NDArray:
        """Return the value to write into an array of a trace, which has no tape: the history is lost."""
        if STATE.enabled and self.requires_grad:
            warn_of_constant("assigning to an array")
        result: NDArray = self.array
        return result

    def _lift(self, x: Any) -> Any:
        if isinstance(x, Recorded):
            return x
        if isinstance(x, Carrier):
            raise TraceError(located(f"a {type(x).__name__} cannot become a Tensor"))
        array = np.asarray(x)
        supported(array.dtype)
        out = self._like(array)
        if array is x and STATE.enabled:
            out._counter = Borrowed([0])
        return out

    def _constant(self, x: Any, /) -> Any:
        supported(x.dtype)
        return self._like(x)

    def _become(self, new: Any) -> Self:
        """Update this value in place to `new`, and return it."""
        if not isinstance(new, Recorded):
            new = self._like(np.asarray(new)) if not isinstance(new, Carrier) else self._lift(new)
        inplace_updates.update(self, new)
        return self

    def _assign(self, new: Array) -> None:
        self._become(new)

    def _store(self, array: Array) -> None:
        """Overwrite the memory with the elements of `array`."""
        if STATE.guarding is not None:
            STATE.guarding.before_update_of(self.array)
        inplace_updates.writeable(self.array)[...] = array

    def _converted(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Convert the array to this shape and dtype, for an in-place update of another array."""
        array = self.array
        if array.dtype != dtype:
            array = cast(array, dtype=dtype.name)
        return array if array.shape == shape else broadcast_to(array, shape=shape)

    def _holds(self, array: NDArray) -> bool:
        """Whether a saved `array` is the value of this leaf."""
        current = self.array
        if current is array:
            return True
        if not isinstance(array, np.ndarray) or array.base is None or current.shape != array.shape:
            return False
        return current.__array_interface__ == array.__array_interface__  # type: ignore[no-any-return]


def _elementwise(op: Elementwise, operands: tuple[Any, ...], arrays: tuple[Any, ...]) -> Any:
    """Compute the result for ndarrays and numbers of any shapes and dtypes; by NumPy alone without promotion."""
    if not any(isinstance(x, Recorded) and x.weak for x in operands):
        kinds = tuple([type(x) if type(x) in LITERALS else x.dtype for x in arrays])
        ready = _READY.get((op, kinds))
        if ready is None:
            ready = _READY[op, kinds] = is_ready(op, kinds)
        if ready:
            try:
                return op.impl(*arrays)
            except ValueError:
                pass  # the op's error about shapes is clearer than NumPy's
    try:
        return op(*[x.array.item() if isinstance(x, Recorded) and x.weak else a for x, a in zip(operands, arrays)])
    except ShapeError as error:
        tensors = any(getattr(x, "common_dtype", None) is not None for x in operands)
        raise (as_pytorchs(error, arrays) if tensors else error) from None


_READY: dict[Any, bool] = {}


class PiecewiseConstantPlan:
    """Marker that replaces a plan: the derivative is 0, but a node is recorded."""

    cls = None


def _cached_plan(
    op: Op, wanted: list[int], operands: tuple[Any, ...], arrays: tuple[Any, ...], params: dict[str, Any]
) -> Any:
    """Return the plan for recording `op`, or None if it is not recorded."""
    if isinstance(op, Elementwise):
        kinds: Any = [type(x) if type(x) in LITERALS else x.dtype for x in arrays]
    else:
        kinds = [(type(x), x) if type(x) in LITERALS else (x.shape, x.dtype) for x in arrays]
    key = (op, *wanted, *kinds, *params.items())
    try:
        result = _PLANS.get(key, key)
    except TypeError:  # a parameter that cannot be hashed
        return _make_plan(op, wanted, arrays, params)
    if result is key:
        if len(_PLANS) >= _MAX_PLANS:
            _PLANS.clear()
        result = _PLANS[key] = _make_plan(op, wanted, arrays, params)
    return result


_PLANS: dict[Any, Any] = {}
_MAX_PLANS = 16384


def _make_plan(
    op: Op, wanted: list[int], arrays: tuple[Any, ...], params: dict[str, Any]
) -> RecordingPlan | type | None:
    active = [k for k in wanted if op.differentiable_in(k)]
    if not active:
        return PiecewiseConstantPlan if op.piecewise_constant else None
    avals: list[Any] = [x if type(x) in LITERALS else Aval(x.shape, x.dtype) for x in arrays]
    if isinstance(op, Elementwise):
        loop = op.loop_dtypes(*[type(x) if type(x) in LITERALS else x.dtype for x in arrays])
        avals = [x if type(x) in LITERALS else Aval((), dtype) for x, dtype in zip(avals, loop)]
    return RecordingPlan(op, active, avals, params)


def _unaliased(x: Any, arrays: tuple[object, ...]) -> Any:
    """Return a result as an array in separate memory; copy it if it shares memory with an operand."""
    if isinstance(x, Carrier):
        return x
    x = np.asarray(x)
    return x.copy() if any(isinstance(a, _ndarray) and np.may_share_memory(x, a) for a in arrays) else x


def new_node(cls: Any, edges: tuple[object, ...]) -> Any:
    """Return a node of a class without `__init__`."""
    node = _new(cls)
    node.edges, node.hooks, node.number = edges, None, next_number()
    return node


def _mark_multi_views(result: object) -> Any:
    """Mark the views that one function returned together, whose in-place updates are errors."""
    if isinstance(result, tuple | list):
        for x in result:
            if isinstance(x, Recorded) and x._base is not None and not x._kind_of_view:
                x._kind_of_view = "several"
    return result
