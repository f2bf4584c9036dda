"""Calls of a `Function` on traced arrays: record the forward pass, and the derivative when it is taken.

The nodes of the forward pass are ordinary nodes, but no derivative flows through them. The outputs pass through the op
`custom_call`, whose derivative is the rule of the call (`tracegrad.ops.calls.custom_call`). Saved values are connected
with the inputs and outputs that callers see, so that second derivatives are correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ops import Carrier
from tracegrad.ops.calls.custom_call import custom_call
from tracegrad.ops.shape.linear import cast, stop_gradient
from tracegrad.torch.autograd.backward_results import Inputs, zeros
from tracegrad.torch.autograd.function_ctx import ARRAYS, NOT_RETURNED, FunctionCtx
from tracegrad.torch.tape.recording.node import Spec
from tracegrad.torch.tape.recording.recorded_array import Recorded

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["call_in_graph"]


class FunctionRule:
    """Derivative rule of one call; `specs` are the specs of the results of `forward` (None: not an array)."""

    chooses = True  # whether `pull` takes `wanted`, which `backward` reads as `ctx.needs_input_grad`

    def __init__(self, cls: Any, context: FunctionCtx, inputs: Inputs, specs: Sequence[Spec | None], like: Any):
        self.cls, self.context, self.inputs, self.specs, self.like = cls, context, inputs, specs, like

    def __repr__(self) -> str:
        return repr(self.cls.__name__)

    def pull(
        self, cotangents: Sequence[Array | None], outputs: Sequence[Array], inputs: tuple[Any, ...], wanted: Any = None
    ) -> Sequence[Any]:
        if wanted is not None:
            positions = {self.inputs.positions[i] for i in wanted}
            self.context.needs_input_grad = tuple([k in positions for k in range(self.inputs.number)])
        supply = iter(cotangents)
        args = [None if spec is None else self._rule_arg(spec, next(supply)) for spec in self.specs]
        result = self.cls.pulled(self.context, args)
        floating = [x.dtype.kind in "fc" for x in inputs]
        arrays = map(_array, self.inputs.cotangents(self.cls._backward_cls.__name__, result, floating))
        return [x if x is None or isinstance(x, Carrier) else y._lift(x) for x, y in zip(arrays, inputs)]

    def push(
        self, tangents: Sequence[Array | None], outputs: Sequence[Array], inputs: tuple[Any, ...]
    ) -> Sequence[Any]:
        args: list[Any] = [None] * self.inputs.number
        for k, spec, t in zip(self.inputs.positions, self.inputs.specs, tangents):
            args[k] = self._rule_arg(spec, t) if spec.dtype.kind in "fc" else None
        result = self.cls.pushed(self.context, args)
        tangents_out = result if isinstance(result, tuple) else (result,)
        if len(tangents_out) != len(self.specs):
            text = f"{self.cls.__name__}.jvp returned {len(tangents_out)} tangents for {len(self.specs)} outputs"
            raise RuntimeError(located(text))
        moved = [t for t, spec in zip(tangents_out, self.specs) if spec is not None]
        return [self._fitted(t, y) for t, y in zip(moved, outputs)]

    def _fitted(self, t: Array | None, output: Any) -> Any:
        """Convert a tangent that the rule returned to the shape and dtype of this output."""
        if t is None or output.dtype.kind not in "fc":
            return None
        t = output._lift(np.asarray(t)[()] if is_literal(t) else _array(t))
        if t.shape != output.shape:
            text = (
                f"{self.cls.__name__}.jvp returned a tangent of shape {t.shape} for an output of shape {output.shape}"
            )
            raise ShapeError(located(text))
        return t if t.dtype == output.dtype else cast(t, dtype=output.dtype.name)

    def batched(self, size: int) -> FunctionRule:
        raise UnsupportedError(located(f"a call of {self.cls.__name__} outside of the function that vmap maps"))

    def _rule_arg(self, spec: Spec, ct: Any) -> object:
        if ct is not None:
            return _as(self.like, ct._alias() if isinstance(ct, Carrier) else ct)  # type: ignore[attr-defined]
        return _as(self.like, zeros(spec)) if self.context.materialize_grads else None


def _array(x: object) -> Any:
    """Return the array of a Tensor; other objects unchanged."""
    return x.array if isinstance(x, Recorded) else x


def _as(like: Any, array: object) -> Any:
    """Convert an array to a Tensor if `like` is one."""
    return like._like(array) if isinstance(like, Recorded) else array


def call_in_graph(cls: Any, args: tuple[Any, ...], owner: Any) -> Any:
    """Compute `cls.apply(*args)` for arguments that include values of a graph, or Tensors that hold them."""
    positions = [k for k, x in enumerate(args) if isinstance(x, Carrier)]
    inputs = [_array(args[k]) for k in positions]
    context: FunctionCtx = cls._context_cls()
    context.needs_input_grad = tuple([k in positions and args[k].dtype.kind in "fc" for k in range(len(args))])
    stopped: list[Any] = [x._weakened(stop_gradient(x)) if x.weak else stop_gradient(x) for x in inputs]
    inside = [_as(args[k], x) for k, x in zip(positions, stopped)]
    arguments = list(args)
    for k, x in zip(positions, inside):
        arguments[k] = x
    before = [x.node for x in stopped]
    result = cls.computed(context, tuple(arguments))
    context.checked(ARRAYS)
    returned = result if isinstance(result, tuple) else (result,)
    dirty = {id(x) for x in context.dirty_tensors}
    if not dirty <= {id(x) for x in returned}:
        raise RuntimeError(located(NOT_RETURNED))
    for k, x, node in zip(positions, inside, before):
        if _array(x).node is not node and id(x) not in dirty:
            text = f"{cls.__name__}.forward updates argument {k} in place; say ctx.mark_dirty, or copy it first"
            raise UnsupportedError(located(text))
    owner_array = _array(owner)
    outputs = [owner_array._lift(x) if isinstance(x, np.ndarray | np.generic) else _array(x) for x in returned]
    specs = [Spec(x.aval.shape, x.aval.dtype) if isinstance(x, Carrier) else None for x in outputs]
    numbers = not isinstance(owner, Recorded)
    rule = FunctionRule(cls, context, Inputs.of(args, positions, numbers), specs, owner)
    pairs = [(x, k) for k, x in enumerate(inside) if id(x) not in dirty]
    call = GraphCall(rule, args, returned, outputs, pairs)
    shown = [_as(y, x) if isinstance(x, Carrier) else x for x, y in zip(_shown(call, inputs), returned)]
    for k, x, real in zip(positions, inside, inputs):
        if id(x) in dirty:
            real._assign(_array(next(z for y, z in zip(returned, shown) if y is x)))
            shown = [args[k] if y is x else z for y, z in zip(returned, shown)]
    return tuple(shown) if isinstance(result, tuple) else shown[0]


class GraphCall:
    """Call and its rule; `forward_result` is the result of `forward`, and `outputs` has its values of the graph.

    `inside` are the arguments of `forward`, with their positions among the inputs.
    """

    def __init__(
        self,
        rule: FunctionRule,
        args: Sequence[Any],
        forward_result: Sequence[Array],
        outputs: Sequence[Any],
        inside: Any,
    ):
        self.rule, self.forward_result, self.outputs, self.inside = rule, forward_result, outputs, inside
        self.context_state = dict(vars(rule.context))
        self.name = rule.cls.__name__
        # Calls with equal keys have equal rules.
        kinds = [(x.aval, x.weak) if isinstance(x, Carrier) else _hashable(x) for x in args]
        self.key = rule.cls, tuple(kinds)

    def connect(self, results: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Save the residuals; the callers' results and inputs replace the values inside, which have no derivatives."""
        context, saved = self.rule.context, self.context_state
        known = {
            id(x): _as(x, y)
            for x, y in zip(self.forward_result, _among(self.outputs, results))
            if isinstance(y, Carrier)
        }
        known |= {id(x): _as(x, inputs[k]) for x, k in self.inside}
        context._saved = [known.get(id(x), x) for x in saved.get("to_save", ())]
        context.to_save = ()
        for name, x in saved.items():
            if id(x) in known:
                setattr(context, name, known[id(x)])

    def pull(self, cotangents: Sequence[Array | None], results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Apply the rule, connected with these results and inputs."""
        self.connect(results, inputs)
        return list(self.rule.pull(cotangents, results, tuple(inputs)))

    def push(self, tangents: Sequence[Array], results: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
        """Apply the rule for tangents, connected with these results and inputs."""
        self.connect(results, inputs)
        return list(self.rule.push(tangents, results, tuple(inputs)))


def _hashable(x: object) -> Any:
    try:
        return type(x), hash(x), x
    except TypeError:
        return type(x), id(x)


def _shown(call: GraphCall, inputs: Sequence[Any]) -> list[Any]:
    """Convert the outputs for the caller."""
    constant = {id(x) for x in call.rule.context.non_differentiable}
    arrays = [x for x in call.outputs if isinstance(x, Carrier)]
    rule, captured = inputs[0]._closed_rule(call, arrays, inputs)
    results = custom_call(*arrays, *inputs, *captured, count=len(arrays), rule=rule) if arrays else ()
    fixed = zip(_among(call.outputs, results), call.forward_result, call.outputs)
    shown = [stop_gradient(x) if id(y) in constant and isinstance(z, Carrier) else x for x, y, z in fixed]
    shown = [z._weakened(x) if getattr(z, "weak", False) else x for x, z in zip(shown, call.outputs)]
    call.connect([x for x in shown if isinstance(x, Carrier)], inputs)
    return shown


def _among(outputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Replace the arrays among the outputs by `results`."""
    supply = iter(results)
    return [next(supply) if isinstance(x, Carrier) else x for x in outputs]
