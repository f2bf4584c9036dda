"""Kernels of equal steps are lowered once: layers of a network, and programs that have layers alike.

What a step computes is described by the ops from what it stores down to what is stored before, with values, buffers and
sizes numbered by first use; `Pattern` is that. The kernel of an equal step is known then, and is the same under other
names: those of the buffers and sizes of the step, and of its constants, which are asked for again in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tracegrad.codegen.loopir.kernel import Kernel
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.rename import renamed
from tracegrad.codegen.lower.lower import Arguments, Lowering
from tracegrad.codegen.lower.materialize import Storage
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.ir import Node
from tracegrad.ir.builder import key_of
from tracegrad.locks import new_lock

__all__ = ["Pattern", "forget", "known", "note"]

MOST = 512  # kernels that are known: some kilobytes each


class Pattern:
    """What a step that stores `roots` computes: a `key` that equal steps share, and what stands for the numbers in it.

    A value that is stored is no more than where it is, and what it is: lowering asks whether indices are a progression.
    """

    def __init__(self, roots: Sequence[Node], storage: Storage, dims: Dims, buffers: Mapping[Node, str]):
        self.nodes = list(roots)
        self.names: dict[str, int] = {}
        self.sizes: dict[Poly, int] = {}
        self._shapes: dict[tuple[Poly, ...], tuple[int, ...]] = {}
        numbers = {node: i for i, node in enumerate(roots)}
        uses, names = storage.uses, self.names
        lines = []
        for i, node in enumerate(self.nodes):  # which grow
            name = buffers.get(node)
            inputs: list[Any] = []
            if name is None:
                place, shared = -1, uses[node] != 1
            else:
                place, shared = names.setdefault(name, len(names)), True
            for x in node.inputs if name is None or i < len(roots) else ():
                if type(x) is not Node:
                    inputs.append(repr(x))
                    continue
                number = numbers.get(x)
                if number is None:
                    number = numbers[x] = len(self.nodes)
                    self.nodes.append(x)
                inputs.append(number)
            params = tuple([key_of(item) for item in node.params]) if node.params else ()
            aval, sizes = node.aval, self._numbered(dims.shape(node))
            lines.append((node.op, params, aval.shape, aval.dtype, sizes, place, shared, *inputs))
        self.key = (len(roots), tuple(lines))
        self._numbers = numbers

    def _numbered(self, shape: tuple[Poly, ...]) -> tuple[int, ...]:
        """The numbers of sizes; -1 for those that are known."""
        found = self._shapes.get(shape)
        if found is None:
            sizes = self.sizes
            found = tuple([sizes.setdefault(d, len(sizes)) if d.value is None else -1 for d in shape])
            self._shapes[shape] = found
        return found

    def number(self, node: Node) -> int:
        return self._numbers[node]


class _Known(NamedTuple):
    """A kernel that has been lowered: what it calls the buffers and sizes of its pattern, which arguments it asked for,
    by numbers of values, and at which indices it computes these."""

    kernel: Kernel
    serial: bool
    names: tuple[str, ...]
    sizes: tuple[str, ...]
    asked: list[tuple[str, str, int, tuple[Any, ...], Any]]
    counts: list[tuple[int, tuple[Poly, ...]]]


_found: dict[Any, _Known] = {}
_lock = new_lock()


def known(pattern: Pattern, arguments: Arguments, counts: dict[Node, set[Any]]) -> tuple[Kernel, bool] | None:
    """The kernel of an equal step, as that of this one, and whether it is serial."""
    found = _found.get(pattern.key)
    if found is None:
        return None
    nodes = pattern.nodes
    names = dict(zip(found.names, pattern.names))
    names.update(zip(found.sizes, map(str, pattern.sizes)))
    for name, kind, number, rest, value in found.asked:
        names[name] = arguments.named(kind, (nodes[number], *rest), value)
    kernel = renamed(found.kernel, names)
    for number, index in found.counts:
        counts[nodes[number]].add((id(kernel), index))
    return kernel, found.serial


def note(pattern: Pattern, lowering: Lowering, serial: bool) -> None:
    """Keep a kernel for steps that are equal to the one that it is of."""
    kernel, number = lowering.kernel, pattern.number
    asked = [(name, kind, number(node), rest, value) for name, kind, (node, *rest), value in lowering.arguments.asked]
    mine = id(kernel)
    counts = [
        (i, index) for i, node in enumerate(pattern.nodes)
        for owner, index in lowering.counts.get(node, ()) if owner == mine
    ]  # fmt: skip
    made = _Known(renamed(kernel, {}), serial, (*pattern.names,), (*map(str, pattern.sizes),), asked, counts)
    with _lock:
        while len(_found) >= MOST:
            del _found[next(iter(_found))]
        _found[pattern.key] = made


def forget() -> None:
    """Forget all kernels."""
    with _lock:
        _found.clear()
