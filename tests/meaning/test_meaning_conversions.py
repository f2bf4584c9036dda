"""`float`, `int`, `round`, `min`, `max` and their like give numbers of the trace, which leave it as Python's own."""

from __future__ import annotations

import builtins
import functools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg
from tracegrad.trace.rewriting.call_sites import marked, unmarked
from tracegrad.trace.rewriting.loop_entry import entering

ROWS = [
    np.array([1.37, -2.5, 3.25]),
    np.array([4.5, 0.25, -0.75]),
    np.array([-1.0, 7.125, 1e6]),
    np.array([2.0, -0.0, 1]),
]

# Of an array of three floats: no question of these is asked of the values.
UNASKED: dict[str, Callable[[Any], Any]] = {
    "float": lambda x: float(x.sum()),
    "float32": lambda x: float(x.astype(np.float32)[0]),
    "float of int": lambda x: (float(x.astype(int)[1]), float(x.astype(np.uint8)[0] & 3), float(x[0] > 0)),
    "float of a number": lambda x: (float(x[0].item()), float(int(x[1])), float(True), float("1.5"), 0.0),
    "int": lambda x: (int(x.sum()), int(x[0]), int(x[1].item()), int(x.astype(np.int8)[0]), int(x[0] > 0)),
    "int of uint64": lambda x: int(abs(x).astype(np.uint64)[2]),
    "an array of no axes": lambda x: (float(x[..., 0]), int(x[..., 1])),
    "round": lambda x: (round(x[0]), int(round(x.sum(), 0)), round(float(x[0])), round(x[1].item())),
    "floor": lambda x: (math.floor(x[0]), math.ceil(float(x[0])), math.trunc(x[1]), x[0].is_integer()),
    "max": lambda x: max(float(v) for v in x),
    "min": lambda x: (min(x), min(*x), min(x.tolist()), min(float(x[0]), 1.5), min(3, int(x[0]))),
    "max of int": lambda x: max(int(x[0]), int(x[1])) * 2**40,
    "map": lambda x: (list(map(float, x)), [*map(int, x)], list(map(math.floor, x))),
    "an error": lambda x: float(np.max(abs(x - x.mean()))),
    "nested": lambda x: [(lambda v: float(v) + 1)(v) for v in x],
    "with arrays": lambda x: (x.astype(np.float32) * float(x[0]), x.astype(int) + int(x[0])),
}


@pytest.mark.parametrize("name", UNASKED)
def test_a_conversion_is_python_s_and_asks_nothing(name: str) -> None:
    f = UNASKED[name]
    traced = tg.trace(f)
    for x in ROWS:
        result, expected = traced(x), f(x)
        assert repr(result) == repr(expected)
        tg.tree.map(lambda a, b: _same_type(a, b), result, expected)
    assert traced.cache_info().traces == 1


def _same_type(a: Any, b: Any) -> None:
    assert type(a) is type(b)


def test_what_int_and_float_cannot_convert_raises_as_in_python() -> None:
    whole, real = tg.trace(lambda x: int(x[0])), tg.trace(lambda x: float(x))
    for x, error in ((1.5, None), (math.nan, ValueError), (math.inf, OverflowError), (-2.5, None), (1e300, None)):
        row = np.array([x])
        if error is None:
            assert whole(row) == int(x)
        else:
            with pytest.raises(error):
                whole(row)
    with pytest.raises(TypeError):
        real(np.ones(3))
    with pytest.raises(ValueError, match="could not convert"):
        tg.trace(lambda x: x * float("a"))(np.ones(3))
    assert tg.trace(lambda x: int(x[0]) * 2)(np.array([2**64 - 1], np.uint64)) == 2**65 - 2


@pytest.mark.filterwarnings("ignore::tracegrad.errors.PerformanceWarning")
def test_rounding_to_digits_is_python_s() -> None:
    rng = random.Random(0)
    digits = (-3, -1, 0, 1, 2, 3, 5, 15, 22, 23)
    rounded = {n: tg.trace(functools.partial(_rounded, n)) for n in digits}
    fives = [2.675, 1.005, 0.125, 2.5, -0.5, 25.0, 35.0, 1e22, 1.5e-5, math.nan, math.inf, -0.0, 5e-324, 0.5]
    for n, f in rounded.items():
        for x in [*fives, *[rng.gauss(0, 100) for _ in range(20)], *[rng.randint(-99, 99) + 0.0005 for _ in range(5)]]:
            assert repr(f(x)) == repr(_rounded(n, x))
    few = tg.trace(lambda x: round(x, 2))
    assert [few(x) for x in (1.234, 5.678, -9.1)] == [1.23, 5.68, -9.1]
    assert few.cache_info().traces == 1


