"""`Function`: operations with a derivative of the user's, on Tensors, on ndarrays and inside traced functions.

Most rules here are wrong on purpose, so that a test can tell a rule that was used from one that was not. What messages
say was compared with PyTorch 2.13.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any, ClassVar

import numpy as np
import pytest
from tracegrad.autograd.function import Function, FunctionCtx, InplaceFunction, once_differentiable

import tracegrad as tg
from tracegrad.errors import TraceError, UnsupportedError
from tracegrad.torch import tape
from tracegrad.torch.modes import STATE

X = np.array([0.5, 1.0, 2.0])


either = pytest.mark.parametrize("compiled", [True, False])


def leaf(x: Any = X) -> Any:
    return tg.tensor(x, requires_grad=True)


def jit(compiled: bool) -> Any:
    return contextlib.nullcontext() if compiled else tg.disable_jit()


def function(forward: Any, backward: Any, name: str = "F") -> Any:
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


class TripledExp(Function):
    """exp, with three times its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = np.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensors
        return 3.0 * grad * y


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 30.0 * x * x


class Mixed(Function):
    """(x y, x + y), with factors 10 and 100 in the derivatives with respect to x and y of each."""

    calls: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        Mixed.calls.append((g is None, h is None))
        return 10.0 * g * y + h, g * x + 100.0 * h


class Scaled(Function):
    """In the style with `setup_context`, and an argument that is no array."""

    @staticmethod
    def forward(x: Any, factor: float = 3.0) -> Any:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.factor = inputs

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.factor * 10.0, None


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        assert not tape.is_grad_enabled()
        (x,) = ctx.saved_tensors
        return 5.0 * grad * x


def pulled(y: Any, *inputs: Any, create_graph: bool = False) -> Any:
    result = tape.grad(y.sum(), inputs, create_graph=create_graph)
    return result[0] if len(inputs) == 1 else result


# -- on Tensors --------------------------------------------------------------------------------------------------------
def test_the_rule_is_the_derivative() -> None:
    x = leaf()
    y = TripledExp.apply(x)
    np.testing.assert_array_equal(y.detach().numpy(), np.exp(X))
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.exp(X), rtol=1e-15)


def test_one_call_is_one_node_named_after_the_class() -> None:
    x = leaf()
    y = TripledExp.apply(x * 2.0)
    node = y.grad_fn
    assert node.name() == type(node).__name__ == "TripledExpBackward"
    assert [n.name() for n, _ in node.next_functions] == ["MulBackward0"]
    assert repr(y).endswith("grad_fn=<TripledExpBackward>)")
    assert y.requires_grad
    assert not y.is_leaf


def test_the_node_has_what_was_set_on_the_context_and_the_context_has_what_the_node_has() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        assert isinstance(ctx, FunctionCtx)
        assert not STATE.enabled
        assert ctx.saved_tensors == ()
        ctx.note, ctx.seen = "here", ctx.name()
        return x * 2.0

    node = function(forward, lambda ctx, g: g).apply(leaf()).grad_fn
    assert (node.note, node.seen, node.needs_input_grad) == ("here", "FBackward", (True,))
    node.later = 3
    assert node.later == 3
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = node.missing


def test_attributes_of_any_name_do_not_disturb_the_tape() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.number, ctx.edges, ctx.hooks, ctx.count, ctx.inputs, ctx.specs = 5.0, (), 1, 2, 3, 4
        return x * ctx.number

    x = leaf()
    np.testing.assert_array_equal(pulled(function(forward, lambda ctx, g: g * ctx.number).apply(x), x).numpy(), 5.0)


def test_saved_inputs_and_outputs_are_on_the_tape_and_others_are_not() -> None:
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        out = x * y
        ctx.save_for_backward(x, y, out, out + 1.0, None)
        return out

    x = leaf()
    z = x * 2.0
    node = (out := function(forward, lambda ctx, g: (g, g)).apply(x, z)).grad_fn
    saved = node.saved_tensors
    assert saved[0] is x
    assert saved[1].grad_fn is z.grad_fn
    assert saved[2].grad_fn is node
    assert not saved[3].requires_grad
    assert saved[4] is None
    np.testing.assert_array_equal(saved[2].detach().numpy(), out.detach().numpy())


def test_double_backward_differentiates_the_rule() -> None:
    x = leaf()
    first = pulled(TripledExp.apply(x), x, create_graph=True)
    # The saved output leads back through the rule: 3 g y has the derivative 3 g (3 y).
    np.testing.assert_allclose(pulled(first, x).numpy(), 9 * np.exp(X), rtol=1e-15)
    first = pulled(Cube.apply(x), x, create_graph=True)
    assert first.grad_fn is not None
    np.testing.assert_allclose(pulled(first, x, create_graph=True).numpy(force=True), 60 * X, rtol=1e-15)


