"""Functions of order: ties, nan, every direction and axis, and where the cotangents of the values go.

`test_linalg.py` compares them with what PyTorch gives.
"""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ops.reduce.partition import partitioned_values
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.tape import Tensor

F = SimpleNamespace(**FUNCTIONS)
RNG = np.random.default_rng(5)
HARD = {
    "ties": RNG.integers(0, 4, (5, 6, 7)).astype(float),
    "integers": RNG.integers(0, 4, (5, 6, 7)),
    "bytes": RNG.integers(0, 4, (5, 6, 7)).astype(np.uint8),
    "booleans": RNG.integers(0, 2, (5, 6, 7)).astype(bool),
    "nan": np.where(RNG.random((5, 6, 7)) < 0.3, np.nan, RNG.integers(0, 3, (5, 6, 7))),
    "singles": np.where(RNG.random((5, 6, 7)) < 0.3, -np.inf, RNG.normal(size=(5, 6, 7))).astype(np.float32),
    "nothing": np.zeros((5, 0, 7)),
}


def by_python(x: Any, axis: int, descending: bool) -> Any:
    """Stable indices by Python's sort; nan is the largest."""

    def one(column: Any) -> Any:
        keys = [(bool(v != v), float(v) if v == v else 0.0) for v in column]
        if descending:
            return sorted(range(len(column)), key=lambda i: (not keys[i][0], -keys[i][1]))
        return sorted(range(len(column)), key=keys.__getitem__)

    return np.apply_along_axis(one, axis, x) if x.size else np.zeros(x.shape, int)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", HARD)
def test_sorting_is_stable_in_both_directions_with_nan_as_the_largest(name: str, axis: int, descending: bool) -> None:
    x = HARD[name]
    index = by_python(x, axis, descending)
    for fn in (F.sort, tg.trace(F.sort)):
        result = fn(x, axis, descending) if fn is F.sort else tg.trace(lambda v: F.sort(v, axis, descending))(x)
        np.testing.assert_array_equal(result.indices, index, strict=True)
        np.testing.assert_array_equal(result.values, np.take_along_axis(x, index, axis), strict=True)
    np.testing.assert_array_equal(F.argsort(x, dim=axis, descending=descending), index)


@pytest.mark.parametrize("axis", [0, 2])
def test_topk_and_kthvalue_are_parts_of_the_sorted_values(axis: int) -> None:
    for name in ("ties", "integers", "nan", "singles"):
        x = HARD[name]
        down, up = F.sort(x, axis, True).values, F.sort(x, axis).values
        for k in (1, 3, x.shape[axis]):
            top, low = F.topk(x, k, axis), F.topk(x, k, axis, largest=False)
            np.testing.assert_array_equal(top.values, np.take(down, range(k), axis))
            np.testing.assert_array_equal(low.values, np.take(up, range(k), axis))
            np.testing.assert_array_equal(np.take_along_axis(x, top.indices, axis), top.values)
            result = F.kthvalue(x, k, axis, keepdim=True)
            np.testing.assert_array_equal(result.values, np.take(up, [k - 1], axis))
            np.testing.assert_array_equal(np.take_along_axis(x, result.indices, axis), result.values)


@pytest.mark.parametrize("axis", [0, 1])
def test_running_extrema_are_those_of_every_beginning(axis: int) -> None:
    for name in ("ties", "integers", "nan", "singles", "booleans"):
        x = HARD[name]
        for fn, extremum in ((F.cummax, np.maximum), (F.cummin, np.minimum)):
            for run in (fn, tg.trace(lambda v, d, fn=fn: fn(v, int(d)))):
                result = run(x, axis)
                np.testing.assert_array_equal(result.values, extremum.accumulate(x, axis))
                np.testing.assert_array_equal(np.take_along_axis(x, result.indices, axis), result.values)


