"""A user's program, in which mypy finds what is wrong, and nothing else.

mypy reads this file with the package (`tests/package/test_style.py`), and would tell of a `type: ignore` that is not
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_type

import numpy as np
import pytest

import tracegrad as tg
import tracegrad.autograd.functional
import tracegrad.nn.functional as F
from tracegrad import linalg
from tracegrad.typing import Array as AnyArray
from tracegrad.typing import ArrayLike, Shape

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
X = np.array([1.0, 2.0])


@tg.trace
def energy(x: Any) -> Any:
    return np.sum(x**2)


@tg.trace(static_argnames="n")
def power(x: Any, n: int = 2) -> Any:
    return np.sum(x**n)


def test_transforms() -> None:
    assert_type(tg.jvp(energy, (X,), (X,)), Any)
    value, derivative = tg.value_and_grad(power)(X, n=3)
    assert value == 9.0
    np.testing.assert_allclose(derivative, [3.0, 12.0])
    np.testing.assert_allclose(tg.grad(energy)(X), [2.0, 4.0])
    assert tg.jvp(energy, (X,), (np.ones(2),))[1] == 6.0
    assert "energy" in str(energy.explain(X))


@tg.trace
def scaled(x: Array, factor: float = 2.0) -> Array:
    return x * factor


class Model:
    def __init__(self, w: Array) -> None:
        self.w = w

    @tg.trace
    def loss(self, x: Array) -> np.float64:
        return np.sum((self.w * x) ** 2)

    @tg.trace(static_argnames="n")
    def power(self, x: Array, *, n: int) -> Array:
        return x**n


def test_traced_functions_have_the_parameters_and_the_result_of_the_function() -> None:
    model = Model(X)
    assert_type(scaled(X, factor=3.0), Array)
    assert_type(model.loss(X), np.float64)
    assert_type(model.power(X, n=3), Array)
    assert_type(Model.loss(model, X), np.float64)
    assert_type(tg.value_and_grad(model.loss)(X), tuple[Any, Any])
    wrong: list[Callable[[], Any]] = [
        lambda: scaled("x"),  # type: ignore[arg-type]
        lambda: scaled(X, scale=3.0),  # type: ignore[call-arg]
        lambda: scaled(),  # type: ignore[call-arg]
        lambda: scaled(X).hat,  # type: ignore[attr-defined]
        lambda: model.loss(),  # type: ignore[call-arg]
        lambda: model.power(X, n="3"),  # type: ignore[arg-type]
        lambda: tg.grad(scaled)(X, 1.0, 2.0),  # type: ignore[call-arg]
        lambda: tg.vmap(tg.grad(energy))(X, n=X),  # type: ignore[call-arg]
    ]
    for call in wrong:
        with pytest.raises((TypeError, AttributeError, tg.TraceError)):
            call()
    assert tg.grad(model.loss)(X).tolist() == [2.0, 16.0]


def test_tensors() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    assert_type(x, tg.Tensor)
    assert_type(tg.zeros(2).requires_grad_(), tg.Tensor)
    loss = (2 * x - x @ x + x[0]).sum() + x.mean(dim=0) + x.view(2, 1).abs().max()
    loss.backward()
    assert_type(x.numpy(force=True), np.ndarray[Any, Any])
    assert x.grad.shape == x.shape == (2,)
    assert len(x) == x.numel() == 2
    with tg.no_grad():
        x.sub_(x.detach())
        x.add_(1.0, alpha=2.0)
    assert isinstance(x.T, tg.Tensor)
    assert x.tolist() == [2.0, 2.0]


def test_names_that_are_found_when_they_are_asked_for() -> None:
    assert_type(tg.float32, tg.dtype)
    assert_type(tg.is_tensor(X), bool)
    key = tg.random.key(0)
    assert tg.random.normal(key, shape=(2,)).shape == (2,)
    assert tg.sin(tg.zeros(2)).tolist() == [0.0, 0.0]
    assert tg.sum(tg.ones(2, dtype=tg.float64), dim=0, keepdim=True).shape == (1,)
    assert F.relu(tg.tensor([-1.0])).item() == tg.nn.functional.relu(tg.tensor(-1.0)).item() == 0.0
    assert linalg.norm(tg.tensor([3.0, 4.0])).item() == 5.0
    assert tg.special.erf(tg.tensor(0.0)).item() == 0.0
    assert tg.array_api.sum(tg.array_api.asarray(X)).item() == 3.0
    assert tg.func.grad(lambda x: x * x)(3.0) == 6.0
    assert tg.autograd.functional.jacobian(tg.sin, tg.zeros(1)).shape == (1, 1)
    assert tracegrad.autograd.functional is tg.autograd.functional
    assert not tg.cuda.is_available()


def test_what_is_wrong_is_found() -> None:
    with pytest.raises(AttributeError):
        _ = tg.sinus  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = tg.linalg.gauss  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = F.rellu  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        tg.zeros(2).summe()  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        tg.grad(energy, argnum=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        tg.sum(X, dims=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        F.relu(X, derivative=0.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        tg.zeros(2).mean(dims=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        tg.trace(energy, static=0)  # type: ignore[call-overload]


def shape_of(x: AnyArray) -> Shape:
    return x.shape


def doubled(x: AnyArray) -> AnyArray:
    return x + x


def depth(x: ArrayLike) -> int:
    return 1 + depth(x[0]) if isinstance(x, list) else 0


def test_arrays_of_every_kind_have_the_shared_types() -> None:
    assert shape_of(X) == shape_of(tg.tensor([1.0, 2.0])) == shape_of(doubled(X)) == (2,)
    assert shape_of(doubled(tg.tensor([1.0]))) == (1,)
    assert depth([[X, 1.0], [2.0, tg.tensor(1.0)]]) == 2
    assert tg.trace(lambda x: shape_of(doubled(x)))(X) == (2,)