def test_several_outputs_are_pulled_by_one_call_with_zeros_for_the_unused() -> None:
    Mixed.calls.clear()
    x, y = leaf(), leaf(2 * X)
    a, b = Mixed.apply(x, y)
    assert (a.output_nr, b.output_nr) == (0, 1)
    assert a.grad_fn is b.grad_fn
    (a.sum() + (b * b).sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), 10 * 2 * X + 2 * 3 * X)
    np.testing.assert_allclose(y.grad.numpy(), X + 100 * 2 * 3 * X)
    _, b = Mixed.apply(x, y)
    np.testing.assert_array_equal(pulled(b, y).numpy(), 100.0)
    assert Mixed.calls == [(False, False)] * 2


def test_without_materialized_grads_an_unused_output_gets_none() -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2.0, x * 3.0

    def backward(ctx: Any, g: Any, h: Any) -> Any:
        seen.append((g, h))
        return h

    x = leaf()
    pulled(function(forward, backward).apply(x)[1], x)
    assert seen[0][0] is None


def test_objects_that_are_no_arrays_come_through_and_get_none() -> None:
    seen = []

    def backward(ctx: Any, *grads: Any) -> Any:
        seen.append(grads)
        return grads[0]

    x = leaf()
    out = function(lambda ctx, x: (x * 2.0, None, "s", 7), backward).apply(x)
    assert out[1:] == (None, "s", 7)
    pulled(out[0], x)
    assert seen[0][1:] == (None, None, None)


def test_setup_context_takes_defaults_and_keywords() -> None:
    x = leaf()
    for y, factor in ((Scaled.apply(x), 3.0), (Scaled.apply(x, 4.0), 4.0), (Scaled.apply(x, factor=5.0), 5.0)):
        np.testing.assert_array_equal(y.detach().numpy(), X * factor)
        np.testing.assert_array_equal(pulled(y, x).numpy(), 10 * factor)
    with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'other'"):
        Scaled.apply(x, other=1)


def test_needs_input_grad_names_the_arguments_that_require_grad() -> None:
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return g, None, None

    F = function(lambda ctx, x, y, k: x * y, backward)
    x = leaf()
    pulled(F.apply(x, tg.tensor(X), 3), x)
    assert seen == [(True, False, False)]


def test_needs_input_grad_in_a_trace_names_the_arguments_whose_cotangents_are_wanted() -> None:
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, z: Any) -> Any:
            ctx.save_for_backward(x, y, z)
            return x * y * z

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            x, y, z = ctx.saved_tensors
            return ct * y * z, ct * x * z, ct * x * y

    assert tg.grad(Product.apply, argnums=1)(2.0, 3.0, 4.0) == 8.0
    assert tg.grad(Product.apply, argnums=(0, 2))(2.0, 3.0, 4.0) == (12.0, 6.0)
    assert (False, True, False) in seen
    assert (True, False, True) in seen
    assert (True, True, True) not in seen


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_recorded_without_grad_mode_or_inputs_that_require_grad(wanted: bool) -> None:
    if wanted:
        with tape.no_grad():
            y = TripledExp.apply(leaf())
    else:
        y = TripledExp.apply(tg.tensor(X))
    assert y.grad_fn is None
    assert not y.requires_grad


def test_outputs_marked_non_differentiable_do_not_require_grad() -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        a, b = x * 2.0, x * 3.0
        ctx.mark_non_differentiable(b)
        return a, b

    def backward(ctx: Any, g: Any, h: Any) -> Any:
        seen.append(h.numpy())
        return g

    x = leaf()
    a, b = function(forward, backward).apply(x)
    assert (a.requires_grad, b.requires_grad) == (True, False)
    pulled(a, x)
    np.testing.assert_array_equal(seen[0], np.zeros(3))


def test_an_input_marked_non_differentiable_comes_detached() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_non_differentiable(x)
        return x

    x = leaf()
    y = function(forward, lambda ctx, g: g).apply(x)
    assert y is not x
    assert (y.requires_grad, x.requires_grad) == (False, True)
    assert np.shares_memory(y.numpy(), x.detach().numpy())


def test_an_input_returned_as_it_is_comes_as_a_view_with_the_node() -> None:
    x = leaf()
    y = function(lambda ctx, x: x, lambda ctx, g: 5.0 * g, "Id").apply(x)
    assert y is not x
    assert y._base is x
    assert y.grad_fn.name() == "IdBackward"
    assert x.is_leaf
    np.testing.assert_array_equal(pulled(y, x).numpy(), 5.0)


@pytest.mark.parametrize("forward", [lambda ctx, x: x, lambda ctx, x: x[1:]], ids=["input", "view"])
def test_a_view_that_a_function_gave_cannot_be_updated_in_place(forward: Any) -> None:
    y = function(forward, lambda ctx, g: g, "Id").apply(leaf() * 1.0)
    text = "Output 0 of Id is a view and is being modified inplace. This view was created inside a custom Function"
    with pytest.raises(RuntimeError, match=text):
        y.mul_(2.0)


def test_a_view_that_a_function_made_without_a_record_cannot_be_updated_with_one() -> None:
    view = function(lambda ctx, x: x[:], lambda ctx, g: g)
    y = view.apply(tg.ones(3))
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        y.mul_(leaf())
    x = leaf() * 1.0
    with tg.no_grad():
        y = view.apply(x)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        y.zero_()


