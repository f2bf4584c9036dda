"""Loops that a mask makes shorter: of `where(i < n, ..., what is there)`, only what lies below `n` need be computed.

A part of a row, as `A[i, :j]` in a loop over `j`, is the whole row and a mask. Where a kernel does nothing for the
elements that the mask leaves out, as to store what was there, or to add 0 to a sum, its loop ends where the mask does.
So a row is left out of which a mask of rows says that there is nothing to do.
What is found here follows from the kernel's text alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracegrad.codegen.loopir.kernel import Compute, Index, Kernel, Load, Operand, Reduce, Store

__all__ = ["Clip", "clip_of", "mask_of_rows"]

_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INTEGERS = frozenset({"add", "sub", "mul", "maximum", "minimum"})


class Clip(NamedTuple):
    """A mask `index op bound`, and the instructions that compute the bound, in order."""

    op: str
    bound: Operand
    instructions: list[Any]


def clip_of(kernel: Kernel) -> Clip | None:
    """The mask outside of which a kernel with one loop does nothing."""
    plain = all(isinstance(x, Compute | Load | Index | Store | Reduce) for x in kernel.body)
    if len(kernel.loops) != 1 or kernel.loops[0].extent.value is not None or not plain:
        return None
    var = kernel.loops[0].var
    made = {x.out.name: x for x in kernel.body if isinstance(x, Compute | Load | Index)}
    for x in kernel.body:
        if not isinstance(x, Compute) or x.op not in _SWAPPED:
            continue
        for op, (index, bound) in ((x.op, x.args), (_SWAPPED[x.op], x.args[::-1])):
            at = made.get(index.name)
            if isinstance(at, Index) and str(at.value) == var and bound.dtype == "i64" == index.dtype:
                needed = _fixed(bound, made, var)
                if needed is not None and _does_nothing(kernel, x.out.name):
                    return Clip(op, bound, [y for y in kernel.body if id(y) in needed])
    return None


def mask_of_rows(kernel: Kernel) -> Load | None:
    """What a kernel loads for a row, without which being true its innermost loop does nothing for that row."""
    plain = all(isinstance(x, Compute | Load | Index | Store | Reduce) for x in kernel.body)
    if len(kernel.loops) < 2 or not plain:
        return None
    within, around = kernel.loops[-1].var, kernel.loops[-2].var
    written = {x.buffer for x in kernel.body if isinstance(x, Store | Reduce)}
    for x in kernel.body:
        if not isinstance(x, Load) or x.out.dtype != "bool" or x.buffer in written:
            continue
        symbols = x.address.symbols
        of_row = around in symbols and within not in symbols and all(s[0] != "v" for s in symbols)
        if of_row and _does_nothing(kernel, x.out.name):
            return x
    return None


def _fixed(x: Operand, made: dict[str, Any], var: str) -> set[int] | None:
    """The instructions that compute an integer which is the same in each iteration; None if it is not known to be."""
    if not x.name or x.name not in made:
        return set()  # an immediate, or a constant of the kernel
    found = made[x.name]
    if isinstance(found, Load):
        return {id(found)} if all(s[0] not in "iv" for s in found.address.symbols) else None
    if not isinstance(found, Compute) or found.op not in _INTEGERS or found.out.dtype != "i64":
        return None
    parts = [_fixed(y, made, var) for y in found.args]
    known = [y for y in parts if y is not None]
    return {id(found)}.union(*known) if len(known) == len(parts) else None


def _does_nothing(kernel: Kernel, mask: str) -> bool:
    """Whether an iteration for which the mask is false leaves everything as it is."""
    forms: dict[str, Any] = {}

    def form(x: Operand) -> Any:
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


def _form(x: Compute, args: list[Any]) -> Any:
    """What a value is where the mask is false, to the bit."""
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
