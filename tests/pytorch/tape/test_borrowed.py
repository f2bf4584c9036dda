"""Plain arrays that eager operations are given may be updated afterwards: gradients are those of what was computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.tape.recording.copy_pool import copy_of

X = np.array([1.0, 2.0, 3.0])
M = np.array([[3.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 5.0]])
MASK, PLACES = np.array([True, False, True]), np.array([0, 0, 1])

# A function of a vector and of a plain array, and that array.
GIVEN: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "product": (lambda t, v: t * v, X),
    "product on the left": (lambda t, v: v * t, X),
    "product with one element": (lambda t, v: t[0] * v, X),
    "product of another dtype": (lambda t, v: t * v, X.astype(np.float32)),
    "product with a view": (lambda t, v: t * v[::2], np.arange(6.0)),
    "product with a repeated row": (lambda t, v: t * np.broadcast_to(v, (4, 3)), X),
    "product in place": (lambda t, v: (t * 1.0).__imul__(v), X),
    "quotient": (lambda t, v: t / v, X),
    "power": (lambda t, v: t**v, X),
    "maximum": (lambda t, v: np.maximum(t, v), X),
    "where": (lambda t, v: np.where(v, t * 2.0, t), MASK),
    "elements": (lambda t, v: t[v], PLACES),
    "elements by a mask": (lambda t, v: t[v], MASK),
    "take": (lambda t, v: np.take(t, v), PLACES),
    "dot": (lambda t, v: np.dot(t, v), X),
    "matmul": (lambda t, v: v @ t, M),
    "einsum": (lambda t, v: np.einsum("ij,j->i", v, t), M),
    "solve": (lambda t, v: np.linalg.solve(v, t), M),
    "a function of several ops": (lambda t, v: tg.addcmul(t, t, v), X),
    "weighted mean": (lambda t, v: np.average(t, weights=v), X),
}


def _tensor(f: Any) -> Any:
    t = tg.tensor(X, requires_grad=True)
    f(t).sum().backward()
    return t.grad.numpy()


def _eager(f: Any) -> Any:
    with tg.disable_jit():
        return tg.grad(lambda x: np.sum(f(x)))(X)


@pytest.mark.parametrize("gradient", [_tensor, _eager])
@pytest.mark.parametrize("name", GIVEN)
def test_an_update_after_the_operation_does_not_change_the_gradient(name: str, gradient: Any) -> None:
    f, args = GIVEN[name]
    held = args.copy()

    def updated(t: Any) -> Any:
        result = f(t, held)
        held[...] = ~held if held.dtype == bool else held[::-1] + 1 if held.dtype.kind == "f" else 2
        return result

    expected = gradient(lambda t: f(t, args))
    np.testing.assert_array_equal(gradient(updated), expected)
    assert not np.array_equal(held, args)


def test_tensors_that_are_updated_still_say_so() -> None:
    t, v = tg.tensor(X, requires_grad=True), tg.tensor(X)
    y = t * v
    v[0] = 5.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_repeated_row_is_saved_as_a_row() -> None:
    t = tg.tensor(X, requires_grad=True)
    (t * np.broadcast_to(X, (1000, 3))).sum().backward()
    saved = (t * np.broadcast_to(X, (1000, 3))).grad_fn._saved_other
    assert saved.numpy().strides == (0, 8)


def test_large_copies_take_the_memory_of_those_that_nobody_holds() -> None:
    x = np.arange(40_000.0)
    first = copy_of(x)
    address, view = first.ctypes.data, first[10:]
    second = copy_of(x)
    assert not np.shares_memory(first, second)
    del first
    third = copy_of(x + 1.0)  # the view still needs the first
    assert not np.shares_memory(view, third)
    assert view[0] == 10.0
    del view
    np.testing.assert_array_equal(copy_of(2.0 * x), 2.0 * x)
    assert address in {copy.ctypes.data for copy in [copy_of(x) for _ in range(3)]}
    transposed = copy_of(x.reshape(200, 200).T)
    assert transposed.flags.f_contiguous
    np.testing.assert_array_equal(transposed, x.reshape(200, 200).T)
