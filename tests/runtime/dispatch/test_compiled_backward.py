"""Compiled functions on the eager tape: a call on Tensors is one node, differentiable again and again.

Eager mode runs the same functions op by op and is the oracle for values and gradients; what calls do to Tensors from
outside (gradients, updates in place, versions) is compared with it too.
"""

from __future__ import annotations

import gc
import math
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from along import replayed
from hatch import Hatch

import tracegrad as tg
from tracegrad.errors import TraceError, UnsupportedError
from tracegrad.torch.tape import Tensor, backward, enable_grad, grad, no_grad
from tracegrad.torch.tape.tensors.factories import tensor

RNG = np.random.default_rng(11)


def leaf(*shape: int, dtype: str = "float64") -> Tensor:
    return tensor(RNG.uniform(0.5, 1.5, shape).astype(dtype), requires_grad=True)


def copied(x: Any) -> Any:
    return tensor(x.detach().numpy(), requires_grad=x.requires_grad)


def close(x: Any, y: Any, rtol: float = 1e-12) -> None:
    assert isinstance(x, Tensor)
    assert x.dtype == y.dtype
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=rtol, atol=1e-14)


def matrix_chain(x: Any, w: Any) -> Any:
    return np.sum(np.tanh(x @ w) ** 2)


def sliced(x: Any, w: Any) -> Any:
    return np.sum(x[1:] * x[:-1]) + w[0].sum()


def composite(x: Any, w: Any) -> Any:
    return np.sum(np.var(x, axis=0)) * np.mean(np.exp(w))


def branching(x: Any, w: Any) -> Any:
    y = x @ w
    return (y * y).sum() if y.sum() > 0 else y.sum()


FUNCTIONS: list[Callable[..., Any]] = [matrix_chain, sliced, composite, branching]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_eager_mode(f: Callable[..., Any]) -> None:
    x, w = leaf(3, 4), leaf(4, 2)
    mine = tg.trace(f)(x, w)
    theirs = f(x, w)
    close(mine, theirs)
    for a, b in zip(grad(mine, [x, w]), grad(theirs, [x, w])):
        close(a, b)


@pytest.mark.parametrize("f", FUNCTIONS[:3], ids=lambda f: f.__name__)
def test_second_and_third_derivatives_are_those_of_eager_mode(f: Callable[..., Any]) -> None:
    x, w = leaf(3, 4), leaf(4, 2)
    results = []
    for g in (tg.trace(f), f):
        first = grad(g(x, w), [x, w], create_graph=True)
        second = grad(sum((v * v).sum() for v in first), [x, w], create_graph=True, allow_unused=True)
        second = [v for v in second if v is not None and v.requires_grad]
        third = grad(sum((v * v).sum() for v in second), [x, w], allow_unused=True)
        results.append((first, second, third))
    for mine, theirs in zip(*results):
        for a, b in zip(mine, theirs):
            if b is None:
                assert a is None or not np.any(a.detach().numpy())
            else:
                close(a, b, rtol=1e-10)


def test_a_fifth_derivative_of_a_power() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = tg.trace(lambda v: (v**5).sum())(x)
    for factor, power in ((5, 4), (20, 3), (60, 2), (120, 1), (120, 0)):
        (y,) = grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(y.detach().numpy(), factor * np.array([1.0, 2.0]) ** power)


def test_a_call_is_one_node_that_leads_to_its_inputs() -> None:
    x, w = leaf(3), leaf(3)
    y = x * 2.0
    out = tg.trace(lambda a, b: np.sum(np.exp(a) * b))(y, w)
    assert out.grad_fn.name() == "CompiledBackward"
    (to_y, number), (to_w, _) = out.grad_fn.next_functions
    assert (to_y, number) == (y.grad_fn, 0)
    assert to_w.variable is w