def test_cotangents_go_to_the_elements_that_were_chosen() -> None:
    x = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 5.0]])
    weight = np.array([[1.0, 10.0, 100.0], [1.0, 10.0, 100.0]])

    def gradient(fn: Any) -> Any:
        eager = Tensor(x.copy(), True)
        values = fn(eager)[0]
        (values * weight[: values.shape[0], : values.shape[-1]]).sum().backward()
        plain = tg.trace(tg.grad(lambda v: ((y := fn(v)[0]) * weight[: y.shape[0], : y.shape[-1]]).sum()))(x)
        np.testing.assert_array_equal(eager.grad.numpy(), plain)
        return plain.tolist()

    assert gradient(lambda v: F.sort(v)) == [[100, 1, 10], [1, 10, 100]]
    assert gradient(lambda v: F.sort(v, descending=True)) == [[1, 100, 10], [10, 100, 1]]
    assert gradient(lambda v: F.topk(v, 2)) == [[1, 0, 10], [10, 0, 1]]
    assert gradient(lambda v: F.kthvalue(v, 2, keepdim=True)) == [[0, 0, 1], [0, 1, 0]]
    assert gradient(lambda v: F.cummax(v, 1)) == [[111, 0, 0], [1, 10, 100]]
    assert gradient(lambda v: F.mode(v, 1, True)) == [[0, 1, 0], [0, 1, 0]]
    assert gradient(lambda v: (np.sort(v, axis=0),)) == [[10 * 0 + 1, 10, 100], [1, 10, 100]]


def test_indices_do_not_require_grad() -> None:
    x = Tensor(RNG.normal(size=(3, 4)), True)
    for result in (F.sort(x), F.topk(x, 2), F.kthvalue(x, 1), F.cummax(x, 0), F.mode(x)):
        assert result.values.requires_grad
        assert not result.indices.requires_grad
        assert result.indices.grad_fn is None
        assert result.indices.dtype == np.int64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.topk(x, 5), "selected index k out of range"),
        (lambda x: F.topk(x, -1), "selected index k out of range"),
        (lambda x: F.kthvalue(x, 0), r"kthvalue\(\): selected number k out of range for dimension 1"),
        (lambda x: F.searchsorted(x, x[:2]), "boundaries tensor"),
        (lambda x: F.searchsorted(x[0], x, side="middle"), "side can only be 'left' or 'right'"),
    ],
)
def test_what_does_not_fit_says_so_as_pytorch_does(call: Any, message: str) -> None:
    for x in (np.ones((3, 4)), Tensor(np.ones((3, 4)))):
        with pytest.raises(RuntimeError, match=message):
            call(x)
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 5\)"):
        F.sort(np.ones(3), 5)


# -- NumPy's names -----------------------------------------------------------------------------------------------
def test_arrays_inside_a_trace_are_sorted_in_place() -> None:
    def in_place(x: Any, axis: int) -> Any:
        y = x.copy()
        assert y.sort(axis) is None
        return y, x

    x = RNG.normal(size=(4, 5))
    for axis in (0, -1):
        result, same = tg.trace(lambda v, axis=axis: in_place(v, axis))(x)
        np.testing.assert_array_equal(result, np.sort(x, axis))
        np.testing.assert_array_equal(same, x)


def test_partitions_put_the_element_where_it_belongs() -> None:
    x = RNG.normal(size=(4, 9))
    for k in (0, 4, 8):
        part = tg.trace(lambda v, k=k: np.partition(v, k, axis=1))(x)
        index = tg.trace(lambda v, k=k: np.argpartition(v, k, axis=1))(x)
        np.testing.assert_array_equal(part[:, k], np.sort(x, 1)[:, k])
        np.testing.assert_array_equal(np.take_along_axis(x, index, 1)[:, k], part[:, k])


def test_partitions_without_a_derivative_are_those_of_numpy() -> None:
    x = RNG.normal(size=(5, 300))
    for axis, kth in [(1, 7), (0, 2), (1, (3, 200)), (None, -5)]:
        part = tg.trace(lambda v, kth=kth, axis=axis: np.partition(v, kth, axis))
        np.testing.assert_array_equal(part(x), np.partition(x, kth, axis))
        assert "argpartition" not in str(part.explain(x).optimized)


