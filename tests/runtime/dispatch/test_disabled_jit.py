"""Bodies under `disable_jit`: derivatives pass through all that they pass through when compiled, at each call.

Each body is differentiated eagerly by every transform, and compared with differences of what NumPy makes of it, and
with compiled code.
"""

from __future__ import annotations

import bdb
import contextlib
import functools
import math
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import tracegrad as tg

Array = Any
X = np.array([1.3, 0.7, 2.1])


def filled(x: Array) -> Array:
    out = np.zeros(3)
    for i in range(3):
        out[i] = x[i] ** 2
    return np.sum(out * out)


def filled_from_nothing(x: Array) -> Array:
    out = np.empty(3)
    for i in range(3):
        out[i] = math.sin(x[i])
    return out @ out


def multiplied(x: Array) -> Array:
    out = np.full(3, 2.0)
    out[1:] *= x[1:]
    return np.prod(out) * x[0]


def updated_after_use(x: Array) -> Array:
    a = x * 1.0
    y = a * a
    a += 1
    return np.sum(y * a)


def written_over(x: Array) -> Array:
    a = x * 2.0
    np.exp(a, out=a)
    b = a * a
    np.log(b, out=b)
    return np.sum(a * b)


def running_product(x: Array) -> Array:
    a, total = x.copy(), 0.0
    for _ in range(3):
        a *= x
        total = total + np.sum(a**2)
    return total


def in_a_list(x: Array) -> Array:
    results = []
    for v in x:
        results.append(v * v)
    return np.sum(np.array(results) * x)


def _pair(v: Array) -> Array:
    return np.array([v[0], v[1] ** 2])


def until(x: Array) -> Array:
    y = np.sum(x * x)
    while y < 100.0:
        y = y * x[2]
    return y


class Model:
    def __init__(self) -> None:
        self.w = np.array([1.0, 2.0, 3.0])

    def loss(self, x: Array) -> Array:
        z = np.zeros_like(x)
        z[:] = self.w * x
        return np.sum(z**2)


BODIES: dict[str, Callable[[Array], Array]] = {
    "array": lambda x: np.sum(np.array([x[0], x[1] ** 2]) ** 2),
    "asarray": lambda x: np.sum(np.asarray([x, 2 * x]) ** 2),
    "zeros": filled,
    "empty": filled_from_nothing,
    "full": multiplied,
    "math": lambda x: math.sin(x[0]) * math.exp(x[1]),
    "float": lambda x: float(x[0]) * x[1] * x[0],
    "int": lambda x: int(x[2]) * x[0],
    "item": lambda x: x.item(0) * x[0] + x[1].item() ** 3,
    "tolist": lambda x: sum(v * v for v in x.tolist()),
    "softmax": lambda x: scipy.special.softmax(x)[0],
    "logsumexp": lambda x: scipy.special.logsumexp(x),
    "vectorize": lambda x: np.sum(np.vectorize(lambda v: v * v if v > 1 else v)(x)),
    "r_": lambda x: np.sum(np.r_[x, x[0] * 2] ** 2),
    "c_": lambda x: np.sum(np.c_[x, x**2] ** 2),
    "updated after use": updated_after_use,
    "written over": written_over,
    "running product": running_product,
    "where": lambda x: np.sum(np.where(x > 1, x * x, x)),
    "sort": lambda x: np.sum(np.sort(x)[::-1] * np.array([1.0, 2.0, 3.0])),
    "builtins": lambda x: max(x) * min(x) + sum(x) * abs(x[0]),
    "isinstance": lambda x: np.sum(x * x) if isinstance(x, np.ndarray) else 0 * np.sum(x),
    "helper": lambda x: np.sum(_pair(x) * _pair(x)),
    "comprehension": lambda x: np.sum(np.stack([v**k for k, v in enumerate(x)])),
    "list": in_a_list,
    "method": Model().loss,
    "reduce": lambda x: functools.reduce(lambda a, b: a * b, x),
    "while": until,
    "scan": lambda x: tg.scan(lambda c, r: (c * math.cos(r), np.array([c, r])), x[0], x)[1].sum(),
    "cond": lambda x: tg.cond(x[0] > 1.0, lambda v: float(v) ** 2, lambda v: 3.0 * v, x[0]),
    "while_loop": lambda x: tg.while_loop(lambda c: c < 50.0, lambda c: math.sqrt(c) * 20.0 * x[1], x[0]),
    "checkpoint": lambda x: tg.checkpoint(lambda v: np.array([v[0] * v[1], v[2]]))(x).sum(),
}
# A trace does not know how, and the tape does.
ON_THE_TAPE: dict[str, Callable[[Array], Array]] = {
    "complex": lambda x: np.real((x[0] + 1j * x[1]) * np.conj(x[0] + 1j * x[1])),
    "random": lambda x: np.sum(x * np.random.default_rng(0).normal(size=3)),
}

