"""`tg.opaque`: functions that no trace can enter, and the derivatives that rules around them give.

Each function raises if it is given anything but arrays and numbers of NumPy's and Python's. Truth is the same in NumPy,
which is traced as it is.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import ctypes.util
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import LostDerivativeError, UnsupportedError

X = np.array([0.5, 1.0, 2.0])
T = np.array([1.0, -2.0, 0.5])

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def jit(compiled: bool) -> Any:
    return contextlib.nullcontext() if compiled else tg.disable_jit()


either = pytest.mark.parametrize("compiled", [True, False])


def plain(x: Any) -> Any:
    """An array or a number, as C would want it."""
    if type(x) not in (np.ndarray, np.float64, np.complex128, float, int, complex):
        raise TypeError(f"got a {type(x).__name__}")
    return x


def sine(x: Any) -> Any:
    calls.append("sine")
    return np.sin(plain(x)) * 1.0


def cosine(x: Any) -> Any:
    return np.cos(plain(x)) * 1.0


def by_vjp() -> Any:
    f, g = tg.custom_vjp(tg.opaque(sine)), tg.custom_vjp(tg.opaque(cosine))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * g(x),))
    g.defvjp(lambda x: (g(x), x), lambda x, ct: (-ct * f(x),))
    return f


def by_jvp() -> Any:
    f, g = tg.custom_jvp(tg.opaque(sine)), tg.custom_jvp(tg.opaque(cosine))
    f.defjvps(lambda t, ans, x: t * g(x))
    g.defjvp(lambda primals, tangents: (g(*primals), -tangents[0] * f(*primals)))
    return f


def by_both() -> Any:
    f = by_vjp()
    g = f.bwd.__closure__[0].cell_contents
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * g(*primals)))
    g.defjvp(lambda primals, tangents: (g(*primals), -tangents[0] * f(*primals)))
    return f


rules = pytest.mark.parametrize("make", [by_vjp, by_jvp, by_both])


def of(f: Any) -> Any:
    return lambda x: np.sum(f(x) * x**2) + np.sum(f(np.exp(f(x))))


def push(f: Any) -> Any:
    return lambda x: tg.jvp(f, (x,), (T,))[1]


def pull(f: Any) -> Any:
    return lambda x: np.sum(tg.grad(f)(x) * T)


@pytest.mark.parametrize("compiled", [True, False])
@rules
def test_rules_around_opaque_functions_give_derivatives_of_any_order_in_every_mode(make: Any, compiled: bool) -> None:
    f = make()
    with jit(compiled):
        np.testing.assert_allclose(tg.value_and_grad(of(f))(X)[1], tg.grad(of(np.sin))(X), rtol=1e-13)
        for outer in (push, pull):
            np.testing.assert_allclose(outer(of(f))(X), outer(of(np.sin))(X), rtol=1e-13)
            for inner in (push, pull):
                got, want = outer(inner(of(f)))(X), outer(inner(of(np.sin)))(X)
                np.testing.assert_allclose(got, want, rtol=1e-12)
        np.testing.assert_allclose(tg.hessian(of(f))(X), tg.hessian(of(np.sin))(X), rtol=1e-12)
        third, want = tg.grad(tg.grad(tg.grad(f)))(0.7), -np.cos(0.7)
        assert third == pytest.approx(want, rel=1e-13)


@rules
def test_rules_around_opaque_functions_hold_on_tensors(make: Any) -> None:
    f = make()
    x = tg.tensor(X, requires_grad=True)
    (derivative,) = tg.autograd.grad(f(x).sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(derivative.sum(), x)
    np.testing.assert_allclose(derivative.detach().numpy(), np.cos(X), rtol=1e-14)
    np.testing.assert_allclose(second.numpy(), -np.sin(X), rtol=1e-14)
    assert f(tg.tensor(X)).dtype == tg.float64


@rules
def test_rules_around_opaque_functions_hold_under_vmap(make: Any) -> None:
    f, batch = make(), np.stack([X, 2 * X])
    for transform in (tg.grad, push, lambda g: tg.grad(lambda x: np.sum(tg.grad(g)(x) ** 2))):
        np.testing.assert_allclose(tg.vmap(transform(of(f)))(batch), tg.vmap(transform(of(np.sin)))(batch), rtol=1e-12)


@pytest.mark.parametrize("iterations", [3, 60])
def test_an_opaque_function_runs_at_each_iteration_and_its_rule_too(iterations: int) -> None:
    f = by_vjp()

    def loop(g: Callable[..., Any]) -> Any:
        def run(x: Any) -> Any:
            for i in range(iterations):
                x = g(x) + 0.1 * i if i % 2 else g(2 * x)
            return np.sum(x)

        return run

    np.testing.assert_allclose(tg.grad(loop(f))(X), tg.grad(loop(np.sin))(X), rtol=1e-10)


# -- how often ---------------------------------------------------------------------------------------------------------
def test_it_runs_once_for_value_and_derivative_in_each_call_and_while_that_is_traced() -> None:
    f = tg.custom_vjp(tg.opaque(sine))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * np.cos(x),))
    both = tg.value_and_grad(lambda x: np.sum(f(x)) ** 2)
    for k in (1, 2, 3):
        value, derivative = both(k * X)
        assert value == np.sum(np.sin(k * X)) ** 2
        np.testing.assert_allclose(derivative, 2 * np.sum(np.sin(k * X)) * np.cos(k * X))
        assert len(calls) == k


def test_it_runs_at_each_call_whatever_it_is_given() -> None:
    held = [1.0]
    asked = tg.opaque(lambda *args: held[0])
    for f in (lambda x: x * asked(), lambda x: x * asked("name"), lambda x: x * asked(2.0), lambda x: x * asked(x)):
        traced = tg.trace(f)
        for held[0] in (1.0, 2.0, 3.0):
            assert traced(4.0) == 4.0 * held[0]


def test_an_array_of_the_trace_that_is_updated_later_is_given_as_it_was() -> None:
    add = tg.opaque(lambda x, y: plain(x) + plain(y))

    def f(x: Any) -> Any:
        z = np.zeros(3)
        first = add(x, z)
        z[0] = 100.0
        return first, add(x, z)

    traced = tg.trace(f)
    for k in (1.0, 2.0):
        for got, want in zip(traced(k * X), f(k * X)):
            np.testing.assert_array_equal(got, want)


# -- what it is given, and gives ---------------------------------------------------------------------------------------
@either
def test_arguments_and_results_are_pytrees_with_complex_numbers_none_and_tuples_of_any_length(compiled: bool) -> None:
    def many(d: Any, *, k: float, name: str) -> Any:
        a, b = plain(d["x"]), plain(d["y"][0])
        return {"one": (a * k,), "none": None, "no": (), "ints": np.arange(3), "z": a + 1j * b, name: b, "k": 2 * k}

    f = tg.opaque(many)
    traced = tg.trace(lambda x: f({"x": x, "y": [x + 1]}, k=3.0, name="q"))
    with jit(compiled):
        for k in (1.0, 2.0):
            got, want = traced(k * X), many({"x": k * X, "y": [k * X + 1]}, k=3.0, name="q")
            assert list(got) == list(want)
            for name, x in want.items():
                np.testing.assert_equal(got[name], x)


@either
def test_complex_arguments_have_derivatives_by_the_rule(compiled: bool) -> None:
    f = tg.custom_vjp(tg.opaque(lambda z: np.array([plain(v) ** 2 for v in z])))
    f.defvjp(lambda z: (f(z), z), lambda z, ct: (np.conj(2 * z) * ct,))
    z = np.array([1.0 + 2.0j, 3.0])
    with jit(compiled):
        got = tg.grad(lambda z: np.sum(np.abs(f(z)) ** 2))(z)
        np.testing.assert_allclose(got, tg.grad(lambda z: np.sum(np.abs(z**2) ** 2))(z))


@pytest.mark.skipif(not ctypes.util.find_library("m"), reason="no library of C's")
@either
def test_a_function_of_ctypes_is_called(compiled: bool) -> None:
    cbrt = ctypes.CDLL(ctypes.util.find_library("m")).cbrt
    cbrt.restype, cbrt.argtypes = ctypes.c_double, [ctypes.c_double]
    f = tg.custom_jvp(tg.opaque(cbrt))
    f.defjvps(lambda t, y, x: t / (3 * y**2))
    with jit(compiled):
        for x in (8.0, 27.0):
            assert tg.grad(tg.grad(f))(x) == pytest.approx(-2 / 9 * x ** (-5 / 3))


@pytest.mark.parametrize("shown", [False, True])
def test_an_update_of_an_argument_is_an_error(shown: bool) -> None:
    def fill(x: Any, out: Any) -> Any:
        out[:] = x
        return out if shown else 0.0

    f = tg.opaque(fill)

    def run(x: Any) -> Any:
        out = np.zeros(3)
        f(x, out)
        return out

    with pytest.raises(UnsupportedError, match="fill is opaque to traces, so it cannot update its inputs"):
        tg.trace(run)(X)


def test_results_of_another_shape_or_structure_than_when_it_was_traced_are_as_in_python() -> None:
    args = [np.zeros(2)]
    g = tg.opaque(lambda x: args[0])
    f = tg.trace(lambda x: g(x))
    for args[0] in (np.zeros(2), np.ones(3), (np.zeros(2),), 4.0, np.ones(2)):
        np.testing.assert_equal(f(2.0), args[0])


# -- without a rule ----------------------------------------------------------------------------------------------------
@either
def test_a_derivative_without_a_rule_is_an_error_that_says_what_to_write(compiled: bool) -> None:
    f = tg.opaque(sine)
    text = r"sine is opaque, so its derivative is not known: give it a rule, rule = tg.custom_vjp\(sine\)"
    with jit(compiled):
        for call in (
            lambda: tg.grad(lambda x: np.sum(f(x)))(X),
            lambda: push(f)(X),
            lambda: tg.grad(lambda x: np.sum(f(x) * x))(X),
            lambda: tg.vmap(tg.grad(lambda x: f(x) * x))(X),
            lambda: f(tg.tensor(X, requires_grad=True)).sum().backward(),
        ):
            with pytest.raises(LostDerivativeError, match=text):
                call()
        got = tg.grad(lambda x: np.sum(x**2 * tg.stop_gradient(f(x)) + f(tg.stop_gradient(x))))(X)
        np.testing.assert_allclose(got, 2 * X * np.sin(X))


def test_only_functions_and_names_of_packages_are_opaque() -> None:
    with pytest.raises(TypeError, match="opaque takes a function or the name of a package, got a int"):
        tg.opaque(3)
    with tg.settings.override(opaque_packages=frozenset()):
        assert tg.opaque("a.package") is None
        assert "a.package" in tg.settings.opaque_packages


# -- batches -----------------------------------------------------------------------------------------------------------
def scaled_sum(a: Any, b: Any) -> Any:
    return np.sum(plain(a)) * plain(b)


def test_a_rule_for_batches_is_called_once() -> None:
    f = tg.custom_vjp(tg.opaque(scaled_sum))
    f.defvjp(lambda a, b: (f(a, b), (a, b)), lambda kept, ct: (ct * kept[1] * np.ones(2), ct * np.sum(kept[0])))
    seen: list[Any] = []

    @f.defvmap
    def _(size: int, batched: Any, a: Any, b: Any) -> Any:
        seen.append((size, batched, np.shape(a), np.shape(b)))
        return np.sum(a, axis=-1) * np.broadcast_to(b, size)

    a, b = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(tg.vmap(f, in_axes=(0, None))(a, 2.0), 2 * a.sum(1))
    assert seen == [(3, (True, False), (3, 2), ())]
    np.testing.assert_array_equal(tg.vmap(f)(a, b), a.sum(1) * b)
    np.testing.assert_array_equal(tg.vmap(f, in_axes=(1, 0))(a.T, b), a.sum(1) * b)
    np.testing.assert_array_equal(tg.vmap(f, in_axes=(None, 0))(a[1], b), a[1].sum() * b)
    np.testing.assert_array_equal(tg.vmap(tg.grad(f, argnums=1), in_axes=(0, 0))(a, b), a.sum(1))
    twice = tg.vmap(tg.vmap(f, in_axes=(0, None)), in_axes=(None, 0))(a, b)
    np.testing.assert_array_equal(twice, b[:, None] * a.sum(1))
    assert {x[0] for x in seen} == {3}


def _raises(*args: Any) -> Any:
    raise OSError("no such host")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda size, batched, a, b: np.zeros(size + 1), r"raised ShapeError: it returned f64\[4\], not f64\[3\]"),
        (lambda size, batched, a, b: (np.zeros(size),), r"raised ShapeError: it returned \(\*,\), not \*"),
        (_raises, "raised OSError: no such host"),
    ],
)
def test_a_rule_for_batches_that_fails_is_told_and_each_example_is_a_call(rule: Any, text: str) -> None:
    f = tg.opaque(scaled_sum)
    f.defvmap(rule)
    with pytest.warns(tg.PerformanceWarning, match=text):
        np.testing.assert_array_equal(tg.vmap(f)(np.ones((3, 2)), X), 2 * X)


def test_a_rule_for_batches_is_of_an_opaque_function() -> None:
    with pytest.raises(TypeError, match="a rule for batches is one of a function that is opaque"):
        tg.custom_vjp(lambda x: x).defvmap(lambda *args: None)


# -- where it is made, and where it goes -------------------------------------------------------------------------------
def test_it_may_be_made_in_traced_code() -> None:
    def f(x: Any, k: float) -> Any:
        cube = tg.custom_vjp(tg.opaque(lambda x: plain(x) ** 3))
        cube.defvjp(lambda x: (cube(x), x), lambda x, ct: (ct * k * x**2,))
        return np.sum(cube(x))

    for k in (3.0, 5.0):
        np.testing.assert_allclose(tg.grad(f)(X, k), k * X**2)


@tg.opaque
def module_level(x: Any) -> Any:
    return plain(x) * 2.0


def test_it_pickles_and_copies() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert copy.deepcopy(module_level) is module_level
    result = tg.opaque(sine)
    result.defvmap(scaled_sum)
    again = pickle.loads(pickle.dumps(result))
    assert (again.fun, again.batch, repr(again)) == (sine, scaled_sum, "<opaque sine>")


def test_a_mask_and_a_part_that_grows_are_given_as_they_are() -> None:
    f = by_vjp()
    grad = tg.grad(lambda x, mask: np.sum(f(x[mask])))
    for mask in ([True, False, True], [False] * 3, [True] * 3):
        np.testing.assert_allclose(grad(X, np.array(mask)), np.where(mask, np.cos(X), 0.0))


# -- what plain Python would do ---------------------------------------------------------------------------------------
def test_an_exception_that_is_caught_is_asked_for_again() -> None:
    @tg.opaque
    def root(x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return np.sqrt(plain(x))

    def f(x: Any) -> Any:
        try:
            return np.sum(root(x))
        except ValueError:
            return -1.0

    for first in (4.0, -4.0):
        traced = tg.trace(f)
        with pytest.warns(tg.PerformanceWarning, match="root raises ValueError"):
            results = [float(traced(np.array([x]))) for x in (first, -first, first, 9.0, -9.0)]
        assert results == [float(f(np.array([x]))) for x in (first, -first, first, 9.0, -9.0)]


@pytest.mark.parametrize("number", [3, 3.0, True, 1j, np.float64(3), np.float32(3)])
def test_numbers_of_python_stay_what_they_are(number: Any) -> None:
    f = tg.opaque(lambda x: number)
    for traced in (tg.trace(f), tg.trace(lambda x: (x, f(x))[1])):
        assert type(traced(X)) is type(traced(X)) is type(number)
    single = X.astype(np.float32)
    assert tg.trace(lambda x: x * f(x))(single).dtype == (single * number).dtype
    rule = tg.custom_vjp(lambda x: x)
    rule.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    assert type(tg.trace(rule)(number)) is type(number)


@either
def test_rules_that_are_given_anew_hold_from_then_on(compiled: bool) -> None:
    f = tg.custom_vjp(tg.opaque(sine))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct,))
    gradient = tg.grad(lambda x: np.sum(f(x)))
    with jit(compiled):
        for factor in (1.0, 2.0):
            f.defvjp(lambda x: (f(x), x), lambda x, ct, factor=factor: (ct * factor,))
            np.testing.assert_allclose(gradient(X), np.full(3, factor))
    g = tg.custom_jvp(tg.opaque(sine))
    for factor in (1.0, 2.0):
        g.defjvps(lambda t, y, x, factor=factor: t * factor)
        np.testing.assert_allclose(tg.jvp(g, (X,), (T,))[1], T * factor)


@either
def test_methods_are_bound_as_python_binds_them(compiled: bool) -> None:
    class Model:
        def __init__(self) -> None:
            self.rate = 2.0

        @tg.opaque
        def scaled(self, x: Any) -> Any:
            return plain(x) * plain(self.rate)

        @tg.custom_vjp
        @tg.opaque
        def ruled(self, x: Any) -> Any:
            return plain(x) * plain(self.rate)

        ruled.defvjp(lambda self, x: (self.ruled(x), x), lambda x, ct: (None, ct * 7.0))

        @staticmethod
        @tg.opaque
        def free(x: Any) -> Any:
            return plain(x) + 1

        @classmethod
        @tg.opaque
        def of_class(cls, x: Any) -> Any:
            return plain(x) + len(cls.__name__)

        cosine = tg.opaque(math.cos)  # in C: no method

    model = Model()
    f = tg.trace(lambda x: model.scaled(x) + model.free(x) + Model.free(x) + model.of_class(x) + model.cosine(0.0))
    gradient = tg.grad(lambda x: np.sum(model.ruled(x) + Model.ruled(model, x)))
    with jit(compiled):
        for rate in (2.0, 3.0):
            model.rate = rate
            np.testing.assert_allclose(f(X), rate * X + 2 * (X + 1) + X + 5 + 1.0)
            np.testing.assert_allclose(gradient(X), np.full(3, 14.0))


def test_a_method_sees_what_was_written_before() -> None:
    class Model:
        rate = 1.0

        @tg.opaque
        def scaled(self, x: Any) -> Any:
            return plain(x) * plain(self.rate)

    model = Model()

    @tg.trace
    def f(x: Any) -> Any:
        model.rate = model.rate + 1
        return model.scaled(x)

    with pytest.warns(tg.PerformanceWarning, match="after something outside was changed"):
        results = [f(X) for _ in range(3)]
    np.testing.assert_allclose(results, [X * 2, X * 3, X * 4])


def test_arrays_of_a_subclass_are_refused_by_name() -> None:
    f = tg.trace(tg.opaque(lambda x: np.ma.masked_array(x, mask=x > 1)))
    with pytest.raises(UnsupportedError, match="MaskedArray, of a subclass of ndarray"):
        f(X)
