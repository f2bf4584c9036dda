"""Sorting, searching and packing that compiled code does without Python, against NumPy: the same bits, ties and nan
included."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from graphs import REAL

import tracegrad as tg
from tracegrad.codegen.libs.sorting import ORDERING
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.program.encode import encode_program
from tracegrad.ops.shape.repeat_index import repeated_index
from tracegrad.platform.processes import instruction_set
from tracegrad.runtime.execution import image
from tracegrad.runtime.execution.numpy_sort_addresses import sort_address

pytestmark = pytest.mark.usefixtures("compile_first")
dtypes = pytest.mark.parametrize("dtype", sorted(x.name for x in REAL))
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((1,), 0),
    ((37,), 0),
    ((1000,), 0),
    ((5, 33), 1),
    ((33, 5), 0),
    ((33, 19), 0),
    ((3, 17, 4), 1),
    ((0, 3), 0),
    ((4, 0), 1),
]


@pytest.fixture
def compile_first() -> Iterator[None]:
    with tg.settings.override(first_call="compile"):
        yield


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers with ties; of floats zeros of both signs, infinities and nan."""
    x = 50 * np.random.default_rng(0).standard_normal(shape)
    x = x.astype("int8" if dtype[0] == "u" else dtype).astype(dtype)
    if dtype[0] == "f" and x.size > 6:
        flat = x.reshape(-1)
        flat[::7], flat[1::5], flat[2::5], flat[3], flat[4] = np.nan, -0.0, 0.0, np.inf, -np.inf
    return x


def native_calls(f: Any, *args: Any) -> list[str]:
    orders = encode_program(plan(tg.trace(f).explain(*args).optimized))
    return [str(o.function).split(".")[1] for o in orders if str(o.function).startswith(ORDERING)]


# Half precision is sorted as single precision. On ARM, NumPy sorts by vectors, which leave 0.0 and -0.0 in any order.
TIES_IN_OTHER_ORDER = {"float16"} if instruction_set() == "x86_64" else {"float16", "float32", "float64"}


def same(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())


@dtypes
@pytest.mark.parametrize("kind", [None, "stable"])
def test_elements_and_indices_are_in_the_order_of_numpy(dtype: str, kind: Any) -> None:
    for shape, axis in SHAPES:
        x = numbers(shape, dtype)
        result, places = (tg.trace(partial(f, axis=axis, kind=kind))(x) for f in (np.sort, np.argsort))
        if kind is None and dtype in TIES_IN_OTHER_ORDER:
            for ordered in (result, np.take_along_axis(x, places, axis)):
                np.testing.assert_array_equal(ordered, np.sort(x, axis))
        else:
            same(result, np.sort(x, axis, kind))
            same(places, np.argsort(x, axis, kind))


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_descending_order_is_that_of_pytorch(shape: tuple[int, ...], axis: int) -> None:
    x = numbers(shape, "float64")

    def both(x: Any) -> Any:
        return tg.argsort(x, dim=axis, descending=True, stable=True), tg.sort(x, dim=axis, descending=True)[0]

    index, values = tg.trace(both)(x)
    backwards = np.flip(x, axis)
    same(index, np.ascontiguousarray(x.shape[axis] - 1 - np.flip(np.argsort(backwards, axis, kind="stable"), axis)))
    np.testing.assert_array_equal(values, np.flip(np.sort(backwards, axis), axis))


@dtypes
@pytest.mark.parametrize("side", ["left", "right"])
def test_values_belong_where_numpy_says(dtype: str, side: Any) -> None:
    for n, k in [(1, 1), (2, 9), (5, 8), (100, 100), (1000, 1003), (7, 0), (0, 5)]:
        x, values = np.sort(numbers((n,), dtype)), numbers((k + 1,), dtype)[1:]
        same(tg.trace(lambda x, v: np.searchsorted(x, v, side))(x, values), np.searchsorted(x, values, side))


def test_each_row_is_searched_for_its_own_values() -> None:
    x, values = np.sort(numbers((3, 20), "float32")), numbers((3, 11), "float32")
    got = tg.trace(tg.searchsorted)(x, values)
    same(got, np.stack([np.searchsorted(*pair) for pair in zip(x, values)]))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
