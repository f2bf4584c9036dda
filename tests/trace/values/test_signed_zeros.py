"""Where NumPy tells -0.0 from 0.0, and an infinite base from a finite one, a traced function does so as well, in its
first call, which NumPy answers, and in those that are compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.platform.processes import instruction_set

BASES = np.array([-0.0, -np.inf, 0.0, 4.0, -4.0, np.inf, np.nan])
HALVES = np.full(7, 0.5)


def same(got: Any, wanted: Any) -> None:
    """The same numbers, with the same signs of zero."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    if wanted.dtype.kind == "c":
        return same(np.stack([got.real, got.imag]), np.stack([wanted.real, wanted.imag]))
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


def assert_close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


def each(f: Any) -> Any:
    return lambda x: [f(x[i]) for i in range(len(BASES))]


def updated(x: Any) -> Any:
    y = x.copy()
    y **= 0.5
    return y


POWERS = {
    "x ** 0.5": lambda x: x**0.5,
    "x ** a NumPy scalar": lambda x: x ** x.dtype.type(0.5),
    "x ** an array without axes": lambda x: x ** np.array(0.5),
    "x ** float64": lambda x: x ** np.float64(0.5),
    "x ** an array": lambda x: x ** HALVES.astype(x.dtype),
    "x ** an array of one number": lambda x: x ** np.full(7, 0.5),
    "x ** full_like": lambda x: x ** np.full_like(x, 0.5),
    "x **= 0.5": updated,
    "np.power, a number": lambda x: np.power(x, 0.5),
    "np.power, a NumPy scalar": lambda x: np.power(x, x.dtype.type(0.5)),
    "np.power, an array": lambda x: np.power(x, np.full(7, 0.5)),
    "np.float_power, a number": lambda x: np.float_power(x, 0.5),
    "np.float_power, an array": lambda x: np.float_power(x, HALVES),
    "scalars ** 0.5": each(lambda s: s**0.5),
    "scalars ** a NumPy scalar": each(lambda s: s ** s.dtype.type(0.5)),
    "np.power of scalars": each(lambda s: np.power(s, 0.5)),
    "a sum ** 0.5": each(lambda s: np.sum(s.reshape(1)) ** 0.5),
    "x ** 2": lambda x: x**2,
    "x ** -1": lambda x: x**-1,
    "x ** 1.5": lambda x: x**1.5,
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", POWERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_of_zeros_and_infinities_are_numpys_in_every_call(name: str, dtype: str) -> None:
    f, x = POWERS[name], BASES.astype(dtype)
    with np.errstate(all="ignore"):
        wanted = f(x)
        traced = tg.trace(f)
        for _ in range(3):
            same(traced(x), wanted)
        with tg.disable_jit():
            same(tg.trace(f)(x), wanted)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_exponent_that_is_an_argument_of_a_scalar_means_the_same_in_every_call() -> None:
    def f(x: Any, p: Any) -> Any:
        return [x[i] ** p for i in range(len(BASES))]

    traced = tg.trace(f)
    with np.errstate(all="ignore"):
        for _ in range(3):
            same(traced(BASES, 0.5), f(BASES, 0.5))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_root_of_a_scalar_has_the_derivative_of_its_power_at_minus_zero() -> None:
    with np.errstate(all="ignore"):
        for x in (np.float64(-0.0), np.float64(0.0), np.float64(2.0), np.float64(-np.inf)):
            wanted = 0.5 * x**-0.5
            derivative = tg.grad(lambda x: x**0.5)
            for _ in range(3):
                assert_close(derivative(x), wanted)
            assert_close(tg.jvp(lambda x: x**0.5, (x,), (np.float64(1.0),))[1], wanted)
            assert_close(tg.vmap(derivative)(np.array([x, x]))[0], wanted)
            with tg.disable_jit():
                assert_close(tg.grad(lambda x: x**0.5)(x), wanted)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_root_of_a_float_has_an_infinite_positive_derivative_at_minus_zero() -> None:
    derivative = tg.grad(lambda x: x**0.5)
    assert [float(derivative(-0.0)) for _ in range(3)] == [np.inf] * 3


ZEROS = np.array([-0.0, 0.0, 1.0, -1.0, np.nan, 0.0, -0.0, -0.0, 0.0])
ONES, NOUGHTS = np.ones(9), np.zeros(9)
BOUNDED = {
    "at least 0.0": lambda x: np.clip(x, 0.0, None),
    "at least -0.0": lambda x: np.clip(x, -0.0, None),
    "at most 0.0": lambda x: np.clip(x, None, 0.0),
    "at most -0.0": lambda x: np.clip(x, None, -0.0),
    "between numbers": lambda x: np.clip(x, 0.0, 1.0),
    "between numbers, up to -0.0": lambda x: np.clip(x, -1.0, -0.0),
    "between arrays": lambda x: np.clip(x, NOUGHTS.astype(x.dtype), ONES.astype(x.dtype)),
    "between an array and a number": lambda x: np.clip(x, NOUGHTS.astype(x.dtype), 1.0),
    "between arrays of one number": lambda x: np.clip(x, NOUGHTS[:1].astype(x.dtype), ONES[:1].astype(x.dtype)),
    "between arrays up to -0.0": lambda x: np.clip(x, -ONES.astype(x.dtype), -NOUGHTS.astype(x.dtype)),
    "the method": lambda x: x.clip(0.0),
    "scalars": lambda x: [np.clip(s, 0.0, 1.0) for s in (x[0], x[1])] + [np.clip(s, 0.0, None) for s in (x[0], x[1])],
    "one element": lambda x: np.clip(x[:1], np.zeros(1, x.dtype), np.ones(1, x.dtype)),
    "integers": lambda x: np.clip(x, 0, None),
    "np.maximum": lambda x: np.maximum(x, 0.0),
    "np.maximum, reflected": lambda x: np.maximum(0.0, x),
    "np.minimum": lambda x: np.minimum(x, -0.0),
    "np.maximum of arrays": lambda x: np.maximum(x, -x),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_zeros_have_numpys_signs_in_every_call(name: str, dtype: str) -> None:
    f, x = BOUNDED[name], ZEROS.astype(dtype)
    traced = tg.trace(f)
    for _ in range(3):
        same(traced(x), f(x))
    with tg.disable_jit():
        same(tg.trace(f)(x), f(x))


@pytest.mark.parametrize("low", [0.0, -0.0])
def test_what_clip_puts_on_a_zero_bound_has_the_derivative_of_its_argument(low: float) -> None:
    x = np.array([-1.0, -0.0, 0.0, 2.0])
    for f, wanted in ((lambda x: np.clip(x, low, None), [0, 1, 1, 1]), (lambda x: np.clip(x, None, low), [1, 1, 1, 0])):
        derivative = tg.grad(lambda x, f=f: np.sum(f(x)))
        for _ in range(3):
            np.testing.assert_array_equal(derivative(x), wanted)
        np.testing.assert_array_equal(tg.jvp(f, (x,), (np.ones(4),))[1], wanted)
    derivatives = tg.grad(lambda x, low: np.sum(np.clip(x, low, None)), argnums=(0, 1))
    for _ in range(3):
        np.testing.assert_array_equal(derivatives(x, np.full(4, low)), ([0, 1, 1, 1], [1, 0, 0, 0]))


def test_a_bound_that_is_nan_has_the_derivative() -> None:
    derivatives = tg.grad(lambda x, low: np.sum(np.clip(x, low, None)), argnums=(0, 1))
    for _ in range(3):
        got = derivatives(np.array([1.0, np.nan, np.nan]), np.array([np.nan, 0.0, np.nan]))
        np.testing.assert_array_equal(got, ([0, 1, 0], [1, 0, 1]))


# Longer rows are combined in an order that depends on the vectors of the machine.
EXTREMA = {
    "two": lambda x: [np.max(x[:2]), np.min(x[:2]), np.max(x[1:3]), np.min(x[1:3])],
    "three": lambda x: [np.max(x[:3]), np.min(x[:3]), np.max(x[3:6]), np.min(x[3:6])],
    "short rows": lambda x: np.max(x.reshape(6, 3), 1),
    "least of short rows": lambda x: np.min(x.reshape(6, 3), 1),
    "columns": lambda x: np.max(x.reshape(3, 6), 0),
    "least of columns": lambda x: np.min(x.reshape(6, 3), 0),
    "a fused one": lambda x: np.max(x.reshape(6, 3) * 2.0, 1) * 3.0,
}


@pytest.mark.skipif(instruction_set() != "x86_64", reason="other machines order zeros")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", EXTREMA)
def test_the_extremum_of_a_few_zeros_has_numpys_sign_in_every_call(name: str, dtype: str) -> None:
    f = EXTREMA[name]
    traced = tg.trace(f)
    rng = np.random.default_rng(0)
    for _ in range(8):
        x = np.where(rng.random(18) < 0.5, -0.0, 0.0).astype(dtype)
        same(traced(x), f(x))


# -- sums ------------------------------------------------------------------------------------------------------------
SUMS = {
    "sum": np.sum,
    "nansum": np.nansum,
    "mean": np.mean,
    "nanmean": np.nanmean,
    "median": np.median,
    "nanmedian": np.nanmedian,
    "average": np.average,
    "first axis": lambda x: np.sum(x, 0),
    "last axis": lambda x: np.sum(x, -1, keepdims=True),
    "no axis": lambda x: np.sum(x, ()),
    "where": lambda x: np.sum(x, where=True),
    "of pairs": lambda x: np.sum(np.broadcast_to(x, (2, *x.shape)), 0),
    "of one": lambda x: np.sum(x[None], 0),
    "of a constant": lambda x: np.sum(np.full(3, -0.0)) + x,
    "along an axis of two": lambda x: np.sum(np.stack([x, x]), 0),
    "cumulative": lambda x: np.cumsum(x),
}


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_minus_zeros_alone_begins_with_zero_as_numpys(name: str, dtype: str) -> None:
    if dtype == "complex64" and "median" in name:
        return
    for shape in ((), (1,), (1, 1), (2, 3), (9, 2)):
        if shape or "axis" not in name or name == "no axis":
            x = np.full(shape, -0.0, dtype)
            f = tg.trace(SUMS[name])
            for _ in range(2):
                same(f(x), SUMS[name](x))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "ptp", "any", "all", "argmax", "argmin", "nansum"])
def test_a_number_has_an_axis_for_the_reductions_that_numpy_has_it_for(name: str) -> None:
    f = tg.trace(lambda x, axis: getattr(np, name)(x, axis=axis))
    same(f(np.array(-2.0), 0), getattr(np, name)(np.array(-2.0), 0))
    same(f(np.array(-2.0), -1), getattr(np, name)(np.array(-2.0), -1))
    with pytest.raises(np.exceptions.AxisError):
        f(np.array(-2.0), 1)
    with pytest.raises(np.exceptions.AxisError):
        tg.trace(lambda x: np.mean(x, axis=0))(np.array(-2.0))
