"""Calls of a `Function` on the eager tape: one node each, whose backward pass is the function's."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import ArrayMethods
from tracegrad.ops.shape.linear import reshape
from tracegrad.torch.autograd.backward_results import Inputs, zeros
from tracegrad.torch.autograd.function_ctx import ARRAYS, NOT_RETURNED, FunctionCtx, SavedTensor, like
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.dual import paused, set_tangent, tangent_of
from tracegrad.torch.tape.recording.node import RELEASED, Node, Spec, next_number, unmasked
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors import inplace_updates

if TYPE_CHECKING:
    from tracegrad.torch.tape.backward.hooks import Hooks
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["FunctionNode", "call_on_tape"]

_new = object.__new__
# The kinds of views that a function with one output makes, and with several.
_OF_FUNCTION = "custom", "several"
# Sets the tape's attributes of a node; attributes that users set are stored in the context.
_set = object.__setattr__


class FunctionNode(Node):
    """Node of one call of a `Function`, with an edge for each array among its arguments.

    `specs` are the specs of the outputs (None: not an array); `backward` receives cotangents as values of the class
    `public_class`.
    """

    __slots__ = ("context", "count", "inputs", "public_class", "specs")
    is_multi_result = True
    _forward_cls: Any
    context: FunctionCtx
    count: int
    inputs: Inputs
    specs: Sequence[Spec | None]

    def pull(self, cts: Any, recording: bool) -> Sequence[Array]:
        context = self.context
        args = [self._rule_arg(spec, ct, recording) for spec, ct in zip(self.specs, cts)]
        result = self._forward_cls.pulled(context, args)
        cotangents = self.inputs.cotangents(self.name(), result, self.edges)
        return cotangents if recording else [x.array if isinstance(x, Recorded) else x for x in cotangents]

    def _rule_arg(self, spec: Spec | None, ct: Array, recording: bool) -> Any:
        if ct is None:
            if spec is None or not self.context.materialize_grads:
                return None
            ct = zeros(spec)
        elif recording:
            return unmasked(ct)
        return like(self.public_class, np.asarray(unmasked(ct)) if isinstance(ct, np.generic) else unmasked(ct), None)

    def release(self) -> None:
        if self.context._saved:
            self.context._saved = RELEASED

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        for x in self.context._saved:
            if x.__class__ is SavedTensor:
                x.pack(self, pack, unpack)

    # -- attributes for users ----------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "context":
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        context = self.context
        result = vars(context).get(name, self)
        if result is self:
            if name.startswith("_") or not hasattr(FunctionCtx, name):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
            return getattr(context, name)
        return result

    def __setattr__(self, name: str, value: Hooks) -> None:
        if name in _SLOTS:
            _set(self, name, value)
        else:
            setattr(self.context, name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(k for k in dir(self.context) if not k.startswith("_"))]

    def __repr__(self) -> str:
        return object.__repr__(self)


_SLOTS = frozenset({*Node.__slots__, *FunctionNode.__slots__, "__class__"})


def call_on_tape(cls: Any, args: tuple[Tensor, ...], owner: Recorded) -> Any:
    """Compute `cls.apply(*args)`, with a node if grad mode and an argument require one."""
    positions = [k for k, x in enumerate(args) if isinstance(x, Recorded)]
    inputs = [args[k] for k in positions]
    context: FunctionCtx = cls._context_cls()
    context.needs_input_grad = tuple([isinstance(x, Recorded) and x._requires for x in args])
    node = None
    if STATE.enabled and any(x._requires for x in inputs):
        node = _node(cls, context, args, positions, owner._public_class)
    tangents = [tangent_of(x) for x in args] if STATE.level is not None else []
    mode, STATE.enabled = STATE.enabled, False
    try:
        with paused():
            result = cls.computed(context, args)
        context.checked(ARRAYS)
        outputs = result if isinstance(result, tuple) else (result,)
        call = _TapeCall(context, inputs, node, owner, mode)
        shown = [call.output(k, x, len(outputs)) for k, x in enumerate(outputs)]
        call.check_dirty(outputs)
    finally:
        STATE.enabled = mode
    if node is not None:
        call.complete(outputs, shown)
        if STATE.unusual:
            owner._unusually(owner, node)
    if any(t is not None for t in tangents):
        _push(cls, context, args, tangents, shown)
    if context.dirty_tensors or context.non_differentiable:
        context.dirty_tensors = context.non_differentiable = ()  # or the node would hold its own results
    return tuple(shown) if isinstance(result, tuple) else shown[0]


def _push(
    cls: Any, context: FunctionCtx, args: Sequence[Any], tangents: Sequence[Tensor], outputs: Sequence[object]
) -> None:
    """Set the tangents of the outputs to the results of the function's `jvp`."""
    with paused():
        inputs = [
            zeros(x)
            if t is None and isinstance(x, Recorded) and x.dtype.kind in "fc" and context.materialize_grads
            else t
            for x, t in zip(args, tangents)
        ]
        inputs = [
            like(type(x)._public_class, t, None) if isinstance(t, np.ndarray) else t for x, t in zip(args, inputs)
        ]
        versions = {id(t): t._counter[0] for t in inputs if isinstance(t, Recorded) and t._counter is not None}
        result = cls.pushed(context, inputs)
    context.saved_for_forward = ()
    result = result if isinstance(result, tuple) else (result,)
    if len(result) != len(outputs):
        raise RuntimeError(
            located(
                "Function's jvp returned an invalid number of forward gradients "
                f"(expected {len(outputs)} but got {len(result)})"
            )
        )
    constant = {id(x) for x in context.non_differentiable}
    dirty = {id(x): t for x, t in zip(args, tangents) if any(x is y for y in context.dirty_tensors)}
    for k, (out, t) in enumerate(zip(outputs, result)):
        before = dirty.get(id(out))
        if before is not None and (t is not before or before._counter[0] == versions[id(before)]):
            raise RuntimeError(located(_TANGENT_NOT_IN_PLACE))
        if t is not None and _is_view_of(out, args) and isinstance(t, Recorded) and t._base is None and before is None:
            text = "a view (or an input as-is) but the jvp is not returning a view"
            raise RuntimeError(located(f"A custom Function's forward is returning {text}."))
        if t is not None and not (isinstance(out, Recorded) and out.dtype.kind in "fc" and id(out) not in constant):
            raise RuntimeError(
                located(
                    f"Function's jvp returned a gradient at position {k}, but the corresponding forward output is not "
                    "a differentiable Tensor. You should return None at that position instead."
                )
            )
        if isinstance(out, Recorded) and out.dtype.kind in "fc" and id(out) not in dirty:
            set_tangent(out, t)


