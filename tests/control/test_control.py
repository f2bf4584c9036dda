"""Control functions: the same values and derivatives compiled and as Python's loops, whatever they are nested in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import CapacityError, ShapeError, TraceError

x = np.linspace(0.3, 0.9, 4)
rows = np.linspace(-1.0, 1.0, 28).reshape(7, 4)
matrix = np.sin(np.arange(16.0)).reshape(4, 4)


# Scalar functions of one vector, each with another use of control flow.
def _carry_and_results(v: Any) -> Any:
    last, ys = tg.scan(lambda c, r: (np.sin(c * r) + v, c * c), v, rows)
    return last.sum() + (ys * rows).sum()


def _backwards(v: Any) -> Any:
    last, ys = tg.scan(lambda c, r: (c * 0.5 + r * v, c), v, rows, reverse=True)
    return (last * ys[2]).sum()


def _counter(v: Any) -> Any:
    return tg.fori_loop(2, 9, lambda i, c: c + v * i / (1.0 + c * c), v).sum()


def _pytrees(v: Any) -> Any:
    def turn(carry: Any, row: Any) -> Any:
        state = {"h": np.tanh(matrix @ carry["h"] + row["a"]), "n": carry["n"] + 1, "total": carry["total"] + row["b"]}
        return state, (state["h"] * state["n"], row["b"])

    carry, (hs, bs) = tg.scan(turn, {"h": v, "n": 0, "total": 0.0}, {"a": rows, "b": rows[:, 0]})
    return carry["h"].sum() * carry["total"] + hs.sum() + (bs * np.arange(7.0)).sum()


def _only_results(v: Any) -> Any:
    return tg.map(lambda r: np.sum(np.exp(r * v)), rows).sum()


def _resetting_carry(v: Any) -> Any:
    # What comes in is used in the first iteration alone, and what goes out does not depend on it.
    (a, _), ys = tg.scan(lambda c, r: ((c[0] * v, r), c[0] * c[1]), (v, v), rows)
    return a.sum() + ys.sum()


def _while(v: Any) -> Any:
    return tg.while_loop(lambda c: np.sum(c) < 40.0, lambda c: c * 1.5 + v, v).sum()


def _newton(v: Any) -> Any:
    def step(state: Any) -> Any:
        root, _, n = state
        new = 0.5 * (root + np.sum(v) / root)
        return new, np.abs(new - root), n + 1

    return tg.while_loop(lambda s: s[1] > 1e-12, step, (1.0, 1.0, 0))[0]


def _choice(v: Any) -> Any:
    return tg.cond(np.sum(v) > 1.0, lambda a, b: np.sin(a) * b, lambda a, b: a - b, v, 2.0 * v).sum()


def _other_choice(v: Any) -> Any:
    return tg.cond(np.sum(v) > 100.0, lambda a: np.sum(np.log(-a)), lambda a: np.sum(a**3), v)


def _switched(v: Any) -> Any:
    index = (np.sum(v) * 0.9).astype(np.int64)
    return tg.switch(index, [lambda a: a, np.sin, lambda a: a * v, lambda a: a], v).sum()


def _nested(v: Any) -> Any:
    def outer(c: Any, r: Any) -> Any:
        inner = tg.fori_loop(0, 3, lambda i, a: np.sin(a) * v + r * c, r)
        chosen = tg.cond(np.sum(inner) > 0.0, lambda a: a * c, lambda a: a + v, inner)
        return tg.while_loop(lambda a: np.max(np.abs(a)) > 1.0, lambda a: a * 0.5 + 0.01 * v, chosen), c[0]

    last, firsts = tg.scan(outer, v, rows)
    return last.sum() + firsts.sum()


def _no_iterations(v: Any) -> Any:
    last, ys = tg.scan(lambda c, r: (c * r, c + r), v, rows[:0])
    assert ys.shape == (0, 4)
    return last.sum() + ys.sum()


def _running(v: Any) -> Any:
    products = tg.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (rows, rows * v))
    return (products[1] * rows).sum() + tg.associative_scan(np.multiply, v, reverse=True).sum()


def _in_place(v: Any) -> Any:
    def turn(c: Any, r: Any) -> Any:
        y = c.copy()
        y[1:] += r[:-1] * c[1:]
        y[0] = v[0] * c[3]
        return y, y[::2]

    last, ys = tg.scan(turn, v, rows)
    return last.sum() + (ys**2).sum()


FUNCTIONS = [
    _carry_and_results,
    _backwards,
    _counter,
    _pytrees,
    _only_results,
    _resetting_carry,
    _while,
    _newton,
    _choice,
    _other_choice,
    _switched,
    _nested,
    _no_iterations,
    _running,
    _in_place,
]
every_function = pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__.strip("_"))


def slopes(f: Callable[[Any], Any], v: Any, direction: Any) -> float:
    """The derivative of `f` along a direction, by central differences of fourth order."""
    h = 1e-3
    points = [f(v + k * h * direction) for k in (-2, -1, 1, 2)]
    return float((points[0] - 8 * points[1] + 8 * points[2] - points[3]) / (12 * h))


@every_function
def test_compiled_control_computes_what_python_does(f: Any) -> None:
    compiled = tg.trace(f)
    np.testing.assert_allclose(compiled(x), f(x), rtol=1e-13)
    np.testing.assert_allclose(compiled(x * 0.7), f(x * 0.7), rtol=1e-13)
    assert compiled.cache_info().traces == 1


@every_function
def test_gradients_agree_with_differences_and_with_the_tape(f: Any) -> None:
    gradient = tg.grad(f)(x)
    for seed in range(2):
        direction = np.random.default_rng(seed).normal(size=4)
        np.testing.assert_allclose(gradient @ direction, slopes(f, x, direction), rtol=1e-7, atol=1e-9)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(x), gradient, rtol=1e-12, atol=1e-14)


@every_function
def test_tangents_agree_with_gradients_compiled_and_eager(f: Any) -> None:
    direction = np.random.default_rng(3).normal(size=4)
    value, tangent = tg.jvp(f, (x,), (direction,))
    np.testing.assert_allclose(value, f(x), rtol=1e-13)
    np.testing.assert_allclose(tangent, tg.grad(f)(x) @ direction, rtol=1e-11, atol=1e-13)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.jvp(f, (x,), (direction,))[1], tangent, rtol=1e-11, atol=1e-13)


@every_function
def test_both_modes_nest_in_every_order(f: Any) -> None:
    one, two = np.random.default_rng(4).normal(size=(2, 4))
    forward_over_reverse = tg.jvp(tg.grad(f), (x,), (one,))[1] @ two
    reverse_over_forward = tg.grad(lambda v: tg.jvp(f, (v,), (one,))[1])(x) @ two
    forward_twice = tg.jvp(lambda v: tg.jvp(f, (v,), (one,))[1], (x,), (two,))[1]
    reverse_twice = tg.grad(lambda v: np.sum(tg.grad(f)(v) * one))(x) @ two
    results = [forward_over_reverse, reverse_over_forward, forward_twice]
    np.testing.assert_allclose(results, reverse_twice, rtol=1e-9, atol=1e-11)


@every_function
def test_second_derivatives_agree_with_differences_of_first(f: Any) -> None:
    weight = np.array([1.0, -2.0, 0.5, 3.0])
    first = tg.grad(f)
    result = tg.grad(lambda v: np.sum(tg.grad(f)(v) * weight))(x)
    direction = np.random.default_rng(2).normal(size=4)
    want = slopes(lambda v: first(v) @ weight, x, direction)
    np.testing.assert_allclose(result @ direction, want, rtol=1e-6, atol=1e-8)


@every_function
def test_batches_agree_with_calls_one_by_one(f: Any) -> None:
    points = x * np.array([[1.0], [0.7], [1.6]])
    np.testing.assert_allclose(tg.vmap(f)(points), [f(v) for v in points], rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(points), [tg.grad(f)(v) for v in points], rtol=1e-10, atol=1e-12)


# -- what a loop costs ----------------------------------------------------------------------
def test_sums_that_a_iteration_writes_in_both_orders_get_their_cotangents_once() -> None:
    def f(v: Any) -> Any:
        return tg.fori_loop(0, 3, lambda i, s: ((s[0] - s[1]) * (s[0] + s[1]) - (s[1] + s[0]), s[0]), (v, 2.0 * v))[
            0
        ].sum()

    ones = np.ones(4)
    np.testing.assert_allclose(tg.grad(f)(x) @ ones, slopes(f, x, ones), rtol=1e-7)


def test_a_loop_is_one_node_whatever_the_number_of_iterations() -> None:
    def f(v: Any, n: int) -> Any:
        return tg.fori_loop(0, n, lambda i, c: np.sin(c) * i, v)

    few, many = (tg.trace(f, static_argnums=1).graph(x, n) for n in (3, 3000))
    assert len(few.nodes) == len(many.nodes) == 3


def test_an_array_as_bound_of_a_loop_is_no_part_of_the_trace() -> None:
    loop = tg.trace(lambda v, n: tg.fori_loop(0, n, lambda i, c: c + v * i, v))
    assert [loop(1.0, n) for n in (0, 3, 10)] == [1.0, 4.0, 46.0]
    assert loop.cache_info().traces == 1


def test_only_the_branch_that_is_chosen_runs() -> None:
    def f(v: Any) -> Any:
        return tg.cond(v > 0.0, lambda a: tg.while_loop(lambda b: b < 10.0, lambda b: b * 2.0, a), lambda a: a, v)

    assert tg.trace(f)(-1.0) == -1.0  # the loop of the other branch would not end


def test_the_derivative_of_a_while_loop_finds_room_for_any_number_of_iterations() -> None:
    def f(v: Any, n: Any) -> Any:
        return tg.while_loop(lambda s: s[1] < n, lambda s: (s[0] * v, s[1] + 1), (1.0, 0))[0]

    gradient = tg.grad(f)
    for n in (0, 3, 127, 128, 129, 3000):
        assert gradient(1.0001, n) == pytest.approx(n * 1.0001 ** (n - 1), rel=1e-11)
    assert gradient.cache_info().traces <= 3


def test_a_loop_over_numbers_keeps_them_numbers() -> None:
    total = tg.trace(lambda n: tg.fori_loop(0, 4, lambda i, c: c + i, n))(3)
    assert type(total) is int
    assert total == 9
    halves = tg.trace(lambda v: tg.scan(lambda c, r: (c * 0.5, c), 1.0, v)[1])(np.ones(3, np.float32))
    assert halves.dtype == np.float64
    mixed = tg.trace(lambda v: tg.scan(lambda c, r: (c + r, c), 0, v)[0])(np.ones(3, np.float32))
    assert mixed.dtype == np.float32
    assert mixed == 3.0


def test_arrays_from_outside_are_read_again_at_each_call() -> None:
    weights = np.ones(4)
    f = tg.trace(lambda v: tg.scan(lambda c, r: (c * weights + r, None), v, rows)[0])
    before = f(x)
    weights[:] = 2.0
    after = f(x)
    assert f.cache_info().traces == 1
    assert not np.allclose(before, after)
    weights[:] = 1.0
    np.testing.assert_array_equal(f(x), before)


# -- errors ----------------------------------------------------------------------
def test_a_question_for_a_value_inside_names_what_to_use() -> None:
    def f(v: Any) -> Any:
        return tg.scan(lambda c, r: (c if c[0] > 0 else r, None), v, rows)[0]

    with pytest.raises(TraceError, match=r"bool\(\) of a value inside the body of a scan.*tg\.cond.*test_control\.py"):
        tg.trace(f)(x)
    with pytest.raises(TraceError, match="the condition of a while_loop"):
        tg.trace(lambda v: tg.while_loop(lambda c: bool(c[0] > 0), lambda c: c - 1.0, v))(x)


BAD: list[tuple[Callable[[Any], Any], Any, str]] = [
    (lambda v: tg.scan(lambda c, r: c, v, rows), TypeError, r"must return a pair \(carry, y\)"),
    (lambda v: tg.scan(lambda c, r: ((c, c), r), v, rows), TypeError, "structure of the initial one"),
    (lambda v: tg.scan(lambda c, r: (c[:2], r), v, rows), TypeError, r"comes in as f64\[4\] and goes out as f64\[2\]"),
    (lambda v: tg.scan(lambda c, r: (c, r), v), ValueError, "needs xs or length"),
    (lambda v: tg.scan(lambda c, r: (c, r), v, (rows, v)), ShapeError, "different numbers of rows: .*has 7.*has 4"),
    (lambda v: tg.scan(lambda c, r: (c, r), v, 1.0), ShapeError, "xs has no axis"),
    (lambda v: tg.while_loop(lambda c: c > 0.0, lambda c: c, v), TypeError, "must return one truth value"),
    (lambda v: tg.while_loop(lambda c: v[0] > 0.0, lambda c: (c, c), v), TypeError, "structure of the initial one"),
    (lambda v: tg.cond(v > 0.0, np.sin, np.cos, v), TypeError, "pred must be one value"),
    (
        lambda v: tg.cond(v[0] > 0.0, lambda a: a, lambda a: (a, a), v),
        TypeError,
        "must return a value of the structure",
    ),
    (lambda v: tg.cond(v[0] > 0.0, lambda a: a, lambda a: a[:2], v), TypeError, "must agree, but the result"),
    (lambda v: tg.switch(v[0], [np.sin], v), TypeError, "the index must be an integer"),
    (lambda v: tg.switch(1, [], v), ValueError, "at least one branch"),
    (lambda v: tg.associative_scan(3, v), TypeError, "must be a function"),
]


@pytest.mark.parametrize(("f", "error", "message"), BAD)
def test_what_does_not_fit_is_refused_by_name(f: Any, error: Any, message: str) -> None:
    compiled = tg.trace(f)
    for _ in range(2):
        with pytest.raises(error, match=message):
            compiled(x)


def test_an_update_of_an_array_from_outside_of_a_loop_is_refused() -> None:
    def f(v: Any) -> Any:
        total = np.zeros(4)

        def turn(i: Any, c: Any) -> Any:
            total[:] = c
            return c + 1.0

        return tg.fori_loop(0, 3, turn, v) + total

    with pytest.raises(tg.UnsupportedError, match="in-place update"):
        tg.trace(f)(x)


def test_a_loop_that_needs_room_says_how_much_there_was() -> None:
    from tracegrad.control import while_loop

    (operands, params), *_ = [case for case in while_loop.sample_cases() if case[1]["capacity"]]
    with pytest.raises(CapacityError, match="more than 1 iterations"):
        while_loop(*operands, **{**params, "capacity": 1})


# -- checkpoints ----------------------------------------------------------------------
def _layer(v: Any) -> Any:
    return np.tanh(tg.checkpoint_name(v @ matrix, "product")) * np.sin(v)


POLICIES = {
    "default": None,
    "nothing": tg.checkpoint_policies.nothing_saveable,
    "dots": tg.checkpoint_policies.dots_saveable,
    "everything": tg.checkpoint_policies.everything_saveable,
    "names": tg.checkpoint_policies.save_only_these_names("product"),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_checkpoints_change_no_derivative(policy: Any) -> None:
    layer = tg.checkpoint(_layer, policy=policy)

    def with_layers(f: Any) -> Any:
        return lambda v: np.sum(f(f(f(v))) ** 2)

    np.testing.assert_allclose(tg.trace(with_layers(layer))(x), with_layers(_layer)(x), rtol=1e-14)
    want = tg.grad(with_layers(_layer))
    np.testing.assert_allclose(tg.grad(with_layers(layer))(x), want(x), rtol=1e-12)
    result = tg.grad(lambda v: tg.grad(with_layers(layer))(v).sum())(x)
    np.testing.assert_allclose(result, tg.grad(lambda v: want(v).sum())(x), rtol=1e-11)


@pytest.mark.parametrize(("policy", "tanhs"), [("default", 4), ("everything", 2), ("names", 4)])
def test_what_a_policy_does_not_keep_is_computed_again(policy: str, tanhs: int) -> None:
    layer = tg.checkpoint(_layer, policy=POLICIES[policy])
    graph = tg.value_and_grad(lambda v: np.sum(layer(layer(v)))).explain(x).optimized
    assert graph is not None
    assert str(graph).count("= tanh(") == tanhs
    assert str(graph).count("= remat(") == 2


@pytest.mark.parametrize("checkpoint", [True, 2, 3, 7, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_checkpointed_loops_change_no_derivative(checkpoint: Any, reverse: bool) -> None:
    def f(v: Any, again: Any) -> Any:
        last, ys = tg.scan(lambda c, r: (np.sin(c * r) + c, c * r), v, rows, reverse=reverse, checkpoint=again)
        return last.sum() + (ys * rows).sum()

    want = tg.grad(lambda v: f(v, False))(x)
    np.testing.assert_allclose(tg.grad(lambda v: f(v, checkpoint))(x), want, rtol=1e-13)
    with tg.disable_jit():
        np.testing.assert_allclose(f(x, checkpoint), f(x, False), rtol=1e-14)


# -- Tensors ----------------------------------------------------------------------
def _on_tensors(f: Callable[[Any], Any]) -> tuple[Any, Any]:
    t = tg.tensor(x, requires_grad=True)
    out = f(t)
    out.backward()
    assert isinstance(out, tg.Tensor)
    return out.item(), t.grad.numpy()


TENSOR_FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda t: tg.scan(lambda c, r: (tg.sin(c * r), c + r), t, tg.tensor(rows))[0].sum(),
    lambda t: tg.while_loop(lambda c: c.sum() < 100.0, lambda c: c * 1.5 + t, t).sum(),
    lambda t: tg.cond(t.sum() > 0, tg.exp, tg.sin, t).sum(),
    lambda t: tg.fori_loop(0, 5, lambda i, c: c * t + i, t).sum(),
    lambda t: tg.checkpoint(lambda a: tg.sin(tg.exp(a)))(t).sum(),
    lambda t: (tg.map(lambda r: (r * t).sum(), tg.tensor(rows)) ** 2).sum(),
]


@pytest.mark.parametrize("f", TENSOR_FUNCTIONS)
def test_tensors_go_through_control_flow_eager_and_compiled(f: Any) -> None:
    (eager, derivative), (compiled, result) = _on_tensors(f), _on_tensors(tg.trace(f))
    assert compiled == pytest.approx(eager, rel=1e-13)
    np.testing.assert_allclose(result, derivative, rtol=1e-12)


def test_a_training_step_with_a_loop_inside_compiles_whole() -> None:
    w = tg.tensor(x, requires_grad=True)

    @tg.trace
    def train(xs: Any) -> Any:
        loss = tg.scan(lambda c, r: (c + ((r * w) ** 2).sum(), None), tg.tensor(0.0), xs)[0]
        loss.backward()
        with tg.no_grad():
            w.sub_(0.05 * w.grad)
        w.grad = None
        return loss.detach()

    losses = [train(tg.tensor(rows)).item() for _ in range(3)]
    v = x.copy()
    for loss in losses:
        assert loss == pytest.approx(np.sum((rows * v) ** 2), rel=1e-12)
        v -= 0.05 * 2 * np.sum(rows * rows, 0) * v
    assert train.cache_info().traces == 1