def test_outputs_of_one_call_are_numbered_outputs_of_one_node() -> None:
    x = leaf(3)
    out = tg.trace(lambda v: {"s": np.sum(v), "pair": (v * 2.0, v.detach()), "n": 3})(x)
    assert {out["s"].output_nr, out["pair"][0].output_nr} == {0, 1}
    assert out["s"].grad_fn is out["pair"][0].grad_fn
    assert not out["pair"][1].requires_grad
    assert out["n"] == 3
    (out["s"] + out["pair"][0].sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [3.0, 3.0, 3.0])


def test_an_output_without_a_cotangent_counts_as_zero() -> None:
    x = leaf(3)
    a, _ = tg.trace(lambda v: (v * 2.0, v * 3.0))(x)
    a.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 2.0, 2.0])


def test_arrays_and_tensors_may_be_mixed() -> None:
    x, y = leaf(4), RNG.normal(size=4)
    out = tg.trace(lambda a, b: (np.sum(a * b), np.sum(b)))(x, y)
    assert isinstance(out[0], Tensor)
    assert isinstance(out[1], np.float64)
    out[0].backward()
    np.testing.assert_array_equal(x.grad.numpy(), y)


def test_an_array_changed_after_the_call_does_not_change_the_derivative() -> None:
    x, y = leaf(4), np.ones(4)
    out = tg.trace(lambda a, b: np.sum(a * b))(x, y)
    y[:] = 100.0
    out.backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(4))


def test_lower_precision_is_kept() -> None:
    x = leaf(5, dtype="float32")
    out = tg.trace(lambda v: np.sum(np.tanh(v)))(x)
    out.backward()
    assert (out.dtype, x.grad.dtype) == (np.float32, np.float32)


def test_nothing_is_recorded_without_grad_mode_or_inputs_that_require_grad() -> None:
    f = tg.trace(lambda v: np.sum(v * v))
    x = leaf(3)
    with no_grad():
        assert f(x).grad_fn is None
    assert f(x.detach()).grad_fn is None
    assert f(x).requires_grad


def test_calls_on_other_tensors_of_the_same_kind_do_not_trace_again() -> None:
    f = tg.trace(lambda v: np.sum(v * v))
    for _ in range(3):
        f(leaf(3)).backward()
    assert f.cache_info().traces == 1


# -- hooks, retained gradients, freed values -----------------------------------------------------------------
def test_hooks_and_retained_gradients_of_inputs_and_outputs() -> None:
    x = leaf(3)
    y = x * 1.0
    y.retain_grad()
    seen: list[Any] = []
    y.register_hook(lambda g: g * 10.0)
    out = tg.trace(lambda v: v * 2.0)(y)
    out.retain_grad()
    out.register_hook(seen.append)
    out.sum().backward()
    np.testing.assert_array_equal(seen[0].numpy(), np.ones(3))
    np.testing.assert_array_equal(out.grad.numpy(), np.ones(3))
    np.testing.assert_array_equal(y.grad.numpy(), np.full(3, 20.0))
    np.testing.assert_array_equal(x.grad.numpy(), np.full(3, 20.0))


def test_a_hook_registered_inside_is_part_of_the_compiled_derivative() -> None:
    @tg.trace
    def f(v: Any) -> Any:
        y = v * v
        y.register_hook(lambda g: g * 10.0)
        return y.sum()

    for x in (leaf(3), leaf(3)):
        f(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), 20.0 * x.detach().numpy())


def test_a_second_backward_needs_retain_graph() -> None:
    f, x = tg.trace(lambda v: np.sum(v * v)), leaf(3)
    out = f(x)
    out.backward(retain_graph=True)
    out.backward()
    np.testing.assert_allclose(x.grad.numpy(), 4.0 * x.detach().numpy())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


def test_an_input_updated_in_place_after_the_call_is_noticed_if_it_is_needed() -> None:
    x = leaf(3)
    y = x * 1.0
    needs, does_not = tg.trace(lambda v: np.sum(v * v))(y), tg.trace(lambda v: np.sum(v * 2.0))(y)
    with no_grad():
        y.add_(1.0)
    does_not.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*is at version 1; expected version 0"):
        needs.backward()


