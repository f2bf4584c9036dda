"""Traced functions called from many threads at once, and the switch that turns compilation off."""

import threading
import time

import numpy as np
import pytest
from hatch import unseen
from threads import together

import tracegrad as tg


def test_many_threads_compile_once():
    wait = unseen(time.sleep)  # a trace that takes time: one that asks for sleep itself runs as plain Python

    @tg.trace
    def f(x):
        wait(0.02)
        return np.tanh(x) * 3

    results = together(8, lambda i: f(np.full(4, float(i))))
    for i, result in enumerate(results):
        np.testing.assert_allclose(result, np.tanh(np.full(4, float(i))) * 3, rtol=1e-14)
    assert f.cache_info().traces == 1


def test_threads_with_different_shapes_and_paths_get_their_own_results():
    f = tg.value_and_grad(tg.trace(lambda x: np.sum(x**2) if x[0] > 0 else np.sum(np.abs(x))))

    def work(i):
        n, sign = 2 + i % 3, 1.0 if i % 2 else -1.0
        x = sign * np.arange(1.0, n + 1)
        for _ in range(20):
            value, g = f(x)
            assert value == (np.sum(x**2) if sign > 0 else np.sum(np.abs(x)))
            np.testing.assert_array_equal(g, 2 * x if sign > 0 else np.sign(x))

    together(6, work)
    assert f.cache_info().traces == 6


def test_traces_of_different_threads_do_not_mix():
    enter = unseen(threading.Barrier(2).wait)

    def make(k):
        def f(x):
            y = np.zeros(3)
            enter(timeout=10)
            y[:] = x * k
            enter(timeout=10)
            return y + np.ones(3)

        return tg.trace(f)

    functions = [make(2.0), make(3.0)]
    results = together(2, lambda i: functions[i](np.ones(3)))
    np.testing.assert_array_equal(results, [[3, 3, 3], [4, 4, 4]])


def test_disable_jit_holds_for_its_thread_and_block_only(capsys):
    @tg.trace
    def f(x):
        print("called")  # noqa: T201  what is printed is told by each plain call, and once by a trace
        return x + 1

    def told():
        return capsys.readouterr().out.count("called")

    x = np.ones(3)
    f(x)
    assert told() == 1
    with tg.disable_jit():
        f(x)
        assert told() == 1
        together(1, lambda i: f(x))
        assert told() == 0
    f(x)
    assert told() == 0
    assert f.cache_info().traces == 1


def test_disable_jit_leaves_arguments_as_they_are():
    @tg.trace(static_argnames="n")
    def f(x, n):
        x += n
        return x

    x = np.ones(3)
    with tg.disable_jit():
        assert f(x, 2) is x
    np.testing.assert_array_equal(x, 3)


def test_a_trace_in_one_thread_does_not_change_calls_in_another():
    g = tg.trace(lambda x: x * 2)
    g(np.ones(2))
    seen = []

    def elsewhere():
        thread = threading.Thread(target=lambda: seen.append(g(np.ones(2))))
        thread.start()
        thread.join()

    enter = unseen(elsewhere)  # inside the trace, which ends where it sees a thread made

    @tg.trace
    def f(x):
        enter()
        return x + 1

    f(np.ones(2))
    assert f.cache_info().traces == 1
    assert type(seen[0]) is np.ndarray
    assert g.cache_info().traces == 1


def test_an_error_in_one_thread_leaves_the_others_alone():
    @tg.trace
    def f(x):
        if x.shape == (3,):
            raise RuntimeError("three")
        return x + 1

    def work(i):
        if i % 2:
            with pytest.raises(RuntimeError, match="three"):
                f(np.ones(3))
        else:
            np.testing.assert_array_equal(f(np.ones(2)), [2, 2])

    together(8, work)
    assert f.cache_info().traces == 1


def test_the_hot_path_takes_keywords_in_any_order():
    @tg.trace(static_argnames="mode")
    def f(x, y, *, mode="add", **more):
        return x + y + more["z"] if mode == "add" else x - y

    x, y, z = np.ones(2), np.arange(2.0), 3.0
    f(x, z=z, y=y)
    f(y=y, x=x, z=z, mode="sub")
    before = f.cache_info()
    for _ in range(2):
        np.testing.assert_array_equal(f(x, z=z, y=y), x + y + 3)
        np.testing.assert_array_equal(f(y=y, x=x, z=z, mode="sub"), x - y)
    assert f.cache_info() == before
    np.testing.assert_array_equal(f(y, y=x, z=1.0), x + y + 1)


def test_the_hot_path_takes_trees_and_statics_apart():
    @tg.trace(static_argnums=2)
    def f(params, x, mode, s):
        return {"y": x @ params["w"] + params["b"][0] if mode == "dot" else x, "s": (s * 2, None, [s])}

    params, x = {"w": np.ones(3), "b": (np.ones(()), None)}, np.ones((2, 3))
    f(params, x, "dot", 1.5)
    before = f.cache_info()
    result = f(params, x, "dot", 2.5)
    assert f.cache_info() == before  # not on the slow path
    np.testing.assert_array_equal(result["y"], [4, 4])
    assert result["s"] == (5.0, None, [2.5])
    np.testing.assert_array_equal(f({"w": np.ones(3), "b": (np.ones(()), None)}, x, "id", 2.5)["y"], x)
    with pytest.raises(KeyError):
        f({"v": np.ones(3), "b": (np.ones(()), None)}, x, "dot", 2.5)
    with pytest.raises(TypeError):
        f(params, x, "dot")
    with pytest.raises(TypeError):
        f(params, x, "dot", 1.0, 2.0)
