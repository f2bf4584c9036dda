"""Loops with the signatures of JAX: `scan`, `fori_loop`, `while_loop` and `map`.

Inside a traced function a loop is one node for any number of iterations; elsewhere it is a Python loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval
from tracegrad.control import scan_op, while_op
from tracegrad.control.checkpoint import checkpoint as checkpointed
from tracegrad.control.hoist_invariant_reads import run_loop
from tracegrad.control.operands import (
    carried,
    concatenated,
    inlined,
    joined,
    like_row,
    operand,
    recorded,
    records_regions,
    row_count,
    stacked,
)
from tracegrad.errors import located
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops import Carrier
from tracegrad.trace.ragged.symbolic_size import counting, limits
from tracegrad.trace.sources.describe import describe

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.trace.driver.region import Like
    from tracegrad.typing import Array


Function = Callable[..., Any]


def scan(
    f: Function,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: bool | int = False,
) -> tuple[Any, Any]:
    """Scan a function over rows with a loop-carried value: `carry, y = f(carry, x)` for each row `x` of `xs`.

    Parameters
    ----------
    f : callable
        Body of the loop, `f(carry, x) -> (carry, y)`. The carry must keep its structure, shapes and dtypes.
    init : pytree of arrays
        Initial carry.
    xs : pytree of arrays, optional
        Arrays of equal length along the first axis.
    length : int, optional
        Number of iterations; necessary without `xs`.
    reverse : bool
        Whether to go from the last row to the first; each y has the position of its x.
    unroll : int or bool
        True, or a number not below the number of iterations: record the iterations one by one.
    checkpoint : bool or int
        True: the backward pass of a compiled function recomputes each iteration from its saved carry. A number of
        segments: only the carry at the start of each segment is saved.

    Returns
    -------
    carry, ys : pytree of arrays
        Last carry, and the y of all iterations stacked along a new first axis.

    Raises
    ------
    TypeError
        If `f` does not return a pair, or the carry changes its structure, shapes or dtypes.
    ShapeError
        If arrays of `xs` have different lengths (a ValueError).
    ValueError
        If no length is known.

    Notes
    -----
    Without `checkpoint`, a loop whose residuals exceed `settings.loop_memory` is split into as many segments as take
    the least memory.

    Examples
    --------
    >>> import tracegrad as tg
    >>> @tg.trace
    ... def geometric(x):
    ...     return tg.scan(lambda total, _: (total * x, total), 1.0, length=4)
    >>> last, terms = geometric(2.0)
    >>> print(last, terms)
    16.0 [1. 2. 4. 8.]
    """
    leaves, structure = tree.flatten(xs)
    count = row_count("scan", leaves, tree.paths(structure, "xs"), length)
    if checkpoint and records_regions():
        again = checkpointed(inlined(f))
        if checkpoint is True or not 1 < checkpoint < count:
            return scan(again, init, xs, length, reverse, unroll)
        return _in_segments(again, init, tree.unflatten(structure, leaves), count, reverse, int(checkpoint))
    unrolled = unroll is True or (unroll is not False and unroll >= max(count, 2))
    if unrolled or not records_regions():
        return _python_scan(f, init, leaves, structure, count, reverse)
    initial, shape = tree.flatten(init)
    label = f"the body of a scan ({describe(f).name})"
    rows = tree.unflatten(structure, [like_row(x) for x in leaves])

    def record(like: list[Operand | Like], wanted: list[Aval | None]) -> Any:
        return recorded(f, (tree.unflatten(shape, like), rows), label, lambda r: _pair(r, label), wanted)

    body, _ = carried(record, initial, shape, label)
    region = body.region
    args = [operand(x, a) for x, a in zip([*initial, *leaves], region.graph.avals)]
    loop = LoopView(scan_op.scan, region.graph, len(initial), len(leaves), count, bool(reverse))
    results = run_loop([*args, *region.captured], loop)
    carry, _ = body.results(results)
    return carry, tree.unflatten(body.structures[1], list(results[len(initial) :]))


def _in_segments(f: Function, carry: Any, xs: Any, count: int, reverse: bool, segments: int) -> tuple[Any, Any]:
    """Scan over segments, each of which is a scan; remaining iterations come last."""
    size = count // segments
    rest, whole = count % segments, size * segments
    first = rest if reverse else 0  # the first row in a segment

    def slice_rows(x: Any, start: int, stop: int) -> Any:
        return x[start:stop]

    inner = checkpointed(lambda c, rows: scan(f, c, rows, size, reverse))
    blocks = tree.map(lambda x: slice_rows(x, first, first + whole).reshape((segments, size, *x.shape[1:])), xs)
    carry, ys = scan(inner, carry, blocks, segments, reverse)
    ys = tree.map(lambda y: y.reshape((whole, *y.shape[2:])), ys)
    if not rest:
        return carry, ys
    at = 0 if reverse else whole
    carry, last = scan(f, carry, tree.map(lambda x: slice_rows(x, at, at + rest), xs), rest, reverse)
    return carry, tree.map(lambda a, b: concatenated([b, a] if reverse else [a, b]), ys, last)


def _pair(result: Any, label: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(located(f"{label} must return a pair (carry, y), got a {type(result).__name__}"))
    return result


def _python_scan(
    f: Function, carry: Any, leaves: Sequence[Any], structure: Any, count: int, reverse: bool
) -> tuple[Any, Any]:
    label = f"the body of a scan ({describe(f).name})"
    f = inlined(f)
    if not count:
        # One call determines the structure of the results.
        rows = [np.zeros(np.shape(x)[1:], x.dtype) for x in leaves]
        _, y = _pair(f(carry, tree.unflatten(structure, rows)), label)
        return carry, tree.map(lambda x: stacked([x])[:0], y)
    shape = tree.structure(carry)
    results: list[Any] = []
    for i in reversed(range(count)) if reverse else range(count):
        carry, y = _pair(f(carry, tree.unflatten(structure, [x[i] for x in leaves])), label)
        if not tree.alike(tree.structure(carry), shape):
            raise TypeError(
                located(
                    f"{label} must return a carry of the structure of the initial one, {shape}, got "
                    f"{tree.structure(carry)}"
                )
            )
        results.append(y)
    results = results[::-1] if reverse else results
    return carry, tree.map(lambda *each: stacked(each), *results)


def map(f: Function, xs: Any) -> Any:
    """Apply `f` to each row of the arrays of `xs`, one after the other, and stack the results.

    Parameters
    ----------
    f : callable
        Function of a pytree with one row of each array.
    xs : pytree of arrays
        Arrays of equal length along the first axis.

    Returns
    -------
    pytree of arrays
        Results, stacked along a new first axis.

    Raises
    ------
    TypeError, ShapeError, ValueError
        As for `scan`.

    Notes
    -----
    `map` takes the memory of one row; `vmap` computes all rows at once.

    Examples
    --------
    >>> import numpy as np
    >>> print(map(lambda x: x[0] * x[1], np.array([[1.0, 2.0], [3.0, 4.0]])))
    [ 2. 12.]
    """
    f = inlined(f)
    return scan(lambda _, x: (None, f(x)), None, xs)[1]


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    """Repeat `val = body_fun(val)` as long as `cond_fun(val)` is true, beginning with `init_val`.

    Parameters
    ----------
    cond_fun : callable
        Condition, a function to one boolean.
    body_fun : callable
        Body; its result keeps the structure, shapes and dtypes of `init_val`.
    init_val : pytree of arrays and numbers
        Initial value.

    Returns
    -------
    pytree of arrays
        Last value.

    Raises
    ------
    TypeError
        If the value changes its structure, shapes or dtypes, or the condition is not one boolean.

    Notes
    -----
    Both modes have derivatives of any order. Reverse mode saves residuals of each iteration, so its memory grows with
    the number of iterations. Above `settings.loop_memory`, iterations are recomputed.

    Examples
    --------
    >>> print(while_loop(lambda x: x < 100.0, lambda x: 3.0 * x, 1.0))
    243.0
    """
    if not records_regions():
        return _python_while(cond_fun, body_fun, init_val)
    initial, shape = tree.flatten(init_val)
    label = f"the body of a while_loop ({describe(body_fun).name})"
    cond_label = f"the condition of a while_loop ({describe(cond_fun).name})"

    def record(like: list[Operand | Like], wanted: list[Aval | None]) -> Any:
        return recorded(body_fun, (tree.unflatten(shape, like),), label, wanted=wanted)

    body, like = carried(record, initial, shape, label)
    condition = recorded(cond_fun, (tree.unflatten(shape, like),), cond_label).region
    if condition.avals != (Aval((), np.dtype(bool)),):
        raise TypeError(
            located(f"{cond_label} must return one truth value, got {', '.join([str(a) for a in condition.avals])}")
        )
    captured, (iteration, test) = joined([body.region, condition], len(initial))
    args = [operand(x, a) for x, a in zip(initial, iteration.avals)]
    loop = LoopView(while_op.while_loop, iteration, len(initial), cond=test)
    return body.results(run_loop([*args, *captured], loop))[0]


def _python_while(
    cond_fun: Function, body_fun: Function, value: Array | tuple[int, np.float64]
) -> Array | tuple[int, np.float64]:
    label = f"the body of a while_loop ({describe(body_fun).name})"
    shape = tree.structure(value)
    condition, iteration = inlined(cond_fun), inlined(body_fun)
    while condition(value):
        value = iteration(value)
        if not tree.alike(tree.structure(value), shape):
            text = f"a value of the structure of the initial one, {shape}, got {tree.structure(value)}"
            raise TypeError(located(f"{label} must return {text}"))
    return value


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: object) -> Any:
    """Repeat `val = body_fun(i, val)` for each i from `lower` to `upper` - 1, beginning with `init_val`.

    Parameters
    ----------
    lower, upper : int, or integer array of one element
        Bounds; the number of iterations is part of the compiled program only if both are ints.
    body_fun : callable
        Body; its result keeps the structure, shapes and dtypes of `init_val`.
    init_val : pytree of arrays and numbers
        Initial value.

    Returns
    -------
    pytree of arrays
        Last value.

    Raises
    ------
    TypeError
        As for `while_loop`.

    Notes
    -----
    Arrays can be indexed by `i`, and sliced. `x[:i]` has NumPy's meaning in elementwise operations, sums, products and
    assignments.

    Examples
    --------
    >>> print(fori_loop(1, 5, lambda i, product: product * i, 1))
    24
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> print(tg.grad(lambda x: fori_loop(0, 3, lambda i, total: total + x[i] * np.sum(x[:i]), 0.0))(x))
    [5. 4. 3.]
    """
    regions = records_regions()
    if regions and not (_is_integer(lower) and _is_integer(upper)):
        inside = inlined(body_fun)
        low, high = limits(lower)[0], limits(upper)[1] - 1
        last = while_loop(
            lambda value: value[0] < value[1],
            lambda value: (value[0] + 1, value[1], inside(counting(value[0], low, high), value[2])),
            (lower, upper, init_val),
        )
        return last[2]
    first, count = int(lower), max(int(upper) - int(lower), 0)
    inside = inlined(body_fun)
    if not regions:
        for i in range(first, first + count):
            init_val = inside(i, init_val)
        return init_val
    (_, value), _ = scan(
        lambda c, _: ((c[0] + 1, inside(counting(c[0], first, first + count - 1), c[1])), None),
        (first, init_val),
        length=count,
    )
    return value


def _is_integer(x: Operand) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, Carrier)
