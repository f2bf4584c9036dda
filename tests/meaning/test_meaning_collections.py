"""Large collections from outside, whose items change while their number does not, and keys that print alike."""

from __future__ import annotations

import operator
from collections import Counter, deque
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from meaning import compare, program

MANY = 5000


class Numbers(list[float]):
    pass


class Members(set[int]):
    pass


@program
def test_one_item_of_many_changes(trace: Any) -> Iterator[Any]:
    members, numbers, own = set(range(MANY)), deque(map(float, range(MANY))), Members(range(MANY))
    row, flags, table = Numbers(map(float, range(MANY))), bytearray(MANY), {k: float(k) for k in range(MANY)}

    @trace
    def asked(x: Any) -> Any:
        return x * (2.0 if 77 in members else 3.0) + (5.0 if 77 in own else 7.0)

    @trace
    def read(x: Any) -> Any:
        return x * numbers[77] + row[77] + flags[77] + table[77]

    @trace
    def counted(x: Any) -> Any:
        return x * float(len(members)) + float(sum(members)) + sum(row)

    for k in range(4):
        yield asked(np.ones(2)), read(np.ones(2)), counted(np.ones(2))
        for collection in (members, own):
            collection ^= {77, MANY + k}
        numbers[77] += 1.0
        row[77] += 1.0
        flags[77] += 1
        table[77] += 1.0


@program
def test_collections_that_a_call_makes_hold_its_values(trace: Any) -> Iterator[Any]:
    state: dict[str, Any] = {}

    @trace
    def step(x: Any) -> Any:
        last = state.setdefault("last", deque(maxlen=3))
        last.append(x.sum())
        state["counts"] = Counter(a=x[0], b=2.0)
        state["nested"] = {"queue": deque([x[0] * 2])}
        return deque([x[0], x[1]], 2), sum(last)

    for n in range(5):
        yield step(np.array([n, 1.5])), deepcopy(state)
        yield state["last"].maxlen, type(state["counts"]), step(np.ones(2))[0].maxlen


@program
def test_lists_in_dicts_are_appended_to(trace: Any) -> Iterator[Any]:
    history: dict[str, list[Any]] = {"loss": [], "state": []}

    @trace
    def step(x: Any) -> Any:
        history["loss"].append(float(x.sum()))
        history["state"].append(x * 2)
        history.setdefault("late", []).append(x[0])
        return x + 1

    for n in range(6):
        yield step(np.array([n, 1.5])), {k: list(v) for k, v in history.items()}
    yield getattr(step, "cache_info", None) is None or step.cache_info().traces <= 2


@program
def test_an_equal_set_is_the_same(trace: Any) -> Iterator[Any]:
    held = {"of": set(range(MANY))}

    @trace
    def f(x: Any) -> Any:
        return x * (2.0 if 77 in held["of"] else 3.0)

    for _ in range(2):
        yield f(np.ones(2))
        held["of"] = set(range(MANY))
    held["of"].remove(77)
    yield f(np.ones(2))


class Named:
    """Keys of which two print alike."""

    def __init__(self, v: int):
        self.v = v

    def __repr__(self) -> str:
        return "named"

    def __hash__(self) -> int:
        return hash(self.v)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.v == other.v


