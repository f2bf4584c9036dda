"""Create arrays in traced code as constants (`ConstantArray`), unless a traced value takes part."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

from tracegrad.errors import DTypeError
from tracegrad.ir import GraphNode
from tracegrad.numpy_api.operands import array, peer_of
from tracegrad.numpy_api.protocols import decides
from tracegrad.numpy_api.registry import dispatch_function
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.values.constant_array import ConstantArray, apply_to_constants, hosted, of_function
from tracegrad.trace.values.tracer import Tracer
from tracegrad.typing import ArrayLike

MAX_CREATED = TUNING.tracing.max_created
_MAX_NODES = 50


def making(function: Callable[..., Any], traced_version: Callable[..., Any]) -> Callable[..., object]:
    """Wrap `traced_version`, the traced version of NumPy's `function`: the new array is a `ConstantArray` if it depends
    on nothing traced."""

    @wraps(traced_version)
    def make(*args: object, **kwargs: object) -> Any:
        builder = current_trace()
        if builder is None or builder.constant_arrays is None or builder.inner is not None:
            return traced_version(*args, **kwargs)
        inputs = (*args, *kwargs.values())
        if any(map(_has_constant, inputs)):
            return apply_to_constants(function, args, kwargs, traced_version, builder)
        try:
            result = traced_version(*args, **kwargs)
        except DTypeError:
            if peer_of(*inputs) is not None:
                raise
            return function(*args, **kwargs)  # objects, text or dates, without traced values: NumPy's own array
        # The result of a function of an array may be this array itself.
        same = function is not np.array and any(isinstance(x, np.ndarray) or x is result for x in inputs)
        return result if same else _known(builder, result)

    return make


def of_lists(function: Any) -> object:
    """A NumPy function that sees traced values in lists; NumPy's own dispatch looks only at arrays."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        peer: Any = peer_of(*args, *kwargs.values())
        if peer is None:
            return _fresh(function(*args, **kwargs), (*args, *kwargs.values()))
        if type(peer) is ConstantArray or (function in _SHARING and any(map(_has_constant, (*args, *kwargs.values())))):
            return of_function(function, args, kwargs, peer.builder)
        if decides("__array_function__", _flat((*args, *kwargs.values()))):
            return function(*args, **kwargs)
        return dispatch_function(function, args, kwargs)

    return call


@cache
def ufunc_of_lists(function: np.ufunc) -> Callable[..., object]:
    """A SciPy ufunc that sees traced values in lists."""

    @wraps(function, updated=())
    def call(*args: ArrayLike, **kwargs: object) -> Any:
        inputs = [array(x, peer_of(x)) if type(x) in (list, tuple) and peer_of(x) is not None else x for x in args]
        return function(*inputs, **kwargs)

    call.__dict__.update({name: getattr(function, name) for name in ("nin", "nout", "nargs", "types", "ntypes")})
    return call


def _fresh(x: Any, inputs: Any) -> Any:
    """A function's result from numbers, as an array of the trace."""
    builder = current_trace()
    if builder is None or builder.constant_arrays is None or builder.inner is not None:
        return x
    if type(x) in (list, tuple):
        return type(x)([_fresh(each, inputs) for each in x])
    return x if type(x) is not np.ndarray or any(map(_has_ndarray, inputs)) else hosted(builder, x)


def _flat(xs: Any) -> Any:
    return [y for x in xs for y in (_flat(x) if type(x) in (list, tuple) else (x,))]


def _has_ndarray(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (type(x) in (list, tuple) and any(map(_has_ndarray, x)))


# Functions that return views of several arguments.
_SHARING = {np.broadcast_arrays, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.meshgrid}


def _has_constant(x: Any) -> bool:
    return type(x) is ConstantArray or (type(x) in (list, tuple) and any(map(_has_constant, x)))


def _known(builder: TraceBuilder, x: object) -> Any:
    """A new array as a `ConstantArray`, if its elements are known."""
    if type(x) is not Tracer or x.builder is not builder or x.origin is not None or x.views or x.stand_in is not None:
        return x
    if x.node.aval.size > MAX_CREATED or not (x.shape or x.is_array) or not _is_of_nothing(builder, x.node):
        return x
    return ConstantArray(builder, np.array(builder.compute(x.node), order="C"), x.node)


def _is_of_nothing(builder: TraceBuilder, wanted: GraphNode) -> bool:
    """Whether a node depends on no argument, no capture and no differentiated node."""
    if wanted.op is not None and not wanted.operands:
        return True
    visited = [wanted]
    for node in visited:  # the loop extends it
        if node.op is None and not any(c.node is node and c.source is None for c in builder.captures.values()):
            return False
        if node in builder.differentiated:
            return False
        visited += [x for x in node.operands if x not in visited]
        if len(visited) > _MAX_NODES:
            return False
    return True
