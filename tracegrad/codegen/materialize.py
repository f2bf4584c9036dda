"""Which values of a graph get a buffer; all others are computed where they are read.

A value is *stored* when something needs it whole (an output, a reduction, an operand of BLAS or of a called op), or
when computing it at every read would cost more than storing it. Views are index maps and cost little; a reshape of a
stored value is the same buffer. Of a node with several results, each that is used is stored.
"""

from __future__ import annotations

from tracegrad.avals import short_name
from tracegrad.codegen.scalar import lowerable, template_cost
from tracegrad.ir import Graph, Node

__all__ = ["Storage", "at_same_index", "called", "in_range", "is_trivial_reshape"]

DEEPEST = 100  # inlined ops along one path: bounds the recursion of lowering
HEAVIEST = 400  # inlined cost: bounds code size; longer straight-line code takes LLVM more than proportional time
DEAR_SCALAR = 60  # a value of one element is recomputed (and hoisted out of the loop) up to this cost
DEAR = 12  # a value that several kernels, or several places of one, would compute is stored from this cost on


def called(node: Node) -> bool:
    """Whether the op has no codegen data for these dtypes: compiled code calls its NumPy meaning."""
    op = node.op
    assert op is not None
    if node.picks is not None:
        return False
    if op.kind == "elementwise":
        dtypes = tuple(x.aval.dtype if isinstance(x, Node) else node.operands[0].aval.dtype for x in node.inputs)
        return not lowerable(getattr(op, "scalar", None), tuple(map(short_name, dtypes)))
    if op.kind == "matmul":
        return node.aval.dtype.kind != "f"
    return op.kind in ("general", "composite")


def is_trivial_reshape(node: Node) -> bool:
    """Whether a reshape only adds or removes axes of size one."""
    old, new = node.inputs[0].aval.shape, node.aval.shape
    return [n for n in old if n != 1] == [n for n in new if n != 1]


