"""Parallel prefix scan, `associative_scan`: running combinations in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.control.operands import concatenated, inlined, stacked
from tracegrad.errors import ShapeError, located
from tracegrad.ops.core.op import Carrier, normalize_axis
from tracegrad.ops.shape.linear import flip

Combine = Callable[[list[Any], list[Any]], list[Any]]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> object:
    """Compute all prefix combinations along `axis`: `x0`, `fn(x0, x1)`, `fn(fn(x0, x1), x2)`, and so on.

    Parameters
    ----------
    fn : callable
        Associative function of two pytrees like `elems`, with arrays of corresponding elements, to one such pytree.
    elems : pytree of arrays
        Arrays of equal length along `axis`.
    reverse : bool
        Whether to combine from the end.
    axis : int
        Axis to scan.

    Returns
    -------
    pytree of arrays
        The structure and shapes of `elems`.

    Raises
    ------
    TypeError
        If `fn` is not callable.
    ShapeError
        If the arrays have different lengths along `axis`.

    Notes
    -----
    `fn` is called about 2 log2(n) times for n elements.

    References
    ----------
    G. Blelloch, "Prefix sums and their applications" (1990).

    Examples
    --------
    >>> import numpy as np
    >>> print(associative_scan(np.multiply, np.array([1.0, 2.0, 3.0, 4.0])))
    [ 1.  2.  6. 24.]
    """
    if not callable(fn):
        raise TypeError(located("associative_scan: fn must be a function of two arguments"))
    leaves, structure = tree.flatten(elems)
    if not leaves:
        return elems
    axes = [normalize_axis("associative_scan", axis, len(np.shape(x))) for x in leaves]
    lengths = {np.shape(x)[a] for x, a in zip(leaves, axes)}
    if len(lengths) != 1:
        raise ShapeError(located(f"associative_scan: the arrays have different lengths along the axis: {lengths}"))
    called, at = inlined(fn), axes[0]

    def combine(x: list[object], y: list[object]) -> list[Any]:
        return tree.leaves(called(tree.unflatten(structure, x), tree.unflatten(structure, y)))

    arrays = [x if isinstance(x, Carrier) else np.asarray(x) for x in leaves]
    result = _scanned(combine, [flip(x, axes=(at,)) for x in arrays] if reverse else arrays, at)
    return tree.unflatten(structure, [flip(x, axes=(at,)) for x in result] if reverse else result)


def _scanned(combine: Combine, xs: list[Any], axis: int) -> list[Any]:
    """Scan the combined pairs: the results of odd elements. The results of even elements follow from them."""
    n = xs[0].shape[axis]
    if n < 2:
        return xs
    odd = _scanned(combine, combine(_axis_slice(xs, axis, 0, n - 1, 2), _axis_slice(xs, axis, 1, n, 2)), axis)
    even = _axis_slice(xs, axis, 0, 1)
    if n > 2:
        rest = combine(_axis_slice(odd, axis, 0, (n - 1) // 2), _axis_slice(xs, axis, 2, n, 2))
        even = [concatenated([x, y], axis) for x, y in zip(even, rest)]
    return [_interleaved(x, y, axis) for x, y in zip(even, odd)]


def _axis_slice(xs: list[Any], axis: int, start: int, stop: int, step: int = 1) -> list[Any]:
    return [x[(slice(None),) * axis + (slice(start, stop, step),)] for x in xs]


def _interleaved(x: Any, y: Any, axis: int) -> Any:
    """Interleave the elements of x and y along `axis`; x may have one more."""
    n, m = x.shape[axis], y.shape[axis]
    (front,) = _axis_slice([x], axis, 0, m)
    shape = (*x.shape[:axis], 2 * m, *x.shape[axis + 1 :])
    both = stacked([front, y], axis + 1).reshape(shape)
    return both if n == m else concatenated([both, *_axis_slice([x], axis, m, n)], axis)
