"""Decide when to pack a strided operand into contiguous memory before it is read several times.

Memory is fetched in cache lines, and a strided operand uses only some elements of each. Each kernel that reads the
operand fetches all of its lines. A packed copy fetches them once.
"""

from __future__ import annotations

from tracegrad.ir import GraphNode
from tracegrad.ops.core.forms import Along
from tracegrad.settings import disabled
from tracegrad.target.cache_lines import LINE
from tracegrad.target.tuning import TUNING
from tracegrad.typing import Shape

NEAR = TUNING.fusion.cached_bytes


def is_head(node: GraphNode) -> bool:
    """Whether `node` is a slice from the first element of each axis, with step one."""
    selection = _selection(node)
    return selection is not None and not any(selection[0]) and all(step == 1 for step in selection[1])


def _selection(node: GraphNode) -> tuple[Shape, Shape] | None:
    """The first index and the step of a slice along each axis; None of another node."""
    form = node.form
    return form.selection(**dict(node.params)) if isinstance(form, Along) and form.selection is not None else None


def is_packing_profitable(node: GraphNode, times: int) -> bool:
    """Whether a slice read `times` times is better packed. Packing reads the slice once, fetches the lines of the copy
    and writes them, and reads the copy `times` times.

    >>> from tracegrad.ir import parse
    >>> text = "%1 = slice(%0) {start=(0, 3), step=(1, 1), stop=(9999, 4)} : f64[9999,1]"
    >>> column = parse(f"graph(%0: f64[9999,8]) {{\\n  {text}\\n  return %1\\n}}").nodes[0]
    >>> [is_packing_profitable(column, times) for times in (1, 2)]
    [False, True]
    """
    selection = _selection(node)
    if times < 2 or selection is None or disabled("operand-packing"):
        return False
    packed_bytes, touched = node.aval.nbytes, _touched(node, selection[1])
    return touched >= NEAR and times * touched > touched + (2 + times) * packed_bytes


def _touched(node: GraphNode, step: Shape) -> int:
    """The approximate number of bytes of the cache lines of a slice."""
    of = node.operands[0].aval
    run = stride_bytes = of.dtype.itemsize
    for n, whole, s in zip(node.aval.shape[::-1], of.shape[::-1], step[::-1]):
        if run != stride_bytes or s != 1:
            stride_bytes *= s
            break
        run, stride_bytes = run * n, stride_bytes * whole
    return node.aval.nbytes // run * min(stride_bytes, run + LINE - of.dtype.itemsize) if run else 0