def _is_view_of(out: object, args: Sequence[object]) -> bool:
    """Whether an output is a view of an argument, or of the base of one."""
    base = out._base if isinstance(out, Recorded) else None
    return base is not None and any(base is x or base is getattr(x, "_base", None) for x in args)


_TANGENT_NOT_IN_PLACE = (
    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an "
    "input inplace, then the jvp function must modify the corresponding gradient inplace."
)


def _node(
    cls: Any, context: FunctionCtx, args: Sequence[Any], positions: Sequence[int], public_class: type
) -> FunctionNode:
    node: FunctionNode = _new(cls._backward_cls)
    _set(node, "context", context)
    _set(node, "public_class", public_class)
    _set(node, "hooks", None)
    _set(node, "number", next_number())
    _set(node, "inputs", Inputs.of(args, positions, issubclass(public_class, ArrayMethods)))
    _set(node, "edges", tuple([args[k]._edge_of() for k in positions]))
    context._node = weakref.ref(node)
    return node


class _TapeCall:
    """Call whose forward pass has run: conversion of its outputs."""

    def __init__(
        self, context: FunctionCtx, inputs: Sequence[Any], node: FunctionNode | None, owner: Recorded, grad_mode: bool
    ):
        self.context, self.inputs, self.node, self.owner, self.grad_mode = context, inputs, node, owner, grad_mode
        self.dirty = {id(x) for x in context.dirty_tensors}
        self.constant = {id(x) for x in context.non_differentiable}
        self.input_ids = {id(x) for x in inputs}

    def output(self, k: int, x: Any, count: int) -> Any:
        """Convert output `k` for the caller."""
        x = self._lifted(x, self.owner) if isinstance(self.owner, ArrayMethods) else x
        if not isinstance(x, Recorded):
            return x
        is_input, is_dirty = id(x) in self.input_ids, id(x) in self.dirty
        if is_dirty and is_input:
            inplace_updates.bump(x)
        differentiable = self.node is not None and id(x) not in self.constant and x.dtype.kind in "fc"
        if is_dirty and not is_input:
            _warn_of_dirty(x)
        if not differentiable:
            return x if is_dirty else self._constant(x, is_input, count)
        edge = (self.node, k) if k else self.node
        if is_dirty and is_input:
            self._rebase(x, edge, count)
            return x
        if is_input or (x._requires and x._edge is None):
            x = _alias(x)
        x._requires, x._edge = True, edge
        if x._base is not None:
            x._kind_of_view = _OF_FUNCTION[count > 1]
        return x

    def _constant(self, x: Any, is_input: bool, count: int) -> Any:
        """Convert an output without a derivative."""
        if is_input or x._requires:
            x = _detached(x) if x._requires else _alias(x)
        if self.grad_mode and x._base is not None:
            x._kind_of_view = _OF_FUNCTION[count > 1]
        return x

    def _lifted(self, x: Any, owner: Any) -> Any:
        """Lift an output for NumPy code to the tape: a float that `forward` returned has a derivative too."""
        if isinstance(x, float | complex) and not isinstance(x, np.generic):
            return owner._weakened(owner._lift(np.asarray(x)))
        if not isinstance(x, np.ndarray | np.generic):
            return x
        constant = id(x) in self.constant
        x = owner._lift(x)
        if constant:
            self.constant.add(id(x))
        return x

    def _rebase(self, x: Recorded, edge: object, count: int) -> None:
        """Set the history of `x`, which was updated in place, to the one that begins at `edge`."""
        if x._base is not None:
            inplace_updates.check_view(x)
        if x._requires and x._edge is None:
            raise RuntimeError(located("a leaf Variable that requires grad has been used in an in-place operation."))
        if x._base is not None and count > 1:
            raise RuntimeError(located(_VIEW_OF_MULTI_OUTPUT))
        assert self.node is not None
        old = next(e for y, e in zip(self.inputs, self.node.edges) if y is x)
        inplace_updates.rebase(x, old, like(type(x)._public_class, x.array, edge))

    def check_dirty(self, outputs: Sequence[Array]) -> None:
        """Raise RuntimeError if an input was updated in place and is not returned."""
        if not self.dirty <= {id(x) for x in outputs}:
            raise RuntimeError(located(NOT_RETURNED))

    def complete(self, outputs: Sequence[Array], shown: Sequence[object]) -> None:
        """Set the node's output specs and saved values."""
        node, context = self.node, self.context
        assert node is not None
        absent = set() if context._materialize_non_diff_grads else self.constant
        _set(
            node,
            "specs",
            [
                Spec(x.shape, x.dtype) if isinstance(x, Recorded) and id(y) not in absent else None
                for x, y in zip(shown, outputs)
            ],
        )
        _set(node, "count", len(shown))
        edges = {id(x): e for x, e in zip(self.inputs, node.edges)}
        numbers = {id(x): k for k, x in enumerate(outputs) if id(x) not in edges or id(x) in self.dirty}
        saved: list[Any] = []
        for x in context.to_save:
            number = numbers.get(id(x), -1)
            x = shown[number] if number >= 0 else x
            edge = edges[id(x)] if id(x) in edges else x._edge_of() if isinstance(x, Recorded) else None
            saved.append(SavedTensor(x, edge if number < 0 else None, number) if isinstance(x, Recorded) else x)
        context._saved, context.to_save = saved, ()


def _warn_of_dirty(x: Recorded) -> None:
    """Warn of an output marked as dirty that is no input; raise if it is a view."""
    text = (
        "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated should be "
        "passed to ctx.mark_dirty()."
    )
    if x._base is not None:
        raise RuntimeError(located(text))
    warnings.warn(located(text), UserWarning, stacklevel=2)


def _alias(x: Recorded) -> Recorded:
    """Return a view of all of `x`."""
    result: Recorded = x.bind(reshape, (x,), {"shape": x.shape})
    return result


def _detached(x: Recorded) -> Recorded:
    """Return a value in the memory of `x`, with its version counter, but not registered as a view."""
    out: Recorded = like(type(x)._public_class, _alias(x).array, None)
    out._counter = x._counter
    return out


_VIEW_OF_MULTI_OUTPUT = (
    "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more "
    "than one Tensor. This is not supported by the current autograd engine. You should either make sure the input is "
    "not a view (using .clone() for example) or make your Function only return one Tensor (potentially splitting it "
    "into two Functions: one doing the inplace that returns a single Tensor and a second one that does the other "
    "operations)."
)
