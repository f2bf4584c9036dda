"""Every row of the table of algebra, on every special value of every dtype it is for."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from tracegrad.avals import Aval, is_literal
from tracegrad.ir import Builder, build, verify
from tracegrad.ops import TABLE
from tracegrad.passes.algebra.rules import RULES, SMALL_POWERS, AlgebraRule, algebra, is_small_power_of_two
from tracegrad.passes.core.rewriter import rewrite

DTYPES = {"f": ["float64", "float32"], "i": ["int64", "int8"], "u": ["uint64", "uint8"], "b": ["bool"]}
LITERALS = {"f": [0.0, -0.0, 1.0, -1.0, 2.0, 0.3, -7.5, np.inf, -np.inf, np.nan], "i": [0, 1, -1, 7], "u": [0, 1, 7]}
POWERS = sorted(SMALL_POWERS)


def specials(dtype: np.dtype[Any]) -> Any:
    """Every kind of value that `dtype` has."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.unique(np.array([limits.min, limits.max, limits.min + 1, 0, 1, 2, 3, 11, limits.max - 1], dtype))
    info = np.finfo(dtype)
    tiny = [info.smallest_subnormal, info.smallest_normal, info.smallest_normal / 4, info.eps]
    positive = [0.0, *map(float, tiny), 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, float(info.max), float(info.max) / 2, np.inf]
    return np.array([s * v for v in positive for s in (1, -1)] + [np.nan], dtype)


def spread(dtype: np.dtype[Any]) -> Any:
    """Values of every magnitude."""
    rng = np.random.default_rng(0)
    if dtype.kind != "f":
        return specials(dtype)
    exponents = np.linspace(np.log2(np.finfo(dtype).smallest_subnormal), np.finfo(dtype).maxexp - 1, 4000)
    return (np.exp2(exponents) * rng.uniform(1, 2, 4000) * rng.choice([-1, 1], 4000)).astype(dtype)


def evaluate(side: ast.expr, env: dict[str, Any]) -> Any:
    match side:
        case ast.Name(id=name):
            return env[name]
        case ast.Call(func=ast.Name(id=name), args=args):
            return TABLE[name](*[evaluate(a, env) for a in args])
    return ast.literal_eval(side)


def names_in(side: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(side) if isinstance(n, ast.Name)} - set(TABLE)


def parsed(rule: AlgebraRule) -> tuple[ast.expr, ast.expr]:
    return ast.parse(rule.left, mode="eval").body, ast.parse(rule.right, mode="eval").body


def assignments(rule: AlgebraRule, kind: str, dtype: np.dtype[Any]) -> Any:
    """What the names of the rule may stand for: all combinations of special values."""
    arrays = sorted(names_in(parsed(rule)[0]) - {"c", "p"})
    # Beside a boolean condition x the other operands are reals.
    others = np.dtype("float64") if dtype.kind == "b" and "where" in rule.left else dtype
    domains = [specials(dtype if n == "x" else others) for n in arrays]
    grids = [g.ravel() for g in np.meshgrid(*domains)]
    if len(arrays) == 1:
        grids = [np.concatenate([grids[0], spread(dtype)])]
    env = dict(zip(arrays, grids))
    literals = LITERALS.get(kind, [True, False]) if "c" in names_in(parsed(rule)[0]) else POWERS
    name = "c" if "c" in names_in(parsed(rule)[0]) else "p"
    yield from ({**env, name: v} for v in literals)


def ulps_between(a: Any, b: Any) -> int:
    """The largest distance of two arrays in units in the last place; infinity and nan must stand at the same places."""
    if a.dtype.kind != "f":
        return 0 if np.array_equal(a, b) else 1 << 62
    special = ~np.isfinite(a) | ~np.isfinite(b)
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return 1 << 62
    a, b = a[~special], b[~special]
    if not np.array_equal(np.signbit(a), np.signbit(b)):
        return 1 << 62
    integer = np.dtype(f"int{8 * a.dtype.itemsize}")
    return int(np.abs(np.abs(a).view(integer) - np.abs(b).view(integer)).max(initial=0))


CASES = [
    pytest.param(rule, kind, np.dtype(name), id=f"{rule} [{name}]")
    for rule in RULES
    for kind in rule.kinds
    for name in DTYPES[kind]
]