def test_nothing_that_is_cheap_to_compute_again_is_kept() -> None:
    x = leaf(1000)
    out = tg.trace(lambda v: np.sum(np.exp(np.sin(v) * 2.0) ** 2))(x)
    assert out.grad_fn.residuals == ()


def test_what_is_kept_is_what_is_dear() -> None:
    x, w, v = leaf(100, 30), leaf(30, 20), leaf(20, 10)
    out = tg.trace(lambda a, b, c: np.sum(np.tanh(np.tanh(a @ b) @ c)))(x, w, v)
    assert sorted(k.shape for k in out.grad_fn.residuals) == [(100, 10), (100, 20)]


def test_what_is_kept_dies_with_the_backward_pass() -> None:
    x, w = leaf(10, 10), leaf(10, 10)
    out = tg.trace(lambda a, b: np.sum(np.tanh(a @ b)))(x, w)
    saved = weakref.ref(out.grad_fn.residuals[0])
    out.backward()
    assert saved() is None
    gc.collect()


# -- captured Tensors ----------------------------------------------------------------------------------------
class Model:
    def __init__(self) -> None:
        self.w = leaf(3)
        self.layers = [leaf(), {"b": leaf()}]

    @tg.trace
    def __call__(self, x: Any) -> Any:
        return np.sum(self.w * x) * self.layers[0] + self.layers[1]["b"]


def test_parameters_that_a_method_reads_receive_their_gradients() -> None:
    model, x = Model(), np.arange(3.0)
    model(x).backward()
    np.testing.assert_allclose(model.w.grad.numpy(), x * model.layers[0].item())
    np.testing.assert_allclose(model.layers[0].grad.numpy(), np.sum(model.w.detach().numpy() * x))
    np.testing.assert_allclose(model.layers[1]["b"].grad.numpy(), 1.0)


def test_a_captured_tensor_is_read_at_each_call() -> None:
    state = {"w": leaf(3)}
    f = tg.trace(lambda x: np.sum(state["w"] * x))
    close(f(np.ones(3)), state["w"].detach().sum())
    with no_grad():
        state["w"].add_(1.0)
    close(f(np.ones(3)), state["w"].detach().sum())
    state["w"] = leaf(3)
    out = f(np.ones(3))
    close(out, state["w"].detach().sum())
    out.backward()
    np.testing.assert_array_equal(state["w"].grad.numpy(), np.ones(3))
    assert f.cache_info().traces == 1


def test_a_captured_tensor_that_no_longer_requires_grad_is_traced_again() -> None:
    w = leaf(3)
    f = tg.trace(lambda x: np.sum(w * x))
    assert f(np.ones(3)).requires_grad
    w.requires_grad_(False)
    assert not f(np.ones(3)).requires_grad


def test_second_derivatives_reach_captured_tensors() -> None:
    w, x = leaf(3), leaf(3)
    out = tg.trace(lambda v: np.sum(w**2 * v**2))(x)
    (g,) = grad(out, x, create_graph=True)
    np.testing.assert_allclose(grad(g.sum(), w)[0].numpy(), 4.0 * w.detach().numpy() * x.detach().numpy(), rtol=1e-14)


def test_a_tensor_given_twice_receives_both_parts() -> None:
    f = tg.trace(lambda a, b: np.sum(a * a * b))
    x = leaf(3)
    f(x, x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 3.0 * x.detach().numpy() ** 2)
    y, z = leaf(3), leaf(3)
    f(y, z).backward()
    np.testing.assert_allclose(z.grad.numpy(), y.detach().numpy() ** 2)


