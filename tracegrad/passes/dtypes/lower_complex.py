"""Lower complex dtypes to pairs of real values.

A complex value becomes a `ComplexPair`, a carrier of two values of the graph under construction. An op on it applies
its rule in `tracegrad.passes.dtypes.complex_pairs`. An op that only moves and adds is applied to both parts. Composite
ops are decomposed, and loops and branches carry both parts. Any other op is a NumPy call. In memory a pair is one array
with the parts along a last axis. Operands of calls, and the complex inputs and outputs of a graph, have this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import Aval, aval_of, is_literal
from tracegrad.errors import VerifyError
from tracegrad.ir import Builder, Graph, replay
from tracegrad.ir.builder import recorder, recording
from tracegrad.ir.graph import map_regions
from tracegrad.ops.calls.complex_call import call_joined
from tracegrad.ops.core.forms import Branch, Compose, IdentityForm, Repeat, Run, While
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.ops.elementwise.complex import memory_aval
from tracegrad.passes.dtypes import complex_functions  # noqa: F401 (which adds its rules to `RULES`)
from tracegrad.passes.dtypes.complex_pairs import RULES, ComplexPair, joined, moved_together, parted
from tracegrad.passes.dtypes.legalize import has_complex

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def in_pairs(graph: Graph) -> Graph:
    """`graph` over real numbers: see `without_complex`."""
    builder = Parting()
    with recording(builder):
        inputs = [parted(builder.input(memory_aval(x.aval)), x.aval) for x in graph.inputs]
        outputs, _ = replay(graph, inputs)
        result = builder.build([joined(y) for y in outputs])
    return result.named(graph.names) if graph.names else result


class Parting(Builder):
    """Builder of a graph without complex numbers, which applies ops to pairs."""

    def emit(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        avals = [x if is_literal(x) else aval_of(x) for x in operands]
        of_regions = isinstance(op.form, Repeat | While | Branch | Run)
        if not of_regions and not any([isinstance(x, ComplexPair) for x in operands]):  # noqa: C419 (asked of every node)
            result = op.aval(*avals, **params)
            if not any([x.dtype.kind == "c" for x in _result_avals(result)]):  # noqa: C419
                return super().emit(op, operands, params)
        rule = RULES.get(op)
        result = rule(*operands, **params) if rule is not None else NotImplemented
        if result is NotImplemented:
            return self._lower_by_form(op, operands, params, avals)
        if aval_of(result) != (wanted := op.aval(*avals, **params)):
            raise VerifyError(f"in pairs, {op.name} gives {aval_of(result)} instead of {wanted}")
        return result

    def _lower_by_form(
        self, op: Op, operands: tuple[Any, ...], params: dict[str, Any], avals: list[Aval | complex]
    ) -> object:
        match op.form:
            case IdentityForm():
                return operands[0]
            case Run() if params["inlined"]:
                return tuple(replay(params["body"], operands)[0])
            case Repeat() | While() | Branch() | Run():
                return self._of_regions(op, operands, params, avals)
            case Compose(parts, moves) if not moves:
                return parts(*operands, **params)
        return self._moved(op, operands, params) if op.form.moves else self._called(op, operands, params, avals)

    def _moved(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Apply an op that moves and adds to the memory representations of pairs, or to both parts."""
        if (result := moved_together(op, operands, params)) is not None:
            return result
        re, im = (self.emit(op, tuple([_part(x, k) for x in operands]), _params(params, k)) for k in (0, 1))
        return tuple(map(ComplexPair, re, im)) if isinstance(re, tuple) else ComplexPair(re, im)

    def _called(self, op: Op, operands: tuple[object, ...], params: dict[str, object], avals: list[Any]) -> Any:
        """Apply an op by a call of NumPy."""
        pairs = tuple([isinstance(x, ComplexPair) for x in operands])
        result = call_joined(*map(joined, operands), op=op.name, op_params=tuple(sorted(params.items())), joined=pairs)
        if not isinstance(result, tuple):
            return parted(result, op.aval(*avals, **params))
        return tuple(map(parted, result, _result_avals(op.aval(*avals, **params))))

    def _of_regions(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any], avals: list[Any]) -> Any:
        """Lower a loop or a branch: its regions take and return both parts of complex values, in sequence."""
        results = _result_avals(op.aval(*avals, **params))
        inner = dict(map_regions(tuple(params.items()), _parted_region))
        part_counts = [1 + isinstance(x, ComplexPair) for x in operands]
        if "carries" in params:
            carries = params["carries"]
            inner["carries"] = sum(part_counts[:carries])
            if "xs" in params:
                inner["xs"] = sum(part_counts[carries : carries + params["xs"]])
        flat = iter(super().emit(op, tuple(_flat(operands)), inner))
        return tuple([_next_value(flat, aval) for aval in results])


def _parted_region(graph: Graph) -> Graph:
    """A region over real numbers, with two inputs or outputs for each complex one."""
    if not has_complex(graph):
        return graph
    builder = Parting()
    builder.around = recorder()
    with recording(builder):
        inputs = []
        for x in graph.inputs:
            real = memory_aval(x.aval).dtype
            parts = [builder.input(Aval(x.aval.shape, real)) for _ in range(1 + (x.aval.dtype.kind == "c"))]
            inputs.append(ComplexPair(*parts) if len(parts) == 2 else parts[0])
        outputs, _ = replay(graph, inputs)
        return builder.build(_flat(outputs))


def _result_avals(aval: Aval | ResultAvals) -> Sequence[Aval]:
    return aval if isinstance(aval, tuple) else (aval,)


def _flat(xs: Sequence[Any]) -> list[Any]:
    return [part for x in xs for part in ((x.re, x.im) if isinstance(x, ComplexPair) else (x,))]


def _next_value(flat: Any, aval: Aval) -> Operand:
    return ComplexPair(next(flat), next(flat)) if aval.dtype.kind == "c" else next(flat)


def _params(params: dict[str, Any], k: int) -> dict[str, Any]:
    """The parameters of an op that moves one part; its fill `value` becomes the part of it."""
    return {**params, "value": _part(complex(params["value"]), k)} if "value" in params else params


def _part(x: Operand, k: int) -> Any:
    """The real part of an operand or parameter, or with `k` the imaginary part; real values unchanged."""
    if isinstance(x, ComplexPair):
        return x.im if k else x.re
    return (x.real, x.imag)[k] if type(x) is complex else x
