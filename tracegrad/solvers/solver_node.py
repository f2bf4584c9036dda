"""Solver node: a SciPy solver as a node of a graph, which calls it with functions that are graphs too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval
from tracegrad.control.operands import inlined, joined
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Graph, build, replay
from tracegrad.locks import cached_property
from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.ops import Carrier, TapeCarrier
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.core.recorders import aside
from tracegrad.ops.shape.linear import cast
from tracegrad.solvers.callbacks import Callback
from tracegrad.trace.driver.closed_rules import RuleGraph
from tracegrad.trace.driver.region import closed

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray, Shape


# Shapes and dtypes of the results of a solver.
Kinds = tuple[tuple[tuple[int, ...], str], ...]

# A function and values like its arguments: avals, or numbers.
TypedFunction = tuple[Callable[..., Any], tuple[Any, ...]]


class Functions:
    """Functions of one argument `x`, as graphs of it and of `captured`, which they share.

    The argument is a float64 array of the shape `x`, or a Python number if `x` is None. An item of `fs` is a function,
    the shape of its result (None for any), and optionally the shape of its own argument.
    """

    def __init__(self, api_name: str, fs: Sequence[tuple[Any, ...]], x: tuple[int, ...] | None):
        def typed(f: Callable[..., Any], shape: Shape, x_shape: Any = x) -> TypedFunction:
            like: Any = 0.0 if x_shape is None else Aval(x_shape, np.dtype(np.float64))
            return _one_array(f, shape), (like,)

        self.api_name, self.x = api_name, x
        self.captured, self.graphs = recorded(api_name, [typed(*f) for f in fs], "a function of Tensors")

    def value(self, k: int, x: object) -> Any:
        """Return the value of function `k` at `x`, in the trace."""
        return replay(self.graphs[k], [x, *self.captured])[0][0]

    def to_scipy(self, values: Sequence[Any]) -> list[Callable[..., Any]]:
        """Return the functions for these captured values."""
        return [callback.at(values) for callback in self._callbacks]

    @cached_property
    def _callbacks(self) -> list[Callback]:
        return [Callback(graph, self.api_name) for graph in self.graphs]


def recorded(
    api_name: str, fs: Sequence[TypedFunction], refused: str, start: Sequence[Array] = ()
) -> tuple[list[Any], list[Graph]]:
    """Record functions with as many arguments; return their captures, and their graphs of arguments and captures.

    Tensors among the captures and in `start` raise UnsupportedError; the text calls them `refused`.
    """
    regions = [closed(f, like, f"a function that {api_name} calls") for f, like in fs]
    captured, graphs = joined(regions, len(fs[0][1]))
    if any(isinstance(v, TapeCarrier) for v in [*start, *captured]):
        raise UnsupportedError(located(f"{api_name} of {refused} is not supported; give it arrays"))
    return captured, graphs


def _one_array(f: Callable[..., object], shape: tuple[int, ...] | None) -> Callable[..., object]:
    def call(x: object) -> Array:
        return shaped(inlined(f)(x), shape)

    return call


def shaped(y: Any, shape: tuple[int, ...] | None) -> Array:
    """Convert an array, a number or a list of numbers to float64 and to this shape."""
    (y,) = arrays(y)
    if y.dtype.kind == "c":
        text = "complex numbers in what a solver of SciPy's is given, and its functions give, are not supported"
        raise UnsupportedError(located(f"{text}; give their real and imaginary parts"))
    y = to_float(y)
    y = y if y.dtype == np.float64 else cast(y, dtype="float64")
    return y if shape is None or y.shape == shape else np.reshape(y, shape)


class Starts:
    """Arguments of a solver as a dictionary, with the traced values separate from the structure."""

    def __init__(self, arguments: Mapping[str, Any]):
        self.leaves, self.structure = tree.flatten(dict(arguments))
        self.positions = [k for k, x in enumerate(self.leaves) if isinstance(x, Carrier)]
        self.traced = [self.leaves[k] for k in self.positions]
        self.leaves = [None if isinstance(x, Carrier) else x for x in self.leaves]

    def with_values(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments, with values for the traced ones."""
        leaves = list(self.leaves)
        for k, x in zip(self.positions, values):
            leaves[k] = np.array(x) if np.ndim(x) else np.asarray(x).item()
        table: dict[str, Any] = tree.unflatten(self.structure, leaves)
        return table


