"""Jacobians, Hessians and Hessian-vector products, by batched pullbacks and pushforwards.

A row of a Jacobian is the pullback of one output element; a column is the pushforward of one input element. All rows
are one batch (`transforms.vmap`), or batches of `chunk_size` in a loop; values independent of the row are computed
once. Outside a trace, rows are computed one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval, aval_of, is_literal, name_of
from tracegrad.control.loops import map as over_chunks
from tracegrad.errors import DTypeError, located
from tracegrad.ops.elementwise.complex import conj
from tracegrad.ops.elementwise.table import add, equal
from tracegrad.ops.shape.batching import to_axis
from tracegrad.ops.shape.linear import arange, cast, concatenate, full, reshape, slice
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.sources.describe import Description, describe
from tracegrad.transforms.flat_function import FlatCall, as_tensors, inlined
from tracegrad.transforms.jvp_function import LinearizationPoint, jvp, linear_at
from tracegrad.transforms.vjp_function import VjpArguments, positional, positions, value_and_grad, vjp_at
from tracegrad.transforms.vmap import map_rows

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


__all__ = ["forward_jacobian", "hessian_of", "hvp_at", "reverse_jacobian"]

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]
# The derivative of each output with respect to each input, with the axes of both.
Blocks = list[list[Any]]


def reverse_jacobian(
    fun: Function, argnums: Argnums, has_aux: bool, holomorphic: bool, chunk_size: int | None, description: Description
) -> Function:
    """Return the function to the Jacobian of `fun`, computed row by row."""

    def blocks(flat: FlatCall, leaves: list[Array]) -> tuple[Blocks, Any]:
        values, pullback = vjp_at(flat, leaves)
        outputs, aux = flat.split(values)
        kinds = _kinds(outputs, description, "outputs", "c" if holomorphic else "f")

        def compute_rows(start: Operand, count: int) -> Any:
            if _total(kinds) == 1:
                return [_with_axis(x) for x in pullback(_single(kinds))]
            return map_rows(lambda *cts: pullback(cts), _basis(kinds, start, count), count, str(description))

        result = _in_chunks(compute_rows, _total(kinds), chunk_size)
        inputs = _kinds(leaves, description, "arguments", "c" if holomorphic else "fc")
        result = [conj(x) for x in result] if holomorphic else result
        return [
            [reshape(part, shape=(*y.shape, *x.shape)) for part, x in zip(parts, inputs)]
            for y, parts in zip(kinds, zip(*(_split_rows(x, kinds) for x in result)))
        ], aux

    return _jacobian(fun, argnums, has_aux, description, blocks)


def forward_jacobian(
    fun: Function, argnums: Argnums, has_aux: bool, holomorphic: bool, chunk_size: int | None, description: Description
) -> Function:
    """Return the function to the Jacobian of `fun`, computed column by column."""

    def blocks(flat: FlatCall, leaves: list[Operand]) -> tuple[Blocks, Any]:
        values, pushforward = linear_at(flat, leaves)
        outputs, aux = flat.split(values)
        kinds = _kinds(outputs, description, "outputs", "c" if holomorphic else "fc")
        inputs = _kinds(leaves, description, "arguments", "c" if holomorphic else "f")

        def columns(start: Operand, count: int) -> Any:
            if _total(inputs) == 1:
                result = pushforward(_single(inputs))[: len(kinds)]
                return [None if x is None else _with_axis(x) for x in result]
            basis = _basis(inputs, start, count)
            return map_rows(lambda *ts: pushforward(ts)[: len(kinds)], basis, count, str(description))

        return [
            [_zeros((*y.shape, *x.shape), y) for x in inputs]
            if result is None
            else [
                reshape(to_axis(part, 0, len(y.shape)), shape=(*y.shape, *x.shape))
                for part, x in zip(_split_rows(result, inputs), inputs)
            ]
            for y, result in zip(kinds, _in_chunks(columns, _total(inputs), chunk_size))
        ], aux

    return _jacobian(fun, argnums, has_aux, description, blocks)


def _jacobian(fun: Function, argnums: Argnums, has_aux: bool, description: Description, blocks: Any) -> Function:
    argnum_tuple = argnums if isinstance(argnums, tuple) else (argnums,)

    def call(*args: Any, **kwargs: Any) -> Any:
        inputs, keywords = positional(fun, args, kwargs)
        indices = positions(argnum_tuple, len(inputs), description)
        arguments = VjpArguments(inputs, indices, description)
        flat = FlatCall(lambda *xs: inlined(fun)(*xs, **keywords), arguments, description, has_aux)
        results, aux = blocks(flat, arguments.leaves)
        results = [[x[()] if isinstance(x, np.ndarray) else x for x in row] for row in results]
        results = [as_tensors(row, arguments.leaves) for row in results]
        jacobian = tree.unflatten(flat.structure, [_of_argnums(arguments, indices, argnums, row) for row in results])
        return (jacobian, aux) if has_aux else jacobian

    return call


def _of_argnums(arguments: VjpArguments, indices: Sequence[int], argnums: Argnums, leaves: list[Array]) -> object:
    trees = arguments.unflatten(leaves)
    chosen = tuple([trees[i] for i in indices])
    return chosen if isinstance(argnums, tuple) else chosen[0]


def hessian_of(
    fun: Function, argnums: Argnums, has_aux: bool, holomorphic: bool, chunk_size: int | None, description: Description
) -> Function:
    """Return the function to the Hessian of `fun`: the forward-mode Jacobian of the reverse-mode Jacobian."""
    inner = reverse_jacobian(fun, argnums, has_aux, holomorphic, None, description)
    return forward_jacobian(inner, argnums, has_aux, holomorphic, chunk_size, description)


def hvp_at(fun: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Compute the Hessian of `fun` at the primals times the tangents, forward over reverse."""
    description = describe(fun, "hvp of ")
    gradient = value_and_grad(fun, tuple(range(len(primals))), False)
    point = LinearizationPoint(primals, description)
    _, product, _ = jvp(lambda *xs: gradient(*xs)[1], point, point.tangents(tangents), False)
    return product[0] if len(primals) == 1 else product