@pytest.mark.parametrize(("rule", "kind", "dtype"), CASES)
@np.errstate(all="ignore")
def test_rule_holds_for_every_value(rule: AlgebraRule, kind: str, dtype: np.dtype[Any]) -> None:
    left, right = parsed(rule)
    for env in assignments(rule, kind, dtype):
        a, b = evaluate(left, env), evaluate(right, env)
        assert a.dtype == b.dtype, "a rule keeps the dtype"
        assert ulps_between(a, b) <= rule.ulps, f"differs where {env}"


@pytest.mark.parametrize("rule", [r for r in RULES if r.ulps], ids=str)
@np.errstate(all="ignore")
def test_inexact_rules_need_their_allowance(rule: AlgebraRule) -> None:
    left, right = parsed(rule)
    worst = 0
    for dtype in map(np.dtype, DTYPES["f"]):
        for env in assignments(rule, "f", dtype):
            worst = max(worst, ulps_between(evaluate(left, env), evaluate(right, env)))
    assert worst <= rule.ulps
    assert worst > 0, "a rule that is exact here should say so"


@pytest.mark.parametrize(("rule", "kind", "dtype"), CASES)
def test_rule_fires_and_never_adds_an_op(rule: AlgebraRule, kind: str, dtype: np.dtype[Any]) -> None:
    left, right = parsed(rule)
    names = sorted(names_in(left) - {"c", "p"})
    other = np.dtype("float64") if dtype.kind == "b" and "where" in rule.left else dtype
    avals = [Aval((3,), dtype if n == "x" else other) for n in names]
    literals = {"c": 7.0 if kind == "f" else 7, "p": 4.0}
    graph = build(lambda *xs: [evaluate(left, {**dict(zip(names, xs)), **literals})], avals)
    want = build(lambda *xs: [evaluate(right, {**dict(zip(names, xs)), **literals})], avals)
    got = verify(rewrite(graph, algebra))
    assert got == want
    assert len(got.nodes) <= len(graph.nodes) or rule.left == "power(x, 3)"


def test_right_sides_are_in_normal_form() -> None:
    for rule in RULES:
        kind = rule.kinds[0]
        names = sorted(names_in(parsed(rule)[0]) - {"c", "p"})
        dtype = np.dtype(DTYPES[kind][0])
        other = np.dtype("float64") if kind == "b" and "where" in rule.left else dtype
        avals = [Aval((3,), dtype if n == "x" else other) for n in names]
        env = {"c": 7.0 if kind == "f" else 7, "p": 4.0}
        right = build(lambda *xs: [evaluate(parsed(rule)[1], {**dict(zip(names, xs)), **env})], avals)  # noqa: B023
        assert rewrite(right, algebra) == right, f"{rule} leaves something to rewrite"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("add(x, 0.0)", "x"),
        ("square(sqrt(x))", "x"),
        ("logical_not(less(x, y))", "greater_equal(x, y)"),
        ("negative(subtract(x, y))", "subtract(y, x)"),
        ("multiply(x, 0)", "0"),
        ("subtract(0, x)", "negative(x)"),
    ],
)
@np.errstate(all="ignore")
def test_the_suite_refutes_tempting_rules(left: str, right: str) -> None:
    rule = AlgebraRule(left, right)
    sides = parsed(rule)
    differ = []
    for env in assignments(rule, "f", np.dtype("float64")):
        a, b = evaluate(sides[0], env), evaluate(sides[1], env)
        differ.append(ulps_between(a, np.broadcast_to(np.asarray(b, a.dtype), a.shape)) > 0)
    assert any(differ)
    assert left not in {r.left for r in RULES if "f" in r.kinds}


@pytest.mark.parametrize("x", [0.0, -0.0, 3.0, np.inf, np.nan, 1, True, 16.0, 1 / 16, 5e-324])
def test_only_small_powers_of_two_are_divided_by_as_products(x: Any) -> None:
    assert not is_small_power_of_two(x)


def test_rules_of_floats_leave_integers_alone() -> None:
    builder = Builder(algebra)
    x = builder.input(Aval((3,), np.dtype("int64")))
    y = TABLE["power"](x, -1)
    assert builder.build([y]).nodes[0].name == "power"
    assert is_literal(builder.build([y]).nodes[0].inputs[1])
