"""What is assumed of the memory of objects."""

from __future__ import annotations

import collections
import pickle
import sys
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from tracegrad.cpython.object_layout import (
    array_layout_is_known,
    cell_offset,
    code_offset,
    dtype_identity,
    has_dict,
    has_hidden_fields,
    length_offset,
    mro_offset,
    offset_of,
)
from tracegrad.cpython.raw_memory import array_at, pointer_at


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


# -- fields ----------------------------------------------------------------------------------------------
known = pytest.mark.skipif(sys.implementation.name != "cpython", reason="another object header")


@known
def test_fields_of_arrays_and_floats_are_where_machine_code_reads_them() -> None:
    assert array_layout_is_known()


@known
def test_equal_dtypes_have_one_identity() -> None:
    names = ("f8", "f4", "i8", "i4", "?", "c16")
    identities = [dtype_identity(id(np.dtype(name))) for name in names]
    assert len(set(identities)) == len(names)
    copy = pickle.loads(pickle.dumps(np.dtype("f8")))
    assert dtype_identity(id(copy)) == identities[0]


@known
def test_offsets_lead_to_the_objects() -> None:
    held = object()
    cell, cls = types.CellType(held), type("Own", (list,), {})
    assert pointer_at(id(cell) + (cell_offset() or 0)) == id(held)
    assert pointer_at(id(_function) + (code_offset() or 0)) == id(_function.__code__)
    assert pointer_at(id(cls) + (mro_offset() or 0)) == id(cls.__mro__)
    table = {"a": 1, "b": 2}
    assert pointer_at(id(table) + (length_offset() or 0)) == 2
    del table["a"]
    assert pointer_at(id(table) + (length_offset() or 0)) == 1


def _function() -> None: ...


@known
def test_an_offset_that_does_not_exist_is_none() -> None:
    assert offset_of([], ([], object())) is None


def test_an_array_at_an_address_shares_the_memory() -> None:
    x = np.arange(5.0)
    y = array_at(x.ctypes.data + 8, 3, np.float64)
    y[0] = 7.0
    assert x.tolist() == [0.0, 7.0, 2.0, 3.0, 4.0]
