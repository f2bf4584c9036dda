"""`tg.array_api`: the names of the array API standard, over Tensors, against NumPy's own."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

A = np.array([[0.5, -0.3, 0.8], [0.2, 0.7, -0.9]])
B = np.array([[1.5, 2.0, 0.8], [0.2, 3.0, 1.0]])
N = np.array([[2, 1, 2], [0, 2, 1]])
Q = np.array([[True, False, True], [False, True, True]])
S = 2.0 * np.eye(3) + 0.1
V = np.array([3.0, 1.0, 2.0])


def words(text: str) -> list[str]:
    return text.split()


# Functions and what they are called with.
ROWS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (A,), {}) for name in words("abs asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag isfinite "
      "isinf isnan log1p negative positive real round sign signbit sin sinh square tan tanh trunc")),
    *((name, (B,), {}) for name in words("log log10 log2 reciprocal sqrt")),
    ("acos", (A,), {}), ("acosh", (B + 1,), {}),
    *((name, (A, B), {}) for name in words("add atan2 copysign divide equal floor_divide greater greater_equal hypot "
      "less less_equal logaddexp maximum minimum multiply nextafter not_equal remainder subtract vecdot")),
    ("pow", (B, A), {}), ("bitwise_invert", (N,), {}), ("logical_not", (Q,), {}),
    *((f"bitwise_{name}", (N, N + 1), {}) for name in words("and or xor left_shift right_shift")),
    *((f"logical_{name}", (Q, ~Q), {}) for name in words("and or xor")),
    *((name, (A,), {"axis": 1, "keepdims": True}) for name in words("max min mean prod sum argmax argmin")),
    *((name, (A,), {"axis": 0, "correction": 1}) for name in ("std", "var")),
    *((name, (Q,), {"axis": 0}) for name in ("all", "any", "count_nonzero")),
    *((name, (A,), {"axis": 1, "include_initial": True}) for name in ("cumulative_sum", "cumulative_prod")),
    ("clip", (A, -0.5, 0.5), {}), ("diff", (A,), {"axis": 1}), ("nonzero", (N,), {}), ("where", (Q, A, B), {}),
    ("searchsorted", (np.sort(V), V), {"side": "right"}), ("take", (A, np.array([0, 2])), {"axis": 1}),
    ("take_along_axis", (A, N), {"axis": 1}), ("broadcast_to", (V, (2, 3)), {}), ("broadcast_arrays", (A, V), {}),
    ("concat", ([A, B],), {"axis": 1}), ("stack", ([A, B],), {"axis": 1}), ("unstack", (A,), {"axis": 1}),
    ("expand_dims", (A,), {"axis": 1}), ("flip", (A,), {"axis": 0}), ("moveaxis", (A, 0, 1), {}),
    ("permute_dims", (A, (1, 0)), {}), ("repeat", (A, 2), {"axis": 1}), ("reshape", (A, (3, 2)), {}),
    ("roll", (A, 1), {"axis": 1}), ("squeeze", (A[None],), {"axis": 0}), ("tile", (A, (2, 1)), {}),
    ("matmul", (A, S), {}), ("matrix_transpose", (A,), {}), ("tensordot", (A, S), {"axes": 1}), ("tril", (S,), {}),
    ("triu", (S,), {"k": 1}), ("meshgrid", (V, V), {"indexing": "ij"}), ("sort", (A,), {"axis": 0}),
    ("argsort", (A,), {"axis": 1}), ("zeros_like", (A,), {}), ("ones_like", (A,), {}), ("full_like", (A, 2.0), {}),
    ("astype", (N, np.float32), {}), ("isdtype", (np.dtype("f4"), "real floating"), {}),
    ("can_cast", (np.int8, np.int16), {}), ("result_type", (A, N), {}), ("unique_all", (N,), {}),
    ("unique_counts", (N,), {}), ("unique_inverse", (N,), {}), ("unique_values", (N,), {}),
    ("arange", (1, 7, 2), {}), ("eye", (2, 3), {"k": 1}), ("full", ((2,), 3.0), {}), ("linspace", (0, 1, 5), {}),
    ("ones", ((2, 3),), {"dtype": np.float32}), ("zeros", (3,), {}), ("asarray", ([[1.0, 2.0]],), {}),
    *((f"linalg.{name}", (S,), {}) for name in words("cholesky det diagonal inv pinv svdvals eigvalsh eigh qr slogdet "
      "svd matrix_norm matrix_rank matrix_transpose trace vector_norm")),
    *((f"linalg.{name}", (V, V + 1), {}) for name in ("cross", "outer", "vecdot")),
    ("linalg.matmul", (S, V), {}), ("linalg.solve", (S, S), {}), ("linalg.matrix_power", (S, 2), {}),
    ("linalg.tensordot", (S, S), {}),
    *((f"fft.{name}", (V,), {}) for name in words("fft ifft rfft irfft hfft ihfft fftn ifftn rfftn fftshift "
      "ifftshift")),
    ("fft.fftfreq", (5,), {}), ("fft.rfftfreq", (5,), {"d": 0.5}), ("linalg.qr", (A.T,), {"mode": "complete"}),
]  # fmt: skip


def lifted(x: Any) -> Any:
    return list(map(lifted, x)) if isinstance(x, list) else tg.tensor(x) if isinstance(x, np.ndarray) else x


def parts(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple | list) else [x]


@pytest.mark.parametrize(("name", "args", "kwargs"), ROWS, ids=[row[0] for row in ROWS])
def test_a_function_gives_tensors_of_what_numpy_gives(name: str, args: Any, kwargs: Any) -> None:
    function = operator.attrgetter(name)
    got, want = function(tg.array_api)(*lifted(list(args)), **kwargs), function(np)(*args, **kwargs)
    assert len(parts(got)) == len(parts(want))
    assert getattr(got, "_fields", None) == getattr(want, "_fields", None)
    for x, told in zip(parts(got), parts(want)):
        if not isinstance(told, np.ndarray | np.generic):
            assert x == told
            continue
        assert isinstance(x, tg.Tensor)
        assert (x.shape, x.dtype) == (told.shape, told.dtype)
        np.testing.assert_allclose(x.numpy(), told, rtol=1e-12, atol=1e-14)


def test_every_name_of_the_standard_that_numpy_has_is_there_and_tested() -> None:
    xp = tg.array_api
    tested = {row[0] for row in ROWS} | {"empty", "empty_like", "finfo", "iinfo", "from_dlpack"}
    for space, names in (("", vars(xp)), ("linalg.", vars(xp.linalg)), ("fft.", vars(xp.fft))):
        functions = {space + k for k in names if space or k in xp.__all__ if callable(names[k])}
        assert functions <= tested | {"fft.irfftn"}
    assert set(xp.__all__) <= set(vars(xp))


def standardized(x: Any) -> Any:
    """A function of the kind that libraries write for any array."""
    xp = x.__array_namespace__(api_version="2024.12")
    centred = x - xp.mean(x, axis=0, keepdims=True)
    return xp.sum(xp.exp(-(centred**2)) / xp.std(x, axis=0, keepdims=True))


def test_a_function_of_any_array_has_derivatives_on_tensors() -> None:
    x = tg.tensor(A, requires_grad=True)
    result = standardized(x)
    result.backward()
    np.testing.assert_allclose(result.item(), standardized(A))
    h = 1e-6
    for k in np.ndindex(A.shape):
        step = np.zeros(A.shape)
        step[k] = h
        derivative = (standardized(A + step) - standardized(A - step)) / (2 * h)
        np.testing.assert_allclose(x.grad.numpy()[k], derivative, rtol=1e-7)


def test_what_the_namespace_says_of_itself() -> None:
    xp = tg.array_api
    info = xp.__array_namespace_info__()
    assert xp.__array_api_version__ == "2024.12"
    assert tg.tensor(1.0).__array_namespace__() is xp
    with pytest.raises(ValueError, match=r"no version '2020\.1'"):
        tg.tensor(1.0).__array_namespace__(api_version="2020.1")
    assert info.devices() == [info.default_device()] == ["cpu"]
    assert info.capabilities()["boolean indexing"] is True
    assert info.default_dtypes()["real floating"] == xp.float64
    assert set(info.dtypes(kind="bool")) == {"bool"}
    assert {name: getattr(xp, name) for name in info.dtypes()} == info.dtypes()


def test_arrays_are_made_of_what_is_there() -> None:
    xp = tg.array_api
    x = tg.tensor(A)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True) is not x
    assert xp.asarray(x, dtype=xp.float32).dtype == np.float32
    assert xp.from_dlpack(V).tolist() == V.tolist()
    assert xp.sort(tg.tensor(V), descending=True).tolist() == [3.0, 2.0, 1.0]
    with pytest.raises(ValueError, match="no device"):
        xp.asarray(1.0, device="tpu")
    with pytest.raises(ValueError, match="avoid copy"):
        xp.asarray(x, dtype=xp.float32, copy=False)


def test_promotion_leads_to_no_other_kind() -> None:
    xp = tg.array_api
    kinds = [("bool",), ("int8", "uint8", "int64"), ("float32", "complex64", "complex128")]
    for own in kinds:
        for name in own:
            allowed = {to for each in kinds for to in each if xp.can_cast(getattr(xp, name), getattr(xp, to))}
            assert allowed <= set(own)
            assert name in allowed
    assert xp.can_cast(tg.tensor(V), xp.complex128)
    assert not xp.can_cast(xp.int64, xp.uint8)


def test_frequencies_have_the_dtype_that_is_asked_for() -> None:
    for name in ("fftfreq", "rfftfreq"):
        result = getattr(tg.array_api.fft, name)(6, d=0.5, dtype=np.float32)
        np.testing.assert_array_equal(result.numpy(), getattr(np.fft, name)(6, 0.5).astype(np.float32), strict=True)


def test_a_tensor_is_on_the_only_device() -> None:
    x = tg.tensor(A)
    assert x.to_device(x.device) is x
    with pytest.raises(ValueError, match="no device"):
        x.to_device("tpu")