# -- autograd inside a traced function -----------------------------------------------------------------------
def test_a_whole_training_step_is_one_compiled_function() -> None:
    x, y = RNG.normal(size=(20, 3)), RNG.normal(size=20)

    def step(w: Any, b: Any, x: Any, y: Any) -> Any:
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with no_grad():
            w.sub_(w.grad * 0.1)
            b -= b.grad * 0.1
        w.grad = None
        b.grad.zero_()
        return loss.detach()

    compiled = tg.trace(step)
    mine, theirs = (leaf(3), leaf()), ()
    theirs = tuple(copied(p) for p in mine)
    for _ in range(5):
        ours = compiled(*mine, tensor(x), tensor(y))
        other = step(*theirs, tensor(x), tensor(y))
        close(ours, other, rtol=1e-10)
    for p, q in zip(mine, theirs):
        close(p, q, rtol=1e-10)
        assert p._version == q._version
        assert p.is_leaf
    assert mine[0].grad is None
    np.testing.assert_array_equal(mine[1].grad.numpy(), 0.0)
    assert compiled.cache_info().traces == 2  # without a gradient of b, and with one


def test_gradients_accumulate_into_the_same_tensor() -> None:
    w = leaf(3)

    @tg.trace
    def f() -> None:
        (w * w).sum().backward()

    f()
    first = w.grad
    f()
    f()
    assert w.grad is first
    np.testing.assert_allclose(w.grad.numpy(), 6.0 * w.detach().numpy())


def test_autograd_grad_inside_gives_a_gradient_penalty() -> None:
    @tg.trace
    def f(x: Any) -> Any:
        (g,) = grad((x**3).sum(), x, create_graph=True)
        return (g * g).sum()

    x = leaf(3)
    out = f(x)
    out.backward()
    np.testing.assert_allclose(x.grad.numpy(), 36.0 * x.detach().numpy() ** 3)


def test_detach_and_no_grad_cut_the_derivative_inside() -> None:
    @tg.trace
    def f(x: Any) -> Any:
        with no_grad():
            scale = x * 2.0
            with enable_grad():
                inner = x * 3.0
        return (x * x.detach() * scale * inner).sum()

    x = leaf(3)
    f(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * 6.0 * x.detach().numpy() ** 3)


def test_a_result_whose_derivative_was_used_up_inside_says_so() -> None:
    @tg.trace
    def f(x: Any) -> Any:
        loss = (x * x).sum()
        loss.backward()
        return loss

    x = leaf(3)
    loss = f(x)
    np.testing.assert_allclose(x.grad.numpy(), 2.0 * x.detach().numpy())
    assert loss.requires_grad
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_backward_inside_goes_beyond_an_argument_that_is_no_leaf() -> None:
    f = tg.trace(lambda v: v.sum().backward())
    x = leaf(3)
    f(x * 2.0)
    np.testing.assert_array_equal(x.grad, [2.0, 2.0, 2.0])


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@pytest.mark.parametrize("allow_unused", [False, True])
def test_grad_inside_goes_through_what_was_recorded_outside(allow_unused: bool) -> None:
    x = leaf(3)
    y, other = x**3, leaf(3)

    @tg.trace
    def f(v: Any) -> Any:
        return tg.autograd.grad((y * v).sum(), x, allow_unused=allow_unused, retain_graph=True)[0]

    np.testing.assert_allclose(f(tg.ones(3)), 3 * x.detach() ** 2)
    g = tg.trace(lambda v: tg.autograd.grad((y * v).sum(), (y, other), allow_unused=True, retain_graph=True))
    in_y, in_other = g(tg.ones(3))
    np.testing.assert_array_equal(in_y, np.ones(3))
    assert in_other is None


# -- updates in place ----------------------------------------------------------------------------------------
def test_an_argument_updated_in_place_is_updated_outside_and_keeps_its_history() -> None:
    @tg.trace
    def f(v: Any) -> Any:
        v.mul_(3.0)
        return v

    x = leaf(3)
    y = x * 2.0
    assert f(y) is y
    assert y._version == 1
    (y * y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 72.0 * x.detach().numpy())


