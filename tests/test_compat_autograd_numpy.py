"""What autograd's `numpy` has beside NumPy's own functions: values and derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad.compat.autograd.numpy as anp
from tracegrad.compat import autograd as ag
from tracegrad.compat.autograd.numpy.numpy_jvps import broadcast
from tracegrad.compat.autograd.test_util import check_grads

D = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_diagonals_make_matrices() -> None:
    made = anp.make_diagonal(D, axis1=-1, axis2=-2)
    np.testing.assert_array_equal(made, [np.diag(d) for d in D])
    np.testing.assert_array_equal(np.diagonal(made, axis1=-1, axis2=-2), D)
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


def test_tangents_are_broadcast_as_results_were() -> None:
    np.testing.assert_array_equal(broadcast(D[:, :1], D), np.repeat(D[:, :1], 3, 1))
    assert broadcast(1.0, 1j * D).dtype == complex