class Storage:
    """The decision, with a reason for every stored value; `also` are values that an earlier attempt found dear."""

    def __init__(self, graph: Graph, also: dict[Node, str] | None = None):
        self.graph = graph
        self.inputs = set(graph.inputs)
        self.called = {node for node in graph.nodes if called(node) and not node.regions}
        self.results: dict[Node, list[Node]] = {node: [] for node in graph.nodes if node.several}  # those that are used
        self.reason: dict[Node, str] = dict(also or {})
        self.weight: dict[Node, int] = {}
        self._depth: dict[Node, int] = {}
        self._together: dict[Node, dict[Node, int]] = {}  # what is computed at one index with a value, at which cost
        for node in graph.outputs:
            if node not in self.inputs:
                self._store(node, "output")
        for node in graph.nodes:
            self._by_kind(node)
        for node in graph.nodes:
            if not node.several and node.picks is None:
                self._by_cost(node)
        self._by_checks()
        self.root_of = self._aliases()

    def stored(self, node: Node) -> bool:
        return node in self.inputs or node in self.reason

    def inlined(self, node: Node) -> bool:
        return not self.stored(node)

    def _store(self, node: Node, reason: str) -> None:
        if node not in self.inputs:
            self.reason.setdefault(node, reason)

    def _store_base(self, node: Node, reason: str) -> None:
        """Store what `node` is a reshape of, so that `node` can be read as one block of memory."""
        while node.name == "reshape" and node not in self.reason:
            node = node.inputs[0]
        self._store(node, reason)

    def _by_kind(self, node: Node) -> None:
        assert node.op is not None
        kind = node.op.kind
        if node.picks is not None:
            self._store(node, f"result {node.picks} of {node.operands[0].name}")
            self.results[node.operands[0]].append(node)
        elif node in self.called or node.regions:
            what = "is called in NumPy" if node in self.called else "runs regions"
            if not node.several:
                self._store(node, f"{node.name} {what}")
            for x in node.operands:
                self._store_base(x, f"operand of {node.name}, which {what}")
        elif kind == "matmul":
            self._store(node, "computed by BLAS")
            for x in node.operands:
                base = x.inputs[0] if is_matrix_transpose(x) else x
                self._store_base(base, "operand of BLAS")
        elif kind in ("reduction", "scatter", "cumsum"):
            self._store(node, f"result of {node.name}")
        elif kind == "reshape" and not is_trivial_reshape(node):
            self._store_base(node.inputs[0], "reshaped, so read as one block of memory")

    def _by_cost(self, node: Node) -> None:
        operands = [x for x in node.operands if self.inlined(x)]
        if node.name == "broadcast_to" or node.name == "gather":
            for x in operands:
                self._expanded(node, x)
            operands = [x for x in operands if self.inlined(x)]
        together = {node: own_cost(node)}
        for x in operands:
            if at_same_index(node):
                together |= self._together[x]
            else:
                together[node] += self.weight[x]
        self._together[node], self.weight[node] = together, sum(together.values())
        self._depth[node] = 1 + max((self._depth.get(x, 0) for x in operands), default=0)
        if self._depth[node] > DEEPEST or self.weight[node] > HEAVIEST:
            self._store(node, "a long chain, cut here")

    def _by_checks(self) -> None:
        """Store a gather that nothing reads whole, so that all its indices are checked, as NumPy checks them."""
        whole: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if node.name == "gather" and node not in whole and not _in_range(node):
                self._store(node, "read in part, and every index is to be checked")
            if (node.several or node.aval.size) and (node in whole or self.stored(node)):
                whole.update(node.operands[1:] if node.name == "gather" else node.operands * (node.name != "slice"))

    def _expanded(self, node: Node, x: Node) -> None:
        while x.name == "reshape" and self.inlined(x):
            x = x.inputs[0]
        if self.stored(x) or node.aval.size <= x.aval.size:
            return
        weight = self.weight.get(x, 0)
        if weight >= (DEAR_SCALAR if x.aval.size == 1 else 2):
            self._store(x, f"computed once, read many times by {node.name}")

    def _aliases(self) -> dict[Node, Node]:
        """Stored reshape -> the stored value whose memory it shares."""
        taken = set(self.graph.outputs)
        aliases: dict[Node, Node] = {}
        for node in self.graph.outputs:
            base = node
            while base.name == "reshape" and (base is node or base not in self.reason):
                base = base.inputs[0]
            if node.name == "reshape" and node not in aliases and base in self.reason and base not in taken:
                taken.add(base)
                aliases[node] = base
        return aliases


def in_range(indices: Node, size: int) -> bool:
    """Whether `indices` is an `arange` of indices from 0 to `size`, so that none need be checked."""
    if indices.name != "arange":
        return False
    params = dict(indices.params)
    first, step, length = params["start"], params["step"], indices.aval.size
    whole = isinstance(first, int) and isinstance(step, int)
    return whole and all(0 <= end < size for end in (first, first + step * (length - 1)) if length)


def _in_range(node: Node) -> bool:
    """Whether no index of a gather need be checked."""
    x, *indices = node.inputs
    return all(in_range(i, x.aval.shape[a]) for i, a in zip(indices, dict(node.params)["axes"]))


def at_same_index(node: Node) -> bool:
    """Whether an element of `node` is made of the elements of its operands at the same index."""
    assert node.op is not None
    return node.op.kind in ("elementwise", "cast") or node.name in ("fresh", "stop_gradient")


def own_cost(node: Node) -> int:
    """The rough cost of one element of `node`, operands apart."""
    assert node.op is not None
    if node.op.kind == "elementwise":
        return template_cost(getattr(node.op, "scalar", None))
    if node.name in ("pad", "concatenate"):
        return 2 * len(node.operands)
    return {"cast": 1, "gather": 2, "arange": 1}.get(node.op.kind, 0)


def is_matrix_transpose(node: Node) -> bool:
    """Whether `node` exchanges the last two axes of its operand, and nothing else."""
    if node.name != "transpose":
        return False
    n = node.aval.ndim
    return n >= 2 and tuple(dict(node.params)["perm"]) == (*range(n - 2), n - 1, n - 2)
