"""`jacrev`, `jacfwd`, `hessian` and `hvp` against each other, differences and loops; structures, chunks and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import DTypeError, TraceError

rng = np.random.default_rng(0)
A = rng.normal(size=(4, 3))
X = rng.normal(size=3)
FUNCTIONS: dict[str, Any] = {
    "vector": lambda x: np.sin(A @ x) * np.sum(x * x),
    "scalar": lambda x: np.sum(np.tanh(x)) * x[0],
    "matrix": lambda x: np.outer(x, np.exp(x)) @ A.T,
    "moves": lambda x: np.concatenate([x[::-1] * x, x[1:] ** 3]),
    "scan": lambda x: tg.scan(lambda c, _: (np.sin(c) * x, np.sum(c)), x, length=3)[1],
    "constant": lambda x: np.concatenate([x * 2.0, np.ones(2)]),
    "nothing": lambda x: A * 1.0,
    "linalg": lambda x: np.linalg.solve(np.outer(x, x) + 5 * np.eye(3), x),
    "where": lambda x: np.where(x > 0, np.log(np.abs(x)), x),
}
named = pytest.mark.parametrize("name", FUNCTIONS)


def differences(f: Any, x: Any, h: float = 1e-6) -> Any:
    """The Jacobian of `f`, whose input has one axis."""
    columns = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(x.size)]
    return np.stack(columns, axis=-1)


@named
@pytest.mark.parametrize("transform", [tg.jacrev, tg.jacfwd, tg.jacobian])
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 100])
def test_jacobians_are_differences(name: str, transform: Any, chunk_size: Any) -> None:
    f = FUNCTIONS[name]
    result = transform(f, chunk_size=chunk_size)(X)
    np.testing.assert_allclose(result, differences(f, X), rtol=1e-6, atol=1e-8)


@named
@pytest.mark.parametrize("transform", [tg.jacrev, tg.jacfwd])
def test_jacobians_are_the_same_without_compilation(name: str, transform: Any) -> None:
    f = FUNCTIONS[name]
    with tg.disable_jit():
        result = transform(f)(X)
        chunked = transform(f, chunk_size=2)(X)
    np.testing.assert_allclose(result, transform(f)(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(result, chunked)


@named
def test_hessians_are_jacobians_of_jacobians_in_any_order(name: str) -> None:
    f = FUNCTIONS[name]
    result = tg.hessian(f)(X)
    assert result.shape == (*np.shape(f(X)), 3, 3)
    for outer in (tg.jacrev, tg.jacfwd):
        for inner in (tg.jacrev, tg.jacfwd):
            np.testing.assert_allclose(outer(inner(f))(X), result, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(tg.hessian(f, chunk_size=2)(X), result, rtol=1e-12, atol=1e-14)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.hessian(f)(X), result, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("transform", [tg.jacrev, tg.jacfwd])
def test_structures_are_those_of_output_and_argument(transform: Any) -> None:
    def f(p: Any, k: Any) -> Any:
        return {"a": A @ p["w"] * k, "b": [np.sum(p["w"]) + p["c"], p["c"] ** 2]}

    params = {"w": X, "c": 2.0}
    single = transform(f)(params, 3.0)
    np.testing.assert_allclose(single["a"]["w"], 3 * A)
    np.testing.assert_array_equal(single["a"]["c"], np.zeros(4))
    np.testing.assert_array_equal(single["b"][0]["w"], np.ones(3))
    assert (single["b"][0]["c"], single["b"][1]["c"]) == (1.0, 4.0)
    both = transform(f, argnums=(1, 0))(params, 3.0)
    assert isinstance(both["a"], tuple)
    np.testing.assert_allclose(both["a"][0], A @ X)
    np.testing.assert_allclose(both["a"][1]["w"], 3 * A)
    last = transform(f, argnums=-1)(params, 3.0)
    np.testing.assert_allclose(last["a"], A @ X)
    keyword = transform(f)(p=params, k=3.0)
    np.testing.assert_allclose(keyword["a"]["w"], 3 * A)


def test_a_hessian_has_the_structure_twice() -> None:
    result = tg.hessian(lambda x, y: np.sum(x * x) * y["a"], argnums=(0, 1))(X, {"a": 2.0})
    np.testing.assert_allclose(result[0][0], 4 * np.eye(3))
    np.testing.assert_allclose(result[0][1]["a"], 2 * X)
    np.testing.assert_allclose(result[1]["a"][0], 2 * X)
    assert result[1]["a"][1]["a"] == 0.0


@pytest.mark.parametrize("transform", [tg.jacrev, tg.jacfwd, tg.hessian])
def test_aux_comes_beside_the_jacobian(transform: Any) -> None:
    result, aux = transform(lambda x: (np.sum(x**3), {"x": x * 2.0, "name": "aux"}), has_aux=True)(X)
    np.testing.assert_allclose(result, transform(lambda x: np.sum(x**3))(X))
    np.testing.assert_allclose(aux["x"], 2 * X)
    assert aux["name"] == "aux"


def test_axes_come_in_order_output_first() -> None:
    x = rng.normal(size=(2, 3))
    f = lambda x: np.einsum("ij,jk->ki", x, A.T)  # noqa: E731
    for transform in (tg.jacrev, tg.jacfwd):
        result = transform(f)(x)
        assert result.shape == (4, 2, 2, 3)
        np.testing.assert_allclose(result, np.einsum("kj,im->kimj", A, np.eye(2)))


def test_dtypes_are_those_of_the_output() -> None:
    single = X.astype(np.float32)
    assert tg.jacrev(lambda x: x * 2.0)(single).dtype == np.float32
    assert tg.jacfwd(lambda x: x * 2.0)(single).dtype == np.float32
    assert tg.hessian(lambda x: np.sum(x**3))(single).dtype == np.float32


def test_numbers_have_numbers_as_derivatives() -> None:
    assert tg.jacrev(lambda x: x**3)(2.0) == 12.0
    assert tg.jacfwd(lambda x: x**3)(2.0) == 12.0
    assert tg.hessian(lambda x: x**3)(2.0) == 12.0


# -- hvp ---------------------------------------------------------------------------------------------------------------
def test_hvp_is_the_hessian_times_a_vector() -> None:
    f = FUNCTIONS["scalar"]
    v = rng.normal(size=3)
    want = tg.hessian(f)(X) @ v
    np.testing.assert_allclose(tg.hvp(f, (X,), (v,)), want, rtol=1e-12)
    np.testing.assert_allclose(tg.trace(lambda x: tg.hvp(f, (x,), (v,)))(X), want, rtol=1e-12)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.hvp(f, (X,), (v,)), want, rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(lambda u: tg.hvp(f, (X,), (u,)))(np.eye(3)), tg.hessian(f)(X), rtol=1e-12)


def test_hvp_of_several_arguments_and_pytrees() -> None:
    def f(p: Any, y: Any) -> Any:
        return np.sum(p["w"] ** 2) * y * p["c"]

    point, moved = ({"w": X, "c": 2.0}, 3.0), ({"w": np.ones(3), "c": 1.0}, -1.0)
    first, second = tg.hvp(f, point, moved)
    blocks = tg.hessian(f, argnums=(0, 1))(*point)

    def row(block: Any) -> Any:
        return block[0]["w"] @ moved[0]["w"] + block[0]["c"] * moved[0]["c"] + block[1] * moved[1]

    np.testing.assert_allclose(first["w"], row(blocks[0]["w"]))
    np.testing.assert_allclose(first["c"], row(blocks[0]["c"]))
    np.testing.assert_allclose(second, row(blocks[1]))


# -- programs ----------------------------------------------------------------------------------------------------------
def test_a_hessian_is_one_program_that_does_not_grow_with_the_size() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) ** 2 * np.exp(-(x**2))) + tg.logsumexp(x, 0)

    hessian = tg.hessian(f)
    sizes = [len(hessian.graph(np.linspace(-1.0, 1.0, n)).nodes) for n in (5, 50)]
    assert sizes[0] == sizes[1]
    assert hessian.cache_info().traces == 2
    chunked = tg.hessian(f, chunk_size=7)
    assert len(chunked.graph(np.linspace(-1.0, 1.0, 50)).nodes) < sizes[0] + 20


def test_the_function_is_computed_once_for_all_rows() -> None:
    graph = tg.jacrev(lambda x: np.tanh(A @ np.exp(x))).graph(X)
    assert [str(n.aval) for n in graph.nodes if n.name in ("sech2", "exp")] == ["f64[3]", "f64[4]"]


def test_they_are_remembered() -> None:
    f = FUNCTIONS["vector"]
    assert tg.jacrev(f) is tg.jacrev(f)
    assert tg.jacrev(f) is not tg.jacrev(f, chunk_size=2)
    assert tg.jacobian is tg.jacrev


def test_they_nest_with_everything() -> None:
    f = FUNCTIONS["vector"]
    batch = rng.normal(size=(5, 3))
    want = np.stack([tg.jacrev(f)(x) for x in batch])
    np.testing.assert_allclose(tg.vmap(tg.jacrev(f))(batch), want, rtol=1e-10)
    np.testing.assert_allclose(tg.vmap(tg.jacfwd(f))(batch), want, rtol=1e-10)
    np.testing.assert_allclose(tg.vmap(tg.jacrev(f, chunk_size=3))(batch), want, rtol=1e-10)
    np.testing.assert_allclose(tg.trace(lambda x: tg.jacrev(f)(x) @ x)(X), tg.jacrev(f)(X) @ X)
    gradient = tg.grad(lambda x: np.sum(tg.jacfwd(f)(x) ** 2))(X)
    np.testing.assert_allclose(gradient, tg.grad(lambda x: np.sum(tg.jacrev(f)(x) ** 2))(X), rtol=1e-10)
    np.testing.assert_allclose(gradient, differences(lambda x: np.sum(tg.jacrev(f)(x) ** 2), X), rtol=1e-6)


def test_rules_of_the_users_hold() -> None:
    @tg.custom_vjp
    def double(x: Any) -> Any:
        return x * 2.0

    double.defvjp(lambda x: (double(x), None), lambda _, ct: (ct * 3.0,))

    @tg.custom_jvp
    def sine(x: Any) -> Any:
        return np.sin(x)

    sine.defjvp(lambda primals, tangents: (sine(primals[0]), 5.0 * tangents[0]))
    np.testing.assert_allclose(tg.jacrev(double)(X), 3 * np.eye(3))
    np.testing.assert_allclose(tg.jacrev(sine)(X), 5 * np.eye(3))
    np.testing.assert_allclose(tg.jacfwd(sine)(X), 5 * np.eye(3))
    with pytest.raises(TypeError, match="custom_vjp"):
        tg.jacfwd(double)(X)


def test_tensors_give_tensors_that_can_be_differentiated() -> None:
    t = tg.tensor(X, requires_grad=True)
    for transform in (tg.jacrev, tg.jacfwd):
        result = transform(lambda t: (t * t).sum() * t)(t)
        np.testing.assert_allclose(result.detach().numpy(), 2 * np.outer(X, X) + X @ X * np.eye(3))
        t.grad = None
        result.sum().backward()
        np.testing.assert_allclose(t.grad.numpy(), 4 * X.sum() + 6 * X)


def test_static_arguments_stay_as_they_are() -> None:
    traced = tg.trace(lambda x, mode: x * 2.0 if mode == "double" else x, static_argnums=1)
    np.testing.assert_allclose(tg.jacrev(traced)(X, "double"), 2 * np.eye(3))
    with pytest.raises(ValueError, match="static"):
        tg.jacrev(traced, argnums=1)


# -- errors ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("transform", [tg.jacrev, tg.jacfwd, tg.hessian])
def test_what_is_not_floating_is_named(transform: Any) -> None:
    with pytest.raises(DTypeError, match="requires real- or complex-valued inputs, got int64 at x"):
        transform(lambda x: x * 1.0)(np.arange(3))
    with pytest.raises(DTypeError, match=r"the outputs must be floating( or complex)?, got int64"):
        transform(lambda x: np.argsort(x))(X)
    with pytest.raises(ValueError, match="argnums names argument 2"):
        transform(lambda x: x, argnums=2)(X)
    with pytest.raises(TypeError, match="the outputs must be arrays"):
        transform(lambda x: "text")(X)
    with pytest.raises(ValueError, match="chunk_size must be a positive int"):
        transform(lambda x: x, chunk_size=0)
    with pytest.raises(TypeError, match="pair"):
        transform(lambda x: x, has_aux=True)(X)


def test_hvp_names_what_does_not_fit() -> None:
    f = FUNCTIONS["scalar"]
    with pytest.raises(TypeError, match=r"hvp of .*must be tuples or lists"):
        tg.hvp(f, X, X)
    with pytest.raises(ValueError, match="has shape"):
        tg.hvp(f, (X,), (np.ones(2),))
    with pytest.raises(TypeError, match="scalar"):
        tg.hvp(FUNCTIONS["vector"], (X,), (X,))


def test_a_question_in_a_derivative_rule_names_the_batch() -> None:
    @tg.custom_vjp
    def asks(x: Any) -> Any:
        return x * 2.0

    asks.defvjp(lambda x: (x * 2.0, None), lambda _, ct: (ct if ct[0] > 0 else -ct,))
    with pytest.raises(TraceError, match=r"bool\(\) of a value inside jacrev of .*tg.where"):
        tg.jacrev(asks)(X)
