"""`tg.func`: torch.func's names and arguments, on ndarrays and on Tensors, nested in any order."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import func

x = np.linspace(0.2, 1.0, 4)
rows = np.sin(np.arange(12.0)).reshape(3, 4)


def loss(v: Any, w: Any) -> Any:
    return (tg.sin(v) * w * w).sum()


def both(v: Any) -> list[Any]:
    """An array and a Tensor of these elements."""
    return [v, tg.tensor(v)]


def plain(v: Any) -> Any:
    return v.detach().numpy() if isinstance(v, tg.Tensor) else v


@pytest.mark.parametrize("v", both(x), ids=["array", "tensor"])
def test_gradients_and_values_come_in_the_order_of_torch(v: Any) -> None:
    gradient, value = func.grad_and_value(loss, argnums=1)(v, v)
    assert isinstance(gradient, type(v))
    np.testing.assert_allclose(plain(gradient), 2 * x * np.sin(x))
    assert float(value) == pytest.approx(np.sum(np.sin(x) * x * x))
    np.testing.assert_array_equal(plain(func.grad(loss, argnums=1)(v, v)), plain(gradient))
    (gradient, (value, aux)) = func.grad_and_value(lambda a: ((a * a).sum(), a + 1.0), has_aux=True)(v)
    np.testing.assert_allclose(plain(aux), x + 1)


@pytest.mark.parametrize("v", both(x), ids=["array", "tensor"])
def test_products_with_jacobians_in_both_modes(v: Any) -> None:
    f = tg.exp
    out, pull = func.vjp(f, v)
    np.testing.assert_allclose(plain(pull(v)[0]), np.exp(x) * x)
    out, tangent = func.jvp(f, (v,), (v,))
    np.testing.assert_allclose(plain(tangent), np.exp(x) * x)
    out, push = func.linearize(f, v)
    np.testing.assert_allclose(plain(push(v)), np.exp(x) * x)
    np.testing.assert_allclose(plain(out), np.exp(x))


@pytest.mark.parametrize("v", both(x), ids=["array", "tensor"])
def test_jacobians_agree_in_both_modes_and_in_chunks(v: Any) -> None:
    f = lambda a: (a * a).sum() * tg.sin(a)  # noqa: E731
    want = np.diag(np.sum(x * x) * np.cos(x)) + 2 * np.outer(np.sin(x), x)
    for result in (func.jacrev(f), func.jacfwd(f), func.jacrev(f, chunk_size=3)):
        np.testing.assert_allclose(plain(result(v)), want, rtol=1e-13)
    np.testing.assert_allclose(plain(func.hessian(lambda a: (a**3).sum())(v)), np.diag(6 * x), rtol=1e-13)


@pytest.mark.parametrize("t", both(rows), ids=["array", "tensor"])
def test_batches_of_gradients(t: Any) -> None:
    per_sample = func.vmap(func.grad(loss), in_dims=(0, None))
    np.testing.assert_allclose(plain(per_sample(t, t[0])), np.cos(rows) * rows[0] ** 2, rtol=1e-13)
    result = func.vmap(lambda a: a * 2.0, in_dims=1, out_dims=-1)(t)
    np.testing.assert_allclose(plain(result), 2 * rows)


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(tg.UnsupportedError, match="the function runs once"):
        func.jacfwd(np.sin, randomness="different")
    with pytest.raises(RuntimeError, match="Only allowed values for randomness"):
        func.vmap(np.sin, randomness="some")
    with pytest.raises(tg.UnsupportedError, match="strict"):
        func.jvp(np.sin, (x,), (x,), strict=True)
    with pytest.raises(AttributeError, match="no attribute 'gradient'"):
        _ = func.gradient


@pytest.mark.parametrize("jit", [True, False], ids=["compiled", "plain"])
def test_random_numbers_of_examples_are_refused_the_same_or_different(jit: bool) -> None:
    def draw(a: Any) -> Any:
        return a * 0.0 + tg.randn(4) + tg.rand(4)

    t = tg.tensor(rows)
    with contextlib.nullcontext() if jit else tg.disable_jit():
        with pytest.raises(RuntimeError, match="randomness error mode"):
            func.vmap(draw)(t)
        tg.manual_seed(3)
        same = func.vmap(draw, randomness="same")(t)
        after = tg.rand(1)
        different = func.vmap(draw, randomness="different")
        first, second = different(t), different(t)
    tg.manual_seed(3)
    np.testing.assert_array_equal(same.numpy(), np.broadcast_to((tg.randn(4) + tg.rand(4)).numpy(), (3, 4)))
    assert after == tg.rand(1)
    assert len({float(v) for v in (*first.flatten(), *second.flatten())}) == 24


def test_a_value_of_an_example_that_is_stored_outside_is_refused() -> None:
    stored: list[Any] = []

    def fn(a: Any) -> Any:
        stored.append(a)
        return a * 2

    with pytest.raises(RuntimeError, match="escaped"):
        func.vmap(fn)(tg.tensor(rows))
    with pytest.raises(RuntimeError, match="has no value yet"):
        func.vmap(lambda a: a if a.sum() > 0 else -a)(tg.tensor(rows))


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 6, 7, 100])
@pytest.mark.parametrize("v", both(np.sin(np.arange(35.0)).reshape(7, 5)), ids=["array", "tensor"])
def test_a_batch_in_chunks_is_the_batch(v: Any, chunk_size: int) -> None:
    matrix = np.cos(np.arange(15.0)).reshape(5, 3)
    weights = matrix if isinstance(v, np.ndarray) else tg.tensor(matrix)
    offset = weights[0, 0]

    def fn(a: Any, w: Any) -> Any:
        return {"product": tg.exp(a @ w), "same": (w * offset).sum(), "index": a.argmax(), "sum": a.sum() > 0}

    def call(fn: Any, size: Any, **dims: Any) -> dict[str, Any]:
        result = func.vmap(fn, in_dims=(0, None), chunk_size=size, **dims)(v, weights)
        return {k: plain(x) for k, x in result.items()}

    dims = {"out_dims": {"product": 1, "same": None, "index": 0, "sum": 0}}
    for options in ({}, dims):
        whole, result = call(fn, None, **options), call(fn, chunk_size, **options)
        assert result.keys() == whole.keys()
        for k in whole:
            np.testing.assert_allclose(result[k], whole[k], rtol=1e-14, strict=True)
    rows = func.vmap(func.grad(lambda a: tg.exp(a @ weights).sum()), chunk_size=chunk_size)(v)
    want = np.exp(plain(v) @ matrix) @ matrix.T
    np.testing.assert_allclose(plain(rows), want, rtol=1e-13)
    through = func.grad(lambda u: func.vmap(lambda a: tg.exp(a @ weights).sum(), chunk_size=chunk_size)(u).sum())
    np.testing.assert_allclose(plain(through(v)), want, rtol=1e-13)
    inner = func.vmap(lambda a, b: a * b, in_dims=(0, None), chunk_size=2)
    nested = func.vmap(inner, in_dims=(None, 0), chunk_size=chunk_size)
    np.testing.assert_array_equal(plain(nested(v, v)), plain(v) * plain(v)[:, None])


def test_chunks_on_the_tape_and_without_compilation() -> None:
    t = tg.tensor(rows, requires_grad=True)
    func.vmap(lambda a: (a * a * a).sum(), chunk_size=2)(t).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), 3 * rows**2, rtol=1e-14)
    with tg.disable_jit():
        np.testing.assert_array_equal(func.vmap(np.sin, chunk_size=2)(rows), np.sin(rows))
    assert func.vmap(np.sin, chunk_size=2)(rows[:0]).shape == (0, 4)


def test_chunks_bound_the_memory() -> None:
    w = np.ones((50, 50))

    def elements(chunk_size: int | None) -> int:
        mapped = func.vmap(lambda a: np.trace(np.outer(a, a) @ w), chunk_size=chunk_size)
        optimized = mapped.explain(np.ones((64, 50))).optimized
        return max(x.aval.size for x in optimized.everywhere() if not x.is_multi_result)

    assert elements(None) == elements(64) >= 64 * 50 * 50
    assert elements(4) <= max(4 * 50 * 50, 64 * 50)


def test_chunk_sizes_are_positive_ints() -> None:
    for size in (0, -3):
        with pytest.raises(ValueError, match=rf"chunk_size should be None or greater than 0\. \(got {size}\)"):
            func.vmap(np.sin, chunk_size=size)
    with pytest.raises(TypeError, match="chunk_size should be None or an int, got a float"):
        func.vmap(np.sin, chunk_size=2.0)


def test_forward_mode_of_the_gradient_of_several_tensors() -> None:
    params = {"w": tg.tensor(x), "b": tg.tensor(2.0)}

    def energy(p: Any) -> Any:
        return (p["w"] ** 2 * p["b"] ** 3).sum()

    ones = {name: tg.ones_like(p) for name, p in params.items()}
    value, derivative = func.jvp(func.grad(energy), (params,), (ones,))
    np.testing.assert_allclose(plain(value["w"]), 2 * x * 8.0)
    np.testing.assert_allclose(plain(derivative["w"]), 2 * 8.0 + 2 * x * 3 * 4.0)
    np.testing.assert_allclose(plain(derivative["b"]), np.sum(2 * x * 12.0 + x**2 * 12.0))


@pytest.mark.parametrize("wrap", [lambda f: f, tg.trace], ids=["eager", "traced"])
def test_gradients_of_a_tensor_from_outside_in_a_batch(wrap: Any) -> None:
    def slopes(v: Any) -> Any:
        return func.vmap(lambda row: func.grad(lambda u: (u * u * row * row).sum())(v))(tg.tensor(rows))

    result = wrap(func.grad(lambda v: slopes(v).sum()))(tg.tensor(x))
    np.testing.assert_allclose(plain(result), 2 * (rows**2).sum(0))
    unused = wrap(lambda v: func.vmap(lambda row: func.grad(lambda u: (row * row).sum())(v))(tg.tensor(rows)))
    np.testing.assert_allclose(plain(unused(tg.tensor(x))), np.zeros((3, 4)))


def test_the_function_that_vjp_gives_of_tensors_is_mapped_and_differentiated() -> None:
    """Also where a derivative goes on to Tensors that `fun` reads, and for another point later."""
    eye = tg.eye(3, dtype=tg.float64)
    ct = tg.tensor([2.0, -1.0, 0.5], dtype=tg.float64)
    weight = tg.tensor([2.0, 3.0, 4.0], dtype=tg.float64, requires_grad=True)

    for point in (np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 0.0])):
        x = tg.tensor(point)
        pull, push = func.vjp(lambda x: tg.sin(tg.sin(x)), x)[1], func.linearize(lambda x: tg.sin(tg.sin(x)), x)[1]
        derivatives = np.cos(np.sin(point)) * np.cos(point)
        for _ in range(2):
            for each in (lambda v, pull=pull: pull(v)[0], push):
                rows = func.vmap(each)(eye)
                np.testing.assert_allclose(rows.numpy(), np.diag(derivatives), rtol=1e-15)
                squares = func.grad(lambda c, each=each: (each(c) ** 2).sum())(ct)
                np.testing.assert_allclose(squares.numpy(), 2 * derivatives**2 * ct.numpy(), rtol=1e-14)
                assert not rows.requires_grad
                assert not squares.requires_grad
            with tg.disable_jit():
                np.testing.assert_allclose(func.vmap(pull)(eye)[0].numpy(), np.diag(derivatives), rtol=1e-15)

    pull = func.vjp(lambda x: weight * x**3, x)[1]
    func.vmap(pull)(eye)[0].sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), 3 * point**2, rtol=1e-15)


def test_a_map_over_the_function_that_vjp_gives_leads_back_to_the_point() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], dtype=tg.float64, requires_grad=True)
    pull = func.vjp(lambda x: x**3, x)[1]
    func.vmap(pull)(tg.eye(3, dtype=tg.float64))[0].sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [6.0, 12.0, 18.0], rtol=1e-15)


@pytest.mark.parametrize("v", both(rows), ids=["array", "tensor"])
def test_out_dims_of_one_result_may_be_a_tuple_of_one(v: Any) -> None:
    np.testing.assert_array_equal(plain(func.vmap(lambda r: 2 * r, out_dims=(1,))(v)), 2 * rows.T)
    np.testing.assert_array_equal(plain(func.vmap(lambda r: (2 * r,), out_dims=(1,))(v)[0]), 2 * rows.T)
    for out_dims in ((1, 1), [1]):
        with pytest.raises(ValueError, match=r"out_dims is not compatible|must be a prefix"):
            func.vmap(lambda r: 2 * r, out_dims=out_dims)(v)


@pytest.mark.parametrize("v", both(np.array([[0, 2], [1, 0]])), ids=["array", "tensor"])
def test_one_hot_is_mapped_where_the_number_of_classes_is_said(v: Any) -> None:
    one_hot = tg.nn.functional.one_hot
    expected = np.eye(3, dtype=np.int64)[np.asarray(v)]
    np.testing.assert_array_equal(plain(func.vmap(lambda k: one_hot(k, 3))(v)), expected)
    np.testing.assert_array_equal(plain(tg.trace(lambda v: func.vmap(lambda k: one_hot(k, 3))(v))(v)), expected)
    np.testing.assert_array_equal(plain(func.vmap(lambda k: one_hot(k, 3))(v - 1))[0], [[0, 0, 0], [0, 1, 0]])
    with pytest.raises(RuntimeError, match="explicit positive num_classes"):
        func.vmap(one_hot)(v)
    with pytest.raises(RuntimeError, match="non-negative"):
        tg.trace(one_hot)(v - 1)


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_vmap_over_autograd_grad_gives_a_jacobian_and_frees_the_graph() -> None:
    v = tg.tensor(x, requires_grad=True)
    y = v**3
    jacobian = tg.vmap(lambda ct: tg.autograd.grad(y, v, ct)[0])(tg.eye(4))
    np.testing.assert_allclose(jacobian, np.diag(3 * x**2))
    with pytest.raises(RuntimeError, match="a second time"):
        tg.autograd.grad(y, v, tg.ones(4))


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_vmap_over_recorded_gradients_leaves_them_on_the_tape() -> None:
    v = tg.tensor(x, requires_grad=True)
    y = v**3
    rows = tg.vmap(lambda ct: tg.autograd.grad(y, v, ct, create_graph=True)[0])(tg.eye(4))
    np.testing.assert_allclose(tg.autograd.grad(rows.sum(), v)[0], 6 * x)
