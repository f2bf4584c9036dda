"""Derivatives by the public transforms, against complex steps and finite differences of NumPy."""

import contextlib
import dataclasses
import logging
import math
import warnings

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import ad
from tracegrad.ops.elementwise.table import floor, multiply
from tracegrad.ops.shape.linear import cast
from tracegrad.ops.shape.stack_split import stack
from tracegrad.torch.tape import eager_vjp

RNG = np.random.default_rng(7)


def complex_step(f, *args, argnum=0):
    """The derivative of a scalar NumPy function that is analytic, to rounding error."""
    x = np.asarray(args[argnum], complex)
    result = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        moved = x.copy()
        moved[i] += 1e-30j
        result[i] = np.imag(f(*args[:argnum], moved, *args[argnum + 1 :])) / 1e-30
    return result


def differences(f, x, h=1e-6):
    result = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = h
        result[i] = (f(x + e) - f(x - e)) / (2 * h)
    return result


def loss(w, x, y):
    return np.mean((np.tanh(x @ w) * np.exp(-(w**2)).sum() - y) ** 2)


W, X, Y = RNG.normal(size=3), RNG.normal(size=(5, 3)), RNG.normal(size=5)


@pytest.mark.parametrize("argnum", [0, 1, 2, -1])
def test_grad_is_the_derivative_for_each_argument(argnum):
    expected = complex_step(loss, W, X, Y, argnum=argnum % 3)
    np.testing.assert_allclose(tg.grad(loss, argnums=argnum)(W, X, Y), expected, rtol=1e-12, atol=1e-14)


def test_value_and_grad_gives_both_and_a_tuple_for_several_argnums():
    value, (gx, gw) = tg.value_and_grad(loss, argnums=(1, 0))(W, X, Y)
    assert value == pytest.approx(loss(W, X, Y), rel=1e-14)
    np.testing.assert_allclose(gw, complex_step(loss, W, X, Y), rtol=1e-12)
    np.testing.assert_allclose(gx, complex_step(loss, W, X, Y, argnum=1), rtol=1e-11, atol=1e-15)


def test_both_gradients_of_a_quotient_take_one_division():
    def ratio(x, y):
        return np.sum(np.sin(x / y))

    x, y = RNG.normal(size=4), RNG.uniform(1, 2, size=4)
    f = tg.grad(ratio, argnums=(0, 1))
    assert sum(node.name == "divide" for node in f.explain(x, y).optimized.nodes) == 2  # x / y is another
    for argnum, got in enumerate(f(x, y)):
        np.testing.assert_allclose(got, complex_step(ratio, x, y, argnum=argnum), rtol=1e-13)


def test_everything_inside_is_one_trace_and_one_program():
    inner = tg.trace(loss)
    f = tg.value_and_grad(inner)
    for _ in range(3):
        f(W, X, Y)
    assert f.cache_info().traces == 1
    assert inner.cache_info().traces == 0


@dataclasses.dataclass
class Layer:
    w: np.ndarray
    b: np.ndarray


def test_gradients_have_the_structure_shape_and_dtype_of_their_argument():
    params = {
        "layers": [Layer(RNG.normal(size=(3, 2)).astype(np.float32), np.zeros(2)), None],
        "scale": 2.0,
        "s": np.float32(1.5),
    }

    def f(p, x):
        layer = p["layers"][0]
        return np.sum(np.tanh(x @ layer.w + layer.b) * p["scale"] * p["s"])

    g = tg.grad(f)(params, X)
    assert isinstance(g["layers"][0], Layer)
    assert g["layers"][1] is None
    assert g["layers"][0].w.dtype == np.float32
    assert g["layers"][0].w.shape == (3, 2)
    assert g["s"].dtype == np.float32
    assert g["scale"] == pytest.approx(f(params, X) / 2, rel=1e-6)
    np.testing.assert_allclose(
        g["layers"][0].b,
        differences(lambda b: f({**params, "layers": [Layer(params["layers"][0].w, b)]}, X), np.zeros(2)),
        rtol=1e-7,
    )


def test_aux_is_returned_beside_the_gradient():
    def f(x):
        y = np.sin(x)
        return y.sum(), {"y": y, "name": "f", "n": 3}

    g, aux = tg.grad(f, has_aux=True)(W)
    np.testing.assert_allclose(g, np.cos(W), rtol=1e-14)
    np.testing.assert_allclose(aux["y"], np.sin(W), rtol=1e-14)
    assert (aux["name"], aux["n"]) == ("f", 3)
    (value, _), g = tg.value_and_grad(f, has_aux=True)(W)
    assert value == pytest.approx(np.sin(W).sum())


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_grad_nests_to_any_order(order):
    g = lambda x: x * np.exp(2 * x)  # noqa: E731
    for _ in range(order):
        g = tg.grad(g)
    x = 0.3
    assert g(x) == pytest.approx((2**order * x + order * 2 ** (order - 1)) * math.exp(2 * x), rel=1e-12)
    assert g.cache_info().traces == 1


