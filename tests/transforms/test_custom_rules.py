"""`custom_vjp` and `custom_jvp`: functions with derivative rules of the user's.

Most rules here are wrong on purpose, so that a test can tell a rule that was used from one that was not.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import ShapeError
from tracegrad.torch import tape
from tracegrad.transforms.custom_rules import custom_jvp, custom_vjp

X = np.array([0.5, 1.0, 2.0])
Y = np.array([2.0, 3.0, 5.0])

calls: list[str] = []


def _sine_times(x: Any, y: Any) -> Any:
    calls.append("f")
    return np.sin(x) * y


def _fwd(x: Any, y: Any) -> Any:
    calls.append("fwd")
    return np.sin(x) * y, {"x": x, "y": y, "slope": np.cos(x)}


def _bwd(residuals: Any, ct: Any) -> Any:
    calls.append("bwd")
    return 10.0 * residuals["slope"] * residuals["y"] * ct, np.sin(residuals["x"]) * ct


sine_times = custom_vjp(_sine_times)
sine_times.defvjp(_fwd, _bwd)
TENFOLD = 10.0 * np.cos(X) * Y


@custom_jvp
def pair(x: Any, y: Any) -> Any:
    return {"product": x * y, "total": np.sum(x)}


@pair.defjvp
def _(primals: Any, tangents: Any) -> Any:
    x, y = primals
    dx, dy = tangents
    return pair(x, y), {"product": 7.0 * dx * y + x * dy, "total": 100.0 * np.sum(dx)}


def of_pair(x: Any, y: Any) -> Any:
    both = pair(x, y)
    return (both["product"] ** 2).sum() + both["total"] ** 2


def jit(compiled: bool) -> Any:
    return contextlib.nullcontext() if compiled else tg.disable_jit()


either = pytest.mark.parametrize("compiled", [True, False])


def leaf(x: Any) -> Any:
    return tg.tensor(x, requires_grad=True)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


# -- custom_vjp --------------------------------------------------------------------------------------------------------
def test_a_call_on_ndarrays_just_runs_the_function() -> None:
    np.testing.assert_array_equal(sine_times(X, Y), np.sin(X) * Y)
    np.testing.assert_array_equal(sine_times(y=Y, x=X), np.sin(X) * Y)
    assert calls == ["f", "f"]


@either
def test_grad_uses_the_rule_once(compiled: bool) -> None:
    with jit(compiled):
        dx, dy = tg.grad(lambda x, y: np.sum(sine_times(x, y)), (0, 1))(X, Y)
    np.testing.assert_allclose(dx, TENFOLD, rtol=1e-15)
    np.testing.assert_allclose(dy, np.sin(X), rtol=1e-15)
    assert calls.count("fwd") == calls.count("bwd") == 1


@either
def test_second_derivatives_differentiate_the_rule_through_its_residuals(compiled: bool) -> None:
    def squared(x: Any, y: Any) -> Any:
        return np.sum(tg.grad(lambda x: np.sum(sine_times(x, y)))(x) ** 2)

    with jit(compiled):
        dx, dy = tg.grad(squared, (0, 1))(X, Y)
    np.testing.assert_allclose(dx, 2 * TENFOLD * -10 * np.sin(X) * Y, rtol=1e-14)
    np.testing.assert_allclose(dy, 2 * TENFOLD * 10 * np.cos(X), rtol=1e-14)


@either
def test_value_and_grad_and_vjp_use_the_rule(compiled: bool) -> None:
    with jit(compiled):
        value, gradient = tg.value_and_grad(lambda x: np.sum(sine_times(x, Y)))(X)
        out, pull = tg.vjp(sine_times, X, Y)
        dx, dy = pull(2.0 * np.ones(3))
    np.testing.assert_allclose(value, np.sum(np.sin(X) * Y))
    np.testing.assert_allclose(gradient, TENFOLD)
    np.testing.assert_allclose(out, np.sin(X) * Y)
    np.testing.assert_allclose(dx, 2 * TENFOLD)
    np.testing.assert_allclose(dy, 2 * np.sin(X))


def test_inside_a_traced_function_it_is_as_the_function_alone() -> None:
    traced = tg.trace(lambda x, y: sine_times(x, y))
    np.testing.assert_allclose(traced(X, Y), np.sin(X) * Y)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(traced(x, Y)))(X), TENFOLD)
    names = [node.name for node in traced.explain(X, Y).optimized.nodes]
    assert names == ["sin", "multiply"]


def test_on_tensors_it_is_one_node() -> None:
    x, y = leaf(X), leaf(Y)
    out = sine_times(x, y)
    assert out.grad_fn.name() == "_sine_timesBackward"
    assert [type(n).__name__ for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2
    assert calls == ["fwd"]
    out.sum().backward()
    assert calls == ["fwd", "bwd"]
    np.testing.assert_allclose(x.grad.numpy(), TENFOLD)
    np.testing.assert_allclose(y.grad.numpy(), np.sin(X))


def test_on_tensors_the_backward_pass_can_be_recorded() -> None:
    x, y = leaf(X), leaf(Y)
    (first,) = tape.grad(sine_times(x, y).sum(), x, create_graph=True)
    dx, dy = tape.grad(first.sum(), (x, y))
    np.testing.assert_allclose(dx.numpy(), -10 * np.sin(X) * Y)
    np.testing.assert_allclose(dy.numpy(), 10 * np.cos(X))


def test_an_update_of_a_residual_in_place_is_noticed() -> None:
    x, y = leaf(X) * 1.0, leaf(Y)
    out = sine_times(x, y)
    x.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_traced_function_of_tensors_uses_the_rule() -> None:
    x = leaf(X)
    out = tg.trace(lambda x: sine_times(x, tg.tensor(Y)).sum())(x)
    (first,) = tape.grad(out, x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), TENFOLD)
    np.testing.assert_allclose(tape.grad(first.sum(), x)[0].numpy(), -10 * np.sin(X) * Y)


@either
def test_arguments_results_and_cotangents_are_pytrees(compiled: bool) -> None:
    @custom_vjp
    def f(params: Any, x: Any) -> Any:
        return {"y": params["w"][0] * x, "b": (params["b"], None)}

    def bwd(residuals: Any, ct: Any) -> Any:
        params, x = residuals
        return {"w": [np.sum(ct["y"] * x) * 2.0], "b": None}, ct["y"] * params["w"][0] + ct["b"][0]

    f.defvjp(lambda params, x: (f(params, x), (params, x)), bwd)
    params = {"w": [3.0], "b": np.array(4.0)}

    def loss(params: Any, x: Any) -> Any:
        out = f(params, x)
        return np.sum(out["y"]) + out["b"][0]

    with jit(compiled):
        dparams, dx = tg.grad(loss, (0, 1))(params, X)
    assert dparams["w"][0] == pytest.approx(2 * np.sum(X))
    assert dparams["b"] == 0.0
    np.testing.assert_array_equal(dx, 4.0)


@either
def test_nondiff_arguments_come_first_in_bwd(compiled: bool) -> None:
    @partial(custom_vjp, nondiff_argnums=(0, 2))
    def apply(fn: Any, x: Any, factor: float) -> Any:
        return fn(x) * factor

    apply.defvjp(
        lambda fn, x, factor: (apply(fn, x, factor), x),
        lambda fn, factor, x, ct: (ct * fn(x) * factor * 5.0,),
    )
    with jit(compiled):
        dx = tg.grad(lambda x: np.sum(apply(np.exp, x, 2.0)))(X)
    np.testing.assert_allclose(dx, 10 * np.exp(X))


def test_static_arguments_reach_the_rule() -> None:
    @custom_vjp
    def power(x: Any, n: int) -> Any:
        return x**n

    power.defvjp(lambda x, n: (x**n, (x, n)), lambda res, ct: (10.0 * res[1] * res[0] ** (res[1] - 1) * ct, None))
    f = tg.trace(lambda x, n: np.sum(power(x, n)), static_argnums=1)
    np.testing.assert_allclose(tg.grad(f)(X, 3), 30 * X * X)
    np.testing.assert_allclose(tg.grad(f)(X, 2), 20 * X)


@either
def test_a_rule_can_call_another_custom_function(compiled: bool) -> None:
    inner = custom_vjp(lambda x: x * x)
    inner.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * 2.0 * x * 7.0,))
    outer = custom_vjp(lambda x: x * x * x)
    outer.defvjp(lambda x: (x * x * x, x), lambda x, ct: (ct * 3.0 * inner(x),))
    with jit(compiled):
        f = tg.grad(outer)
        assert (f(2.0), tg.grad(f)(2.0), tg.grad(tg.grad(f))(2.0)) == (12.0, 84.0, 42.0)


def test_grad_of_a_custom_function_is_compiled_once() -> None:
    f = custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * x * 20.0,))
    assert [tg.grad(f)(3.0), tg.grad(f)(4.0)] == [60.0, 80.0]
    assert tg.grad(f) is tg.grad(f)
    assert tg.grad(f).cache_info().traces == 1


# -- custom_jvp --------------------------------------------------------------------------------------------------------
@either
def test_reverse_mode_is_the_transpose_of_the_jvp_rule(compiled: bool) -> None:
    with jit(compiled):
        dx, dy = tg.grad(of_pair, (0, 1))(X, Y)
    np.testing.assert_allclose(dx, 2 * X * Y * 7 * Y + 2 * np.sum(X) * 100)
    np.testing.assert_allclose(dy, 2 * X * Y * X)


@either
def test_second_derivatives_differentiate_the_jvp_rule(compiled: bool) -> None:
    with jit(compiled):
        second = tg.grad(lambda x: np.sum(tg.grad(of_pair)(x, Y)))(X)
    # The gradient is 14 y (x y) + 200 total(x), and the derivatives of product and total are the rule's again.
    np.testing.assert_allclose(second, 14 * Y * 7 * Y + 3 * 200 * 100)


def test_a_jvp_rule_holds_on_tensors() -> None:
    x, y = leaf(X), leaf(Y)
    assert pair(x, y)["total"].grad_fn.name() == "pairBackward"
    (first,) = tape.grad(of_pair(x, y), x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), 14 * X * Y * Y + 200 * np.sum(X))
    np.testing.assert_allclose(tape.grad(first.sum(), x)[0].numpy(), 98 * Y * Y + 60000)


def test_a_jvp_rule_holds_in_a_traced_function_of_tensors() -> None:
    x = leaf(X)
    tg.trace(lambda x: of_pair(x, tg.tensor(Y)))(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 14 * X * Y * Y + 200 * np.sum(X))


@either
def test_defvjps_takes_a_rule_for_each_argument(compiled: bool) -> None:
    @custom_jvp
    def f(x: Any, y: Any, z: Any) -> Any:
        return np.sin(x) * y + z

    f.defjvps(lambda t, ans, x, y, z: 10.0 * np.cos(x) * y * t, None, lambda t, ans, x, y, z: t * ans)
    with jit(compiled):
        dx, dy, dz = tg.grad(lambda x, y, z: np.sum(f(x, y, z)), (0, 1, 2))(X, Y, X)
    np.testing.assert_allclose(dx, TENFOLD)
    np.testing.assert_array_equal(dy, 0.0)
    np.testing.assert_allclose(dz, np.sin(X) * Y + X)


@either
def test_a_stable_rule_makes_every_order_finite(compiled: bool) -> None:
    @custom_jvp
    def log1pexp(x: Any) -> Any:
        return np.log(1.0 + np.exp(x))

    log1pexp.defjvps(lambda t, ans, x: t / (1.0 + np.exp(-x)))
    with jit(compiled):
        assert tg.grad(log1pexp)(100.0) == 1.0
        s = 1 / (1 + np.exp(-0.5))
        assert tg.grad(tg.grad(log1pexp))(0.5) == pytest.approx(s * (1 - s), rel=1e-14)
        assert tg.grad(tg.grad(tg.grad(log1pexp)))(0.5) == pytest.approx(s * (1 - s) * (1 - 2 * s), rel=1e-13)


@either
def test_nondiff_arguments_come_first_in_a_jvp_rule(compiled: bool) -> None:
    @partial(custom_jvp, nondiff_argnums=(0,))
    def apply(fn: Any, x: Any) -> Any:
        return fn(x)

    @apply.defjvp
    def _(fn: Any, primals: Any, tangents: Any) -> Any:
        return fn(primals[0]), 5.0 * tangents[0] * fn(primals[0])

    with jit(compiled):
        np.testing.assert_allclose(tg.grad(lambda x: np.sum(apply(np.exp, x)))(X), 5 * np.exp(X))


@either
def test_integers_and_constants_have_zero_tangents(compiled: bool) -> None:
    @custom_jvp
    def f(x: Any, n: Any, k: float) -> Any:
        return x * n * k

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, n, k = primals
        dx, dn, dk = tangents
        return x * n * k, 10.0 * dx * n * k + x * dn + x * dk

    with jit(compiled):
        dx = tg.grad(lambda x, n: np.sum(f(x, n, 2.0)))(X, np.array([1, 2, 3]))
    np.testing.assert_array_equal(dx, [20.0, 40.0, 60.0])


# -- what may be wrong -------------------------------------------------------------------------------------------------
def test_a_call_without_a_rule_is_an_error() -> None:
    def f(x: Any) -> Any:
        return x

    with pytest.raises(AttributeError, match=r"No VJP defined for custom_vjp function .*f using defvjp"):
        custom_vjp(f)(X)
    with pytest.raises(AttributeError, match=r"No JVP defined for custom_jvp function .*f using defjvp"):
        custom_jvp(f)(X)
    with pytest.raises(TypeError, match="custom_vjp takes a function, got a int"):
        custom_vjp(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Can't use `defjvps` with `nondiff_argnums`"):
        custom_jvp(f, nondiff_argnums=(0,)).defjvps(None)


def product(x: Any, w: Any) -> Any:
    return x * w["b"]


def rejected(fwd: Any, bwd: Any) -> Any:
    f = custom_vjp(product)
    f.defvjp(fwd, bwd)
    return lambda x: np.sum(f(x, {"b": Y}))


@either
@pytest.mark.parametrize(
    ("fwd", "bwd", "error", "text"),
    [
        (
            lambda x, w: x * w["b"],
            lambda res, ct: (ct, None),
            TypeError,
            "custom_vjp of product .*: the fwd rule must produce a pair",
        ),
        (
            lambda x, w: (x * w["b"], None),
            lambda res, ct: ct,
            TypeError,
            "custom_vjp of product .*: the bwd rule must produce a tuple of 2, a cotangent for each argument",
        ),
        (lambda x, w: (x * w["b"], None), lambda res, ct: (ct,), TypeError, "a tuple of 2, .*, got a tuple of 1"),
        (
            lambda x, w: (x * w["b"], None),
            lambda res, ct: (ct, ct),
            TypeError,
            "the bwd rule must produce a cotangent of the structure of w: the structures differ at w",
        ),
        (
            lambda x, w: (x * w["b"], None),
            lambda res, ct: (np.sum(ct), None),
            ShapeError,
            r"the bwd rule returned a cotangent of shape \(\) for x, which has shape \(3,\)",
        ),
        (
            lambda x, w: (x * w["b"], None),
            lambda res, ct: ("text", None),
            TypeError,
            "the bwd rule returned a str as the cotangent of x",
        ),
    ],
)
def test_a_wrong_vjp_rule_is_told_with_the_function_and_the_argument(
    compiled: bool, fwd: Any, bwd: Any, error: Any, text: str
) -> None:
    with jit(compiled), pytest.raises(error, match=text):
        tg.grad(rejected(fwd, bwd))(X)


def test_another_structure_of_the_output_of_fwd_is_told() -> None:
    with pytest.raises(
        TypeError, match="the output that the fwd rule returns must have the structure of the output of"
    ):
        tg.grad(rejected(lambda x, w: ((x, x), None), lambda res, ct: (ct, None)))(X)


@either
@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (lambda p, t: p[0], TypeError, "custom_jvp of .*identity .*: the jvp rule must produce a pair"),
        (lambda p, t: (p[0], (t[0],)), TypeError, "the tangent that the jvp rule returns must have the structure"),
        (lambda p, t: ((p[0],), t[0]), TypeError, "the output that the jvp rule returns must have the structure"),
        (lambda p, t: (p[0], t[0][:1]), ShapeError, r"a tangent of shape \(1,\) for an output of shape \(3,\)"),
    ],
)
def test_a_wrong_jvp_rule_is_told(compiled: bool, rule: Any, error: Any, text: str) -> None:
    def identity(x: Any) -> Any:
        return x * 1.0

    f = custom_jvp(identity)
    f.defjvp(rule)
    with jit(compiled), pytest.raises(error, match=text):
        tg.grad(lambda x: np.sum(f(x)))(X)


def test_arguments_by_keyword_only_and_missing_ones_are_told() -> None:
    def f(x: Any, *, y: Any) -> Any:
        return x * y

    custom = custom_vjp(f)
    custom.defvjp(lambda x, y: (x * y, None), lambda res, ct: (ct, ct))
    with pytest.raises(TypeError, match=r"the arguments \['y'\] can be given by keyword only"):
        custom(X, y=X)
    bad = custom_vjp(product, nondiff_argnums=(5,))
    bad.defvjp(lambda x, w: (x, None), lambda res, ct: (ct, None))
    with pytest.raises(ValueError, match="nondiff_argnums names argument 5, but there are 2 arguments"):
        bad(X, {"b": X})


# -- made inside of traced code, and of arrays whose size is a value ---------------------------------------------------
class Lazy:
    """Makes a function at its first call, which may be traced, and keeps it."""

    def __init__(self, make: Any, k: float):
        self.make, self.k, self.made = make, k, None

    def __call__(self, x: Any) -> Any:
        if self.made is None:
            self.made = self.make(self)
        return self.made(x)


def _lazy_vjp(lazy: Lazy) -> Any:
    k = lazy.k
    result = custom_vjp(lambda x: x * x)
    result.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * np.maximum(k * x, 1e-7),))
    return result


def _lazy_jvp(lazy: Lazy) -> Any:
    k = lazy.k
    result = custom_jvp(lambda x: x * x)
    result.defjvp(lambda primals, tangents: (primals[0] ** 2, tangents[0] * np.maximum(k * primals[0], 1e-7)))
    return result


def _lazy_jvps(lazy: Lazy) -> Any:
    k = lazy.k
    result = custom_jvp(lambda x: x * x)
    result.defjvps(lambda t, ans, x: t * np.maximum(k * x, 1e-7))
    return result


@pytest.mark.parametrize("make", [_lazy_vjp, _lazy_jvp, _lazy_jvps])
def test_a_rule_that_is_made_in_traced_code_and_kept_holds_in_later_calls(make: Any) -> None:
    lazy = Lazy(make, 3.0)
    derivative = tg.grad(lambda x: lazy(x))
    for x in (3.0, 4.0, 5.0):
        assert derivative(x) == 3.0 * x
    for x in (3.0, 4.0):
        assert (lazy(x), tg.grad(lazy.made)(x)) == (x * x, 3.0 * x)


@pytest.mark.parametrize("transform", [tg.trace, tg.grad, lambda f: tg.grad(tg.grad(f)), tg.vmap])
def test_a_transformed_function_that_is_made_in_traced_code_and_kept_is_right_in_later_calls(transform: Any) -> None:
    def make(lazy: Lazy) -> Any:
        k = lazy.k
        return transform(lambda x: np.maximum(k * x * x * x, 1e-7))

    lazy, plain = Lazy(make, 2.0), Lazy(make, 2.0)
    traced, vector = tg.trace(lambda x: lazy(x)), transform is tg.vmap
    for x in (3.0, 4.0, 5.0):
        args = np.array([x, 1.0]) if vector else x
        np.testing.assert_allclose(traced(args), plain(args))
        np.testing.assert_allclose(lazy(args), plain(args))


@pytest.mark.parametrize("rule", [_lazy_vjp, _lazy_jvp])
@pytest.mark.parametrize("chosen", [[True, False, True, True], [False] * 4, [True] * 4])
def test_a_rule_takes_what_a_mask_chooses(rule: Any, chosen: list[bool]) -> None:
    square, x = rule(Lazy(None, 3.0)), np.array([1.0, 2.0, 3.0, 4.0])
    derivative = tg.grad(lambda x, mask: np.sum(square(x[mask])))
    for mask in (np.array(chosen), ~np.array(chosen)):
        np.testing.assert_array_equal(derivative(x, mask), np.where(mask, 3.0 * x, 0.0))


def test_a_rule_takes_a_part_that_grows_with_a_loop() -> None:
    square = _lazy_vjp(Lazy(None, 3.0))

    def f(x: Any) -> Any:
        total = 0.0
        for i in range(1, len(x)):
            total += np.sum(square(x[:i]))
        return total

    x = np.arange(1.0, 41.0)
    assert tg.trace(f)(x) == sum(np.sum(x[:i] ** 2) for i in range(1, 40))
    np.testing.assert_allclose(tg.grad(f)(x), 3.0 * x * np.arange(39, -1, -1))


CONSTANTS: dict[str, Any] = {
    "a number": lambda x: 3.0,
    "a number of a text": lambda x: float(f"{float(np.sum(x))!r}") ** 2,
    "an array": lambda x: np.array([1.0, 2.0, 3.0]),
    "several": lambda x: (Y, 2.0, x * 2.0),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("role", [custom_vjp, custom_jvp])
def test_the_rule_holds_for_what_a_function_computes_of_numbers_alone(name: str, compiled: bool, role: Any) -> None:
    computed = CONSTANTS[name]
    f = role(lambda x: computed(x))
    if role is custom_vjp:
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (5.0 * x,))
    else:
        f.defjvp(lambda p, t: (f(*p), tg.tree.map(lambda y: y * 0.0 + np.sum(5.0 * p[0] * t[0]), f(*p))))

    def total(x: Any) -> Any:
        return sum(np.sum(y) for y in tg.tree.leaves(f(x)))

    # Each element of what comes out has that derivative, by a rule for tangents.
    count = sum(np.size(y) for y in tg.tree.leaves(computed(X))) if role is custom_jvp else 1
    with jit(compiled):
        np.testing.assert_allclose(tg.grad(total)(X), 5.0 * X * count)
        result = tg.trace(lambda x: f(x))(X)
        assert type(result) is type(f(X))
        tg.tree.map(np.testing.assert_allclose, result, f(X))


def test_a_rule_that_makes_other_constants_each_time_is_recorded_no_more_than_a_few_times() -> None:
    f = custom_jvp(lambda x: np.array([1.0, 2.0, 3.0]))
    f.defjvp(lambda p, t: (f(*p), f(*p) * 0.0 + np.sum(5.0 * p[0] * t[0])))
    with contextlib.suppress(tg.UnsupportedError):
        np.testing.assert_allclose(tg.vmap(tg.grad(lambda x: np.sum(f(x))))(np.stack([X, X]))[1], 15.0 * X)
