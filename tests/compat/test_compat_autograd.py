"""HIPS autograd's names: the derivatives are those of formulas and of differences, by autograd's conventions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.signal
import scipy.special
import scipy.stats
from paths import ROOT

import tracegrad as tg
import tracegrad.compat.autograd.numpy as anp
import tracegrad.compat.autograd.scipy as asp
from tracegrad.compat import autograd as ag
from tracegrad.compat.autograd.extend import Box, defjvp, defvjp, defvjp_argnum, primitive, vspace
from tracegrad.compat.autograd.misc.fixed_points import fixed_point
from tracegrad.compat.autograd.misc.flatten import flatten, flatten_func
from tracegrad.compat.autograd.misc.optimizers import adam, rmsprop, sgd
from tracegrad.compat.autograd.numpy.numpy_boxes import ArrayBox
from tracegrad.compat.autograd.test_util import check_grads
from tracegrad.compat.autograd.tracer import getval, isbox

X = np.array([0.5, 1.0, 2.0])


def run(program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the package by its other name -----------------------------------------------------------------------------------
def test_after_install_code_of_others_imports_this_package() -> None:
    program = """
import tracegrad.compat.autograd
tracegrad.compat.autograd.install()
import autograd.numpy as np, autograd.scipy.stats.norm as norm, autograd.numpy.random as npr
from autograd import grad
from autograd.scipy.special import *
from autograd.numpy import *
from autograd.scipy.stats import t
from autograd.misc import flatten
from autograd.extend import primitive
import autograd, numpy, scipy.special
assert autograd is tracegrad.compat.autograd and sin is numpy.sin and gammaln is scipy.special.gammaln
print(grad(lambda x: np.sum(norm.logpdf(x) + gammaln(x) + t.logpdf(x, 3.0)))(np.ones(1)))
"""
    derivative = -1.0 + scipy.special.digamma(1.0) - 4 / 4
    assert float(run(program).strip(" []\n")) == pytest.approx(derivative)


def test_install_is_refused_where_autograd_has_been_imported() -> None:
    program = """
import sys, types
sys.modules["autograd"] = types.ModuleType("autograd")
import tracegrad.compat.autograd
try:
    tracegrad.compat.autograd.install()
except RuntimeError as error:
    print(error)
"""
    assert "autograd is imported already" in run(program)


def test_numpy_and_scipy_are_their_own() -> None:
    assert anp.sin is np.sin
    assert anp.linalg.solve is np.linalg.solve
    assert anp.fft.fft is np.fft.fft
    assert anp.random.seed is np.random.seed
    assert asp.special.gammaln is scipy.special.gammaln
    assert {name for name in np.__all__ if not name.startswith("_")} <= set(dir(anp))


def test_what_joins_arrays_takes_generators() -> None:
    def rows(x: Any) -> Any:
        return (x * k for k in (1.0, 2.0))

    for name in ("stack", "concatenate", "vstack", "hstack", "column_stack"):
        join = getattr(anp, name)
        for _ in range(2):
            np.testing.assert_allclose(ag.grad(lambda x, join: anp.sum(join(rows(x)) ** 2))(X, join), 10 * X)
        np.testing.assert_array_equal(join(rows(X)), getattr(np, name)(list(rows(X))))


# -- transforms ------------------------------------------------------------------------------------------------------
class Model:
    """An object as an argument, as autograd's users have them."""

    def __init__(self, scale: float):
        self.scale = scale


def scaled(x: Any, model: Model, power: int = 2, how: str = "sum") -> Any:
    y = model.scale * x**power
    return anp.sum(y) if how == "sum" else anp.prod(y)


def test_other_arguments_are_any_objects() -> None:
    for scale in (1.0, 3.0):
        model = Model(scale)
        np.testing.assert_allclose(ag.grad(scaled)(X, model), 2 * scale * X)
        np.testing.assert_allclose(ag.grad(scaled)(X, model, power=3), 3 * scale * X**2)
        model.scale = 5.0
        np.testing.assert_allclose(ag.grad(scaled)(X, model, how="prod"), 2 * 125 * np.prod(X) ** 2 / X)


