"""What the derivative rule of an op needs, and the rule of an elementwise op as a plain NumPy function.

Both are found by applying the rule to *terms*, stand-ins that write down the ops applied to them. What does not appear
in the text need not be saved for the backward pass; and the text itself, over NumPy's functions, computes a cotangent
without going through the ops again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval, aval_of, is_literal
from tracegrad.errors import MADE
from tracegrad.ops.op import Carrier, Level, Op

__all__ = ["Needs", "needs_of", "numpy_rules"]


class _Text:
    """Lines of a function under construction."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, frozenset[str]]] = []
        self.space: dict[str, Any] = {}
        self.plain = True


class _Term(Carrier):
    """A value of a rule: its name in the text, and the aval that the ops ask for."""

    __slots__ = ("_aval", "name", "text")
    level = Level.TERM

    def __init__(self, text: _Text, name: str, aval: Aval):
        self.text, self.name, self._aval = text, name, aval

    @property
    def aval(self) -> Aval:
        return self._aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        text = self.text
        avals = [x if is_literal(x) else aval_of(x) for x in operands]
        written = [x.name if isinstance(x, _Term) else repr(x) for x in operands]
        text.plain = text.plain and not params and all(isinstance(x, _Term) or is_literal(x) for x in operands)
        text.space[op.name] = op.impl
        name = f"t{len(text.lines)}"
        text.lines.append((name, f"{op.name}({', '.join(written)})", frozenset(written)))
        return _Term(text, name, op.aval(*avals, **params))


class Needs(NamedTuple):
    """What rules read: the answer, and operands by position (for an op of any number, from the second on all alike)."""

    answer: bool
    operands: frozenset[int]


_EVERYTHING = Needs(True, frozenset(range(64)))


def _applied(op: Op, i: int, operands: Sequence[Any], params: dict[str, Any]) -> tuple[_Text, Any]:
    """The text of the rule of operand `i`, for operands given as avals and literals, and its result."""
    text = _Text()
    answer = op.aval(*operands, **params)
    terms = tuple(x if is_literal(x) else _Term(text, f"x{k}", x) for k, x in enumerate(operands))
    ct, ans = _Term(text, "ct", answer), _Term(text, "ans", answer)
    return text, op.pull(i, ct, ans, terms, params)


def _live(text: _Text, result: Any) -> tuple[list[str], set[str]]:
    """The lines that `result` depends on, and the names they read."""
    read, lines = {result.name}, []
    for name, line, names in reversed(text.lines):
        if name in read:
            read |= names
            lines.append(f"    {name} = {line}")
    return lines[::-1], read


def _reads_number(op: Op, i: int, operands: Sequence[Any], params: dict[str, Any], k: int) -> bool:
    """Whether the rule of operand `i` looks at the number at position `k`: whether it fails where there is none."""
    text, answer = _Text(), op.aval(*operands, **params)
    terms: list[Any] = [x if is_literal(x) else _Term(text, f"x{j}", x) for j, x in enumerate(operands)]
    terms[k] = None
    try:
        op.pull(i, _Term(text, "ct", answer), _Term(text, "ans", answer), tuple(terms), params)
    except Exception:
        return True
    return False


@lru_cache(maxsize=4096)
def needs_of(op: Op, i: int, literals: tuple[int, ...] = ()) -> Needs:
    """What the rule of operand `i` reads, where the operands at the positions `literals` are Python numbers."""
    answer, operands, applied = False, set[int](), False
    cases = list(op.sample_cases())[:4]
    for given, params in cases:
        avals: list[Any] = [x if is_literal(x) else aval_of(x) for x in given]
        for k in literals:
            avals[k] = 1.5
        if i >= len(avals):
            i = 1 if len(avals) > 1 else 0
        try:
            text, result = _applied(op, i, avals, params)
        except Exception:
            continue  # a sample that is none with these numbers
        applied = True
        if not isinstance(result, _Term):
            continue
        read = _live(text, result)[1]
        answer = answer or "ans" in read
        operands |= {k for k in range(len(given)) if f"x{k}" in read}
        operands |= {k for k in literals if k not in operands and _reads_number(op, i, avals, params, k)}
    if not applied:
        return _EVERYTHING
    if op.variadic and operands - {0}:
        operands |= set(range(1, 64))
    return Needs(answer, frozenset(operands))


# A rule is made for each literal that stands in the place of an operand; a program with more uses the ops.
_MOST = 256


@lru_cache(maxsize=4096)
def numpy_rules(op: Op, literals: tuple[tuple[int, str], ...] = ()) -> tuple[Any, ...] | None:
    """For each operand of an elementwise op, the function `(ct, ans, *operands) -> ct` over NumPy's functions.

    They take arrays of shapes that broadcast. None where the rules cannot be written so; `literals` are the operands
    that are Python numbers, with their text.
    """
    counts = _COUNTS.setdefault(op, [0])
    counts[0] += 1
    if counts[0] > _MOST:
        return None
    case = next(iter(op.sample_cases()), None)
    if case is None:
        return None
    operands: list[Any] = [aval_of(x) for x in case[0]]
    for k, text in literals:
        operands[k] = eval(text, {"inf": np.inf, "nan": np.nan})
    return tuple([_written(op, i, operands) for i in range(len(operands))])


_COUNTS: dict[Op, list[int]] = {}


def _written(op: Op, i: int, operands: Sequence[Any]) -> Any:
    """The rule of operand `i` as a function; None where there is none, False where it cannot be written."""
    if is_literal(operands[i]) or not op.differentiable_in(i):
        return None
    text, result = _applied(op, i, operands, {})
    if not text.plain or not isinstance(result, _Term):
        return False
    parameters = ", ".join(["ct", "ans", *(f"x{k}" for k in range(len(operands)))])
    lines = [f"def rule({parameters}):", *_live(text, result)[0], f"    return {result.name}"]
    space = {**text.space, "inf": np.inf, "nan": np.nan}
    exec(compile("\n".join(lines), MADE, "exec"), space)
    return space["rule"]
