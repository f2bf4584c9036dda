"""Describe data movement ops by index maps: from an index of the result to an index of an operand.

A `reads` rule has the signature `rule(index, size, shapes, result, **params)`. `index` is the index of the wanted
element, one expression per axis of the result. `size` converts an integer of the params to an expression. `shapes`
are the operand shapes and `result` is the result shape, as expressions. Expressions support `+`, `-` and `*`, and
division through `size.divide`. The rule returns a list of `OperandRead`s: the element is the operand's element at
`OperandRead.indices` for the first read whose ranges all hold, and `fill` (a parameter of the op, or 0) if none does.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Range(NamedTuple):
    """The condition `low <= value < high`, and if `step` > 1 also `(value - low) % step == 0`."""

    low: Any
    value: Any
    high: Any
    step: Any = 1


class OperandRead(NamedTuple):
    """Element `indices` of operand number `operand`, valid if all of `ranges` hold."""

    operand: int
    indices: tuple[Any, ...]
    ranges: tuple[Range, ...] = ()