def test_the_output_of_grad_may_have_any_shape_with_one_element() -> None:
    value, gradient = ag.value_and_grad(lambda x: anp.sum(x**2).reshape(1, 1))(X)
    assert value.shape == (1, 1)
    np.testing.assert_allclose(gradient, 2 * X)
    for out in (lambda x: x, lambda x: (x[0], x[1]), lambda x: anp.sum(x) * 1j):
        with pytest.raises(TypeError, match="only applies to real scalar-output functions"):
            ag.grad(out)(X)


def test_argnum_is_one_several_or_counted_from_the_end() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y**2 * z**3

    assert ag.grad(f, 2)(2.0, 3.0, 1.0) == ag.grad(f, argnum=-1)(2.0, 3.0, 1.0) == pytest.approx(54.0)
    result = ag.grad(f, (0, 2))(2.0, 3.0, 1.0)
    assert type(result) is tuple
    np.testing.assert_allclose(result, (9.0, 54.0))
    assert ag.grad_named(f, "y")(2.0, 3.0, 1.0) == pytest.approx(12.0)
    np.testing.assert_allclose(list(ag.multigrad_dict(f)(2.0, z=1.0, y=3.0).values()), [9.0, 12.0, 54.0])


def test_integer_arrays_are_taken_as_floating_and_integers_are_refused() -> None:
    np.testing.assert_array_equal(ag.grad(lambda x: anp.sum(x**2))(np.arange(3)), [0.0, 2.0, 4.0])
    with pytest.raises(TypeError):
        ag.grad(lambda x: x**2)(3)


def test_containers_are_differentiated_as_they_are() -> None:
    result = ag.grad(lambda p: anp.sum(p["w"][0] * p["w"][1]) + p["b"])({"w": (X, 2 * X), "b": 1.0})
    np.testing.assert_allclose(result["w"], [2 * X, X])
    assert result["b"] == 1.0


def test_complex_gradients_are_the_conjugates_of_tracegrads() -> None:
    z = np.array([1.0 + 2.0j, 3.0 - 1.0j])
    np.testing.assert_allclose(ag.grad(lambda z: anp.sum(anp.abs(z) ** 2))(z), 2 * np.conj(z))
    np.testing.assert_allclose(ag.holomorphic_grad(lambda z: anp.sum(z**3))(z), 3 * z**2)
    vjp, _ = ag.make_vjp(lambda z: z**2)(z)
    np.testing.assert_allclose(vjp(np.ones(2) * (1 + 1j)), 2 * z * (1 + 1j))
    np.testing.assert_allclose(ag.make_jvp(lambda z: z**2)(z)(np.ones(2) * 1j)[1], 2j * z)


def test_jacobians_hessians_and_products_with_them() -> None:
    def f(x: Any) -> Any:
        return anp.array([x[0] * x[1], anp.sin(x[2]), x[0] ** 3])

    exact = np.array([[1.0, 0.5, 0.0], [0.0, 0.0, np.cos(2.0)], [0.75, 0.0, 0.0]])
    np.testing.assert_allclose(ag.jacobian(f)(X), exact)
    np.testing.assert_allclose(ag.tensor_jacobian_product(f)(X, X), X @ exact)
    np.testing.assert_allclose(ag.make_jvp_reversemode(f)(X)(X), exact @ X)
    np.testing.assert_allclose(ag.make_ggnvp(f)(X)(X), exact.T @ exact @ X)
    second = np.zeros((3, 3))
    second[0, 1] = second[1, 0] = 1.0
    second[0, 0], second[2, 2] = 6 * 0.5, -np.sin(2.0)

    def total(x: Any) -> Any:
        return anp.sum(f(x))

    np.testing.assert_allclose(ag.hessian(total)(X), second, atol=1e-15)
    np.testing.assert_allclose(ag.hessian_vector_product(total)(X, X), second @ X)
    hvp, gradient = ag.make_hvp(total)(X)
    np.testing.assert_allclose(hvp(X), second @ X)
    np.testing.assert_allclose(gradient, exact.sum(axis=0))
    np.testing.assert_allclose(ag.elementwise_grad(f)(X), exact.sum(axis=0))
    np.testing.assert_allclose(ag.deriv(np.sin)(X), np.cos(X))


