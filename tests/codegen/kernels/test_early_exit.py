"""Loops that are done when something is found: any, all, the first index of something, and extrema's places."""

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.kernels.early_exit import LaneCount, searching
from tracegrad.codegen.kernels.vectorize import narrowest_bytes, vector_bytes, vectors_of

DTYPES = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")
LENGTHS = (9, 31, 32, 33, 64, 100, 257, 1000, 4099, 16384, 20001)


def first_above(x, missing):
    return np.min(np.where(x > 2, np.arange(x.size).reshape(x.shape), missing))


FUNCTIONS = {
    "argmax": np.argmax,
    "argmin": np.argmin,
    "argmax of rows": lambda x: np.argmax(x, axis=1),
    "argmin of rows": lambda x: np.argmin(x, axis=1),
    "any": np.any,
    "all": np.all,
    "any of rows": lambda x: np.any(x, axis=1),
    "all of rows": lambda x: np.all(x, axis=1),
    "any of matrices": lambda x: np.any(np.stack([x, x > 1, x > 2]), axis=(0, 2)),
    "products of truths": lambda x: (x > 1) @ (x[0] < 2),
    "first": lambda x: first_above(x, x.size),
    "first, none being less than some": lambda x: first_above(x, 7),
    "first, none being less than all": lambda x: first_above(x, -1),
}