def test_second_derivatives_of_a_vector_function_are_one_program():
    hessian_times_ones = tg.grad(lambda w: tg.grad(loss)(w, X, Y).sum())
    step = 1e-5
    expected = [
        (complex_step(loss, W + step * e, X, Y).sum() - complex_step(loss, W - step * e, X, Y).sum()) / (2 * step)
        for e in np.eye(3)
    ]
    np.testing.assert_allclose(hessian_times_ones(W), expected, rtol=1e-7)
    assert hessian_times_ones.cache_info().traces == 1


def test_inner_and_outer_derivatives_are_not_confused():
    # d/dx (x * d/dy (x + y)) = 1, the example of Siskind and Pearlmutter (2005).
    assert tg.grad(lambda x: x * tg.grad(lambda y: x + y)(1.0))(1.0) == 1.0
    assert tg.grad(lambda x: x * tg.grad(lambda y: x * y)(x))(3.0) == 6.0


def test_the_same_array_as_two_arguments_has_two_derivatives():
    x = np.array([2.0, 3.0])
    a, b = tg.grad(lambda a, b: np.sum(a * b * b), argnums=(0, 1))(x, x)
    np.testing.assert_array_equal(a, x * x)
    np.testing.assert_array_equal(b, 2 * x * x)


def test_a_value_that_does_not_depend_on_the_argument_has_the_gradient_zero():
    for f in (lambda x, y: np.sum(y), lambda x, y: 3.0, lambda x, y: np.sum(np.floor(x)), lambda x, y: np.float64(2.0)):
        np.testing.assert_array_equal(tg.grad(f)(W, Y), np.zeros(3))


def test_python_floats_can_be_differentiated_and_ints_cannot():
    assert tg.grad(lambda x: x**3)(2.0) == 12.0
    with pytest.raises(tg.DTypeError, match=r"real- or complex-valued inputs \(3\.0, not 3\), got int at x "):
        tg.grad(lambda x: x**3)(2)


def test_stop_gradient_holds_its_argument_constant():
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(x * tg.stop_gradient({"a": x * x})["a"]))(W), W * W, rtol=1e-15)
    np.testing.assert_array_equal(tg.stop_gradient(W), W)


def test_in_place_updates_and_loops_are_differentiated():
    def f(x):
        y = np.zeros(3)
        y[0] = x[2]
        for i in range(1, 3):
            y[i] = np.sin(y[i - 1]) * x[i]
            y *= 1.5
        return y.sum()

    np.testing.assert_allclose(tg.grad(f)(W), differences(f, W), rtol=1e-7)


def test_grad_of_a_function_remembers_its_programs():
    def f(x):
        return np.sum(x * x)

    assert tg.grad(f) is tg.grad(f)
    assert tg.grad(f) is not tg.grad(f, has_aux=True)
    assert tg.value_and_grad(tg.trace(f)) is not tg.value_and_grad(f)

    import functools

    @functools.wraps(f)
    def wrapped(x):
        return 3 * f(x)

    np.testing.assert_array_equal(tg.grad(wrapped)(W), 6 * W)


def test_static_arguments_of_a_traced_function_stay_static():
    @tg.trace(static_argnames=("power", "mode"))
    def f(x, power, *, mode="sum"):
        return np.sum(x**power) if mode == "sum" else np.mean(x**power)

    np.testing.assert_allclose(tg.grad(f)(W, 3), 3 * W**2, rtol=1e-14)
    np.testing.assert_allclose(tg.grad(f)(W, power=2, mode="mean"), 2 * W / 3, rtol=1e-14)
    with pytest.raises(ValueError, match=r"argnums names power, which is a static argument"):
        tg.grad(f, argnums=1)


def test_the_differentiated_argument_may_be_given_by_keyword():
    np.testing.assert_allclose(tg.grad(loss)(x=X, y=Y, w=W), tg.grad(loss)(W, X, Y), rtol=1e-15)
    inside = tg.trace(lambda w: tg.grad(loss, argnums=1)(w, y=Y, x=X))
    np.testing.assert_allclose(inside(W), tg.grad(loss, argnums=1)(W, X, Y), rtol=1e-15)