EYE = np.eye(3)
DERIVATIVES: dict[str, Callable[[Callable[[Array], Array], Array], Array]] = {
    "grad": lambda f, x: tg.grad(f)(x),
    "jvp": lambda f, x: [tg.jvp(f, (x,), (e,))[1] for e in EYE],
    "vjp": lambda f, x: tg.vjp(f, x)[1](1.0)[0],
    "linearize": lambda f, x: [tg.linearize(f, x)[1](e) for e in EYE],
    "jacfwd": lambda f, x: tg.jacfwd(f)(x),
    "vmap": lambda f, x: tg.vmap(lambda e: tg.jvp(f, (x,), (e,))[1])(EYE),
}


def _differences(f: Callable[[Array], Array], x: Array, h: float = 1e-6) -> Array:
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in EYE])


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("name", [*BODIES, *ON_THE_TAPE])
def test_derivatives_pass_through_what_they_pass_through_compiled(name: str, derivative: str) -> None:
    f = {**BODIES, **ON_THE_TAPE}[name]
    with tg.disable_jit():
        result = np.asarray(DERIVATIVES[derivative](f, X))
    np.testing.assert_allclose(result, _differences(f, X), rtol=2e-7, atol=1e-8)
    if name in BODIES:
        np.testing.assert_allclose(result, tg.grad(f)(X), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", BODIES)
def test_second_derivatives(name: str) -> None:
    f = BODIES[name]
    with tg.disable_jit():
        result = tg.hessian(f)(X)
        derivatives = [tg.jvp(tg.grad(f), (X,), (e,))[1] for e in EYE]
    np.testing.assert_allclose(result, _differences(tg.grad(f), X), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(derivatives, result, rtol=1e-12, atol=1e-13)


def test_each_line_runs_at_each_call_as_often_as_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Array) -> Array:
        total = 0.0
        for i in range(3):
            total = total + x[i] * i
            print(f"{i}: {float(total):.1f}")  # noqa: T201
        last, _ = tg.scan(lambda c, r: (print("row", r) or c * r, c), total, x)  # noqa: T201
        return tg.while_loop(lambda c: c < 100.0, lambda c: print("again") or c * 4.0, last)  # noqa: T201

    x = np.array([1.0, 2.0, 3.0])
    with tg.disable_jit():
        for _ in range(2):
            np.testing.assert_allclose(tg.grad(f)(x), 4.0 * np.array([48.0, 30.0, 28.0]))
            rows = [f"row {np.float64(r)}" for r in x]
            assert capsys.readouterr().out.splitlines() == ["0: 0.0", "1: 2.0", "2: 8.0", *rows, "again"]


def test_a_debugger_stops_at_the_lines_of_the_body_and_sees_values() -> None:
    def f(x: Array) -> Array:
        y = x * 2.0
        return np.sum(y * y)

    class Debugger(bdb.Bdb):
        seen: list[str]

        def user_line(self, frame: Any) -> None:
            if frame.f_lineno == line + 2 and frame.f_code.co_filename == __file__:
                self.seen.append(repr(frame.f_locals["y"]))
            self.set_continue()

    line, before = f.__code__.co_firstlineno, sys.gettrace()
    debugger = Debugger()
    debugger.seen = []
    debugger.set_break(__file__, line + 2)
    try:
        with tg.disable_jit():
            for _ in range(2):
                derivative = debugger.runcall(tg.grad(f), np.array([1.0, 2.0]))
    finally:
        sys.settrace(before)
    np.testing.assert_allclose(derivative, [8.0, 16.0])
    assert debugger.seen == ["array([2., 4.])"] * 2


def test_what_the_function_does_outside_is_done_once_at_each_call() -> None:
    log: list[float] = []
    state = {"calls": 0}
    held = np.zeros(3)

    def f(x: Array) -> Array:
        log.append(float(x[0]))
        state["calls"] += 1
        held[:] = 2.0 * x
        return np.sum(held * x)

    with tg.disable_jit():
        for k in range(1, 4):
            np.testing.assert_allclose(tg.grad(f)(k * X), 4 * k * X)
            assert (len(log), log[-1], state["calls"]) == (k, k * X[0], k)
            np.testing.assert_allclose(held, 2 * k * X)


def test_arguments_that_are_updated_are_updated() -> None:
    def f(x: Array) -> Array:
        x *= 2.0
        return np.sum(x * x)

    x = X.copy()
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(x), 8 * X)
    np.testing.assert_allclose(x, 2 * X)