def _rounded(digits: int, x: Any) -> Any:
    return round(x, digits)


def test_min_and_max_take_what_python_takes() -> None:
    nan, values = math.nan, (math.nan, 0.0, -0.0, 1.0, -math.inf)
    for choose in (lambda x, y, z: min(x, y, z), lambda x, y, z: max([x, y, z])):
        f = tg.trace(choose)
        for x in values:
            for y in values:
                assert repr(f(x, y, 0.0)) == repr(choose(x, y, 0.0))
        assert repr(f(np.float64(1.0), np.float64(nan), np.float64(0.0))) == repr(
            choose(*map(np.float64, (1.0, nan, 0.0)))
        )
        assert repr(f(1, 2.0, True)) == repr(choose(1, 2.0, True))
        assert f(2**62, 2**70, 5) == choose(2**62, 2**70, 5)
        assert f(np.float64(1.0), 2.0, 3) == choose(1.0, 2.0, 3)
    with pytest.raises(ValueError, match="empty"):
        tg.trace(lambda x: max([]) + x)(1.0)
    keyed = tg.trace(lambda x, y: (max(x, y, key=abs), min([x, y], key=lambda v: -v), max([], default=x), min((x,))))
    assert keyed(-3.0, 2.0) == (-3.0, 2.0, -3.0, -3.0)
    assert keyed(1.0, 2.0) == (2.0, 2.0, 1.0, 1.0)


def test_derivatives_go_through_numbers() -> None:
    def f(x: Any) -> Any:
        return float(x[0]) ** 2 * max(float(x[1]), float(x[2])) + min(x[0], x[1])

    x = np.array([3.0, 2.0, 5.0])
    np.testing.assert_allclose(tg.grad(f)(x), [2 * 3 * 5, 1.0, 9.0])
    np.testing.assert_allclose(tg.grad(f)(x[[0, 2, 1]]), [2 * 3 * 5 + 1.0, 9.0, 0.0])
    np.testing.assert_allclose(tg.jacfwd(f)(x), [30.0, 1.0, 9.0])


@pytest.mark.filterwarnings("ignore::tracegrad.errors.DerivativeWarning")
def test_the_number_of_a_tensor_has_no_derivative() -> None:
    @tg.trace
    def f(t: Any) -> Any:
        s = t.sum()
        return t * float(s) + int(s) + s.item(), s.item(), float(s)

    for k in range(1, 4):
        t = tg.tensor([1.0 * k, 2.5 * k], requires_grad=True)
        out, item, real = f(t)
        s = 3.5 * k
        np.testing.assert_allclose(out.detach().numpy(), t.detach().numpy() * s + int(s) + s)
        assert (item, real, type(item), type(real)) == (s, s, float, float)
        out.sum().backward()
        np.testing.assert_allclose(t.grad.numpy(), [s, s])
    assert f.cache_info().traces == 1


def test_types_of_numpy_lack_what_they_lack() -> None:
    for text in (
        "round(x[0] > 0)",
        "round(x[0] > 0, 1)",
        "math.trunc(x.astype(np.float32)[0])",
        "math.trunc(x[..., 0])",
        "math.trunc(x.astype(np.int8)[0])",
        "math.isclose(x[0], '1.0')",
    ):
        f = eval(f"lambda x: {text}", {"math": math, "np": np})
        for g in (f, tg.trace(f)):
            with pytest.raises(TypeError):
                g(ROWS[0])


def test_in_bodies_numbers_are_those_of_numpy() -> None:
    doubled = tg.trace(lambda n: tg.fori_loop(0, 70, lambda i, c: c * 2, n))
    summed = tg.trace(lambda x: tg.scan(lambda c, r: (c + int(r) * float(r), c), 0.0, x)[0])
    assert doubled(1) == 0
    assert doubled(0.5) == 2.0**69
    assert summed(np.array([1.5, -2.75, 4.0])) == 1.5 + 5.5 + 16.0


# -- programs ---------------------------------------------------------------------------------------------------------
@program(modes=("traced", "disabled", "tensors"))
def test_a_history_and_the_best(trace: Any) -> Any:
    class Run:
        best = math.inf
        steps = 0.0

        def __init__(self) -> None:
            self.losses: list[float] = []

        @trace
        def step(self, x: Any) -> Any:
            loss = (x**2).mean()
            self.losses.append(float(loss))
            self.best = min(self.best, float(loss))
            self.steps = max(self.steps, int(loss) + 0.5)
            return x * float(loss)

    run = Run()
    for x in ROWS:
        yield run.step(x), list(map(builtins.type, run.losses)), run.losses, run.best, run.steps
        yield type(run.best), type(run.steps)


