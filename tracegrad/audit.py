"""Audit of one call, `tg.check`: compute everything in two independent ways, and compare.

Compiled code is compared with NumPy, reverse mode with finite differences, forward mode with reverse mode, and the
second derivative with differences of the first. If compiled code differs, the first different node is named. If the
gradient differs, the first node with a wrong derivative is named, for example one with a user's rule. If the value is
nan, the node that computed the nan is named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import api, tree
from tracegrad.errors import UnsupportedError
from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.builder import sliced
from tracegrad.ir.interpreter import evaluate
from tracegrad.ops.calls.custom_call import custom_call
from tracegrad.ops.core.dispatch import Operand, TensorCarrier
from tracegrad.ops.core.op import bind
from tracegrad.runtime.diagnostics.nan_origin import origin
from tracegrad.runtime.execution.program import compile_program
from tracegrad.settings import disable_jit, settings
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.describe import describe
from tracegrad.traced_function import Traced
from tracegrad.transform_support import require_callable, standing_for
from tracegrad.transforms.flat_function import inlined
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


__all__ = ["Audit", "Comparison", "check"]

Function = Callable[..., Any]

_DIGITS = 1e4  # allowed difference of two orders of summation, in units of rounding
_MAX_ERROR_ESTIMATE = 0.05  # relative error above which finite differences are not compared
_MAX_LINEAR_SEARCH = 40  # maximum nodes that are compared one by one; a longer list is searched by bisection


@record(frozen=True)
class Comparison:
    """Comparison of two ways to one value: the difference relative to the largest element, and the allowed
    difference."""

    what: str
    difference: float
    allowed: float
    told: str = ""

    @property
    def ok(self) -> bool:
        """Whether both agree; a value that could not be compared counts as agreement, and `told` gives the reason."""
        return not self.difference > self.allowed

    def __str__(self) -> str:
        result = f"{self.difference:9.1e} of {self.allowed:7.1e}" if self.allowed else " " * 20
        return f"{'ok  ' if self.ok else 'FAIL'} {self.what:<44} {result}  {self.told}".rstrip()


@record(frozen=True)
class Audit:
    """Result of `check`: true if all comparisons agree. Print it."""

    name: str
    comparisons: tuple[Comparison, ...]

    def __bool__(self) -> bool:
        return all(each.ok for each in self.comparisons)

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {'ok' if self else 'FAILED'}", *map(str, self.comparisons)])

    __repr__ = __str__


def check(fun: Function, *, seed: int = 0) -> Callable[..., Audit]:
    """Return the function that audits a call of `fun`: `print(check(f)(*args))`, `assert check(f)(*args)`.

    Parameters
    ----------
    fun : callable
        Function to audit.
    seed : int
        Seed of the random weights and of the random direction.

    Returns
    -------
    callable
        Function of the arguments of `fun` to an `Audit`; the arguments are left unchanged.

    Raises
    ------
    TypeError
        If `fun` is not a function. The call raises every exception that `fun` raises.

    Notes
    -----
    Derivatives are with respect to all floating arrays and numbers among the arguments. The function differentiated is
    the sum of all floating results with random weights; the derivative is taken along a random direction. The step of
    finite differences depends on the dtype. Next to a kink, differences are not compared, and the row says so.

    Examples
    --------
    >>> audit = check(lambda x: np.sum(np.sin(x) ** 2))(np.arange(3.0))
    >>> print(bool(audit), audit.comparisons[0].what)
    True value: compiled beside NumPy
    """
    require_callable(fun, "check")

    def audit(*args: object, **kwargs: object) -> Audit:
        with np.errstate(all="ignore"):
            return Audit(describe(fun).name, tuple(_AuditedCall(fun, args, kwargs, seed).comparisons()))

    return audit


class _AuditedCall:
    """Scalar function of the floating leaves of a call's arguments."""

    def __init__(self, fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int):
        self.fun, (leaves, self.structure) = fun, tree.flatten((args, kwargs))
        self.leaves: list[Any] = [_detached(x) if isinstance(x, TensorCarrier) else x for x in leaves]
        self.positions = [k for k, x in enumerate(self.leaves) if np.asarray(x).dtype.kind == "f"]
        self.draws = np.random.default_rng(seed)
        self.weights: list[Any] = []

    def _arguments(self, floating: Sequence[object]) -> Any:
        leaves = [np.copy(x) if isinstance(x, np.ndarray) else x for x in self.leaves]
        for k, x in zip(self.positions, floating):
            leaves[k] = x
        return tree.unflatten(self.structure, leaves)

    @property
    def point(self) -> list[Any]:
        return [np.copy(x) if isinstance(x := self.leaves[k], np.ndarray) else x for k in self.positions]

    def value(self, floating: Sequence[Any]) -> Any:
        """Compute the result of the function."""
        args, kwargs = self._arguments(floating)
        return inlined(self.fun)(*args, **kwargs)

    def loss(self, floating: list[Operand]) -> Any:
        """Compute the weighted sum of the floating results."""
        leaves = [x for x in tree.leaves(self.value(floating)) if getattr(x, "dtype", np.dtype(type(x))).kind == "f"]
        return sum((np.sum(x * w) for x, w in zip(leaves, self.weights)), 0.0)

    def _compiling(self, name: str, body: Function) -> Any:
        """Trace `body` for this audit alone, without guards on the variables that it reads."""
        return standing_for(self.fun, body, f"check: {name}")

    def comparisons(self) -> list[Comparison]:
        """Compute all rows of the audit."""
        with disable_jit():
            plain = self.value(self.point)
        results = [self._compiled("value", self._compiling("value", lambda x: self.value(x)), plain)]
        outputs = [np.asarray(x) for x in tree.leaves(plain)]
        self.weights = [np.asarray(self.draws.normal(size=x.shape), x.dtype) for x in outputs if x.dtype.kind == "f"]
        if not self.weights or not self.positions:
            return [*results, Comparison("derivatives", 0.0, 0.0, "none: there are no floating arguments or results")]
        derivative = self._compiling("gradient", lambda x: api.grad(self.loss)(x))
        with disable_jit():
            gradient = derivative(self.point)
        results.append(self._compiled("gradient", derivative, gradient))
        directions = [self.draws.normal(size=np.shape(x)).astype(np.asarray(x).dtype) for x in self.point]
        directions = [d if d.shape else d[()] for d in directions]
        along, value = _dot(gradient, directions), self._compiling("loss", lambda x: self.loss(x))

        def derivative_along(x: list[Operand]) -> Any:
            return _dot(api.grad(self.loss)(x), directions)

        if not np.isfinite(float(value(self.point))):
            return [*results, self._forward(along, directions), Comparison("differences", 0.0, 0.0, self._not_finite())]
        second = self._compiling("second derivative", lambda x: api.grad(derivative_along)(x))
        first = self._compiling("derivative", derivative_along)
        twice = _dot(second(self.point), directions)
        return [
            *results,
            self._forward(along, directions),
            self._gradient(value, along, directions),
            self._differences("second derivative beside differences", first, twice, directions, self.point),
        ]

    def _gradient(self, value: Any, along: Any, directions: Sequence[Any]) -> Comparison:
        comparison = self._differences("gradient beside differences", value, along, directions, self.point)
        return (
            comparison
            if comparison.ok
            else Comparison(comparison.what, comparison.difference, comparison.allowed, self._first_rule(value))
        )

    def _not_finite(self) -> str:
        """Name the node at which the value becomes nan or infinite."""
        graph, arrays = _graph_of(self._compiling("value", lambda x: self.loss(x)), self.point)
        cause = origin(graph, arrays)
        return f"not compared: {cause}" if cause else "not compared: the value is infinite"

    def _first_rule(self, function: Traced[..., Any]) -> str:
        """Name the first node of a call's graph whose derivative is not the derivative of its value."""
        graph, arrays = _graph_of(function, self.point)
        computed = dict(zip(graph.inputs, arrays))
        for node in graph.nodes:
            evaluate(node, computed)
            with contextlib.suppress(Exception):  # the node cannot be evaluated by itself
                if (
                    node.result_index is None
                    and node.op is not custom_call
                    and not self._has_right_rule(node, computed)
                ):
                    return f"first at {_with_location(node.name, node)}"
        rules = [_with_location(f"the rule of {dict(x.params)['rule']}", x) for x in graph.nodes if x.op is custom_call]
        suspects = " or ".join(dict.fromkeys(rules)) or "what has a backward of its own, as an autograd.Function"
        return f"each op has the right derivative: look at {suspects}"

    def _has_right_rule(self, node: GraphNode, computed: dict[GraphNode, Any]) -> bool:
        """Whether a node's derivative is the derivative of its value, in the operands that it is differentiable in."""
        op, params = node.op, dict(node.params)
        assert op is not None
        args: list[Any] = [computed[x] if isinstance(x, GraphNode) else x for x in node.inputs]
        floating = [k for k, x in enumerate(args) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
        positions = [k for k in floating if op.differentiable_in(k)]
        result = computed[node] if node.is_multi_result else (computed[node],)
        weights = [self.draws.normal(size=x.shape).astype(x.dtype) if x.dtype.kind == "f" else None for x in result]
        if not positions or all(w is None for w in weights):
            return True

        def value(point: Any) -> Any:
            result = bind(
                op, tuple([point[positions.index(k)] if k in positions else x for k, x in enumerate(args)]), params
            )
            result = result if isinstance(result, tuple) else (result,)
            return sum((np.sum(x * w) for x, w in zip(result, weights) if w is not None), 0.0)

        point = [args[k] for k in positions]
        directions = [np.asarray(self.draws.normal(size=x.shape), x.dtype) for x in point]
        derivative = _dot(
            self._compiling(f"derivative of {node.name}", lambda x: api.grad(value)(x))(point), directions
        )
        return self._differences("", value, derivative, directions, point).ok

    def _forward(self, along: object, directions: Sequence[object]) -> Comparison:
        label = "forward mode beside reverse mode"
        push = self._compiling("forward", lambda x, t: api.jvp(self.loss, (x,), (t,))[1])
        try:
            tangent = push(self.point, directions)
        except (TypeError, UnsupportedError) as error:  # for example, a rule for reverse mode only
            return Comparison(label, 0.0, 0.0, f"not compared: {str(error).splitlines()[0]}")
        return _compare(label, tangent, along, _DIGITS * self._rounding)

    @property
    def _rounding(self) -> float:
        return max(float(np.finfo(np.asarray(x).dtype).eps) for x in self.point)

    def _compiled(self, label: str, function: Traced[..., object], wanted: object) -> Comparison:
        with settings.override(first_call="compile"):
            result = function(self.point)
        comparison = _compare(f"{label}: compiled beside NumPy", result, wanted, _DIGITS * _rounding_of(wanted))
        return (
            comparison
            if comparison.ok
            else Comparison(
                comparison.what, comparison.difference, comparison.allowed, _first_node(function, self.point)
            )
        )

    def _differences(
        self, label: str, f: Function, derivative: Any, directions: Sequence[object], point: list[NDArray | float]
    ) -> Comparison:
        """Compare a derivative with central differences, whose error is estimated with a second step."""
        step = self._rounding ** (1 / 3)

        def at(k: float) -> float:
            return float(f([x + k * step * d for x, d in zip(point, directions)]))

        forward, center, backward = at(1.0), at(0.0), at(-1.0)
        near, far = (forward - backward) / (2 * step), (at(2.0) - at(-2.0)) / (4 * step)
        size = abs(near) + abs(center) + abs(float(derivative))
        if not np.isfinite(size + far):
            return Comparison(label, 0.0, 0.0, "not finite here, or next to it: not compared")
        if abs((forward - center) - (center - backward)) > 100 * step**2 * (1.0 + size):
            return Comparison(label, 0.0, 0.0, "next to a kink, or too steep: not compared")
        allowed = 10 * abs(near - far) / (1e-300 + size) + 100 * step**2
        if allowed > _MAX_ERROR_ESTIMATE:
            return Comparison(label, 0.0, 0.0, "differences have too few digits here: not compared")
        return _compare(label, derivative, near, allowed, size)


def _with_location(label: str, node: GraphNode) -> str:
    return f"{label} ({node.location})" if node.location else label


def _detached(x: Any) -> Any:
    return x.detach()


def _dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    return sum((np.sum(x * y) for x, y in zip(xs, ys)), 0.0)


def _rounding_of(xs: object) -> float:
    kinds = [np.asarray(x).dtype for x in tree.leaves(xs)]
    return max((float(np.finfo(kind).eps) for kind in kinds if kind.kind in "fc"), default=0.0)


def _compare(label: str, actual: object, wanted: object, allowed: float, size: float = 0.0) -> Comparison:
    """Compute the difference of two trees; it is infinite if shapes, or elements that are not finite, differ."""
    differences = [0.0]
    for a, b in zip(*(map(np.asarray, tree.leaves(x)) for x in (actual, wanted)), strict=True):
        differences.append(np.inf if a.shape != b.shape else _max_difference(a, b, size))
    return Comparison(label, max(differences), allowed)


def _max_difference(a: NDArray, b: NDArray, size: float) -> float:
    if a.dtype.kind not in "fc":
        return 0.0 if np.array_equal(a, b) else np.inf
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    largest = max(size, np.max(np.abs(b[finite]), initial=0.0))
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0) / (largest or 1.0))