def test_results_are_arrays_of_their_own() -> None:
    x = X.copy()
    with tg.disable_jit():
        value, derivative = tg.value_and_grad(lambda a, b: np.sum(a * b))(x, x)
        (_, saved), _ = tg.value_and_grad(lambda a: (np.sum(a), a[::-1]), has_aux=True)(x)
    x[:] = 0.0
    np.testing.assert_allclose(derivative, X)
    assert derivative.flags.writeable
    assert value == pytest.approx(np.sum(X * X))
    assert saved.base is None or saved.base is not x


def test_what_is_drawn_inside_is_drawn_without_jit_too() -> None:
    def f(x: Array) -> Array:
        return np.sum(x * np.random.default_rng(0).normal(size=3)) * float(x[0])

    noise = np.random.default_rng(0).normal(size=3)
    want = noise * X[0] + np.array([np.sum(X * noise), 0.0, 0.0])
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(X), want, rtol=1e-12)
    np.testing.assert_allclose(tg.grad(f)(X), want, rtol=1e-12)


def test_what_a_trace_would_refuse_to_repeat_has_a_derivative_in_one_call() -> None:
    def f(x: Array) -> Array:
        return np.sum(x) * float(x[0]) * random.random()

    random.seed(3)
    factor = random.random()
    random.seed(3)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(X), factor * (X[0] + np.array([np.sum(X), 0.0, 0.0])), rtol=1e-12)


def test_a_derivative_that_neither_way_knows_raises() -> None:
    with tg.disable_jit(), pytest.raises(tg.UnsupportedError, match=r"np\.busday_count"):
        tg.grad(lambda x: np.sum(x) + np.sum(np.busday_count(x, x)))(X)


def test_the_gradient_of_a_method_of_no_instance_has_its_value() -> None:
    model = Model()
    derivative = tg.grad(Model.loss, argnums=1)
    with tg.disable_jit():
        np.testing.assert_allclose(derivative(model, X), 2 * model.w**2 * X)
    with pytest.warns(tg.PerformanceWarning, match="the argument self is of type Model"):
        np.testing.assert_allclose(derivative(model, X), 2 * model.w**2 * X)
    np.testing.assert_allclose(tg.grad(model.loss)(X), 2 * model.w**2 * X)


def test_what_the_function_raises_is_raised() -> None:
    def f(x: Array) -> Array:
        if x[0] > 1.0:
            raise KeyError("too large")
        return np.sum(np.array([x[0], x[1]]))

    with tg.disable_jit():
        with pytest.raises(KeyError, match="too large"):
            tg.grad(f)(X)
        np.testing.assert_array_equal(tg.grad(f)(X - 1.0), [1.0, 1.0, 0.0])


def _assigned(t: Any) -> Any:
    out = np.zeros(3)
    out[0] = t[0] * 2.0
    return np.sum(out) + np.sum(t)


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "float": lambda t: float(t[0]) + t.sum(),
    "math": lambda t: math.sin(t[0]) + t.sum(),
    "assigned": _assigned,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_taken_of_a_tensor_that_requires_grad_warns(name: str) -> None:
    t = tg.tensor(X, requires_grad=True)
    with pytest.warns(tg.DerivativeWarning, match=r"counts as a constant.*test_disabled_jit.py:\d+"):
        NUMBERS[name](t).backward()
    np.testing.assert_array_equal(t.grad.numpy(), np.ones(3))
    NUMBERS[name](t.detach())
    with tg.no_grad():
        NUMBERS[name](t)


ON_TENSORS: dict[str, Callable[[Any], Any]] = {
    "array": lambda t: np.sum(np.array([t[0], t[1] ** 2]) * t[2]),
    "asarray": lambda t: np.sum(np.asarray(t) ** 3),
    "math": lambda t: math.sin(t[0]) * t[1] + math.hypot(t[1], t[2]),
    "softmax": lambda t: np.sum(scipy.special.softmax(t) * np.arange(3.0)),
    "log_softmax": lambda t: np.sum(scipy.special.log_softmax(t) ** 2),
    "logsumexp": lambda t: scipy.special.logsumexp(np.array([t[0], t[1] * t[2]])),
    "multigammaln": lambda t: scipy.special.multigammaln(t[0] + 4, 2) * t[2],
    "loop": lambda t: sum(math.exp(v) * v for v in t),
}


