"""Calls of a `Function` on traced arrays: its forward pass is recorded, and its derivative where one is taken.

The nodes of the forward pass are like any others, but no derivative flows through them: the outputs leave them through
`custom_call`, and derivatives go to the rule of the call (`tracegrad.ops.custom`). What is saved is connected with the
inputs and outputs as callers see them, so that a derivative of the derivative is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ops import Carrier
from tracegrad.ops.custom import custom_call
from tracegrad.ops.linear import cast, stop_gradient
from tracegrad.torch.autograd.context import ARRAYS, NOT_RETURNED, FunctionCtx
from tracegrad.torch.autograd.gradients import Inputs, zeros
from tracegrad.torch.tape.tape import Spec

__all__ = ["call_in_graph"]


class FunctionRule:
    """The derivative of one call; `specs` are those of what `forward` returned (None: not an array)."""

    def __init__(self, cls: Any, context: FunctionCtx, inputs: Inputs, specs: Sequence[Spec | None]):
        self.cls, self.context, self.inputs, self.specs = cls, context, inputs, specs

    def __repr__(self) -> str:
        return repr(self.cls.__name__)

    def pull(self, cotangents: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        supply = iter(cotangents)
        given = [None if spec is None else self._given(spec, next(supply)) for spec in self.specs]
        result = self.cls.pulled(self.context, given)
        floating = [x.dtype.kind in "fc" for x in inputs]
        found = self.inputs.cotangents(self.cls._backward_cls.__name__, result, floating)
        return [x if x is None or isinstance(x, Carrier) else y._lift(x) for x, y in zip(found, inputs)]

    def push(self, tangents: Sequence[Any], outputs: Sequence[Any], inputs: tuple[Any, ...]) -> Sequence[Any]:
        given: list[Any] = [None] * self.inputs.number
        for k, spec, t in zip(self.inputs.places, self.inputs.specs, tangents):
            given[k] = self._given(spec, t) if spec.dtype.kind in "fc" else None
        result = self.cls.pushed(self.context, given)
        found = result if isinstance(result, tuple) else (result,)
        if len(found) != len(self.specs):
            text = f"{self.cls.__name__}.jvp returned {len(found)} tangents for {len(self.specs)} outputs"
            raise RuntimeError(located(text))
        moved = [t for t, spec in zip(found, self.specs) if spec is not None]
        return [self._fitted(t, y) for t, y in zip(moved, outputs)]

    def _fitted(self, t: Any, output: Any) -> Any:
        """A tangent that the rule returned, as one of this output."""
        if t is None or output.dtype.kind not in "fc":
            return None
        t = output._lift(np.asarray(t)[()] if is_literal(t) else t)
        if t.shape != output.shape:
            text = (
                f"{self.cls.__name__}.jvp returned a tangent of shape {t.shape} for an output of shape {output.shape}"
            )
            raise ShapeError(located(text))
        return t if t.dtype == output.dtype else cast(t, dtype=output.dtype.name)

    def _given(self, spec: Spec, ct: Any) -> Any:
        if ct is not None:
            return ct._alias() if isinstance(ct, Carrier) else ct  # type: ignore[attr-defined]
        return zeros(spec) if self.context.materialize_grads else None


def call_in_graph(cls: Any, args: tuple[Any, ...], owner: Any) -> Any:
    """The result of `cls.apply(*args)`, where some arguments are values of a graph."""
    places = [k for k, x in enumerate(args) if isinstance(x, Carrier)]
    inputs = [args[k] for k in places]
    context: FunctionCtx = cls._context_cls()
    context.needs_input_grad = tuple([k in places and args[k].dtype.kind in "fc" for k in range(len(args))])
    inside = [x._weakened(stop_gradient(x)) if x.weak else stop_gradient(x) for x in inputs]
    given = list(args)
    for k, x in zip(places, inside):
        given[k] = x
    before = [x.node for x in inside]
    result = cls.computed(context, tuple(given))
    context.checked(ARRAYS)
    given_back = result if isinstance(result, tuple) else (result,)
    dirty = {id(x) for x in context.dirty_tensors}
    if not dirty <= {id(x) for x in given_back}:
        raise RuntimeError(located(NOT_RETURNED))
    for k, x, node in zip(places, inside, before):
        if x.node is not node and id(x) not in dirty:
            text = f"{cls.__name__}.forward updates argument {k} in place; say ctx.mark_dirty, or copy it first"
            raise UnsupportedError(located(text))
    outputs = [owner._lift(x) if isinstance(x, np.ndarray | np.generic) else x for x in given_back]
    specs = [Spec(x.aval.shape, x.aval.dtype) if isinstance(x, Carrier) else None for x in outputs]
    rule = FunctionRule(cls, context, Inputs.of(args, places, numbers=True), specs)
    shown = _shown(context, rule, given_back, outputs, inputs)
    known = {id(x): y for x, y in zip(given_back, shown) if isinstance(y, Carrier)}
    for x, real in zip(inside, inputs):
        if id(x) in dirty:
            real._assign(known[id(x)])
            shown = [real if y is x else z for y, z in zip(given_back, shown)]
        else:
            known[id(x)] = real
    _connect(context, known)
    return tuple(shown) if isinstance(result, tuple) else shown[0]


def _shown(
    context: FunctionCtx, rule: FunctionRule, given: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any]
) -> list[Any]:
    """The outputs as the caller gets them."""
    constant = {id(x) for x in context.non_differentiable}
    arrays = [x for x in outputs if isinstance(x, Carrier)]
    results = iter(custom_call(*arrays, *inputs, count=len(arrays), rule=rule) if arrays else ())
    shown = [next(results) if isinstance(x, Carrier) else x for x in outputs]
    return [stop_gradient(x) if id(y) in constant and isinstance(x, Carrier) else x for x, y in zip(shown, given)]


def _connect(context: FunctionCtx, known: Mapping[int, Any]) -> None:
    """Save what is to be saved, with the inputs and outputs of the call (`known`, by the ids of those of `forward`) in
    the place of those that no derivative flows through."""
    context._saved = [known.get(id(x), x) for x in context.to_save]
    context.to_save = ()
    for name, x in list(vars(context).items()):
        if id(x) in known:
            setattr(context, name, known[id(x)])
