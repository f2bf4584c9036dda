"""What is not supported says so, by name and with the user's own line; nothing becomes a constant in silence."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from scipy import interpolate, linalg, signal

import tracegrad as tg
from tracegrad.errors import TraceError, UnsupportedError
from tracegrad.numpy_api import ArrayMethods
from tracegrad.numpy_api.registry import FUNCTIONS
from tracegrad.torch.tape import TapeArray

A = np.arange(12.0).reshape(3, 4)

REFUSED: dict[str, Callable[[Any], Any]] = {
    "np.save": lambda t: np.save("never.npy", t),
    "np.linalg.qr with mode='raw'": lambda t: np.linalg.qr(t, mode="raw"),
    "the argument out= of np.sum": lambda t: np.sum(t, out=np.zeros(())),
    "the argument out= of np.concatenate": lambda t: np.concatenate([t, t], out=np.zeros((6, 4))),
    "the argument out= of np.einsum": lambda t: np.einsum("ij->j", t, out=np.zeros(4)),
    "the argument out= of np.clip": lambda t: np.clip(t, 0, 1, out=np.zeros((3, 4))),
    "the argument order= of np.clip": lambda t: np.clip(t, 0, 1, order="F"),
    "np.exp writing into an ndarray": lambda t: np.exp(t, out=np.zeros((3, 4))),
    "ndarray.byteswap": lambda t: t.byteswap(),
    "ndarray.data": lambda t: t.data,
    "ndarray.view of a dtype of another size": lambda t: t.view(np.int32),
    "ndarray.view of another class": lambda t: t.view(np.matrix),
    "np.pad with mode=": lambda t: np.pad(t, 1, mode=lambda *args: None),
    "np.less.reduce": lambda t: np.less.reduce(t),
    "np.power.reduce of 600 elements": lambda t: np.power.reduce(np.tile(t[0], 150)),
    "np.put into an ndarray": lambda t: np.put(np.zeros(4), [0], t[0, 0]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_the_function_and_the_users_line(what: str) -> None:
    call = REFUSED[what]
    with pytest.raises(UnsupportedError) as caught:
        call(TapeArray(np.asarray(A), requires_grad=True))
    line = inspect.getsourcelines(call)[1]
    assert what in str(caught.value)
    assert f"{__file__}:{line}" in str(caught.value)


def test_a_refusal_says_what_to_use_instead() -> None:
    t = TapeArray(np.asarray(A[:, :3]))
    with pytest.raises(UnsupportedError, match=r"; .*outside"):
        np.array_str(t)


def test_refusals_are_not_implemented_errors_too() -> None:
    with pytest.raises(NotImplementedError):
        np.less.reduce(TapeArray(np.asarray(A[0])))


def test_adding_a_tensor_to_an_ndarray_in_place_is_refused() -> None:
    x = A.copy()
    with pytest.raises(UnsupportedError, match="add writing into an ndarray"):
        x += TapeArray(np.asarray(A))
    np.testing.assert_array_equal(x, A)


def test_an_output_that_is_a_tensor_is_assigned() -> None:
    t = TapeArray(np.asarray(A))
    out = TapeArray(np.zeros((3, 4)))
    assert np.exp(t, out=out) is out
    np.testing.assert_array_equal(out.array, np.exp(A))


def test_an_array_of_unknown_kind_is_refused() -> None:
    class Opaque:
        pass

    with pytest.raises(TypeError):
        TapeArray(np.asarray(A)) + Opaque()
    with pytest.raises(TraceError, match="a value of type Opaque"):
        np.concatenate([TapeArray(np.asarray(A)), Opaque()])


def test_a_users_own_universal_function_is_not_taken_for_numpys() -> None:
    def exp(x: float) -> float:
        return 2 * x

    mine = np.frompyfunc(exp, 1, 1)
    with pytest.raises(UnsupportedError, match=r"the universal function.*; use np\.vectorize"):
        mine(TapeArray(np.asarray(A)))


def test_the_base_class_never_becomes_an_ndarray_in_silence() -> None:
    with pytest.raises(TraceError, match="cannot become an ndarray"):
        ArrayMethods.__array__(TapeArray(np.asarray(A)))


def test_unsupported_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float128"):
        TapeArray(np.asarray(A)).astype(np.longdouble)
    with pytest.raises(TypeError, match="float128"):
        TapeArray(np.asarray(A)) * np.ones(4, np.longdouble)
    with pytest.raises(TypeError, match="complex256, which tracegrad does not support"):
        tg.trace(lambda x: x * np.ones(4, np.clongdouble))(A)


NUMPY_FUNCTIONS = [
    getattr(module, name)
    for module in (np, np.linalg, np.fft)
    for name in sorted(dir(module))
    if hasattr(getattr(module, name), "_implementation")
]


@pytest.mark.parametrize("function", NUMPY_FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_each_numpy_function_that_dispatches_is_supported_or_refused(function: Any) -> None:
    t = TapeArray(np.asarray(A), requires_grad=True)
    if function in FUNCTIONS:
        return
    for args in ((t,), (t, t), (t, t, t), ([t, t],)):
        try:
            result = function(*args)
        except (UnsupportedError, TypeError, RuntimeError, AttributeError):
            continue
        # What does not dispatch on its arguments must not have made an array of them.
        assert not isinstance(result, np.ndarray) or isinstance(result, TapeArray), function


def test_what_scipy_asks_for_as_an_ndarray_is_refused_by_the_name_of_the_function() -> None:
    t = TapeArray(np.eye(3), requires_grad=True)
    spline = interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0])
    for what, call in {
        "scipy.linalg.hessenberg": lambda: linalg.hessenberg(t),
        "scipy.signal.medfilt": lambda: signal.medfilt(t),
        "scipy.interpolate.CubicSpline.__call__": lambda: spline(t),
        "scipy.special.softmax": lambda: sp.softmax(t),
    }.items():
        with pytest.raises(TraceError, match=f"{re.escape(what)}, which tracegrad does not know"):
            call()
