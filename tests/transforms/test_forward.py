"""Forward mode by the public transforms: `jvp` and `linearize`, alone and nested with reverse mode in every order."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from hatch import Hatch

import tracegrad as tg
from tracegrad.transforms import split_program

RNG = np.random.default_rng(11)
X, T, U = RNG.uniform(0.5, 2, (3, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
both_modes = pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])


def mode(eager: bool) -> Any:
    return tg.disable_jit() if eager else contextlib.nullcontext()


def complex_step(f: Any, x: Any, t: Any) -> Any:
    return np.imag(f(x + 1e-30j * t)) / 1e-30


def slope(f: Any, x: Any, t: Any, step: float = 1e-4) -> Any:
    """The derivative of `f` along `t`, by differences of fourth order."""
    one, two = ((np.asarray(f(x + s * t)) - np.asarray(f(x - s * t))) / (2 * s) for s in (step, 2 * step))
    return (4 * one - two) / 3


def network(x: Any) -> Any:
    h = np.tanh(x @ x.T) * np.exp(-(x**2)).sum(axis=1)
    y = np.concatenate([h, np.cumsum(h, axis=0)])
    return (y[1::2] / np.sqrt(1 + y[::2] ** 2)).reshape(-1)


# -- jvp -----------------------------------------------------------------------------------------------------------
@both_modes
def test_jvp_is_the_derivative_along_the_tangent(eager: bool) -> None:
    with mode(eager):
        out, tangent = tg.jvp(network, (X,), (T,))
    np.testing.assert_allclose(out, network(X), rtol=1e-13)
    np.testing.assert_allclose(tangent, complex_step(network, X, T), rtol=1e-12, atol=1e-14)


def test_jvp_is_adjoint_to_vjp() -> None:
    out, tangent = tg.jvp(network, (X,), (T,))
    ct = RNG.normal(size=out.shape)
    (pulled,) = tg.vjp(network, X)[1](ct)
    assert np.vdot(ct, tangent) == pytest.approx(np.vdot(pulled, T), rel=1e-12)


@both_modes
def test_pytrees_go_in_and_out_and_aux_beside(eager: bool) -> None:
    def f(p: Any, n: int) -> Any:
        y = p["w"] * n + p["b"][0]
        return {"y": y, "sum": (np.sum(y), np.argmax(y))}, (y, "note")

    primals = ({"w": X, "b": [2.0, None]}, 3)
    with mode(eager):
        out, tangent, aux = tg.jvp(f, primals, ({"w": T, "b": [0.5, None]}, 0), has_aux=True)
    np.testing.assert_allclose(out["y"], 3 * X + 2)
    np.testing.assert_allclose(tangent["y"], 3 * T + 0.5, rtol=1e-14)
    assert tangent["sum"][0] == pytest.approx(np.sum(3 * T + 0.5))
    assert tangent["sum"][1] == 0
    np.testing.assert_array_equal(aux[0], out["y"])
    assert aux[1] == "note"


@both_modes
def test_integers_do_not_move_whatever_their_tangents_are(eager: bool) -> None:
    indices, expected = np.array([2, 0]), np.array([True, False])
    float0 = np.zeros((2,), np.dtype([("float0", "V")]))
    for tangents in ((T, indices, expected), (T, float0, float0), (T, np.ones(2), 7.0)):
        with mode(eager):
            out, tangent = tg.jvp(lambda x, i, b: (x[i], i, b), (X, indices, expected), tangents)
        np.testing.assert_array_equal(tangent[0], T[indices])
        np.testing.assert_array_equal(tangent[1], [0, 0])
        np.testing.assert_array_equal(tangent[2], [False, False])
        assert [t.dtype for t in tangent] == [y.dtype for y in out]


@both_modes
def test_what_does_not_depend_on_the_primals_has_the_tangent_zero(eager: bool) -> None:
    with mode(eager):
        _, tangent = tg.jvp(lambda x: (np.floor(x), tg.stop_gradient(x), 2.0, x), (X,), (T,))
    for t in tangent[:2]:
        np.testing.assert_array_equal(t, np.zeros((3, 4)))
    assert tangent[2] == 0.0
    np.testing.assert_array_equal(tangent[3], T)


def test_compiled_and_eager_results_are_of_the_same_types() -> None:
    def f(x: Any, s: float) -> Any:
        return np.sum(x) * s, x * s, np.argmax(x)

    primals, tangents = (X.astype(np.float32), 2.0), (T.astype(np.float32), 1.0)
    compiled = tg.jvp(f, primals, tangents)
    with tg.disable_jit():
        eager = tg.jvp(f, primals, tangents)
    for a, b in zip(tg.tree.leaves(compiled), tg.tree.leaves(eager), strict=True):
        assert (type(a), a.dtype) == (type(b), b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_jvp_of_a_function_remembers_its_program() -> None:
    def f(x: Any) -> Any:
        traced.put(1)  # which nobody repeats
        return np.sin(x) * scale[0]

    traced: Any = Hatch()

    scale = [np.array(2.0)]
    for k in range(3):
        _, tangent = tg.jvp(f, (X + k,), [T])
        np.testing.assert_allclose(tangent, 2 * np.cos(X + k) * T, rtol=1e-13, atol=1e-15)
    assert traced.qsize() == 1
    scale[0] = np.array(5.0)
    np.testing.assert_allclose(tg.jvp(f, (X,), (T,))[1], 5 * np.cos(X) * T, rtol=1e-13, atol=1e-15)


def test_branches_loops_and_updates_in_place_have_tangents() -> None:
    def f(x: Any) -> Any:
        y = np.zeros(3)
        y[0] = x[0, 0] if np.sum(x) > 0 else -x[0, 0]
        for i in range(1, 3):
            y[i] = np.sin(y[i - 1]) * x[i, 1]
            y *= 1.5
        y[1:] += x[0, :2]
        return y

    for sign in (1, -1):
        _, tangent = tg.jvp(f, (sign * X,), (T,))
        np.testing.assert_allclose(tangent, slope(f, sign * X, T), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("function", ["scan", "while_loop", "cond"])
def test_control_functions_have_tangents(function: str) -> None:
    def f(x: Any) -> Any:
        if function == "scan":
            return tg.scan(lambda c, row: (np.sin(c) * row, c), x[0], x)
        if function == "cond":
            return tg.cond(np.sum(x) > 0, lambda v: v**2, lambda v: -v, x)
        return tg.while_loop(lambda c: np.sum(c) < 50, lambda c: c * x[0] + 1, x[0])

    _, tangent = tg.jvp(f, (X,), (T,))
    for t, want in zip(tg.tree.leaves(tangent), tg.tree.leaves(_each_derivative(f))):
        np.testing.assert_allclose(t, want, rtol=1e-8, atol=1e-9)


def _each_derivative(f: Any) -> Any:
    count = len(tg.tree.leaves(f(X)))
    return [slope(lambda v, k=k: tg.tree.leaves(f(v))[k], X, T) for k in range(count)]


# -- nesting -------------------------------------------------------------------------------------------------------
def scalar(x: Any) -> Any:
    return np.sum(np.sin(x) ** 2 * np.exp(-(x**2) / 2)) + np.log(np.sum(np.exp(x @ x.T)))


def push(f: Any) -> Any:
    return lambda x: tg.jvp(f, (x,), (T,))[1]


def pull(f: Any) -> Any:
    return lambda x: np.sum(tg.grad(f)(x) * T)


def pull_back(f: Any) -> Any:
    return lambda x: np.sum(tg.vjp(f, x)[1](1.0)[0] * T)


def linearized(f: Any) -> Any:
    return lambda x: tg.linearize(f, x)[1](T)


@both_modes
@pytest.mark.parametrize("outer", [push, pull, linearized])
@pytest.mark.parametrize("inner", [push, pull, pull_back, linearized])
def test_second_derivatives_agree_in_every_order(eager: bool, outer: Any, inner: Any) -> None:
    want = slope(lambda x: np.sum(complex_gradient(x) * T), X, T)
    for wrap in (tg.trace, lambda f: f):
        with mode(eager):
            assert float(wrap(outer(inner(scalar)))(X)) == pytest.approx(float(want), rel=1e-8)


def complex_gradient(x: Any) -> Any:
    basis = np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([complex_step(scalar, x, e) for e in basis]).reshape(x.shape)


@pytest.mark.parametrize("order", [(push, push, pull), (pull, push, push), (push, pull, push), (push, push, push)])
def test_third_derivatives_agree_in_every_order(order: Any) -> None:
    def f(x: Any) -> Any:
        return np.sum(x**4 * T)

    derivative = f
    for each in order:
        derivative = each(derivative)
    np.testing.assert_allclose(derivative(X), np.sum(24 * X * T**4), rtol=1e-12)


def test_products_with_a_hessian_agree_and_are_one_program() -> None:
    forward_over_reverse = tg.trace(lambda x: tg.jvp(tg.grad(scalar), (x,), (T,))[1])
    reverse_over_forward = tg.grad(push(scalar))
    reverse_over_reverse = tg.grad(pull(scalar))
    want = forward_over_reverse(X)
    np.testing.assert_allclose(reverse_over_forward(X), want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(reverse_over_reverse(X), want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(slope(tg.grad(scalar), X, T), want, rtol=1e-8, atol=1e-8)
    assert forward_over_reverse.cache_info().traces == reverse_over_forward.cache_info().traces == 1


@both_modes
def test_inner_and_outer_derivatives_are_not_confused(eager: bool) -> None:
    # d/dx (x * d/dy (x + y)) = 1, the example of Siskind and Pearlmutter (2005).
    def along(f: Any) -> Any:
        return lambda x: tg.jvp(f, (x,), (1.0,))[1]

    with mode(eager):
        for inner in (along, tg.grad):
            for outer in (along, tg.grad):
                assert outer(lambda x, d=inner: x * d(lambda y: x + y)(1.0))(1.0) == 1.0
                assert outer(lambda x, d=inner: x * d(lambda y: x * y)(x))(3.0) == 6.0
                assert outer(lambda x, d=inner: d(lambda y: x * y * y)(x * x))(2.0) == 24.0
        # The tangent of the inner derivative moves with the outer one.
        assert along(lambda x: tg.jvp(lambda y: y * y, (3.0,), (x,))[1])(5.0) == 6.0
        assert tg.grad(lambda x: tg.jvp(lambda y: y * x, (3.0,), (x * x,))[1])(2.0) == 12.0


def test_derivatives_of_traced_functions_and_of_programs_inside() -> None:
    inner = tg.trace(network)
    np.testing.assert_allclose(tg.jvp(inner, (X,), (T,))[1], complex_step(network, X, T), rtol=1e-12, atol=1e-14)
    assert inner.cache_info().traces == 0
    _, tangent = tg.trace(lambda x, t: tg.jvp(inner, (x,), (t,)))(X, T)
    np.testing.assert_allclose(tangent, complex_step(network, X, T), rtol=1e-12, atol=1e-14)


BRANCHES = {
    "sqrt": lambda x: np.where(x > 0, np.sqrt(x), 0.0),
    "x log x": lambda x: np.where(x > 0, x * np.log(x), 0.0),
    "1 / x": lambda x: np.where(x != 0, 1 / x, 0.0),
    "a product downstream": lambda x: np.where(x > 0, np.sqrt(x), 0.0) * np.exp(x) * np.where(x > 1, np.log(x), 1.0),
    "through views": lambda x: np.where(x > 0, np.exp(np.sqrt(np.reshape(x, (3, 1)))).T[:, ::-1][:, ::-1], 1.0),
    "through a sum": lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)) * x,
}


@both_modes
@pytest.mark.parametrize("name", BRANCHES)
def test_where_never_leaks_nan_from_the_branch_not_taken(eager: bool, name: str) -> None:
    f = BRANCHES[name]
    x, t = np.array([-1.0, 0.0, 4.0]), np.array([0.3, -0.7, 1.1])

    def total(v: Any) -> Any:
        return np.sum(f(v))

    with mode(eager):
        _, tangent = tg.jvp(f, (x,), (t,))
        second = [
            tg.jvp(tg.grad(total), (x,), (t,))[1],
            tg.grad(lambda v: tg.jvp(total, (v,), (t,))[1])(x),
            tg.jvp(lambda v: tg.jvp(f, (v,), (t,))[1], (x,), (t,))[1],
        ]
        np.testing.assert_allclose(np.sum(tangent), np.sum(tg.grad(total)(x) * t), rtol=1e-12)
    assert np.isfinite(tangent).all()
    for each in second:
        assert np.isfinite(each).all()
    np.testing.assert_allclose(second[0], second[1], rtol=1e-12, atol=1e-14)
    assert np.sum(second[2]) == pytest.approx(float(np.sum(second[0] * t)))


# -- linearize -----------------------------------------------------------------------------------------------------
@both_modes
def test_linearize_gives_the_tangents_of_jvp(eager: bool) -> None:
    with mode(eager):
        out, f_jvp, aux = tg.linearize(lambda x, s: ({"y": network(x) * s, "n": 3}, "aux"), X, 2.0, has_aux=True)
        for t, s in ((T, 0.5), (U, 0), (0 * T, 1.0)):
            want = tg.jvp(lambda x, s: network(x) * s, (X, 2.0), (t, s))[1]
            got = f_jvp(t, s)
            np.testing.assert_allclose(got["y"], want, rtol=1e-12, atol=1e-14)
            assert got["n"] == 0
    np.testing.assert_allclose(out["y"], 2 * network(X), rtol=1e-14)
    assert aux == "aux"


def test_the_linear_part_computes_nothing_again() -> None:
    w = RNG.normal(size=(4, 4))

    def f(x: Any) -> Any:
        return np.exp(np.sin(x @ w) * np.sum(x)) + 3.0 * x

    out, _, saved, part = tg.trace(split_program.linearized(f, False))((X,))
    np.testing.assert_allclose(out, f(X), rtol=1e-13)
    names = {node.name for node in part.graph.nodes}
    assert names <= {"matmul", "reshape", "multiply", "reduce_sum", "broadcast_to", "accumulate"}
    assert sum(x.size for x in saved) <= 5 * X.size + w.size
    np.testing.assert_allclose(part(saved, [T]), complex_step(f, X, T), rtol=1e-12)


def test_linearize_traces_once_and_keeps_the_primals_it_was_given() -> None:
    def f(x: Any) -> Any:
        traced.put(1)  # which nobody repeats
        return x * x

    traced: Any = Hatch()

    for k in range(3):
        x = X + k
        _, f_jvp = tg.linearize(f, x)
        x[:] = 100.0
        np.testing.assert_allclose(f_jvp(T), 2 * (X + k) * T, rtol=1e-14)
        np.testing.assert_allclose(f_jvp(U), 2 * (X + k) * U, rtol=1e-14)
    assert traced.qsize() == 1


def test_the_linear_function_can_be_differentiated_and_traced() -> None:
    _, f_jvp = tg.linearize(network, X)
    ct = RNG.normal(size=network(X).shape)
    want = tg.vjp(network, X)[1](ct)[0]
    np.testing.assert_allclose(tg.grad(lambda t: np.sum(f_jvp(t) * ct))(T), want, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(tg.trace(lambda t: f_jvp(t) * 2)(T), 2 * f_jvp(T), rtol=1e-14)
    np.testing.assert_allclose(tg.jvp(f_jvp, (T,), (U,))[1], f_jvp(U), rtol=1e-14)


def test_linearize_inside_a_trace() -> None:
    @tg.trace
    def newton(x: Any) -> Any:
        for _ in range(6):
            y, f_jvp = tg.linearize(lambda v: v**3 - 2.0, x)
            x = x - y / f_jvp(1.0)
        return x

    assert newton(1.5) == pytest.approx(2 ** (1 / 3), rel=1e-14)


# -- what does not fit ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("primals", "tangents", "error", "message"),
    [
        (X, T, TypeError, "primals and tangents must be tuples or lists, got (ndarray|Tracer) and (ndarray|Tracer)"),
        ((X,), (T, T), TypeError, "must have the same tree structure"),
        (({"a": X},), ({"b": T},), TypeError, "must have the same tree structure"),
        ((X,), (T[:2],), tg.ShapeError, r"the tangent of x has shape \(2, 4\), the primal has shape \(3, 4\)"),
        (([X, X],), ([T, 1.0],), ValueError, r"the tangent of x\[1\] has shape \(\)"),
        ((X,), (T.astype(np.float32),), tg.DTypeError, "the tangent of x has dtype float32.* dtype float64"),
        ((X,), (np.ones((3, 4), int),), TypeError, "the tangent of x has dtype int64"),
        (({"k": "text"},), ({"k": "text"},), tg.TraceError, r"cannot differentiate with respect to x\['k'\]"),
        ((X,), ("text",), TypeError, "the tangent of x must be an array, got a str"),
    ],
)
def test_tangents_that_do_not_fit_are_refused(
    nested: bool, primals: Any, tangents: Any, error: Any, message: str
) -> None:
    def f(x: Any) -> Any:
        return x

    def call() -> Any:
        return tg.jvp(f, primals, tangents)

    with pytest.raises(error, match=f"jvp of .*{message}.*test_forward.py:"):
        tg.trace(lambda s: call())(1.0) if nested else call()


def test_linear_functions_refuse_what_jvp_refuses() -> None:
    _, f_jvp = tg.linearize(network, X)
    with pytest.raises(tg.ShapeError, match=r"the tangent of x has shape \(3,\)"):
        f_jvp(np.ones(3))
    with pytest.raises(TypeError, match="same tree structure"):
        f_jvp(T, T)
    with pytest.raises(TypeError, match="takes a function"):
        tg.linearize(3, X)
    with pytest.raises(TypeError, match="must be arrays, got a str"):
        tg.jvp(lambda x: "text", (X,), (T,))
    with pytest.raises(TypeError, match="must return a pair"):
        tg.linearize(network, X, has_aux=True)


# -- rules of the user's -------------------------------------------------------------------------------------------
def test_a_custom_jvp_is_called_with_the_tangents() -> None:
    seen = []

    @tg.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return {"out": np.sin(x) * y}

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        seen.append(1)
        (x, y), (t, s) = primals, tangents
        return f(x, y), {"out": 3.0 * t * y + np.sin(x) * s}

    _, tangent = tg.jvp(f, (X, 2.0), (T, 1.0))
    np.testing.assert_allclose(tangent["out"], 6 * T + np.sin(X), rtol=1e-13)
    assert len(seen) == 1
    _, tangent = tg.jvp(lambda x: f(x, 2.0)["out"] * x, (X,), (T,))
    np.testing.assert_allclose(tangent, 6 * T * X + 2 * np.sin(X) * T, rtol=1e-13)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.jvp(f, (X, 2.0), (T, 1.0))[1]["out"], 6 * T + np.sin(X), rtol=1e-13)
    hessian = tg.jvp(tg.grad(lambda x: np.sum(f(x, x)["out"])), (X,), (T,))[1]
    np.testing.assert_allclose(hessian, (3 + np.cos(X)) * T, rtol=1e-12)


def test_derivatives_of_a_rule_for_tangents_are_taken() -> None:
    @tg.custom_jvp
    def cube(x: Any) -> Any:
        return x**3

    cube.defjvps(lambda t, ans, x: 3 * x**2 * t)
    for outer in (push, pull):
        for inner in (push, pull):
            got = outer(inner(lambda x: np.sum(cube(x))))(X)
            assert got == pytest.approx(np.sum(6 * X * T * T))


@tg.custom_vjp
def doubled(x: Any) -> Any:
    return x**2


doubled.defvjp(lambda x: (x**2, x), lambda x, ct: (2 * x * ct,))


@both_modes
def test_a_custom_vjp_has_no_tangents(eager: bool) -> None:
    message = "can't apply forward-mode differentiation (jvp) to a custom_vjp function: custom_vjp of doubled"
    with mode(eager):
        for call in (
            lambda: tg.jvp(lambda x: doubled(x) * 2, (X,), (T,)),
            lambda: tg.linearize(doubled, X)[1](T),
            lambda: tg.grad(lambda x: np.sum(tg.jvp(doubled, (x,), (T,))[1]))(X),
        ):
            with pytest.raises(TypeError, match=re.escape(message) + r" \(.*test_forward.py:\d+\)"):
                call()
        # It is a constant here.
        np.testing.assert_array_equal(tg.jvp(lambda x: x * doubled(3.0), (X,), (T,))[1], 9 * T)


@both_modes
def test_forward_mode_over_reverse_mode_through_a_custom_vjp(eager: bool) -> None:
    with mode(eager):
        for f, want in ((doubled, 2 * T), (lambda x: doubled(x) ** 2, 12 * X**2 * T)):
            got = tg.jvp(tg.grad(lambda x, f=f: np.sum(f(x))), (X,), (T,))[1]
            np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_function_with_a_jvp_in_a_trace() -> None:
    class Sine(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.x, ctx.k = x, k
            return np.sin(k * x), np.argmax(x)

        @staticmethod
        def jvp(ctx: Any, t: Any, _: Any) -> Any:
            return ctx.k * np.cos(ctx.k * ctx.x) * t, None

    _, tangent = tg.jvp(lambda x: Sine.apply(x, 2.0), (X,), (T,))
    np.testing.assert_allclose(tangent[0], 2 * np.cos(2 * X) * T, rtol=1e-13)
    assert tangent[1] == 0
    second = push(push(lambda x: Sine.apply(x, 2.0)[0]))(X)
    np.testing.assert_allclose(second, -4 * np.sin(2 * X) * T * T, rtol=1e-13)

    class Without(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    with pytest.raises(NotImplementedError, match="You must implement the jvp function"):
        tg.jvp(Without.apply, (X,), (T,))


# -- Tensors -------------------------------------------------------------------------------------------------------
def test_on_tensors_the_tangent_is_a_tensor_on_the_tape() -> None:
    x, t = tg.tensor(X, requires_grad=True), tg.tensor(T, requires_grad=True)
    out, tangent = tg.jvp(lambda v: v.sin() * v, (x,), (t,))
    assert type(out) is type(tangent) is tg.Tensor
    np.testing.assert_allclose(tangent.detach().numpy(), (np.cos(X) * X + np.sin(X)) * T, rtol=1e-13)
    tangent.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), (2 * np.cos(X) - X * np.sin(X)) * T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(t.grad.numpy(), np.cos(X) * X + np.sin(X), rtol=1e-13)
    _, f_jvp = tg.linearize(lambda v: v.exp(), x)
    np.testing.assert_allclose(f_jvp(tg.tensor(U)).detach().numpy(), np.exp(X) * U, rtol=1e-13)


def test_tensors_that_require_no_grad_give_tensors_that_do_not() -> None:
    x, t, w = tg.tensor(X), tg.tensor(T), tg.tensor(U, requires_grad=True)
    plain = [*tg.jvp(lambda v: v.sin() * v, (x,), (t,)), *tg.linearize(lambda v: v.exp(), x)[1:]]
    plain[-1] = plain[-1](t)
    out, pull = tg.vjp(lambda v: v.sin(), x)
    for y in (*plain, out, *pull(t), tg.jvp(lambda v: tg.jvp(lambda u: u * v, (v,), (t,))[1], (x,), (t,))[1]):
        assert not y.requires_grad
    for y in tg.jvp(lambda v: w * v * v, (x,), (t,)):
        assert y.requires_grad
    tg.jvp(lambda v: w * v * v, (x,), (t,))[1].sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * X * T, rtol=1e-13)


def test_derivatives_of_functions_of_tensors_in_a_compiled_call() -> None:
    x = tg.tensor(X)
    _, tangent = tg.trace(lambda v: tg.jvp(lambda u: u.sin() * u, (v,), (tg.tensor(T),)))(x)
    np.testing.assert_allclose(tangent.detach().numpy(), (np.cos(X) * X + np.sin(X)) * T, rtol=1e-13)
