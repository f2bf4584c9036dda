"""Residual analysis of derivative rules, and generated NumPy functions for elementwise rules.

Both apply the rules to *terms*, symbolic operands that record the ops applied to them. The analysis is for the shapes,
dtypes and parameters of the call, because a rule may depend on them. A value that does not appear in the recorded text
need not be saved for the backward pass. The text is also compiled to a NumPy function, which computes a cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval, aval_of, is_literal
from tracegrad.errors import DTypeError, UnsupportedError
from tracegrad.ops.core.dispatch import Abstract, DispatchLevel
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.utils.source import define

__all__ = ["Needs", "needs_of", "numpy_rules"]


class _Text:
    """Lines of a function under construction."""

    def __init__(self) -> None:
        self.lines: list[tuple[tuple[str, ...], str, frozenset[str]]] = []
        self.space: dict[str, Any] = {}
        self.plain = True

    def term(self, name: str, aval: Any) -> Any:
        """Return a term of this name, or a tuple of terms for several results."""
        if isinstance(aval, tuple) and not isinstance(aval, Aval):
            return tuple([_RuleTerm(self, f"{name}_{k}", a) for k, a in enumerate(aval)])
        return _RuleTerm(self, name, aval)


class _RuleTerm(Abstract):
    """Symbolic value of a rule: its name in the text, and its aval."""

    __slots__ = ("name", "text")
    level = DispatchLevel.TERM

    def __init__(self, text: _Text, name: str, aval: Aval):
        super().__init__(aval)
        self.text, self.name = text, name

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        text = self.text
        avals = [x if is_literal(x) else aval_of(x) for x in operands]
        written = list(map(_in_text, operands))
        text.plain = text.plain and not params and all(isinstance(x, _RuleTerm) or is_literal(x) for x in operands)
        text.space[op.name] = op.impl
        result = text.term(f"t{len(text.lines)}", op.aval(*avals, **params))
        text.lines.append((_names(result), f"{op.name}({', '.join(written)})", frozenset(written)))
        return result


def _in_text(x: Any) -> str:
    """Return the text of an operand.

    The text of a traced array that the rule made is only the class name, because reading its values would guard them.
    """
    if isinstance(x, _RuleTerm):
        return x.name
    return repr(x) if is_literal(x) or isinstance(x, np.ndarray | np.generic) else type(x).__name__


def _names(x: Any) -> tuple[str, ...]:
    """Return the names of the terms in a value, or in a tuple or list of them."""
    if isinstance(x, tuple | list):
        return tuple([name for v in x for name in _names(v)])
    return (x.name,) if isinstance(x, _RuleTerm) else ()


class Needs(NamedTuple):
    """Values that rules read: the positions of results (0 for a single one) and of operands."""

    results: frozenset[int]
    operands: frozenset[int]


# Sample numbers for the analysis of elementwise rules that have a number operand. Rules may treat some of them (0, 1,
# 2, 0.5, negative ones) as special cases.
_NUMBERS = (1.5, 2.5, 0.0, 1.0, -1.0, 2.0, 0.5)


def needs_of(op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, Any]) -> Needs:
    """Compute the values that the rules of the operands `wanted` read; `operands` are arrays or avals, and numbers.

    For an elementwise op the result holds for any numbers: a number counts as read if the text of a rule depends on it.
    For an op without a derivative, all values count as read, and the backward pass raises.
    """
    avals = tuple([x if is_literal(x) or isinstance(x, Aval) else Aval(x.shape, x.dtype) for x in operands])
    kinds = [(x.__class__, x) if is_literal(x) else x for x in avals]
    key = (op, *wanted, *kinds, *params.items())
    try:
        result = _NEEDS.get(key)
    except TypeError:  # a parameter that cannot be hashed
        return _needs(op, wanted, avals, params)
    if result is None:
        if len(_NEEDS) >= _MAX_NEEDS:
            _NEEDS.clear()
        result = _NEEDS[key] = _needs(op, wanted, avals, params)
    return result


_NEEDS: dict[Any, Needs] = {}
_MAX_NEEDS = 16384


def _needs(op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, Any]) -> Needs:
    try:
        if isinstance(op, Elementwise) and any(map(is_literal, operands)):
            return _needs_with_numbers(op, wanted, operands)
        text, results = _applied(op, wanted, operands, params)
    except (DTypeError, UnsupportedError):  # DTypeError: the dtypes do not allow a sample number here
        result_aval = op.aval(*operands, **params)
        count = len(result_aval) if isinstance(result_aval, ResultAvals) else 1
        return Needs(frozenset(range(count)), frozenset(range(len(operands))))
    read = _live(text, results)[1]
    read_operands = frozenset({k for k, x in enumerate(operands) if f"x{k}" in read or is_literal(x)})
    return Needs(frozenset(_result_numbers(read)), read_operands)


def _result_numbers(read: set[str]) -> set[int]:
    """Return the numbers of the results among the values read."""
    return {int(name.removeprefix("ans").removeprefix("_") or 0) for name in read if name.startswith("ans")}


def _needs_with_numbers(op: Op, wanted: Sequence[int], operands: Sequence[Any]) -> Needs:
    read_results, read_operands = set[int](), set[int]()
    for k, x in enumerate(operands):
        if not is_literal(x):
            continue
        texts = set()
        for number in _NUMBERS:
            args = [number if j == k else _NUMBERS[0] if is_literal(v) else v for j, v in enumerate(operands)]
            text, results = _applied(op, wanted, args, {})
            lines, read = _live(text, results)
            texts.add((*lines, *_names(results)))
            read_results |= _result_numbers(read)
            read_operands |= {j for j in range(len(operands)) if f"x{j}" in read}
        if len(texts) > 1:
            read_operands.add(k)
    return Needs(frozenset(read_results), frozenset(read_operands))


def _applied(op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, Any]) -> tuple[_Text, Any]:
    """Return the text of the rules of the operands `wanted`, for avals and literals, and their results."""
    text = _Text()
    result_aval = op.aval(*operands, **params)
    terms = tuple([x if is_literal(x) else _RuleTerm(text, f"x{k}", x) for k, x in enumerate(operands)])
    return text, op.pull_all(wanted, text.term("ct", result_aval), text.term("ans", result_aval), terms, params)


def _live(text: _Text, result: Any) -> tuple[list[str], set[str]]:
    """Return the lines that `result` depends on, and the names they read."""
    read, lines = set(_names(result)), []
    for names, line, used in reversed(text.lines):
        if not read.isdisjoint(names):
            read |= used
            lines.append(f"    {', '.join(names)} = {line}")
    return lines[::-1], read


# The most generated rules of an op. Each literal operand needs a rule of its own; further ones use the ops.
_MAX_RULES = 256


@lru_cache(maxsize=4096)
def numpy_rules(op: Op, literals: tuple[tuple[int, str], ...] = ()) -> tuple[Any, ...] | None:
    """Make, for each operand of an elementwise op, a NumPy function `(ct, ans, *operands) -> ct`.

    The functions take arrays of shapes that broadcast. None if the rules cannot be generated. `literals` are the
    operands that are Python numbers, with their text.
    """
    counts = _COUNTS.setdefault(op, [0])
    counts[0] += 1
    if counts[0] > _MAX_RULES or not isinstance(op, Elementwise) or not op._floating:
        return None
    operands: list[Any] = [_FLOAT] * len(op.operands)
    for k, text in literals:
        operands[k] = eval(text, {"inf": np.inf, "nan": np.nan})
    return tuple([_written(op, i, operands) for i in range(len(operands))])


_FLOAT = Aval((), np.dtype(np.float64))
_COUNTS: dict[Op, list[int]] = {}


def _written(op: Op, i: int, operands: Sequence[Any]) -> Any:
    """Return the rule of operand `i` as a function; None if there is none, False if it cannot be generated."""
    if is_literal(operands[i]) or not op.differentiable_in(i):
        return None
    text, (result,) = _applied(op, [i], operands, {})
    if not text.plain or not isinstance(result, _RuleTerm):
        return False
    parameters = ", ".join(["ct", "ans", *(f"x{k}" for k in range(len(operands)))])
    lines = [f"def rule({parameters}):", *_live(text, result)[0], f"    return {result.name}"]
    space = {**text.space, "inf": np.inf, "nan": np.nan}
    return define("rule", "\n".join(lines), space, f"derivative of {op.name}")