def test_of_several_views_none_can_be_updated_in_place() -> None:
    y, _ = function(lambda ctx, x: (x[1:], x[:1]), lambda ctx, g, h: g).apply(leaf() * 1.0)
    with pytest.raises(RuntimeError, match="This view is the output of a function that returns multiple views"):
        y.mul_(2.0)


# -- updates in place --------------------------------------------------------------------------------------------------
def _doubling(ctx: Any, x: Any) -> Any:
    x *= 2.0
    ctx.mark_dirty(x)
    return x


Doubled = function(_doubling, lambda ctx, g: 11.0 * g, "Doubled")


def test_a_dirty_input_gets_the_history_of_the_call() -> None:
    x = leaf()
    z = x * 1.0
    y = Doubled.apply(z)
    assert y is z
    assert z.grad_fn.name() == "DoubledBackward"
    assert z._version == 2
    np.testing.assert_array_equal(pulled(z, x).numpy(), 11.0)


def test_a_dirty_view_writes_to_its_base() -> None:
    x = leaf(3.0)
    base = x * tg.tensor(np.ones(3))
    view = base[1:]
    assert Doubled.apply(view) is view
    np.testing.assert_array_equal(base.detach().numpy(), [3.0, 6.0, 6.0])
    assert base.grad_fn.name() == "CopySlices"
    assert pulled(base, x).item() == 1.0 + 11.0 + 11.0


def test_wrong_uses_of_mark_dirty_raise() -> None:
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad has been used in an in-place operation"):
        Doubled.apply(leaf())

    def kept(ctx: Any, x: Any) -> Any:
        return _doubling(ctx, x) * 1.0

    with pytest.raises(RuntimeError, match="Some elements marked as dirty during the forward method were not returned"):
        function(kept, lambda ctx, g: g).apply(leaf() * 1.0)

    def two(ctx: Any, x: Any) -> Any:
        return _doubling(ctx, x), x * 3.0

    with pytest.raises(RuntimeError, match="modifies inplace an input that is a view of another Tensor"):
        function(two, lambda ctx, g, h: g).apply((leaf() * 1.0)[1:])

    def fresh(ctx: Any, x: Any) -> Any:
        y = x * 2.0
        ctx.mark_dirty(y)
        return y

    with pytest.warns(UserWarning, match=r"mark_dirty.. received a tensor that was not an input"):
        function(fresh, lambda ctx, g: g).apply(leaf())

    def fresh_view(ctx: Any, x: Any) -> Any:
        y = (x * 2.0)[:]
        ctx.mark_dirty(y)
        return y

    with pytest.raises(RuntimeError, match=r"mark_dirty.. received a tensor that was not an input"):
        function(fresh_view, lambda ctx, g: g).apply(leaf())
    with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
        Doubled.apply((leaf() * 1.0).split(1)[0])
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        Doubled.apply(leaf()[:])


@pytest.mark.parametrize("of_output", [False, True], ids=["input", "output"])
def test_an_update_of_what_was_saved_is_noticed(of_output: bool) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2.0
        ctx.save_for_backward(y if of_output else x)
        return y

    x = leaf()
    z = x * 1.0
    y = function(forward, lambda ctx, g: g * ctx.saved_tensors[0], "Sv").apply(z)
    (y if of_output else z).mul_(2.0)
    text = f"which is output 0 of {'Sv' if of_output else 'Mul'}, is at version 1; expected version 0 instead"
    with pytest.raises(RuntimeError, match=text):
        y.sum().backward()


# -- saved values ------------------------------------------------------------------------------------------------------
def test_saved_values_are_freed_by_a_backward_pass() -> None:
    x = leaf()
    y = TripledExp.apply(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        _ = y.grad_fn.saved_tensors
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.sum().backward()
    y = function(lambda ctx, x: x * 2.0, lambda ctx, g: g).apply(x)
    for _ in range(2):
        y.backward(tg.tensor(np.ones(3)))


def test_saved_values_are_freed_by_their_first_use_where_a_function_says_so() -> None:
    def backward(ctx: Any, g: Any) -> Any:
        x, *_ = ctx.saved_tensors
        reference = weakref.ref(x)
        del x
        assert reference() is None
        if again:
            _ = ctx.saved_tensors
        return g

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward), "clear_saved_tensors_on_access": True}
    cls = type("Cleared", (Function,), body)
    again = False
    cls.apply(leaf() * 1.0).sum().backward()
    again = True
    with pytest.raises(RuntimeError, match="can only be accessed once"):
        cls.apply(leaf() * 1.0).sum().backward()


def test_a_view_that_a_call_updates_is_freed_without_the_garbage_collector() -> None:
    view = (leaf() * 1.0)[1:]
    reference = weakref.ref(Doubled.apply(view))
    del view
    assert reference() is None


def test_a_call_is_freed_without_the_garbage_collector() -> None:
    x = leaf()
    gc.disable()
    try:
        y = TripledExp.apply(x)
        node, context = weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.context)
        del y
        assert node() is None
        assert context() is None
    finally:
        gc.enable()


