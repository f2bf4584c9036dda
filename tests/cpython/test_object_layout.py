"""What is assumed of the memory of objects."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np

from tracegrad.cpython.object_layout import has_dict, has_hidden_fields


class _Slots:
    __slots__ = ("a", "b")


class _Derived(_Slots):
    __slots__ = ("c",)


class _Usual(_Slots):
    pass


class _Pair(NamedTuple):
    a: int
    b: int


def test_a_class_knows_whether_instances_have_a_dict() -> None:
    assert not any(map(has_dict, (int, list, _Slots, _Derived, _Pair, np.ndarray)))
    assert all(map(has_dict, (_Usual, type, BaseException, type(has_dict))))


def test_fields_of_slots_are_pointers_and_fields_of_builtin_classes_are_hidden() -> None:
    classes: dict[Any, int] = {_Slots: 2, _Derived: 1, _Pair: 0}
    assert not any(has_hidden_fields(cls, known) for cls, known in classes.items())
    assert has_hidden_fields(_Slots, 1)
    assert all(has_hidden_fields(cls, 0) for cls in (list, dict, collections.deque, np.ndarray))
