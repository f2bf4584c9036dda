"""Python numbers and NumPy scalars mean in traced code what they mean in Python and NumPy."""

from __future__ import annotations

import collections
import decimal
import enum
import fractions
import functools
import io
import math
import numbers
import operator
import random
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import attempt, program
from replayed import Replayed

import tracegrad as tg
from tracegrad.runtime.dispatch import dispatcher

HUGE = 2**63 - 1


@pytest.fixture(autouse=True)
def replayed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled but in tests that say so."""
    if "compiled" not in request.node.name:
        monkeypatch.setattr(dispatcher, "compile_program", Replayed)


def outcome(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a call gives, types and signs of zeros included, or the class of what it raises."""
    try:
        return exactly(f(*args))
    except Exception as error:
        return type(error).__mro__[-4:] and error_class(error)


def error_class(error: Exception) -> str:
    """The built-in class of an exception."""
    return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")


def exactly(x: Any) -> Any:
    """A value that equals another only if they have the same type and nearly the same value."""
    if isinstance(x, tuple | list):
        return type(x).__name__, [exactly(y) for y in x]
    if type(x) is float:
        return "float", float(f"{x:.12e}"), math.isnan(x) or math.copysign(1.0, x)
    if type(x) is complex:
        return "complex", exactly(x.real), exactly(x.imag)
    return type(x).__name__, repr(x)


def same(a: Any, b: Any) -> bool:
    """Equal, nan included."""
    return repr(a) == repr(b)