def test_hooks_on_saved_tensors_see_what_is_saved() -> None:
    packed, before = [], STATE.saving

    def pack(x: Any) -> Any:
        packed.append(x)
        return x.detach().numpy() * 10.0

    STATE.saving = ((pack, lambda kept: tg.tensor(kept)),)
    STATE.update_unusual()
    try:
        x = leaf()
        y = TripledExp.apply(x)
    finally:
        STATE.saving = before
        STATE.update_unusual()
    assert len(packed) == 1
    np.testing.assert_allclose(pulled(y, x).numpy(), 30 * np.exp(X))


# -- what may be wrong with a rule -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("backward", "text"),
    [
        (lambda ctx, g: g, r"function FBackward returned an incorrect number of gradients \(expected 2, got 1\)"),
        (lambda ctx, g: (g, None, g), r"returned an incorrect number of gradients \(expected 2, got 3\)"),
        (lambda ctx, g: (g, g), "returned a gradient different than None at position 2, but the corresponding forward"),
        (lambda ctx, g: (3, None), r"expected Variable or None \(got int\)"),
        (lambda ctx, g: ([g], None), r"expected Variable or None \(got list\)"),
        (
            lambda ctx, g: (tg.tensor(np.ones(2)), None),
            r"FBackward returned an invalid gradient at index 0 - got \[2\] but expected shape compatible with \[3\]",
        ),
        (lambda ctx, g: (tg.tensor(1.0), None), r"got \[\] but expected shape compatible with \[3\]"),
    ],
)
def test_a_wrong_result_of_backward_is_told(backward: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        function(lambda ctx, x, k: x * k, backward).apply(leaf(), 2.0).sum().backward()


def test_gradients_are_summed_and_converted_to_what_the_input_is() -> None:
    x = leaf()
    F = function(lambda ctx, x: x * 2.0, lambda ctx, g: tg.tensor(np.ones((4, 3), np.float32)))
    result = pulled(F.apply(x), x)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result.numpy(), 4.0)
    F = function(lambda ctx, x: x * 2.0, lambda ctx, g: (g, None, None))
    np.testing.assert_array_equal(pulled(F.apply(x), x).numpy(), 1.0)