def _graph_of(function: Traced[..., object], point: object) -> tuple[Graph, list[Any]]:
    """Return the graph of a call, and its inputs."""
    call = function.binder.bind((point,), {})
    path, _, captured = function.find(call)
    rewind(call)
    return path.trace.graph, list(map(np.asarray, (*call.leaves, *captured)))


def _first_node(function: Traced[..., Any], point: object) -> str:
    """Name the first node of a call's graph whose compiled value is not NumPy's."""
    graph, arrays = _graph_of(function, point)
    computed = dict(zip(graph.inputs, arrays))
    nodes = [node for node in graph.nodes if not node.is_multi_result]

    def differs(node: GraphNode) -> bool:
        wanted = evaluate(node, computed)
        result = _run_node(graph, node, [computed[x] for x in graph.inputs])
        return not _compare("", result, wanted, _DIGITS * _rounding_of(wanted)).ok

    if len(nodes) > _MAX_LINEAR_SEARCH:
        low, high = 0, len(nodes) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if differs(nodes[middle]) else (middle + 1, high)
        nodes = nodes[low : low + 1]
    result = next((node for node in nodes if differs(node)), None)
    if result is None:
        return "each node alone is as NumPy's: they differ together, or the trace does"
    return f"first at {result.name} : {result.aval}" + (f" ({result.location})" if result.location else "")


def _run_node(graph: Graph, node: GraphNode, arrays: list[NDArray]) -> object:
    subgraph = sliced(graph.inputs, graph.nodes, [node])
    return compile_program(subgraph, ("array",) * len(subgraph.inputs), True).run(arrays)
