"""The pass that leaves no complex numbers: each is a pair of real ones, which the compiler knows all about.

A complex value becomes a `Pair`, a carrier of two values of the graph under construction. Applying an op to it applies
what `tracegrad.passes.dtypes.complex_pairs` has for the op; an op that only moves and adds is applied to both parts;
composite ops become their parts; loops and branches carry both. What is left is called: NumPy computes it. In memory,
where calls find their operands, a pair is one array with the parts along a last axis; so are the complex inputs and
outputs of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Aval, aval_of, is_literal
from tracegrad.errors import VerifyError
from tracegrad.ir import Builder, Graph, replay
from tracegrad.ir.builder import recorder, recording
from tracegrad.ir.graph import map_regions
from tracegrad.ops.calls.complex_call import call_joined
from tracegrad.ops.core.forms import Branch, Compose, Identity, Repeat, Run, While
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.complex import lies
from tracegrad.passes.dtypes.complex_pairs import RULES, Pair, joined, moved_together, parted
from tracegrad.passes.dtypes.legalize import has_complex

__all__ = ["in_pairs"]


def in_pairs(graph: Graph) -> Graph:
    """`graph` over real numbers: see `without_complex`."""
    builder = Parting()
    with recording(builder):
        inputs = [parted(builder.input(lies(x.aval)), x.aval) for x in graph.inputs]
        outputs, _ = replay(graph, inputs)
        found = builder.build([joined(y) for y in outputs])
    return found.named(graph.names) if graph.names else found


class Parting(Builder):
    """A builder of a graph without complex numbers, to which ops on pairs can be applied."""

    def emit(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        avals = [x if is_literal(x) else aval_of(x) for x in operands]
        of_regions = isinstance(op.form, Repeat | While | Branch | Run)
        if not of_regions and not any([isinstance(x, Pair) for x in operands]):  # noqa: C419 (asked of every node)
            found = op.aval(*avals, **params)
            if not any([x.dtype.kind == "c" for x in _several(found)]):  # noqa: C419
                return super().emit(op, operands, params)
        rule = RULES.get(op)
        found = rule(*operands, **params) if rule is not None else NotImplemented
        if found is NotImplemented:
            return self._apart(op, operands, params, avals)
        if aval_of(found) != (wanted := op.aval(*avals, **params)):
            raise VerifyError(f"in pairs, {op.name} gives {aval_of(found)} instead of {wanted}")
        return found

    def _apart(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any], avals: list[Any]) -> Any:
        match op.form:
            case Identity():
                return operands[0]
            case Run() if params["inlined"]:
                return tuple(replay(params["body"], operands)[0])
            case Repeat() | While() | Branch() | Run():
                return self._of_regions(op, operands, params, avals)
            case Compose(parts, moves) if not moves:
                return parts(*operands, **params)
        return self._moved(op, operands, params) if op.form.moves else self._called(op, operands, params, avals)

    def _moved(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """An op that moves and adds, applied to what pairs lie in memory as, or to both parts."""
        if (found := moved_together(op, operands, params)) is not None:
            return found
        re, im = (self.emit(op, tuple([_part(x, k) for x in operands]), _params(params, k)) for k in (0, 1))
        return tuple(map(Pair, re, im)) if isinstance(re, tuple) else Pair(re, im)

    def _called(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any], avals: list[Any]) -> Any:
        """An op that NumPy computes."""
        pairs = tuple([isinstance(x, Pair) for x in operands])
        found = call_joined(*map(joined, operands), op=op.name, given=tuple(sorted(params.items())), joined=pairs)
        if not isinstance(found, tuple):
            return parted(found, op.aval(*avals, **params))
        return tuple(map(parted, found, _several(op.aval(*avals, **params))))

    def _of_regions(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any], avals: list[Any]) -> Any:
        """A loop or a branch: regions take and give both parts of what is complex, one after the other."""
        results = _several(op.aval(*avals, **params))
        inner = dict(map_regions(tuple(params.items()), _parted_region))
        given = [1 + isinstance(x, Pair) for x in operands]
        if "carries" in params:
            carries = params["carries"]
            inner["carries"] = sum(given[:carries])
            if "xs" in params:
                inner["xs"] = sum(given[carries : carries + params["xs"]])
        flat = iter(super().emit(op, tuple(_flat(operands)), inner))
        return tuple([_taken(flat, aval) for aval in results])


def _parted_region(graph: Graph) -> Graph:
    """A region over real numbers, of which each complex input and output has become two."""
    if not has_complex(graph):
        return graph
    builder = Parting()
    builder.around = recorder()
    with recording(builder):
        inputs = []
        for x in graph.inputs:
            real = lies(x.aval).dtype
            parts = [builder.input(Aval(x.aval.shape, real)) for _ in range(1 + (x.aval.dtype.kind == "c"))]
            inputs.append(Pair(*parts) if len(parts) == 2 else parts[0])
        outputs, _ = replay(graph, inputs)
        return builder.build(_flat(outputs))


def _several(aval: Any) -> Sequence[Aval]:
    return aval if isinstance(aval, tuple) else (aval,)


def _flat(xs: Sequence[Any]) -> list[Any]:
    return [part for x in xs for part in ((x.re, x.im) if isinstance(x, Pair) else (x,))]


def _taken(flat: Any, aval: Aval) -> Any:
    return Pair(next(flat), next(flat)) if aval.dtype.kind == "c" else next(flat)


def _params(params: dict[str, Any], k: int) -> dict[str, Any]:
    """The parameters of an op that moves one of the parts: `value` is a number that it puts in."""
    return {**params, "value": _part(complex(params["value"]), k)} if "value" in params else params


def _part(x: Any, k: int) -> Any:
    """The real part of an operand or parameter, or with `k` the imaginary one; what is real stays."""
    if isinstance(x, Pair):
        return x.im if k else x.re
    return (x.real, x.imag)[k] if type(x) is complex else x