# -- vjp --------------------------------------------------------------------------------------------------
def test_vjp_pulls_cotangents_back_through_pytrees():
    def f(a, b):
        return {"product": a * b, "parts": (a.sum(), [b])}

    a, b = RNG.normal(size=3), RNG.normal(size=3)
    out, vjp_fn = tg.vjp(f, a, b)
    np.testing.assert_array_equal(out["product"], a * b)
    u, v = RNG.normal(size=3), RNG.normal(size=3)
    for _ in range(2):
        ct_a, ct_b = vjp_fn({"product": u, "parts": (2.0, [v])})
        np.testing.assert_allclose(ct_a, u * b + 2, rtol=1e-14)
        np.testing.assert_allclose(ct_b, u * a + v, rtol=1e-14)


def test_vjp_keeps_the_primals_it_was_given():
    x = W.copy()
    _, vjp_fn = tg.vjp(lambda x: x * x, x)
    x[:] = 100.0
    np.testing.assert_allclose(vjp_fn(np.ones(3))[0], 2 * W, rtol=1e-15)


def test_vjp_with_aux_and_inside_a_trace():
    _, vjp_fn, aux = tg.vjp(lambda x: (np.sin(x), "aux"), W, has_aux=True)
    assert aux == "aux"
    np.testing.assert_allclose(vjp_fn(np.ones(3))[0], np.cos(W), rtol=1e-14)

    @tg.trace
    def f(x, u):
        _, pull = tg.vjp(np.tanh, x)
        return pull(u)[0], pull(2 * u)[0]

    one, two = f(W, Y[:3])
    np.testing.assert_allclose(one, (1 - np.tanh(W) ** 2) * Y[:3], rtol=1e-13)
    np.testing.assert_allclose(two, 2 * one, rtol=1e-14)


def test_vjp_of_integer_outputs_ignores_their_cotangent():
    out, vjp_fn = tg.vjp(lambda x: (x * 2, np.argmax(x)), W)
    assert out[1] == np.argmax(W)
    np.testing.assert_array_equal(vjp_fn((np.ones(3), 0))[0], 2 * np.ones(3))


@pytest.mark.parametrize(
    ("ct", "message"),
    [
        (np.ones(4), r"cotangent has shape \(4,\), the output has shape \(3,\)"),
        ({"a": np.ones(3)}, "cotangent must be an array|structures differ|cotangent"),
        (np.ones(3, int), "must be floating"),
    ],
)
def test_a_cotangent_that_does_not_fit_is_refused(ct, message):
    _, vjp_fn = tg.vjp(np.sin, W)
    with pytest.raises((tg.ShapeError, TypeError), match=message):
        vjp_fn(ct)


# -- eager ------------------------------------------------------------------------------------------------
def test_eager_and_compiled_derivatives_agree():
    def f(p, x):
        return np.sum(np.tanh(x @ p["w"]) ** 2) * p["s"], {"mean": np.mean(x @ p["w"])}

    params = {"w": W, "s": 0.5}
    compiled = tg.value_and_grad(f, has_aux=True)(params, X)
    with tg.disable_jit():
        eager = tg.value_and_grad(f, has_aux=True)(params, X)
        second = tg.grad(lambda w: tg.grad(loss)(w, X, Y).sum())(W)
        _, vjp_fn = tg.vjp(lambda x: {"y": np.sin(x)}, W)
        (pulled,) = vjp_fn({"y": np.ones(3)})
    for a, b in zip(tg.tree.leaves(compiled), tg.tree.leaves(eager), strict=True):
        assert type(a) is type(b)
        np.testing.assert_allclose(a, b, rtol=1e-13)
    np.testing.assert_allclose(tg.grad(lambda w: tg.grad(loss)(w, X, Y).sum())(W), second, rtol=1e-12)
    np.testing.assert_allclose(pulled, np.cos(W), rtol=1e-14)


def test_a_traced_function_called_on_tensors_is_on_their_tape():
    t = tg.tensor(W, requires_grad=True)
    tg.trace(loss)(t, X, Y).backward()
    np.testing.assert_allclose(t.grad.numpy(), tg.grad(loss)(W, X, Y), rtol=1e-13)


