"""Records are dataclasses: the same methods, written later."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import field
from typing import Any

import pytest

from tracegrad.utils.lazy_dataclass import record


def both(namespace: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """The record and the dataclass of a class with these annotations and defaults."""
    results = [type("Point", (), dict(namespace)) for _ in range(2)]
    return record(**options)(results[0]), dataclasses.dataclass(**options)(results[1])


FIELDS: dict[str, Any] = {
    "__annotations__": {"a": int, "b": "tuple[int, ...]", "c": list, "d": int, "e": int, "f": int},
    "b": (1, 2),
    "c": field(default_factory=list, compare=False),
    "d": field(default=3, init=False, repr=False),
    "e": field(default=4, hash=False),
    "f": field(default=5, kw_only=True),
}
OPTIONS = [
    {"frozen": frozen, "slots": slots, "eq": eq}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_record_does_what_a_dataclass_does(options: dict[str, Any]) -> None:
    results = []
    for cls in both(FIELDS, **options):
        x, y, z = cls(1), cls(1, f=5), cls(a=2, b=(), c=[1], e=6, f=7)
        facts: list[Any] = [repr(each) for each in (x, y, z)]
        facts += [x == y, x == z, x != y, x == 1, x.c is not y.c, dataclasses.asdict(z), hasattr(x, "__dict__")]
        facts.append(cls.__hash__ is None or (hash(x) == hash(y), hash(x) == hash(z)))
        facts.append(repr(dataclasses.replace(x, a=9, f=1)))
        facts.append(repr(copy.copy(z)))
        for change in (lambda x=x: setattr(x, "a", 2), lambda x=x: delattr(x, "e")):
            try:
                change()
            except AttributeError as error:
                facts.append((type(error), str(error)))
        facts.append((x.a, cls.__match_args__, [f.name for f in dataclasses.fields(cls)]))
        for wrong in (lambda c=cls: c(), lambda c=cls: c(1, 2, 3, 4, 5), lambda c=cls: c(1, g=1)):
            with pytest.raises(TypeError):
                wrong()
        results.append(facts)
    assert results[0] == results[1]


def test_records_inherit_and_finish_what_they_are_given() -> None:
    @record(frozen=True)
    class Base:
        a: int
        b: int = 2

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("less than 0")

    @record(frozen=True)
    class Derived(Base):
        c: int = 3

        def __repr__(self) -> str:
            return "mine"

    assert (Derived(1), Derived(1, 4).b, Derived(1).c) == (Derived(1, 2, 3), 4, 3)
    assert Base(1) != Derived(1)
    assert hash(Base(1)) == hash(Base(1, 2))
    assert (repr(Base(1)), repr(Derived(1))) == (f"{Base.__qualname__}(a=1, b=2)", "mine")
    with pytest.raises(ValueError, match="less than 0"):
        Derived(-1)


def test_methods_are_written_once_when_they_are_first_called_or_an_init_often() -> None:
    @record(frozen=True)
    class Point:
        x: int

    first = Point.__init__, Point.__eq__, Point.__hash__
    assert Point(1) == Point(1)
    assert (Point.__init__ is first[0], Point.__eq__ is first[1], Point.__hash__ is first[2]) == (True, False, True)
    assert [Point(x=i) for i in range(10)] == [Point(i) for i in range(10)]
    written = Point.__init__
    assert written is not first[0]
    assert {Point(1), Point(1)} == {Point(1)}
    assert Point.__init__ is written
    assert Point.__hash__ is not first[2]


def test_what_a_record_lacks_is_a_type_error_from_the_first_one_on() -> None:
    @record()
    class Pair:
        a: int
        b: int = 2

    for _ in range(20):
        for args, inputs in (((), {"c": 1}), ((), {"b": 1}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"c": 1})):
            with pytest.raises(TypeError):
                Pair(*args, **inputs)
        assert Pair(1) == Pair(b=2, a=1)
