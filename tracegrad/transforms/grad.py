"""Reverse-mode derivatives of a function, taken inside a trace.

`linearize` runs a function on fresh copies of the differentiated arguments and keeps the part of the recorded graph that
depends on them: a *pullback*. Calling the pullback sweeps that part backwards and emits the cotangents into the same
trace, so a derivative is more nodes of the same graph, and nesting to any order needs nothing more. Fresh copies are
values of their own (`fresh`), so that an inner derivative is not confused with an outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad import ad, tree
from tracegrad.avals import is_literal
from tracegrad.errors import DTypeError, ShapeError, TraceError, located
from tracegrad.ir import Node
from tracegrad.ops.linear import fresh, full, zeros_like
from tracegrad.trace.builder import TraceBuilder, current_trace
from tracegrad.trace.describe import describe
from tracegrad.trace.tracer import Number, Tracer

__all__ = ["Pullback", "check_argnums", "linearize", "value_and_grad"]


class _Tape(list[ad.Entry]):
    """Entries of a tape; read backwards, it tells the builder the user's line of each."""

    def __init__(self, builder: TraceBuilder, nodes: Sequence[Node]):
        self.builder, self.nodes = builder, nodes
        super().__init__(self._entry(node) for node in nodes)

    def _entry(self, node: Node) -> ad.Entry:
        assert node.op is not None
        operands = tuple(x if is_literal(x) else self.builder.value(x) for x in node.inputs)
        return self.builder.value(node), node.op, operands, dict(node.params)

    def __reversed__(self) -> Iterator[ad.Entry]:
        for node, entry in zip(reversed(self.nodes), super().__reversed__()):
            self.builder.location = node.location
            yield entry


class Pullback:
    """From cotangents of outputs to cotangents of inputs."""

    def __init__(self, builder: TraceBuilder, inputs: Sequence[Tracer], outputs: Sequence[Tracer]):
        self.builder, self.inputs = builder, [x.node for x in inputs]
        self.outputs = [x.node for x in outputs]
        between = _between(builder.nodes, self.inputs, self.outputs)
        self.tape = _Tape(builder, between)
        self.active = ad.active_values(self.tape, [builder.value(x) for x in self.inputs], key=_node)

    def __call__(self, cotangents: Sequence[Any]) -> list[Any]:
        """Cotangents of the inputs, for one cotangent (or None: zero) per output."""
        seeds: dict[Any, Any] = {}
        for node, ct in zip(self.outputs, cotangents):
            if ct is not None:
                seeds[node] = ad.add(seeds[node], ct) if node in seeds else ct
        before, builder = self.builder.location, self.builder
        try:
            found = ad.reverse_sweep(self.tape, seeds, lambda x: x.node in self.active, key=_node)
        finally:
            builder.location = before
        return [found[x] if x in found else zeros_like(x) for x in self.inputs]


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


def linearize(
    fun: Callable[..., Any], args: Sequence[Any], argnums: Sequence[int], kwargs: dict[str, Any], who: str
) -> Any:
    """`fun(*args, **kwargs)` in the current trace, and the fresh leaves and tree structure of each of `argnums`."""
    builder = current_trace()
    assert builder is not None
    changed, leaves, structures = list(args), [], []
    for i in dict.fromkeys(argnums):
        given, structure = tree.flatten(args[i])
        renewed = [
            _fresh(builder, x, who, lambda k=k, i=i: _path(fun, i, structure, k)) for k, x in enumerate(given)
        ]  # type: ignore[misc]
        changed[i] = tree.unflatten(structure, renewed)
        leaves.append([x for x in renewed])
        structures.append(structure)
    result = builder.world.inline(fun)(*changed, **kwargs)
    return result, leaves, structures


def _fresh(builder: TraceBuilder, x: Any, who: str, path: Callable[[], str]) -> Tracer:
    weak = type(x) is float or getattr(x, "weak", False)
    if isinstance(x, bool | int | np.bool_ | np.integer) or (hasattr(x, "dtype") and x.dtype.kind != "f"):
        kind = x.dtype if hasattr(x, "dtype") else type(x).__name__
        raise DTypeError(located(f"{who} requires real- or floating-valued inputs, got {kind} at {path()}"))
    if not isinstance(x, float | np.ndarray | np.generic | Tracer):
        raise TraceError(
            located(f"{who} cannot differentiate with respect to {path()}, a {type(x).__name__}")
        )
    if type(x) is float:
        x = full(shape=(), value=x, dtype="float64")
    value = fresh(builder.lift(x), tag=builder.new_tag())
    return builder.argument_like(Number if weak else Tracer, value.node)


def _path(fun: Any, argnum: int, structure: Any, leaf: int) -> str:
    return describe(fun).argument(argnum) + tree.leaf_paths(structure)[leaf]


def value_and_grad(
    fun: Callable[..., Any], argnums: int | tuple[int, ...], has_aux: bool
) -> Callable[..., Any]:
    """The function `(*args, **kwargs) -> (value, gradient)`, or `((value, aux), gradient)`, of tracers."""
    several = argnums if isinstance(argnums, tuple) else (argnums,)

    def call(*args: Any, **kwargs: Any) -> Any:
        who = f"grad of {describe(fun)}"
        positions = check_argnums(several, len(args), who)
        result, leaves, structures = linearize(fun, args, positions, kwargs, who)
        value, aux = _pair(result, who) if has_aux else (result, None)
        builder = current_trace()
        assert builder is not None
        value = _scalar(builder, value, who)
        flat = [x for part in leaves for x in part]
        seed = full(shape=(), value=1.0, dtype=value.dtype.name)
        cts = iter(Pullback(builder, flat, [value])([seed]))
        by_argnum = {
            i: tree.unflatten(s, [next(cts) for _ in part])
            for i, s, part in zip(dict.fromkeys(positions), structures, leaves)
        }
        gradients = tuple(by_argnum[i] for i in positions)
        gradient = gradients if isinstance(argnums, tuple) else gradients[0]
        return ((value, aux) if has_aux else value), gradient

    return call


def check_argnums(argnums: Sequence[int], count: int, who: str) -> list[int]:
    """`argnums` counted from the front; ValueError for one that names no positional argument."""
    for i in argnums:
        if not -count <= i < count:
            raise ValueError(
                located(f"{who}: argnum {i} names no argument: {count} positional arguments were given")
            )
    return [i % count for i in argnums]


def _pair(result: Any, who: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            located(
                f"{who} with has_aux=True: the function must return a pair (value, aux), got {_what(result)}"
            )
        )
    return result


def _scalar(builder: TraceBuilder, value: Any, who: str) -> Any:
    if type(value) is float:
        value = full(shape=(), value=value, dtype="float64")
    if not isinstance(value, Tracer | np.ndarray | np.generic):
        raise TypeError(located(f"{who}: the function must return one number, got {_what(value)}"))
    if value.shape != ():
        raise ShapeTypeError(
            located(
                f"{who}: the output must be a scalar, got shape {value.shape}; use vjp, or sum the output"
            )
        )
    if value.dtype.kind != "f":
        raise DTypeError(located(f"{who}: the output must be floating, got {value.dtype}"))
    return builder.lift(value)


class ShapeTypeError(ShapeError, TypeError):
    """An output that is not a scalar; PyTorch and NumPy users look for ShapeError, JAX users for TypeError."""


def _what(x: Any) -> str:
    return f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, tuple | list | dict) else "")
