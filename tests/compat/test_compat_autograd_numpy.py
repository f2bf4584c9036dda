"""What autograd's `numpy` has beside NumPy's own functions: values and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad.compat.autograd.numpy as anp
from tracegrad.compat import autograd as ag
from tracegrad.compat.autograd.core import primitive_jvps, primitive_vjps
from tracegrad.compat.autograd.extend import defvjp, primitive
from tracegrad.compat.autograd.numpy.numpy_jvps import broadcast
from tracegrad.compat.autograd.test_util import check_grads

D = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_diagonals_make_matrices() -> None:
    result = anp.make_diagonal(D, axis1=-1, axis2=-2)
    np.testing.assert_array_equal(result, [np.diag(d) for d in D])
    np.testing.assert_array_equal(np.diagonal(result, axis1=-1, axis2=-2), D)
    check_grads(lambda d: np.sin(anp.make_diagonal(d, axis1=-1, axis2=-2)))(D)
    assert anp.make_diagonal(1j * D, axis1=-1, axis2=-2).dtype == complex
    with pytest.raises(NotImplementedError):
        anp.make_diagonal(D)


def test_matrices_have_transposes() -> None:
    stack = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(anp.linalg.T(stack), [m.T for m in stack])
    np.testing.assert_array_equal(
        ag.jacobian(anp.linalg.T)(stack[0]).reshape(6, 6) @ stack[0].ravel(), stack[0].T.ravel()
    )


def test_numbers_classes_are_functions_under_the_name_np() -> None:
    names: dict[str, Any] = {"np": anp}
    exec("def f(w):\n    return w[np.int64(w[:, -1])].sum() * np.float64(w[0, 0])", names)
    w = np.array([[2.5, 1.0], [3.0, 0.0]])
    np.testing.assert_allclose(ag.grad(names["f"])(w), [[9.0, 2.5], [2.5, 2.5]])


def test_rules_are_found_by_their_functions() -> None:
    @primitive
    def double(x: Any) -> Any:
        return 2.0 * x

    assert double not in primitive_vjps
    defvjp(double, lambda ans, x: lambda g: 2.0 * g)
    assert primitive_vjps.pop(np.sin, None) is None
    rule = primitive_vjps[double]
    assert ag.grad(double)(1.0) == 2.0
    assert primitive_vjps.pop(double) is rule
    with pytest.raises(NotImplementedError, match="double"):
        ag.grad(lambda x: double(x) + 0.0)(1.0)
    primitive_vjps[double] = rule
    assert ag.grad(lambda x: double(x) * 1.0)(1.0) == 2.0
    with pytest.raises(KeyError):
        primitive_jvps[double]


def test_tangents_are_broadcast_as_results_were() -> None:
    np.testing.assert_array_equal(broadcast(D[:, :1], D), np.repeat(D[:, :1], 3, 1))
    assert broadcast(1.0, 1j * D).dtype == complex


def test_what_a_dict_holds_is_joined() -> None:
    held = {"a": D[0], "b": D[1]}
    np.testing.assert_array_equal(anp.hstack(held.values()), D.ravel())
    np.testing.assert_array_equal(
        ag.grad(lambda x: anp.sum(anp.stack({"a": x, "b": x * x}.values())))(D[0]), 1 + 2 * D[0]
    )