def test_the_indices_of_booleans_are_those_of_numpy(share: float) -> None:
    for shape in [(1,), (8,), (9,), (1000,), (3, 20)]:
        mask = np.random.default_rng(0).random(shape) < share
        for size in {0, 1, int(mask.sum()), shape[-1] + 3}:
            same(tg.trace(partial(repeated_index, size=size))(mask), repeated_index.impl(mask, size=size))


@pytest.mark.parametrize("order", ["big", "little"])
def test_bits_are_packed_and_unpacked_as_numpy_does(order: Any) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 7, 8, 9, 31, 32, 33, 64, 100, 257):
        for shape, axis in [((n,), None), ((3, n), 1), ((n, 3), 0), ((3, n), None)]:
            expected, of_bytes = rng.random(shape) < 0.5, rng.integers(0, 256, shape).astype(np.uint8)
            pack, unpack = (partial(f, axis=axis, bitorder=order) for f in (np.packbits, np.unpackbits))
            for x in (expected, of_bytes, of_bytes % 2, expected.astype(np.int64) * -9):
                same(tg.trace(pack)(x), np.ascontiguousarray(pack(x)))
            same(tg.trace(unpack)(of_bytes), np.ascontiguousarray(unpack(of_bytes)))


def test_python_is_not_asked() -> None:
    x = numbers((20, 3), "float64")
    assert native_calls(np.sort, x) == ["sorted_values"]
    assert native_calls(lambda x: np.argsort(x, axis=0), x) == ["argsort"]
    assert native_calls(lambda x: np.searchsorted(x[:, 0], x), x) == ["searchsorted"]
    assert native_calls(lambda x: np.flatnonzero(x > 0), x) == ["repeated_index"]
    assert native_calls(lambda x: np.unpackbits(np.packbits(x > 0)), x) == ["pack_bits", "unpack_bits"]
    assert sort_address("tg_sort.f64")
    assert sort_address("tg_argsort.i32.stable")


def test_numpy_is_asked_where_its_routines_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "sort_address", lambda name: 0)
    x = numbers((20, 3), "float64")
    same(tg.trace(lambda x: np.sort(x, axis=0))(x), np.sort(x, axis=0))
    same(tg.trace(lambda x: np.argsort(x))(x), np.argsort(x))


def orders_are_counted(x: Any, kind: Any = "stable") -> bool:
    """Whether compiled code need not ask NumPy's routine how to sort `x`."""
    (order,) = encode_program(plan(tg.trace(partial(np.argsort, kind=kind)).explain(x).optimized))
    return bool(order.operands[6])


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_near_and_far_apart_are_sorted_and_found(dtype: str) -> None:
    rng, ends = np.random.default_rng(1), np.iinfo(dtype)
    near = rng.integers(ends.max - 90, ends.max, 400, dtype)
    assert orders_are_counted(near)
    assert not orders_are_counted(near, kind=None)  # of which NumPy alone knows the order
    far = rng.integers(ends.min, ends.max, 400, dtype)
    mixed = np.concatenate([near[:100], far[:1], near])
    for x in (near, far, mixed, np.full(20, ends.min, dtype)):
        same(tg.trace(np.sort)(x), np.sort(x))
        for kind in (None, "stable"):
            same(tg.trace(partial(np.argsort, kind=kind))(x), np.argsort(x, kind=kind))
        for args in ({"return_inverse": True}, {"return_index": True, "return_counts": True}):
            for got, want in zip(tg.trace(partial(np.unique, **args))(x), np.unique(x, **args)):
                same(got, want)
        for tests in (near, far, mixed):
            same(tg.trace(np.isin)(x[:250], tests), np.isin(x[:250], tests))
    assert native_calls(np.isin, near, far) == ["is_member"]
    rows = near.reshape(2, 200)
    of_each = tg.vmap(np.isin)(rows, rows[::-1] // 2 * 2)
    same(of_each, np.stack([np.isin(x, y) for x, y in zip(rows, rows[::-1] // 2 * 2)]))
