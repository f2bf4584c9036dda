"""Parts of arrays that lie apart, as columns do: how much memory they take, and when it is better to copy them.

Memory comes in lines, of which a part has some elements. Each kernel that reads the part fetches all of these lines; a
copy fetches them once.
"""

from __future__ import annotations

from tracegrad.codegen.target.cache_lines import LINE
from tracegrad.ir import Node
from tracegrad.ops.core.forms import Along

__all__ = ["is_head", "is_worth_a_copy"]

NEAR = 2**16  # bytes that stay in a cache from one kernel to the next


def is_head(node: Node) -> bool:
    """Whether `node` is the first elements of its operand along each axis."""
    params = dict(node.params)
    return _is_slice(node) and not any(params["start"]) and all(step == 1 for step in params["step"])


def _is_slice(node: Node) -> bool:
    return isinstance(node.form, Along) and {name for name, _ in node.params} == {"start", "stop", "step"}


def is_worth_a_copy(node: Node, times: int) -> bool:
    """Whether a part that is read so many times is better copied before: a copy is to read it once, to write what it
    has, which fetches that first, and to read this so many times.

    >>> from tracegrad.ir import parse
    >>> text = "%1 = slice(%0) {start=(0, 3), step=(1, 1), stop=(9999, 4)} : f64[9999,1]"
    >>> column = parse(f"graph(%0: f64[9999,8]) {{\\n  {text}\\n  return %1\\n}}").nodes[0]
    >>> [is_worth_a_copy(column, times) for times in (1, 2)]
    [False, True]
    """
    if times < 2 or not _is_slice(node):
        return False
    own, touched = node.aval.nbytes, _touched(node)
    return touched >= NEAR and times * touched > touched + (2 + times) * own


def _touched(node: Node) -> int:
    """The bytes of the lines that a window lies in, about."""
    of, step = node.operands[0].aval, dict(node.params)["step"]
    run = apart = of.dtype.itemsize
    for n, whole, s in zip(node.aval.shape[::-1], of.shape[::-1], step[::-1]):
        if run != apart or s != 1:
            apart *= s
            break
        run, apart = run * n, apart * whole
    return node.aval.nbytes // run * min(apart, run + LINE - of.dtype.itemsize) if run else 0