def test_a_gradient_is_traced_once_whatever_the_other_arguments_are(capsys: pytest.CaptureFixture[str]) -> None:
    def loss(x: Any, k: Any, iteration: Any, *, scale: Any) -> Any:
        print("traced")  # noqa: T201 once for each trace
        return anp.sum(k * x) * iteration * scale

    for iteration in range(5):
        weights = np.full(3, 0.5 + iteration)
        result = ag.grad(lambda x, k, iteration, scale: loss(x, k, iteration, scale=scale))(
            X, weights, iteration, scale=2.0 * iteration
        )
        np.testing.assert_allclose(result, weights * iteration * 2.0 * iteration)
    # What is printed is printed once for each trace: for the first call, and with numbers whose kind is known.
    assert capsys.readouterr().out.count("traced") <= 2


def test_lists_among_the_other_arguments_are_those_of_the_caller() -> None:
    def noting(x: Any, notes: Any, k: int) -> Any:
        notes.append(k)
        return anp.sum(x) * k

    notes: list[int] = []
    for k in (2, 3, 4):
        np.testing.assert_array_equal(ag.grad(noting)(X, notes, k), [k] * 3)
    assert notes == [2, 3, 4]


def test_checkpoints_and_functions_recorded_once_have_the_same_derivatives() -> None:
    f = ag.checkpoint(lambda x, y=1.0: anp.sum(anp.sin(x) * y))
    np.testing.assert_allclose(ag.grad(f)(X, y=2.0), 2 * np.cos(X))
    np.testing.assert_allclose(ag.grad(ag.misc.const_graph(lambda a, x: anp.sum(a * x), 3.0))(X), [3.0] * 3)


# -- rules of the user's ---------------------------------------------------------------------------------------------
def rule_for_logsumexp(ans: Any, x: Any) -> Any:
    return lambda g: g * anp.exp(x - ans)


@primitive
def logsumexp(x: Any) -> Any:
    """In C, as far as a trace knows: it reads the numbers."""
    assert type(x) is np.ndarray
    return np.float64(sum(map(float, np.exp(x)))) * 0.0 + np.log(np.exp(x).sum())


defvjp(logsumexp, rule_for_logsumexp)
defjvp(logsumexp, lambda g, ans, x: anp.sum(g * anp.exp(x - ans)))


@pytest.mark.parametrize("jit", [True, False])
def test_a_primitive_has_the_derivatives_of_its_rule_of_any_order(jit: bool) -> None:
    p = scipy.special.softmax(X)
    hessian = np.diag(p) - np.outer(p, p)

    def check() -> None:
        for _ in range(2):
            np.testing.assert_allclose(ag.grad(logsumexp)(X), p)
            np.testing.assert_allclose(ag.hessian(logsumexp)(X), hessian)
            np.testing.assert_allclose(ag.make_jvp(logsumexp)(X)(X)[1], p @ X)
            np.testing.assert_allclose(ag.make_jvp(ag.grad(logsumexp))(X)(X)[1], hessian @ X)
            np.testing.assert_allclose(tg.grad(lambda x: logsumexp(2.0 * x))(X), 2 * scipy.special.softmax(2 * X))

    if jit:
        check()
    else:
        with tg.disable_jit():
            check()


def test_a_primitive_without_traced_arguments_is_the_function() -> None:
    assert logsumexp(X) == scipy.special.logsumexp(X)
    assert logsumexp.__name__ == "logsumexp"


