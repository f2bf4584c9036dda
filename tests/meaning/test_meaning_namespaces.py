"""Programs that write attributes by name and by `__dict__`, and classes of `UserDict` and `UserList`."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import attempt, compare, program

import tracegrad as tg

X = np.array([1.0, 2.0, -1.0])
put, take = object.__setattr__, object.__delattr__


class Box:
    """An object with attributes."""


def _is_seen(box: Any, x: Any) -> Any:
    held = vars(box)
    put(box, "a", x)
    put(box, "b", x * 2)
    return held["a"], held.get("b"), "b" in held, list(held), len(held)


def _is_seen_by_the_end_alone(box: Any, x: Any) -> Any:
    held = vars(box)
    put(box, "b", x)
    return len(held) and x


def _of_the_superclass(box: Any, x: Any) -> Any:
    held = vars(box)
    super(Box, box).__setattr__("b", x)
    return {**held}


def _then_an_item(box: Any, x: Any) -> Any:
    held = box.__dict__
    put(box, "b", x)
    held["b"] = held["b"] * 3
    held.update(a=5.0)
    return box.a, box.b


def _item_then_an_attribute(box: Any, x: Any) -> Any:
    held = vars(box)
    held["b"] = x
    put(box, "b", box.b * 2)
    return held["b"], held.setdefault("a", 7.0)


def _then_taken(box: Any, x: Any) -> Any:
    held = vars(box)
    put(box, "b", x)
    results = held.pop("b"), hasattr(box, "b")
    take(box, "a")
    return results, "a" in held, list(held.values())


def _then_cleared(box: Any, x: Any) -> Any:
    held = vars(box)
    put(box, "b", x)
    held.clear()
    return hasattr(box, "b"), len(held)


def _another_dict(box: Any, x: Any) -> Any:
    box.__dict__ = {"q": x}
    return hasattr(box, "a"), sorted(vars(box))


def _another_dict_after_the_first(box: Any, x: Any) -> Any:
    held = vars(box)
    box.__dict__ = dict(held, q=x)
    held["w"] = x
    return sorted(held), sorted(vars(box))


def _another_dict_past_the_class(box: Any, x: Any) -> Any:
    put(box, "__dict__", {"q": x})
    return x


def _another_dict_that_is_read(box: Any, x: Any) -> Any:
    held = vars(box)
    put(box, "__dict__", {"q": x})
    return sorted(held), box.q, hasattr(box, "a")


WRITES: list[Callable[[Any, Any], Any]] = [
    _is_seen,
    _is_seen_by_the_end_alone,
    _of_the_superclass,
    _then_an_item,
    _item_then_an_attribute,
    _then_taken,
    _then_cleared,
    _another_dict,
    _another_dict_after_the_first,
    _another_dict_past_the_class,
    _another_dict_that_is_read,
]


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@pytest.mark.parametrize("mode", ["traced", "disabled", "tensors"])
@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__[1:])
def test_an_attribute_that_is_written_is_in_the_dict(write: Any, mode: str) -> None:
    def written(trace: Any) -> Any:
        box: Any = Box()
        box.a, box.k = 1.0, 3.0
        f = trace(lambda x: write(box, x))
        for scale in (1.0, 2.0, 3.0):
            yield f(scale * X), vars(box)
            box.a = 2.0

    compare(written, mode)


def _attribute_first(box: Any, held: Any, x: Any) -> Any:
    box.a, box.b = x, x * 2
    return held["a"], held.get("b"), len(held)


def _item_first(box: Any, held: Any, x: Any) -> Any:
    held["a"], held["b"] = x, x * 2
    return box.a, box.b


def _both_are_read_before(box: Any, held: Any, x: Any) -> Any:
    before = held["a"], box.a
    box.a = x
    held["a"] = held["a"] + box.a
    del box.k
    return before, box.a, vars(box)["a"], "k" in held


def _are_asked_for_again(box: Any, held: Any, x: Any) -> Any:
    again = vars(box)
    again["b"] = x
    put(box, "a", held["b"] * 2)
    return held["a"], again["a"], again is held


@pytest.mark.parametrize("mode", ["traced", "disabled", "tensors"])
@pytest.mark.parametrize("write", [_attribute_first, _item_first, _both_are_read_before, _are_asked_for_again])
def test_a_dict_from_outside_is_that_of_the_object(write: Any, mode: str) -> None:
    def written(trace: Any) -> Any:
        box: Any = Box()
        box.a, box.k, held = 1.0, 3.0, vars(box)
        f = trace(lambda x: write(box, held, x))
        for scale in (1.0, 2.0, 3.0):
            yield f(scale * X), vars(box)
            box.a = box.k = 2.0
        other: Any = Box()
        other.a, other.k = 5.0, 6.0
        held, before = vars(other), held
        yield attempt(f, X), vars(box), vars(other), before
        box = other
        yield f(X), vars(other)

    compare(written, mode)


def test_an_object_that_is_given_another_dict_is_named() -> None:
    box: Any = Box()

    @tg.trace
    def f(x: Any) -> Any:
        box.__dict__ = {"q": x}
        return x

    with pytest.warns(tg.PerformanceWarning, match="the __dict__ of the closure variable box is assigned"):
        f(X)


def _logged(log: list[Any]) -> Any:
    class Items(collections.UserDict[Any, Any]):
        def __init__(self, *args: Any) -> None:
            log.append("a dict")
            self.scale = 2.0
            super().__init__(*args)

        def __missing__(self, key: Any) -> Any:
            log.append(key)
            self.data[key] = 3.0
            return 3.0

    class Row(collections.UserList[Any]):
        def __init__(self, *args: Any) -> None:
            log.append("a list")
            super().__init__(*args)

    return Items, Row


@program
def test_classes_of_user_dicts_and_lists_are_asked_by_them_for_their_methods(trace: Any) -> Any:
    log: list[Any] = []
    items, row = (cls() for cls in _logged(log))

    @trace
    def read(x: Any) -> Any:
        return x * items[int(x[0] > 0)]

    @trace
    def united(x: Any) -> Any:
        both = items | {"b": x}
        return both["b"] * both.scale

    @trace
    def sliced(x: Any) -> Any:
        return row[0:1][0] if len(row) else (row * 2, x)[1]

    for sign in (1, 1, -1, 1):
        yield read(sign * X), dict(items), log
        yield united(sign * X), sliced(sign * X), log
    items.clear()
    yield read(X), dict(items), log