def test_float32_stays_float32_forwards_and_backwards():
    f = tg.value_and_grad(lambda w, x, s: np.mean(np.tanh(x @ w) * s) * 2)
    value, g = f(W.astype(np.float32), X.astype(np.float32), 0.5)
    assert value.dtype == g.dtype == np.float32
    np.testing.assert_allclose(g, complex_step(lambda w: np.mean(np.tanh(X @ w) * 0.5) * 2, W), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("transform", [tg.grad, tg.value_and_grad, tg.jacrev, tg.jacfwd, tg.hessian])
def test_a_number_taken_of_what_is_differentiated_raises(eager, transform):
    raised = pytest.raises(
        tg.LostDerivativeError, match=r"remainder takes .*stop_gradient.*custom_vjp.*test_grad.py:\d+"
    )
    with tg.disable_jit() if eager else contextlib.nullcontext(), raised:
        transform(lambda x: np.sum(x) * math.remainder(x[0], 7.0))(np.array([1.0, 2.0]))


NUMBERS_OF = {
    "float": lambda x: float(np.sum(x**2)),
    "item": lambda x: np.sum(x) * np.max(x).item(),
    "tolist": lambda x: np.sum(x) * sum(x.tolist()),
}


def test_on_the_tape_float_raises_and_item_and_tolist_keep_the_derivative():
    x = np.array([1.0, 2.0])
    with pytest.raises(tg.LostDerivativeError, match=r"float\(\) takes .*test_grad.py:\d+"):
        eager_vjp(lambda x: [NUMBERS_OF["float"](x)], [x])
    for name, want in {"item": [2.0, 5.0], "tolist": [6.0, 6.0]}.items():
        _, pullback = eager_vjp(lambda x, name=name: [NUMBERS_OF[name](x)], [x])
        np.testing.assert_array_equal(pullback([1.0])[0], want)


def test_what_a_tensor_leads_to_on_a_tape_is_no_part_of_a_gradient_for_ndarrays():
    net = tg.nn.Linear(2, 1)
    weight, bias = net.weight.detach().numpy(), net.bias.detach().numpy()
    x = np.array([[1.0, 2.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = tg.grad(lambda z: (net(z) ** 2).sum())(x)
        held = tg.tensor([1.0, 2.0], requires_grad=True).detach()
        number = tg.grad(lambda z: float((held * z).sum()) * z[0])(np.array([3.0, 4.0]))
    np.testing.assert_allclose(got, 2 * (x @ weight.T + bias) @ weight, rtol=1e-6)
    np.testing.assert_allclose(number, [3.0 + 11.0, 6.0])


TOLD = {
    "%": lambda x: "%.3f" % x.sum(),  # noqa: UP031
    "format": lambda x: f"{x.sum():.3f}",
    "repr": lambda x: repr(x.sum()),
    "compared": lambda x: x.sum() > 2.0 and x[0] == 1.0,
    "int": lambda x: [1, 2, 3, 4][int(x.sum())],
    "log": lambda x: logging.getLogger("quiet").debug("%f", x.sum()),
}


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_what_is_only_told_compared_or_an_index_loses_nothing(name, eager):
    def f(x):
        TOLD[name](x)
        return np.sum(x**2)

    x = np.array([1.0, 2.0])
    with tg.disable_jit() if eager else contextlib.nullcontext():
        np.testing.assert_array_equal(tg.grad(f)(x), [2.0, 4.0])
    _, pullback = eager_vjp(lambda x: [f(x)], [x])
    np.testing.assert_array_equal(pullback([1.0])[0], [2.0, 4.0])


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_a_lost_derivative_that_the_function_catches_is_an_error_all_the_same(eager):
    def f(x):
        try:
            return np.sum(x) * math.nextafter(x[0], 7.0)
        except TypeError:
            return np.sum(x)

    with tg.disable_jit() if eager else contextlib.nullcontext(), pytest.raises(tg.LostDerivativeError):
        tg.grad(f)(np.array([1.0, 2.0]))


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_numbers_that_need_no_derivative_do_not_warn(eager):
    def f(x, y):
        small = float(tg.stop_gradient(x)) < 3.0 and int(x) < 3 and x > 0
        return x * y * float(y) if small else x

    def after(x):
        value, derivative = tg.value_and_grad(lambda v: v * v)(x)
        return x * float(derivative) + float(value)

    with tg.disable_jit() if eager else contextlib.nullcontext():
        assert tg.grad(f)(2.0, 3.0) == 9.0
        assert tg.trace(after)(2.0) == 12.0
        assert tg.trace(lambda x: float(np.sum(x)))(np.ones(3)) == 3.0


def test_functions_of_math_and_imports_inside_have_derivatives():
    def f(x):
        import math as m
        from math import sqrt

        import numpy as n

        out = n.zeros(2)
        out[0] = sqrt(x) * m.erf(x)
        out[1] = m.exp(x)
        return n.sum(out)

    derivative = math.erf(0.5) / (2 * math.sqrt(0.5)) + math.sqrt(0.5) * 2 / math.sqrt(math.pi) * math.exp(-0.25)
    np.testing.assert_allclose(tg.grad(f)(0.5), derivative + math.exp(0.5), rtol=1e-14)


def test_scalars_are_immutable_in_eager_derivatives_too():
    def f(x):
        total = old = np.sum(x)
        total += 1.0
        return total * old

    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(tg.grad(f)(x), [7.0, 7.0], rtol=1e-15)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(x), [7.0, 7.0], rtol=1e-15)


BRANCHES = {
    "sqrt": lambda x: np.where(x > 0, np.sqrt(x), 0.0),
    "x log x": lambda x: np.where(x > 0, x * np.log(x), 0.0),
    "1 / x": lambda x: np.where(x != 0, 1 / x, 0.0),
    "nested": lambda x: np.where(x > 0, np.where(x > 1, np.log(x), x), 0.0),
    "through views": lambda x: np.where(x > 0, np.exp(np.sqrt(np.reshape(x, (3, 1)))).T[:, ::-1][:, ::-1], 1.0),
    "through a broadcast": lambda x: np.where(x[:, None] > 0, np.broadcast_to(np.sqrt(x)[:, None], (3, 2)), 0.0),
    "used outside too": lambda x: np.where(x > 0, np.sqrt(x), 0.0) + np.where(x > 0, 0.0, x * x) * x,
}


@pytest.mark.parametrize("name", BRANCHES)
def test_where_never_leaks_nan_from_the_branch_not_taken(name):
    def total(x):
        return np.sum(BRANCHES[name](x))

    x = np.array([-1.0, 0.0, 4.0])
    first = tg.grad(total)
    for derivative in (first, tg.grad(lambda p: np.sum(first(p)))):
        compiled = derivative(x)
        with tg.disable_jit():
            np.testing.assert_allclose(derivative(x), compiled, rtol=1e-12)
        assert np.isfinite(compiled).all()
    step = 1e-6
    away = np.array([-1.0, 0.5, 4.0])  # from the jump of the branch, where differences tell nothing
    with np.errstate(invalid="ignore", divide="ignore"):
        derivatives = [(total(away + step * e) - total(away - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(first(away), derivatives, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_rule_for_all_operands_is_asked_once(compiled, monkeypatch):
    asked = []
    rule = stack._vjp_all

    def counted(wanted, *args, **params):
        asked.append(len(wanted))
        return rule(wanted, *args, **params)

    monkeypatch.setattr(stack, "_vjp_all", counted)
    if compiled:
        gradient = tg.grad(lambda x: np.sum(np.stack([np.sin(x[k]) for k in range(7)]) ** 3))(np.arange(7.0))
    else:
        xs = [tg.tensor(float(k), dtype=tg.float64, requires_grad=True) for k in range(7)]
        (tg.stack([tg.sin(x) for x in xs]) ** 3).sum().backward()
        gradient = [x.grad.item() for x in xs]
    x = np.arange(7.0)
    np.testing.assert_allclose(gradient, 3 * np.sin(x) ** 2 * np.cos(x), rtol=1e-12)
    assert set(asked) == {7}


def test_a_cotangent_that_is_zero_moves_through_what_is_gathered_behind_a_choice():
    def f(x):
        return np.sum(np.where(np.array([True, False, True]), (x * 3.0)[np.array([0, 0, 1])], 0.0) ** 2)

    assert np.array_equal(tg.hessian(f)(np.zeros(3)), np.diag([18.0, 18.0, 0.0]))
    with tg.disable_jit():
        moved = tg.jvp(tg.grad(f), (np.zeros(3),), (np.array([1.0, 2.0, 3.0]),))[1]
    assert np.array_equal(moved, [18.0, 36.0, 0.0])


def test_receivers_are_the_operands_that_a_derivative_flows_through_to_floating_answers():
    x, y = np.ones(3), np.full(3, 2.0)
    product = multiply(x, y)
    whole = cast(product, dtype="int64")
    tape = [
        (product, multiply, (x, y), {}),
        (whole, cast, (product,), {"dtype": "int64"}),
        (floor(product), floor, (product,), {}),
        (multiply(product, product), multiply, (product, product), {}),
        (multiply(y, 2.0), multiply, (y, 2.0), {}),
    ]
    assert list(map(list, ad.receivers(tape, [x]))) == [[0], [], [], [0, 1], []]
    (ct,) = [ad.reverse_sweep(tape[:1], ad.receivers(tape[:1], [x]), {id(product): y})[id(x)]]
    assert ct.tolist() == [4.0, 4.0, 4.0]
