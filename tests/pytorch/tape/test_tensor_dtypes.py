"""Dtypes of Tensors: PyTorch's attributes and text, and NumPy takes them for its own."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.tensor_dtype import TensorDType

NAMES = ["float16", "float32", "float64", "complex64", "complex128"]
NAMES += ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_has_pytorchs_attributes_and_is_numpys_dtype(name: str) -> None:
    dtype: Any = getattr(tg, name)
    numpys = np.dtype(name)
    assert tg.zeros(2, dtype=dtype).dtype is dtype is tg.zeros(2, dtype=name).dtype
    assert (repr(dtype), str(dtype)) == (f"torch.{name}",) * 2
    assert dtype.is_floating_point == (numpys.kind == "f")
    assert dtype.is_complex == (numpys.kind == "c")
    assert dtype.is_signed == (numpys.kind in "ifc")
    assert isinstance(dtype, tg.dtype)
    assert isinstance(dtype, np.dtype)
    assert dtype == numpys
    assert numpys == dtype
    assert dtype == numpys.type
    assert {numpys: 1}[dtype] == {dtype: 1}[numpys] == 1
    assert np.zeros(2, dtype).dtype is np.dtype(dtype)
    assert np.zeros(2).astype(dtype).dtype == numpys
    assert np.promote_types(dtype, "int8") == np.promote_types(numpys, "int8")
    assert np.issubdtype(dtype, numpys.type)
    assert np.can_cast("int8", dtype) == np.can_cast("int8", numpys)
    assert np.result_type(dtype, np.int8) == np.result_type(numpys, np.int8)
    assert (dtype.type, dtype.itemsize, dtype.name, dtype.char) == (numpys.type, numpys.itemsize, name, numpys.char)


@pytest.mark.parametrize("name", [*NAMES, "bfloat16"])
def test_there_is_one_object_of_a_dtype(name: str) -> None:
    dtype = getattr(tg, name)
    assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is copy.copy(dtype) is dtype
    assert TensorDType(name) is TensorDType(f"torch.{name}") is TensorDType(dtype) is dtype
    assert [dtype == getattr(tg, other) for other in (*NAMES, "bfloat16")].count(True) == 1


def test_real_and_complex_dtypes_of_one_precision() -> None:
    assert (tg.float32.to_complex(), tg.float64.to_complex()) == (tg.complex64, tg.complex128)
    assert (tg.complex64.to_real(), tg.complex128.to_real()) == (tg.float32, tg.float64)
    assert tg.int32.to_complex() is tg.int32.to_real() is tg.int32
    assert tg.complex64.to_complex() is tg.complex64
    with pytest.raises(tg.DTypeError, match="no complex dtype of float16 parts"):
        tg.float16.to_complex()


def test_what_is_no_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="data type 'float31' not understood"):
        tg.dtype("float31")
    with pytest.raises(AttributeError, match="is_quantized"):
        _ = tg.float32.is_quantized
    with pytest.raises(tg.DTypeError, match="does not support bfloat16"):
        np.zeros(2, tg.bfloat16)
    assert not isinstance(tg.bfloat16, np.dtype)
    assert isinstance(tg.bfloat16, tg.dtype)
    assert not isinstance(3.0, tg.dtype)


def test_a_traced_step_asks_a_dtype_and_takes_another_one_by_another_trace() -> None:
    wanted = tg.float32

    @tg.trace
    def f(x: Any, other: Any = tg.float64) -> Any:
        y = x.to(wanted) if x.dtype.is_floating_point and x.dtype is not wanted else x * 2
        return y, y.to(other), np.ones(2, x.dtype) * x.numpy()

    for _ in range(3):
        y, z, n = f(tg.ones(2, dtype=tg.float64))
        assert (y.dtype, z.dtype, n.dtype) == (tg.float32, tg.float64, np.float64)
        y, z, n = f(tg.ones(2, dtype=tg.int64), tg.float16)
        assert (y.dtype, z.dtype, n.dtype) == (tg.int64, tg.float16, np.int64)
    wanted = tg.float16
    assert f(tg.ones(2, dtype=tg.float64))[0].dtype is tg.float16


def test_functions_of_dtypes_give_dtypes_of_tensors() -> None:
    results = [
        tg.get_default_dtype(),
        tg.promote_types(tg.float32, tg.int64),
        tg.result_type(tg.ones(2, dtype=tg.float32), 1.5),
        tg.FloatTensor.dtype,
        tg.nn.Linear(2, 2).weight.dtype,
        tg.ones(2).detach().dtype,
    ]
    assert {type(x) for x in results} == {TensorDType}
    assert tg.finfo(tg.float32).eps == np.finfo("float32").eps
    assert tg.finfo(tg.complex64).max == np.finfo("float32").max
    assert tg.iinfo(tg.int8).max == 127
