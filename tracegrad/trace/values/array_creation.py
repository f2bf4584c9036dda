"""Where arrays of constants begin: in NumPy's functions as traced code sees them, if nothing traced has a part in what
they give (see `tracegrad.trace.values.constant_array`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

from tracegrad.errors import DTypeError
from tracegrad.ir import Node
from tracegrad.numpy_api.operands import array, peer_of
from tracegrad.numpy_api.protocols import decides
from tracegrad.numpy_api.registry import dispatch_function
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.values.constant_array import Host, hosted, of_function, on_hosts
from tracegrad.trace.values.tracer import Tracer

__all__ = ["MOST_MADE", "making", "of_lists", "ufunc_of_lists"]

# Arrays with more elements are nodes from the beginning: they are computed where they are used, rather than read from
# memory.
MOST_MADE = 1 << 16
_MOST_NODES = 50


def making(function: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """`ours`, which makes an array in a trace where `function` is NumPy's: a `Host`, if nothing traced has a part."""

    @wraps(ours)
    def make(*args: Any, **kwargs: Any) -> Any:
        builder = current_trace()
        if builder is None or builder.hosts is None or builder.inner is not None:
            return ours(*args, **kwargs)
        given = (*args, *kwargs.values())
        if any(map(_has_host, given)):
            return on_hosts(function, args, kwargs, ours, builder)
        try:
            made = ours(*args, **kwargs)
        except DTypeError:
            if peer_of(*given) is not None:
                raise
            return function(*args, **kwargs)  # objects, texts, dates, which nothing traced is among: NumPy's own array
        # What is made of an array may be that array.
        same = function is not np.array and any(isinstance(x, np.ndarray) or x is made for x in given)
        return made if same else _known(builder, made)

    return make


def of_lists(function: Any) -> Any:
    """A NumPy function that sees traced values in the lists it is given; its own dispatch looks at arrays only."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        peer = peer_of(*args, *kwargs.values())
        if peer is None:
            return _fresh(function(*args, **kwargs), (*args, *kwargs.values()))
        if type(peer) is Host or (function in _SHARING and any(map(_has_host, (*args, *kwargs.values())))):
            return of_function(function, args, kwargs, peer.builder)
        if decides("__array_function__", _flat((*args, *kwargs.values()))):
            return function(*args, **kwargs)
        return dispatch_function(function, args, kwargs)

    return call


@cache
def ufunc_of_lists(function: np.ufunc) -> Any:
    """A universal function of SciPy's that sees traced values in the lists it is given."""

    @wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [array(x, peer_of(x)) if type(x) in (list, tuple) and peer_of(x) is not None else x for x in args]
        return function(*given, **kwargs)

    call.__dict__.update({name: getattr(function, name) for name in ("nin", "nout", "nargs", "types", "ntypes")})
    return call


def _fresh(x: Any, given: Any) -> Any:
    """What a function has made of numbers, as an array of the trace."""
    builder = current_trace()
    if builder is None or builder.hosts is None or builder.inner is not None:
        return x
    if type(x) in (list, tuple):
        return type(x)([_fresh(each, given) for each in x])
    return x if type(x) is not np.ndarray or any(map(_has_ndarray, given)) else hosted(builder, x)


def _flat(xs: Any) -> Any:
    return [y for x in xs for y in (_flat(x) if type(x) in (list, tuple) else (x,))]


def _has_ndarray(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (type(x) in (list, tuple) and any(map(_has_ndarray, x)))


# Functions that give views of several arguments.
_SHARING = {np.broadcast_arrays, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.meshgrid}


def _has_host(x: Any) -> bool:
    return type(x) is Host or (type(x) in (list, tuple) and any(map(_has_host, x)))


def _known(builder: TraceBuilder, x: Any) -> Any:
    """A new array as one that is known, if it is."""
    if type(x) is not Tracer or x.builder is not builder or x.origin is not None or x.views or x.stand_in is not None:
        return x
    if x.node.aval.size > MOST_MADE or not (x.shape or x.is_array) or not _is_of_nothing(builder, x.node):
        return x
    return Host(builder, np.array(builder.compute(x.node), order="C"), x.node)


def _is_of_nothing(builder: TraceBuilder, wanted: Node) -> bool:
    """Whether no argument, nothing captured, and nothing that a derivative is being taken with respect to has a part in
    a node."""
    if wanted.op is not None and not wanted.operands:
        return True
    seen = [wanted]
    for node in seen:  # which grows
        if node.op is None and not any(c.node is node and c.source is None for c in builder.captures.values()):
            return False
        if node in builder.differentiated:
            return False
        seen += [x for x in node.operands if x not in seen]
        if len(seen) > _MOST_NODES:
            return False
    return True