def test_each_element_of_a_partition_has_its_cotangent() -> None:
    x, weights = RNG.normal(size=300), np.arange(300.0)

    def weighed(v: Any) -> Any:
        part = np.partition(v, (40, 200))
        return np.sum(weights * part), part

    (_, part), derivative = tg.value_and_grad(weighed, has_aux=True)(x)
    np.testing.assert_array_equal(derivative[[int(np.flatnonzero(x == v)[0]) for v in part]], weights)
    ct = np.random.default_rng(1).normal(size=300)
    values = partitioned_values(x, places=(40, 200), axis=0)
    back = partitioned_values.pull(0, ct, values, (x,), {"places": (40, 200), "axis": 0})
    np.testing.assert_array_equal(back[[int(np.flatnonzero(x == v)[0]) for v in values]], ct)


@pytest.mark.parametrize("function", [F.unique, F.unique_consecutive])
@pytest.mark.parametrize("shape", [(0, 3), (1, 2), (6, 2), (4, 4), ()])
def test_different_values_are_traced(function: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(float)
    x[x > 1.5] = np.nan
    for dim in (None, 0)[: 2 if shape else 1]:
        traced = tg.trace(lambda x: function(x, return_inverse=True, return_counts=True, dim=dim))  # noqa: B023
        for data in (x, x * 2):
            want = function(tg.tensor(data), return_inverse=True, return_counts=True, dim=dim)
            for result, expected in zip(traced(tg.tensor(data)), want, strict=True):
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(result.numpy(), expected.numpy())
        assert traced.cache_info().traces <= 1


# -- results of several parts --------------------------------------------------------------------------------------
def test_results_print_as_pytorch_prints_them_and_are_trees() -> None:
    result = F.sort(Tensor(np.array([2.0, 1.0]), True))
    assert str(result) == (
        "tracegrad.return_types.sort(\nvalues=tensor([1., 2.], grad_fn=<SortBackward0>),\nindices=tensor([1, 0]))"
    )
    assert type(tg.trace(lambda v: F.sort(v))(np.ones(3))) is type(result)
    plain = F.sort(np.array([2.0, 1.0]))
    again = pickle.loads(pickle.dumps(plain))
    assert type(again) is type(plain)
    np.testing.assert_array_equal(again.values, plain.values)


def test_a_return_type_is_one_class_with_one_list_of_fields() -> None:
    assert return_type("sort", "values", "indices") is type(F.sort(np.ones(2)))
    with pytest.raises(ValueError, match="has the fields"):
        return_type("sort", "values")


def test_sorting_computes_once_and_no_indices_that_nothing_uses() -> None:
    x = RNG.normal(size=(20, 30))

    def calls(fn: Any) -> list[str]:
        names = [node.name for node in tg.trace(fn).explain(x).optimized.nodes]
        return [name for name in names if "sort" in name]

    assert calls(lambda v: np.sort(v, 0)) == ["sorted_values"]
    assert calls(lambda v: F.sort(v, 1, True).values) == ["sorted_values"]
    assert calls(lambda v: F.sort(v).indices) == calls(np.argsort) == ["argsort"]
    assert calls(F.sort) == calls(lambda v: (F.sort(v), F.argsort(v))) == ["argsort"]
    assert calls(tg.grad(lambda v: np.sum(np.sort(v) ** 3))) == ["argsort"]
    both, values = tg.trace(F.sort)(x, 0), tg.trace(lambda v: np.sort(v, 0))(x)
    np.testing.assert_array_equal(both.values, np.sort(x, 0), strict=True)
    np.testing.assert_array_equal(values, np.sort(x, 0), strict=True)
    t = tg.tensor(x, requires_grad=True)
    result = t.sort()
    assert not result.indices.requires_grad
    assert type(result.values.grad_fn).__name__ == type(np.sort(t).grad_fn).__name__ == "SortBackward0"
    assert not result.values.grad_fn._saved_indices.requires_grad
    np.testing.assert_array_equal(result.values.grad_fn._saved_indices.numpy(), np.argsort(x))
    assert type(t.sort(stable=True).values.grad_fn).__name__ == "SortBackward1"


def test_the_derivative_of_sorted_values_goes_where_each_value_came_from() -> None:
    x, weights = RNG.integers(0, 4, (5, 6)).astype(float), RNG.normal(size=(5, 6))
    index = by_python(x, 1, True)
    want = np.empty_like(x)
    np.put_along_axis(want, index, weights, 1)
    tangent = RNG.normal(size=(5, 6))
    for fn in (lambda v: F.sort(v, 1, True), lambda v: F.sort(v, dim=-1, descending=True, stable=True)):
        t = tg.tensor(x, requires_grad=True)
        (fn(t).values * tg.tensor(weights)).sum().backward()
        np.testing.assert_array_equal(t.grad.numpy(), want)
        np.testing.assert_array_equal(tg.grad(lambda v: np.sum(fn(v).values * weights))(x), want)  # noqa: B023
        moved = tg.jvp(lambda v: fn(v).values, (x,), (tangent,))[1]  # noqa: B023
        np.testing.assert_array_equal(moved, np.take_along_axis(tangent, index, 1))
        rows = tg.vmap(lambda v: F.sort(v, 0, True).values)
        np.testing.assert_array_equal(tg.trace(rows)(x), np.take_along_axis(x, index, 1))


@pytest.mark.parametrize("name", ["nanmedian", "nanquantile", "quantile at traced places"])
def test_quantiles_of_long_rows_select_instead_of_sorting(name: str) -> None:
    x = np.random.default_rng(3).standard_normal((2, 1100))
    if name[:3] == "nan":
        x[0, ::7] = np.nan
    q = np.array([0.3, 0.77])
    of, args = {
        "nanmedian": (lambda x: np.nanmedian(x, axis=1), (x,)),
        "nanquantile": (lambda x: np.nanquantile(x, [0.3, 0.77], axis=1), (x,)),
        "quantile at traced places": (lambda x, q: np.quantile(x, q, axis=1), (x, q)),
    }[name]
    with tg.settings.override(first_call="compile"):
        np.testing.assert_allclose(tg.trace(of)(*args), of(*args), rtol=1e-13)
        derivative = tg.grad(lambda *args: np.sum(np.cos(of(*args))))(*args)
    assert 4 <= np.count_nonzero(derivative) <= 8
    for i, j in np.argwhere(derivative):
        near = [x.copy() for _ in range(2)]
        near[0][i, j], near[1][i, j] = x[i, j] - 1e-6, x[i, j] + 1e-6
        low, high = (np.sum(np.cos(of(moved, *args[1:]))) for moved in near)
        np.testing.assert_allclose(derivative[i, j], (high - low) / 2e-6, rtol=1e-5, atol=1e-8)


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "value", "index"),
    [
        ([NAN, 1.0, 1.0], 1.0, 2),
        ([NAN, NAN, 1.0], NAN, 0),
        ([NAN], NAN, 0),
        ([2.0, NAN, 1.0], 1.0, 2),
        ([1.0, 2.0, 2.0, NAN, NAN, NAN], 2.0, 2),
        ([NAN, 1.0], NAN, 0),
        ([1.0, NAN], 1.0, 0),
        ([NAN, NAN], NAN, 0),
    ],
)
def test_the_mode_is_that_of_pytorch_where_there_is_nan(values: list[float], value: float, index: int) -> None:
    for run in (tg.mode, tg.trace(tg.mode)):
        result = run(tg.tensor(values))
        np.testing.assert_array_equal([result.values, result.indices], [value, index])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_sign_of_nan_is_0_of_tensors_and_nan_of_arrays(dtype: str) -> None:
    points = np.array([NAN, 0.0, -0.0, -2.0, 3.0, np.inf, -np.inf], dtype)
    for sign in (tg.sign, tg.sgn, lambda x: x.sign(), lambda x: x.clone().sgn_()):
        for run in (sign, tg.trace(sign)):
            result = run(tg.tensor(points))
            assert (result.dtype, result.tolist()) == (points.dtype, [0.0, 0.0, 0.0, -1.0, 1.0, 1.0, -1.0])
    x = tg.tensor(points, requires_grad=True)
    tg.sign(x).sum().backward()
    assert x.grad.tolist() == [0.0] * 7
    np.testing.assert_array_equal(tg.trace(np.sign)(points), np.sign(points))
