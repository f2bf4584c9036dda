"""The eager tape: values and derivatives against finite and complex differences, and PyTorch's conditions of error."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
import tracegrad.nn.functional
import tracegrad.ops.core.elementwise_op as declare_module
import tracegrad.ops.core.op as op_module
import tracegrad.torch.tape.recording.eager_dispatch as cases_module
from tracegrad.errors import DTypeError
from tracegrad.torch.tape import (
    TapeArray,
    Tensor,
    backward,
    eager_vjp,
    enable_grad,
    grad,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tracegrad.torch.tape.tensors.factories import from_numpy, tensor

RNG = np.random.default_rng(3)
X = RNG.uniform(0.5, 1.5, (3, 4))


def _difference(f: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient of `f` at `x` by central differences of fourth order."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = step
        out[i] = (8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12 * step)
    return out


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "chain": lambda x: np.sum(np.tanh(x) * np.exp(-x) + np.log1p(x) / (1 + x**2)),
    "broadcast": lambda x: np.sum((x - np.mean(x, axis=0)) ** 2 / (1e-3 + np.var(x, axis=0))),
    "matmul": lambda x: np.sum(np.sin(x @ x.T) @ x),
    "einsum": lambda x: np.einsum("ij,kj,kl->", x, x * x, np.sqrt(x)),
    "index": lambda x: np.sum(x[1:, ::-2] ** 3) + x[0, -1] * x[[0, 2, 0], [1, 1, 1]].sum(),
    "softmax": lambda x: np.sum(np.exp(x - np.max(x, 1, keepdims=True)) / np.exp(x).sum(1, keepdims=True) * x),
    "extrema": lambda x: np.sum(np.maximum(x, 1.0)) * np.min(x) + np.max(x, axis=0).prod(),
    "where": lambda x: np.sum(np.where(x > 1, np.log(x), x * x)),
    "join": lambda x: np.sum(np.concatenate([x, 2 * x[:1]], 0) * np.stack([x[0]] * 4)),
    "shape": lambda x: np.sum(np.pad(x, 1).reshape(-1, 2)[:, 0] * np.repeat(np.roll(x, 2), 5)[:15]),
    "scan": lambda x: np.sum(np.cumsum(x, 1) ** 2) + np.prod(x, axis=1).sum() + np.trace(x) ** 2,
    "norm": lambda x: np.linalg.norm(x) + np.linalg.norm(x, axis=1).sum() + np.std(x, ddof=1),
    "powers": lambda x: np.sum(x**x + 2**x + x**0.5 + x**-1.5) + np.sum(abs(x - 1.1)),
    "sinc": lambda x: np.sum(np.sinc(x)) + np.sum(np.sinc(0.01 * x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_backward_agrees_with_finite_differences(name: str) -> None:
    f = FUNCTIONS[name]
    x = tensor(X, requires_grad=True)
    y = f(x)
    assert y.item() == pytest.approx(float(f(X)), rel=1e-13)
    y.backward()
    np.testing.assert_allclose(x.grad.array, _difference(lambda v: float(f(v)), X), rtol=2e-8, atol=2e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_agree_with_differences_of_the_first(name: str) -> None:
    f = FUNCTIONS[name]
    direction = RNG.normal(size=X.shape)

    def slope(v: np.ndarray) -> float:
        x = tensor(v, requires_grad=True)
        (g,) = grad(f(x), x)
        return float(np.sum(g.array * direction))

    x = tensor(X, requires_grad=True)
    (g,) = grad(f(x), x, create_graph=True)
    (h,) = grad((g * direction).sum(), x)
    np.testing.assert_allclose(h.array, _difference(slope, X), rtol=1e-6, atol=1e-6)


def test_derivatives_of_any_order_of_a_power() -> None:
    x = tensor(1.7, requires_grad=True)
    y = x**6
    for k in range(1, 7):
        (y,) = grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(math.perm(6, k) * 1.7 ** (6 - k), rel=1e-12)


def test_a_derivative_agrees_with_the_complex_step() -> None:
    def f(x: Any) -> Any:
        return np.sin(x) * np.exp(x) / (1 + x * x)

    x = tensor(0.7, requires_grad=True)
    f(x).backward()
    assert x.grad.item() == pytest.approx((f(0.7 + 1e-30j) / 1e-30).imag, rel=1e-14)


# -- the tape ----------------------------------------------------------------------------------------------------
def test_gradients_accumulate_in_the_memory_of_the_first() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    first, held = x.grad, x.grad.array
    (x * x).sum().backward()
    assert x.grad is first
    assert first.array is held
    assert first._version == 1
    np.testing.assert_array_equal(held, [5.0, 7.0])


def test_gradients_of_two_leaves_do_not_share_memory() -> None:
    x, y = tensor([1.0, 2.0], requires_grad=True), tensor([1.0, 2.0], requires_grad=True)
    seed = np.ones(2)
    (x + y).backward(seed)
    assert not np.shares_memory(x.grad.array, y.grad.array)
    assert not np.shares_memory(x.grad.array, seed)
    x.sum().backward()
    np.testing.assert_array_equal(y.grad.array, [1.0, 1.0])
    assert x.grad.array.flags.writeable


def test_nodes_carry_pytorchs_names_and_lead_to_the_leaves() -> None:
    x = tensor([2.0], requires_grad=True)
    y = x * x
    assert y.grad_fn.name() == "MulBackward0"
    assert repr(y) == "tensor([4.], grad_fn=<MulBackward0>)"
    assert [(n.name(), k) for n, k in y.grad_fn.next_functions] == [("torch::autograd::AccumulateGrad", 0)] * 2
    assert y.grad_fn.next_functions[0][0].variable is x
    assert x.is_leaf
    assert not y.is_leaf
    assert np.exp(x).grad_fn.name() == "ExpBackward0"


def test_a_composite_op_is_one_node() -> None:
    x = tensor(X, requires_grad=True)
    y = x.mean()
    assert y.grad_fn.name() == "MeanBackward0"
    assert y.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


def test_a_long_chain_needs_no_recursion() -> None:
    x = tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0001
    y.backward()
    assert x.grad.item() == pytest.approx(1.0001**5000)


def test_the_tape_is_freed_with_its_tensors() -> None:
    x = tensor([1.0], requires_grad=True)
    y = np.exp(x) * x
    ref = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert ref() is None


def test_a_second_backward_needs_retain_graph() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_array_equal(x.grad.array, [4.0, 8.0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        grad(y, x)


def test_several_roots_and_weights() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    backward([x.sum(), x * x], [None, np.array([10.0, 1.0])])
    np.testing.assert_array_equal(x.grad.array, [21.0, 5.0])
    y = x * 2
    np.testing.assert_array_equal(grad([y, y], x, [np.ones(2), np.ones(2)])[0].array, [4.0, 4.0])


def test_grad_of_a_value_inside_of_the_tape() -> None:
    x = tensor(2.0, requires_grad=True)
    y = x * x
    z = y * y * x
    assert grad(z, y, retain_graph=True)[0].item() == 2 * 4 * 2
    assert grad(z, [x, y])[0].item() == 5 * 16
    assert x.grad is None


def test_detached_values_that_share_memory_are_constants() -> None:
    x = tensor(3.0, requires_grad=True)
    (x * x.detach() + x.data).backward()
    assert x.grad.item() == 3.0
    assert x.detach().grad_fn is None
    assert np.shares_memory(x.detach().array, x.array)


def test_integer_results_cut_the_tape() -> None:
    x = tensor([1.5, 2.5], requires_grad=True)
    assert not x.astype(int).requires_grad
    assert not np.argmax(x).requires_grad
    assert not (x > 2).requires_grad


@pytest.mark.parametrize("step", [np.floor, np.ceil, np.trunc, np.rint, np.sign])
def test_steps_have_the_derivative_zero(step: Any) -> None:
    x = tensor([1.5, -2.5], requires_grad=True)
    (g,) = grad((step(x) * x).sum(), x, create_graph=True)
    np.testing.assert_array_equal(g.numpy(force=True), step(np.array([1.5, -2.5])))
    assert grad(step(x).sum(), x)[0].tolist() == [0.0, 0.0]


def test_lower_precision_keeps_its_dtype_in_the_gradient() -> None:
    x = tensor(np.ones(3, np.float32), requires_grad=True)
    (x * np.ones(3)).sum().backward()
    assert x.grad.dtype == np.float32


# -- modes ---------------------------------------------------------------------------------------------------------
def test_no_grad_records_nothing_as_context_and_decorator() -> None:
    x = tensor(2.0, requires_grad=True)

    @no_grad()
    def f() -> Tensor:
        return x * x

    @no_grad
    def g() -> Tensor:
        with enable_grad():
            return x * x

    with no_grad():
        assert not is_grad_enabled()
        assert not (x * 2).requires_grad
        with enable_grad():
            assert (x * 2).requires_grad
    assert is_grad_enabled()
    assert not f().requires_grad
    assert g().requires_grad
    with set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert is_grad_enabled()
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        no_grad()(type("Decorated", (), {}))
    assert tg.autograd.grad_mode.no_grad is no_grad
    tg.autograd.set_multithreading_enabled(False)
    with tg.autograd.set_multithreading_enabled(True):
        assert tg.autograd.is_multithreading_enabled()
    assert not tg.autograd.is_multithreading_enabled()
    tg.autograd.set_multithreading_enabled(True)


def test_the_grad_mode_is_the_threads_own() -> None:
    seen = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_an_error_inside_no_grad_restores_the_mode() -> None:
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert is_grad_enabled()


# -- changes in place ----------------------------------------------------------------------------------------------
def test_changes_in_place_are_differentiated() -> None:
    x = tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.0
    before = (y * 1.0) ** 2
    y[1:] = y[:2] * 10.0
    y *= 2.0
    y += x
    (before.sum() + y.sum()).backward()
    np.testing.assert_array_equal(y.array, [3.0, 22.0, 43.0])
    np.testing.assert_array_equal(x.grad.array, [2 * 1 + 2 + 20 + 1, 2 * 2 + 20 + 1, 2 * 3 + 1])


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "expm1"])
def test_an_operand_of_which_pytorch_saves_the_answer_alone_may_be_updated(name: str) -> None:
    def slope(updated: bool, create_graph: bool = False) -> Any:
        x = tg.tensor([0.3, -0.5], requires_grad=True)
        z = x * 1.0
        y = getattr(z, name)()
        if updated:
            z.mul_(3.0)
        (result,) = tg.torch.autograd.grad(y.sum(), x, create_graph=create_graph)
        if create_graph:
            (result,) = tg.torch.autograd.grad(result.sum(), x)
        return result.numpy()

    np.testing.assert_allclose(slope(updated=True), slope(updated=False), rtol=1e-14)
    np.testing.assert_allclose(slope(True, create_graph=True), slope(False, create_graph=True), rtol=1e-14)


def test_a_leaf_changes_in_place_under_no_grad_only() -> None:
    w = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        w += 1.0
    with no_grad():
        w -= 0.5
        w[0] = 7.0
    np.testing.assert_array_equal(w.array, [7.0, 1.5])
    assert w.requires_grad
    assert w.is_leaf
    (w * w).sum().backward()
    np.testing.assert_array_equal(w.grad.array, [14.0, 3.0])


def test_assigning_a_leaf_to_a_whole_tensor_leads_back_to_it() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = tensor([0.0, 0.0])
    y[:] = x
    (y * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.array, [3.0, 3.0])


def test_an_in_place_result_that_does_not_fit_raises() -> None:
    x = tensor([1, 2])
    with pytest.raises(RuntimeError, match="result type Double can't be cast to the desired output type Long"):
        x += 0.5
    with pytest.raises(RuntimeError, match=r"output with shape \[2\] doesn't match the broadcast shape \[3, 2\]"):
        x += np.ones((3, 2), int)
    assert x.tolist() == [1, 2]


def test_copies_do_not_share_memory() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    for y in (x.clone(), np.copy(x), x.astype(float), np.positive(x)):
        assert not np.shares_memory(y.array, x.array)
        assert grad(y.sum(), x)[0].tolist() == [1.0, 1.0]


# -- errors --------------------------------------------------------------------------------------------------------
def test_pytorchs_conditions_of_error() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad and does not have a grad_fn"):
        tensor(1.0).backward()
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        tensor([1, 2], requires_grad=True)
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require gradients"):
        tensor([1, 2]).requires_grad_()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(np.ones(3))
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        grad(x.sum(), tensor(1.0, requires_grad=True))
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(x.sum(), tensor(1.0))
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        x.numpy()
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        np.array([x, x])
    with pytest.raises(RuntimeError, match="only change requires_grad flags of leaf"):
        (x * 2).requires_grad_(False)


def test_unused_inputs_give_none_or_zeros_on_request() -> None:
    x, y = tensor(1.0, requires_grad=True), tensor([1.0, 2.0], requires_grad=True)
    assert grad(x * x, [x, y], allow_unused=True)[1] is None
    assert grad(x * x, [x, y], materialize_grads=True)[1].tolist() == [0.0, 0.0]


def test_a_tensor_without_grad_is_an_array_to_numpy() -> None:
    x = from_numpy(X)
    assert np.asarray(x) is X or np.shares_memory(np.asarray(x), X)
    assert tensor([tensor(1.0), 2.0]).tolist() == [1.0, 2.0]
    assert f"{tensor(1.25):.1f}" == "1.2"
    assert repr(tensor([1, 2])) == "tensor([1, 2])"
    assert repr(tensor(np.float32(1))) == "tensor(1., dtype=float32)"


# -- derivatives of functions ----------------------------------------------------------------------------------------
def _gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    def derivative(*primals: Any) -> Any:
        _, pullback = eager_vjp(lambda *xs: [f(*xs)], primals)
        return pullback([1.0])[0]

    return derivative


def test_eager_vjp_returns_arrays_outermost() -> None:
    (y,), pullback = eager_vjp(lambda x, s: [np.sum(x * x) * s], [X, 2.0])
    assert isinstance(y, np.float64)
    g, h = pullback([1.0])
    assert type(g) is np.ndarray
    np.testing.assert_allclose(g, 4 * X)
    assert h == pytest.approx(np.sum(X * X))
    np.testing.assert_allclose(pullback([2.0])[0], 8 * X)


def test_nested_derivatives_do_not_confuse_their_perturbations() -> None:
    # d/dx [x * d/dy (x + y)] at 1 is 1; a confused tape says 2.
    f = _gradient(lambda x: x * _gradient(lambda y: x + y)(1.0))
    assert f(1.0) == 1.0
    g = _gradient(lambda x: _gradient(lambda y: x * y * y)(x))
    assert g(3.0) == pytest.approx(2 * 3.0 + 2 * 3.0)


def test_third_derivative_by_nesting() -> None:
    f = _gradient(_gradient(_gradient(lambda x: np.exp(2 * x))))
    assert f(0.3) == pytest.approx(8 * math.exp(0.6), rel=1e-13)


def test_eager_vjp_of_recorded_tensors_stays_on_the_tape() -> None:
    x = tensor(2.0, requires_grad=True)
    _, pullback = eager_vjp(lambda v: [v**3], [x])
    (g,) = pullback([1.0])
    assert isinstance(g, Tensor)
    g.backward()
    assert x.grad.item() == pytest.approx(12.0)


def test_python_numbers_are_weak_primals() -> None:
    (y,), pullback = eager_vjp(lambda x, s: [x * (2 * s)], [np.ones(2, np.float32), 3.0])
    assert y.dtype == np.float32
    assert pullback([np.ones(2, np.float32)])[0].dtype == np.float32


def test_outputs_that_do_not_depend_on_the_primals_have_zero_cotangents() -> None:
    (y, z), pullback = eager_vjp(lambda x: [np.ones(2), x], [X])
    np.testing.assert_array_equal(pullback([np.ones(2), None])[0], 0 * X)
    np.testing.assert_array_equal(y, np.ones(2))
    np.testing.assert_array_equal(z, X)


def test_integer_primals_cannot_be_differentiated() -> None:
    with pytest.raises(DTypeError, match="argument 0 has dtype int64"):
        eager_vjp(lambda x: [x], [np.arange(3)])
    (y,), pullback = eager_vjp(lambda i, x: [x[i]], [np.array([0, 1]), X], wrt=[1])
    np.testing.assert_array_equal(pullback([np.ones_like(y)])[0][:2], np.ones((2, 4)))


def test_functions_of_arrays_compute_on_values_with_numpys_methods() -> None:
    def f(x: Any) -> Any:
        kinds.add(type(x))
        return np.sum(x.var(axis=0) * x.max(0) + x.astype(np.float64).flatten().repeat(2).reshape(6, 4).std(0))

    kinds: set[type] = set()
    (y,), pullback = eager_vjp(lambda x: [f(x)], [X])
    assert kinds == {TapeArray}
    assert y == pytest.approx(float(f(X)), rel=1e-13)
    np.testing.assert_allclose(pullback([1.0])[0], _difference(lambda v: float(f(v)), X), rtol=2e-8, atol=2e-8)


# -- what a call costs -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, c: tg.cat([x, y]),
        lambda x, y, c: tg.stack([x, y], 1),
        lambda x, y, c: tg.where(c, x, 0.0),
        lambda x, y, c: tg.maximum(x, y),
        lambda x, y, c: tg.nn.functional.mse_loss(x, y),
        lambda x, y, c: x.sum(dim=0),
        lambda x, y, c: tg.sum(x),
        lambda x, y, c: x.T,
        lambda x, y, c: x.split(1),
        lambda x, y, c: x > y,
    ],
)
def test_a_call_for_kinds_it_knows_asks_nobody_who_leads(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tg.tensor([[1.0, 4.0]], requires_grad=True), tg.tensor([[3.0, 2.0]], requires_grad=True)
    condition = x.detach() > y.detach()
    first = call(x, y, condition)

    def asked(xs: Any) -> Any:
        raise AssertionError("lead() was called")

    for module in (op_module, declare_module, cases_module):
        monkeypatch.setattr(module, "dispatch_operand", asked)
    again = call(x, y, condition)
    for a, b in zip(*((z if isinstance(z, tuple) else (z,)) for z in (first, again))):
        assert a.tolist() == b.tolist()
        assert type(a.grad_fn) is type(b.grad_fn)


def test_an_op_told_of_one_set_of_kinds_takes_others() -> None:
    x = tg.tensor([1.0, 4.0], requires_grad=True)
    assert tg.where(x > 2, x, 0).tolist() == [0.0, 4.0]
    assert tg.where(x > 2, x, 0.5).tolist() == [0.5, 4.0]
    assert tg.where(x.detach() > 2, x, np.zeros(2)).tolist() == [0.0, 4.0]
    assert tg.where(x > 2, x.float(), x).dtype == np.float64
    ints = tg.tensor([1, 2])
    assert tg.maximum(ints, x).tolist() == [1.0, 4.0]
    assert tg.maximum(ints, tg.tensor(2)).dtype == np.int64
    assert tg.cat([ints, x]).tolist() == [1.0, 2.0, 1.0, 4.0]


def test_the_mean_square_error_is_one_op_and_names_what_it_saves() -> None:
    x, y = tg.tensor([1.0, 4.0], requires_grad=True), tg.tensor([3.0, 3.0], requires_grad=True)
    loss = tg.nn.functional.mse_loss(x, y)
    assert loss.item() == 2.5
    assert (loss.grad_fn._saved_self.tolist(), loss.grad_fn._saved_target.tolist()) == ([1.0, 4.0], [3.0, 3.0])
    loss.backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([-2.0, 1.0], [2.0, -1.0])
    graph = tg.trace(tg.nn.functional.mse_loss).graph(np.ones(3), np.zeros(3))
    assert [node.op.name for node in graph.nodes] == ["mse_loss"]


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (1, 1), (2, 3)])
def test_a_product_over_few_elements_is_differentiated_on_the_tape(shape):
    x = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    with tg.disable_jit():
        result = tg.grad(lambda x: np.sum(np.prod(x, axis=0)))(x)
    others = [np.prod(np.delete(x, i, axis=0), axis=0) for i in range(shape[0])]
    np.testing.assert_array_equal(result, np.reshape(others, shape))
