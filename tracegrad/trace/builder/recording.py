"""Record nodes with value numbering (the hot path of tracing).

`NodeRecorder` does the work of `tracegrad.ir.Builder` in one pass. Equal operations share one node. The key of a node
consists of the op, the parameters and the operands; a literal is keyed by type and exact value.
"""

from __future__ import annotations

import copy
from typing import Any

from tracegrad.avals import LITERALS, Aval, Size
from tracegrad.cpython.frames import instruction_of
from tracegrad.errors import TraceError, UnsupportedError, located, user_frame
from tracegrad.ir import Builder, GraphNode, GraphValue
from tracegrad.ops import Op
from tracegrad.ops.core.forms import Compose, Contract, FoldForm, Map, Scan
from tracegrad.typing import NDArray
from tracegrad.utils.errstate import USUAL, sprung, traps

_NO_PLAIN_SIZES = (GraphValue, Size)
_BY_NUMPY = Map | FoldForm | Scan | Contract | Compose  # the forms of ops that NumPy computes

ESCAPED = "a traced value escaped from the trace that made it: return it from the function instead"


class EscapedError(TraceError, RuntimeError):
    """A value of a trace or region is used after its end: a TraceError, and the RuntimeError of PyTorch."""


class NodeRecorder(Builder):
    """Node recorder: `make` wraps nodes as values, and nodes store the user's line."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make
        self.open = True
        self.world: Any = None
        self._nodes: dict[Any, GraphNode] = {}
        self._lines: dict[tuple[int, int], str] = {}
        self._avals: dict[Any, Aval] = {}
        self._failed: dict[GraphNode, Exception] = {}
        self.sweeping = False  # whether a derivative is recorded, whose operations NumPy never computes
        self.plans: dict[Any, Any] = {}  # recording plans of `tracegrad.trace.values.operation_plans`
        self.results: dict[Any, Any] = {}  # avals of results and operands, by the identity of the operands' avals

    def require_open(self) -> None:
        """Raise unless the trace is open."""
        if not self.open:
            raise EscapedError(located(ESCAPED))

    def abort(self, why: str) -> BaseException:
        """Return the exception that aborts the trace."""
        raise NotImplementedError

    def foresee(self, node: GraphNode) -> None:
        """Raise the exception of a new node, if traced code may catch it."""
        raise NotImplementedError

    def spring(self, node: GraphNode) -> None:
        """Raise the floating-point error of an array operation if NumPy is set to raise, in a trace of a single
        call."""
        if self.sweeping or not (self.world.once and sprung()) or not isinstance(node.form, _BY_NUMPY):
            return
        assert node.op is not None
        values = [x if type(x) in LITERALS else self.compute(x) for x in node.inputs]
        node.op.impl(*values, **dict(node.params))

    def compute(self, wanted: GraphNode) -> NDArray:
        """The value of a node in the call being traced."""
        raise NotImplementedError

    def locate(self) -> str:
        if self.location:
            return self.location
        frame = user_frame()
        if frame is None:
            return ""
        # Computing the line is the slowest step, so it is cached.
        at = (id(frame.f_code), instruction_of(frame))
        line = self._lines.get(at)
        if line is None:
            line = self._lines[at] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return line

    def sized(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """`emit` for sizes that are traced values or belong to a Tensor."""
        raise NotImplementedError

    def aval(self, shape: tuple[int, ...], dtype: Any) -> Aval:
        """The aval of this shape and dtype; equal avals are one object."""
        result = self._avals.get((shape, dtype))
        if result is None:
            result = self._avals[shape, dtype] = Aval(shape, dtype)
        return result

    def require_usual(self) -> None:
        """Raise unless the trace is open and within its limits."""
        if not self.open:
            self.require_open()
        if traps() is not USUAL and sprung() and not self.world.once:
            raise self.abort("NumPy is asked to raise floating-point errors")

    def emit(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        self.require_usual()
        inputs: list[Any] = []
        avals: list[Any] = []
        key: list[Any] = [op]
        for x in operands:
            if type(x) in LITERALS:
                inputs.append(x)
                avals.append(x)
                key.append(mark(x))
                continue
            node = x.node if isinstance(x, GraphValue) and x.builder is self else self.lift(x).node
            inputs.append(node)
            avals.append(node.aval)
            key.append(node)
        items: tuple[Any, ...] = ()
        if params:
            for v in params.values():
                if type(v) is tuple:
                    for n in v:
                        if type(n) is not int and isinstance(n, GraphValue):
                            return self.sized(op, operands, params)
                elif isinstance(v, _NO_PLAIN_SIZES):
                    return self.sized(op, operands, params)
            items = tuple(params.items()) if len(params) == 1 else tuple(sorted(params.items()))
            key.append(marked(items))
        node = self.recorded(op, inputs, avals, items, tuple(key))
        if traps() is not USUAL and not all(type(x) in LITERALS or getattr(x, "weak", False) for x in operands):
            self.spring(node)
        return self.valued(node) if node.is_multi_result else self.make(self, node)

    def recorded(
        self, op: Op, inputs: list[Any], avals: list[Any], items: tuple[Any, ...], key: tuple[Any, ...]
    ) -> GraphNode:
        """The node that applies `op` to inputs of these avals, found by `key` or new."""
        node = self._nodes.get(key)
        if node is None:
            kind = (op, key[1 + len(inputs) :], *map(id, avals))
            aval, _ = self.results.get(kind) or self._aval_of(op, avals, items, kind)
            node = self._nodes[key] = GraphNode(op, tuple(inputs), items, aval, self.location or self.locate())
            self.nodes.append(node)
            if node.form.raises:
                self.foresee(node)
        elif node in self._failed:
            raise copy.copy(self._failed[node])
        return node

    def _aval_of(self, op: Op, avals: list[Any], items: tuple[Any, ...], kind: tuple[Any, ...]) -> Any:
        """The aval of a result, cached by its `kind` with the avals of the operands, if no operand is a literal."""
        if not op.on_complex:
            require_real(op, avals)
        aval: Any = op.aval(*avals, **dict(items))
        if type(aval) is Aval:
            aval = self.aval(aval.shape, aval.dtype)
        if LITERALS.isdisjoint(map(type, avals)):
            self.results[kind] = aval, avals
        return aval, avals

    def known(
        self, op: Op, inputs: tuple[Any, ...], items: tuple[Any, ...], key: tuple[Any, ...], aval: Aval
    ) -> GraphNode:
        """As `require_usual` and `recorded`, for an op that never raises and whose result kind is known."""
        if not self.open or traps() is not USUAL:
            self.require_usual()
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = GraphNode(op, inputs, items, aval, self.location or self.locate())
            self.nodes.append(node)
        return node


def require_real(op: Op, avals: list[Any]) -> None:
    """Raise UnsupportedError for complex operands of an op without complex rules."""
    for x in avals:
        if type(x) not in LITERALS and x.dtype.kind == "c":
            raise UnsupportedError(located(f"{op.name} of complex numbers is not supported"))


def mark(x: object) -> Any:
    """A key that distinguishes unequal literals: 1, 1.0 and True compare equal, and so do -0.0 and 0.0."""
    return x if type(x) is float and x and x == x else repr(x)


def marked(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Parameters as a key that distinguishes them exactly."""
    for _, v in items:
        if type(v) in LITERALS:
            return tuple([(k, repr(v) if type(v) in LITERALS else v) for k, v in items])
    return items
