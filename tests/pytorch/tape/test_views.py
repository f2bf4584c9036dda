"""Views and updates in place: what shares memory, what is recorded, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracegrad as tg
from tracegrad.errors import UnsupportedError

START = np.array([0.3, 0.7, 1.1, 1.6, 2.0, 2.4])

# Functions that make a view, of ndarrays and Tensors alike.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[1:4],
    "steps": lambda x: x[::2],
    "matrix": lambda x: x.reshape(2, 3),
    "row": lambda x: x.reshape(2, 3)[1],
    "column": lambda x: x.reshape(3, 2)[:, 0],
    "block of a transpose": lambda x: x.reshape(2, 3).T[1:, :1],
    "element": lambda x: x[2],
    "new axis": lambda x: x[None, 2:5],
    "all": lambda x: x[...],
    "chain": lambda x: x.reshape(2, 3).T.T[:, 1:][0],
}

# Updates in place, by operators that ndarrays and Tensors share.
UPDATES: dict[str, Callable[[Any, Any, Any], None]] = {
    "add": lambda v, x, w: v.__iadd__(w[0] * 2.0),
    "scale": lambda v, x, w: v.__imul__(1.5),
    "multiply": lambda v, x, w: v.__imul__(w[1]),
    "divide": lambda v, x, w: v.__itruediv__(w[3]),
    "square": lambda v, x, w: v.__ipow__(2),
    "by itself": lambda v, x, w: v.__imul__(v),
    "assign a number": lambda v, x, w: v.__setitem__(..., 0.5),
    "assign from elsewhere": lambda v, x, w: v.__setitem__(..., w[2] * w[4]),
    "assign from the same memory": lambda v, x, w: v.__setitem__(..., x[5] * 1.0),
}


def _run(x: Any, w: Any, program: list[tuple[str, str]]) -> Any:
    total = 0.0
    for k, (view, update) in enumerate(program):
        v = VIEWS[view](x)
        v = v.reshape(()) if isinstance(v, np.generic) else v
        if isinstance(x, np.ndarray) and v.shape == () and not np.shares_memory(v, x):
            v = x[2:3].reshape(())
        UPDATES[update](v, x, w)
        total = total + (x * (k + 1.0)).sum() + (v * 0.5).sum()
    return total + (x * np.arange(1.0, 7.0)).sum()


PROGRAMS = st.lists(st.tuples(st.sampled_from(list(VIEWS)), st.sampled_from(list(UPDATES))), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(PROGRAMS)
def test_updates_of_views_have_the_derivatives_that_differences_show(program: list[tuple[str, str]]) -> None:
    def value(start: np.ndarray, w: np.ndarray) -> float:
        return float(_run(start * 1.0, w, program))

    def slope(position: int, which: int) -> float:
        def at(step: float) -> float:
            args = [START.copy(), START[::-1].copy()]
            args[which][position] += step
            return value(*args)

        h = 1e-4
        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)

    start, w = (tg.tensor(a, requires_grad=True) for a in (START, START[::-1].copy()))
    y = _run(start * 1.0, w, program)
    assert y.item() == pytest.approx(value(START, START[::-1].copy()), rel=1e-12)
    result = tg.autograd.grad(y, [start, w], create_graph=True, materialize_grads=True)
    for which, g in enumerate(result):
        expected = [slope(k, which) for k in range(6)]
        atol = 1e-7 + 1e-10 * float(np.max(np.abs(expected)))
        np.testing.assert_allclose(g.numpy(force=True), expected, rtol=1e-6, atol=atol)


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_recorded_and_plain_passes_through_updates_agree(program: list[tuple[str, str]]) -> None:
    start, w = (tg.tensor(a, requires_grad=True) for a in (START, START[::-1].copy()))
    y = _run(start * 1.0, w, program)
    plain = tg.autograd.grad(y, [start, w], retain_graph=True, materialize_grads=True)
    recorded = tg.autograd.grad(y, [start, w], create_graph=True, materialize_grads=True)
    for a, b in zip(plain, recorded):
        np.testing.assert_array_equal(a.numpy(), b.numpy(force=True))


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shares_memory_versions_and_updates_with_its_base(view: str) -> None:
    base = tg.tensor(START)
    v = VIEWS[view](base)
    assert v._base is base
    assert v._is_view()
    assert np.shares_memory(v.numpy(), base.numpy())
    v.add_(1.0)
    base.mul_(2.0)
    assert (v._version, base._version) == (2, 2)
    expected = START.copy()
    changed = VIEWS[view](expected)
    expected_view = (changed + 1.0) * 2.0
    np.testing.assert_array_equal(v.numpy(), expected_view)


def test_a_view_of_a_view_has_the_base_of_both() -> None:
    base = tg.zeros(2, 3)
    assert base[0][1:]._base is base
    assert base.clone()._base is None
    assert base.detach()._base is None


def test_the_node_of_a_view_is_made_anew_after_an_update_of_its_base_and_leads_there() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x * 1.0
    v = y.view(2, 3)[1]
    assert v.grad_fn.name() == "SelectBackward0"
    y.mul_(3.0)
    assert v.grad_fn.name() == "AsStridedBackward0"
    assert v.grad_fn.next_functions == ((y.grad_fn, 0),)
    v.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 3.0, 3.0, 3.0]


def test_all_views_of_an_updated_base_follow_it() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x * 1.0
    first, second = y[:3], y.view(3, 2)
    first.mul_(2.0)
    (g,) = tg.autograd.grad(second.sum() + first.sum(), x)
    assert g.tolist() == [4.0, 4.0, 4.0, 1.0, 1.0, 1.0]


def test_a_base_that_required_nothing_does_after_an_update_by_what_requires_grad() -> None:
    base = tg.zeros(4)
    other, v = base[:2], base[1:3]
    x = tg.tensor([2.0, 3.0], requires_grad=True)
    v.copy_(x)
    assert base.grad_fn.name() == "CopySlices"
    assert other.requires_grad
    other.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_updates_of_views_of_any_layout_are_differentiated(order: Any) -> None:
    data = np.array(np.arange(1.0, 7.0).reshape(2, 3), order=order)
    x = tg.tensor(np.arange(1.0, 7.0), requires_grad=True)
    base = tg.from_numpy(np.zeros_like(data, order="K"))
    flat = base.T.reshape(6) if order == "F" else base.reshape(6)
    assert flat._base is base
    flat.copy_(x)
    flat[2:4].mul_(x[:2])
    y = (base * tg.tensor(data)).sum()
    y.backward(retain_graph=True)
    weights = (data.T if order == "F" else data).reshape(6)
    values = np.arange(1.0, 7.0)
    expected = weights.copy()
    expected[2:4] = weights[2:4] * values[:2]
    expected[:2] += weights[2:4] * values[2:4]
    np.testing.assert_allclose(x.grad.numpy(), expected)
    (g,) = tg.autograd.grad(y, x, create_graph=True)
    np.testing.assert_allclose(g.numpy(force=True), expected)


def test_a_leaf_or_its_view_cannot_be_updated_where_that_is_recorded() -> None:
    x = tg.tensor(START, requires_grad=True)
    for update in (lambda: x.add_(1.0), x.zero_, x.exp_, lambda: x.copy_(x * 2)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
            update()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place"):
        x[1:].mul_(2.0)
    np.testing.assert_array_equal(x.detach().numpy(), START)
    assert x._version == 0


def test_a_view_made_without_a_record_cannot_be_updated_with_one() -> None:
    y = tg.tensor(START, requires_grad=True) * 1.0
    with tg.no_grad():
        v = y.view(2, 3)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        v.mul_(2.0)
    with tg.no_grad():
        v.mul_(2.0)
    np.testing.assert_array_equal(y.detach().numpy(), 2 * START)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and its base or another view of its"):
        _ = v.grad_fn


@pytest.mark.parametrize("name", ["t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_"])
def test_in_place_view_methods_are_refused_where_updates_of_the_view_are(name: str) -> None:
    args = {"t_": (), "squeeze_": (0,), "unsqueeze_": (0,)}.get(name, (0, 0))
    base = tg.ones((2, 3), requires_grad=True)
    z = base * 1.0
    with tg.no_grad():
        unrecorded, also = z.view(-1), z.view(-1)
        getattr(also, name)(*args)
    with tg.inference_mode():
        inferred = tg.ones(2, requires_grad=True)
    for view, text in (
        (unrecorded, "A view was created in no_grad mode"),
        (z.unbind()[0], "function that returns multiple views"),
        (base.view(-1), "a view of a leaf Variable that requires grad"),
        (inferred, "inference tensor"),
    ):
        with pytest.raises(RuntimeError, match=text):
            getattr(view, name)(*args)
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        also.add_(1.0)
    getattr(z.view(-1), name)(*args)


def test_views_in_inference_mode_have_the_history_of_their_base() -> None:
    x = tg.ones((2, 3), requires_grad=True)
    y = x * 2.0
    with tg.inference_mode():
        assert y.view(-1).requires_grad
        assert not tg.ones(2, requires_grad=True).view(-1).requires_grad
        y.transpose_(0, 1)
    y.mul_(tg.arange(6.0).reshape(3, 2))
    y.sum().backward()
    assert x.grad.tolist() == [[0.0, 4.0, 8.0], [2.0, 6.0, 10.0]]


@pytest.mark.parametrize("split", [lambda y: y.unsafe_split(2), lambda y: y.unsafe_chunk(2)])
def test_parts_of_an_unsafe_split_may_be_updated(split: Any) -> None:
    x = tg.arange(4.0).requires_grad_()
    y = x * 1.0
    first, second = split(y)
    first.mul_(second)
    (first.sum() + y.sum()).backward()
    assert x.grad.tolist() == [3.0, 4.0, 1.0, 2.0]


def test_a_tensor_takes_another_shape_in_its_memory() -> None:
    x = tg.arange(6.0)
    assert x.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert x.resize_((2, 2))._version == 1
    assert x.resize_as_(tg.zeros(2, 3)).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert (x.resize_(8)[:6].tolist(), x._version) == ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3)
    assert (x.resize_(0).tolist(), x.resize_(()).shape) == ([], ())
    y = tg.zeros(3)
    row = y[1:]
    for refused, error in (
        (lambda: x.resize_(-1), RuntimeError),
        (lambda: tg.ones(2, requires_grad=True).resize_(3), RuntimeError),
        (lambda: row.resize_(1), UnsupportedError),
        (lambda: y.resize_(1), UnsupportedError),
        (lambda: tg.trace(lambda z: z.resize_(3))(tg.zeros(2)), UnsupportedError),
    ):
        with pytest.raises(error):
            refused()


def test_a_leaf_takes_the_memory_of_another_tensor() -> None:
    w, x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True), tg.ones(2)
    edge, y = tg.autograd.graph.get_gradient_edge(w), w * 2.0
    for refused, error, text in (
        (lambda: w.set_(x), RuntimeError, "a leaf Variable that requires grad"),
        (lambda: y.set_(x), UnsupportedError, "is not recorded"),
        (lambda: x.set_(w), UnsupportedError, "is not recorded"),
        (lambda: x.set_(tg.zeros(2, dtype=tg.int64)), RuntimeError, "Could not set tensor of type Long"),
        (lambda: x.set_([1.0]), TypeError, "must be a Tensor"),
    ):
        with pytest.raises(error, match=text):
            refused()
    with tg.no_grad():
        w.set_(w[1:])
    (w * w).sum().backward()
    assert (w.grad.tolist(), w._version) == ([4.0, 6.0], 1)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        tg.autograd.grad(y.sum(), w, retain_graph=True)
    assert tg.autograd.grad(y.sum(), edge)[0].tolist() == [2.0, 2.0, 2.0]
    z = tg.zeros(1).set_(x)
    z.mul_(5.0)
    assert (x.tolist(), x._version, z._version) == ([5.0, 5.0], 0, 2)
    assert z.set_().shape == (0,)


def test_a_view_of_inference_mode_cannot_be_updated_with_a_record() -> None:
    z = tg.ones(4, requires_grad=True) * 1.0
    with tg.inference_mode():
        view = z.view(2, 2)
    with pytest.raises(
        RuntimeError, match=r"created in inference mode .* in normal mode.* inside the inference_mode block"
    ):
        view.add_(1.0)


@pytest.mark.parametrize(("name", "parts"), [("Unbind", lambda y: y.unbind()), ("Split", lambda y: y.split(2))])
def test_one_of_several_views_cannot_be_updated_nor_used_after_an_update_of_the_base(name: str, parts: Any) -> None:
    y = tg.tensor(START, requires_grad=True) * 1.0
    _, second, *_ = parts(y)
    with pytest.raises(RuntimeError, match=rf"Output 1 of {name} is a view and is being modified inplace\."):
        second.mul_(2.0)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match=rf"Output 1 of {name} is a view and its base or another view of its base"):
        second.sum()


def test_memory_that_holds_several_elements_cannot_be_updated() -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        tg.zeros(1).expand(3).add_(1.0)
    one = tg.zeros(1).expand(1, 1)
    assert one.add_(1.0).tolist() == [[1.0]]


def test_an_update_that_fails_changes_nothing() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x * 1.0
    node, before = y.grad_fn, y.tolist()
    for wrong in (lambda: y.add_(tg.ones(4)), lambda: y.mul_(tg.ones(2, 6)), lambda: y.copy_(tg.ones(5))):
        with pytest.raises((RuntimeError, ValueError)):
            wrong()
    assert (y.grad_fn, y._version, y.tolist()) == (node, 0, before)


SAVING: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "exp": (lambda y: y.exp(), False),
    "tanh": (lambda y: y.tanh(), False),
    "softmax": (lambda y: y.softmax(0), False),
    "sin": (lambda y: y.sin(), True),
    "product": (lambda y: y * y, True),
    "std": (lambda y: y.std(), True),
    "cumprod": (lambda y: y.cumprod(0), True),
    "matmul": (lambda y: y.reshape(2, 3) @ y.reshape(3, 2), True),
    "norm": (lambda y: y.norm(), True),
}


@pytest.mark.parametrize("name", SAVING)
def test_updates_of_what_was_saved_are_found_and_of_what_was_not_are_harmless(name: str) -> None:
    function, saves_operand = SAVING[name]
    x = tg.tensor(START, requires_grad=True)
    (expected,) = tg.autograd.grad(function(x * 1.0).sum(), x)
    y = x * 1.0
    z = function(y)
    total = z.sum()
    y.add_(1.0)
    if saves_operand:
        with pytest.raises(RuntimeError, match=r"has been modified by an inplace operation: \[DoubleTensor \["):
            total.backward()
    else:
        total.backward()
        np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), rtol=1e-14)


@pytest.mark.parametrize("name", ["exp", "tanh", "softmax", "std"])
def test_an_update_of_a_saved_result_is_found(name: str) -> None:
    z = SAVING[name][0](tg.tensor(START, requires_grad=True) * 1.0)
    node = z.grad_fn.name().removesuffix("Backward0")
    total = z.sum()
    z.detach().mul_(2.0)
    with pytest.raises(RuntimeError, match=f"which is output 0 of {node}, is at version 1; expected version 0"):
        total.backward()


@pytest.mark.parametrize("function", [lambda y: y + 1.0, lambda y: -y, lambda y: y.mean(), lambda y: y.cumsum(0)])
def test_results_and_operands_of_what_saves_nothing_may_be_updated(function: Any) -> None:
    x = tg.tensor(START, requires_grad=True)
    (expected,) = tg.autograd.grad(function(x * 1.0).sum(), x)
    y = x * 1.0
    z = function(y)
    y.mul_(7.0)
    z.mul_(2.0)
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * expected.numpy(), rtol=1e-14)


def test_a_quotient_may_be_updated_but_its_operands_may_not() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x * 1.0
    q = 1.0 * x / y
    q.mul_(2.0)
    q.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.zeros(6), atol=1e-15)
    q = (x * 2.0) / y
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="which is output 0 of Add, is at version 1; expected version 0"):
        q.sum().backward()


def test_data_escapes_the_check() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x.exp()
    y.data.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [0.0] * 6
    assert y._version == 0
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype"):
        x.data = tg.zeros(6, dtype=tg.int64)
    with tg.inference_mode():
        tg.autograd.graph.increment_version([y, tg.zeros(1)])
    assert y._version == 1


@pytest.mark.parametrize("name", ["exp_", "sqrt_", "tanh_", "sigmoid_", "reciprocal_", "neg_", "relu_", "abs_", "sin_"])
def test_unary_functions_in_place_have_the_derivative_of_those_out_of_place(name: str) -> None:
    for select in (lambda t: t, lambda t: t[1:4], lambda t: t.view(2, 3).t()):
        x = tg.tensor(START, requires_grad=True)
        y = x * 1.0
        getattr(select(y), name)()
        (y * y).sum().backward()
        z = tg.tensor(START, requires_grad=True)
        mask = np.zeros(6, bool)
        select(tg.from_numpy(mask)).fill_(True)
        out = tg.where(tg.from_numpy(mask), getattr(z, name.removesuffix("_"))(), z)
        (out * out).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-14)


def test_functions_of_several_ops_update_views_in_place() -> None:
    x = tg.tensor(START, requires_grad=True)
    w = tg.tensor(START[:3], requires_grad=True)
    y = x * 1.0
    y[1:4].addcmul_(w, w)
    y[3:].lerp_(w, 0.25)
    (y * y).sum().backward()
    value = START.copy()
    value[1:4] += START[:3] ** 2
    value[3:] += 0.25 * (START[:3] - value[3:])
    derivative = 2 * value
    derivative[3:] *= 0.75
    np.testing.assert_allclose(x.grad.numpy(), derivative, rtol=1e-14)
    result = 2 * value[3:] * 0.25 + derivative[1:4] * 2 * START[:3]
    np.testing.assert_allclose(w.grad.numpy(), result, rtol=1e-14)


def test_an_update_beside_where_does_not_leak_nan_from_the_branch_not_taken() -> None:
    x = tg.tensor([-1.0, 0.0, 4.0], requires_grad=True)
    root = x.sqrt() * 1.0
    root[2:].mul_(3.0)
    tg.where(x > 0, root, 0.0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.75]


def test_retained_gradients_move_with_the_tensor_that_is_updated() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x * 1.0
    y.retain_grad()
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.mul_(2.0)
    y.sum().backward()
    assert y.grad.tolist() == [1.0] * 6
    assert seen == [[2.0] * 6]


def test_empty_views_and_arrays_of_no_axes_are_updated() -> None:
    x = tg.tensor(START, requires_grad=True)
    y = x * 1.0
    y[2:2].mul_(x[2:2])
    y[5].mul_(2.0)
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 2.0]
    empty = tg.zeros(0, 3, requires_grad=True)
    (empty * 2.0).reshape(3, 0)[1].add_(1.0).sum().backward()
    assert empty.grad.shape == (0, 3)


def test_lower_precision_is_kept_through_updates() -> None:
    x = tg.tensor(START.astype(np.float32), requires_grad=True)
    y = x * 1.0
    y[1:3].copy_(tg.tensor([1.0, 2.0], requires_grad=True))
    y[0].mul_(tg.tensor(3.0, requires_grad=True))
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad.dtype == np.float32
    assert x.grad.tolist() == [3.0, 0.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_an_update_of_a_diagonal_reaches_the_matrix_or_is_refused(offset: int) -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    for of in (lambda m: m, lambda m: m.T, lambda m: m[:, ::2]):
        array, t = matrix.copy(), tg.tensor(matrix)
        np.copyto(of(array), np.where(np.eye(*of(array).shape, k=offset, dtype=bool), -1.0, of(array)))
        of(t).diagonal(offset).fill_(-1.0)
        np.testing.assert_array_equal(t.numpy(), array)
    with pytest.raises(RuntimeError, match="which is a copy"):
        tg.tensor(matrix)[:, :2].diagonal(offset).fill_(-1.0)


# -- x[index] += y -------------------------------------------------------------------------------------------------
INDICES: dict[str, Any] = {
    "slice": np.s_[1:4],
    "steps": np.s_[::2],
    "reversed": np.s_[4:1:-1],
    "last": np.s_[-2:],
    "all but one": np.s_[1:],
}


@pytest.mark.parametrize("name", INDICES)
def test_what_is_added_to_a_part_is_written_once(name: str) -> None:
    index = INDICES[name]

    def f(x: Any) -> Any:
        y = np.sin(x)
        part = y[index]
        y[index] *= x[index]
        return y, part

    def again(x: Any) -> Any:
        """What is read, and written elsewhere, is written again."""
        y = np.sin(x)
        part = y[index]
        y[index] *= x[index]
        y[0] = 5.0
        y[index] = part * 1.0
        return y, part

    for fun, times in ((f, 1), (again, 3)):
        traced = tg.trace(fun)
        for got, want in zip(traced(START.copy()), fun(START.copy())):
            np.testing.assert_array_equal(got, want)
        assert sum(node.op is not None and node.op.name == "where" for node in traced.graph(START).nodes) == times


def test_arrays_made_of_scalars_are_no_views() -> None:
    def f(x: Any) -> Any:
        s = np.sum(x)
        a, b, c, d = np.atleast_3d(s), s.reshape(-1), np.reshape(s, (1, 1)), np.expand_dims(s, 0)
        a += 1
        b[0] = 5.0
        c *= 3
        d[0] = 2.0
        return s, a, b, c, d

    for result, expected in zip(tg.trace(f)(START), f(START)):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (2, 3)], ids=str)
def test_what_is_written_to_a_row_of_all_elements_is_written_where_it_is_a_view(shape: Any, order: Any) -> None:
    def f(x: Any) -> Any:
        y, z = (np.reshape(x * 3.0, shape) for _ in range(2))
        row, other = np.ravel(y, order=order), z.reshape(-1, order="C" if order == "K" else order)
        row[0], other[-1] = 7.0, 8.0
        return y, row, z, other

    x = np.arange(1.0, 1.0 + np.prod(shape))
    for result, expected in zip(tg.trace(f)(x), f(x), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:], lambda x: x.t()[1:].t(), lambda x: x.expand(2, 3, 4)],
)
def test_a_trace_copies_what_is_not_contiguous_and_nothing_else(view: Any) -> None:
    def f(x: Any) -> Any:
        x = x * 1.0
        y = view(x)
        z = y.contiguous()
        z += 1.0
        return x, z, y.is_contiguous(), z.is_contiguous(), z.stride()

    x = tg.arange(12.0).reshape(3, 4)
    for result, expected in zip(tg.trace(f)(x), f(x), strict=True):
        np.testing.assert_array_equal(result, expected)