def test_a_rule_may_be_code_that_no_trace_can_enter() -> None:
    @primitive
    def solve(a: Any, b: Any) -> Any:
        return np.asarray(scipy.linalg.lapack.dgesv(a, b)[2])

    def rule(ans: Any, a: Any, b: Any) -> Any:
        return lambda g: np.asarray(scipy.linalg.lapack.dgesv(a.T.copy(), g)[2])

    defvjp(solve, None, rule)
    a = np.array([[2.0, 1.0], [0.0, 3.0]])
    np.testing.assert_allclose(ag.grad(lambda b: anp.sum(solve(a, b)))(np.ones(2)), np.linalg.solve(a.T, np.ones(2)))


def test_primitives_take_containers_keywords_and_complex_numbers_and_give_tuples() -> None:
    @primitive
    def parts(pair: Any, *, power: int = 1, name: str = "") -> Any:
        z, w = pair
        return (z**power) * w, {"w": w}

    def rule(argnum: int, ans: Any, args: Any, kwargs: Any) -> Any:
        (z, w), n = args[0], kwargs.get("power", 1)
        return lambda g: (g[0] * n * z ** (n - 1) * w, g[0] * z**n + g[1]["w"])

    defvjp_argnum(parts, rule)

    def f(z: Any, w: Any) -> Any:
        first, second = parts((z, w), power=3, name="cube")
        return anp.real(first) + anp.real(second["w"])

    z, w = np.complex128(1 + 2j), np.complex128(2 - 1j)
    result = ag.grad(f, (0, 1))(z, w)
    # autograd's gradient of the real part of a holomorphic function is its derivative.
    np.testing.assert_allclose(result, (3 * z**2 * w, z**3 + 1))


@pytest.mark.parametrize("jit", [True, False])
def test_rules_in_complex_numbers_are_right_in_both_modes_and_integers_do_not_move(jit: bool) -> None:
    @primitive
    def scaled(z: Any, x: Any, n: int) -> Any:
        return np.array([z * x**n, z]), np.arange(n)

    defvjp(
        scaled,
        lambda ans, z, x, n: lambda g: g[0][0] * x**n + g[0][1],
        lambda ans, z, x, n: lambda g: np.real(np.sum(g[0][0] * z * n * x ** (n - 1))),
    )
    defjvp(
        scaled,
        lambda g, ans, z, x, n: (np.array([g * x**n, g]), np.zeros(1)),
        lambda g, ans, z, x, n: (np.array([g * z * n * x ** (n - 1), 0.0]), np.zeros(1)),
    )

    def f(v: Any) -> Any:
        z = v[0] + 1j * v[1] ** 2
        result, numbers = scaled(z * (2.0 - 1.0j), v[0] * v[1], 2)
        return anp.real(result[0]) * anp.imag(result[1]) + anp.sum(numbers)

    v, steps = np.array([1.3, 0.7]), 1e-6 * np.eye(2)
    numeric = [(f(v + step) - f(v - step)) / 2e-6 for step in steps]

    def check() -> None:
        for _ in range(2):
            np.testing.assert_allclose(ag.grad(f)(v), numeric, rtol=1e-6)
            np.testing.assert_allclose([ag.make_jvp(f)(v)(e)[1] for e in np.eye(2)], numeric, rtol=1e-6)

    if jit:
        check()
    else:
        with tg.disable_jit():
            check()


def test_a_missing_rule_is_an_error_only_where_it_is_wanted() -> None:
    @primitive
    def product(x: Any, y: Any) -> Any:
        return x * y

    defvjp(product, lambda ans, x, y: lambda g: g * y)
    y = np.float64(3.0)
    assert ag.grad(product)(2.0, y) == ag.grad(lambda x: product(x, y))(2.0) == 3.0
    with pytest.raises(NotImplementedError, match="VJP of product wrt argnums"):
        ag.grad(product, 1)(2.0, 3.0)


