"""Type promotion: PyTorch's rules for the dtype of an operation, and the default dtype.

Categories are ordered: boolean, integer, floating, complex. The operand of the highest category decides the category of
the result. The precision comes from Tensors with dimensions if they are of that category, then from Tensors without
dimensions, then from numbers of Python and NumPy. So float32 stays float32 with integers, with `np.sqrt(2)`, and with a
float64 without dimensions. If no operand is floating and the result is, it has the default dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, weak_dtype
from tracegrad.errors import DTypeError, located
from tracegrad.numpy_api import reductions
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.ops.shape.linear import cast
from tracegrad.torch.functions.core.dims import type_name
from tracegrad.torch.modes import DEFAULT

if TYPE_CHECKING:
    from tracegrad.typing import Array, DType


_SORTS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int64)
_COMPLEX = {"float16": "complex64", "float32": "complex64", "float64": "complex128"}


def default_dtype() -> DType:
    """Return the default dtype; an active trace depends on it from now on."""
    trace: Any = active_recorder()
    if hasattr(trace, "tensors"):
        trace.tensors.note_default_dtype()
    return DEFAULT.dtype


def default_complex() -> DType:
    """Return the dtype of a Tensor of Python complex numbers: its parts have the default dtype,
    or float32 if that is float16."""
    return _complex_of(default_dtype())


def _complex_of(dtype: DType) -> DType:
    return dtype if dtype.kind == "c" else np.dtype(_COMPLEX[dtype.name])


def promote_types(x: DType, y: DType) -> DType:
    """Return the smallest dtype that both promote to; floating dtypes keep their precision with integers."""
    low, high = sorted((x, y), key=lambda dtype: _SORTS[dtype.kind])
    return high if _SORTS[low.kind] < 2 <= _SORTS[high.kind] else np.promote_types(x, y)


def number_dtype(kind: type) -> DType:
    """Return the dtype of Python numbers of a class."""
    if kind is float:
        return default_dtype()
    return default_complex() if kind is complex else _BOOL if kind is bool else _INT


def _combined(first: DType | None, second: DType | None) -> DType | None:
    """Return the dtype of a result of operands of dtype `first` and of less important operands of dtype `second`."""
    if first is None or second is None:
        return second if first is None else first
    if _SORTS[second.kind] <= _SORTS[first.kind]:
        return first
    return promote_types(first, _complex_of(first)) if second.kind == "c" and first.kind == "f" else second


def common_dtype(kinds: Sequence[tuple[Any, int]]) -> DType:
    """Return the result dtype of operands: dtypes or Python types of numbers, each with its number of dimensions.

    >>> common_dtype([(np.dtype("float32"), 1), (np.dtype("int64"), 1), (np.dtype("float64"), 0)])
    dtype('float32')
    """
    dtypes: list[DType | None] = [None, None, None]
    for kind, rank in kinds:
        priority = 2 if isinstance(kind, type) else 0 if rank else 1
        dtype = number_dtype(kind) if isinstance(kind, type) else kind
        before = dtypes[priority]
        dtypes[priority] = dtype if before is None else promote_types(before, dtype)
    dtype = _combined(_combined(dtypes[0], dtypes[1]), dtypes[2])
    assert dtype is not None
    return dtype


_C_TYPES = {
    "float16": "c10::Half",
    "float32": "float",
    "float64": "double",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
}


def accumulator(x: Array) -> DType:
    """Return the dtype in which `x` is summed: int64 for Tensors of integers and booleans, else NumPy's."""
    if getattr(x, "common_dtype", None) is not None and x.dtype.kind in "bui":
        return _INT
    return reductions.accumulator(x.dtype)


_PRODUCT = "expected m1 and m2 to have the same dtype, but got: {a} != {b}"


def require_one_dtype(x: Any, y: Any, text: str = _PRODUCT) -> None:
    """Raise RuntimeError for Tensors of two dtypes, in functions for which PyTorch does not promote.

    In `text`, {a} and {b} are the dtypes by their C names, {A} and {B} by PyTorch's class names.
    """
    if getattr(x, "common_dtype", None) is None or getattr(y, "common_dtype", None) is None or x.dtype == y.dtype:
        return
    a, b = (_C_TYPES.get(v.dtype.name, v.dtype.name) for v in (x, y))
    raise RuntimeError(located(text.format(a=a, b=b, A=type_name(x.dtype), B=type_name(y.dtype))))


# -- operands ------------------------------------------------------------------------------------------------------
def _kind(x: Array) -> tuple[DType | type, int]:
    return weak_dtype(x), 0 if type(x) in LITERALS else len(x.shape)


def in_one_dtype(op: object, xs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert the operands `xs` of an op to the dtypes of PyTorch's promotion, before NumPy would promote them."""
    if not isinstance(op, Elementwise) or _is_alike(xs):
        return xs
    kinds = [_kind(x) for x in xs]
    try:
        loop = op.loop_dtypes(*[kind for kind, _ in kinds])[:-1]
    except DTypeError:
        return xs
    operands = list(xs)
    for dtype in set(loop):
        group = [k for k, each in enumerate(loop) if each == dtype]
        wanted = _wanted(dtype, [kinds[k] for k in group])
        for k in group:
            kind = kinds[k][0]
            if not isinstance(kind, type) and kind != wanted and wanted != dtype:
                operands[k] = cast(xs[k], dtype=wanted.name)
    return tuple(operands)


def _wanted(dtype: DType, kinds: list[tuple[DType | type, int]]) -> DType:
    """Return the dtype in which operands of the dtypes or types `kinds` are computed, where NumPy uses `dtype`."""
    if dtype.kind == "b" or all(isinstance(kind, type) for kind, _ in kinds):
        return dtype
    wanted = common_dtype(kinds)
    if dtype.kind in "fc" and wanted.kind in "biu":
        wanted = default_dtype()
    return wanted if _SORTS[wanted.kind] == _SORTS[dtype.kind] else dtype


def _is_alike(xs: tuple[Any, ...]) -> bool:
    """Whether all operands except numbers are floating of one dtype."""
    dtype = None
    for x in xs:
        if type(x) in LITERALS:
            if type(x) is complex:
                return False
        elif dtype is None:
            dtype = x.dtype
        elif x.dtype is not dtype:
            return False
    return dtype is not None and dtype.kind in "fc"
