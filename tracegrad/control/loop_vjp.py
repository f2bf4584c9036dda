"""Reverse mode through loops: the residuals of an iteration, and the body of the backward loop.

An iteration takes `carries`, then rows of arrays, then constants. Its derivative is computed once, for the body. The
forward iteration saves the residuals of the backward iteration, chosen by a minimum cut (`transforms.partition`). Rows
and constants are not saved, because they exist anyway. Counters follow from the iteration number. Values that depend on
constants alone are computed once outside the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.control.region_ops import run_region
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ir.builder import sliced
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ops.elementwise.table import accumulate
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.transforms.partition import partition
from tracegrad.transforms.vjp_graph import active_outputs, joint
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def differentiable(body: Graph, wanted: Sequence[int], carries: int) -> list[int]:
    """The inputs of a body that depend differentiably on the inputs `wanted` in some iteration."""
    active = {i for i in wanted if body.avals[i].is_inexact}
    while not (reached := {k for k in active_outputs(body, active) if k < carries}) <= active:
        active |= reached
    return sorted(active)


@record(eq=False)
class IterationVjp:
    """The forward and the backward pass of one iteration.

    `forward` is the body with `residuals` further results. `live` are the carries with cotangents. The backward
    iteration reads the cotangents of the results `seeded` (carries first), and computes cotangents of some inputs.
    `backward` takes `values`, then the cotangents of `seeded`, and returns the cotangents of the inputs. A value is
    `("residual", k)`, `("input", i)`, `("counter", i)` or `("outside", k)`. The last one is result k of `outside`, a
    function of the constants. An iteration adds `steps[i]` to carry i, a counter.
    """

    forward: Graph
    residuals: int
    live: list[int]
    seeded: list[int]
    reached: list[int]
    backward: Graph
    values: list[tuple[str, int]]
    outside: Graph
    counter_steps: dict[int, int]

    def cotangents(self, value: Callable[..., object], cts: Sequence[object]) -> dict[int, Any]:
        """The cotangents of inputs by position, computed from the cotangents of `seeded`."""
        operands = [value(*each) for each in self.values]
        return dict(zip(self.reached, run_region(self.backward, [*operands, *cts])))

    def needed(self, sort: str) -> list[int]:
        """The numbers of the residuals of this sort."""
        return [k for name, k in self.values if name == sort]


def iteration_of(
    loop: LoopView,
    wanted: Sequence[int],
    cts: Sequence[int],
    iterations: int,
    spared: Sequence[int],
    counter_steps: dict[int, int] | None = None,
) -> IterationVjp:
    """The two passes of an iteration for derivatives with respect to the inputs `wanted`, if the results `cts` have
    cotangents.

    `iterations` is the maximal number of iterations. The backward iteration does not read the `spared` constants if
    that is cheaper. `counter_steps` are the steps of counters, whose values need not be saved.
    """
    body, carries = loop.body, loop.carries
    wrt = differentiable(body, wanted, carries)
    live = {k for k in cts if k < carries}
    results = [k for k in cts if k >= carries]
    while True:
        seeded = [*sorted(live), *results]
        with _within(body, carries):
            both, result = joint(body, wrt, seeded)
        new = live.union(i for i in result if i < carries)
        if new == live:
            break
        live = new
    n, count = len(body.inputs), len(body.outputs)
    inputs = both.inputs[:n]
    moving = both.dependents(inputs[: loop.varying])
    counter_steps = counter_steps or {}
    expensive = [x for k, x in enumerate(inputs[:carries]) if k not in counter_steps]
    # The next iteration overwrites the carries that this one returns.
    after = [x for x in both.outputs[:carries] if x.op is not None]
    backward, values = _cut(both, n, count, [*expensive, *after], [inputs[i] for i in spared], iterations)
    saved = [x for x in values if x.op is not None]
    fixed = [x for x in saved if x not in moving]
    carried = [x for x in values if x in expensive]
    residuals = [*(x for x in saved if x in moving), *carried]
    sources = {x: ("counter" if i in counter_steps else "input", i) for i, x in enumerate(inputs)}
    sources |= {x: ("residual", k) for k, x in enumerate(residuals)}
    sources |= {x: ("outside", k) for k, x in enumerate(fixed)}
    return IterationVjp(
        forward=sliced(inputs, both.nodes, [*both.outputs[:count], *residuals]),
        residuals=len(residuals),
        live=sorted(live),
        seeded=seeded,
        reached=result,
        backward=backward,
        values=[sources[x] for x in values],
        outside=sliced(loop.constants(inputs), both.nodes, fixed),
        counter_steps=counter_steps,
    )


def _cut(
    both: Graph, n: int, count: int, expensive: list[GraphNode], spared: list[GraphNode], iterations: int
) -> tuple[Graph, tuple[GraphNode, ...]]:
    """The backward iteration and its residuals. The `spared` values are not among them if they are at least as large as
    the residuals of all iterations that would replace them."""
    _, usual, values = partition(both, n, count, expensive=expensive)
    while spared:
        _, backward, instead = partition(both, n, count, expensive=[*expensive, *spared])
        remaining = [x for x in spared if x not in instead]
        if remaining == spared:
            extra_bytes = _saved_bytes(instead, expensive) - _saved_bytes(values, expensive)
            return (backward, instead) if iterations * extra_bytes <= sum(map(_bytes, spared)) else (usual, values)
        spared = remaining
    return usual, values


def _saved_bytes(values: Sequence[GraphNode], expensive: Sequence[GraphNode]) -> int:
    return sum(_bytes(x) for x in values if x.op is not None or x in expensive)


def _bytes(x: GraphNode) -> int:
    return x.aval.nbytes


class _DifferentiatedLoop(threading.local):
    """The inputs changed by the iterations of the body that this thread is differentiating."""

    changing: frozenset[int] = frozenset()


_DIFFERENTIATED = _DifferentiatedLoop()


class _within:
    """Mark the body as being differentiated (context manager)."""

    def __init__(self, body: Graph, carries: int):
        self.changing = frozenset(k for k in range(carries) if body.outputs[k] is not body.inputs[k])

    def __enter__(self) -> None:
        self.before, _DIFFERENTIATED.changing = _DIFFERENTIATED.changing, self.changing

    def __exit__(self, *_: object) -> None:
        _DIFFERENTIATED.changing = self.before


def overwritten(operands: Sequence[Any], first: int) -> list[int]:
    """The operands from number `first` on that are arrays updated by the enclosing loop. Reading them whole in the
    derivative would save all of them in each iteration."""
    if not _DIFFERENTIATED.changing:
        return []
    return [
        k for k, x in enumerate(operands) if k >= first and isinstance(x, GraphValue) and x.shape and _is_changing(x)
    ]


def _is_changing(x: Any) -> bool:
    node = x.node
    while node.op is not None:
        if node.op is dynamic_update_slice:
            node = node.inputs[0]
        elif node.result_index is not None and is_loop(owner := node.operands[0]):
            if node.result_index >= LoopView.of(owner).carries:
                return False
            node = owner.inputs[node.result_index]
        else:
            return False
        if not isinstance(node, GraphNode):
            return False
    return any(node is operands for k, operands in enumerate(x.builder.inputs) if k in _DIFFERENTIATED.changing)


def next_cotangents(iteration: IterationVjp, cts: dict[int, GraphValue], like: list[Operand]) -> list[Operand]:
    """The cotangents of the live carries before the iteration; `like` are the cotangents after it."""
    return [cts[k] if k in cts else zeros_like(x) for k, x in zip(iteration.live, like)]


def accumulated(cts: dict[int, Any], positions: Sequence[int], totals: Sequence[Any]) -> list[Operand]:
    """The accumulated cotangents of constants, after adding the cotangents of this iteration."""
    return [accumulate(total, cts[i]) for i, total in zip(positions, totals)]
