"""Algebraic rewrite rules of elementwise ops: a table of text, one rule `left -> right` per line.

The contract of a row:

- It holds for every value of the dtype kinds it names, ±0, ±inf, nan and denormals included. Both sides have the same
  bits, except for the sign and payload of a nan. A row that rounds differently states its error in ulps.
- The right side never costs more than the left, and no chain of rows leads back to its start.
- `x`, `y`, `z`, `w` match any operand; `c` matches a literal; `p` matches a literal that is a small power of two, so
  that its reciprocal is exact. Equal names match equal operands. A number matches itself, sign of zero included.
- Ops on literals alone are folded when the right side is built.

The test suite evaluates every row on all special values of its dtypes, and checks that it fires.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode, GraphValue
from tracegrad.ops import TABLE, Op
from tracegrad.settings import disabled
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class AlgebraRule:
    """One row: `kinds` are the dtype kinds of `x` ("f" float, "i" and "u" integers, "b" boolean)."""

    left: str
    right: str
    kinds: str = "f"
    ulps: int = 0

    def __str__(self) -> str:
        return f"{self.left} -> {self.right}"


RULES: tuple[AlgebraRule, ...] = (
    # Literals are moved to the right of commutative ops, so that the rows below need one form only.
    AlgebraRule("add(c, x)", "add(x, c)", "fiu"),
    AlgebraRule("multiply(c, x)", "multiply(x, c)", "fiu"),
    # Neutral elements. x + 0.0 is not here, because -0.0 + 0.0 is 0.0.
    AlgebraRule("add(x, -0.0)", "x"),
    AlgebraRule("add(x, 0)", "x", "iu"),
    AlgebraRule("subtract(x, 0)", "x", "fiu"),
    AlgebraRule("subtract(-0.0, x)", "negative(x)"),
    AlgebraRule("multiply(x, 1)", "x", "fiu"),
    AlgebraRule("divide(x, 1)", "x"),
    AlgebraRule("power(x, 1)", "x", "fiu"),
    AlgebraRule("logical_and(x, True)", "x", "b"),
    AlgebraRule("logical_and(True, x)", "x", "b"),
    AlgebraRule("logical_or(x, False)", "x", "b"),
    AlgebraRule("logical_or(False, x)", "x", "b"),
    # Signs.
    AlgebraRule("negative(negative(x))", "x", "fiu"),
    AlgebraRule("multiply(x, -1)", "negative(x)", "fi"),
    AlgebraRule("divide(x, -1)", "negative(x)"),
    AlgebraRule("add(x, negative(y))", "subtract(x, y)", "fiu"),
    AlgebraRule("add(negative(x), y)", "subtract(y, x)", "fiu"),
    AlgebraRule("subtract(x, negative(y))", "add(x, y)", "fiu"),
    AlgebraRule("multiply(negative(x), negative(y))", "multiply(x, y)", "fiu"),
    AlgebraRule("multiply(negative(x), c)", "multiply(x, negative(c))", "f"),
    AlgebraRule("divide(negative(x), negative(y))", "divide(x, y)"),
    AlgebraRule("divide(negative(x), c)", "divide(x, negative(c))"),
    AlgebraRule("divide(c, negative(x))", "divide(negative(c), x)"),
    AlgebraRule("negative(multiply(x, c))", "multiply(x, negative(c))"),
    AlgebraRule("negative(divide(x, c))", "divide(x, negative(c))"),
    AlgebraRule("negative(divide(c, x))", "divide(negative(c), x)"),
    AlgebraRule("negative(multiply(negative(x), y))", "multiply(x, y)", "fiu"),
    AlgebraRule("negative(divide(negative(x), y))", "divide(x, y)"),
    AlgebraRule("square(negative(x))", "square(x)", "fiu"),
    AlgebraRule("square(absolute(x))", "square(x)", "fiu"),
    AlgebraRule("absolute(negative(x))", "absolute(x)", "fi"),
    AlgebraRule("absolute(absolute(x))", "absolute(x)", "fiu"),
    AlgebraRule("absolute(square(x))", "square(x)"),
    # Cheaper ops. NumPy computes a power with a scalar exponent of 2, -1 or 0.5 by square, reciprocal or sqrt, also at
    # -0.0 and -inf, for which pow(x, 0.5) of C is 0.0 and inf.
    AlgebraRule("multiply(x, x)", "square(x)", "fiu"),
    AlgebraRule("divide(1, x)", "reciprocal(x)"),
    AlgebraRule("divide(x, p)", "multiply(x, reciprocal(p))"),
    AlgebraRule("power(x, 2)", "square(x)", "fiu"),
    AlgebraRule("power(x, -1)", "reciprocal(x)"),
    AlgebraRule("power(x, 0.5)", "sqrt(x)"),
    AlgebraRule("power(x, 3)", "multiply(x, square(x))", "f", ulps=2),
    # Conversion to half precision rounds, and rounding again changes nothing.
    AlgebraRule("half_bits(round_to_half(x))", "half_bits(x)"),
    AlgebraRule("round_to_half(round_to_half(x))", "round_to_half(x)"),
    # Selects.
    AlgebraRule("where(x, y, y)", "y", "b"),
    AlgebraRule("where(logical_not(x), y, z)", "where(x, z, y)", "b"),
    AlgebraRule("where(x, where(x, y, w), z)", "where(x, y, z)", "b"),
    AlgebraRule("where(x, y, where(x, w, z))", "where(x, y, z)", "b"),
    AlgebraRule("maximum(x, x)", "x", "fiu"),
    AlgebraRule("minimum(x, x)", "x", "fiu"),
    # Logic. Only equality may be negated: the order relations are all false on nan.
    AlgebraRule("logical_not(logical_not(x))", "x", "b"),
    AlgebraRule("logical_not(equal(x, y))", "not_equal(x, y)", "fiub"),
    AlgebraRule("logical_not(not_equal(x, y))", "equal(x, y)", "fiub"),
    AlgebraRule("logical_and(x, x)", "x", "b"),
    AlgebraRule("logical_or(x, x)", "x", "b"),
    AlgebraRule("not_equal(x, x)", "isnan(x)"),
)


SMALL_POWERS = frozenset(s * 2.0**n for n in range(-3, 4) for s in (1, -1))


def is_small_power_of_two(x: object) -> bool:
    """Whether `x` is a float of ±1/8, ±1/4, ... ±8.

    Divisors come from sizes too. A size up to 8 is a constant of a kernel; a larger size is not. The form of a graph
    must therefore not depend on whether a larger size is a power of two.
    """
    return type(x) is float and x in SMALL_POWERS


# -- compiled rows -----------------------------------------------------------------------------------
_LITERAL = object()

Matcher = Callable[[Any, dict[str, Any]], bool]

_LITERAL_NAMES: dict[str, Callable[[object], bool]] = {"c": is_literal, "p": is_small_power_of_two}


def _matcher(pattern: ast.expr) -> Matcher:
    """Compile a matcher: whether a node or literal matches `pattern`; it binds the names in the pattern."""
    if isinstance(pattern, ast.Name):
        return _name_matcher(pattern.id)
    if isinstance(pattern, ast.Call):
        assert isinstance(pattern.func, ast.Name)
        return _call_matcher(TABLE[pattern.func.id], [_matcher(a) for a in pattern.args])
    wanted = ast.literal_eval(pattern)
    negative = math.copysign(1, wanted) < 0

    def match(x: object, env: dict[str, object]) -> bool:
        return is_literal(x) and not isinstance(x, complex) and x == wanted and (math.copysign(1, x) < 0) == negative

    return match


def _name_matcher(name: str) -> Matcher:
    condition = _LITERAL_NAMES.get(name)

    def match(x: object, env: dict[str, object]) -> bool:
        if condition and not condition(x):
            return False
        bound = env.setdefault(name, x)
        return bound is x or (is_literal(x) and is_literal(bound) and repr(x) == repr(bound))

    return match


def _call_matcher(op: Op, operands: list[Matcher]) -> Matcher:
    def match(x: object, env: dict[str, GraphNode | float]) -> bool:
        return isinstance(x, GraphNode) and x.op is op and all(m(i, env) for m, i in zip(operands, x.inputs))

    return match


def _constructor(pattern: ast.expr) -> Callable[[dict[str, Any]], Any]:
    """Compile a constructor of `pattern` from bound names; it returns None if an op would have no array operand."""
    if isinstance(pattern, ast.Name):
        return lambda env: env[pattern.id]
    assert isinstance(pattern, ast.Call)
    assert isinstance(pattern.func, ast.Name)
    op, operands = TABLE[pattern.func.id], [_constructor(a) for a in pattern.args]

    def construct(env: dict[str, object]) -> Any:
        built = [make(env) for make in operands]
        if len(built) == 3 and is_literal(built[1]) and is_literal(built[2]):
            return None
        return op(*built)

    return construct


class _CompiledRule:
    """A compiled rule: operand matchers, the constructor, and the producing op of each operand."""

    def __init__(self, rule: AlgebraRule):
        left = ast.parse(rule.left, mode="eval").body
        assert isinstance(left, ast.Call)
        assert isinstance(left.func, ast.Name)
        self.rule = rule
        self.op = TABLE[left.func.id]
        self.heads = [_head(a) for a in left.args]
        self.matchers = [_matcher(a) for a in left.args]
        self.construct = _constructor(ast.parse(rule.right, mode="eval").body)

    def may_match(self, heads: Sequence[object]) -> bool:
        """Whether operands produced by the ops `heads` can match."""
        return all(wanted is None or wanted is head for wanted, head in zip(self.heads, heads))

    def apply(self, operands: tuple[GraphValue | float, ...]) -> Any:
        """The right side for `operands`, or None if the left side does not match."""
        env: dict[str, Any] = {}
        for matcher, x in zip(self.matchers, operands):
            if not matcher(x.node if isinstance(x, GraphValue) else x, env):
                return None
        x = env["x"]
        if not isinstance(x, GraphNode) or x.aval.dtype.kind not in self.rule.kinds:
            return None
        builder = next(v.builder for v in operands if isinstance(v, GraphValue))
        return self.construct({k: builder.value(v) if isinstance(v, GraphNode) else v for k, v in env.items()})


def _head(pattern: ast.expr) -> object:
    """The op at the head of `pattern`; `_LITERAL` for a literal; None if any operand matches."""
    if isinstance(pattern, ast.Call):
        assert isinstance(pattern.func, ast.Name)
        return TABLE[pattern.func.id]
    return None if isinstance(pattern, ast.Name) and pattern.id not in _LITERAL_NAMES else _LITERAL


def _index() -> dict[Op, list[_CompiledRule]]:
    table: dict[Op, list[_CompiledRule]] = {}
    for rule in RULES:
        compiled = _CompiledRule(rule)
        table.setdefault(compiled.op, []).append(compiled)
    return table


_COMPILED_RULES = _index()


def algebra(op: Op, operands: tuple[GraphValue | float, ...], params: dict[str, object]) -> Any:
    """The hook of the table: the right side of the first row whose left side matches, or None.

    >>> from tracegrad.ir import parse
    >>> from tracegrad.passes.core.rewriter import rewrite
    >>> print(rewrite(parse("graph(%0: f64[3]) {\\n  %1 = divide(%0, 4.0) : f64[3]\\n  return %1\\n}"), algebra))
    graph(%0: f64[3]) {
      %1 = multiply(%0, 0.25) : f64[3]
      return %1
    }
    """
    if op not in _COMPILED_RULES or disabled("algebra"):
        return None
    for rule in _candidate_rules(op, *[x.node.op if isinstance(x, GraphValue) else _LITERAL for x in operands]):
        if (result := rule.apply(operands)) is not None:
            return result
    return None


@functools.lru_cache(maxsize=4096)
def _candidate_rules(op: Op, *heads: object) -> list[_CompiledRule]:
    """The rows for an op that can match operands produced by `heads`; most rows are excluded here."""
    return [rule for rule in _COMPILED_RULES[op] if rule.may_match(heads)]