def node_name(api_name: str, key: str) -> str:
    """Return the name of a solver with the digest of `key`, the text of all that its results depend on."""
    return f"{api_name} {hashlib.sha256(key.encode()).hexdigest()[:16]}"


class OpaqueCall:
    """Call of SciPy as a parameter of a node; unequal calls have unequal names."""

    name: str

    def __repr__(self) -> str:
        return repr(self.name)


class LastResult:
    """Result of SciPy for the last inputs, which several nodes use."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._result: Any = None

    def get(self, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """Return the result for these inputs, computed outside of the trace unless they equal the last ones."""
        key = tuple([x.tobytes() if isinstance(x, np.ndarray) else x for x in inputs])
        if key != self._key:
            with aside():
                self._result = compute()
            self._key = key
        return self._result


class _SolverCall(OpaqueCall):
    """Opaque call of a solver, `run(functions, starts)`."""

    def __init__(self, functions: Functions, starts: Starts, run: Callable[..., Any], kinds: Kinds, text: str):
        self.functions, self.starts, self.run, self.kinds = functions, starts, run, kinds
        graphs = "".join(map(str, functions.graphs))
        self.name = node_name(functions.api_name, f"{graphs} {starts.leaves!r} {starts.structure} {text} {kinds}")

    def __call__(self, *inputs: Array) -> tuple[NDArray, ...]:
        count = len(self.starts.positions)
        with aside():
            starts = self.starts.with_values(inputs[:count])
            result = self.run(self.functions.to_scipy([np.asarray(x) for x in inputs[count:]]), starts)
        return tuple([np.asarray(x, _DTYPES[dtype]).reshape(shape) for x, (shape, dtype) in zip(result, self.kinds)])


_DTYPES = {"f64": np.float64, "i64": np.int64, "bool": np.bool_}


def called(
    functions: Functions,
    starts: Starts,
    run: Callable[..., Any],
    kinds: Kinds,
    text: str,
    make_rule: Callable[[str], SolverRule],
) -> tuple[Array, ...]:
    """Call the solver as a node whose derivative is the rule `make_rule(name)`, with respect to the captures."""
    solver = _SolverCall(functions, starts, run, kinds, text)
    outputs = opaque(*starts.traced, *functions.captured, results=kinds, call=solver)
    rule = make_rule(solver.name)
    return tuple(custom_call(*outputs, *functions.captured, count=len(kinds), rule=rule))


class SolverRule:
    """Derivative rule whose two directions become graphs at their first use.

    `pull(cotangents, outputs, inputs)` and `push(tangents, outputs, inputs)` receive floating values only, and return a
    dictionary by position: the cotangents of inputs, or the tangents of outputs. A rule that `chooses` receives, as a
    last argument, the positions of the inputs whose cotangents are wanted, or that have the tangents.
    """

    def __init__(
        self,
        name: str,
        directions: Mapping[str, Callable[..., dict[int, Any]]],
        size: int = 0,
        one: Any = None,
        chooses: bool = False,
    ):
        self.name, self.directions, self.size, self.one, self.chooses = name, directions, size, one, chooses
        self._graphs: dict[Any, RuleGraph] = {}

    def __repr__(self) -> str:
        return repr(f"{self.name} {self.size}" if self.size else self.name)

    def graph_of(
        self, direction: str, outputs: Sequence[Aval], inputs: Sequence[Aval], chosen: tuple[int, ...]
    ) -> RuleGraph:
        """Return the graph of a direction, for values of these kinds and the inputs `chosen`."""
        result = self._graphs.get((direction, chosen))
        if result is None:
            if self.one is not None:
                rest = [[Aval(x.shape[1:], x.dtype) for x in xs] for xs in (outputs, inputs)]
                result = self.one.graph_of(direction, *rest, chosen).batched(self.size)
            else:
                result = self._recorded(direction, list(outputs), list(inputs), chosen)
            self._graphs[direction, chosen] = result
        return result

    def _recorded(self, direction: str, outputs: list[Aval], inputs: list[Aval], chosen: tuple[int, ...]) -> RuleGraph:
        moved = outputs if direction == "pull" else [inputs[i] for i in chosen]
        moved = [x for x in moved if x.is_float]
        positions: list[int] = []
        n, m = len(moved), len(moved) + len(outputs)
        extra = (chosen,) if self.chooses else ()

        def fn(*args: object) -> list[Any]:
            result = self.directions[direction](args[:n], args[n:m], args[m:], *extra)
            positions[:] = list(result)
            return list(result.values())

        graph: Graph = build(fn, [*moved, *outputs, *inputs])
        return RuleGraph(graph, [], positions)

    def pull(
        self,
        cotangents: tuple[Array | None, ...],
        outputs: tuple[Array, ...],
        inputs: tuple[Array, ...],
        wanted: Sequence[int] = (),
    ) -> list[Array | None]:
        """Compute the cotangents of the inputs, at least of the wanted ones."""
        chosen = tuple(wanted) if self.chooses else tuple(range(len(inputs)))
        graph = self.graph_of("pull", _kinds(outputs), _kinds(inputs), chosen)
        result = graph.run(cotangents, outputs, [*outputs, *inputs], ())
        return [result.get(i) for i in range(len(inputs))]

    def push(
        self, tangents: tuple[Array | None, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...]
    ) -> list[Array | None]:
        """Return the tangents of the outputs."""
        chosen = tuple([i for i, t in enumerate(tangents) if t is not None or not self.chooses])
        graph = self.graph_of("push", _kinds(outputs), _kinds(inputs), chosen)
        result = graph.run([tangents[i] for i in chosen], [inputs[i] for i in chosen], [*outputs, *inputs], ())
        return [result.get(k) for k in range(len(outputs))]

    def batched(self, size: int) -> SolverRule:
        """Return the rule for a batch of this size of all values."""
        return SolverRule(f"{self.name} {self.size}" if self.size else self.name, {}, size, self, self.chooses)


def _kinds(xs: tuple[Array, ...]) -> list[Aval]:
    return [Aval(x.shape, np.dtype(x.dtype)) for x in xs]


# The fields of SciPy's result objects.
_FIELDS = {
    "active_mask", "allvecs", "con", "constr", "constr_violation", "converged", "cost", "crossover_nit", "direc",
    "eqlin", "final_simplex", "fjac", "flag", "fun", "funl", "function_calls", "grad", "hess", "hess_inv", "ier",
    "ineqlin", "iterations", "jac", "lower", "lowest_optimization_result", "maxcv", "message", "method",
    "minimization_failures", "multipliers", "nfev", "nhev", "nit", "njev", "nlfev", "nlhev", "nljev", "nlu",
    "optimality", "p", "population", "population_energies", "qtf", "r", "rms_residuals", "root", "slack", "sol",
    "status", "success", "t", "t_events", "task", "unbounded_sol", "upper", "x", "xl", "y", "y_events", "yp",
}  # fmt: skip


class SolverResult(dict[str, Any]):
    """Result of a solver, as in SciPy: fields are attributes and items.

    UnsupportedError for fields that SciPy's results have, but not this result.
    """

    def __init__(self, api_name: str, **fields: object):
        super().__init__(fields)
        self.__dict__["_what"] = api_name

    def __getattr__(self, name: str) -> Any:
        if name in self or name in _FIELDS:
            return self[name]
        raise AttributeError(f"the result of {self.__dict__['_what']} has no field {name!r}")

    def __missing__(self, name: str) -> object:
        if name not in _FIELDS:
            raise KeyError(name)
        api_name, known = self.__dict__["_what"], ", ".join(self)
        raise UnsupportedError(
            located(f"the field {name!r} of the result of {api_name} is not known in traced code, which has {known}")
        )


tree.register_pytree_node(
    SolverResult,
    lambda x: (tuple(x.values()), (x.__dict__["_what"], tuple(x))),
    lambda aux, values: SolverResult(aux[0], **dict(zip(aux[1], values))),
)
