"""Arrays that are not in row-major order: read as they lie where that pays, with the results of NumPy, where it has
them."""

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ir import run
from tracegrad.runtime.dispatch import specializations
from tracegrad.runtime.execution.strided_inputs import with_strided_inputs


def matrix(shape=(30, 40)):
    return np.random.default_rng(0).standard_normal(shape)


def gaps(x):
    return np.repeat(x, 2, axis=-1)[..., ::2]


def turned(x):
    return np.ascontiguousarray(x.transpose(1, 2, 0)).transpose(2, 0, 1)


LIES = {"C": np.ascontiguousarray, "F": np.asfortranarray, "gaps": gaps, "backwards": lambda x: x[::-1].copy()[::-1]}
FUNCTIONS = {
    "sum": np.sum,
    "sum of columns": lambda x: np.sum(x, axis=0),
    "argmax of rows": lambda x: np.argmax(x, axis=1),
    "exp": np.exp,
    "sum of one and its transpose": lambda x: x[:, : x.shape[0]] + x[:, : x.shape[0]].T,
    "itself and more": lambda x: (x, x + 1.0),
    "raveled as it lies": lambda x: x.ravel("K") * 2.0,
    "product": lambda x: x @ x.T,
    "asked": lambda x: x * 2.0 if np.sum(x) > 0 else x,
    "cumsum": lambda x: np.cumsum(x, axis=0),
}


@pytest.fixture(params=["read as they lie", "copied"], autouse=True)
def worth(request, monkeypatch):
    monkeypatch.setattr(specializations, "LEAST_CHECKED", 0 if request.param == "read as they lie" else 1 << 40)
    return request.param


def assert_like(found, expected):
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
        assert np.shape(a) == np.shape(b)
        assert a.dtype == b.dtype
        assert a.strides == b.strides


@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_in_any_order_give_what_numpy_gives_and_lie_as_numpy_has_it(name):
    function, x = FUNCTIONS[name], matrix()
    traced = tg.trace(function)
    iterations = [lie(x + k) for k in range(2) for lie in LIES.values()]
    for args in [*iterations, *iterations[::-1], *[iterations[1]] * 3, *[iterations[2]] * 3, *iterations]:
        assert_like(traced(args), function(args))


@pytest.mark.parametrize("lie", [turned, np.asfortranarray, gaps])
def test_three_axes_lie_in_any_order(lie):
    x = lie(matrix((3, 20, 30)))
    traced = tg.trace(lambda x, y: (np.sum(x * y, axis=1), x - y))
    for _ in range(4):
        assert_like(traced(x, x + 1.0), (np.sum(x * (x + 1.0), axis=1), x - (x + 1.0)))


def test_captured_arrays_and_arrays_in_containers_are_read_as_they_lie():
    captured, x = np.asfortranarray(matrix()), matrix()
    traced = tg.grad(lambda p: np.sum(p["w"] * captured * p["b"][0]))
    for k in range(4):
        captured[0, 0] = k
        p = {"w": np.asfortranarray(x + k), "b": [x]}
        result = traced(p)
        np.testing.assert_allclose(result["w"], captured * x)
        np.testing.assert_allclose(result["b"][0], captured * (x + k))


def test_an_argument_that_is_updated_is_updated_as_it_lies():
    def update(x):
        x[1:3] *= 2.0
        return np.sum(x)

    traced = tg.trace(update)
    for lie in (np.asfortranarray, gaps, np.ascontiguousarray) * 3:
        x, y = lie(matrix()), lie(matrix())
        np.testing.assert_allclose(traced(x), update(y))
        assert x.tolist() == y.tolist()


def test_an_index_out_of_range_raises_what_numpy_raises():
    x = np.asfortranarray(matrix())
    traced = tg.trace(lambda x, i: x[i])
    for _ in range(4):
        np.testing.assert_array_equal(traced(x, np.array([1, 2])), x[[1, 2]])
        with pytest.raises(IndexError):
            traced(x, np.array([1, 70]))


def test_what_is_no_array_of_numpy_is_not_taken_for_one():
    x = np.asfortranarray(matrix())
    traced = tg.trace(lambda x: np.sum(x, axis=0))
    for _ in range(4):
        traced(x)
    for other in (x.astype(np.float32), x.astype(">f8"), x[:10]):
        np.testing.assert_allclose(np.ravel(traced(other)), np.ravel(np.sum(other, axis=0)), rtol=1e-5)


def test_a_program_of_its_own_comes_with_the_second_call_alone(worth):
    x = np.asfortranarray(matrix())
    traced = tg.trace(lambda x: np.sum(np.exp(x), axis=0))
    compiled = []
    for _ in range(4):
        traced(x)
        (spec,) = traced._specializations.values()
        compiled.append(sum(isinstance(p, specializations.Program) for p in spec.paths[0]._strided_programs.values()))
    assert compiled == ([0, 1, 1, 1] if worth == "read as they lie" else [0] * 4)


def test_the_hot_path_takes_what_lies_in_another_order():
    x = np.asfortranarray(matrix())
    traced = tg.trace(lambda x: np.sum(np.exp(x), axis=0))
    for _ in range(4):
        traced(x)
    before = traced.cache_info().hits
    for _ in range(10):
        traced(x)
    assert traced.cache_info().hits == before


def test_the_graph_of_transposed_arrays_computes_the_same():
    x = np.asfortranarray(matrix((4, 5)))
    traced = tg.trace(lambda x: np.cumsum(x, axis=1) @ np.ones(5))
    traced(x)
    (spec,) = traced._specializations.values()
    graph = spec.paths[0].trace.graph
    other = with_strided_inputs(graph, [x.strides, *[None] * (len(graph.inputs) - 1)])
    assert other.avals[0].shape == (5, 4, 1)
    rest = [np.ones(5)] * (len(graph.inputs) - 1)
    np.testing.assert_array_equal(run(other, [x.T[..., None], *rest])[0], run(graph, [x, *rest])[0])
