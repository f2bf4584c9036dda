"""Residual analysis of derivative rules, and generated NumPy functions for elementwise rules.

Both apply the rules to *terms*, symbolic operands that record the ops applied to them. The analysis is for the shapes,
dtypes and parameters of the call, because a rule may depend on them. A value that does not appear in the recorded text
need not be saved for the backward pass. The text is also compiled to a NumPy function, which computes a cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval, is_literal
from tracegrad.errors import DTypeError, UnsupportedError
from tracegrad.ops.core.dispatch import Entry, Term
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.utils.source import define

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracegrad.typing import Array


class _RuleText:
    """The ops that derivative rules apply to terms, as lines of a function, and the result of the rules.

    A line has the names that it defines, an expression, and the names in it.
    """

    def __init__(self, op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, object]):
        self._names: dict[Term, str] = {}
        tape: list[Entry] = []
        ct, ans = (Term(_FLOAT, tape).alike(op.aval(*operands, **params)) for _ in range(2))
        terms = tuple([x if is_literal(x) else Term(x, tape) for x in operands])
        for name, x in (("ct", ct), ("ans", ans), *((f"x{k}", x) for k, x in enumerate(terms))):
            self._name(name, x)
        self.result = op.pull_all(wanted, ct, ans, terms, params)
        self.space: dict[str, Any] = {}
        # Whether the lines are expressions of terms and numbers alone.
        self.plain = True
        self.lines: list[tuple[tuple[str, ...], str, frozenset[str]]] = []
        for n, (result, step, args, options) in enumerate(tape):
            self._name(f"t{n}", result)
            written = [self._text(x) for x in args]
            self.plain = self.plain and not options and all(isinstance(x, Term) or is_literal(x) for x in args)
            self.space[step.name] = step.impl
            self.lines.append((self.names(result), f"{step.name}({', '.join(written)})", frozenset(written)))

    def _name(self, name: str, x: Term | float) -> None:
        """Name a term, or the terms of several results."""
        if isinstance(x, Term):
            self._names[x] = name
        elif isinstance(x, tuple):
            for k, term in enumerate(x):
                self._name(f"{name}_{k}", term)

    def _text(self, x: Term | float) -> str:
        """Return the text of an operand.

        The text of a traced array that the rule made is only the class name, because reading its values would guard
        them.
        """
        if isinstance(x, Term):
            return self._names[x]
        return repr(x) if is_literal(x) or isinstance(x, np.ndarray | np.generic) else type(x).__name__

    def names(self, x: object) -> tuple[str, ...]:
        """Return the names of the terms in a value, or in a tuple or list of them."""
        if isinstance(x, tuple | list):
            return tuple([name for v in x for name in self.names(v)])
        return (self._names[x],) if isinstance(x, Term) else ()

    def live(self) -> tuple[list[str], set[str]]:
        """Return the lines that the result depends on, and the names they read."""
        read, lines = set(self.names(self.result)), []
        for names, line, used in reversed(self.lines):
            if not read.isdisjoint(names):
                read |= used
                lines.append(f"    {', '.join(names)} = {line}")
        return lines[::-1], read


_FLOAT = Aval((), np.dtype(np.float64))


class Needs(NamedTuple):
    """Values that rules read: the positions of results (0 for a single one) and of operands."""

    results: frozenset[int]
    operands: frozenset[int]


# Sample numbers for the analysis of elementwise rules that have a number operand. Rules may treat some of them (0, 1,
# 2, 0.5, negative ones) as special cases.
_NUMBERS = (1.5, 2.5, 0.0, 1.0, -1.0, 2.0, 0.5)


def needs_of(op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, object]) -> Needs:
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


def _needs(op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, object]) -> Needs:
    try:
        if isinstance(op, Elementwise) and any(map(is_literal, operands)):
            return _needs_with_numbers(op, wanted, operands)
        read = _RuleText(op, wanted, operands, params).live()[1]
    except (DTypeError, UnsupportedError):  # DTypeError: the dtypes do not allow a sample number here
        result_aval = op.aval(*operands, **params)
        count = len(result_aval) if isinstance(result_aval, ResultAvals) else 1
        return Needs(frozenset(range(count)), frozenset(range(len(operands))))
    read_operands = frozenset({k for k, x in enumerate(operands) if f"x{k}" in read or is_literal(x)})
    return Needs(frozenset(_result_numbers(read)), read_operands)


def _result_numbers(read: set[str]) -> set[int]:
    """Return the numbers of the results among the values read."""
    return {int(name.removeprefix("ans").removeprefix("_") or 0) for name in read if name.startswith("ans")}


def _needs_with_numbers(op: Op, wanted: Sequence[int], operands: Sequence[Array]) -> Needs:
    read_results, read_operands = set[int](), set[int]()
    for k, x in enumerate(operands):
        if not is_literal(x):
            continue
        texts = set()
        for number in _NUMBERS:
            args = [number if j == k else _NUMBERS[0] if is_literal(v) else v for j, v in enumerate(operands)]
            text = _RuleText(op, wanted, args, {})
            lines, read = text.live()
            texts.add((*lines, *text.names(text.result)))
            read_results |= _result_numbers(read)
            read_operands |= {j for j in range(len(operands)) if f"x{j}" in read}
        if len(texts) > 1:
            read_operands.add(k)
    return Needs(frozenset(read_results), frozenset(read_operands))


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


_COUNTS: dict[Op, list[int]] = {}


def _written(op: Op, i: int, operands: Sequence[Array]) -> bool | Callable[..., object] | None:
    """Return the rule of operand `i` as a function; None if there is none, False if it cannot be generated."""
    if is_literal(operands[i]) or not op.differentiable_in(i):
        return None
    text = _RuleText(op, [i], operands, {})
    (result,) = text.names(text.result) or ("",)
    if not text.plain or not result:
        return False
    parameters = ", ".join(["ct", "ans", *(f"x{k}" for k in range(len(operands)))])
    lines = [f"def rule({parameters}):", *text.live()[0], f"    return {result}"]
    space = {**text.space, "inf": np.inf, "nan": np.nan}
    return define("rule", "\n".join(lines), space, f"derivative of {op.name}")