def test_updates_through_views_inside_reach_the_argument() -> None:
    @tg.trace
    def f(v: Any) -> Any:
        v[1:] += 5.0
        v.view(3, 1)[0].fill_(7.0)
        return v.sum()

    x = tensor([1.0, 2.0, 3.0])
    base = tensor([0.0, 1.0, 2.0, 3.0])
    assert f(x).item() == 22.0
    np.testing.assert_array_equal(x.numpy(), [7.0, 7.0, 8.0])
    f(base[1:])
    np.testing.assert_array_equal(base.numpy(), [0.0, 7.0, 7.0, 8.0])


def test_a_leaf_that_requires_grad_is_not_updated_in_place() -> None:
    x = leaf(3)
    before = x.detach().numpy().copy()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        tg.trace(lambda v: v.mul_(2.0))(x)
    np.testing.assert_array_equal(x.detach().numpy(), before)
    assert x._version == 0


def test_views_and_updates_of_tensors_made_inside_are_differentiated() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y[1:3] *= x[:2]
        y.view(2, 2)[1].mul_(3.0)
        return (y * y).sum()

    x = leaf(4)
    mine, theirs = grad(tg.trace(f)(x), x), grad(f(x), x)
    close(mine[0], theirs[0])


# -- failures ------------------------------------------------------------------------------------------------
def test_an_exception_inside_leaves_what_python_leaves() -> None:
    w = leaf(3)
    expected = w.detach().numpy() + 1.0

    @tg.trace
    def f(x: Any) -> Any:
        (w * x).sum().backward()
        with no_grad():
            w.add_(1.0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        f(np.ones(3))
    np.testing.assert_array_equal(w.detach().numpy(), expected)
    np.testing.assert_array_equal(w.grad.numpy(), np.ones(3))
    assert (w._version, f.cache_info().traces) == (1, 0)


def test_a_tensor_that_escapes_from_its_trace_says_so() -> None:
    saved: Any = Hatch()
    tg.trace(lambda v: saved.put(v * 2.0))(leaf(3))
    with pytest.raises(TraceError, match="escaped"):
        saved.get() + 1.0


def test_threads_may_call_and_go_backward_at_once() -> None:
    f = tg.trace(lambda v, w: np.sum(np.tanh(v * w)))
    w = leaf(50)
    expected = grad(f(w.detach(), w), w)[0].numpy()
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(20):
                np.testing.assert_array_equal(grad(f(w.detach(), w), w)[0].numpy(), expected)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


def test_transforms_of_functions_of_tensors_stay_on_the_tape() -> None:
    x = leaf(3)
    g = tg.grad(lambda v: (v**3).sum())(x)
    assert g.grad_fn.name() == "CompiledBackward"
    g.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6.0 * x.detach().numpy())


def test_without_the_compiler_the_function_runs_op_by_op_with_the_same_result() -> None:
    f, x = tg.trace(lambda v: np.sum(np.sin(v) * v)), leaf(4)
    with tg.disable_jit():
        eager = f(x)
    close(f(x), eager)
    assert eager.grad_fn.name() == "SumBackward0"
    backward([eager])
    close(x.grad, grad(f(x), x)[0])


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
def test_tensors_that_share_memory_are_updated_as_in_eager_mode() -> None:
    @tg.trace
    def f(a: Any, b: Any) -> Any:
        a.mul_(10.0)
        return b.sum()

    for _ in range(2):
        x = tensor([1.0, 2.0, 3.0])
        assert f(x, x[1:]).item() == 50.0
        np.testing.assert_array_equal(x.numpy(), [10.0, 20.0, 30.0])
        y, z = tensor([1.0, 2.0, 3.0]), tensor([2.0, 3.0])
        assert f(y, z).item() == 5.0


def test_a_call_keeps_no_tensor_alive() -> None:
    w = leaf(3)
    f = tg.trace(lambda v: np.sum(v * 2.0))
    f(w).backward()
    reference = weakref.ref(w)
    del w
    gc.collect()
    assert reference() is None


def test_a_hook_that_asks_for_the_value_of_an_outer_gradient_is_refused() -> None:
    @tg.trace
    def f(x: Any) -> Any:
        y = x * x
        y.register_hook(lambda g: g * 2.0 if g.sum() > 0 else g)
        return y.sum()

    with pytest.raises(UnsupportedError, match=r"bool\(\) of a gradient of what a traced function returns"):
        f(leaf(3))


