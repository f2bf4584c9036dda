"""Every public function of SciPy's with a traced argument: SciPy's value, or an error that names it."""

from __future__ import annotations

import importlib
import inspect
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.signal

import tracegrad as tg
from tracegrad import tree

V = np.array([0.31, 1.23, 0.42, 0.94, 0.15, 0.76, 2.07, 1.18, 0.89])
M = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.8]])
POINTS = np.array([0.4, 0.5])


def cubic(x: Any, *_: Any) -> Any:
    return (x - 0.5) ** 3 if np.ndim(x) == 0 else np.sum((x - 0.4) ** 2)


# Arguments for functions of n: the first ones that SciPy itself takes are used.
GIVEN: tuple[Callable[[int], list[Any]], ...] = (
    lambda n: [V] * n,
    lambda n: [M] * n,
    lambda n: [V] + [3] * (n - 1),
    lambda n: [M] + [1] * (n - 1),
    lambda n: [V[:3]] + [M] * (n - 1),
    lambda n: [M] + [V[:3]] * (n - 1),
    lambda n: [3] * (n - 1) + [V],
    lambda n: [np.sort(V), V] + [POINTS] * (n - 2),
    lambda n: [np.sort(V), V] + [3] * (n - 2),
    lambda n: [3] + [V] * (n - 1),
    lambda n: [0.5] * n,
    lambda n: [cubic, V[:3]] + [1] * (n - 2),
    lambda n: [cubic, 0.1, 1.2] + [1] * (n - 3),
)

# It draws random numbers; it gives a generator; it gives complex numbers; the signs of its vectors are arbitrary; its
# coefficients of polynomials of degree 8 are what is left of far larger numbers, in SciPy too (a test below has fewer).
OTHERS = {"multiscale_graphcorr", "generate_knots", "lambertw", "eigh", "eig_banded", "lagrange"}
PACKAGES = (
    "special",
    "linalg",
    "stats",
    "signal",
    "interpolate",
    "integrate",
    "optimize",
    "ndimage",
    "spatial.distance",
)


def functions(package: str) -> Iterator[tuple[str, Any, list[Any]]]:
    """The functions of a package, their names, and arguments that they take."""
    home = importlib.import_module(f"scipy.{package}")
    for name in sorted(home.__all__):
        f = getattr(home, name)
        if not callable(f) or isinstance(f, type) or name in OTHERS | {"test"}:
            continue
        args = arguments(f)
        if args is not None:
            yield f"scipy.{package}.{name}", f, args


def arguments(f: Any) -> list[Any] | None:
    try:
        needed = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty and p.kind in (0, 1)]
        count = len(needed) or 1
    except ValueError:
        count = getattr(f, "nin", 1)
    for n in (count, count + 1):
        for make in GIVEN:
            args = make(n)
            try:
                if len(args) == n:
                    f(*args)
                    return args
            except Exception:  # SciPy's own, of any kind
                continue
    return None


def of_one(f: Any, given: list[Any], i: int, name: str) -> Any:
    """`f` as a function of its argument `i`, and of code of its own."""

    def call(x: Any) -> Any:
        return f(*given[:i], x, *given[i + 1 :])

    code = call.__code__.replace(co_name=f"{name} {i}")
    return types.FunctionType(code, call.__globals__, name, None, call.__closure__)


def verdict(f: Any, x: Any, name: str) -> str:
    """What is wrong; "" for nothing."""
    try:
        got = tg.trace(f)(x)
    except Exception as error:
        return "" if name.rpartition(".")[2] in str(error).partition(" (/")[0] else f"without its name: {error}"
    result, want = tree.flatten(got)[0], tree.flatten(f(x))[0]
    if not all(isinstance(v, np.ndarray | float | int | np.generic) for v in [*result, *want]):
        return ""  # an object
    if len(result) != len(want):
        return ""  # a result whose fields are known in part
    same = all(np.allclose(p, q, equal_nan=True, rtol=1e-9, atol=1e-12) for p, q in zip(result, want))
    return "" if same else f"{result} instead of {want}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", PACKAGES)
def test_each_function_has_scipys_value_or_is_refused_by_name(package: str) -> None:
    wrong = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        for name, f, args in functions(package):
            for i, x in enumerate(args):
                if isinstance(x, np.ndarray | float):
                    wrong[f"{name} {i}"] = verdict(of_one(f, args, i, name), x, name)
    assert {k: v for k, v in wrong.items() if v} == {}
    assert len(wrong) > 10


@pytest.mark.filterwarnings("ignore:.lagrange. is deprecated:DeprecationWarning")  # since SciPy 1.18
def test_lagrange_polynomials_are_scipys() -> None:
    points, values = np.array([0.0, 1.0, 2.0, 4.0]), np.array([1.0, -1.0, 0.5, 3.0])
    at = tg.trace(lambda y: scipy.interpolate.lagrange(points, y)(2.5))
    np.testing.assert_allclose(at(values), scipy.interpolate.lagrange(points, values)(2.5), rtol=1e-13)
    basis = [scipy.interpolate.lagrange(points, e)(2.5) for e in np.eye(4)]
    np.testing.assert_allclose(tg.grad(at)(values), basis, rtol=1e-13)


def test_a_c_function_without_a_shadow_is_refused_by_name() -> None:
    row = np.ones(3)
    smoothed = tg.trace(lambda x: scipy.signal.sepfir2d(x, row, row))
    with pytest.raises(tg.UnsupportedError, match=r"scipy\.signal\.sepfir2d"):
        smoothed(np.ones((8, 8)))
