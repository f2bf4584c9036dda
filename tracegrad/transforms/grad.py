"""Reverse-mode derivatives of a function: `value_and_grad` and `pull_back`, inside a trace and eagerly.

Inside a trace, `traced_vjp` runs a flat function on fresh copies of the differentiated arguments and keeps the part
of the recorded graph that depends on them: a *pullback*. Calling it sweeps that part backwards and emits the
cotangents into the same trace, so a derivative is more nodes of the same graph, and nesting to any order needs
nothing more. Fresh copies are values of their own (`fresh`), so that an inner derivative is not confused with an
outer one.

Outside of a trace, `tracegrad.torch.tape.functional.eager_vjp` has the same meaning on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad import ad, tree
from tracegrad.avals import is_literal, name_of
from tracegrad.errors import DTypeError, ShapeError, TraceError, located
from tracegrad.ir import Node
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise import accumulate
from tracegrad.ops.linear import fresh, full, zeros_like
from tracegrad.torch.tape.functional import eager_vjp
from tracegrad.torch.tape.recorded import Recorded
from tracegrad.trace.builder import TraceBuilder, current_trace
from tracegrad.trace.describe import Description, describe, signature_of
from tracegrad.trace.tracer import Number, Tracer

__all__ = ["Pullback", "check_pull_back", "pull_back", "traced_vjp", "value_and_grad"]


FlatFunction = Callable[..., Sequence[Any]]


class _Tape(list[ad.Entry]):
    """Entries of a tape; read backwards, it tells the builder the user's line of each."""

    def __init__(self, builder: TraceBuilder, nodes: Sequence[Node]):
        self.builder, self.nodes = builder, [node for node in nodes if node.picks is None]
        super().__init__(self._entry(node) for node in self.nodes)

    def _entry(self, node: Node) -> ad.Entry:
        assert node.op is not None
        operands = tuple([x if is_literal(x) else self.builder.value(x) for x in node.inputs])
        return self.builder.valued(node), node.op, operands, dict(node.params)

    def __reversed__(self) -> Iterator[ad.Entry]:
        for node, entry in zip(reversed(self.nodes), super().__reversed__()):
            self.builder.location = node.location
            yield entry


class Pullback:
    """From cotangents of outputs to cotangents of inputs."""

    def __init__(self, builder: TraceBuilder, inputs: Sequence[Tracer], outputs: Sequence[Tracer]):
        self.builder = builder
        self.inputs, self.outputs = list(inputs), [x.node for x in outputs]
        nodes = [x.node for x in inputs]
        self.tape = _Tape(builder, _between(builder.nodes, nodes, self.outputs))
        self.active = ad.active_values(self.tape, inputs, key=_node)

    def __call__(self, cotangents: Sequence[Any]) -> list[Any]:
        """Cotangents of the inputs, for one cotangent per output (None: zero)."""
        seeds: dict[Any, Any] = {}
        for node, ct in zip(self.outputs, cotangents):
            if ct is not None:
                seeds[node] = accumulate(seeds[node], ct) if node in seeds else ct
        builder = self.builder
        before = builder.location
        try:
            found = ad.reverse_sweep(self.tape, seeds, lambda x: x.node in self.active, key=_node)
        finally:
            builder.location = before
        return [found[x.node] if x.node in found else zeros_like(x) for x in self.inputs]


def _node(x: Any) -> Any:
    return x.node