def test_the_old_way_to_update_a_parameter_works_inside() -> None:
    w = leaf(3)
    before = w.detach().numpy().copy()

    @tg.trace
    def step() -> None:
        (w * w).sum().backward()
        w.data -= 0.5 * w.grad.data
        w.grad.data.zero_()

    step()
    np.testing.assert_allclose(w.detach().numpy(), np.zeros(3), atol=1e-15)
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros(3))
    assert before.any()


def test_tensors_made_inside_are_values_of_the_trace() -> None:
    f = tg.trace(lambda x: tg.zeros(3) + x)
    np.testing.assert_array_equal(f(1.0).numpy(), np.ones(3))
    np.testing.assert_array_equal(f(2.0).numpy(), np.full(3, 2.0))
    assert f.cache_info().traces == 1


def test_parts_of_a_tensor_are_views_inside_as_in_eager_mode() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        a, b = y.detach().split(2)
        b.mul_(a)
        return (y.unbind()[3] * x).sum()

    x = leaf(4)
    mine, theirs = tg.trace(f)(x), f(x)
    close(mine, theirs)
    close(grad(mine, x)[0], grad(theirs, x)[0])


def test_an_update_through_a_view_that_the_trace_does_not_follow_is_refused_not_lost() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y.diagonal().fill_(0.0)
        return y.sum()

    x = leaf(3, 3)
    with pytest.raises(RuntimeError, match="in-place update of a view that a function of several ops gave"):
        tg.trace(f)(x)
    assert f(x).requires_grad