class Quiet(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "quiet"


def double(x: Any) -> Any:
    return x * 2.0


def triple(x: Any) -> Any:
    return x * 3.0


@program
def test_keys_that_print_alike_are_told_apart(trace: Any) -> Iterator[Any]:
    a, b, p, q = Named(1), Named(2), Quiet("p"), Quiet("q")
    rates: dict[Any, Any] = {a: 2.0, b: 2.0, p: 2.0, q: 2.0, (a, 1): 2.0, (b, 1): 2.0}
    functions: dict[Any, Any] = {a: double, b: double, p: double, q: double}

    @trace
    def f(x: Any) -> Any:
        results = [x * rates[k] for k in (a, b, p, q, (a, 1), (b, 1))]
        return results, [functions[k](x) for k in (a, b, p, q)]

    yield f(np.ones(2))
    for key in list(rates):
        rates[key] += 1.0
        yield f(np.ones(2))
    for key in list(functions):
        functions[key] = triple
        yield f(np.ones(2))


class Scaled:
    """A part of a model: a number, and what it does."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, x: Any) -> Any:
        return x * self.rate


@program
def test_arrays_of_objects_from_outside_are_read_at_each_call(trace: Any) -> Iterator[Any]:
    parts = np.atleast_1d(np.array([Scaled(2.0), Scaled(3.0)], object))
    ragged = np.empty((2, 1), object)
    ragged[0, 0], ragged[1, 0] = np.ones(2), np.ones(3)
    options = np.array([1.5, None, "on"], object)

    @trace
    def f(x: Any) -> Any:
        total = x if options[1] is None else x * options[1]
        for k in range(len(parts)):
            total = total + parts[k](x)
        for row in ragged.ravel():
            total = total + np.sum(row) * x
        return total * options[0], parts.shape, options[-1] == "on"

    yield f(np.ones(2))
    parts[0].rate = 5.0
    yield f(np.ones(2))
    parts[1] = Scaled(7.0)
    yield f(np.ones(2))
    ragged[1, 0] = np.ones(5)
    yield f(np.ones(2))
    ragged[1, 0][:] = 2.0
    yield f(np.ones(2))
    options[:] = [2.5, 3.0, "off"]
    yield f(np.ones(2))


@pytest.mark.filterwarnings("ignore:.*an array of objects that is written into")
@program
def test_arrays_of_objects_that_are_written_into_hold_what_each_call_writes(trace: Any) -> Iterator[Any]:
    last = np.array([None, None], object)

    @trace
    def f(x: Any) -> Any:
        last[0] = x * 2.0
        return x * 3.0

    for k in range(3):
        yield f(np.ones(2) * k), last.tolist()


@program
def test_arrays_of_objects_texts_and_dates_are_made_in_the_function(trace: Any) -> Iterator[Any]:
    @trace
    def f(x: Any, names: Any) -> Any:
        held = np.array([[None] * 2]).T
        chosen = x[np.array(names) == "b"]
        parts = np.empty(3, object)
        for k in range(3):
            parts[k] = x[k] * k
        days = np.zeros(2, "datetime64[D]")
        options = np.full((2, 2), None)
        return chosen, parts.sum(), parts[1] * parts[2], held.shape, days.size, options.size

    for names in (("a", "b", "b"), ("b", "a", "a")):
        yield f(np.arange(3.0), names)
        yield f(np.arange(3.0) + 1.0, names)


# Two containers from outside, and what the second becomes: first as the other, then with one thing more.
PAIRS: dict[str, tuple[Any, Any, Any]] = {
    "lists": ([1, 2], [1, 2], lambda xs: xs.append(3)),
    "lists of lists": ([[1], 2], [[1], 2], lambda xs: xs[0].append(3)),
    "dicts": ({"a": 1}, {"a": 1}, lambda xs: xs.update(b=2)),
    "sets": ({1, 2}, {1, 2}, lambda xs: xs.add(3)),
    "deques": (deque([1, 2]), deque([1, 2]), lambda xs: xs.append(3)),
}
ASKED: dict[str, Any] = {
    "text": lambda a, b: len(str(a)) + len(f"{b}") + len(f"{b!r}") + len("%s" % (b,)) + len(ascii(b)),  # noqa: UP031
    "text of what is around it": lambda a, b: len(str([a, b])) + len(str({"a": b})) + len(str((b,))),
    "equal": lambda a, b: (a == b) + 2 * (a != b) + 4 * (b == a),
    "equal within": lambda a, b: ([a] == [b]) + 2 * (a in [b]) + 4 * [b].count(a),
    "order": lambda a, b: 0 if isinstance(a, dict) else (a < b) + 2 * (a <= b) + 4 * (a > b) + 8 * (a >= b),
}


@pytest.mark.parametrize("mode", ["traced", "disabled"])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", PAIRS)
def test_two_containers_are_compared_and_written_as_they_are(kind: str, asked: str, mode: str) -> None:
    def script(trace: Any) -> Iterator[Any]:
        a, b, change = deepcopy(PAIRS[kind])
        ask = ASKED[asked]

        @trace
        def f(x: Any) -> Any:
            return x * ask(a, b)

        yield f(np.ones(2))
        change(b)
        yield f(np.ones(2))
        change(a)
        yield f(np.ones(2))

    compare(script, mode)


def _in_place(change: Any) -> Any:
    def ask(s: Any) -> Any:
        results = {2.0, 4.0}
        results = change(results, s) or results
        return sum(results)

    return ask


# What C code does with a set from outside that another set, or the class of sets, is given.
FROZEN = frozenset([2.0, 4.0])
OF_SETS: dict[str, Any] = {
    "set": lambda s: sum(set(s)),
    "frozenset": lambda s: sum(frozenset(s)),
    "union": lambda s: sum({4.0}.union(s)),
    "intersection": lambda s: sum({2.0, 4.0}.intersection(s)),
    "difference": lambda s: sum({2.0, 4.0}.difference(s)),
    "symmetric_difference": lambda s: sum({2.0, 4.0}.symmetric_difference(s)),
    "issubset": lambda s: 1.0 + {2.0}.issubset(s),
    "issuperset": lambda s: 1.0 + {2.0, 3.0}.issuperset(s),
    "isdisjoint": lambda s: 1.0 + {4.0}.isdisjoint(s),
    "operators": lambda s: sum({4.0} | s) + sum({2.0, 4.0} & s) + sum({2.0, 4.0} - s) + sum({4.0} ^ s),
    "a frozenset": lambda s: sum(FROZEN | s) + sum(FROZEN & s) + sum(FROZEN - s) + (s <= FROZEN) + (s == FROZEN),
    "keys": lambda s: len({4.0: 1}.keys() | s) + len({2.0: 1}.keys() & s),
    "update": _in_place(lambda made, s: made.update(s)),
    "intersection_update": _in_place(lambda made, s: made.intersection_update(s)),
    "difference_update": _in_place(lambda made, s: made.difference_update(s)),
    "in place": _in_place(lambda made, s: made.__ior__(s)),
    "concatenation": lambda s: len(operator.concat([0.0], sorted(s))),
}


@pytest.mark.parametrize("mode", ["traced", "disabled"])
@pytest.mark.parametrize("asked", OF_SETS)
def test_what_other_sets_make_of_one_is_made_at_each_call(asked: str, mode: str) -> None:
    def script(trace: Any) -> Iterator[Any]:
        s, ask = {2.0, 3.0}, OF_SETS[asked]

        @trace
        def f(x: Any) -> Any:
            return x * ask(s)

        yield f(np.ones(2))
        s.add(4.0)
        yield f(np.ones(2))
        s.discard(2.0)
        yield f(np.ones(2))

    compare(script, mode)


@program
def test_sets_that_are_only_added_to_in_one_function_are_read_in_another(trace: Any) -> Iterator[Any]:
    seen = {1.0}

    def note(k: Any) -> None:
        seen.add(k)

    @trace
    def f(x: Any) -> Any:
        note(2.0)
        return x * len(frozenset(seen))

    for k in (3.0, 4.0):
        yield f(np.ones(2)), seen
        seen.add(k)
    yield f(np.ones(2)), seen