def _between(nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The nodes that depend on `inputs` and that `outputs` need, in order."""
    dependent = set(inputs)
    for node in nodes:
        if not dependent.isdisjoint(node.operands):
            dependent.add(node)
    needed, found = set(outputs), []
    for node in reversed(nodes):
        if node in needed and node in dependent:
            needed.update(node.operands)
            found.append(node)
    return found[::-1]


def traced_vjp(fn: FlatFunction, primals: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """In the current trace: the flat outputs of `fn`, and the function from their cotangents to the primals'."""
    builder = current_trace()
    assert builder is not None
    inside = [_fresh(builder, x) for x in primals]
    with builder.differentiating([x.node for x in inside]):
        outputs = [builder.lift(x) for x in fn(*inside)]
    return outputs, Pullback(builder, [x if x.weak else Tracer(builder, x.node) for x in inside], outputs)


def _fresh(builder: TraceBuilder, x: Any) -> Tracer:
    weak = type(x) is float or getattr(x, "weak", False)
    if type(x) is float:
        x = full(shape=(), value=x, dtype="float64")
    node = fresh(builder.lift(x), tag=builder.new_tag()).node
    value: Tracer = builder.argument_like(Number if weak else Tracer, node)
    return value


def _vjp(fn: FlatFunction, primals: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    on_tape = current_trace() is None or any(isinstance(x, Recorded) for x in primals)
    return eager_vjp(fn, primals) if on_tape else traced_vjp(fn, primals)


def _inline(fun: Callable[..., Any]) -> Callable[..., Any]:
    trace = current_trace()
    if trace is None:
        return fun
    inlined: Callable[..., Any] = trace.world.inline(fun)
    return inlined


class _Arguments:
    """The leaves of the arguments `argnums` of a call, and how to call with others in their place."""

    def __init__(self, args: Sequence[Any], argnums: Sequence[int], who: Description):
        self.args, self.argnums = list(args), list(dict.fromkeys(argnums))
        self.structures = []
        self.leaves: list[Any] = []
        for i in self.argnums:
            leaves, structure = tree.flatten(args[i])
            for k, x in enumerate(leaves):
                _require_floating(x, who, i, structure, k)
            self.structures.append(structure)
            self.leaves += leaves

    def unflatten(self, leaves: Sequence[Any]) -> dict[int, Any]:
        """For each argnum, the argument with these leaves."""
        supply = iter(leaves)
        return {
            i: tree.unflatten(s, [next(supply) for _ in range(s.num_leaves)])
            for i, s in zip(self.argnums, self.structures)
        }

    def replaced(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, with these leaves in those of the argnums."""
        changed = self.unflatten(leaves)
        return [changed.get(i, x) for i, x in enumerate(self.args)]


_PYTHON = {"f": "float", "i": "int", "b": "bool"}


def _require_floating(x: Any, who: Description, argnum: int, structure: Any, leaf: int) -> None:
    dtype = getattr(x, "dtype", None) if isinstance(x, np.ndarray | np.generic | Carrier) else None
    if (dtype is not None and dtype.kind == "f") or type(x) is float:
        return
    path = who.argument(argnum) + tree.paths(structure)[leaf]
    if dtype is None and type(x) not in (int, bool):
        raise TraceError(located(f"{who} cannot differentiate with respect to {path}, which is a {type(x).__name__}"))
    kind = _PYTHON[dtype.kind] if dtype is not None and getattr(x, "weak", False) else dtype or type(x).__name__
    raise DTypeError(located(f"{who} requires real- or floating-valued inputs, got {kind} at {path}"))


def value_and_grad(fun: Callable[..., Any], argnums: int | tuple[int, ...], has_aux: bool) -> Callable[..., Any]:
    """The function `(*args, **kwargs) -> (value, gradient)`, or `((value, aux), gradient)`."""
    several = argnums if isinstance(argnums, tuple) else (argnums,)
    who = describe(fun, "grad of ")

    def call(*args: Any, **kwargs: Any) -> Any:
        given, keywords = _positional(fun, args, kwargs)
        positions = _positions(several, len(given), who)
        arguments = _Arguments(given, positions, who)
        aux: list[Any] = [None, None]

        def flat(*leaves: Any) -> list[Any]:
            result = _inline(fun)(*arguments.replaced(leaves), **keywords)
            value, rest = _pair(result, who) if has_aux else (result, None)
            aux[:] = tree.flatten(rest)
            return [_scalar(value, who), *(x for x in aux[0] if isinstance(x, Carrier))]

        (value, *carried), pullback = _vjp(flat, arguments.leaves)
        seed = full(shape=(), value=1.0, dtype=name_of(value.dtype))
        gradients = arguments.unflatten(pullback([seed, *(None for _ in carried)]))
        chosen = tuple([gradients[i] for i in positions])
        gradient = chosen if isinstance(argnums, tuple) else chosen[0]
        return ((value, _with_carried(aux, carried)) if has_aux else value), gradient

    return call


def _with_carried(aux: list[Any], carried: Sequence[Any]) -> Any:
    supply = iter(carried)
    return tree.unflatten(aux[1], [next(supply) if isinstance(x, Carrier) else x for x in aux[0]])


def check_pull_back(fun: Callable[..., Any], primals: Sequence[Any], out: Any) -> None:
    """Raise what `pull_back` would raise for these primals and this output."""
    who = describe(fun, "vjp of ")
    _Arguments(primals, range(len(primals)), who)
    for x in tree.leaves(out):
        _output(x, who)


def pull_back(
    fun: Callable[..., Any], primals: Sequence[Any], has_aux: bool
) -> tuple[Any, Callable[[Any], tuple[Any, ...]], Any]:
    """The output of `fun`, the function from its cotangent to the tuple of the primals', and aux."""
    who = describe(fun, "vjp of ")
    arguments = _Arguments(primals, range(len(primals)), who)
    aux: list[Any] = [None, None]
    structures: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        result = _inline(fun)(*arguments.replaced(leaves))
        out, rest = _pair(result, who) if has_aux else (result, None)
        aux[:] = tree.flatten(rest)
        outputs, structure = tree.flatten(out)
        structures.append(structure)
        return [*(_output(x, who) for x in outputs), *(x for x in aux[0] if isinstance(x, Carrier))]

    outputs, pullback = _vjp(flat, arguments.leaves)
    structure = structures[0]
    outputs, carried = outputs[: structure.num_leaves], outputs[structure.num_leaves :]

    def vjp_fn(cotangent: Any) -> tuple[Any, ...]:
        try:
            given = tree.flatten_up_to(structure, cotangent, "cotangent")
        except ShapeError as error:
            raise ShapeError(located(f"{who}: {error}")) from None
        names = tree.paths(structure, "cotangent")
        cts = [_cotangent(*three, who) for three in zip(given, outputs, names)]
        return tuple(arguments.unflatten(pullback([*cts, *(None for _ in carried)])).values())

    return tree.unflatten(structure, outputs), vjp_fn, _with_carried(aux, carried)


def _output(x: Any, who: Description) -> Any:
    if is_literal(x):
        x = np.asarray(x)[()]
    if not _is_array(x):
        raise TypeError(located(f"{who}: the outputs must be arrays, got {_what(x)}"))
    return x


def _cotangent(ct: Any, output: Any, name: str, who: Description) -> Any:
    if output.dtype.kind != "f":
        return None
    if is_literal(ct):
        ct = full(shape=(), value=float(ct), dtype=output.dtype.name)
    if not _is_array(ct):
        raise TypeError(located(f"{who}: {name} must be an array, got {_what(ct)}"))
    if ct.shape != output.shape:
        raise ShapeError(located(f"{who}: {name} has shape {ct.shape}, the output has shape {output.shape}"))
    if ct.dtype.kind != "f":
        raise DTypeError(located(f"{who}: {name} must be floating as the output is, got {ct.dtype}"))
    return ct if ct.dtype == output.dtype else ct.astype(output.dtype)


def _positional(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    signature = signature_of(fun) if kwargs else None
    if signature is None:
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    return bound.args, bound.kwargs


def _positions(argnums: Sequence[int], count: int, who: Description) -> list[int]:
    for i in argnums:
        if not -count <= i < count:
            raise ValueError(located(f"{who}: argnums names argument {i}, but there are {count} positional arguments"))
    return [i % count for i in argnums]


def _pair(result: Any, who: Description) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            located(f"{who}: with has_aux=True the function must return a pair (value, aux), got {_what(result)}")
        )
    return result


class OutputError(ShapeError, TypeError):
    """An output that is no scalar: a ShapeError, and the TypeError that JAX raises."""


def _scalar(value: Any, who: Description) -> Any:
    if type(value) is float:
        value = np.float64(value)
    if not _is_array(value):
        raise TypeError(located(f"{who}: the output must be a scalar, got {_what(value)}"))
    if tuple(value.shape) != ():
        raise OutputError(
            located(f"{who}: the output must be a scalar, got shape {value.shape}; use vjp, or sum the output")
        )
    if value.dtype.kind != "f":
        raise DTypeError(located(f"{who}: the output must be floating, got {value.dtype}"))
    return value


def _is_array(x: Any) -> bool:
    return isinstance(x, Carrier | np.ndarray | np.generic)


def _what(x: Any) -> str:
    return f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, tuple | list | dict) else "")