def arrays(dtype, length, rows):
    """Arrays in which what is looked for is early, late, often there, or never."""
    rng = np.random.default_rng(length)
    plain = (rng.standard_normal((rows, length)) * 3).astype(dtype)
    yield plain
    yield np.zeros_like(plain)
    yield np.ones_like(plain) + plain.dtype.type(3 if dtype != "bool" else 0)
    late = np.zeros_like(plain)
    late[:, -1] = 5
    yield late
    yield -late if dtype != "bool" else ~late
    ties = plain.copy()
    ties[:, length // 2 :] = plain.max()
    yield ties
    if dtype.startswith("float"):
        for share in (0.001, 0.1):
            holes = plain.copy()
            holes[rng.random(plain.shape) < share] = np.nan
            yield holes
        yield np.full_like(plain, np.nan)
        yield np.where(plain > 0, np.inf, -np.inf).astype(dtype)
        yield np.where(plain > 0, 0.0, -0.0).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_found_is_what_numpy_finds(name, dtype):
    function = FUNCTIONS[name]
    traced = tg.trace(function)
    for length in LENGTHS:
        for rows in (1, 3):
            for x in arrays(dtype, length, rows):
                np.testing.assert_array_equal(traced(x), function(x), err_msg=f"{rows} by {length}")


def searches(function, *arrays):
    return sum(searching(k, vectors_of(k))[1] is not None for k in kernels_of(function, *arrays))


def kernels_of(function, *arrays):
    traced = tg.trace(function, tiered=False)
    traced(*arrays)
    (spec,) = traced._specializations.values()
    return [step.kernel for step in spec.paths[0].program.report.plan.steps if hasattr(step, "kernel")]


@pytest.mark.skipif(not vector_bytes(), reason="there are no vectors with masks")
def test_which_kernels_look_for_something():
    x = np.random.default_rng(0).standard_normal((20, 300))
    expected = x > 0
    assert searches(np.any, expected) == 1
    assert searches(np.all, expected) == 1
    assert searches(lambda x: np.argmax(x, axis=1), x) == 1
    assert searches(np.argmax, expected) == searches(np.argmin, expected) == 1
    assert searches(lambda x: np.any((x > 0) & (x < 1)), x) == 1
    assert searches(lambda x: np.any(np.sin(x) > 2), x) == 1  # which is dear, so a vector at a time is enough
    assert searches(lambda x: np.any(x, axis=1), expected) == searches(lambda x: x @ x[0], expected) == 1
    assert searches(lambda x: np.all(x[:, :200], axis=1), expected) == 0  # rows that are reduced several at a time
    assert searches(lambda x: np.any(x, axis=0), expected) == 0  # the rows are combined in memory
    assert searches(lambda x: np.min(np.where(x > 0, x, 9.0)), x) == 0  # no index
    assert searches(lambda x: np.min(np.where(x > 0, np.arange(300)[::-1], 300)), x) == 0  # which falls


def test_a_long_vector_is_gone_through_once():
    kernels = kernels_of(np.argmax, np.random.default_rng(0).standard_normal(50_000))
    whole = [k for k in kernels if len(k.loops) == 2]
    assert len(whole) == 1


@pytest.mark.parametrize("function", [np.sum, np.max, np.min, np.prod])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_rows_of_any_length_are_reduced_to_what_numpy_has(function, dtype):
    # Short ones are reduced several at a time, long ones one after the other, by the same machine code.
    traced = tg.trace(lambda x: function(x, axis=1))
    for rows in (1, 3, 4, 5, 18):
        for length in (9, 17, 63, 64, 65, 127, 128, 129, 500):
            x = (np.random.default_rng(0).standard_normal((rows, length)) / 4 + 1).astype(dtype)
            exact = function(x.astype(np.longdouble), axis=1) if dtype.startswith("f") else function(x, axis=1)
            np.testing.assert_allclose(traced(x), exact.astype(dtype), rtol=3e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("function", [np.sum, np.max])
@pytest.mark.parametrize("shape", [(5, 7, 12, 11), (3, 9, 300), (9, 10, 64), (12, 9, 65)], ids=str)
def test_rows_within_other_loops_are_reduced_to_what_numpy_has(function, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    axes = (0, *range(2, len(shape)))
    np.testing.assert_allclose(tg.trace(lambda x: function(x, axis=axes))(x), function(x, axis=axes), rtol=1e-12)


COUNTED = {
    "truths": (np.count_nonzero, "bool"),
    "bytes": (np.count_nonzero, "int8"),
    "short ones": (np.count_nonzero, "uint16"),
    "halves": (np.count_nonzero, "float16"),
    "those alike": (lambda x: np.sum(x == x[::-1]), "uint8"),
    "in 32 bits": (lambda x: np.sum(x > 1, dtype=np.int32), "int16"),
    "in 64 bits": (lambda x: np.sum(x, dtype=np.int64), "bool"),
    "and more of the same": (lambda x: (np.sum(x > 2), np.sum(x)), "int8"),
}


@pytest.mark.parametrize("name", COUNTED)
def test_booleans_are_counted(name):
    function, dtype = COUNTED[name]
    traced = tg.trace(function)
    rng = np.random.default_rng(0)
    for length in (0, 1, 7, 9, 31, 32, 33, 127, 128, 129, 160, 161, 1000, 4099, 1_000_003):
        for most in (1, 2, 9):
            x = rng.integers(0, most, length).astype(dtype)
            np.testing.assert_array_equal(traced(x), function(x))
            np.testing.assert_array_equal(traced(x[::3]), function(x[::3]))


@pytest.mark.skipif(not vector_bytes() or narrowest_bytes() == 1, reason="needs AVX2, and no masks of bytes")
def test_which_kernels_count_bits():
    expected = np.ones(300, bool)
    for function, x, wanted in (
        (np.count_nonzero, expected, True),
        (np.count_nonzero, expected.astype("i1"), True),
        (lambda x: np.sum(x == 3), expected.astype("u2"), True),
        (np.count_nonzero, expected.astype("f4"), False),  # of which there are masks
        (lambda x: np.sum(x, axis=1), expected.reshape(15, 20), False),  # rows of which vectors have several
        (lambda x: np.sum(x, dtype=float), expected, False),
    ):
        counts = [isinstance(searching(k, vectors_of(k))[1], LaneCount) for k in kernels_of(function, x)]
        assert any(counts) == wanted


ROWS = (15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 300, 4099)


def edges(dtype, length):
    """Rows with nothing but the least and the greatest of numbers, and with what decides in one place or in two."""
    ends = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    least, most = (-np.inf, np.inf) if dtype.startswith("float") else (ends.min, ends.max)
    places = np.arange(length)
    for low, high in np.array([(least, most), (most, least), (0, most), (1, 0)], dtype):
        yield np.full((2, length), low, dtype)
        yield np.where(places == places[:, None], high, low)
        yield np.where((places == places[:, None]) | (places == length - 1), high, low)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint64", "uint32"])
@pytest.mark.parametrize("function", [np.argmax, np.argmin])
def test_extrema_are_found_wherever_they_are(function, dtype):
    traced = tg.trace(lambda x: function(x, axis=1))
    for length in ROWS:
        for x in edges(dtype, min(length, 300)):
            np.testing.assert_array_equal(traced(x), function(x, axis=1))
            np.testing.assert_array_equal(traced(x[:, ::-1]), function(x[:, ::-1], axis=1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("function", [np.argmax, np.argmin])
def test_the_first_nan_is_found_wherever_it_is(function, dtype):
    traced = tg.trace(lambda x: function(x, axis=1))
    for length in ROWS[:-2]:
        places = np.arange(length)
        for most in (np.inf, -np.inf, 1.0):
            x = np.where(places == places[:, None], np.nan, most).astype(dtype)
            np.testing.assert_array_equal(traced(x), places)
            x[:, -1] = np.nan
            np.testing.assert_array_equal(traced(x), places)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint64", "uint32"])
@pytest.mark.parametrize("function", [np.argmax, np.argmin])
def test_places_of_rows_are_found_in_one_pass(function, dtype):
    x = (np.random.default_rng(0).standard_normal((20, 300)) * 9).astype(dtype)
    assert "first_" in places(lambda x: function(x, axis=1), x)
    assert "first_" in places(lambda x: function(x * x + 1, axis=-1), x.reshape(4, 5, 300))
    assert "first_" not in places(lambda x: function(x, axis=0), x)
    assert "first_" not in places(lambda x: function(x, axis=1), x[:, :9].copy())
    assert "first_" not in places(lambda x: (function(x, axis=1), np.max(x, axis=1), np.min(x, axis=1)), x)


def places(function, x):
    """The text of the kernels of a function whose results are NumPy's."""
    for one, other in zip(np.atleast_2d(tg.trace(function)(x)), np.atleast_2d(function(x))):
        np.testing.assert_array_equal(one, other)
    return "\n".join(k.text() for k in kernels_of(function, x))


def test_what_is_not_quite_the_place_of_an_extremum_is_what_it_says():
    x = np.random.default_rng(0).integers(0, 40, (20, 300))
    asked = np.max(x, axis=1, keepdims=True)
    for function in (
        lambda x: np.min(
            np.where(x == np.max(x, axis=1, keepdims=True), np.arange(300), 7), axis=1
        ),  # less is found elsewhere
        lambda x: np.min(np.where(x == np.max(x, axis=1, keepdims=True), np.arange(300) + 1, 301), axis=1),
        lambda x: np.min(
            np.where(x == np.max(x + 1, axis=1, keepdims=True), np.arange(300), 300), axis=1
        ),  # which is not there
        lambda x: np.min(np.where(x != np.max(x, axis=1, keepdims=True), np.arange(300), 300), axis=1),
        lambda x: np.min(np.where(x == np.max(x, axis=1, keepdims=True), 300, np.arange(300)), axis=1),
    ):
        assert "first_" not in places(function, x)
    assert "first_" in places(
        lambda x: np.min(np.where(x == np.max(x, axis=1, keepdims=True), np.arange(300), 300), axis=1), x
    )
    holes = np.where(asked == x, np.nan, x)
    unlike = lambda x: np.min(np.where(x == np.max(x, axis=1, keepdims=True), np.arange(300), 300), axis=1)  # noqa: E731
    assert "first_" not in places(unlike, holes)  # to which nan is no extremum


def test_places_are_found_within_loops_too():
    def summed(x):
        total = np.zeros(x.shape[1], x.dtype)
        for _ in range(30):
            total = total + np.argmax(x + total[None, :, None], axis=-1).sum(axis=0)
        return total

    x = np.random.default_rng(0).standard_normal((4, 5, 64))
    np.testing.assert_array_equal(tg.trace(summed)(x), summed(x))
