"""Compute the write set of a region on an updated array: the windows written by it and by nested regions."""

from __future__ import annotations

from typing import Any

from tracegrad.control.index_ranges import Distances, Window, distances, inside_of, window_at
from tracegrad.ir import Node
from tracegrad.ops.core.forms import Branch, Repeat, While
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice

__all__ = ["Updates"]


class Updates:
    """Windows written to an array, traced back from its value after an iteration to its value before."""

    def __init__(self, known: dict[Node, Distances]):
        self.known = known
        self.windows: list[Window] = []
        self.values: list[Node] = []  # the array, before and after each update in an iteration
        self.first: Node | None = None  # the input, if only windows of it are written

    def look(self, after: Node, until: Node | None = None) -> Updates:
        """Trace back from `after` to the value of the array before the iteration, or to its value `until`."""
        x: Any = after
        while isinstance(x, Node):
            self.values.append(x)
            if x.op is None or x is until:
                self.first = x
                break
            x = self._before(x)
        return self

    def _before(self, x: Node) -> Any:
        """The operand of `x` whose windows `x` has updated; or None."""
        if x.op is dynamic_update_slice:
            starts = [distances(a, self.known) for a in x.inputs[2:]]
            self.windows.append(window_at(starts, x.inputs[1].aval.shape, dict(x.params)["step"]))
            return x.inputs[0]
        if x.picks is None:
            return None
        owner = x.operands[0]
        form = owner.op.form if owner.op is not None else None
        if isinstance(form, Repeat | While):
            return self._of_loop(owner, x.picks)
        return self._of_branches(owner, x.picks) if isinstance(form, Branch) else None

    def _of_loop(self, loop: Node, k: int) -> Any:
        params = dict(loop.params)
        body, carries, xs = params["body"], params["carries"], params.get("xs", 0)
        if k >= carries:
            return None
        operands = [distances(x, self.known) for x in (*loop.inputs[:carries], *loop.inputs[carries + xs :])]
        rows = loop.inputs[carries : carries + xs]
        inside = Updates(inside_of(operands, rows, body, carries, params.get("cond"))).look(body.outputs[k])
        self.windows += inside.windows
        return loop.inputs[k] if inside.first is body.inputs[k] else None

    def _of_branches(self, choice: Node, k: int) -> Any:
        results = set()
        for branch in dict(choice.params)["branches"]:
            operands = [distances(x, self.known) for x in choice.inputs[1:]]
            inside = Updates(dict(zip(branch.inputs, operands))).look(branch.outputs[k])
            self.windows += inside.windows
            results.add(None if inside.first is None else branch.inputs.index(inside.first))
        place = results.pop()
        return None if results or place is None else choice.inputs[1 + place]
