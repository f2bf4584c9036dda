"""Running sums: what a loop has just stored is kept in a register."""

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.kernels.scalar_replacement import carried_of


def kernels_of(function, *arrays):
    traced = tg.trace(function, tiered=False)
    traced(*arrays)
    (spec,) = traced._specializations.values()
    return [step.kernel for step in spec.paths[0].program.report.plan.steps if hasattr(step, "kernel")]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("shape", [(1,), (9,), (100,), (1, 9), (9, 1), (12, 17), (3, 10, 11)])
def test_running_sums_are_those_of_numpy(shape, dtype):
    # Positive, so that nothing cancels.
    x = (np.abs(np.random.default_rng(0).standard_normal(shape)) * 2).astype(dtype)
    traced = tg.trace(lambda x, axis: np.cumsum(x, axis=axis), static_argnums=1)
    for axis in (None, *range(len(shape))):
        exact = np.cumsum(x.astype(np.longdouble) if dtype.startswith("f") else x, axis=axis)
        for _ in range(2):
            result = traced(x, axis)
        np.testing.assert_allclose(result, exact.astype(result.dtype), rtol=3e-5 if dtype == "float32" else 1e-12)


def test_running_sums_have_the_bits_of_a_loop():
    x = np.random.default_rng(0).standard_normal(1000)
    total, totals = -0.0, []
    for each in x:
        total += each
        totals.append(total)
    assert tg.trace(np.cumsum, tiered=False)(x).tolist() == totals


def test_special_values_go_on_as_in_numpy():
    x = np.array([-0.0, -0.0, 0.0, 1.0, np.inf, -np.inf, 1.0, np.nan, 2.0] * 3)
    with np.errstate(invalid="ignore"):
        result, expected = tg.trace(np.cumsum, tiered=False)(x), np.cumsum(x)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result[:3]), np.signbit(expected[:3]))


def test_two_running_sums_of_one_loop_are_kept_apart():
    x = np.random.default_rng(0).standard_normal(300)
    function = tg.trace(lambda x: (np.cumsum(x), np.cumsum(x * x), np.cumsum(x)[::-1]), tiered=False)
    for result, exact in zip(function(x), (np.cumsum(x), np.cumsum(x * x), np.cumsum(x)[::-1]), strict=True):
        np.testing.assert_allclose(result, exact, rtol=1e-12)


def test_the_derivative_of_a_running_sum_is_one():
    x, y = np.random.default_rng(0).standard_normal((2, 300))
    result = tg.grad(lambda x: np.sum(np.cumsum(x) * y))(x)
    np.testing.assert_allclose(result, np.cumsum(y[::-1])[::-1], rtol=1e-9)


def test_only_what_the_iteration_before_has_stored_is_kept():
    x = np.random.default_rng(0).standard_normal((20, 30))
    (along,) = kernels_of(lambda x: np.cumsum(x, axis=1), x)
    assert len(carried_of(along)) == 1
    (across,) = kernels_of(lambda x: np.cumsum(x, axis=0), x)  # whose iteration before is another row
    assert not carried_of(across)
