"""Tighten the bounds of a loop to a mask: for `where(i < n, ..., old)`, iterate only below `n`.

A slice like `A[i, :j]` in a loop over `j` is lowered to the whole row and a mask. The loop ends where the mask ends if
the kernel has no effect on masked elements: it stores the old value, or adds 0 to a sum. A row is skipped entirely if a
mask of rows says that it has no effect. The decision depends on the kernel's text alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracegrad.codegen.loopir.kernel import Compute, Index, Kernel, Load, Operand, Reduce, Store

_NAME = "bound-tightening"
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INTEGERS = frozenset({"add", "sub", "mul", "maximum", "minimum"})


class Clip(NamedTuple):
    """A mask `index op bound`, and the instructions that compute the bound, in order."""

    op: str
    bound: Operand
    instructions: list[Any]


def clip_of(kernel: Kernel) -> Clip | None:
    """The mask outside of which a kernel with one loop has no effect, or None."""
    plain = all(isinstance(x, Compute | Load | Index | Store | Reduce) for x in kernel.body)
    if len(kernel.loops) != 1 or kernel.loops[0].extent.value is not None or not plain or _NAME in kernel.disabled:
        return None
    var = kernel.loops[0].var
    table = {x.out.name: x for x in kernel.body if isinstance(x, Compute | Load | Index)}
    for x in kernel.body:
        if not isinstance(x, Compute) or x.op not in _SWAPPED:
            continue
        for op, (index, bound) in ((x.op, x.args), (_SWAPPED[x.op], x.args[::-1])):
            at = table.get(index.name)
            if isinstance(at, Index) and str(at.value) == var and bound.dtype == "i64" == index.dtype:
                needed = _fixed(bound, table, var)
                if needed is not None and _does_nothing(kernel, x.out.name):
                    return Clip(op, bound, [y for y in kernel.body if id(y) in needed])
    return None


def row_mask_of(kernel: Kernel) -> Load | None:
    """The mask of rows that a kernel loads: its innermost loop has no effect on a row whose mask is false."""
    plain = all(isinstance(x, Compute | Load | Index | Store | Reduce) for x in kernel.body)
    if len(kernel.loops) < 2 or not plain or _NAME in kernel.disabled:
        return None
    within, around = kernel.loops[-1].var, kernel.loops[-2].var
    written = {x.buffer for x in kernel.body if isinstance(x, Store | Reduce)}
    for x in kernel.body:
        if not isinstance(x, Load) or x.out.dtype != "bool" or x.buffer in written:
            continue
        symbols = x.address.symbols
        is_per_row = around in symbols and within not in symbols and all(s[0] != "v" for s in symbols)
        if is_per_row and _does_nothing(kernel, x.out.name):
            return x
    return None


def _fixed(x: Operand, table: dict[str, Compute | Index | Load], var: str) -> set[int] | None:
    """The instructions that compute a loop-invariant integer; None if it is not known to be loop-invariant."""
    if not x.name or x.name not in table:
        return set()  # an immediate, or a constant of the kernel
    result = table[x.name]
    if isinstance(result, Load):
        return {id(result)} if all(s[0] not in "iv" for s in result.address.symbols) else None
    if not isinstance(result, Compute) or result.op not in _INTEGERS or result.out.dtype != "i64":
        return None
    operands = [_fixed(y, table, var) for y in result.args]
    known = [y for y in operands if y is not None]
    return {id(result)}.union(*known) if len(known) == len(operands) else None


def _does_nothing(kernel: Kernel, mask: str) -> bool:
    """Whether an iteration with a false mask does not change memory."""
    forms: dict[str, Any] = {}

    def form(x: Operand) -> tuple[str, ...] | str:
        return forms.get(x.name, x.name) if x.name else ("constant", x.value)

    written = [x.buffer for x in kernel.body if isinstance(x, Store)]
    for x in kernel.body:
        match x:
            case Load():
                forms[x.out.name] = ("load", x.buffer, str(x.address))
            case Compute():
                forms[x.out.name] = _form(x, [form(y) for y in x.args])
            case Store():
                if form(x.value) != ("load", x.buffer, str(x.address)) or written.count(x.buffer) > 1:
                    return False
            case Reduce():
                if x.combiner != "add" or not x.over or form(x.value) not in (_ZERO, _NOTHING):
                    return False
        if isinstance(x, Compute | Load) and x.out.name == mask:
            forms[mask] = _FALSE
    return True


_ZERO, _NOTHING, _FALSE = ("constant", "0.0"), ("constant", "-0.0"), ("constant", "False")


def _form(x: Compute, args: list[tuple[str, ...] | str]) -> tuple[str, ...] | str:
    """The value of an operation when the mask is false, to the bit."""
    if x.op == "where":
        return args[2] if args[0] == _FALSE or args[1] == args[2] else x.out.name
    if x.op == "logical_and" and _FALSE in args:
        return _FALSE
    if x.op == "mul" and args[0] == args[1] == _ZERO:
        return _ZERO
    if x.op == "add" and _NOTHING in args:
        return args[1 - args.index(_NOTHING)]
    if x.op == "sub" and args[1] == _ZERO:
        return args[0]
    return x.out.name
