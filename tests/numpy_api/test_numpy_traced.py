"""What NumPy functions mean on Tensors they mean in compiled functions, and their derivatives are those of the tape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy_expressions import ARRAYS, EXPRESSIONS, SCOPE

import tracegrad as tg
from tracegrad.torch.tape import eager_vjp

# An array of the module is a captured value inside of a trace, which np.argsort refuses.
TRACEABLE = [e for e in EXPRESSIONS if "argsort" not in e]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _function(expression: str) -> tuple[Callable[..., Any], list[str]]:
    """A function that computes `expression` from the arrays it names."""
    names = [name for name in ARRAYS if re.search(rf'(?<![\w.]){name}(?![\w(="])', expression)]
    scope = dict(SCOPE)
    exec(f"def function({', '.join(names)}):\n    return ({expression})\n", scope)
    return scope["function"], names


def _same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for x, y in zip(ours, theirs):
            _same(x, y)
    elif isinstance(theirs, np.ndarray | np.generic):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        rtol = 2e-6 if theirs.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-14 if rtol < 1e-6 else 1e-6)
    else:
        assert ours == theirs


def _total(values: Any) -> Any:
    """The sum of all floating values; None if there are none."""
    if isinstance(values, tuple | list):
        parts = [part for part in map(_total, values) if part is not None]
        return sum(parts[1:], parts[0]) if parts else None
    kind = getattr(values, "dtype", None)  # of a class it is no dtype
    floating = hasattr(values, "shape") and isinstance(kind, np.dtype) and kind.kind == "f"
    return np.sum(values) if floating else None


@pytest.mark.parametrize("expression", TRACEABLE)
def test_a_traced_function_is_the_function_of_ndarrays(expression: str) -> None:
    function, names = _function(expression)
    arrays = [ARRAYS[name] for name in names]
    _same(tg.trace(function)(*arrays), function(*arrays))


@pytest.mark.parametrize("expression", TRACEABLE)
def test_a_compiled_derivative_is_that_of_the_tape(expression: str) -> None:
    function, names = _function(expression)
    arrays = [ARRAYS[name] for name in names]
    floating = tuple(k for k, x in enumerate(arrays) if x.dtype.kind == "f")
    if not floating or _total(function(*arrays)) is None:
        return
    _, pullback = eager_vjp(lambda *xs: [_total(function(*xs))], arrays, floating)
    result = tg.grad(lambda *xs: _total(function(*xs)), argnums=floating)(*arrays)
    for ours, theirs in zip(result, pullback([1.0])):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        rtol = 1e-5 if theirs.dtype == np.float32 else 1e-11
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-13 if rtol < 1e-6 else 1e-6)


def test_traced_values_in_lists_are_seen_by_functions_that_take_arrays():
    from numpy import prod

    functions = [
        lambda x: np.mean([x[0], x[1]]),
        lambda x: np.sum([x[0], 1.0]),
        lambda x: np.linalg.norm([x[0], x[2]]),
        lambda x: np.linalg.norm([x, x], axis=1),
        lambda x: np.dot([x[0], x[1]], [1.0, 2.0]),
        lambda x: prod((x[0], x[1])),
        lambda x: np.where([True, False], [x[0], 1.0], [2.0, 3.0]),
        lambda x: np.outer([x[0], 1.0], x),
        lambda x: np.max(a=[x[0], x[1]]),
        lambda x: np.einsum("i,i", [x[0], x[1]], [x[2], 1.0]),
    ]
    x = np.array([0.5, -1.5, 2.5])
    for f in functions:
        np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-14)
    np.testing.assert_allclose(tg.grad(lambda x: np.mean([x[0], x[2] ** 2]))(x), [0.5, 0, 2.5], rtol=1e-15)
