"""Select one result of an op with several results (the op `result`).

Applying an op with several results to arrays returns a tuple of arrays. In a graph one node represents all results, and
each used result is a node of the op `result`. The text of a graph shows both as one line, so `result` is not in the
table.
"""

from __future__ import annotations

import importlib

from tracegrad.avals import Aval
from tracegrad.ops.core.forms import Result
from tracegrad.ops.core.op import TABLE, Op, ResultAvals
from tracegrad.typing import NDArray


def _pick(x: NDArray, *, index: int) -> NDArray:
    result: NDArray = x[index]
    return result


result = Op("result", ("x",), _pick, "One of several results of an op.", variadic=False, form=Result(), listed=False)


@result.def_aval
def _(x: ResultAvals, *, index: int) -> Aval:
    return x[index]


def op_named(name: str) -> Op | None:
    """The op of this name, or None; imports the modules of `tracegrad.ops.lazy` if necessary."""
    if name not in TABLE:
        importlib.import_module("tracegrad.ops.lazy")
    return TABLE.get(name)
