"""Cache lowered kernels by the structure of their step, so that equal layers are lowered once.

A `Pattern` describes a step by its ops, from the stored results down to the stored operands. Values, buffers and sizes
are numbered by first use. The kernel of an equal step is the same kernel under other names of buffers, sizes and
constants. The constants are requested again in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tracegrad.codegen.loopir.kernel import Kernel
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.lower.lower import Lowering, RuntimeArguments
from tracegrad.codegen.lower.materialize import Storage
from tracegrad.codegen.lower.symbolic_shapes import Dims
from tracegrad.ir import GraphNode
from tracegrad.ir.builder import key_of
from tracegrad.locks import new_lock
from tracegrad.settings import disabled, left_out
from tracegrad.target.tuning import TUNING

MAX_CACHED_KERNELS = TUNING.caches.kernels


class Pattern:
    """The structure of a step that stores `roots`: a `key` that equal steps share, and the values that it numbers.

    A stored value has only its buffer and its op. Lowering tests by the op whether indices are a progression.
    """

    def __init__(self, roots: Sequence[GraphNode], storage: Storage, dims: Dims, buffers: Mapping[GraphNode, str]):
        self.nodes = list(roots)
        self.names: dict[str, int] = {}
        self.sizes: dict[Poly, int] = {}
        self._shapes: dict[tuple[Poly, ...], tuple[int, ...]] = {}
        numbers = {node: i for i, node in enumerate(roots)}
        uses, names = storage.uses, self.names
        lines = []
        for i, node in enumerate(self.nodes):  # the loop appends to the list
            name = buffers.get(node)
            inputs: list[Any] = []
            if name is None:
                buffer_number, shared = -1, uses[node] != 1
            else:
                buffer_number, shared = names.setdefault(name, len(names)), True
            for x in node.inputs if name is None or i < len(roots) else ():
                if type(x) is not GraphNode:
                    inputs.append(repr(x))
                    continue
                number = numbers.get(x)
                if number is None:
                    number = numbers[x] = len(self.nodes)
                    self.nodes.append(x)
                inputs.append(number)
            params = tuple([key_of(item) for item in node.params]) if node.params else ()
            aval, sizes = node.aval, self._numbered(dims.shape(node))
            lines.append((node.op, params, aval.shape, aval.dtype, sizes, buffer_number, shared, *inputs))
        self.key = (len(roots), tuple(lines), left_out())
        self._numbers = numbers

    def _numbered(self, shape: tuple[Poly, ...]) -> tuple[int, ...]:
        """The numbers of symbolic sizes; -1 for constants."""
        results = self._shapes.get(shape)
        if results is None:
            sizes = self.sizes
            results = tuple([sizes.setdefault(d, len(sizes)) if d.value is None else -1 for d in shape])
            self._shapes[shape] = results
        return results

    def number(self, node: GraphNode) -> int:
        return self._numbers[node]


class _CachedKernel(NamedTuple):
    """A cached kernel, with its names for the buffers and sizes of the pattern. `requested` are the arguments that it
    requested, by numbers of values; `counts` are the indices at which it computes each value."""

    kernel: Kernel
    serial: bool
    names: tuple[str, ...]
    sizes: tuple[str, ...]
    requested: list[tuple[str, str, int, tuple[Any, ...], Any]]
    counts: list[tuple[int, tuple[Poly, ...]]]


_kernels: dict[Any, _CachedKernel] = {}
_lock = new_lock()


def known(
    pattern: Pattern, arguments: RuntimeArguments, counts: dict[GraphNode, set[object]]
) -> tuple[Kernel, bool] | None:
    """The cached kernel of an equal step, renamed for this one, and whether it is serial; None if there is none."""
    result = _kernels.get(pattern.key)
    if result is None or disabled("kernel-cache"):
        return None
    nodes = pattern.nodes
    names = dict(zip(result.names, pattern.names))
    names.update(zip(result.sizes, map(str, pattern.sizes)))
    for name, kind, number, rest, value in result.requested:
        names[name] = arguments.named(kind, (nodes[number], *rest), value)
    kernel = result.kernel.renamed(names)
    for number, index in result.counts:
        counts[nodes[number]].add((id(kernel), index))
    return kernel, result.serial


def note(pattern: Pattern, lowering: Lowering, serial: bool) -> None:
    """Cache the kernel of a step for equal steps."""
    kernel, number = lowering.kernel, pattern.number
    requested = [
        (name, kind, number(node), rest, value) for name, kind, (node, *rest), value in lowering.arguments.requested
    ]
    kernel_id = id(kernel)
    counts = [
        (i, index)
        for i, node in enumerate(pattern.nodes)
        for owner, index in lowering.counts.get(node, ())
        if owner == kernel_id
    ]
    result = _CachedKernel(
        kernel.renamed({}), serial, (*pattern.names,), (*map(str, pattern.sizes),), requested, counts
    )
    with _lock:
        while len(_kernels) >= MAX_CACHED_KERNELS:
            del _kernels[next(iter(_kernels))]
        _kernels[pattern.key] = result


def forget() -> None:
    """Clear the cache."""
    with _lock:
        _kernels.clear()
