"""Large collections from outside, whose items change while their number does not, and keys that print alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from meaning import program

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
        found = [x * rates[k] for k in (a, b, p, q, (a, 1), (b, 1))]
        return found, [functions[k](x) for k in (a, b, p, q)]

    yield f(np.ones(2))
    for key in list(rates):
        rates[key] += 1.0
        yield f(np.ones(2))
    for key in list(functions):
        functions[key] = triple
        yield f(np.ones(2))
