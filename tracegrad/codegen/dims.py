"""Which sizes of a graph are one size: kernels take large dimensions as run-time arguments.

Every axis of every value gets a polynomial. Sizes up to `SMALL` are constants, so that loops over them unroll; each
other one is a symbol, one symbol per class of dimensions that the data flow forces equal. Two axes that merely happen
to have one size stay apart, so a kernel compiled for one batch size serves every other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.codegen.poly import Poly
from tracegrad.ir import Graph, Node

__all__ = ["SMALL", "Dims"]

SMALL = 8


class Dims:
    """The sizes of all axes of a graph as polynomials, and the values of their symbols.

    The first `carries` outputs of a region become its first inputs, so they have one shape.
    """

    def __init__(self, graph: Graph, carries: int = 0):
        self._parent: list[int] = []
        self._value: list[int] = []
        self._axes: dict[Node, Any] = {}  # of a node with several results, the axes of each
        for x in graph.inputs:
            self._axes[x] = self._fresh(x.aval.shape)
        for node in graph.nodes:
            self._axes[node] = self._infer(node)
        for x, y in zip(graph.inputs[:carries], graph.outputs):
            self._joined([self._axes[x], self._axes[y]])
        self._names: dict[int, Poly] = {}
        self.values: dict[str, int] = {}
        for x in (*graph.inputs, *graph.nodes):
            if x.regions:  # whose results have sizes whether they are used or not
                for axes in self._axes[x]:
                    self._named(axes)
            elif not x.several:
                self._named(self._axes[x])

    def shape(self, node: Node) -> tuple[Poly, ...]:
        """The shape of a value, as polynomials."""
        return self._named(self._axes[node])

    def result_shape(self, node: Node, k: int) -> tuple[Poly, ...]:
        """The shape of result `k` of a node with several."""
        return self._named(self._axes[node][k])

    # -- classes ---------------------------------------------------------------------------------
    def _fresh(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        first = len(self._parent)
        self._parent.extend(range(first, first + len(shape)))
        self._value.extend(shape)
        return tuple(range(first, first + len(shape)))

    def _find(self, a: int) -> int:
        while self._parent[a] != a:
            self._parent[a] = self._parent[self._parent[a]]
            a = self._parent[a]
        return a

    def _join(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        if a != b:
            self._parent[max(a, b)] = min(a, b)

    def _named(self, axes: tuple[int, ...]) -> tuple[Poly, ...]:
        return tuple([self._name(a) for a in axes])

    def _name(self, axis: int) -> Poly:
        root = self._find(axis)
        if root not in self._names:
            value = self._value[root]
            if value <= SMALL:
                self._names[root] = Poly.constant(value)
            else:
                name = f"s{len(self.values)}"
                self.values[name] = value
                self._names[root] = Poly.symbol(name)
        return self._names[root]

    # -- what each kind of op forces -----------------------------------------------------------------
    def _infer(self, node: Node) -> tuple[Any, ...]:
        operands = [self._axes[x] for x in node.operands]
        assert node.op is not None
        rule = _RULES.get(node.name) or _RULES.get(node.op.kind)
        params = dict(node.params)
        out = rule(self, node, operands, params) if rule else None
        if out is not None:
            return out  # type: ignore[no-any-return]
        return tuple([self._fresh(a.shape) for a in node.aval]) if node.several else self._fresh(node.aval.shape)  # type: ignore[attr-defined]

    def _joined(self, groups: list[tuple[int, ...]]) -> tuple[int, ...]:
        for other in groups[1:]:
            for a, b in zip(groups[0], other):
                self._join(a, b)
        return groups[0]

    def _new(self, n: int) -> int:
        return self._fresh((n,))[0]


Operands = list[tuple[int, ...]]


def _same(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...] | None:
    return dims._joined(operands) if operands else None


def _broadcast(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    (x,) = operands
    shape = node.aval.shape
    new = len(shape) - len(x)
    old = node.inputs[0].aval.shape
    return tuple(x[i - new] if i >= new and old[i - new] == n else dims._new(n) for i, n in enumerate(shape))


def _reduce(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    axes = params["axes"] if "axes" in params else (params["axis"],)
    return tuple(a for i, a in enumerate(operands[0]) if i not in axes)


def _slice(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    old = node.inputs[0].aval.shape
    return tuple(a if n == m else dims._new(n) for a, n, m in zip(operands[0], node.aval.shape, old))


def _concatenate(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    axis = params["axis"]
    rest = dims._joined([x[:axis] + x[axis + 1 :] for x in operands])
    return (*rest[:axis], dims._new(node.aval.shape[axis]), *rest[axis:])


def _matmul(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    x, y = operands
    dims._join(x[-1], y[-2])
    return (*dims._joined([x[:-2], y[:-2]]), x[-2], y[-1])


def _gather(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    x, *indices = operands
    return (*dims._joined(indices), *(a for i, a in enumerate(x) if i not in params["axes"]))


def _scatter(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    updates, *indices = operands
    head = dims._joined([updates[: len(indices[0])], *indices])
    rest = iter(updates[len(head) :])
    return tuple(dims._new(n) if i in params["axes"] else next(rest) for i, n in enumerate(node.aval.shape))


def _reshape(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    old, new = node.inputs[0].aval.shape, node.aval.shape
    out: list[int | None] = [None] * len(new)
    i = j = 0
    while i < len(old) and j < len(new):
        if old[i] == new[j]:
            out[j] = operands[0][i]
            i, j = i + 1, j + 1
        elif old[i] == 1:
            i += 1
        elif new[j] == 1:
            j += 1
        else:
            break
    back_i, back_j = len(old) - 1, len(new) - 1
    while back_i >= i and back_j >= j:
        if old[back_i] == new[back_j]:
            out[back_j] = operands[0][back_i]
            back_i, back_j = back_i - 1, back_j - 1
        elif old[back_i] == 1:
            back_i -= 1
        elif new[back_j] == 1:
            back_j -= 1
        else:
            break
    return tuple(dims._new(n) if a is None else a for a, n in zip(out, new))


def _result(dims: Dims, node: Node, operands: list[Any], params: Any) -> tuple[int, ...]:
    return operands[0][params["index"]]  # type: ignore[no-any-return]


def _repeat(dims: Dims, node: Node, operands: Operands, params: Any) -> list[tuple[int, ...]]:
    carries, xs = params["carries"], params["xs"]
    stacked = [dims._fresh(a.shape) for a in node.aval[carries:]]  # type: ignore[index]
    dims._joined([x[:1] for x in (*operands[carries : carries + xs], *stacked)] or [()])
    return [*operands[:carries], *stacked]


def _while(dims: Dims, node: Node, operands: Operands, params: Any) -> list[tuple[int, ...]]:
    stacked = [dims._fresh(a.shape) for a in node.aval[params["carries"] + 1 :]]  # type: ignore[index]
    dims._joined([x[:1] for x in stacked] or [()])
    return [*operands[: params["carries"]], (), *stacked]


def _transpose(dims: Dims, node: Node, operands: Operands, params: Any) -> tuple[int, ...]:
    return tuple(operands[0][p] for p in params["perm"])


_RULES: dict[str, Callable[..., Any]] = {
    "elementwise": _same, "cast": _same, "fresh": _same, "stop_gradient": _same, "flip": _same, "cumsum": _same,
    "broadcast_to": _broadcast, "reduction": _reduce, "slice": _slice, "pad": _slice,
    "concatenate": _concatenate, "matmul": _matmul, "gather": _gather, "scatter": _scatter, "reshape": _reshape,
    "transpose": _transpose, "result": _result,
    "repeat": _repeat, "while": _while,
}  # fmt: skip