def test_missing_and_wrong_methods_are_told() -> None:
    class Empty(Function):
        pass

    class Forward(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

    class Both(Forward):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(NotImplementedError, match="You must implement the forward function for custom"):
        Empty.apply(leaf())
    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp method"):
        Forward.apply(leaf()).sum().backward()
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp' for a custom Function is not allow"):
        Both.apply(leaf()).sum().backward()


def test_what_is_no_array_cannot_be_saved_nor_marked() -> None:
    def using(method: str) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            getattr(ctx, method)(3)
            return x * 2.0

        return function(forward, lambda ctx, g: g)

    with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument 0 is of type int"):
        using("save_for_backward").apply(leaf())
    with pytest.raises(RuntimeError, match="mark_dirty can only accept variables, but argument 0"):
        using("mark_dirty").apply(leaf())
    with pytest.raises(RuntimeError, match="mark_non_differentiable only accepts variable arguments"):
        using("mark_non_differentiable").apply(leaf())


def test_names_of_older_programs() -> None:
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        assert h is None
        (x,) = ctx.saved_variables
        return g * x

    def forward(ctx: Any, x: Any) -> Any:
        y = x.clone()
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(y)
        ctx._materialize_non_diff_grads = False
        return x * x, y

    x = leaf(3.0)
    y, _ = type(
        "Old", (InplaceFunction,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    ).apply(x)
    with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated"):
        y.backward()
    assert x.grad.item() == 3.0
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        assert InplaceFunction(True).inplace


def test_an_instance_is_not_what_is_called() -> None:
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = TripledExp()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        instance(leaf())


def test_an_exception_in_backward_comes_out_as_it_is_and_leaves_no_gradient() -> None:
    x = leaf()
    with pytest.raises(ZeroDivisionError):
        function(lambda ctx, x: x * 2.0, lambda ctx, g: 1 / 0).apply(x).sum().backward()
    assert x.grad is None


# -- once_differentiable -----------------------------------------------------------------------------------------------
def test_once_differentiable_gives_first_derivatives_and_refuses_second_ones() -> None:
    x, weight = leaf(), leaf(np.ones(3))
    np.testing.assert_array_equal(pulled(Once.apply(x), x).numpy(), 5 * X)
    (first,) = tape.grad(Once.apply(x), x, weight, create_graph=True)
    assert first.grad_fn.name() == "Error"
    with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
        first.sum().backward()


@either
def test_transforms_refuse_second_derivatives_of_once_differentiable(compiled: bool) -> None:
    def first(x: Any) -> Any:
        return tg.grad(lambda x: np.sum(Once.apply(x)))(x)

    with jit(compiled):
        np.testing.assert_array_equal(first(X), 5 * X)
        with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
            tg.grad(lambda x: np.sum(first(x)))(X)


# -- on ndarrays -------------------------------------------------------------------------------------------------------
def test_a_call_on_ndarrays_just_computes() -> None:
    y = TripledExp.apply(X)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, np.exp(X))


@either
def test_transforms_use_the_rule_to_any_order(compiled: bool) -> None:
    with jit(compiled):
        f = TripledExp.apply
        for order in range(1, 4):
            f = tg.grad(f)
            assert f(0.5) == pytest.approx(3**order * np.exp(0.5), rel=1e-14)
        both = tg.value_and_grad(lambda x: np.sum(Cube.apply(x)))
        value, gradient = both(X)
        np.testing.assert_allclose(value, np.sum(X**3))
        np.testing.assert_allclose(gradient, 30 * X * X)
        hvp = tg.grad(lambda x: np.vdot(tg.grad(lambda x: np.sum(Cube.apply(x)))(x), X))
        np.testing.assert_allclose(hvp(X), 60 * X * X)


@either
def test_transforms_pull_several_outputs_by_one_call(compiled: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        a, b = Mixed.apply(x, y)
        return np.sum(a) + np.sum(b * b)

    with jit(compiled):
        Mixed.calls.clear()
        dx, dy = tg.grad(f, (0, 1))(X, 2 * X)
        assert Mixed.calls == [(False, False)]
        np.testing.assert_allclose(dx, 10 * 2 * X + 2 * 3 * X)
        np.testing.assert_allclose(dy, X + 100 * 2 * 3 * X)
        dy = tg.grad(lambda x, y: np.sum(Mixed.apply(x, y)[1]), 1)(X, 2 * X)
        np.testing.assert_array_equal(dy, 100.0)
        assert Mixed.calls == [(False, False)] * 2


@either
def test_transforms_take_functions_with_setup_context_and_options(compiled: bool) -> None:
    with jit(compiled):
        np.testing.assert_array_equal(tg.grad(lambda x: np.sum(Scaled.apply(x, factor=4.0)))(X), 40.0)


@either
def test_transforms_respect_marks_and_none(compiled: bool) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        b = x * 3.0
        ctx.mark_non_differentiable(b)
        ctx.set_materialize_grads(False)
        return x * 2.0, b, np.argmax(x), "text", x

    def backward(ctx: Any, *grads: Any) -> Any:
        assert all(g is None for g in grads[1:4])
        return sum(k * g for k, g in ((7.0, grads[0]), (100.0, grads[4])) if g is not None)

    F = function(forward, backward)

    def f(number: int) -> Any:
        return lambda x: np.sum(F.apply(x)[1]) + np.sum(F.apply(x)[number])

    with jit(compiled):
        np.testing.assert_array_equal(tg.grad(f(0))(X), 7.0)
        np.testing.assert_array_equal(tg.grad(f(4))(X), 100.0)
        np.testing.assert_array_equal(tg.grad(f(1))(X), 0.0)


@either
def test_a_dirty_array_is_updated_for_the_caller_too(compiled: bool) -> None:
    def f(x: Any) -> Any:
        z = x * 1.0
        y = Doubled.apply(z)
        return np.sum(z) + np.sum(y)

    with jit(compiled):
        value, gradient = tg.value_and_grad(f)(X)
        assert value == 4 * np.sum(X)
        np.testing.assert_array_equal(gradient, 22.0)


def test_an_update_that_was_not_declared_is_refused_in_a_trace() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x *= 2.0
        return x

    F = function(forward, lambda ctx, g: g, "Undeclared")
    with pytest.raises(UnsupportedError, match="updates argument 0 in place; say ctx"):
        tg.trace(lambda x: F.apply(x * 1.0))(X)


def test_a_custom_derivative_costs_nothing_in_a_compiled_function() -> None:
    optimized = tg.grad(lambda x: np.sum(TripledExp.apply(x))).explain(X).optimized
    assert not [node for node in optimized.nodes if node.name.startswith("custom")]
    assert [node.name for node in optimized.nodes].count("exp") == 1


def test_the_rule_reads_captured_arrays_at_each_call() -> None:
    factor = np.array(2.0)
    F = function(lambda ctx, x: x * 1.0, lambda ctx, g: g * factor)
    f = tg.grad(lambda x: np.sum(F.apply(x)))
    np.testing.assert_array_equal(f(X), 2.0)
    factor[...] = 5.0
    np.testing.assert_array_equal(f(X), 5.0)
    assert f.cache_info().traces == 1


def test_what_forward_asks_of_a_value_is_a_guard_without_a_warning() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.positive = float(x) > 0
        return x * 1.0

    f = tg.grad(function(forward, lambda ctx, g: g * (2.0 if ctx.positive else 3.0)).apply)
    assert (f(1.0), f(-1.0), f(1.0)) == (2.0, 3.0, 2.0)
    with tg.disable_jit():
        assert (f(1.0), f(-1.0)) == (2.0, 3.0)


# -- Tensors and traced functions --------------------------------------------------------------------------------------
def test_a_traced_function_of_tensors_uses_the_rule_to_second_order() -> None:
    x = leaf()
    y = tg.trace(lambda x: Cube.apply(x).sum())(x)
    first = pulled(y, x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), 30 * X * X)
    np.testing.assert_allclose(pulled(first, x).numpy(), 60 * X)


def test_a_training_step_with_a_custom_function_is_traced() -> None:
    w = leaf()

    @tg.trace
    def step(w: Any, x: Any) -> Any:
        loss = (Cube.apply(w) * x).sum()
        loss.backward()
        with tg.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        return loss

    step(w, tg.tensor(X))
    np.testing.assert_allclose(w.detach().numpy(), X - 0.1 * 30 * X * X * X)


# -- opaque functions --------------------------------------------------------------------------------------------------
def values(x: Any) -> Any:
    """The ndarray; a trace cannot look into what is done to it."""
    return np.array((x.detach().numpy() if isinstance(x, tg.Tensor) else x).tolist())


class Outside(Function):
    """exp(x) and where it is largest, computed outside of what a trace sees, with three times the derivative."""

    opaque = True
    runs: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx: Any, x: Any, unit: float = 1.0) -> Any:
        Outside.runs.append("forward")
        y = np.exp(values(x) / unit)
        if not np.all(np.isfinite(y)):
            raise OverflowError("too large")
        ctx.unit, y = unit, tg.tensor(y) if isinstance(x, tg.Tensor) else y
        ctx.save_for_backward(y)
        return y, np.argmax(values(y)), "text"

    @staticmethod
    def backward(ctx: Any, grad: Any, *others: Any) -> Any:
        Outside.runs.append("backward")
        (y,) = ctx.saved_tensors
        result = 3.0 * values(y) * values(grad) / ctx.unit
        return (tg.tensor(result) if isinstance(grad, tg.Tensor) else result), None


