"""Who answers the calls of a program that is not compiled yet: nothing but rounding tells that it was not."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from graphs import every_op, graph_of, like, vjp_of
from paths import ROOT

import tracegrad as tg
from tracegrad import settings
from tracegrad.avals import aval_of
from tracegrad.errors import PerformanceWarning
from tracegrad.ir import build, run
from tracegrad.ops.elementwise.table import add, cos, exp, greater, sin
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.shape.linear import transpose
from tracegrad.runtime.compile import code_store, jit
from tracegrad.runtime.execution import numpy_executor, tiers
from tracegrad.runtime.execution.cost_model import Effort, alive_bytes, to_compile
from tracegrad.runtime.execution.program import Program, machine_code_count
from tracegrad.runtime.execution.tiers import Tier

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As users have it who begin: there is no machine code in memory, and none on disk."""
    monkeypatch.setattr(code_store, "_loaded", WeakValueDictionary())
    monkeypatch.setattr(tiers, "_seen_units", set())
    with settings.override(first_call="replay", cache=False):
        yield


def counted(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call gives, and how many pieces of machine code it has compiled."""
    before = machine_code_count()
    return call(), machine_code_count() - before


ORDERS = itertools.permutations((np.sin, np.cos, np.tanh, np.arctan, np.arcsinh, np.exp))


def unseen() -> Callable[[Any], Any]:
    """A function whose machine code no other test knows."""
    order = next(ORDERS)

    def f(x: Any) -> Any:
        for op in order:
            x = op(x) + 0.125
        return x

    return f


def path_of(fun: Any) -> Any:
    """The only path of a traced function."""
    ((path,),) = [spec.paths for spec in fun._specializations.values()]
    return path


def replays(fun: Any) -> bool:
    return bool(path_of(fun).waits)


# -- which call compiles ---------------------------------------------------------------------------------------
def test_the_first_call_compiles_nothing_and_the_second_does() -> None:
    f = tg.grad(lambda x: np.sum(np.sin(x) * np.arctan(x) ** 7))
    x = np.linspace(0.1, 2.0, 30)
    first, none = counted(lambda: f(x))
    second, some = counted(lambda: f(x))
    third, again = counted(lambda: f(x))
    assert (none, again) == (0, 0)
    assert some > 0
    np.testing.assert_allclose(first, second, rtol=1e-14)
    np.testing.assert_array_equal(second, third)
    assert f.cache_info()[:4] == (1, 0, 1, 1)


def test_machine_code_that_is_known_is_used_at_once() -> None:
    def f(x: Array) -> Any:
        return np.sum(np.cosh(x) / (2.0 + np.arctan(x)))

    traced = tg.trace(f)
    traced(np.ones(20)), traced(np.ones(20))
    assert not replays(traced)
    other, batch = tg.trace(lambda x: f(x)), tg.trace(f)
    other(np.ones(20)), batch(np.ones(33))
    assert not replays(other)
    assert not replays(batch)


def test_machine_code_on_disk_is_used_at_once(tmp_path: Path) -> None:
    def made() -> Any:
        return tg.trace(lambda x: np.sum(np.arctan(x) ** 5 / np.cosh(x + 1.0)))

    with settings.override(cache=True, cache_dir=str(tmp_path)):
        f = made()
        f(np.ones(20)), f(np.ones(20))
        del f
        gc.collect()
        f = made()
        _, none = counted(lambda: f(np.ones(20)))
        assert none == 0
        assert not replays(f)
        assert path_of(f).program.report.cache == "disk"


def test_a_new_shape_each_time_is_replayed_once() -> None:
    f = tg.grad(tg.trace(lambda x: np.sum(np.arctan(x) ** 2 * np.cosh(x))))
    counts = [counted(lambda n=n: f(np.ones(n)))[1] for n in (20, 33, 46, 51)]
    assert counts[0] == 0
    assert counts[1] > 0
    assert counts[2:] == [0, 0]
    assert [path.waits for spec in f._specializations.values() for path in spec.paths] == [True, False, False, False]


def test_it_is_replayed_for_each_path_once() -> None:
    @tg.trace
    def f(x: Array) -> Any:
        return np.arctan(x) * 3.5 if x[0] > 0 else np.cosh(x) - x

    ups, downs = np.ones(12), -np.ones(12)
    _, none = counted(lambda: [f(ups), f(downs)])
    assert none == 0
    # A call of the other path does not compile this one to find that out.
    assert [path.waits for spec in f._specializations.values() for path in spec.paths] == [True, True]
    _, some = counted(lambda: f(ups))
    assert some > 0
    assert sorted(path.waits for spec in f._specializations.values() for path in spec.paths) == [False, True]
    np.testing.assert_allclose(f(downs), np.cosh(downs) - downs, rtol=1e-14)
    np.testing.assert_allclose(f(ups), np.arctan(ups) * 3.5, rtol=1e-14)
    assert f.cache_info().traces == 2


@pytest.mark.parametrize("tiered", [False, True])
def test_an_argument_comes_before_the_setting(tiered: bool) -> None:
    def f(x: Array) -> Any:
        return np.sum(np.arctan(x) ** 3 * np.cosh(x)) * (2.5 if tiered else 3.5)

    assert tg.trace(f, tiered=tiered).first_call == ("background" if tiered else "compile")
    derived = [tg.grad, tg.value_and_grad, tg.jacrev, tg.jacfwd, tg.hessian, tg.vmap]
    assert [make(tg.trace(f, tiered=tiered)).tiered for make in derived] == [tiered] * len(derived)
    assert tg.grad(f).tiered is None
    if not tiered:
        g = tg.grad(tg.trace(f, tiered=False))
        assert counted(lambda: g(np.ones(20)))[1] > 0
        assert not replays(g)


def test_the_setting_says_compile() -> None:
    with settings.override(first_call="compile"):
        f = tg.trace(lambda x: np.arctan(x) / 7.5 + np.cosh(x))
        assert counted(lambda: f(np.ones(20)))[1] > 0


def test_tiered_is_a_boolean() -> None:
    with pytest.raises(TypeError, match="tiered must be True, False or None, got 'yes'"):
        tg.trace(lambda x: x, tiered="yes")  # type: ignore[call-overload]


# -- what costs more to replay than to compile --------------------------------------------------------------------
def loop(iterations: int) -> Any:
    def f(x: Array) -> Any:
        return tg.scan(lambda c, _: (np.sin(c) * 0.5 + x, None), x, length=iterations)[0]

    return tg.trace(f)


def test_long_loops_and_large_arrays_are_compiled_at_once() -> None:
    x = np.ones(12)
    short, long = loop(10), loop(100_000)
    short(x), long(x)
    assert (replays(short), replays(long)) == (True, False)

    few, many = (tg.trace(lambda x: np.arctan(x) ** 2 + np.cosh(x) * 4.5) for _ in range(2))
    few(np.ones(100))
    assert replays(few)
    many(np.ones(2_000_000))
    assert not replays(many)


def test_a_loop_that_iterations_out_to_be_long_is_compiled_while_it_is_replayed() -> None:
    @tg.trace
    def f(x: Any, n: Any) -> Any:
        return tg.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, np.sin(c[1]) + x), (0, x))[1]

    assert f(0.5, 3) == pytest.approx(np.sin(np.sin(np.sin(0.5) + 0.5) + 0.5) + 0.5, rel=1e-14)
    assert replays(f)

    g = tg.trace(lambda x, n: f(x, n) + 1.0)
    result = g(0.5, 10_000)
    assert not replays(g)
    assert g(0.5, 10_000) == result


def test_the_decision_is_a_count() -> None:
    graph = graph_of(greater, [np.ones(50), np.zeros(50)], {})
    assert Effort().total(graph) == Effort().total(graph) > 0
    big = graph_of(greater, [np.ones(2_000_000), np.zeros(2_000_000)], {})
    assert Effort().total(big) > 100 * Effort().total(graph)
    assert 0 < to_compile("for i") < to_compile("for i" * 4000)
    assert to_compile("for i") < to_compile("for i", regions=True)
    assert to_compile("for i" * 4000, regions=True) == to_compile("for i" * 8000, regions=True)


def test_memory_counts_where_it_is_alive() -> None:
    x = aval_of(np.ones((20, 50)))

    def turned(a: Any) -> Any:
        return transpose(a, perm=(1, 0))

    chain = build(lambda a: [exp(turned(sin(cos(a))))], [x])
    assert alive_bytes(chain) == 8 * x.size
    assert alive_bytes(build(lambda a: [matmul(exp(a), turned(sin(a)))], [x])) == 8 * (2 * x.size + 400)
    assert alive_bytes(build(lambda a: [turned(a)], [x])) == 0


def softmax_loss(z: Array) -> Any:
    top = np.max(z, 1, keepdims=True)
    return np.mean(top[:, 0] + np.log(np.sum(np.exp(z - top), 1)) - z[:, 7])


def deep(x: Array) -> Any:
    for _ in range(4):
        x = np.sin(x) * np.exp(-0.1 * x * x) + 0.5 * np.tanh(x)
    return np.sum(x)


def third(x: Array) -> Any:
    first = tg.grad(deep)
    second = tg.grad(lambda x: np.sum(first(x)))
    return tg.grad(lambda x: np.sum(second(x)))(x)


def attraction(x: Array) -> Any:
    off = x[:, None, :] - x[None, :, :]
    return np.sum(1.0 / np.sqrt(np.sum(off**2, -1) + 1e-2))


def oscillating(x: Array) -> Any:
    return np.sum(np.sin(x) * np.cos(3.0 * x) + np.sin(x**2) * np.cos(x))


# Each was measured, by a replay and by the compiler, on one thread: a first call of the former takes 10 to 60 % of
# the latter's, and twice as much in the last case.
@pytest.mark.parametrize(
    ("fun", "shape", "replayed"),
    [
        (tg.grad(softmax_loss), (4096, 1000), True),
        (third, (100_000,), True),
        (tg.grad(attraction), (1000, 3), True),
        (tg.grad(deep), (1000,), True),
        (tg.grad(oscillating), (4_000_000,), False),
    ],
)
def test_what_numpy_answers_sooner_is_replayed(fun: Any, shape: tuple[int, ...], replayed: bool) -> None:
    f = tg.trace(fun)
    f(np.linspace(0.1, 2.0, np.prod(shape)).reshape(shape))
    assert replays(f) == replayed


# -- what is the same ------------------------------------------------------------------------------------------------
def replayed(graph: Any, arrays: Any) -> Any:
    """What a program gives that is not compiled."""
    program = Program(graph, ("array",) * len(graph.inputs), False, "", False)
    program.tier = Tier(float("inf"))
    count = machine_code_count()
    result = program.attempt(arrays)
    assert machine_code_count() == count
    return result


def require_own(outputs: Any, graph: Any, arrays: Any) -> None:
    """Outputs are as those of a program: arrays of their own in row-major order, and scalars."""
    assert len(outputs) == len(graph.outputs)
    for x, node in zip(outputs, graph.outputs):
        assert x.dtype is node.aval.dtype
        assert x.shape == node.aval.shape
        if not x.ndim:
            assert isinstance(x, np.generic)
            continue
        assert type(x) is np.ndarray
        assert x.flags.owndata
        assert x.flags.writeable
        assert x.flags.c_contiguous
        assert not any(np.shares_memory(x, y) for y in arrays)
    whole = [x for x in outputs if x.ndim]
    assert len({id(x) for x in whole}) == len(whole)


@every_op
def test_a_replay_gives_what_a_program_gives(
    op: Any, operands: Any, params: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    monkeypatch.setattr(numpy_executor, "MIN_IN_PLACE", 1)
    first = graph_of(op, operands, params)
    derivative = vjp_of(first)
    arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in operands]
    for graph in [first] if derivative is None else [first, derivative]:
        arrays += [np.asarray(like(a)) for a in graph.avals[len(arrays) :]]
        before = [x.copy() for x in arrays]
        outputs = replayed(graph, arrays)
        require_own(outputs, graph, arrays)
        for got, want in zip(outputs, run(graph, arrays)):
            np.testing.assert_array_equal(got, want)
        for x, was in zip(arrays, before):
            np.testing.assert_array_equal(x, was)


def test_inputs_that_are_outputs_are_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    x = np.arange(6.0).reshape(2, 3)
    graph = build(lambda a: [a, a], [aval_of(x)])
    first, second = replayed(graph, [x])
    assert not np.shares_memory(first, x)
    assert not np.shares_memory(first, second)


def test_large_arrays_are_computed_in_place_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    monkeypatch.setattr(tiers, "LARGE", 1)

    def f(a: Any) -> list[Any]:
        one = exp(a)
        two = transpose(one, perm=(1, 0))
        three = sin(two)  # not in the memory of one, which is an output
        four = cos(sin(cos(three)))
        return [one, add(four, two), add(exp(sin(four)), transpose(transpose(four, perm=(1, 0)), perm=(1, 0)))]

    x = np.random.default_rng(0).normal(size=(300, 500))
    assert x.size >= numpy_executor.MIN_IN_PLACE
    graph = build(f, [aval_of(x)])
    for result, right in zip(replayed(graph, [x]), run(graph, [x])):
        np.testing.assert_array_equal(result, right)


def twice(f: Any, *args: Any) -> tuple[Any, Any]:
    """The answers of a replay and of compiled code."""
    first = f(*args)
    assert replays(f)
    second = f(*args)
    assert not replays(f)
    return first, second


def test_views_orders_and_scalars_are_as_compiled_code_has_them() -> None:
    @tg.trace
    def f(x: Array) -> Any:
        return x.T, x[0, 0], x.reshape(-1)[::2], np.broadcast_to(x[0], (3, 4)), 2.0 * x.T, (np.sum(x), x.shape)

    x = np.arange(12.0).reshape(3, 4)
    first, second = twice(f, x)
    for a, b in zip(first[:5], second[:5]):
        np.testing.assert_array_equal(a, b)
        assert (type(a), np.shape(a)) == (type(b), np.shape(b))
        if isinstance(a, np.ndarray):
            assert (a.strides, a.flags.writeable, a.flags.owndata) == (b.strides, b.flags.writeable, b.flags.owndata)
    assert first[5] == second[5]


def test_special_values_are_as_compiled_code_has_them() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1.0, 2.0, 1e308, 3.0])
    f = tg.trace(lambda x: (x * x - x, np.sqrt(x), x / (x - x), np.where(x > 0, x, -0.0), np.sign(x) * 0.0))
    for a, b in zip(*twice(f, x)):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b) | (np.isnan(a) & np.signbit(a)))


def test_an_error_is_numpys_at_the_line_of_the_user() -> None:
    @tg.trace
    def f(x: Array, i: Array) -> Any:
        return np.sum(x[i] * 3.5)

    x, good, bad = np.arange(5.0), np.array([1, 2]), np.array([1, 7])
    for index in (bad, good, bad, good, bad):
        if index is good:
            assert f(x, index) == 3.5 * (x[1] + x[2])
            continue
        with pytest.raises(IndexError, match="index 7 is out of bounds") as caught:
            f(x, index)
        assert any(str(entry.path).endswith("test_tiers.py") for entry in caught.traceback[1:])


def test_pythons_own_arithmetic_is_checked() -> None:
    @tg.trace
    def f(n: int, x: float) -> Any:
        return n**5 + 1, x / 3.25

    assert f(3, 1.0)[0] == 244
    assert f(20_000, 1.0)[0] == 20_000**5 + 1  # which no int64 holds
    assert f(3, 1.0)[0] == 244


def test_answers_that_round_otherwise_make_a_path_as_they_do_without_a_replay() -> None:
    def total(x: Array) -> Any:
        return np.sum(np.exp(3.0 * x) * x)

    with settings.override(first_call="compile"):
        program = tg.trace(total)
        inputs = (np.random.default_rng(seed).standard_normal(1001) for seed in range(100))
        x = next(x for x in inputs if program(x) != total(x))
        compiled = float(program(x))

    @tg.trace
    def f(x: Array) -> Any:
        text = f"{total(x):.17g}"
        return {text: np.cos(x) * 2.75 if float(text) == compiled else np.arctan(np.exp(x))}

    texts = [float(next(iter(f(x)))) for _ in range(4)]
    assert texts == [float(total(x)), compiled, compiled, compiled]
    assert f.cache_info().traces == 2


def test_effects_are_done_at_each_call() -> None:
    seen: list[Any] = []
    state = {"count": 0}

    @tg.trace
    def f(x: Array) -> Any:
        state["count"] += 1
        x *= 1.5
        x[0] = np.sum(x)
        seen.append(x[0])

    x, y = np.ones(4), np.ones(4)
    for _ in range(4):
        f(x)
        y *= 1.5
        y[0] = np.sum(y)
    np.testing.assert_allclose(x, y, rtol=1e-14)
    assert state["count"] == len(seen) == 4


def test_captured_arrays_are_read_at_each_call() -> None:
    w = np.ones(3)
    f = tg.trace(lambda x: np.arctan(w) * x + 0.125)
    for value in (1.0, 2.0, 3.0, 4.0):
        w[:] = value
        np.testing.assert_allclose(f(np.ones(3)), np.arctan(w) + 0.125, rtol=1e-14)


def test_nothing_warns() -> None:
    f = tg.trace(lambda x: np.log(x) / x + np.exp(1000.0 * x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice(f, np.array([0.0, -1.0, 1.0]))


def test_traps_and_jitless_mode_run_plain_python() -> None:
    f = tg.trace(lambda x: np.log(x) + 0.375)
    with tg.disable_jit():
        assert f(1.0) == 0.375
    assert f.cache_info().traces == 0
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        f(np.zeros(3))
    assert f(np.zeros(3))[0] == -np.inf


# -- derivatives, Tensors, batches --------------------------------------------------------------------------------
def energy(x: Any) -> Any:
    return np.sum(np.sin(x) * np.arctan(x) + 0.625 * x**3)


TRANSFORMS: dict[str, Callable[[Array], Any]] = {
    "vjp": lambda x: tg.vjp(lambda y: np.arctan(y) * 1.125, x)[1](np.ones_like(x))[0],
    "linearize": lambda x: tg.linearize(lambda y: np.arctan(y) * 1.375, x)[1](np.ones_like(x)),
    "jvp": lambda x: tg.jvp(energy, (x,), (np.ones_like(x),))[1],
    "hvp": lambda x: tg.hvp(energy, (x,), (np.ones_like(x),)),
    "hessian": lambda x: tg.hessian(energy)(x),
    "jacrev": lambda x: tg.jacrev(lambda y: np.arctan(y) * np.sum(y))(x),
    "vmap": lambda x: tg.vmap(energy)(np.stack([x, 2 * x])),
    "third": lambda x: tg.grad(lambda y: np.sum(tg.grad(lambda z: np.sum(tg.grad(energy)(z)))(y)))(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_outside_of_a_trace_compile_nothing_at_first(name: str) -> None:
    x = np.linspace(0.2, 1.4, 11)
    first, none = counted(lambda: TRANSFORMS[name](x))
    assert none == 0
    with settings.override(first_call="compile"):
        np.testing.assert_allclose(first, TRANSFORMS[name](1.0 * x), rtol=1e-12)


def test_tensors_and_the_tape() -> None:
    @tg.trace
    def f(w: Any, x: Any) -> Any:
        return (tg.tanh(x @ w) ** 3).sum() * 0.875

    def gradient(f: Any) -> Any:
        w = tg.tensor(np.linspace(-1, 1, 6).reshape(3, 2), requires_grad=True)
        loss = f(w, tg.tensor(np.linspace(0, 1, 15).reshape(5, 3)))
        loss.backward()
        return loss.detach().numpy(), w.grad.numpy()

    first, none = counted(lambda: gradient(f))
    assert none == 0
    second, some = counted(lambda: gradient(f))
    assert some > 0
    assert counted(lambda: gradient(f))[1] == 0
    for a, b, c in zip(first, second, gradient(f.fun)):
        np.testing.assert_allclose(a, c, rtol=1e-13)
        np.testing.assert_allclose(b, c, rtol=1e-13)


def test_second_derivatives_on_the_tape() -> None:
    f = tg.trace(lambda x: (x**3 * 0.375).sum())
    for _ in range(3):
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        (g,) = tg.autograd.grad(f(x), x, create_graph=True)
        (h,) = tg.autograd.grad(g.sum(), x)
        np.testing.assert_allclose(h.numpy(), 2.25 * x.detach().numpy())


@pytest.mark.parametrize("tiered", [None, True])
def test_a_gradient_check_compares_compiled_calls_to_the_bit(tiered: bool | None) -> None:
    chain = unseen()
    f = tg.trace(lambda x: (chain(x) * x).sum(), tiered=tiered)
    x = tg.tensor(np.linspace(0.1, 1.0, 12), requires_grad=True)
    assert tg.autograd.gradcheck(f, (x,), nondet_tol=0.0)
    assert not replays(f)
    other = tg.trace(unseen())
    other(np.ones(12))
    assert replays(other)


SUITES = (
    "transforms/test_grad",
    "runtime/dispatch/test_guards",
    "transforms/test_split_program",
    "meaning/test_meaning_exceptions",
    "meaning/test_meaning_state",
    "meaning/test_meaning_tensors",
)


def test_the_suite_holds_where_first_calls_are_replayed() -> None:
    """Elsewhere first calls compile; here is a part of the tests as users have it."""
    files = [f"tests/{name}.py" for name in SUITES]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "TRACEGRAD_FIRST_CALL": "replay", "TRACEGRAD_CACHE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


# -- what users ask ------------------------------------------------------------------------------------------------
def test_explain_compiles_and_tells_who_has_answered() -> None:
    f = tg.trace(unseen())
    f(np.ones(20))
    told, some = counted(lambda: f.explain(np.ones(20)))
    assert some > 0
    assert told.kernels
    assert told.cache.endswith(", until now answered op by op")
    assert not f.explain(np.ones(20)).cache.endswith("op by op")
    assert counted(lambda: f(np.ones(20)))[1] == 0


def test_a_graph_is_shown_without_compiling() -> None:
    f = tg.trace(unseen())
    _, none = counted(lambda: f.graph(np.ones(20)))
    assert none == 0


def test_the_log_says_when_it_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    f = tg.trace(unseen())
    with settings.override(log="compile"):
        f(np.ones(20))
        assert "program from replay in" in capsys.readouterr().err
        f(np.ones(20))
        assert "compiled in" in capsys.readouterr().err


def test_a_compiler_that_fails_fails_the_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tg.trace(unseen())
    f(np.ones(20))

    def broken(*_: Any) -> Any:
        raise RuntimeError("no code today")

    with monkeypatch.context() as patch:
        patch.setattr(jit, "compile_ir", broken)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no code today"):
                f(np.ones(20))
    np.testing.assert_allclose(f(np.ones(20)), f.fun(np.ones(20)))


# -- in another thread ----------------------------------------------------------------------------------------------
class Gate:
    """The compiler of machine code, which waits until it is opened, and counts modules of kernels: functions that
    programs share are compiled by whichever test is the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.open, self.begun, self.count = threading.Event(), threading.Event(), 0
        before = jit.compile_ir

        def compile_ir(text: str, name: str, *how: Any) -> bytes:
            self.count += name.startswith("tracegrad.")
            self.begun.set()
            assert self.open.wait(60)
            return before(text, name, *how)

        monkeypatch.setattr(jit, "compile_ir", compile_ir)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    result = Gate(monkeypatch)
    yield result
    result.open.set()
    finish()


def finish() -> None:
    """Wait until nothing is compiled any more."""
    for thread in threading.enumerate():
        if thread.name == "tracegrad compiler":
            thread.join(60)


def test_calls_are_answered_while_another_thread_compiles(gate: Gate) -> None:
    chain = unseen()
    f = tg.grad(tg.trace(lambda x: np.sum(chain(x)), tiered=True))
    x = np.linspace(0.1, 1.0, 20)
    want = tg.jvp(chain, (tg.tensor(x),), (tg.ones(20, dtype=tg.float64),))[1].numpy()
    for _ in range(3):
        np.testing.assert_allclose(f(x), want, rtol=1e-12)
    assert gate.begun.wait(60)
    assert replays(f)
    gate.open.set()
    finish()
    count = machine_code_count()
    np.testing.assert_allclose(f(x), want, rtol=1e-12)
    assert not replays(f)
    assert type(f).__call__ is not tg.traced_function.Traced.__call__  # the hot path
    np.testing.assert_allclose(f(x), want, rtol=1e-12)
    assert machine_code_count() == count


def test_many_threads_call_while_it_is_compiled() -> None:
    chain = unseen()
    f = tg.trace(chain, tiered=True)
    x, wrong = np.linspace(0.1, 1.0, 20), list[Any]()
    want = chain(x)

    def calls() -> None:
        for _ in range(200):
            if not np.allclose(f(x), want, rtol=1e-12):
                wrong.append(f)

    threads = [threading.Thread(target=calls) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finish()
    calls()
    assert not wrong
    assert not replays(f)


def test_what_nobody_has_any_more_is_not_compiled(gate: Gate) -> None:
    first = tg.trace(unseen(), tiered=True)
    first(np.ones(20))
    assert gate.begun.wait(60)
    second = tg.trace(unseen(), tiered=True)
    second(np.ones(20))
    del second
    gc.collect()
    gate.open.set()
    finish()
    assert gate.count == 1
    assert not path_of(first).waits


def test_compiling_what_nobody_has_any_more_is_given_up(gate: Gate) -> None:
    chains = [unseen() for _ in range(40)]
    f = tg.trace(lambda x: [np.cumsum(chain(x)) for chain in chains], tiered=True)
    f(np.ones(20))
    assert gate.begun.wait(60)
    pieces = len(path_of(f).program.image.uses)
    assert pieces > tiers.TOGETHER
    before = machine_code_count()
    del f
    gc.collect()
    gate.open.set()
    finish()
    assert machine_code_count() - before <= tiers.TOGETHER


def test_a_failure_is_told_once_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no code today")

    monkeypatch.setattr(jit, "compile_ir", broken)
    f = tg.trace(unseen(), tiered=True)
    x = np.ones(20)
    f(x)
    finish()
    with pytest.warns(PerformanceWarning, match="runs op by op: RuntimeError: no code today") as told:
        f(x)
    assert len(told) == 1
    assert "test_tiers.py:" in str(told[0].message)
    for _ in range(3):
        np.testing.assert_allclose(f(x), f.fun(x))
    with pytest.raises(RuntimeError, match="no code today"):
        f.explain(x)


def test_explain_waits_for_the_other_thread(gate: Gate) -> None:
    f = tg.trace(unseen(), tiered=True)
    f(np.ones(20))
    assert gate.begun.wait(60)
    threading.Timer(0.1, gate.open.set).start()
    assert f.explain(np.ones(20)).kernels
    assert gate.count == 1


def test_a_long_loop_waits_for_the_compiler() -> None:
    f = tg.trace(lambda x: tg.scan(lambda c, _: (np.sin(c) + x, None), x, length=100_001)[0], tiered=True)
    f(np.ones(12))
    assert not replays(f)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_compiler_of_its_own(gate: Gate) -> None:
    f = tg.trace(unseen(), tiered=True)
    g = tg.trace(unseen(), tiered=True)
    x = np.ones(20)
    f(x), g(x)
    assert gate.begun.wait(60)
    threading.Timer(0.2, gate.open.set).start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads
        child = os.fork()  # waits for what is compiled
    if not child:
        try:
            f(x), g(x)
            finish()
            f(x), g(x)
            os._exit(0 if not replays(f) and not replays(g) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    finish()
    f(x), g(x)
    assert not replays(f)
    assert not replays(g)


def script(text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    before = {**os.environ, "TRACEGRAD_CACHE": "0", "TRACEGRAD_FIRST_CALL": "background"}
    return subprocess.run(
        [sys.executable, *flags, "-c", text], env=before, capture_output=True, text=True, timeout=120, check=False
    )


FUNCTIONS = """
import numpy as np, tracegrad as tg
functions = [tg.grad(lambda x, k=k: np.sum(np.arctan(x) ** k * np.cosh(x) ** (k + 1))) for k in range(3, 60)]
x = np.linspace(0.0, 1.0, 30)
"""


def test_a_process_ends_without_what_it_has_not_begun_to_compile() -> None:
    text = "import time\nfor f in functions: f(x)\nprint('done', flush=True)"
    start = time.perf_counter()
    ended = script(FUNCTIONS + text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    assert time.perf_counter() - start < 60  # all of them would take minutes on a slow machine


def test_an_exception_ends_a_process_that_compiles() -> None:
    ended = script(FUNCTIONS + "for f in functions: f(x)\nraise KeyboardInterrupt")
    assert ended.returncode != 0
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


def test_calls_at_exit_are_answered() -> None:
    text = "import atexit\n@atexit.register\ndef last(): print(functions[0](x).shape, functions[0](x).shape)"
    ended = script(FUNCTIONS + text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "(30,) (30,)\n", "")