def test_the_derivative_of_an_update_of_an_argument_uses_the_value_from_before() -> None:
    w = leaf(3)

    def f(v: Any) -> None:
        v.mul_(w)

    for function in (f, tg.trace(f)):
        x = tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 2.0
        function(y)
        derivatives = grad(y.sum(), [x, w], retain_graph=True)
        np.testing.assert_allclose(derivatives[0].numpy(), 2.0 * w.detach().numpy())
        np.testing.assert_allclose(derivatives[1].numpy(), [2.0, 4.0, 6.0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(y.sum(), [x, w], create_graph=True)


def test_hooks_on_saved_tensors_pack_what_a_call_keeps_and_do_not_run_inside_its_trace() -> None:
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(t)
        return t.numpy().copy()

    x, w = leaf(5, 4), leaf(4, 3)
    with tg.autograd.graph.saved_tensors_hooks(pack, tg.tensor):
        out = tg.trace(lambda a, b: np.sum(np.tanh(a @ b)))(x, w)
    assert [t.shape for t in packed] == [(5, 3)]
    close(grad(out, x)[0], grad(np.sum(np.tanh(x @ w)), x)[0])


def test_anomaly_detection_names_the_node_in_a_compiled_call_and_where_that_was() -> None:
    x = tensor([0.0, 1.0], requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with tg.autograd.detect_anomaly():
            out = tg.trace(lambda v: np.sum(np.sqrt(v * 0.0)))(x)
            with pytest.raises(RuntimeError, match="'MulBackward0' returned nan values in its 0th output"):
                out.backward()
    assert "CompiledBackward" in str(told[-1].message)
    assert "test_compiled_backward.py" in str(told[-1].message)


def test_a_call_in_inference_mode_makes_inference_tensors() -> None:
    f, x = tg.trace(lambda v: v * 2.0), leaf(3)
    with tg.inference_mode():
        out = f(x)
    assert out.is_inference()
    assert not out.requires_grad
    assert f(x).requires_grad


def test_a_tensor_of_a_users_class_is_called_as_it_is() -> None:
    class Weight(tg.Tensor):
        def penalty(self) -> Any:
            return (self * self).sum()

    w = Weight(np.array([1.0, 2.0]), True)
    f = tg.trace(lambda v, x: v.penalty() + (v * x).sum())
    x = leaf(2)
    out = f(w, x)
    out.backward()
    close(w.grad, w.detach() * 2.0 + x.detach())
    assert f.cache_info().traces == 0


BODIES = {
    "scan": lambda x: tg.scan(lambda c, k: (c * x[0] + x.clone().sum(), c), x[1], length=3)[0],
    "while_loop": lambda x: tg.while_loop(lambda c: c < 3, lambda c: c + x[0] * x[1:].sum(), x[1]),
    "fori_loop": lambda x: tg.fori_loop(0, 3, lambda i, c: c * x[..., 0] + x[None, 1].sum(), x[2]),
    "cond": lambda x: tg.cond(x[0] > 0, lambda: x[0] * x.clone()[1], lambda: x[1]),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_parts_and_copies_of_a_tensor_from_outside_have_derivatives_in_a_body(body: Any) -> None:
    values = np.array([0.3, 0.7, 1.1])
    x, y = (tg.tensor(values, requires_grad=True) for _ in range(2))
    body(x).backward()
    with replayed():
        traced = tg.trace(body)(y)
    traced.backward()
    assert x.grad[0] != 0
    np.testing.assert_allclose(y.grad, x.grad, rtol=1e-14)


def test_a_solver_whose_function_reads_a_part_of_a_tensor_refuses_it() -> None:
    traced = tg.trace(lambda x: scipy.optimize.brentq(lambda t: t**3 - x[0], 0.0, 5.0) * x[1])
    with pytest.raises(tg.UnsupportedError, match="of a function of Tensors"):
        traced(tg.tensor([0.3, 0.7], requires_grad=True))


def test_grad_names_the_update_that_has_spoiled_a_derivative_as_backward_does() -> None:
    @tg.trace
    def spoiled(x: Any) -> Any:
        y = x * 2.0
        z = tg.sin(y)
        y[:] = 0.0
        return z.sum()

    x = tg.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        for allowed in (False, True):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                tg.autograd.grad(spoiled(x), x, allow_unused=allowed)


def test_complex_of_a_tensor_warns_that_it_has_no_derivative() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(tg.DerivativeWarning, match=r"complex\(\) of a value"):
        tg.trace(lambda x: complex(x[0], x[1]).real * x[0])(x)


@pytest.mark.parametrize("name", ["gamma", "lgamma", "erf", "erfc", "sin", "pow", "hypot"])
def test_functions_of_math_have_derivatives_on_tensors_in_traced_functions(name: str) -> None:
    def f(x: Any) -> Any:
        return getattr(math, name)(*([x[0], x[1]] if name in ("pow", "hypot") else [x[0]])) * x[1]

    values = np.array([0.3, 0.7])
    x = tg.tensor(values, requires_grad=True)
    with replayed():
        value = tg.trace(f)(x)
        value.backward()
        expected = tg.grad(f)(values)
    assert value.item() == pytest.approx(f(values), rel=1e-14)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-13)


def nested(x: Any, w: Any) -> Any:
    square = x**2 * w
    return {"b": square, "a": [x**3, w, square], "c": (x, square)}


def test_recorded_gradients_of_results_in_containers_are_those_of_each() -> None:
    def slopes(f: Callable[..., Any]) -> list[Any]:
        x, w = tensor([2.0, 3.0], requires_grad=True), tensor([5.0, 6.0], requires_grad=True)
        out = f(x, w)
        total = out["b"].sum() + 10 * out["a"][0].sum() + 100 * out["a"][2].sum() + 1000 * out["c"][1].sum()
        first = grad(total, (x, w), create_graph=True)
        return [*first, *grad(first[0].sum(), (x, w))]

    for got, want in zip(slopes(tg.trace(nested)), slopes(nested)):
        close(got, want)


def test_only_inputs_is_taken_and_means_nothing() -> None:
    x = leaf(2)
    close(tg.autograd.grad((x**3).sum(), x, None, None, True, True)[0], 3 * x**2)