# -- bases -------------------------------------------------------------------------------------------------------------
def _kind(x: object) -> Aval:
    return Aval((), np.dtype(np.float64)) if is_literal(x) else aval_of(x)


_NAMES = {"f": "floating", "c": "complex, for they are those of a holomorphic function", "fc": "floating or complex"}


def _kinds(values: Sequence[Any], description: Description, role: str, kinds: str) -> list[Aval]:
    """Return the avals of values; raise `DTypeError` for other kinds of dtypes."""
    results = [_kind(x) for x in values]
    for kind in results:
        if kind.dtype.kind not in kinds:
            raise DTypeError(located(f"{description}: the {role} must be {_NAMES[kinds]}, got {kind.dtype}"))
    return results


def _total(kinds: Sequence[Aval]) -> int:
    return sum(x.size for x in kinds)


def _single(kinds: Sequence[Aval]) -> list[Any]:
    """Return the only basis vector of all values, if they have one element."""
    return [full(shape=x.shape, value=1.0, dtype=name_of(x.dtype)) for x in kinds]


def _basis(kinds: Sequence[Aval], start: Operand, count: int) -> list[Array]:
    """Return basis vectors `start` to `start + count` of all values: for each value, its components."""
    numbers = add(reshape(arange(start=0, step=1, length=count, dtype="int64"), shape=(count, 1)), start)
    result, before = [], 0
    for x in kinds:
        columns = reshape(arange(start=before, step=1, length=x.size, dtype="int64"), shape=(1, x.size))
        result.append(reshape(cast(equal(numbers, columns), dtype=name_of(x.dtype)), shape=(count, *x.shape)))
        before += x.size
    return result


def _with_axis(x: Array) -> Array:
    return reshape(x, shape=(1, *x.shape))


def _zeros(shape: tuple[int, ...], like: Aval) -> Array:
    return full(shape=shape, value=0.0, dtype=name_of(like.dtype))


def _split_rows(x: Array, kinds: Sequence[Aval]) -> list[Any]:
    """Split `x` into the rows of each value."""
    result, start = [], 0
    for kind in kinds:
        result.append(_slice_rows(x, start, start + kind.size))
        start += kind.size
    return result


def _slice_rows(x: Array, start: int, stop: int) -> Operand:
    if (start, stop) == (0, x.shape[0]):
        return x
    rest = x.shape[1:]
    return slice(x, start=(start, *(0 for _ in rest)), stop=(stop, *rest), step=(1,) * len(x.shape))


def _in_chunks(compute_rows: Callable[[Any, int], list[Any]], total: int, size: int | None) -> list[Any]:
    """Compute `rows(0, total)`, at most `size` rows at a time."""
    if size is None or size >= total:
        return compute_rows(0, total)
    if current_trace() is None:
        chunks = [compute_rows(start, min(size, total - start)) for start in range(0, total, size)]
        return [None if each[0] is None else concatenate(*each, axis=0) for each in zip(*chunks)]
    starts = arange(start=0, step=size, length=-(-total // size), dtype="int64")
    result = over_chunks(lambda start: compute_rows(start, size), starts)
    return [
        None if x is None else _slice_rows(reshape(x, shape=(x.shape[0] * size, *x.shape[2:])), 0, total)
        for x in result
    ]
