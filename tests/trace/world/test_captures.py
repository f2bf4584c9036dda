"""What a traced function reads from outside its arguments: every change of it is seen."""

import collections
import dataclasses
import enum
import functools
import random
import types

import numpy as np
import pytest

import tracegrad as tg

X = np.arange(3.0)
WEIGHTS = np.ones(3)
SCALE = 2.0
MODE = "plus"
PARAMS = {"w": np.ones(3), "layers": [np.ones(3), 2.0], "n": 3}
COUNTER = 0


def traces(f):
    return f.cache_info().traces


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    for name in ("WEIGHTS", "SCALE", "MODE", "PARAMS", "COUNTER", "helper"):
        monkeypatch.setitem(globals(), name, globals()[name])
    monkeypatch.setitem(globals(), "PARAMS", {"w": np.ones(3), "layers": [np.ones(3), 2.0], "n": 3})
    monkeypatch.setitem(globals(), "WEIGHTS", np.ones(3))


def helper(x):
    return np.tanh(x) * SCALE


def test_an_update_in_place_of_a_global_array_is_seen_without_a_trace():
    f = tg.trace(lambda x: x * WEIGHTS)
    f(X)
    WEIGHTS[:] = 7
    np.testing.assert_array_equal(f(X), X * 7)
    assert traces(f) == 1


def test_rebinding_a_global_array_is_seen_without_a_trace():
    global WEIGHTS
    f = tg.trace(lambda x: x * WEIGHTS)
    f(X)
    WEIGHTS = np.full(3, 4.0)
    np.testing.assert_array_equal(f(X), X * 4)
    assert traces(f) == 1
    WEIGHTS = np.full(3, 4.0, np.float32)
    np.testing.assert_array_equal(f(X), X * 4)
    WEIGHTS = np.full((2, 3), 5.0)
    np.testing.assert_array_equal(f(X), np.tile(X * 5, (2, 1)))
    assert traces(f) == 3


def test_a_changed_scalar_string_or_flag_is_another_trace():
    global MODE, SCALE

    @tg.trace
    def f(x):
        return x + SCALE if MODE == "plus" else x - SCALE

    np.testing.assert_array_equal(f(X), X + 2)
    MODE = "minus"
    np.testing.assert_array_equal(f(X), X - 2)
    MODE = "plus"
    np.testing.assert_array_equal(f(X), X + 2)
    assert traces(f) == 2
    SCALE = 2
    np.testing.assert_array_equal(f(X), X + 2)
    assert traces(f) == 3


def test_a_float_that_changes_again_and_again_becomes_an_input():
    global SCALE
    f = tg.trace(lambda x: x * SCALE if SCALE > 0 else x)
    for k in range(1, 8):
        SCALE = k / 4
        result = f(X.astype(np.float32))
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, X * k / 4)
    assert traces(f) == 2
    SCALE = -1.0
    np.testing.assert_array_equal(f(X.astype(np.float32)), X)
    assert traces(f) == 3


def test_functions_called_are_followed_and_a_replaced_one_is_seen():
    global helper, SCALE
    f = tg.trace(lambda x: helper(x) + 1)
    np.testing.assert_allclose(f(X), np.tanh(X) * 2 + 1)
    SCALE = 3.0
    np.testing.assert_allclose(f(X), np.tanh(X) * 3 + 1)

    def helper(x):
        return x

    np.testing.assert_array_equal(f(X), X + 1)


def test_containers_are_seen_through():
    f = tg.trace(lambda x: x * PARAMS["w"] + PARAMS["layers"][0] * PARAMS["layers"][1] + len(PARAMS))
    np.testing.assert_array_equal(f(X), X + 2 + 3)
    PARAMS["w"] = np.full(3, 2.0)
    PARAMS["layers"][0][:] = 5
    np.testing.assert_array_equal(f(X), X * 2 + 10 + 3)
    assert traces(f) == 1
    PARAMS["layers"][1] = 3
    np.testing.assert_array_equal(f(X), X * 2 + 15 + 3)
    PARAMS["more"] = None
    np.testing.assert_array_equal(f(X), X * 2 + 15 + 4)
    assert traces(f) == 3


def test_a_container_replaced_as_a_whole_is_seen():
    global PARAMS
    f = tg.trace(lambda x: x * PARAMS["w"])
    f(X)
    PARAMS = {"w": np.full(3, 9.0), "layers": [np.ones(3), 2.0], "n": 3}
    np.testing.assert_array_equal(f(X), X * 9)
    assert traces(f) == 1


