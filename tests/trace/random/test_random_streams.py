"""Loops over values that draw random numbers are one program, whichever branches the draws take.

Truth is the same function in plain Python, with a generator of the same seed, which is left where that leaves it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.loopir.random_draws import Native, native_of
from tracegrad.ir import GraphNode
from tracegrad.ops.calls import random_streams


def state(rng: Any) -> str:
    return repr(rng.bit_generator.state)


def metropolis(x: Any, rng: Any) -> Any:
    accepted, path = 0, np.empty((40, 2))
    for i in range(40):
        new = x + 0.8 * rng.normal(size=2)
        if np.log(rng.random()) < 0.5 * (x @ x - new @ new):
            x, accepted = new, accepted + 1
        path[i] = x
    return path, accepted / 40


def rejection(x: Any, rng: Any) -> Any:
    tried = 0
    while True:
        y = rng.normal()
        tried += 1
        if y > x[0]:
            break
    return y, tried


def gillespie(x: Any, rng: Any) -> Any:
    n, end = x
    t, births = 0.0, 0
    while t < end:
        birth, death = 1.0 * n, 0.5 * n
        t = t + rng.exponential(1.0 / (birth + death))
        if rng.random() < birth / (birth + death):
            n, births = n + 1, births + 1
        else:
            n = n - 1
        if n == 0:
            break
    return n, t, births


def ising(x: Any, rng: Any) -> Any:
    s = np.where(np.arange(12) % 3 == 0, 1.0, -1.0)
    for _ in range(60):
        i = rng.integers(12)
        d = 2.0 * s[i] * (s[(i - 1) % 12] + s[(i + 1) % 12])
        if d <= 0 or rng.random() < np.exp(-0.4 * d):
            s[i] = -s[i]
    return s


def bootstrap(x: Any, rng: Any) -> Any:
    above = 0
    for _ in range(40):
        if np.mean(rng.choice(x, 5)) > 0.1:
            above += 1
    return above


def orders(x: Any, rng: Any) -> Any:
    best = np.inf
    for _ in range(30):
        cost = np.sum(np.abs(rng.permutation(6) - np.arange(6.0)))
        if cost < best:
            best = cost
    return best


def counts(x: Any, rng: Any) -> Any:
    y = 1.0
    for _ in range(30):
        k = rng.poisson(np.abs(y) + 1.0)
        y = y * 0.5 + 0.25 * k if k > 1 else y - 0.125
    return y


PROGRAMS = [metropolis, rejection, gillespie, ising, bootstrap, orders, counts]


def agree(x: Any, y: Any) -> None:
    for a, b in zip(tg.tree.leaves(x), tg.tree.leaves(y), strict=True):
        assert type(a) is type(b)
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("f", PROGRAMS)
def test_a_loop_whose_branches_depend_on_draws_is_one_program_for_all_generators(f: Callable[..., Any]) -> None:
    traced, x = tg.trace(f), (5, 2.0) if f is gillespie else np.array([0.5, -0.25])
    for seed in range(9):
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        for _ in range(1 + 2 * (seed % 2)):  # the hot path, too
            agree(traced(x, ours), f(x, theirs))
        assert state(ours) == state(theirs)
    assert traced.cache_info().traces <= 2


def test_calls_that_leave_a_loop_in_two_ways_in_iteration_are_hot_with_the_same_generator() -> None:
    traced, x = tg.trace(rejection), np.array([0.5])
    ours, theirs = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(120):
        agree(traced(x, ours), rejection(x, theirs))
    assert state(ours) == state(theirs)
    assert traced.cache_info().hits < 60  # calls on the hot path are not counted


def test_calls_whose_loops_ask_numpy_to_draw_are_looked_up_so_that_the_quicker_way_is_found_out() -> None:
    traced, x, rng = tg.trace(counts), np.array([0.5]), np.random.default_rng(0)
    for _ in range(20):
        traced(x, rng)
    assert traced.cache_info().hits >= 18  # of which the hot path counts none


# -- numbers of machine code ---------------------------------------------------------------------------------------
METHODS = [
    ("random", (), {}),
    ("random", (3,), {}),
    ("uniform", (-1.0, 2.5), {}),
    ("uniform", (2, 2), {"size": 2}),
    ("standard_normal", (), {}),
    ("normal", (), {"size": (2, 2)}),
    ("normal", (0.1, 0.7), {}),
    ("normal", (0, 0.0), {}),
    ("standard_exponential", (), {}),
    ("exponential", (0.3,), {"size": 2}),
    ("exponential", (0.0,), {}),
    ("integers", (7,), {}),
    ("integers", (-5, 3), {"size": 3}),
    ("integers", (2**32 - 2,), {}),
    ("choice", (6,), {}),
    ("integers", (2,), {"size": 5}),
]


@pytest.mark.parametrize(("method", "args", "kwargs"), METHODS)
def test_machine_code_draws_the_bits_that_numpy_draws(method: str, args: Any, kwargs: Any) -> None:
    def walk(rng: Any, high: float) -> Any:
        total, iterations, last = 0.0, 0, 0.0
        while iterations < 4000:
            x = getattr(rng, method)(*args, **kwargs)
            if rng.random() < high:
                last = last * 0.5 + np.sum(x)
            total = total + np.sum(x)
            iterations += 1
        return total, last

    traced = tg.trace(walk)
    for seed in range(4):
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        for rng in (ours, theirs):
            rng.integers(5, size=seed % 2)  # which leaves half of a word for the next one
        agree(traced(ours, 0.5), walk(theirs, 0.5))
        assert state(ours) == state(theirs)
    assert traced.cache_info().traces == 1


def drawn(method: str, *args: Any, **kwargs: Any) -> Native | None:
    rng = np.random.default_rng(0)
    before = random_streams.read_state(rng)
    result = np.asarray(getattr(rng, method)(*args, **kwargs))
    params = {
        "kind": random_streams.kind_of(rng),
        "method": method,
        "args": tuple([("is", x) for x in args]),
        "kwargs": tuple([(k, ("is", x)) for k, x in kwargs.items()]),
        "shape": result.shape,
        "dtype": result.dtype.name,
    }
    state_of = GraphNode(None, (), (), tg.avals.aval_of(before))
    aval = random_streams.draw.aval(state_of.aval, **params)
    return native_of(GraphNode(random_streams.draw, (state_of,), tuple(sorted(params.items())), aval))


def test_which_draws_are_machine_code() -> None:
    assert drawn("random") == Native("uniform", 1)
    assert drawn("normal", 0.0, 1.0, 3) == Native("normal", 3)
    assert drawn("integers", 2, 9) == Native("integers", 1, 2, 7)
    assert drawn("choice", 4) == Native("integers", 1, 0, 4)
    assert drawn("random", dtype="float32") is drawn("poisson", 3.0) is drawn("normal", 0.0, 1.0, 100) is None
    assert drawn("integers", 1) is drawn("integers", 2**40) is drawn("choice", 4, 2, False) is None


@pytest.mark.parametrize(
    "make", [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]
)
@pytest.mark.parametrize("face", [np.random.Generator, np.random.RandomState])
def test_the_state_of_any_generator_is_an_array_that_leads_on_as_it_does(make: Any, face: Any) -> None:
    one, other = face(make(3)), face(make(4))
    one.standard_normal(3)
    (one.integers if face is np.random.Generator else one.randint)(7)
    random_streams.write_state(other, random_streams.read_state(one))
    assert one.standard_normal(5).tolist() == other.standard_normal(5).tolist()
    assert one.uniform() == other.uniform()


# -- where generators are ------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Options:
    rng: Any
    scale: float


class Named(NamedTuple):
    rng: Any
    scale: float


def walk(x: Any, rng: Any, scale: float = 1.0) -> Any:
    for _ in range(40):
        if rng.random() < 0.3:
            x = x + scale * rng.normal()
    return x


PLACES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "list": (lambda x, c: walk(x, c[0]), lambda rng: [rng]),
    "dict": (lambda x, c: walk(x, c["rng"]), lambda rng: {"rng": rng}),
    "tuple": (lambda x, c: walk(x, c[1][0]), lambda rng: (2.0, (rng,))),
    "named tuple": (lambda x, c: walk(x, c.rng, c.scale), lambda rng: Named(rng, 2.0)),
    "dataclass": (lambda x, c: walk(x, c.rng, c.scale), lambda rng: Options(rng, 2.0)),
    "within": (lambda x, c: walk(x, c[0].rng.rng, c[0].scale), lambda rng: [Options(Named(rng, 1.0), 2.0)]),
    "method": (lambda x, c: walk(x, c), lambda rng: rng),
}


@pytest.mark.parametrize("place", PLACES)
def test_generators_in_containers_are_those_of_the_call(place: str) -> None:
    f, held = PLACES[place]
    traced = tg.trace(f)
    for seed in range(6):
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        container = held(ours)
        agree(traced(1.0, container), f(1.0, held(theirs)))
        agree(traced(1.0, container), f(1.0, held(theirs)))
        assert state(ours) == state(theirs)
    assert traced.cache_info().traces == 1


RNG = np.random.default_rng(0)


class Holder:
    rng: Any = None


@pytest.mark.parametrize("where", ["global", "attribute", "closure", "made"])
def test_generators_from_outside_and_of_the_call_itself(where: str) -> None:
    holder, enclosed = Holder(), np.random.default_rng(2)
    holder.rng = np.random.default_rng(1)
    functions: dict[str, Callable[[Any], Any]] = {
        "global": lambda x: walk(x, RNG),
        "attribute": lambda x: walk(x, holder.rng),
        "closure": lambda x: walk(x, enclosed),
        "made": lambda x: walk(x, np.random.default_rng(5)),
    }
    f, used = functions[where], [RNG, holder.rng, enclosed]
    before = [rng.bit_generator.state for rng in used]
    traced = tg.trace(f)
    got = [traced(float(k)) for k in range(6)], list(map(state, used))
    for rng, at in zip(used, before):
        rng.bit_generator.state = at
    agree(got[0], [f(float(k)) for k in range(6)])
    assert got[1] == list(map(state, used))
    assert traced.cache_info().traces <= 2


def test_two_generators_with_one_state_are_drawn_from_as_numpy_draws() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        for _ in range(30):
            if a.random() < 0.4:
                x = x + b.normal()
        return x

    def apart(seed: int) -> Any:
        return np.random.default_rng(seed), np.random.default_rng(seed + 100)

    def together(seed: int) -> Any:
        bits = np.random.PCG64(seed)
        return np.random.Generator(bits), np.random.Generator(bits)

    traced = tg.trace(f)
    for make in (apart, together, apart, together):
        for seed in range(2):
            ours, theirs = make(seed), make(seed)
            agree(traced(1.0, *ours), f(1.0, *theirs))
            assert list(map(state, ours)) == list(map(state, theirs))


# -- calls that do not come to their end ---------------------------------------------------------------------------
def test_a_call_that_raises_in_a_loop_leaves_the_generator_where_python_does() -> None:
    def f(x: Any, rng: Any) -> Any:
        for _ in range(50):
            u = rng.random()
            if u < x:
                raise ValueError("small")
            if rng.random() < 0.5:
                x = x * 0.5
        return x

    traced = tg.trace(f)
    for seed in range(8):
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        for x in (0.2, 0.0, 0.05):
            raised = []
            for g, rng in ((traced, ours), (f, theirs)):
                try:
                    raised.append(g(x, rng))
                except ValueError as error:
                    raised.append(str(error))
            assert raised[0] == raised[1]
            assert state(ours) == state(theirs)


def test_arguments_that_numpy_refuses_raise_its_error_where_the_generator_is_left() -> None:
    def f(x: Any, rng: Any) -> Any:
        for _ in range(20):
            if rng.random() < 0.5:
                x = x - rng.poisson(x)
        return x

    traced, raised = tg.trace(f), 0
    for seed in range(6):
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        results = []
        for g, rng in ((traced, ours), (f, theirs)):
            try:
                results.append(g(3.0, rng))
            except ValueError as error:
                results.append(str(error))
        assert results[0] == results[1]
        assert state(ours) == state(theirs)
        raised += type(results[0]) is str
    assert 0 < raised < 6


def test_a_generator_that_something_else_draws_from_meanwhile_is_an_error_and_not_moved_back() -> None:
    rng = np.random.default_rng(0)
    moving = random_streams.GeneratorSnapshot(rng, random_streams.read_state(rng))
    rng.random()
    before = state(rng)
    with pytest.raises(RuntimeError, match="something else has drawn"):
        moving.to(moving.before)
    assert state(rng) == before


# -- derivatives ---------------------------------------------------------------------------------------------------
def chain(scale: Any, rng: Any) -> Any:
    x = scale * 0.5
    for _ in range(25):
        if rng.random() < 0.6:
            x = 0.9 * x + scale * np.sin(x) * rng.normal()
    return x


def difference(f: Callable[[float], float], x: float, h: float = 1e-5) -> float:
    return (f(x + h) - f(x - h)) / (2 * h)


@pytest.mark.parametrize("seed", range(3))
def test_derivatives_go_through_a_loop_that_draws_whose_draws_stay_the_same(seed: int) -> None:
    def new() -> Any:
        return np.random.default_rng(seed)

    derivative, second = tg.grad(chain), tg.grad(tg.grad(chain))
    value, tangent = tg.value_and_grad(chain), lambda x, rng: tg.jvp(lambda x: chain(x, rng), (x,), (1.0,))[1]
    wanted, after = difference(lambda x: chain(x, new()), 0.8), new()
    chain(0.8, after)
    for g in (derivative, tangent, lambda *args: value(*args)[1]):
        for _ in range(3):
            rng = new()
            np.testing.assert_allclose(g(0.8, rng), wanted, rtol=1e-7)
            assert state(rng) == state(after)
    bend = difference(lambda x: derivative(x, new()), 0.8)
    for _ in range(2):
        np.testing.assert_allclose(second(0.8, new()), bend, rtol=1e-6)


def test_a_jacobian_of_a_loop_that_draws_takes_one_draw_for_all_rows() -> None:
    def f(x: Any, rng: Any) -> Any:
        for _ in range(25):
            if rng.random() < 0.5:
                x = x * 0.9 + np.sin(x[::-1]) * rng.normal(size=2)
        return x

    x, jacobian, h = np.array([0.3, -0.7]), tg.jacobian(f), 1e-5
    for seed in range(3):
        ends = [[f(x + t * e, np.random.default_rng(seed)) for t in (h, -h)] for e in np.eye(2)]
        wanted = np.stack([(up - down) / (2 * h) for up, down in ends], axis=1)
        np.testing.assert_allclose(jacobian(x, np.random.default_rng(seed)), wanted, rtol=1e-6, atol=1e-8)


def test_a_batch_of_states_is_drawn_from_one_by_one() -> None:
    results = [np.random.default_rng(k) for k in range(3)]
    states = np.stack([random_streams.read_state(rng) for rng in results])
    params = {"kind": random_streams.kind_of(results[0]), "kwargs": (), "shape": (2,)}
    after, answers = tg.vmap(
        lambda s: random_streams.draw(s, method="random", args=(("is", 2),), dtype="float64", **params)
    )(states)
    np.testing.assert_array_equal(answers, [rng.random(2) for rng in results])
    np.testing.assert_array_equal(after, [random_streams.read_state(rng) for rng in results])
    params |= {"method": "poisson", "args": (("of", 0), ("is", 2)), "dtype": "int64"}
    rates = np.array([1.0, 5.0, 50.0])
    _, answers = tg.vmap(lambda s, rate: random_streams.draw_by(s, rate, **params))(after, rates)
    np.testing.assert_array_equal(answers, [rng.poisson(rate, 2) for rng, rate in zip(results, rates)])
