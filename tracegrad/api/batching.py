"""`vmap`, the transform that maps a function over an axis of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import tree
from tracegrad.control.loops import map as over_chunks
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.traced_function import Parameters, Traced
from tracegrad.transform_support import require_callable, standing_for, statics
from tracegrad.transforms import vmap as batch

__all__ = ["vmap", "vmap_in_chunks"]


def vmap(
    fun: Callable[Parameters, Any], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> Traced[Parameters, Any]:
    """Vectorize a function: return the function that maps it over an axis of its arguments, all examples at once.

    Parameters
    ----------
    fun : callable; inside, arrays have the shapes of one example; arguments by keyword are mapped along axis 0
    in_axes : int, None (one argument for all examples), or tuple with an entry, or container of them, for each argument
    out_axes : int, None (no batch axis: independent of mapped arguments), or prefix of the result's structure
    axis_size : int, optional; number of examples, necessary if nothing is mapped

    Raises
    ------
    TraceError if Python asks for a value (`if`) that depends on a mapped argument: use `tg.where` or `tg.cond`
    ValueError if sizes of mapped axes differ, an argument has no such axis, or an entry has the wrong structure

    Notes
    -----
    A dict, list or object with a mapped leaf is a new one for each example: writes to it belong to that example. One
    without is shared, and written once; `TraceError` is raised at the later use of an example's value written there.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> print(vmap(np.sum)(x), vmap(np.dot, in_axes=(0, None))(x, np.ones(3)))
    [ 3. 12.] [ 3. 12.]
    """
    return vmap_in_chunks(fun, in_axes, out_axes, axis_size, None)


def vmap_in_chunks(
    fun: Callable[Parameters, Any], in_axes: Any, out_axes: Any, axis_size: Any, chunk_size: int | None
) -> Traced[Parameters, Any]:
    """Vectorize as `vmap`, for `chunk_size` examples at a time; None for all."""
    require_callable(fun, "vmap")
    batch.check_axes(in_axes, out_axes)
    chunks = None if chunk_size is None else (chunk_size, over_chunks)

    def make() -> Any:
        body = batch.batched_call(fun, in_axes, out_axes, axis_size, statics(fun)[1], chunks)
        result = standing_for(fun, body, "vmap")
        result.recipe = vmap_in_chunks, (in_axes, out_axes, axis_size, chunk_size), {}
        return result

    return remembered(fun, ("vmap", _axes_key(in_axes), _axes_key(out_axes), axis_size, chunk_size), make)


def _axes_key(axes: Any) -> Any:
    leaves, structure = tree.flatten(axes)
    return structure, tuple(leaves)
