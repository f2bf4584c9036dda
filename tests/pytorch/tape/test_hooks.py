"""Hooks on Tensors, on nodes, and on what the tape saves; anomaly detection."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.autograd import graph


def _leaf(*values: float) -> Any:
    return tg.tensor(values, requires_grad=True)


# -- Tensors ---------------------------------------------------------------------------------------------------------
def test_hooks_of_a_tensor_run_in_the_order_of_registration_and_see_what_came_before() -> None:
    x = _leaf(1.0, 2.0)
    y = x * 3.0
    seen: list[Any] = []
    y.register_hook(lambda g: g * 2.0)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g + 1.0)
    y.sum().backward()
    assert seen == [[2.0, 2.0]]
    assert x.grad.tolist() == [9.0, 9.0]


def test_a_hook_runs_once_for_the_sum_over_all_paths() -> None:
    x = _leaf(2.0)
    y = x * 1.0
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 3.0 + y * y).backward()
    assert seen == [7.0]


def test_a_handle_removes_its_hook_and_no_other() -> None:
    x = _leaf(1.0)
    seen: list[int] = []
    handles = [x.register_hook(lambda g, n=n: seen.append(n)) for n in range(3)]
    handles[1].remove()
    handles[1].remove()
    with handles[2]:
        x.backward()
    x.backward()
    assert seen == [0, 2, 0]


def test_hooks_of_a_leaf_outlive_its_nodes() -> None:
    x = _leaf(1.0)
    x.register_hook(lambda g: g * 5.0)
    for _ in range(2):
        (x * 1.0).backward()
    assert x.grad.item() == 10.0


def test_retained_gradients_are_those_after_all_hooks() -> None:
    x = _leaf(1.0)
    y = x * 2.0
    y.retain_grad()
    y.register_hook(lambda g: g * 10.0)
    y.backward(retain_graph=True)
    assert y.grad.item() == 10.0
    y.backward()
    assert y.grad.item() == 20.0


def test_gradients_are_retained_by_grad_as_well() -> None:
    x = _leaf(1.0)
    y = x * 2.0
    y.retain_grad()
    tg.autograd.grad(y * 3.0, x)
    assert y.grad.item() == 3.0


def test_asking_a_result_for_its_gradient_warns_unless_it_is_retained() -> None:
    y = _leaf(1.0) * 2.0
    with pytest.warns(UserWarning, match="attribute of a Tensor that is not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    assert y.grad is None


@pytest.mark.parametrize(
    ("hook", "error", "text"),
    [
        (lambda g: 1.0, TypeError, "expected Variable, but hook returned 'float'"),
        (lambda g: g[:1], RuntimeError, "hook '<lambda>' has changed the size of value"),
    ],
)
def test_what_a_hook_must_not_return(hook: Any, error: type[Exception], text: str) -> None:
    x = _leaf(1.0, 2.0)
    y = x * 2.0
    y.register_hook(hook)
    with pytest.raises(error, match=text):
        y.sum().backward()
    assert x.grad is None


def test_hooks_differentiate_when_a_graph_is_made() -> None:
    x = _leaf(3.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = tg.autograd.grad(y, x, create_graph=True)
    assert g.item() == 2 * 3.0 * 3.0
    assert tg.autograd.grad(g, x)[0].item() == 4 * 3.0


def test_a_gradient_kept_by_a_hook_is_not_changed_by_later_passes() -> None:
    x = _leaf(1.0, 1.0)
    saved: list[Any] = []
    x.register_hook(saved.append)
    for _ in range(3):
        x.sum().backward()
    assert [g.tolist() for g in saved] == [[1.0, 1.0]] * 3
    assert x.grad.tolist() == [3.0, 3.0]


def test_hooks_after_accumulation_see_the_gradient_and_may_take_it() -> None:
    x = _leaf(4.0)

    def step(p: Any) -> None:
        with tg.no_grad():
            p -= 0.5 * p.grad
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).backward()
    assert x.item() == 0.0
    assert x.grad is None
    x.register_post_accumulate_grad_hook(lambda p: p)
    with pytest.raises(RuntimeError, match="post accumulate grad hooks should return None"):
        x.backward()


# -- nodes -----------------------------------------------------------------------------------------------------------
def test_hooks_of_a_node_see_and_replace_what_goes_in_and_out() -> None:
    x, w = _leaf(2.0), _leaf(3.0)
    y = x * w
    seen: list[Any] = []
    y.grad_fn.register_prehook(lambda cts: (cts[0] * 2.0,))
    y.grad_fn.register_hook(lambda ins, outs: seen.append(([i.item() for i in ins], [o.item() for o in outs])))
    y.grad_fn.register_hook(lambda ins, outs: (ins[0] + 1.0, ins[1]))
    y.backward()
    assert seen == [([6.0, 4.0], [2.0])]
    assert (x.grad.item(), w.grad.item()) == (7.0, 4.0)


def test_hooks_of_a_node_with_several_outputs_see_none_for_those_not_used() -> None:
    x = _leaf(1.0, 2.0, 3.0)
    _, b, _ = x.unbind()
    seen: list[Any] = []
    b.grad_fn.register_prehook(lambda cts: seen.append([ct if ct is None else ct.item() for ct in cts]))
    (b * 5.0).backward()
    assert seen == [[None, 5.0, None]]
    assert x.grad.tolist() == [0.0, 5.0, 0.0]


def test_a_hook_of_a_node_must_return_as_many_as_it_got() -> None:
    y = _leaf(1.0) * _leaf(2.0)
    y.grad_fn.register_hook(lambda ins, outs: ins[:1])
    with pytest.raises(RuntimeError, match=r"hook '<lambda>' has returned an incorrect number of values \(got 1, but"):
        y.backward()


def test_hooks_of_accumulation_run_around_it() -> None:
    x = _leaf(1.0)
    node = graph.get_gradient_edge(x).node
    seen: list[Any] = []
    node.register_prehook(lambda cts: (cts[0] * 2.0,))
    node.register_hook(lambda ins, outs: seen.append((ins, outs[0].item(), x.grad.item())))
    (x * 3.0).backward()
    assert seen == [((), 6.0, 6.0)]


def test_metadata_stays_with_the_node() -> None:
    y = _leaf(1.0) * 2.0
    y.grad_fn.metadata["note"] = 1
    assert y.grad_fn.metadata == {"note": 1}


# -- hooks on several Tensors ----------------------------------------------------------------------------------------
def test_a_hook_for_all_gets_the_gradients_in_the_order_of_the_tensors_once_each_pass() -> None:
    x, w, u = _leaf(1.0), _leaf(2.0), _leaf(3.0)
    h = x * w
    seen: list[Any] = []
    handle = graph.register_multi_grad_hook(
        [h, u, x], lambda cts: seen.append([c if c is None else c.item() for c in cts])
    )
    (h * 5.0).backward(retain_graph=True)
    (h * u).backward()
    handle.remove()
    (x * u).backward()
    assert seen == [[5.0, None, 10.0], [3.0, 2.0, 6.0]]


def test_hooks_of_what_a_pass_to_some_inputs_does_not_reach_do_not_run() -> None:
    x, w = _leaf(1.0), _leaf(2.0)
    h = x * 3.0
    seen: list[str] = []
    x.register_hook(lambda ct: seen.append("x"))
    h.register_hook(lambda ct: seen.append("h"))
    graph.register_multi_grad_hook([x, h, w], lambda cts: seen.append("all"))
    y = h * w
    y.backward(inputs=[w], retain_graph=True)
    assert seen == ["all"]
    assert w.grad.item() == 3.0
    y.backward(inputs=[h], retain_graph=True)
    assert seen == ["all", "h", "all"]
    y.backward(inputs=[x])
    assert seen == ["all", "h", "all", "h", "x", "all"]


def test_hooks_on_an_output_that_no_gradient_reaches_get_none_if_another_output_has_one() -> None:
    x = _leaf(1.0, 2.0)
    a, b = (x * 1.0).unbind()
    seen: list[Any] = []
    a.register_hook(seen.append)
    graph.register_multi_grad_hook([a, b], seen.append)
    b.backward(retain_graph=True)
    assert seen == [None, [None, tg.ones(())]]
    a.register_hook(lambda ct: tg.ones(()))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        b.backward()


def test_functions_queued_in_a_pass_run_after_its_gradients_are_written() -> None:
    engine = tg.autograd.Variable._execution_engine
    x, seen = _leaf(1.0), []

    def last() -> None:
        seen.append("last")

    def first() -> None:
        seen.append(x.grad.item())
        engine.queue_callback(last)

    x.register_hook(lambda ct: engine.queue_callback(first))
    (x * 3.0).backward()
    assert seen == [3.0, "last"]
    tg.autograd.grad(x * 2.0, x)
    assert seen == [3.0, "last"] * 2
    with pytest.raises(RuntimeError, match="can only be installed during backward pass"):
        engine.queue_callback(last)


def test_a_hook_for_any_gets_the_first_gradient_of_each_pass() -> None:
    x, w = _leaf(1.0), _leaf(2.0)
    seen: list[float] = []
    graph.register_multi_grad_hook([x, w], lambda ct: seen.append(ct.item()), mode="any")
    (x * 3.0).backward()
    (x * w).backward()
    assert len(seen) == 2
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook([x], print, mode="some")


# -- hooks on saved values -------------------------------------------------------------------------------------------
X = np.array([[0.3, 0.7], [1.1, 1.6]])

FUNCTIONS: dict[str, Any] = {
    "op": lambda x: x.sin() * x,
    "result": lambda x: x.exp().tanh(),
    "number": lambda x: x**3 + 2.0**x,
    "several ops": lambda x: x.std(0) + x.norm() + x.logsumexp(1),
    "reduction": lambda x: x.amax(1) * x.prod(0),
    "scan": lambda x: x.cumprod(0).cumsum(1),
    "product": lambda x: x @ x.t() @ x,
    "index": lambda x: x[1:] * x[[0, 1], [1, 0]] + x.take(tg.tensor([3])),
    "parts": lambda x: x.unbind(1)[1] * x.split(1)[0],
    "update": lambda x: (x * 1.0).mul_(x).t()[0].mul_(x[0]),
    "choice": lambda x: tg.where(x > 1, x.log(), x * x),
    "entropy": lambda x: tg.nn.functional.cross_entropy(x, tg.tensor([1, 0])),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_packed_and_unpacked_gives_the_same_derivatives(name: str, create_graph: bool) -> None:
    function = FUNCTIONS[name]

    def derivative(packing: bool) -> Any:
        x = tg.tensor(X, requires_grad=True)
        if packing:
            with graph.saved_tensors_hooks(lambda t: t.detach().numpy().tolist(), lambda kept: tg.tensor(kept)):
                y = function(x).sum()
        else:
            y = function(x).sum()
        (g,) = tg.autograd.grad(y, x, create_graph=create_graph)
        return g.numpy(force=True)

    np.testing.assert_allclose(derivative(True), derivative(False), rtol=1e-13)


@pytest.mark.parametrize("function", [lambda x: x.sin(), lambda x: x.std(), lambda x: x.logsumexp(0)])
def test_unpacked_values_are_what_the_rules_read(function: Any) -> None:
    x = tg.tensor([0.5, 1.5], requires_grad=True)
    packed: list[Any] = []

    def pack(t: Any) -> int:
        packed.append(t.detach().clone())
        return len(packed) - 1

    with graph.saved_tensors_hooks(pack, lambda n: packed[n] * 2.0):
        y = function(x)
    assert packed
    y.backward(tg.ones(y.shape))
    z = tg.tensor([1.0, 3.0], requires_grad=True)
    w = function(z)
    w.backward(tg.ones(w.shape))
    np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-14)


def test_packed_values_do_not_keep_the_arrays_alive() -> None:
    x = tg.tensor(np.ones(1000), requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: None, lambda kept: tg.ones(1000)):
        h = x * 2.0
        y = h.std()
    memory = weakref.ref(h.array)
    del h
    assert memory() is None
    y.backward()


@pytest.mark.parametrize(
    "update",
    [lambda y: y.mul_(y), lambda y: (lambda v: v.mul_(v))(y[1:]), lambda y: y.exp_(), lambda y: y.addcmul_(y, y)],
)
def test_what_is_kept_as_it_is_survives_the_update_that_it_is_kept_for(update: Any) -> None:
    x = tg.tensor([0.5, 1.5], requires_grad=True)
    (expected,) = tg.autograd.grad(update(x * 1.0).sum(), x)
    with graph.save_on_cpu():
        y = update(x * 1.0).sum()
    np.testing.assert_allclose(tg.autograd.grad(y, x)[0].numpy(), expected.numpy(), rtol=1e-14)


def _overwritten(x: Any) -> Any:
    y = x.clone()
    tail = y[1:]
    z = (tail * y[:-1]).sum() + y.exp().sum()
    y.mul_(3.0)
    tail.add_(1.0)
    w = (y * y).sum()
    y[0] = 5.0
    e = y.sigmoid()
    total = z + w + e.sum()
    e.zero_()
    return total


def test_what_is_saved_may_be_overwritten_where_that_is_allowed() -> None:
    x = _leaf(0.3, -1.2, 0.7)
    with graph.allow_mutation_on_saved_tensors():
        _overwritten(x).backward()
    at, h = x.detach().numpy(), 1e-6
    want = [
        (_overwritten(tg.tensor(at + h * e)) - _overwritten(tg.tensor(at - h * e))).item() / (2 * h) for e in np.eye(3)
    ]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-7)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _overwritten(x).backward()


def test_a_parameter_may_be_overwritten_between_forward_and_backward() -> None:
    w = _leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors() as saved:
        for _ in range(300):
            loss = (w * w).sum()
            before = w.tolist()
            with tg.no_grad():
                w.mul_(0.99)
            w.grad = None
            loss.backward()
            assert w.grad.tolist() == [2.0 * v for v in before]
        assert len(saved._saved_by_memory) <= 256


def test_backward_passes_belong_inside_the_context_of_the_update() -> None:
    x = _leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        z = (y * y).sum()
        y.zero_()
        with (
            pytest.raises(RuntimeError, match="contexts cannot be nested"),
            graph.allow_mutation_on_saved_tensors(),
        ):
            pass
    with pytest.raises(AssertionError, match="Trying to backward outside of the 'allow_mutation_on_saved_tensors'"):
        z.backward()


def test_hooks_on_saved_values_are_the_threads_own_and_the_innermost_count() -> None:
    seen: list[str] = []
    x = _leaf(1.0)

    def hooks(name: str) -> Any:
        return graph.saved_tensors_hooks(lambda t: seen.append(name) or t, lambda t: t)

    with hooks("outer"):
        with hooks("inner"):
            x.sin()
        thread = threading.Thread(target=x.sin)
        thread.start()
        thread.join()
        x.sin()
    x.sin()
    assert seen == ["inner", "outer"]


def test_hooks_on_saved_values_can_be_refused() -> None:
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        graph.save_on_cpu().__enter__()
    with graph.save_on_cpu():
        pass


def test_unpacking_must_give_a_tensor() -> None:
    with graph.saved_tensors_hooks(lambda t: "text", lambda t: t):
        y = _leaf(1.0).sin()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type str"):
        y.backward()


def test_a_saved_value_of_one_node_takes_hooks() -> None:
    x = _leaf(2.0, 3.0)
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.detach() * 10.0, lambda t: t)
    (g,) = tg.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(g.numpy(), 10 * np.exp([2.0, 3.0]))


# -- anomalies -------------------------------------------------------------------------------------------------------
def test_an_anomaly_names_the_operation_and_the_line_that_made_it() -> None:
    x = _leaf(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detection = tg.autograd.detect_anomaly()
    with detection:
        y = x.sqrt() * 0.0  # the line
        with (
            pytest.warns(UserWarning, match=r"(?s)Error detected in SqrtBackward0\. .*y = x\.sqrt\(\) \* 0\.0  # the"),
            pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan values in its 0th output"),
        ):
            y.backward()
    assert x.grad is None
    (x.sqrt() * 0.0).backward()
    assert np.isnan(x.grad.item())


def test_an_anomaly_of_a_second_derivative_names_the_node_of_the_first_too(capsys: pytest.CaptureFixture[str]) -> None:
    class Second(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, g: Any, x: Any) -> Any:
            return g * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, g * np.nan

    class First(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return Second.apply(g, *ctx.saved_tensors)

    x = _leaf(1.0)
    with tg.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (g,) = tg.autograd.grad(First.apply(x), x, create_graph=True)
        with pytest.raises(RuntimeError, match="'SecondBackward' returned nan values in its 1th output"):
            g.backward()
    assert "Error detected in SecondBackward" in str(caught[0].message)
    assert "Previous calculation was induced by FirstBackward. Traceback" in str(caught[1].message)
    with tg.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        y = x + 1.0
        z = y * y
        y += 1.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()
    assert "Error detected in MulBackward0" in capsys.readouterr().err


def test_anomaly_detection_may_let_nan_pass() -> None:
    x = _leaf(0.0)
    with tg.autograd.set_detect_anomaly(True, check_nan=False):
        assert tg.is_anomaly_enabled()
        (x.sqrt() * 0.0).backward()
    assert not tg.is_anomaly_enabled()
    assert np.isnan(x.grad.item())


def test_hooks_leave_no_circles_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        x = _leaf(1.0)
        y = x * 2.0
        y.retain_grad()
        y.register_hook(lambda g: g * 2.0)
        node = weakref.ref(y.grad_fn)
        y.backward()
        del y
        assert node() is None
    finally:
        gc.enable()