CASES: dict[str, list[tuple[Any, ...]]] = {
    "2**n": [(3,), (100,), (62,), (63,), (-1,), (0,)],
    "n**-1": [(3,), (0,), (-7,)],
    "n**3": [(3,), (-5,), (2**21,), (2**31,), (-(2**40),), (True,)],
    "n**k": [(3, 4), (2, -2), (0, -1), (7, 30), (-3, 3), (2.0, 0.5), (-8.0, 1 / 3), (1e200, 2), (0.0, -1), (2.5, 3)],
    "x**2": [(3.0,), (1e200,), (math.inf,), (math.nan,), (-0.0,), (-3,)],
    "x**0.5": [(3.0,), (-0.0,), (-3.0,), (math.inf,), (-math.inf,), (4,)],
    "n << 2": [(3,), (2**61,), (-5,), (1.5,), (False,)],
    "n << k": [(3, 1), (1, 62), (1, 63), (1, 100), (5, -1), (0, 500)],
    "n >> k": [(3, 1), (-9, 2), (1, 63), (1, 100), (5, -1), (-1, 64)],
    "1 << n | 3": [(2,), (70,)],
    "1 / x": [(2.0,), (0.0,), (-0.0,), (math.nan,), (0,), (True,)],
    "x / 0": [(2.0,), (2,)],
    "x / 0.0": [(2.0,), (0,)],
    "x % 0.0": [(2.0,)],
    "n // 0": [(3,)],
    "1 // n": [(2,), (0,), (-3,), (0.0,)],
    "n * k": [(3, 4), (2**40, 2**40), (2**62, 2), (-(2**63), -1), (2.5, 2), (True, 3), (HUGE, HUGE)],
    "n + k": [(HUGE, 1), (-(2**63), -1), (2**62, 2**62), (1, True), (1, 0.5)],
    "n - k": [(-(2**63), 1), (5, 7), (2.0, 1)],
    "n * 3 + 1": [(2**31,), (5,), (HUGE,), (0.5,)],
    "n / k": [(3, 4), (2**60 + 1, 3), (2**62, 2), (-(2**63), -1), (2.5, 2), (True, 3), (1, 0), (2**53 + 1, 1)],
    "divmod(n, k)": [(3, 4), (-7, 2), (7, -2), (2**62, 3), (7.5, -2), (1, 0), (1.0, 0.0), (-(2**63), -1)],
    "n % k": [(7, -3), (-7, 3), (7.5, -2.0), (-0.0, 3.0), (5.0, math.inf), (-5.0, math.inf)],
    "-n": [(3,), (-(2**63),), (0.0,), (True,)],
    "abs(n)": [(-3,), (-(2**63),), (-0.0,), (True,)],
    "(n & k, n | k, n ^ k, ~n)": [(5, 3), (-1, 8), (2**62, -(2**63)), (True, False), (True, 6), (1.5, 1)],
    "n + 2**70": [(3,), (-3,), (0.5,), (2**80,)],
    "(n + k, n * k, n // k, n % k, n < k, n & k, -n)": [(2**70, 3), (3, -(2**65)), (2**64, 2**63), (2**70, 2.5)],
    "(n < 2**70, n == 2**64, -(2**65) > n)": [(3,), (0.5,)],
    "n == x": [(2**53 + 1, 2.0**53), (3, 3.0), (3, math.nan), (2**60, 2.0**60)],
    "n < x": [(2**53 + 1, 2.0**53 + 2), (2**53, 2.0**53), (3, math.inf)],
    "(n < k < 10, n == k, n != k)": [(1, 2), (5, 2), (1, 30), (1.0, math.nan)],
    "(n == 'a', n != None, n == [1])": [(1,), (2.0,)],
    "round(x)": [(2.5,), (3.5,), (-2.5,), (1e300,), (math.nan,), (math.inf,), (7,), (-0.2,)],
    "round(x, 2)": [(2.675,), (1.005,), (-2.5,), (7,), (math.nan,)],
    "round(n, -1)": [(25,), (15,), (35.0,), (-25,)],
    "round(x, None)": [(2.5,), (3,)],
    "(int(x), float(x), bool(x), complex(x))": [(2.5,), (-0.0,), (3,), (True,)],
    "int(x)": [(math.inf,), (math.nan,), (1e30,), (-2.7,)],
    "pow(n, 3, 7)": [(5,), (9,)],
    "pow(2, n)": [(5,), (90,)],
    "[n] * 2 + ['a' * n]": [(2,), (3,)],
    "sum([n] * 10)": [(5,), (2**62,), (0.1,)],
    "(max(n, 3, 2.5), min([n, 1]))": [(5,), (1,), (2.5,)],
    "sorted([n, k, 2])": [(5, 1), (1, 5)],
    "n in (1, 2, 3)": [(1,), (9,), (2.0,)],
    "n in range(3)": [(1,), (9,)],
    "n and k": [(0, 5), (1, 5), (2.0, 0)],
    "not n": [(0,), (0.0,), (3,)],
    "list(range(n))": [(2,), (3,), (2.0,)],
    "[10, 20, 30][n]": [(1,), (-1,), (True,), (1.0,), (7,)],
    "'abc'[n:k]": [(0, 2), (1, 9)],
    "(x.is_integer(), x.hex(), x.as_integer_ratio())": [(2.5,), (-2.0,)],
    "(n.bit_length(), n.bit_count(), n.to_bytes(9, 'big'))": [(5,), (True,), (HUGE,)],
    "(n.numerator, n.denominator, n.real, n.imag, n.conjugate())": [(5,), (True,)],
    "(n.real, n.imag, n.conjugate())": [(5.0,)],
    "n[0]": [(5,), (5.0,)],
    "list(n)": [(5,), (5.0,)],
    "len(n)": [(5,)],
    "n.missing": [(5,), (5.0,)],
    "n + 'a'": [(5,)],
    "n + None": [(5.0,)],
    "n + 1j": [(5,), (2.5,)],
    "n * (2 + 1j) - n": [(5,)],
    "abs(n + 3j)": [(4,)],
    "math.sqrt(x)": [(2.0,), (-1.0,), (math.nan,), (math.inf,), (0,), (-0.0,), (2**62,)],
    "math.log(x)": [(2.0,), (0.0,), (-1.0,), (0,), (math.inf,), (True,)],
    "math.log(x, b)": [(2.0, 3), (2.0, 1), (2, 0)],
    "(math.log2(x), math.log10(x), math.log1p(x))": [(2.0,), (0.0,), (-1.0,), (-2,)],
    "(math.exp(x), math.expm1(x))": [(709.5,), (709.781,), (709.782712893384,), (709.7827128933841,)],
    "(math.cosh(x), math.sinh(-x))": [(710.3,), (710.45,), (710.4758600739439,), (710.48,), (-710.48,)],
    "math.exp2(x)": [(1023.5,), (1023.95,), (1024.0,), (math.nan,)],
    "math.exp(x)": [(1.0,), (1000.0,), (math.inf,), (-math.inf,), (2,)],
    "(math.exp2(x), math.expm1(x), math.cosh(x), math.sinh(x))": [(1.0,), (1100.0,), (-1100.0,)],
    "(math.sin(x), math.cos(x), math.tan(x), math.tanh(x))": [(1.0,), (math.inf,), (math.nan,)],
    "(math.asin(x), math.acos(x), math.atanh(x))": [(0.5,), (2.0,), (-1.0,), (math.nan,)],
    "math.acosh(x)": [(1.5,), (0.5,)],
    "(math.floor(x), math.ceil(x), math.trunc(x))": [(2.5,), (-2.5,), (3,), (1e300,), (math.inf,), (math.nan,)],
    "(math.factorial(n), math.comb(n, 2), math.isqrt(n))": [(5,), (-1,), (30,), (1.5,)],
    "(math.gcd(n, 12), math.lcm(n, 5))": [(16,), (9,), (1.5,)],
    "math.pow(x, 0.5)": [(4.0,), (-4.0,)],
    "math.pow(x, -1)": [(4,), (0,)],
    "math.fsum([x, 1e16, -1e16])": [(1.0,), (2,), (math.inf,), (math.nan,)],
    "math.fsum(v for v in (x, 0.1, -math.inf))": [(1.0,), (math.inf,)],
    "math.fsum([x, 0.1, 0.2, 1e100, 0.3, -1e100])": [(1.0,), (1e-3,), (True,)],
    "math.dist([x, 1.0], (2, 3.0))": [(1.0,), (math.inf,)],
    "math.dist([x], [])": [(1.0,)],
    "math.prod([x, 2, 3])": [(2,), (1.5,), (2**62,)],
    "math.hypot(x, 3, 4)": [(2,)],
    "math.hypot(x)": [(2,), (-2.5,), (-0.0,)],
    "math.dist([x], [2])": [(1.0,), (2,)],
    "math.isclose(x, 1.0)": [(1.0,), (1.0 + 1e-10,), (2,), (math.nan,)],
    "(math.modf(x), math.frexp(x), math.ldexp(x, 3))": [(2.5,), (-0.5,)],
    "(math.fmod(x, 2), math.copysign(3, x), math.fabs(x))": [(2.5,), (math.inf,), (-0.0,)],
    "math.fmod(x, y)": [(2.5, 0.0), (2.5, 2), (-1, 3)],
    "(math.isnan(x), math.isinf(x), math.isfinite(x))": [(2.5,), (math.nan,), (3,), (-math.inf,)],
    "(math.erf(x), math.erfc(x), math.gamma(x), math.lgamma(x))": [(2.5,), (0.0,), (-1.0,)],
    "(math.degrees(x), math.radians(x), math.cbrt(x))": [(2.5,), (-8,)],
    "statistics.mean([n, k])": [(1, 2), (2, 4), (1.5, 2.5)],
    "statistics.median([n, k, 3])": [(1, 2), (2, 4)],
    "(isinstance(n, int), isinstance(n, float), isinstance(n, bool), type(n))": [(1,), (1.0,), (True,)],
    "(type(n + 1), type(n > 0), type(n / 1), type(not n), type(round(n)))": [(1,), (1.0,), (True,)],
    "[i * n for i in range(3)]": [(2,), (0.5,)],
    "(lambda a: a + n)(2)": [(2,), (0.5,)],
    "n if n > 3 else -n": [(2,), (5.0,)],
    "10 ** n % 7": [(2,), (40,), (-2,)],
    "(n * n - k * k) // (n - k)": [(7, 3), (3, 3), (2**40, 3), (2.5, 1)],
    "((n + 1) * (n + 2) * (n + 3) * (n + 4)) % 1009": [(7,), (2**20,), (2**50,)],
    "n % 2 == 0 and n // 2 or 3 * n + 1": [(6,), (7,), (0,), (2**62,)],
}