def outside(x: Any) -> Any:
    y, _, _ = Outside.apply(x, 2.0)
    return (y * y).sum()


def test_an_opaque_function_runs_at_each_call_of_a_traced_function() -> None:
    f = tg.trace(lambda x: Outside.apply(x, 2.0))
    Outside.runs.clear()
    for x in (X, 2 * X, 3 * X):
        y, largest, text = f(x)
        np.testing.assert_array_equal(y, np.exp(x / 2.0))
        assert (largest, text) == (2, "text")
    assert f.cache_info().traces == 1
    assert Outside.runs == ["forward"] * 3
    assert [node.name for node in f.explain(X).optimized.nodes].count("opaque") == 1


@either
def test_transforms_use_the_rule_of_an_opaque_function(compiled: bool) -> None:
    f = tg.grad(outside)
    with jit(compiled):
        for x in (X, 2 * X):
            np.testing.assert_allclose(f(x), 3 * np.exp(x), rtol=1e-14)


def test_the_rule_of_an_opaque_function_holds_on_tensors_of_a_traced_function() -> None:
    f = tg.trace(outside)
    for k in (1.0, 2.0):
        x = leaf(k * X)
        f(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), 3 * np.exp(k * X), rtol=1e-14)
    assert f.cache_info().traces == 1


def test_second_derivatives_of_opaque_functions_are_refused() -> None:
    with pytest.raises(RuntimeError, match="trying to differentiate twice"):
        tg.grad(lambda x: np.sum(tg.grad(outside)(x)))(X)


class Dtypes(Function):
    """Outputs of several dtypes, one of which is a large integer; the derivative of the float32 is 2."""

    opaque = True

    @staticmethod
    def forward(ctx: Any, x: Any, k: Any) -> Any:
        y = (2 * np.asarray(x.tolist())).astype(np.float32)
        return np.int64(int(k) + 1), y > 3, y, np.arange(2, dtype=np.int32)

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> Any:
        assert cts[2].dtype == np.float32
        return 2.0 * np.asarray(cts[2].tolist()), None


def test_an_opaque_function_gives_every_dtype_exactly() -> None:
    f = tg.trace(lambda x, k: Dtypes.apply(x, k))
    for k in (2**53, 2**62 + 10):
        number, mask, y, places = f(X.astype(np.float32), np.array(k))
        assert number == k + 1
        assert [a.dtype for a in (number, mask, y, places)] == ["int64", "bool", "float32", "int32"]
        np.testing.assert_array_equal(y, 2 * X.astype(np.float32))
        np.testing.assert_array_equal(mask, y > 3)
        np.testing.assert_array_equal(places, [0, 1])
    assert f.cache_info().traces == 1


@either
def test_an_opaque_function_of_several_dtypes_has_its_derivative(compiled: bool) -> None:
    derivative = tg.grad(lambda x: (Dtypes.apply(x, np.array(3))[2] ** 2).sum())
    with jit(compiled):
        np.testing.assert_allclose(derivative(X), 8 * X, rtol=1e-6)


