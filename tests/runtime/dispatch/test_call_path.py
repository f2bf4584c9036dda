"""How much Python a call takes once its kind is known, counted in calls of functions, which no noise touches; and that
calls that go this way mean what the function means."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted_calls import most_calls, python_calls

import tracegrad as tg
from tracegrad.runtime.execution.program import machine_code_count
from tracegrad.torch.tape import Tensor
from tracegrad.trace.effects.effects import are_disjoint

# Of a gradient of some twenty nodes, whose machine code is known.
MOST_CALLS = 4500


def on_slow_path(f: Any) -> int:
    info = f.cache_info()
    return int(info.hits + info.misses)


# -- calls in turn -----------------------------------------------------------------------------------------------------
def test_calls_of_several_kinds_in_iteration_stay_on_the_hot_path() -> None:
    f = tg.grad(lambda x: np.sum(x * x))
    xs = [np.ones(3), np.ones(4), np.ones(3, np.float32), 2.0, np.ones((2, 2))]
    assert most_calls(*[lambda x=x: f(x) for x in xs]) <= 2 + len(xs)  # type: ignore[misc]
    before = on_slow_path(f)
    for _ in range(200):
        for x in xs:
            np.testing.assert_array_equal(f(x), np.multiply(2, x))
            assert np.asarray(f(x)).dtype == np.asarray(x).dtype
    assert on_slow_path(f) == before


def test_structures_and_static_arguments_in_iteration_stay_on_the_hot_path() -> None:
    f = tg.trace(lambda p, n: sum(p.values()) * n, static_argnums=1)
    a, b = {"u": np.ones(2)}, {"u": np.ones(2), "v": np.ones(2)}
    assert most_calls(lambda: f(a, 2), lambda: f(b, 2), lambda: f(a, 3)) <= 5
    assert [f(a, 2)[0], f(b, 2)[0], f(a, 3)[0]] == [2.0, 4.0, 3.0]


def test_answers_in_iteration_stay_on_the_hot_path() -> None:
    f = tg.trace(lambda x: x * 2.0 if x[0] > 0 else -x)
    x = np.array([1.0, -2.0])
    assert most_calls(lambda: f(x), lambda: f(-x)) <= 3
    np.testing.assert_array_equal([f(x), f(-x)], [2 * x, x])


def test_the_kind_of_call_that_goes_on_becomes_the_first_again() -> None:
    f = tg.trace(lambda x: x + 1.0)
    a, b = np.ones(2), np.ones(3)
    most_calls(lambda: f(a), lambda: f(b))
    for _ in range(100):
        f(a)
    assert python_calls(lambda: f(a)) == 1
    for _ in range(100):
        f(b)
    assert python_calls(lambda: f(b)) == 1


def test_calls_with_keywords_stay_on_the_hot_path_beside_calls_without() -> None:
    f = tg.trace(lambda x, y: x - y)
    a, b = np.ones(2), np.full(2, 3.0)
    calls = [lambda: f(a, b), lambda: f(x=a, y=b), lambda: f(y=a, x=b), lambda: f(a, y=b)]
    assert most_calls(*calls) <= 3
    np.testing.assert_array_equal([c()[0] for c in calls], [-2, -2, 2, -2])


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "u1", "?", "c16"])
def test_arrays_with_a_dtype_object_of_their_own_stay_on_the_hot_path(dtype: str) -> None:
    """As those have that were unpickled, by joblib or in another process."""
    usual = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    own = usual.view(np.dtype(dtype, copy=True))
    assert own.dtype is not usual.dtype
    f, g = tg.trace(lambda x: x + x), tg.trace(lambda x: x + own)
    assert most_calls(lambda: f(usual), lambda: f(own)) <= 1
    assert most_calls(lambda: g(usual), lambda: g(own)) <= 1
    for x in (usual, own, usual.astype(usual.dtype.newbyteorder())):
        np.testing.assert_array_equal(f(x), x + x, strict=True)
        np.testing.assert_array_equal(g(x), x + own, strict=True)


X = np.array([1.0, 3.0])
SIGNATURES = ["{}, y=2.0", "y, {}=2.0", "{}, /, y=2.0", "y, *, {}=2.0", "y, *rest, {}=2.0", "y, **{}"]
NAMES = ["x", "outputs", "entry", "input_0", "argument_0", "item_1", "type", "len", "MISS", "_", "more", "keywords"]
NAMES += ["out", "unusual", "self", "is_"]
# Of positional arguments, and of keywords, in which N is the name.
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X,), {}),
    ((X, 5.0), {}),
    ((X,), {"y": 5.0}),
    ((), {"y": X}),
    ((X,), {"N": 7.0}),
    ((), {"y": 4.0, "N": X}),
    ((), {"N": X, "y": 4.0}),
    ((X, X, X), {}),
    ((X,), {"z": 1.0}),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("signature", SIGNATURES)
def test_parameters_may_have_any_name(signature: str, name: str) -> None:
    value = f"sum({name}.values())" if "**" in signature else name
    space: dict[str, Any] = {}
    exec(f"def f({signature.format(name)}): return y * {value}", space)
    traced = tg.trace(space["f"])
    for args, keywords in ARGUMENTS * 3:
        kwargs = {k.replace("N", name): x for k, x in keywords.items()}
        try:
            expected = space["f"](*args, **kwargs)
        except TypeError:
            with pytest.raises(TypeError):
                traced(*args, **kwargs)
        else:
            np.testing.assert_array_equal(traced(*args, **kwargs), expected)


def test_the_order_of_keywords_is_that_of_the_call() -> None:
    f = tg.trace(lambda **kw: [x * n for n, x in enumerate(kw.values())])
    for _ in range(3):
        np.testing.assert_array_equal(f(a=1.0, b=2.0, c=3.0), [0.0, 2.0, 6.0])
        np.testing.assert_array_equal(f(c=3.0, a=1.0, b=2.0), [0.0, 1.0, 4.0])
        assert [*f(a=1.0)] == [0.0]


def test_keywords_cost_no_more_calls_than_positions() -> None:
    x = np.ones(2)
    functions = [tg.trace(f) for f in (lambda x, y: x * y, lambda *xs: xs[0] * xs[1], lambda **kw: kw["x"] * kw["y"])]
    named, several, keywords = functions
    calls = [lambda: named(x, x), lambda: several(x, x), lambda: keywords(x=x, y=x), lambda: named(y=x, x=x)]
    assert [most_calls(call) for call in calls] == [1, 1, 1, 1]
    mixed = tg.trace(lambda x, /, y, *, z=1.0, **kw: x * y * z * kw["k"])
    assert most_calls(lambda: mixed(x, y=x, z=2.0, k=x)) == 1
    assert most_calls(lambda: mixed(x, x, k=x, z=2.0)) == 1


def test_defaults_that_are_left_out_stay_on_the_hot_path() -> None:
    f = tg.trace(lambda x, n=2.0: x * n)
    x = np.ones(2)
    assert most_calls(lambda: f(x), lambda: f(x, 3.0)) <= 4
    np.testing.assert_array_equal([f(x), f(x, 3.0)], [2 * x, 3 * x])


def test_functions_of_equal_code_in_iteration_read_their_own_variables() -> None:
    def made(n: Any) -> Any:
        return tg.grad(lambda x: np.sum(x * n))

    functions, xs = [made(n) for n in (2.0, 3.0)], [np.ones(2), np.ones(3)]
    for _ in range(6):
        for n, f in zip((2.0, 3.0), functions):
            for x in xs:
                np.testing.assert_array_equal(f(x), n * x)


def test_what_a_call_in_iteration_reads_is_compared_each_time() -> None:
    scale = [2.0]

    @tg.trace
    def f(x: Any) -> Any:
        return x * scale[0]

    a, b = np.ones(2), np.ones(3)
    most_calls(lambda: f(a), lambda: f(b))
    for n in (3.0, 5.0, "no number"):
        scale[0] = n  # type: ignore[call-overload]
        for x in (a, b, a):
            if n == "no number":
                with pytest.raises(TypeError):
                    f(x)
            else:
                np.testing.assert_array_equal(f(x), x * n)


def test_calls_in_iteration_do_what_they_do_to_objects_once() -> None:
    seen: list[Any] = []

    @tg.trace
    def f(x: Any) -> Any:
        seen.append(np.sum(x))
        return x

    a, b = np.ones(2), np.ones(3)
    for _ in range(5):
        f(a)
        f(b)
    assert seen == [2.0, 3.0] * 5


# -- what is traced and planned anew -----------------------------------------------------------------------------------
def test_another_shape_and_another_trace_take_no_more_calls_than_they_need() -> None:
    def loss(w: Any, b: Any, x: Any, y: Any) -> Any:
        return np.mean((np.tanh(x @ w + b) - y) ** 2)

    f = tg.value_and_grad(loss)

    def arguments(n: int) -> list[Any]:
        return [np.full((4, 3), 0.1), np.zeros(3), np.ones((n, 4)), np.ones((n, 3))]

    with tg.settings.override(verify=False):
        for n in (16, 17):
            f(*arguments(n))
        known, args = machine_code_count(), arguments(18)
        assert python_calls(lambda: f(*args)) <= MOST_CALLS
        f.clear()
        assert python_calls(lambda: f(*args)) <= MOST_CALLS
    assert machine_code_count() == known


def test_another_shape_needs_no_python_code_of_its_own() -> None:
    scale = {"a": 2.0}
    f = tg.value_and_grad(lambda p, x: np.sum(p["w"] * x * scale["a"]))
    results = []

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call" and argument is compile:
            results.append(frame.f_code.co_filename)

    for n in range(3, 20):  # by then, each class of records has the methods that are written when they are needed often
        results.clear()
        sys.setprofile(count)
        try:
            value, _ = f({"w": np.ones(n)}, np.ones(n))
        finally:
            sys.setprofile(None)
        assert value == 2.0 * n
    assert results == []


# -- calls on Tensors --------------------------------------------------------------------------------------------------
def leaf(*values: float) -> Tensor:
    return tg.tensor(list(values), requires_grad=True)


def loss(x: Any, w: Any, b: Any) -> Any:
    return tg.sum(tg.tanh(x * w + b))


def test_a_call_on_tensors_takes_few_python_calls() -> None:
    f = tg.trace(loss)
    x, w, b = tg.tensor([1.0, 2.0]), leaf(0.5, 0.25), leaf(0.0, 1.0)
    assert most_calls(lambda: f(x, w, b)) <= 12
    assert most_calls(lambda: f(x, w, b).backward()) <= 50
    with tg.no_grad():
        assert most_calls(lambda: f(x, w, b)) <= 4


def test_a_call_that_reads_parameters_takes_few_python_calls() -> None:
    layer = {"w": leaf(0.5, 0.25), "b": leaf(0.0, 1.0)}
    f = tg.trace(lambda x: loss(x, layer["w"], layer["b"]))
    g = tg.trace(lambda p, x: loss(x, p["w"], p["b"]))
    x = np.array([1.0, 2.0])
    assert most_calls(lambda: f(x), lambda: g(layer, x)) <= 24


STATES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "leaves": lambda: (leaf(1.0, 2.0), leaf(3.0, 4.0)),
    "no derivative of one": lambda: (leaf(1.0, 2.0), tg.tensor([3.0, 4.0])),
    "none of either": lambda: (tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])),
    "results": lambda: (leaf(1.0, 2.0) * 2, leaf(3.0, 4.0)),
    "views": lambda: (leaf(1.0, 2.0, 3.0)[1:], tg.tensor([3.0, 4.0, 5.0])[1:]),
    "an array": lambda: (leaf(1.0, 2.0), np.array([3.0, 4.0])),
    "another length": lambda: (leaf(1.0, 2.0, 3.0), leaf(3.0, 4.0, 5.0)),
    "single precision": lambda: (leaf(1.0, 2.0).detach().float().requires_grad_(), tg.tensor([3.0, 4.0]).float()),
    "a strided view": lambda: (leaf(1.0, 2.0, 3.0)[::2], tg.tensor([3.0, 4.0, 5.0])[::2]),
}


def same(x: Any, y: Any) -> None:
    assert type(x) is type(y)
    assert (x.dtype, x.requires_grad, x.is_leaf) == (y.dtype, y.requires_grad, y.is_leaf)
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-6 if x.dtype == "float32" else 1e-13)


def test_calls_on_tensors_in_every_state_in_iteration_are_those_of_eager_mode() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * x * y

    traced = tg.trace(f)
    for _ in range(4):
        for make in STATES.values():
            x, y = make()
            for mine, theirs in ((traced(x, y), f(x, y)), (traced(y=y, x=x), f(x, y))):
                same(mine, theirs)
                sources = [t for t in (x, y) if isinstance(t, Tensor) and t.requires_grad]
                if sources:
                    weights = tg.tensor(np.arange(1.0, 1.0 + len(x)).astype(x.dtype))
                    first = [tg.autograd.grad(r, sources, weights, create_graph=True) for r in (mine, theirs)]
                    for a, b in zip(*first):
                        same(a, b)
                    second = [tg.autograd.grad(sum(tg.sum(g * g) for g in gs), sources) for gs in first]
                    for a, b in zip(*second):
                        same(a, b)


def test_a_tensor_that_changes_its_state_is_seen_as_it_is() -> None:
    f = tg.trace(lambda x: x * 3.0)
    x = tg.tensor([1.0])
    most_calls(lambda: f(x))
    assert not f(x).requires_grad
    x.requires_grad_()
    assert f(x).requires_grad
    most_calls(lambda: f(x))
    with tg.no_grad():
        assert not f(x).requires_grad
    x.detach_()
    x.requires_grad_(False)
    assert not f(x).requires_grad


def test_modes_hold_for_calls_that_are_known() -> None:
    f = tg.trace(lambda x: tg.exp(x))
    g = tg.trace(lambda x, w: tg.sum(tg.tanh(x @ w)))
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    most_calls(lambda: f(x), lambda: g(x, w))
    with tg.inference_mode():
        assert f(x).is_inference()
    packed: list[Any] = []
    with tg.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        out = g(x, w)
    assert len(packed) == len(out.grad_fn.residuals) == 1
    with tg.autograd.forward_ad.dual_level():
        dual = tg.autograd.forward_ad.make_dual(x, tg.tensor([1.0, 0.0]))
        np.testing.assert_allclose(tg.autograd.forward_ad.unpack_dual(f(dual)).tangent.detach().numpy(), [np.e, 0.0])
    with tg.disable_jit():
        assert f(x).grad_fn.name() == "ExpBackward0"
    assert f(x).grad_fn.name() == "CompiledBackward"


def test_tensors_given_twice_and_apart_in_iteration_receive_their_gradients() -> None:
    f = tg.trace(lambda x, y: tg.sum(x * x * y))
    for _ in range(4):
        x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
        f(x, y).backward()
        np.testing.assert_array_equal(x.grad.numpy(), [6.0, 16.0])
        np.testing.assert_array_equal(y.grad.numpy(), [1.0, 4.0])
        z = leaf(1.0, 2.0)
        f(z, z).backward()
        np.testing.assert_array_equal(z.grad.numpy(), [3.0, 12.0])


def test_an_update_of_what_a_known_call_kept_is_noticed() -> None:
    f = tg.trace(lambda x, w: tg.sum(x * w))
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    most_calls(lambda: f(x, w))
    y = f(x, w)
    with tg.no_grad():
        w.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("rounds", [0, 3])
def test_an_array_that_is_read_or_given_may_change_before_the_backward_pass(rounds: int) -> None:
    held, args = np.ones(2), np.full(2, 3.0)
    f = tg.trace(lambda x, a: tg.sum(x * x * held * a))
    x = leaf(1.0, 2.0)
    for _ in range(rounds):
        f(x, args)
    y = f(x, args)
    held[:] = args[:] = 7.0
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [6.0, 12.0])


def test_numbers_beside_tensors_stay_numbers_in_a_recorded_backward_pass() -> None:
    kinds = []

    def f(x: Any, n: Any, flag: Any) -> Any:
        kinds.append((isinstance(n, int), flag is True))
        return tg.sum(x**n) if flag else x

    traced = tg.trace(f)
    x = leaf(1.0, 2.0)
    most_calls(lambda: traced(x, 3, True))
    (first,) = tg.autograd.grad(traced(x, 3, True), [x], create_graph=True)
    (second,) = tg.autograd.grad(tg.sum(first), [x])
    np.testing.assert_allclose(second.numpy(), [6.0, 12.0])
    assert all(whole for whole, _ in kinds)


LOSSES: list[Any] = []


def momentum(w: Any, velocity: Any, x: Any) -> Any:
    loss = tg.mean(tg.tanh(x @ w) ** 2)
    loss.backward()
    with tg.no_grad():
        velocity["w"].mul_(0.9).add_(w.grad)
        w -= 0.1 * velocity["w"]
    w.grad = None
    LOSSES.append(loss.detach())
    return loss


def accumulated(w: Any, velocity: Any, x: Any) -> Any:
    tg.sum(w * x[0, : len(w)]).backward()
    return w.grad


def recorded_update(w: Any, velocity: Any, x: Any) -> Any:
    y = velocity["w"]
    y.mul_(w)
    return tg.sum(y * y)


STEPS = [momentum, accumulated, recorded_update]


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_steps_that_are_repeated_do_to_tensors_what_eager_mode_does(step: Callable[..., Any]) -> None:
    results = []
    for f in (tg.trace(step), step):
        rng, facts = np.random.default_rng(3), list[Any]()
        for shape in ((4,), (4,), (4, 2)):
            w = tg.tensor(rng.normal(size=shape), requires_grad=True)
            base = tg.tensor(np.zeros((2, *shape)))
            velocity = {"w": base[0]}
            LOSSES.clear()
            for _ in range(4):
                if step is recorded_update:
                    velocity = {"w": base[0] + 1.0}
                x = tg.tensor(rng.normal(size=(3, 4)))
                if step is accumulated and w.ndim > 1:
                    break
                loss = f(w, velocity, x)
                facts += [loss.requires_grad, loss.detach().numpy().copy(), w._version, base._version]
                if step is recorded_update:
                    facts += list(tg.autograd.grad(loss, [w]))
                facts += [w.detach().numpy().copy(), velocity["w"].detach().numpy().copy(), w.grad is None]
                facts += [len(LOSSES), *[each.item() for each in LOSSES]]
        results.append(facts)
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-12)


def test_a_training_step_takes_few_python_calls() -> None:
    f, w, velocity = tg.trace(momentum), leaf(1.0, 2.0), {"w": tg.tensor([0.0, 0.0])}
    x = tg.tensor([[1.0, 2.0]])
    assert most_calls(lambda: f(w, velocity, x)) <= 40


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
def test_tensors_that_share_memory_from_some_call_on_are_updated_as_in_eager_mode() -> None:
    def step(w: Any, x: Any) -> Any:
        w.mul_(2.0)
        return w + x

    traced = tg.trace(step)
    for _ in range(3):
        for make in (lambda: [tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])], lambda: [tg.tensor([1.0, 2.0])] * 2):
            mine, theirs = make(), make()
            np.testing.assert_array_equal(traced(*mine).numpy(), step(*theirs).numpy())
            assert [t.tolist() for t in mine] == [t.tolist() for t in theirs]
        base = np.arange(3.0)
        x, y = (tg.from_numpy(base[k : k + 2]) for k in (0, 1))
        np.testing.assert_array_equal(traced(x, y).numpy(), [0.0 + 2.0, 2.0 + 2.0])
    frozen = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        traced(frozen, tg.tensor([1.0, 1.0]))


def test_calls_that_update_tensors_update_them_each_time() -> None:
    @tg.trace
    def step(w: Any, x: Any) -> Any:
        loss = tg.sum((w * x) ** 2)
        loss.backward()
        with tg.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss

    w, x, expected = leaf(1.0, 2.0), tg.tensor([0.5, 1.0]), np.array([1.0, 2.0])
    for _ in range(5):
        step(w, x)
        expected = expected - 0.1 * (2 * expected * np.array([0.5, 1.0]) ** 2)
        np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-13)
        assert w.grad is None


def test_known_calls_keep_no_tensor_alive() -> None:
    f = tg.trace(lambda x, y: x * y)
    for _ in range(3):
        x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
        out = f(x, y)
    gone = weakref.ref(x), weakref.ref(y), weakref.ref(out)
    del x, y, out
    gc.collect()
    assert [each() for each in gone] == [None] * 3


# -- random numbers ----------------------------------------------------------------------------------------------------
def test_calls_that_draw_stay_on_the_hot_path_and_draw_what_plain_python_draws() -> None:
    rng = np.random.default_rng(0)

    def noisy(x: Any) -> Any:
        return x * rng.normal(size=3) + rng.random()

    def dropped(x: Any) -> Any:
        return tg.nn.functional.dropout(x, 0.5) * 2

    for f, x in ((noisy, np.ones(3)), (dropped, np.ones(8)), (dropped, tg.ones(8, requires_grad=True))):
        compiled = tg.trace(f)
        for _ in range(8):
            compiled(x)
        before = on_slow_path(compiled)
        for g in (f, compiled):
            tg.manual_seed(1)
            rng.bit_generator.state = np.random.default_rng(1).bit_generator.state
            results = [np.asarray(y.detach() if isinstance(y, Tensor) else y) for y in (g(x) for _ in range(30))]
            if g is f:
                expected = results
        np.testing.assert_allclose(results, expected, rtol=1e-13)
        assert on_slow_path(compiled) == before


def test_a_call_that_leaves_the_hot_path_draws_once() -> None:
    rng = np.random.default_rng(0)

    @tg.trace
    def f(x: Any) -> Any:
        y = x + rng.normal()
        return y if y[0] > 0 else -y

    def plain(x: Any) -> Any:
        y = x + rng.normal()
        return y if y[0] > 0 else -y

    for _ in range(30):
        f(np.zeros(2))
    rng.bit_generator.state = np.random.default_rng(3).bit_generator.state
    results = [f(np.zeros(n)) for n in (2, 2, 3, 2, 4, 2) * 5]
    rng.bit_generator.state = np.random.default_rng(3).bit_generator.state
    expected = [plain(np.zeros(n)) for n in (2, 2, 3, 2, 4, 2) * 5]
    for x, y in zip(results, expected):
        np.testing.assert_array_equal(x, y)


def test_a_second_derivative_of_a_call_on_the_hot_path_is_of_what_it_drew() -> None:
    f = tg.trace(lambda x: (tg.nn.functional.dropout(x, 0.5) ** 3).sum())
    x = tg.ones(16, requires_grad=True)
    for _ in range(12):
        (derivative,) = tg.autograd.grad(f(x), x, create_graph=True)
        state = tg.get_rng_state()
        (second,) = tg.autograd.grad(derivative.sum(), x)
        np.testing.assert_allclose(second.numpy(), np.where(derivative.detach().numpy() > 0, 48.0, 0.0))
        assert bool((state == tg.get_rng_state()).all())


def test_memory_that_is_shared_is_what_numpy_says() -> None:
    rng, result = np.random.default_rng(0), set()
    for _ in range(2000):
        base = np.zeros(40)
        bounds = np.sort(rng.integers(0, 41, (4, 2)))
        arrays = [x for x in (base[a : b : rng.integers(1, 3)] for a, b in bounds) if x.size]
        written = [x for x in arrays if rng.random() < 0.4]
        expected = all(sum(np.may_share_memory(x, y) for y in arrays) == 1 for x in written)
        assert are_disjoint(written, arrays) == expected
        result.add(expected)
    assert result == {True, False}
    assert not are_disjoint([np.broadcast_to(1.0, 3)], [])