@pytest.mark.parametrize("text", CASES)
@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")  # of truths, since Python 3.12
def test_an_expression_of_python_numbers_is_pythons(text: str) -> None:
    names = sorted({x for x in ("n", "k", "x", "y", "b") if x in set(_words(text))}, key="nkxyb".index)
    f = eval(f"lambda {', '.join(names)}: {text}", {"math": math, "statistics": statistics})
    traced = tg.trace(f)
    for _ in range(2):
        for args in CASES[text]:
            assert same(outcome(f, args), outcome(traced, args)), args


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def test_sums_and_distances_of_math_have_derivatives() -> None:
    def f(x: Any) -> Any:
        return math.fsum(x[i] * x[i + 1] for i in range(3)) + math.dist(x[:2], [x[2], x[3]]) * math.prod(x)

    x, step = np.array([0.3, 0.5, 0.7, 0.2]), 1e-6
    want = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(tg.grad(f)(x), want, rtol=1e-8)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(x), want, rtol=1e-8)


# -- random expressions ----------------------------------------------------------------------------------------
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    "==": operator.eq,
}
SPECIAL: list[Any] = [
    2**70, -(2**64),
    0, 1, -1, 2, 3, -7, 10, 63, 64, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), True, False, 0.0, -0.0,
    0.5, -2.5, 1e16, 1e300, -1e-300, math.inf, math.nan,
]  # fmt: skip