@program(modes=("traced", "disabled", "tensors"))
def test_float_is_a_class_too(trace: Any) -> Any:
    table = {float: 1.0, int: 2.0}

    @trace
    def f(x: Any, kind: Any = float) -> Any:
        v = float(x[0])
        a = table[float] + table[type(v)] + (kind is float) + isinstance(v, float) + (type(v) is float)
        b = np.zeros(2, float) + np.array([1, 2], dtype=int) + np.asarray(v, dtype=float)
        c = float.fromhex("0x1p-1") + float("2.5") + int("11", 2) + int(b"7")
        return a + c + b, list[float], (float, int, max), callable(float), float.__name__, int.from_bytes(b"a", "big")

    for x in ROWS:
        yield f(x), f(x, int)


@program
def test_names_that_are_assigned_are_not_the_built_in_ones(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        float = np.sum
        return float(x), (lambda int: int(x))(np.mean)

    for x in ROWS:
        yield f(x)


@program
def test_methods_that_python_calls(trace: Any) -> Any:
    class Weight:
        def __init__(self, v: Any) -> None:
            self.v = v

        def __float__(self) -> float:
            return float(self.v[0])

        def __int__(self) -> int:
            return int(self.v[0])

        def __index__(self) -> int:
            return max(int(self.v[0]), 0)

        def __len__(self) -> int:
            return int(abs(self.v[0]))

        def __hash__(self) -> int:
            return hash(int(self.v[0]))

        def __bool__(self) -> bool:
            return bool(self.v[0] > 0)

    held = Weight(np.array([2.5]))

    @trace
    def f(x: Any) -> Any:
        w = Weight(x)
        results = [math.sqrt(abs(float(u))) + int(u) + len(u) + len(range(u)) + bool(u) + hash(u) for u in (held, w)]
        return x * results[0] + results[1]

    for x in ROWS:
        held.v = x[1:] * 1.5
        yield f(x)


@program
def test_functions_and_classes_that_leave_find_their_names(trace: Any) -> Any:
    @trace
    def make(x: Any) -> Any:
        n = float(x[0])

        def inner(y: Any) -> Any:
            return float(y) + n, [int(v) for v in (1.5, y)], max(y, n), float

        class Held:
            def get(self) -> Any:
                return float(len([1])), int(2.5), isinstance(3, int)

        return inner, Held

    for x in ROWS:
        inner, held = make(x)
        yield inner(2.5), held().get()
        yield [name for name in inner.__code__.co_names if "(" in name]


@program
def test_numbers_in_text_and_keys(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        n, v = int(round(x[0], 0)), float(x[0])
        table = {n: "n", v: "v"}
        return f"{v:.2f} {n:d} %s" % n, table, list(range(abs(n))), x[: max(n, 0)], [0] * n, np.zeros(abs(n)), "ab" * n

    for x in ROWS:
        yield f(x), f(x)


def _names(x: Any) -> tuple[str, ...]:
    return getattr(x, "co_names", ())


def test_marked_code_is_as_long_but_for_entrances_of_loops_and_can_be_had_back() -> None:
    def f(x: Any) -> Any:
        return [float(v) for v in x], (lambda y: max(int(y), 0))(x), float

    code = marked(f.__code__)
    assert len(code.co_code) == len(entering(f.__code__).co_code)
    # Since Python 3.12 the code of a list comprehension is that of the function around it.
    assert {"float()", "max()", "int()"} <= {name for c in (code, *code.co_consts) for name in _names(c)}
    assert unmarked(code) == f.__code__
    many = eval("lambda: (" + ", ".join(f"v{k}" for k in range(300)) + ", float(1), min(2, 3))")
    assert unmarked(marked(many.__code__)) == many.__code__
    plain = (lambda x: x + 1).__code__
    assert marked(plain) is plain


def test_code_with_many_names_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"GLOBAL_{k}" for k in range(300)]
    for k, name in enumerate(names):
        monkeypatch.setitem(globals(), name, k)
    f = eval(f"lambda x: float(x[0]) + sum([{', '.join(names)}]) + float(x[1]) + int(x[0])", globals())
    for x in ROWS:
        assert tg.trace(f)(x) == f(x)