def test_a_rule_for_what_is_no_primitive_is_not_asked() -> None:
    def square(x: Any) -> Any:
        return x**2

    defvjp(square, lambda ans, x: lambda g: 0.0)
    assert ag.grad(square)(3.0) == 6.0


def test_boxes_are_values_being_differentiated() -> None:
    def f(x: Any, y: Any) -> Any:
        assert isbox(x)
        assert isinstance(x, Box)
        assert not isbox(getval(x))
        assert not isinstance(y, Box)
        return x * getval(x) * y

    assert not isinstance(X, Box)
    assert ag.grad(f)(3.0, 1.0) == 3.0
    with tg.disable_jit():
        assert ag.grad(f)(3.0, 1.0) == 3.0


def test_boxes_of_the_function_around_are_boxes_within_a_derivative_of_another() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        constant = getval(y) * 2

        def inner(z: Any) -> Any:
            assert [isbox(each) for each in (y, constant, y * z, constant * z)] == [True, False, True, True]
            return z * y

        return ag.grad(inner)(x)

    np.testing.assert_allclose(ag.grad(f)(0.5), np.cos(0.5), rtol=1e-15)


def unboxed(x: Any) -> Any:
    while isinstance(x, ArrayBox):
        x = x._value
    return x


@pytest.mark.parametrize("x", [3.0, np.array([3.0, -4.0])])
def test_boxes_have_a_value_without_a_derivative_and_other_values_have_none(x: Any) -> None:
    def f(x: Any) -> Any:
        assert not hasattr(unboxed(x), "_value")
        return np.sum(x * unboxed(x)) if unboxed(np.sum(x)) < 0 else np.sum(2 * x * unboxed(x))

    for run in (ag.grad(f), ag.elementwise_grad(f), ag.jacobian(f)):
        for value in (x, -x, x):
            scale = 1 if np.sum(value) < 0 else 2
            np.testing.assert_array_equal(run(value), scale * value)
    np.testing.assert_array_equal(ag.grad(lambda x: np.sum(ag.grad(f)(x)))(x), np.zeros_like(x))
    with tg.disable_jit():
        np.testing.assert_array_equal(ag.grad(f)(-x), -x if np.sum(x) > 0 else -2 * x)
    assert not hasattr(X, "_value")


# -- the rest --------------------------------------------------------------------------------------------------------
def test_spaces_have_the_operations_of_vectors() -> None:
    space = vspace({"a": np.zeros(2), "b": (1.0, 2.0 + 1j)})
    assert space.size == 5
    assert len(list(space.standard_basis())) == 5
    assert space == vspace(space.randn())
    x = space.scalar_mul(space.add(space.ones(), space.zeros()), 3.0)
    assert space.inner_prod(x, space.ones()) == 15.0
    assert space.covector(x)["b"][1] == 3.0 - 3.0j
    with pytest.raises(TypeError, match="vector space"):
        vspace("text")


def test_flatten_is_undone_and_has_derivatives() -> None:
    value = {"b": [X, 2.0], "a": (np.eye(2),)}
    vector, unflatten = flatten(value)
    np.testing.assert_array_equal(vector, [1.0, 0.0, 0.0, 1.0, *X, 2.0])
    np.testing.assert_array_equal(unflatten(vector)["b"][0], X)
    result = ag.grad(lambda v: anp.sum(flatten(v)[0] ** 2))(value)
    np.testing.assert_array_equal(result["a"][0], 2 * np.eye(2))
    flat, _, _ = flatten_func(lambda v: [v["b"][1] * v["b"][0]], value)
    np.testing.assert_allclose(ag.jacobian(flat)(vector)[:, -1], X)
    assert flatten([])[0].shape == (0,)


@pytest.mark.parametrize("optimize", [sgd, rmsprop, adam])
def test_optimizers_find_the_minimum_of_a_container(optimize: Any) -> None:
    seen = []
    gradient = ag.grad(lambda p, i: anp.sum((p[0] - X) ** 2) + (p[1] + 1.0) ** 2)
    result = optimize(gradient, [np.zeros(3), 0.0], lambda p, i, g: seen.append(i), num_iters=300, step_size=0.05)
    np.testing.assert_allclose(result[0], X, atol=0.1)
    assert result[1] == pytest.approx(-1.0, abs=0.1)
    assert seen == list(range(300))