def random_expression(rng: random.Random, names: str, depth: int) -> str:
    """The text of an expression; exponents and shifts are bounded, so that numbers stay of a readable size."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*names, *names, str(rng.choice([0, 1, 2, 3, -5, 7, 0.5, 2.0, -1.5, 2**40, 2**70]))])
    kind = rng.random()
    inner = random_expression(rng, names, depth - 1)
    if kind < 0.15:
        return rng.choice(["-{}", "abs({})", "+{}", "round({})", "int({})", "bool({})"]).format(f"({inner})")
    sign = rng.choice(list(OPERATORS))
    other = random_expression(rng, names, depth - 1)
    if sign in ("**", "<<", ">>"):
        other = f"small({other})"
    return f"({inner}) {sign} ({other})"


def small(x: Any) -> Any:
    """`x`, or less of it, as an exponent."""
    if isinstance(x, complex):
        return 2
    return x if -4 <= x <= 70 else x % 5


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random_expressions_are_pythons(seed: int) -> None:
    rng = random.Random(seed)
    text = random_expression(rng, "abc", 4)
    f = eval(f"lambda a, b, c: {text}", {"small": small})
    traced = tg.trace(f)
    calls = [tuple(rng.choice(SPECIAL) for _ in range(3)) for _ in range(6)]
    for args in calls * 2:
        assert same(outcome(f, args), outcome(traced, args)), (text, args)


# -- NumPy's scalars, and arrays without axes --------------------------------------------------------------------
ARRAYS: dict[str, Any] = {
    "x": np.array([1.5, 2.0, 3.0]),
    "f": np.array([1, 2], np.float32),
    "i": np.array([1, 2, 3]),
    "a": np.array([1, 2], np.int8),
    "u": np.array([1, 2], np.uint8),
    "b": np.array([True, False]),
    "m": np.arange(6.0).reshape(2, 3),
    "s": np.float64(1.5),
    "z": np.array(2.5),
    "k": np.int8(100),
    "n": 300,
    "q": 0.5,
}

SCALARS = """
isinstance(x[0], float) | isinstance(f[0], float) | isinstance(x[0], np.floating) | isinstance(i[0], np.generic)
isinstance(x.sum(), numbers.Real) | isinstance(i.max(), numbers.Integral) | isinstance(f.mean(), numbers.Number)
isinstance(i[0], int) | np.isscalar(x[0]) | np.isscalar(z) | np.isscalar(n) | np.isscalar(x)
isinstance(x[0] > 0, np.bool_) | isinstance(x[0] > 0, bool) | isinstance(x[0], np.ndarray)
isinstance(x[..., 0], np.ndarray) | isinstance(z, np.ndarray) | isinstance(s, np.ndarray) | isinstance(s, float)
isinstance(q, (float, np.ndarray)) | isinstance(x, collections.abc.Sequence) | type(x[0]) is np.float64
type(x[..., 0]) | type(x) | type(f.sum()) | type(x[0] > 1) | type(n) | type(q * 2) | type(s * 2) | type(z * 2)
type(z) | type(x.sum().item()) | type(i[0].item()) | type(np.where(x[0] > 0, 1.0, 2.0)) | type(k) | x[0] | x[..., 0]
z[()] | z[...] | s[()] | s[...] | s.T | z.T | s.copy() | z.copy() | np.copy(s) | z.reshape(()) | s.reshape(())
x[:1].reshape(()) | x[:1].squeeze() | np.squeeze(z) | np.squeeze(s) | z.astype(np.float32) | s.astype(np.float32)
z + 1 | -z | np.asarray(s) | np.asarray(q) | np.array(n) | np.asarray(z) | np.where(s > 0, s, 1) | np.zeros(()) + s
np.zeros_like(s) * s | np.broadcast_to(s, ()) | np.real(z) | np.real(s) | z.real | s.imag | np.full((), s)
np.select([s > 1], [s]) | z.conj() | np.tensordot(x, x, 1) | np.dot(x, x) | np.einsum("i,i->", x, x) | x @ x
np.roll(z, 1) | np.transpose(z) | np.squeeze(n) | x.sum() | x.mean() | x.std() | np.linalg.norm(x) | x.argmax()
np.ptp(x) | (x > 1).any() | np.count_nonzero(x) | np.trace(m) | np.allclose(x, x) | np.array_equal(x, x)
type(np.allclose(x, x)) | type(np.array_equal(x, m)) | np.isclose(s, 1.5) | x[0].item() | f[0].item() | u[0].item()
b[0].item() | x.tolist() | m.tolist() | z.tolist() | s.item() | x.item(1) | x[:1].item() | round(x[0])
round(x[0], 1) | round(f[0]) | round(z) | int(x[1]) | float(f[1]) | bool(i[0]) | complex(x[0]) | x[0].is_integer()
x[1].is_integer() | x[0].hex() | x[0].as_integer_ratio() | i[2].bit_count() | statistics.mean(x)
statistics.median(x) | math.sqrt(x[0]) | type(math.sqrt(f[0])) | math.floor(x[0]) | math.log(z) | math.sqrt(x)
x[0][0] | len(x[0]) | list(x[0]) | x[0].missing | {x[0]: 1} | {v for v in x} | frozenset(i) | {(n, q): s} | hash(x[0])
hash(x) | {1.5: "a", 2.5: "b"}[x[0]] | x[0] in {1.5, 2.0} | x[0] in [3.0] | {300: "a"}[n] | {1: "a", 2: "b"}[i[1]]
{x} | f"{n} {q:.3f} {x[0]} {x.sum():8.2f} {x}" | str(x) | repr(x) | repr(x[0]) | str(f[0]) | repr(z) | f"{z}"
"%d %s" % (n, q) | f"w{n}" | {f"k{v}": v for v in range(3)}[f"k{i[0]}"] | format(q, "e") | repr(n) | str(m)
f"{x[0] > 1}" | np.str_(n) | x[range(2)] | m[range(2), range(2)] | x[True] | x[False] | m[True, 0] | m[:, True]
x[np.True_] | x[x.sum() > 3] | m[[True, False], True] | m[None, True, [0, 1], [0, 1]] | x[n > 3]
np.einsum(m, [0, 1], [1]) | np.einsum(m, [0, 1]) | np.einsum(m, [0, 1], x, [1], [0])
np.einsum(m, [Ellipsis, 1], [1, Ellipsis]) | np.einsum(x, [0], x, [0]) | np.prod(i, initial=0.5)
np.sum(i, initial=0.5) | np.max(i, initial=5.5) | np.max(i, initial=0.5) | np.min(i, initial=2) | np.max(b, initial=2)
np.min(b, initial=2) | np.prod(b, initial=3) | np.sum(b, initial=0.5) | np.max(a, initial=300) | np.max(a, initial=n)
np.prod(i, initial=q) | np.max(a, initial=1.7) | np.prod(f, initial=2) | np.max(i, initial=np.float64(2.5))
np.round(i * 7, -1) | np.round(u * 62, -1) | (a * 60).round(-1) | np.round(i, 2) | np.round(f * 7, -1)
np.select([b], [f], 0) | np.select([b], [f], 0.5) | np.select([b], [1.5], f) | np.select([b, b], [1, 2.5])
np.select([b], [a], 300) | np.select([b], [a], 1.5) | np.select([b], [u], -1) | np.select([b], [a], n)
np.where(b, f, 1.5) | np.where(b, f, q) | np.where(b, a, 300) | np.where(b, a, 1.5) | np.where(b, 1, 2)
np.where(b, 1, 2.5) | np.where(b, a, n) | np.where(b, True, 2) | np.where(b, u, -1) | np.where(b, f, np.float64(1))
np.where(b, q, n) | np.full_like(a, n) | np.full_like(f, n) | a + n | a + 100 | u + (-n) | a < n | a == n | n - u
np.maximum(a, n) | a * q | f * q | f * n | u - n | a * (n - 298) | k + k | k * 3 | k + 200 | s * a | s * f | z * f
s * n | k * q | s // 0 | z / 0 | k**2 | -k | ~k | k & 3 | k << 1 | k // 0 | s**-1 | np.add(n, 1) | np.add(2**62, n)
np.array([n, q]) | np.array([n, 1]) | np.stack([n, q]) | np.sqrt(n) | np.result_type(a, n) | np.add.reduce([n, q])
np.unique([n, n]) | np.median([n, q]) | np.int8(n - 200) | np.float32(q) | np.array(n) * f | np.bitwise_and(n, 7)
np.left_shift(n, 2) | i << 2 | i >> 1 | i & 1 | 5 ^ i | ~i | i.__or__(8) | u << 7 | a >> 1 | [n] * 2
"""


def _assign(x: Any, index: Any, value: Any) -> Any:
    x = x.copy()
    x[index] = value
    return x


def _add(x: Any, value: Any) -> Any:
    x = x.copy()
    x += value
    return x


UPDATES = """
_assign(x, 0, 1j) | _assign(x, 0, "1.5") | _assign(i, 0, "15") | _assign(i, 0, "1.5") | _assign(i, 0, 2.7)
_assign(a, 0, 300) | _assign(a, 0, n) | _assign(a, 0, n - 200) | _assign(b, 0, 7) | _assign(f, slice(None), q)
_assign(x, slice(None), 1j) | _assign(x, range(2), 7) | _assign(m, True, 0.0) | _assign(s, ..., 1.0)
_assign(z, ..., 1.0) | _assign(x, x > 1.7, n) | _add(i, 1.5) | _add(i, q) | _add(i, n) | _add(a, n) | _add(u, -1)
_add(f, q) | _add(b, 1) | _add(s, 1) | _add(z, 1) | _add(i, x) | _add(x[0], 1) | _add(x[..., 0], 1) | _add(x, i)
_add(f, x[:2]) | _add(np.asarray(s), 1) | _add(a, i[:2])
"""
EXPRESSIONS = [e.strip() for e in (SCALARS + UPDATES).replace("\n", " | ").split(" | ")]
SPACE = {
    "np": np,
    "math": math,
    "statistics": statistics,
    "numbers": numbers,
    "collections": collections,
    "_assign": _assign,
    "_add": _add,
}


@pytest.mark.parametrize("text", sorted({e for e in EXPRESSIONS if e}))
@pytest.mark.filterwarnings("ignore")
def test_an_expression_of_arrays_and_scalars_is_numpys(text: str) -> None:
    names = [name for name in ARRAYS if name in _words(text)]
    f = eval(f"lambda {', '.join(names)}: {text}", SPACE)
    traced = tg.trace(f)
    for scale in (1, 2):
        args = [type(x)(x * scale) if isinstance(x, float) else x for x in (ARRAYS[name] for name in names)]
        for _ in range(2):
            assert same(_outcome(f, args), _outcome(traced, args))


def _outcome(f: Callable[..., Any], args: Any) -> Any:
    try:
        return seen_exactly(f(*args))
    except Exception as error:
        return error_class(error)


def seen_exactly(x: Any) -> Any:
    """What can be seen of a value: type, dtype, shape and elements up to roundings."""
    if isinstance(x, np.ndarray | np.number):
        values = np.asarray(x).astype(complex if x.dtype.kind == "c" else float)
        return type(x).__name__, x.dtype.name, x.shape, [f"{v:.10g}" for v in values.ravel().tolist()]
    if isinstance(x, tuple | list):
        return type(x).__name__, [seen_exactly(y) for y in x]
    if isinstance(x, dict):
        return "dict", [(seen_exactly(k), seen_exactly(v)) for k, v in x.items()]
    return exactly(x) if not isinstance(x, type) else x.__name__


# -- programs ------------------------------------------------------------------------------------------------
@program
def test_a_cache_by_a_number(trace: Any) -> Any:
    cache = {}

    @trace
    def f(n: Any, x: Any) -> Any:
        if n not in cache:
            cache[n] = n * 2
        return x * cache[n]

    for n in (1, 2, 1, 3):
        yield f(n, np.ones(2)), dict(cache)


@program
def test_a_history_of_losses(trace: Any) -> Any:
    hist = []

    @trace
    def step(x: Any) -> Any:
        loss = (x**2).sum()
        hist.append(loss.item())
        hist.append(float(loss))
        hist.append(loss)
        return loss

    for k in range(3):
        yield step(np.full(2, k + 1.0)), list(hist)


@program
def test_keys_made_of_numbers(trace: Any) -> Any:
    params = {"w0": np.ones(2), "w1": np.full(2, 3.0)}

    @trace
    def f(i: Any, x: Any) -> Any:
        return x @ params[f"w{i}"]

    for i in (0, 1, 0):
        yield f(i, np.arange(2.0))
    yield attempt(f, 5, np.ones(2))


@program
def test_counters_and_dicts_by_value(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any) -> Any:
        c = collections.Counter()
        for v in x:
            c[v] += n
        d = {}
        for v in x:
            d.setdefault(v, []).append(v * n)
        return dict(c), d, sorted(c)

    yield f(np.array([1.0, 2.0, 1.0]), 3)
    yield f(np.array([1.0, 2.0, 2.0]), 3)


@program
def test_a_set_of_what_was_seen(trace: Any) -> Any:
    seen = set()

    @trace
    def f(x: Any) -> Any:
        seen.add(x[0])
        return x * len(seen)

    for v in (1.0, 2.0, 1.0):
        yield f(np.full(2, v)), set(seen)


@program
def test_scalars_are_replaced_and_arrays_updated(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        s = x[0]
        t = x[..., 0]
        s += 1
        t += 1
        u = x.sum()
        v = u
        u *= 2
        w = np.asarray(v)
        w2 = w
        w += 1
        return s, t, u, v, w2, x

    for _ in range(2):
        yield f(np.arange(3.0))


@program
def test_arguments_that_are_scalars_arrays_and_numbers(trace: Any) -> Any:
    @trace
    def f(s: Any, z: Any, q: Any) -> Any:
        s += 1
        z += 1
        q += 1
        return s, z, q

    z = np.array(2.0)
    for _ in range(3):
        yield f(np.float64(1.5), z, 2.5), z


@program
def test_numpys_casting_error_is_caught(trace: Any) -> Any:
    @trace
    def f(i: Any, v: Any) -> Any:
        j = i.copy()
        try:
            j += v
        except np._core._exceptions.UFuncTypeError as e:
            return "caught", type(e).__name__
        return j

    yield f(np.arange(3), 1.5), f(np.arange(3), 1)


@program
def test_division_by_zero_is_caught(trace: Any) -> Any:
    @trace
    def f(a: Any, b: Any) -> Any:
        try:
            return a / b
        except ZeroDivisionError:
            return math.inf

    for args in ((1, 2), (1, 0), (2.0, 0.0), (3, 4), (0, 0)):
        yield f(*args)


@program
def test_domain_errors_have_pythons_words(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            return math.sqrt(x), math.log(x)
        except ValueError as e:
            return str(e)

    for v in (4.0, -1.0, 0.0, 2, 0):
        yield f(v)


@program
def test_a_loop_over_parities(trace: Any) -> Any:
    @trace
    def f(n: Any) -> Any:
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return n, steps

    for n in (6, 7, 6, 27):
        yield f(n)


@program
def test_the_greatest_common_divisor(trace: Any) -> Any:
    @trace
    def f(a: Any, b: Any) -> Any:
        while b:
            a, b = b, a % b
        return a

    for a in ((12, 18), (2**70, 2**35 * 3), (17, 5), (12, 18)):
        yield f(*a)


@program
def test_fibonacci_numbers_of_any_size(trace: Any) -> Any:
    @trace
    def f(n: Any) -> Any:
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        return a

    for n in (5, 10, 100, 5):
        yield f(n)


@program
def test_a_generator_modulo_2_to_the_64(trace: Any) -> Any:
    @trace
    def f(seed: Any, x: Any) -> Any:
        out = []
        for _ in range(3):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            out.append(x * (seed >> 33) / 2**31)
        return out, seed

    for s in (1, 2, 1):
        yield f(s, np.ones(2))


@program
def test_a_generator_in_31_bits(trace: Any) -> Any:
    @trace
    def f(seed: Any, x: Any) -> Any:
        for _ in range(4):
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        return x * seed, seed

    for s in (1, 2, 1, 77):
        yield f(s, np.ones(2))


@program
def test_text_written_to_a_file_of_ones_own(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any) -> Any:
        out = io.StringIO()
        print("x", x, n, x[0], file=out)
        out.write(f"{n:>5}|{x.sum():.1f}")
        return out.getvalue()

    for n in (1, 2):
        yield f(np.full(2, n + 0.5), n)


@program
def test_match_statements(trace: Any) -> Any:
    @trace
    def f(n: Any) -> Any:
        match n:
            case 0:
                return "zero"
            case 1 | 2:
                return "few"
            case int(v) if v < 0:
                return "negative"
            case float():
                return "float"
            case _:
                return n

    for n in (0, 1, 2, -3, 2.5, 7):
        yield f(n)


@program
def test_enum_members_by_value(trace: Any) -> Any:
    Color = enum.Enum("Color", ["RED", "BLUE"])

    @trace
    def f(n: Any, x: Any) -> Any:
        return x * Color(n).value, Color(n).name

    for n in (1, 2, 1):
        yield f(n, np.ones(2))
    yield attempt(f, 3, np.ones(2))


@program
def test_a_cached_table(trace: Any) -> Any:
    @functools.lru_cache
    def table(n: Any) -> Any:
        return np.arange(n) * 1.0

    @trace
    def f(n: Any, x: Any) -> Any:
        return x * table(n).sum()

    for n in (3, 4, 3):
        yield f(n, np.ones(2))


@program
def test_fractions(trace: Any) -> Any:
    @trace
    def f(n: Any, x: Any) -> Any:
        return float(fractions.Fraction(n, 3)) * x

    for n in (1, 2):
        yield f(n, np.ones(2))


@pytest.mark.filterwarnings("ignore")  # decimals are computed by plain Python
@program
def test_decimals(trace: Any) -> Any:
    @trace
    def f(n: Any, x: Any) -> Any:
        return str(decimal.Decimal(n) / 3), x

    for n in (1, 2):
        yield f(n, np.ones(2))


@program
def test_single_dispatch(trace: Any) -> Any:
    @functools.singledispatch
    def g(v: Any) -> Any:
        return "other"

    @g.register(float)
    def _(v: Any) -> Any:
        return "float"

    @g.register(int)
    def _(v: Any) -> Any:
        return "int"

    @g.register(np.ndarray)
    def _(v: Any) -> Any:
        return "array"

    @trace
    def f(v: Any) -> Any:
        return g(v)

    for v in (1, 2.5, np.ones(2), np.float64(1)):
        yield f(v)


@program
def test_a_list_of_functions(trace: Any) -> Any:
    @trace
    def f(n: Any, x: Any) -> Any:
        return [np.sin, np.cos, np.exp][n](x)

    for n in (0, 1, 2, -1):
        yield f(n, np.ones(2))


@program
def test_a_table_of_types(trace: Any) -> Any:
    names = {int: "i", float: "f", bool: "b", np.float64: "d", np.ndarray: "a"}

    @trace
    def f(v: Any) -> Any:
        return names[type(v)]

    for v in (1, 2.5, True, np.float64(1), np.ones(2), np.array(1.0)):
        yield f(v)


@program
def test_instances_of_every_kind(trace: Any) -> Any:
    @trace
    def f(v: Any) -> Any:
        return [
            isinstance(v, t)
            for t in (
                int,
                float,
                bool,
                complex,
                numbers.Number,
                numbers.Real,
                numbers.Integral,
                np.ndarray,
                np.generic,
                np.floating,
                (int, float),
                list,
            )
        ]

    for v in (1, 2.5, True, np.float64(1), np.float32(1), np.int64(2), np.ones(2), np.array(1.0), np.bool_(True)):
        yield f(v)


@program
def test_results_are_scalars_or_arrays(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        return (
            x[0],
            x[..., 0],
            x.sum(),
            np.where(x[0] > 0, x[0], 0),
            x[0] > 0,
            x.argmax(),
            x[0].item(),
            [x.max(), {"a": x.min()}],
            np.asarray(x[0]),
        )

    yield f(np.arange(3.0))
    yield f(np.arange(3, dtype=np.float32))
    yield f(np.arange(3))


@program
def test_rounding(trace: Any) -> Any:
    @trace
    def f(v: Any) -> Any:
        return round(v), round(v, 1), round(v, 2), math.floor(v), math.ceil(v), int(v), math.trunc(v)

    for v in (2.5, -0.5, 2.675, 1.005, 3, 1e16):
        yield f(v)


@program
def test_attributes_asked_for(trace: Any) -> Any:
    @trace
    def f(v: Any) -> Any:
        return (
            hasattr(v, "shape"),
            hasattr(v, "is_integer"),
            getattr(v, "ndim", -1),
            hasattr(v, "bit_length"),
            getattr(v, "dtype", None),
        )

    for v in (1, 2.5, np.float64(1), np.ones(2)):
        yield f(v)


@program
def test_strings_made_of_numbers(trace: Any) -> Any:
    @trace
    def f(n: Any, x: Any) -> Any:
        text = "-" * n + str(n).zfill(4) + ",".join(map(str, range(n)))
        return text + f"{n:03d}|{x[0]:.2f}" + "{:>8.3f}".format(x.sum()), str(n).isdigit()  # noqa: UP032

    for n in (3, 5, 3):
        yield f(n, np.full(2, n / 3))


@pytest.mark.filterwarnings("ignore")
@program
def test_numpys_integers(trace: Any) -> Any:
    @trace
    def f(k: Any) -> Any:
        return k + 1, k * 2.5, k // 2, k % 7, -k, k << 1, k / 3, k**2, abs(k), k == 100, [k] * 2

    for k in (np.int8(100), np.int64(5), np.uint8(200), np.int32(-7)):
        yield attempt(f, k)


@program
def test_a_schedule_of_steps(trace: Any) -> Any:
    @trace
    def f(step: Any, lr: Any, x: Any) -> Any:
        return x - lr * 0.5 ** (step // 10) * x / math.sqrt(1 + step) * (1 + math.cos(math.pi * min(step, 50) / 50)) / 2

    for s in (0, 1, 10, 25, 60):
        yield f(s, 0.1, np.ones(2))


@program
def test_the_bias_correction_of_a_class(trace: Any) -> Any:
    class Adam:
        def __init__(self) -> None:
            self.t = 0
            self.m = np.zeros(2)
            self.v = np.zeros(2)

        @trace
        def step(self, g: Any) -> Any:
            self.t += 1
            self.m = 0.9 * self.m + 0.1 * g
            self.v = 0.999 * self.v + 0.001 * g**2
            return self.m / (1 - 0.9**self.t) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)

    a = Adam()
    for k in range(4):
        yield a.step(np.full(2, k + 1.0)), a.t


@program
def test_windows_by_numbers(trace: Any) -> Any:
    @trace
    def f(x: Any, k: Any, s: Any) -> Any:
        return [x[i * s : i * s + k].sum() for i in range((len(x) - k) // s + 1)]

    for k, s in ((2, 1), (3, 2), (2, 1)):
        yield f(np.arange(7.0), k, s)


@program
def test_booleans_are_numbers(trace: Any) -> Any:
    @trace
    def f(n: Any) -> Any:
        return (n > 3) + 0, (n > 3) is not None, not (n > 3), (n > 3) + 1

    for n in (1, 5):
        yield f(n)


@program
def test_bits_of_a_number(trace: Any) -> Any:
    @trace
    def f(n: Any, x: Any) -> Any:
        return [x * (n >> k & 1) for k in range(4)], bin(n), hex(n), n.bit_length(), divmod(n, 4)

    for n in (5, 9):
        yield f(n, np.ones(2))


@program
def test_built_in_reductions(trace: Any) -> Any:
    @trace
    def f(xs: Any, n: Any) -> Any:
        return (
            sum(xs),
            sum(xs, n),
            max(xs),
            sorted(xs),
            math.prod(xs),
            any(v > 2 for v in xs),
            [v for v in xs if v % 2],
            min(xs, key=abs),
        )

    yield f([3, -1, 2], 2)
    yield f([1.5, -0.5], 2.5)
    yield f([2**62, 2**62], 1)


@program
def test_powers_that_are_complex(trace: Any) -> Any:
    @trace
    def f(a: Any, b: Any) -> Any:
        return a**b, (-1) ** b

    for args in ((2.0, 0.5), (-8.0, 1 / 3), (4.0, -1)):
        yield attempt(f, *args)


@program
def test_bounds(trace: Any) -> Any:
    @trace
    def f(x: Any, lo: Any, hi: Any) -> Any:
        return np.clip(x, lo, hi), min(max(x.mean().item(), lo), hi)

    yield f(np.arange(4.0), 1, 2.5)
    yield f(np.arange(4.0), 0.5, 1)


@program
def test_defaults(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any = 2, eps: Any = 1e-3, flag: Any = True) -> Any:
        return x**n / eps if flag else x * (flag + n)

    yield f(np.ones(2))
    yield f(np.ones(2), 3)
    yield f(np.ones(2), n=-1.0)
    yield f(np.ones(2), flag=False)
    yield f(np.ones(2), flag=0)


@program
def test_counting_with_numbers(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any) -> Any:
        return (
            [i * v + n for i, v in enumerate(x, n)],
            [a * b for a, b in zip(x, range(n, n + 3))],
            list(reversed(range(n))),
        )

    for n in (1, 2):
        yield f(np.arange(3.0), n)


# -- compiled ------------------------------------------------------------------------------------------------
@program(modes=("traced", "disabled", "tensors"))
def test_compiled_checks(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any, q: Any) -> Any:
        return x * (n * n + 1) / (q**2 + 1), n**3, n // 3 - n % 3, math.sqrt(q), round(q * n)

    for n, q in ((3, 2.5), (100, 2.5), (-2, 2.0), (3, 1.0), (3, -1.5), (2**40, 3.0), (3, 2.5), (0, math.inf)):
        yield attempt(f, np.arange(3.0), n, q)


_OUTSIDE_OF_SQRT = "math domain error|expected a nonnegative input"  # since Python 3.14 the latter


def test_one_compiled_check_serves_all_implicit_guards() -> None:
    f = tg.trace(lambda a, b: (a / b + math.sqrt(a) + math.log(b), a**b))
    assert f(2.0, 3.0) == pytest.approx((2 / 3 + math.sqrt(2) + math.log(3), 8.0))
    explained = f.explain(2.0, 3.0)
    assert len(explained.value_guards) == 4
    assert len(explained.optimized.outputs) == 3  # two results, and whether all is as usual
    assert f(4.0, 2.0) == pytest.approx((4.0 + math.log(2), 16.0))
    with pytest.raises(ZeroDivisionError):
        f(2.0, 0.0)
    with pytest.raises(ValueError, match=_OUTSIDE_OF_SQRT):
        f(-2.0, 3.0)
    assert f(2.0, 3.0) == pytest.approx((2 / 3 + math.sqrt(2) + math.log(3), 8.0))
    assert f.cache_info().traces == 1


def test_arrays_and_numpys_scalars_leave_no_compiled_checks() -> None:
    f = tg.trace(lambda x, s: (x / s) ** 0.5 + np.log(x) * x[0] - 1 / x)
    assert not f.explain(np.arange(1.0, 4.0), np.float64(2.0)).value_guards
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(f(np.zeros(2), np.float64(0.0)), [np.nan, np.nan])


def test_small_integers_are_asked_once() -> None:
    f = tg.trace(lambda n, x: x * (n + 1) * (2 * n - 3) + n % 7 + (n << 3) + sum(n * k for k in range(5)))
    assert len(f.explain(3, np.ones(2)).value_guards) == 1


BLACK_SCHOLES = (100.0, 95.0, 0.5, 0.02, 0.3)


def black_scholes(s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
    d1 = (math.log(s / k) + (r + 0.5 * v**2) * t) / (v * math.sqrt(t))
    d2 = d1 - v * t**0.5

    def cdf(z: Any) -> Any:
        return 0.5 * (1 + math.erf(z / math.sqrt(2)))

    return s * cdf(d1) - k * math.exp(-r * t) * cdf(d2)


def difference(f: Callable[..., float], args: tuple[float, ...], i: int, h: float) -> float:
    """The derivative by the i-th argument, by central differences of two widths."""

    def central(h: float) -> float:
        up, down = (tuple(x + d * (j == i) for j, x in enumerate(args)) for d in (h, -h))
        return (f(*up) - f(*down)) / (2 * h)

    return (4 * central(h / 2) - central(h)) / 3


def test_derivatives_of_functions_of_python_numbers_to_second_order() -> None:
    for i in range(5):
        first = tg.grad(black_scholes, argnums=i)
        expected = difference(black_scholes, BLACK_SCHOLES, i, 1e-3)
        assert first(*BLACK_SCHOLES) == pytest.approx(expected, rel=1e-7)
        for j in range(5):
            result = tg.grad(first, argnums=j)(*BLACK_SCHOLES)
            assert result == pytest.approx(difference(first, BLACK_SCHOLES, j, 1e-3), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("f", "x", "derivative", "curve"),
    [
        (lambda x: x**3, 2.0, 12.0, 12.0),
        (lambda x: x**-2, 2.0, -0.25, 0.375),
        (lambda x: 2**x, 3.0, 8 * math.log(2), 8 * math.log(2) ** 2),
        (lambda x: x**x, 2.0, 4 * (1 + math.log(2)), 4 * ((1 + math.log(2)) ** 2 + 0.5)),
        (lambda x: x % 3 + x // 3 + 0 * round(x), 7.5, 1.0, 0.0),
        (lambda x: divmod(x * x, 4.0)[1], 3.0, 6.0, 2.0),
        (lambda x: abs(-x) / (1 / x), 3.0, 6.0, 2.0),
        (lambda x: math.hypot(x, 3.0), 4.0, 0.8, 9 / 125),
        (lambda x: math.pow(x, 2) + math.fabs(x) + math.log(x, 2), 2.0, 5 + 0.5 / math.log(2), 2 - 0.25 / math.log(2)),
        (lambda x: math.prod([x, x, 3]) + math.fmod(x, 1.5), 2.0, 13.0, 6.0),
        (lambda x: x.real * x.conjugate() + x.imag, 2.0, 4.0, 2.0),
    ],
)
def test_rules_of_python_numbers(f: Any, x: float, derivative: float, curve: float) -> None:
    assert tg.grad(f)(x) == pytest.approx(derivative, rel=1e-12)
    assert tg.grad(tg.grad(f))(x) == pytest.approx(curve, rel=1e-11, abs=1e-12)


def test_a_complex_power_that_is_differentiated_raises() -> None:
    with pytest.raises(tg.LostDerivativeError, match=r"pow takes .*test_meaning_numbers.py"):
        tg.grad(lambda x: abs(x ** (1 / 3)) * x)(-8.0)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "cbrt", "fabs", "deg2rad", "modf", "heaviside", "hypot"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_of_the_smallest_integers_functions_give_float16(name: str, dtype: str) -> None:
    function = getattr(np, name)
    x = np.array([0, 1, 1, 0], dtype)
    result = tg.trace(lambda x: function(*[x] * function.nin), tiered=False)(x)
    wanted = function(*[x] * function.nin)
    for got, want in zip(np.atleast_2d(result), np.atleast_2d(wanted)):
        assert got.dtype == want.dtype == np.float16
        np.testing.assert_allclose(got, want, rtol=2**-10)


@program
def test_a_number_that_changes_and_becomes_one_of_a_class_with_operators(trace: Any) -> Any:
    class Unit(float):
        def __mul__(self, other: Any) -> Any:
            return (float(self), other)

        __rmul__ = __mul__

    class Whole(int):
        def __mul__(self, other: Any) -> Any:
            return (int(self), other)

    scale, count = 0.5, 1
    f = trace(lambda x: (np.sin(x), 2.0 * scale, count * 3))
    for pair in ((0.5, 1), (0.7, 2), (0.9, 3), (Unit(0.3), 4), (0.4, Whole(5)), (Unit(0.2), Whole(6))):
        scale, count = pair
        yield f(np.ones(2))


@program
def test_numbers_of_a_class_with_operators_are_asked_as_python_asks_them(trace: Any) -> Any:
    class Unit(float):
        def __mul__(self, other: Any) -> Any:
            return ("times", float(self), other)

        def __radd__(self, other: Any) -> Any:
            return ("added", float(self), other)

        def __gt__(self, other: Any) -> Any:
            return ("greater", other)

        __rmul__ = __mul__

    class Whole(int):
        def __rmul__(self, other: Any) -> Any:
            return ("times", int(self), other)

    class Bare(float):
        pass

    units = [Unit(0.5), Whole(3), Bare(0.25)]

    def f(k: Any) -> Any:
        return [(k * u, u * k, k + u, k - u, k < u, k > u, k == u) for u in units]

    f = trace(f)
    for k in (2, 3, 0.5, 1.5, True, False):
        yield f(k)