def test_closure_variables_are_seen():
    w, s, params = np.ones(3), 2.0, [np.ones(3)]

    def change(new_w, new_s):
        nonlocal w, s
        w, s = new_w, new_s

    f = tg.trace(lambda x: x * w + s + params[0])
    np.testing.assert_array_equal(f(X), X + 3)
    change(np.full(3, 2.0), 2.0)
    params[0] = np.zeros(3)
    np.testing.assert_array_equal(f(X), X * 2 + 2)
    assert traces(f) == 1
    change(np.full(3, 2.0), 5.0)
    np.testing.assert_array_equal(f(X), X * 2 + 5)
    assert traces(f) == 2


def test_default_arguments_that_are_arrays_are_read_at_each_call():
    w = np.ones(3)

    def f(x, w=w, *, b=w):
        return x * w + b

    g = tg.trace(f)
    g(X)
    w[:] = 3
    np.testing.assert_array_equal(g(X), X * 3 + 3)
    assert traces(g) == 1


class Layer:
    scale = 1.0

    def __init__(self):
        self.w = np.ones(3)
        self.rate = 0.5
        self._hidden = np.ones(3)

    @property
    def doubled(self):
        return self.w * 2

    @staticmethod
    def shift(x):
        out = np.zeros(3)
        out[:] = x + 1
        return out

    @classmethod
    def named(cls, x):
        return x * cls.scale

    def __call__(self, x):
        return self.shift(self.named(x * self.doubled)) * self.rate + self._hidden


class Network:
    def __init__(self):
        self.layers = [Layer(), Layer()]
        self.head = Layer()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_attributes_of_objects_are_seen_at_any_depth():
    network = Network()
    f = tg.trace(network.forward)
    np.testing.assert_allclose(f(X), network.forward(X))
    network.layers[1].w = np.full(3, 3.0)
    network.head.w *= 2
    network.head._hidden = np.arange(3.0)
    np.testing.assert_allclose(f(X), network.forward(X))
    assert traces(f) == 1
    network.layers[0].rate = 0.25
    np.testing.assert_allclose(f(X), network.forward(X))
    network.layers.append(Layer())
    np.testing.assert_allclose(f(X), network.forward(X))
    network.head = network.layers[0]
    np.testing.assert_allclose(f(X), network.forward(X))
    assert traces(f) == 4


def test_an_array_with_two_names_is_told_apart_when_they_part():
    one, two = Layer(), Layer()
    two.w = one.w
    f = tg.trace(lambda x: x * one.w + two.w)
    f(X)
    one.w = two.w = np.full(3, 2.0)
    np.testing.assert_array_equal(f(X), X * 2 + 2)
    assert traces(f) == 1
    two.w = np.full(3, 5.0)
    np.testing.assert_array_equal(f(X), X * 2 + 5)


@dataclasses.dataclass
class Config:
    w: np.ndarray
    rate: float


def test_dataclasses_namedtuples_and_simple_namespaces_are_seen_through():
    Point = collections.namedtuple("Point", "x y")
    config, point = Config(np.ones(3), 2.0), Point(np.ones(3), 1.0)
    f = tg.trace(lambda x: x * config.w * config.rate + point.x * point.y)
    np.testing.assert_array_equal(f(X), X * 2 + 1)
    config.w = np.full(3, 2.0)
    point.x[:] = 4
    np.testing.assert_array_equal(f(X), X * 4 + 4)
    assert traces(f) == 1
    config.rate = 1.0
    np.testing.assert_array_equal(f(X), X * 2 + 4)


def test_partial_functions_and_bound_methods_are_followed():
    layer = Layer()
    table = {"act": functools.partial(np.multiply, 2.0), "layer": layer.__call__}
    f = tg.trace(lambda x: table["layer"](table["act"](x)))
    np.testing.assert_array_equal(f(X), layer(2 * X))
    layer.w = np.zeros(3)
    np.testing.assert_array_equal(f(X), layer(2 * X))
    assert traces(f) == 1


def test_attributes_of_user_modules_are_seen():
    module = types.ModuleType("settings_of_mine")
    module.__file__ = __file__
    module.w, module.rate = np.ones(3), 0.5
    f = tg.trace(lambda x: x * module.w * module.rate)
    f(X)
    module.w = np.full(3, 8.0)
    np.testing.assert_array_equal(f(X), X * 4)
    assert traces(f) == 1
    module.rate = 1.0
    np.testing.assert_array_equal(f(X), X * 8)
    assert traces(f) == 2


