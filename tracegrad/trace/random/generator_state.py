"""Trace generator states as values, for loops and branches that draw random numbers.

If a loop that draws also reads values, the number of draws is unknown. The trace then restarts with
`TraceFact.STREAMS`: generator states are inputs, and each draw is an op from a state to the next state
(`tracegrad.ops.calls.random_streams`). Loops and branches carry the states, and the last state is written to the
generator after the call. The generator does not move before that, so the call can still run in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir.builder import node_of
from tracegrad.ops.calls.random_streams import draw, draw_by, is_stream, kind_of, sample
from tracegrad.ops.shape.linear import fresh
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import TraceFact
from tracegrad.trace.loops.range_counter import MIN_FOLDED_AROUND, Counter

_ATOMS = (type(None), bool, int, float, str)
_MAX_CACHED = 1024
# Class, shape and dtype of the results of methods, by the generator, the method, and the known arguments.
_RESULTS: dict[Any, tuple[type, tuple[int, ...], str]] = {}


def are_wanted(world: Any) -> bool:
    """Whether generator states are traced values in this trace."""
    return TraceFact.STREAMS in world.facts and TraceFact.NO_STREAMS not in world.facts


def require(builder: TraceBuilder) -> None:
    """Restart the trace with generator states as values, if they are not values yet and can be."""
    facts, draws = builder.world.facts, builder.world.draws
    if (
        TraceFact.STREAMS not in facts
        and TraceFact.NO_STREAMS not in facts
        and draws is not None
        and all(map(is_stream, draws.reals))
    ):
        raise builder.restarts(TraceFact.STREAMS, "a loop over values draws random numbers")


def require_for_iterations(builder: TraceBuilder, before: Any, now: Any, counters: Sequence[Counter]) -> None:
    """As `require`, if something was drawn between two states of a loop that has enough iterations."""
    drew = before is not None and now.drawn != before.state.drawn
    if drew and all(x.length is None or x.length >= MIN_FOLDED_AROUND for x in counters):
        require(builder)


class Stream:
    """The state of a generator in the current trace, read by the step of this number."""

    def __init__(self, builder: TraceBuilder, real: Any, state: Any, draw_number: int):
        self.builder, self.draw_number, self.kind, self.moved = builder, draw_number, kind_of(real), False
        # A separate value, as the later states are.
        self.value = builder.value(node_of(fresh(state, tag=builder.new_tag())))

    def draw(self, method: str, args: Sequence[Any], kwargs: dict[str, Any], strong: bool) -> Any:
        """The result of a method, as a tracer; None if the method is unsupported."""
        builder, operands = self.builder, list[Any]()

        def written(x: object) -> Any:
            x = _literal(x)
            if not isinstance(x, np.ndarray) and not hasattr(x, "node"):
                return ("is", x)
            operands.append(builder.lift(x))
            return ("of", len(operands) - 1)

        try:
            params = {
                "kind": self.kind,
                "method": method,
                "args": tuple(map(written, args)),
                "kwargs": tuple([(name, written(x)) for name, x in kwargs.items()]),
            }
        except TypeError:
            raise builder.restarts(TraceFact.NO_STREAMS, f"{method} is given what is no value of a graph") from None
        cls, shape, dtype = _result(builder, params, operands)
        op = draw_by if operands else draw
        state, result_value = op(self.value, *operands, shape=shape, dtype=dtype, **params)
        self.value.node, self.moved = node_of(state), True
        if cls is type(None):
            return None
        if cls is np.ndarray:
            result = builder.value(node_of(result_value))
            result.is_array = True
            return result.zero_d()
        if cls is bool:
            return builder.python_number(node_of(result_value))
        return (builder.make if strong or issubclass(cls, np.generic) else builder.make_number)(
            builder, node_of(result_value)
        )


def _literal(x: object) -> Any:
    """An argument as a literal of a graph, an array, or a tracer; raises TypeError for others."""
    if isinstance(x, _ATOMS) and type(x) in _ATOMS:
        return x
    if isinstance(x, type | np.dtype):
        return np.dtype(x).name
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, tuple) and all(type(each) in _ATOMS for each in x):
        return x
    if isinstance(x, list | tuple):
        integers = all(type(each) is int for each in x)
        x = tuple(x) if integers else np.asarray(x)
    if isinstance(x, tuple) or hasattr(x, "node") or (isinstance(x, np.ndarray) and x.dtype.kind in "biuf"):
        return x
    raise TypeError


def _result(
    builder: TraceBuilder, params: dict[str, Any], operands: Sequence[Any]
) -> tuple[type, tuple[int, ...], str]:
    """The class, shape and dtype of a method's result."""
    args = [repr(params[name]) for name in params]
    key = (*args, *[x.aval for x in operands])
    results = _RESULTS.get(key)
    if results is None:
        example = sample(tuple([builder.compute(x.node) for x in operands]), params)
        aval = (
            Aval(np.shape(example), np.asarray(example).dtype) if example is not None else Aval((0,), np.dtype(float))
        )
        results = type(example), aval.shape, aval.dtype.name
        if len(_RESULTS) >= _MAX_CACHED:
            del _RESULTS[next(iter(_RESULTS))]
        _RESULTS[key] = results
    return results