def _slopes(f: Callable[[Any], Any], second: bool = False) -> Array:
    t = tg.tensor(X, requires_grad=True)
    derivatives = tg.autograd.grad(f(t), t, create_graph=second)[0]
    return (tg.autograd.grad(derivatives.sum(), t)[0] if second else derivatives).numpy()


@pytest.mark.parametrize("name", ON_TENSORS)
@pytest.mark.filterwarnings("error::tracegrad.DerivativeWarning")
def test_a_traced_function_of_tensors_keeps_derivatives_without_jit(name: str) -> None:
    f = ON_TENSORS[name]
    step = 1e-5 * np.eye(3)
    want = np.array([(f(X + d) - f(X - d)) / 2e-5 for d in step])
    with tg.disable_jit():
        got, curved = _slopes(tg.trace(f)), _slopes(tg.trace(f), second=True)
        np.testing.assert_allclose(tg.grad(f)(tg.tensor(X)).numpy(), want, rtol=1e-8)
        np.testing.assert_allclose(tg.trace(f)(tg.tensor(X)), f(X), rtol=1e-12)
        exact = tg.grad(lambda x: np.sum(tg.grad(f)(x)))(X)
    np.testing.assert_allclose(got, want, rtol=1e-8)
    np.testing.assert_allclose(got, _slopes(tg.trace(f)), rtol=1e-12)
    np.testing.assert_allclose(curved, exact, rtol=1e-10, atol=1e-14)  # that of log_softmax is 0, but for rounding


class _Weighted:
    def __init__(self) -> None:
        self.w = tg.tensor(X, requires_grad=True)

    @tg.trace
    def loss(self, x: Array) -> Any:
        return scipy.special.logsumexp(np.array([self.w[0] * x[0], math.sin(self.w[1])]))


def test_a_method_keeps_the_derivatives_of_its_tensors_without_jit() -> None:
    results = []
    for context in (tg.disable_jit(), contextlib.nullcontext()):
        model = _Weighted()
        with context:
            loss = model.loss(X)
        loss.backward()
        results.append(model.w.grad.numpy())
    a, b = np.exp([X[0] ** 2, np.sin(X[1])]) / np.sum(np.exp([X[0] ** 2, np.sin(X[1])]))
    for derivatives in results:
        np.testing.assert_allclose(derivatives, [a * X[0], b * np.cos(X[1]), 0.0], rtol=1e-12)


def test_a_call_on_tensors_that_changes_what_is_outside_is_not_made_twice() -> None:
    log: list[float] = []

    @tg.trace
    def f(t: Any) -> Any:
        log.append(1.0)
        return math.sin(t[0]) * t[1]

    @tg.trace
    def g(t: Any) -> Any:
        log.append(2.0)
        return np.sum(np.array([t[0], t[1]]))

    t = tg.tensor(X, requires_grad=True)
    with tg.disable_jit():
        with pytest.warns(tg.DerivativeWarning, match=r"counts as a constant.*test_disabled_jit.py:\d+"):
            f(t)
        assert log == [1.0]
        with pytest.raises(RuntimeError, match="Can't call numpy"):
            g(t)
        assert log == [1.0, 2.0]


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_a_float_of_a_tensor_in_a_traced_function_warns(eager: bool) -> None:
    t = tg.tensor(X, requires_grad=True)
    warned = pytest.warns(tg.DerivativeWarning, match=r"float\(\) .*constant.*test_disabled_jit.py:\d+")
    with tg.disable_jit() if eager else contextlib.nullcontext(), warned:
        y = tg.trace(lambda t: float(t[0]) * t[1])(t)
    y.backward()
    np.testing.assert_allclose(t.grad.numpy(), [0.0, X[0], 0.0])


def test_an_element_of_a_tensor_that_is_assigned_in_a_traced_function_warns() -> None:
    t = tg.tensor(X, requires_grad=True)
    with pytest.warns(tg.DerivativeWarning, match=r"assigning to an array .*test_disabled_jit.py:\d+"):
        tg.trace(_assigned)(t).backward()
    np.testing.assert_array_equal(t.grad.numpy(), np.ones(3))
    np.testing.assert_allclose(tg.trace(_assigned)(t.detach()), np.sum(X) + 2 * X[0])