class WholeAndRest(Function):
    """The whole parts of an array as int64, and three times the rest."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        whole = np.floor(x)
        return whole.astype(np.int64), 3.0 * (x - whole)

    @staticmethod
    def backward(ctx: Any, ct_whole: Any, ct: Any) -> Any:
        return 5.0 * ct


@either
def test_an_integer_output_stands_beside_a_float(compiled: bool) -> None:
    def f(x: Any) -> Any:
        whole, rest = WholeAndRest.apply(x)
        assert whole.dtype == np.int64
        return (whole * rest).sum()

    with jit(compiled):
        np.testing.assert_allclose(tg.trace(f)(X), (np.floor(X) * 3 * (X - np.floor(X))).sum())
        np.testing.assert_allclose(tg.grad(f)(X), 5 * np.floor(X))


def test_an_exception_of_an_opaque_function_comes_out_of_the_call() -> None:
    f = tg.trace(outside)
    f(X)
    with np.errstate(over="ignore"), pytest.raises(OverflowError, match="too large"):
        f(1e6 * X)


def test_a_forward_that_cannot_be_traced_is_told_about_opaque() -> None:
    class Untraceable(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.__array__()

    with pytest.raises(TraceError) as caught:
        tg.trace(lambda x: Untraceable.apply(x))(X)
    assert any("opaque = True" in note for note in caught.value.__notes__)


class RandomFactor(Function):
    """x times a random number, which is the derivative; the context holds what `keep` makes of that."""

    opaque = True
    keep: ClassVar[Any] = None
    runs: ClassVar[list[float]] = []

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        k = float(np.random.default_rng().uniform(1, 2))
        RandomFactor.runs.append(k)
        ctx.k = RandomFactor.keep(k)
        return x * k

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        k = ctx.k() if callable(ctx.k) else np.sum(ctx.k["k"] if isinstance(ctx.k, dict) else ctx.k)
        return ct * k


KEPT: dict[str, Any] = {
    "number": lambda k: k,
    "array": lambda k: np.array([k, 0.0]),
    "tree": lambda k: {"k": np.float64(k), "name": "k"},
    "object": lambda k: lambda: k,
    "other shapes": lambda k: np.full(1 + len(RandomFactor.runs) % 3, k / (1 + len(RandomFactor.runs) % 3)),
}


@pytest.mark.parametrize("what", KEPT)
@either
def test_forward_of_an_opaque_function_runs_once_for_value_and_derivative(
    what: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RandomFactor, "keep", KEPT[what])
    f = tg.value_and_grad(lambda x: np.sum(RandomFactor.apply(x)))
    with jit(compiled):
        for _ in range(4):
            RandomFactor.runs.clear()
            value, derivative = f(X)
            (k,) = RandomFactor.runs
            np.testing.assert_allclose(value, k * np.sum(X), rtol=1e-14)
            np.testing.assert_allclose(derivative, np.full(3, k), rtol=1e-14)


@pytest.mark.parametrize("what", KEPT)
def test_each_iteration_of_a_loop_has_the_context_that_forward_left(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomFactor, "keep", KEPT[what])
    derivative = tg.grad(lambda x: tg.scan(lambda c, r: (c + RandomFactor.apply(r), c), 0.0, x)[0])
    derivative(X)  # runs the first iteration once more, to find out the shapes
    for _ in range(3):
        RandomFactor.runs.clear()
        result = derivative(X)
        np.testing.assert_allclose(result, RandomFactor.runs[-3:], rtol=1e-14)
        assert len(RandomFactor.runs) == 3


@pytest.mark.parametrize("what", KEPT)
def test_a_pullback_may_be_called_again(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomFactor, "keep", KEPT[what])
    for _ in range(3):
        RandomFactor.runs.clear()
        _, pullback = tg.vjp(lambda x: RandomFactor.apply(x), X)
        for ct in (X, 2 * X):
            np.testing.assert_allclose(pullback(ct)[0], ct * RandomFactor.runs[0], rtol=1e-14)
        assert len(RandomFactor.runs) == 1


class OpaqueSquare(Function):
    opaque = True

    @staticmethod
    def forward(ctx: Any, z: Any) -> Any:
        ctx.z = z
        return z * z

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * np.conj(2 * ctx.z)


@either
def test_opaque_functions_of_complex_arrays_and_numbers_have_their_derivative(compiled: bool) -> None:
    def of_number(x: Any) -> Any:
        w = OpaqueSquare.apply(x * (2.0 + 1.0j))
        return np.real(w * np.conj(w))

    def of_arrays(a: Any, b: Any) -> Any:
        w = OpaqueSquare.apply(a + 1j * b)
        return np.sum(np.real(w) * X + np.imag(w))

    with jit(compiled):
        for x in (1.5, 2.0):
            assert tg.grad(of_number)(x) == pytest.approx(100 * x**3)
        derivatives = tg.grad(of_arrays, (0, 1))(X, 2 * X)
    # (a + ib)^2 = a^2 - b^2 + 2iab
    np.testing.assert_allclose(derivatives[0], 2 * X * X + 4 * X)
    np.testing.assert_allclose(derivatives[1], -4 * X * X + 2 * X)


@either
def test_a_python_number_that_an_opaque_function_returns_is_of_the_call_and_has_a_derivative(compiled: bool) -> None:
    value, derivative = tg.trace(lambda x: OpaqueSquare.apply(x)), tg.grad(lambda x: OpaqueSquare.apply(x))
    with jit(compiled):
        for x in (3.0, 4.0, 5.0):
            assert (value(x), derivative(x)) == (x * x, 2 * x)


@either
def test_an_opaque_function_gives_a_tuple_where_forward_does(compiled: bool) -> None:
    class Several(Function):
        opaque = True

        @staticmethod
        def forward(ctx: Any, x: Any, n: int) -> Any:
            ctx.n = n
            return tuple([x * (k + 1.0) for k in range(n)])

        @staticmethod
        def backward(ctx: Any, *cts: Any) -> Any:
            return sum(((k + 1.0) * ct for k, ct in enumerate(cts)), np.zeros(3)), None

    with jit(compiled):
        for n in (1, 2, 20):
            result = tg.trace(lambda x, n=n: Several.apply(x, n))(X)
            assert type(result) is tuple
            np.testing.assert_allclose(result, [X * (k + 1.0) for k in range(n)])
            derivative = tg.grad(lambda x, n=n: np.sum(Several.apply(x, n)[n - 1]))(X)
            np.testing.assert_allclose(derivative, np.full(3, n))
        assert tg.trace(lambda x: Several.apply(x, 0))(X) == ()


class Halved(Function):
    """x / 2 and a count, outside of what a trace sees; refuses 0, which no iteration has; with the derivative 5."""

    opaque = True
    seen: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        v = np.array(values(x))
        if np.any(v == 0) or np.any(v > 1e6):
            raise OverflowError("not a number to halve")
        Halved.seen.append(v)
        return (tg.tensor(v / 2) if isinstance(x, tg.Tensor) else v / 2), np.int32(v.size)

    @staticmethod
    def backward(ctx: Any, grad: Any, count: Any) -> Any:
        return grad * 5.0


def _halved(x: Any) -> Any:
    y, count = Halved.apply(x)
    return y * count


REGIONS: dict[str, Any] = {
    "scan": lambda x: tg.scan(lambda c, r: (c + _halved(r * c), c), x[0], x)[0],
    "rows": lambda x: tg.scan(lambda c, r: (c + 1, _halved(r)), 0, x, reverse=True)[1].sum(),
    "number": lambda x: tg.scan(lambda c, r: (_halved(r + c), r), 0, x)[0],
    "cond": lambda x: tg.cond((x * x).sum() > 100.0, _halved, lambda v: 3.0 * _halved(v), x).sum(),
    "while": lambda x: tg.while_loop(lambda c: (c * c).sum() > 0.1, _halved, x[0]),
    "for": lambda x: tg.fori_loop(0, 3, lambda i, c: _halved(c) + i, x).sum(),
    "nested": lambda x: tg.scan(lambda c, r: (tg.scan(lambda d, s: (d + _halved(s * r), d), c, x)[0], c), x[0], x)[0],
    "vmap": lambda x: tg.vmap(lambda r: tg.cond(r > 1.0, _halved, np.sin, r))(x).sum(),
    "checkpoint": lambda x: tg.checkpoint(lambda v: _halved(v).sum())(x),
    "again": lambda x: tg.scan(lambda c, r: (_halved(_halved(r) * c), r), x[0], x)[0],
}


@pytest.mark.parametrize("name", REGIONS)
def test_an_opaque_function_runs_at_each_iteration_of_a_region(name: str) -> None:
    f = REGIONS[name]
    for x in (np.array([1.5, 2.0, 3.0]), tg.tensor([1.5, 2.0, 3.0])):
        with tg.disable_jit():
            want, derivative = values(f(x)), values(tg.grad(f)(x))
        result = tg.trace(f)
        np.testing.assert_allclose(values(result(x)), want, rtol=1e-14)
        np.testing.assert_allclose(values(tg.grad(f)(x)), derivative, rtol=1e-14)
        Halved.seen.clear()
        with tg.disable_jit():
            want = values(f(2 * x))
            iterations = len(Halved.seen)
        Halved.seen.clear()
        np.testing.assert_allclose(values(result(2 * x)), want, rtol=1e-14)
        assert result.cache_info().traces == 1
        # A choice under vmap computes both branches.
        assert len(Halved.seen) >= iterations if name == "vmap" else len(Halved.seen) == iterations


def test_an_opaque_function_that_fails_in_a_iteration_says_so_and_where() -> None:
    f = tg.trace(lambda x: tg.scan(lambda c, r: (c + _halved(r), c), 0.0, x)[0])
    assert f(np.array([1.0, 2.0, 3.0])) == 3.0
    with pytest.raises(OverflowError, match="not a number to halve"):
        f(np.array([1.0, 0.0, 3.0]))
    assert f(np.array([1.0, 2.0, 5.0])) == 4.0


def test_an_opaque_function_in_a_region_without_a_iteration_is_refused_with_its_line() -> None:
    with pytest.raises(TraceError, match=r"inside the body of a scan .*which has none yet.*test_function\.py:\d+"):
        tg.trace(lambda x: tg.scan(lambda c, r: (c + _halved(r), c), 0.0, x)[0])(np.zeros(0))
    with pytest.raises(TraceError, match=r"bool\(\) of a value inside the body of a scan"):
        tg.trace(lambda x: tg.scan(lambda c, r: (c + r if r > 0 else c, c), 0.0, x)[0])(np.ones(3))