def test_fixed_points_have_derivatives_in_their_parameter() -> None:
    def newton(a: Any) -> Any:
        return lambda x: 0.5 * (x + a / x)

    def root(a: Any) -> Any:
        return fixed_point(newton, a, 1.0, lambda x, y: abs(x - y), 1e-12)

    assert root(2.0) == pytest.approx(np.sqrt(2.0))
    assert ag.grad(root)(2.0) == pytest.approx(0.5 / np.sqrt(2.0))


@pytest.mark.parametrize("mode", ["full", "valid", "same"])
@pytest.mark.parametrize(("a", "b"), [(7, 3), (3, 7), (4, 4)])
def test_convolutions_along_axes_are_scipys(mode: str, a: int, b: int) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, a, 5)), rng.normal(size=(3, 2, b))
    result = asp.signal.convolve(one, other, axes=[[1], [2]], dot_axes=[[0], [1]], mode=mode)
    # SciPy's "same" is centred in the same way for one array that is not shorter.
    size = {"full": a + b - 1, "valid": abs(a - b) + 1, "same": a}[mode]
    start = {"full": 0, "valid": min(a, b) - 1, "same": (b - 1) // 2}[mode]
    for i in range(5):
        for k in range(3):
            full = sum(np.convolve(one[d, :, i], other[k, d]) for d in range(2))
            np.testing.assert_allclose(result[i, k], full[start : start + size])
    check_grads(
        lambda x, y: asp.signal.convolve(x, y, axes=[[1], [2]], dot_axes=[[0], [1]], mode=mode), (0, 1), order=1
    )(one, other)


def test_differential_equations_take_their_parameters_as_autograds_users_give_them() -> None:
    def decay(y: Any, t: Any, k: Any) -> Any:
        return -k * y

    times = np.linspace(0.0, 1.0, 3)
    result = ag.grad(lambda k: asp.integrate.odeint(decay, np.ones(1), times, (k,), rtol=1e-10, atol=1e-10)[-1, 0])(0.7)
    assert result == pytest.approx(-np.exp(-0.7), rel=1e-6)


def test_check_grads_finds_a_wrong_rule() -> None:
    @primitive
    def cube(x: Any) -> Any:
        return x**3

    defvjp(cube, lambda ans, x: lambda g: g * 2 * x**2)
    with pytest.raises(AssertionError, match="VJP"):
        check_grads(cube, modes=["rev"])(2.0)
    check_grads(lambda x, y: anp.sin(x) * y, (0, 1))(2.0, X)
    ag.test_util.combo_check(anp.sum, order=1)([np.eye(2)], axis=[None, 0, 1])


def test_code_that_is_not_traced_gets_the_elements_of_what_is_not_differentiated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = """
import numpy as np

class Rows:
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, mask):
        return Rows(self.rows[np.asarray(mask, dtype=bool)])
"""
    (tmp_path / "rows_of_others.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import rows_of_others  # type: ignore[import-not-found]

    def f(x: Any, rows: Any, mask: Any) -> Any:
        return anp.sum(asp.stats.norm.logpdf(x)) * anp.sum(rows[mask].rows)

    rows = rows_of_others.Rows(np.array([1.0, 10.0, 100.0]))
    with tg.settings.override(opaque_packages={"rows_of_others"}), tg.disable_jit():
        for mask in (np.array([1, 0, 1]), np.array([0, 1, 1])):
            np.testing.assert_array_equal(ag.grad(f)(X, rows, mask), -X * np.sum(rows.rows[mask > 0]))
        with pytest.raises(tg.TracegradError):
            ag.grad(lambda x: anp.sum(x) * anp.sum(rows[x].rows))(X)