def test_enum_members_and_dtypes_are_values():
    Kind = enum.Enum("Kind", "A B")
    state = {"kind": Kind.A, "dtype": np.dtype("float32")}
    f = tg.trace(lambda x: x.astype(state["dtype"]) * (1 if state["kind"] is Kind.A else 2))
    assert f(X).dtype == np.float32
    state["kind"] = Kind.B
    np.testing.assert_array_equal(f(X), X * 2)
    state["dtype"] = np.dtype("float64")
    assert f(X).dtype == np.float64
    assert traces(f) == 3


def test_an_array_no_name_leads_to_is_still_read_at_each_call():
    hidden = collections.deque([np.ones(3)])
    f = tg.trace(lambda x: x * hidden[0])
    f(X)
    hidden[0][:] = 6
    np.testing.assert_array_equal(f(X), X * 6)
    assert traces(f) == 1


def test_recursive_functions_and_self_containing_lists_end():
    loop = [1.0]
    loop.append(loop)

    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    f = tg.trace(lambda x: power(x, 3) + loop[1][1][0])
    np.testing.assert_array_equal(f(X), X**4 + 1)


def test_writes_to_globals_closures_and_containers_happen_at_each_call():
    calls, count = [], 0

    def f(x):
        global COUNTER
        nonlocal count
        COUNTER += 1
        count += 1
        calls.append(x.shape)
        PARAMS["n"] += 1
        return x + 1

    g = tg.trace(f)
    for _ in range(4):
        g(X)
    # The second trace has the counters as inputs.
    assert (COUNTER, count, calls, PARAMS["n"], traces(g)) == (4, 4, [(3,)] * 4, 7, 2)


def test_the_function_itself_is_untouched_by_tracing():
    def f(x):
        return np.zeros(3) + x * SCALE

    before = f(X)
    tg.trace(f)(X)
    assert type(f(X)) is np.ndarray
    np.testing.assert_array_equal(f(X), before)
    assert f.__globals__ is globals()


def test_a_function_made_inside_still_works_outside():
    @tg.trace
    def make(x):
        def inner(y):
            return helper(y) * SCALE

        return {"value": inner(x), "function": inner}

    result = make(X)
    np.testing.assert_allclose(result["function"](X), result["value"], rtol=1e-15)
    assert type(result["function"](X)) is np.ndarray


def test_random_numbers_of_pythons_are_drawn_at_each_call():
    for f in (lambda x: x + random.gauss(0.0, 1.0), lambda x: x * random.random()):
        random.seed(5)
        expected = [f(X), f(X)]
        random.seed(5)
        traced = tg.trace(f)
        with pytest.warns(tg.PerformanceWarning, match=r"draws random numbers.*test_captures.py:\d+"):
            results = [traced(X)]
        np.testing.assert_array_equal([*results, traced(X)], expected)


def test_a_captured_tensor_is_read_at_each_call_and_makes_the_result_one():
    t = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    f = tg.trace(lambda x: x * t)
    f(X).sum().backward()
    np.testing.assert_array_equal(t.grad.numpy(), X)
    t.data = tg.tensor([5.0, 5.0, 5.0])
    np.testing.assert_array_equal(f(X).detach().numpy(), 5.0 * X)
    assert traces(f) == 1


def test_captured_arrays_are_constants_of_derivatives_and_read_again():
    w = np.array([1.0, 2.0, 3.0])
    g = tg.grad(lambda x: np.sum(x * x * w))
    np.testing.assert_array_equal(g(X), 2 * X * w)
    w *= 10
    np.testing.assert_array_equal(g(X), 2 * X * w)
    assert traces(g) == 1


def test_the_hot_path_sees_changes_too():
    global WEIGHTS, SCALE
    f = tg.trace(lambda x: (x * WEIGHTS + SCALE, PARAMS["w"] * 1))
    for _ in range(3):
        f(X)
    hits = f.cache_info().hits
    f(X)
    assert f.cache_info().hits == hits  # not on the slow path
    WEIGHTS = np.full(3, 3.0)
    PARAMS["w"] = np.full(3, 4.0)
    got = f(X)
    assert f.cache_info().hits == hits
    np.testing.assert_array_equal(got[0], X * 3 + 2)
    np.testing.assert_array_equal(got[1], 4.0)
    SCALE = 5.0
    np.testing.assert_array_equal(f(X)[0], X * 3 + 5)
    del PARAMS["w"]
    with pytest.raises(KeyError, match="w"):
        f(X)


def test_a_function_whose_derivative_is_taken_in_a_trace_is_left_as_it_was():
    def energy(x):
        return np.sum(x * x)

    derivative = tg.trace(lambda x: tg.grad(energy)(x))
    for _ in range(3):
        assert derivative(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert vars(energy) == {}
