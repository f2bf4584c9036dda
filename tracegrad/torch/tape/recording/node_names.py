"""PyTorch's names of tape nodes, and of their saved values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import add, divide, multiply, subtract

if TYPE_CHECKING:
    from tracegrad.typing import DType


_STEMS = {
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "power": "Pow", "absolute": "Abs",
    "square": "Pow", "reduce_max": "Amax", "reduce_min": "Amin", "reduce_prod": "Prod", "reduce_sum": "Sum",
    "broadcast_to": "Expand", "cast": "ToCopy", "matmul": "Bmm", "gather": "Index", "concatenate": "Cat",
    "transpose": "Permute", "fresh": "Clone", "reshape": "View", "arcsin": "Asin", "arccos": "Acos",
    "arctan": "Atan", "arctan2": "Atan2", "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh",
    "scatter_add": "IndexPut", "pad": "ConstantPadNd", "rint": "Round",
}  # fmt: skip


def node_name(op: Op) -> str:
    """Return the name of the node of `op`.

    >>> from tracegrad.ops import TABLE
    >>> node_name(TABLE["multiply"]), node_name(TABLE["exp"])
    ('MulBackward0', 'ExpBackward0')
    """
    stem = _STEMS.get(op.name) or "".join(word.capitalize() for word in op.name.split("_"))
    return f"{stem}Backward0"


def wraps_numbers(op: Op) -> bool:
    """Whether PyTorch converts a number operand to an array, for which the node then has an edge."""
    return op in _ARITHMETIC


_ARITHMETIC = frozenset({add, subtract, multiply, divide})

_OPERANDS = {
    "pow": ("self", "exponent"),
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
    "where": ("condition", "self", "other"),
    "clamp": ("self", "min", "max"),
    "max": ("self", "indices"),
    "min": ("self", "indices"),
    "median": ("self", "indices"),
    "lerp": ("self", "end", "weight"),
    "addcmul": ("self", "tensor1", "tensor2"),
    "addcdiv": ("self", "tensor1", "tensor2"),
    "addmm": ("self", "mat1", "mat2"),
    "index": ("self", "indices"),
    "gather": ("self", "index"),
    "mseloss": ("self", "target"),
    "linalgsolveex": ("A", "B"),
}


def _stem(name: str) -> str:
    return name.rstrip("0123456789").removesuffix("Backward").lower()


def saved_names(name: str, count: int) -> tuple[str, ...]:
    """Return the names of the operands of the node `name`, in order, if there are `count`.

    >>> saved_names("PowBackward0", 2), saved_names("WhereBackward0", 3)
    (('self', 'exponent'), ('condition', 'self', 'other'))
    """
    known = _OPERANDS.get(_stem(name), ("self", "other"))
    return known[:count] if count <= len(known) else tuple([f"tensors_{k}" for k in range(count)])


def saved_result(k: int, count: int, dtype: DType) -> str:
    """Return the node's name for its result `k` of `count`; integer results are indices.

    >>> import numpy as np
    >>> saved_result(0, 1, np.dtype("float64")), saved_result(1, 2, np.dtype("int64"))
    ('result', 'indices')
    """
    return "indices" if dtype.kind == "i" else "result" if count == 1 else f"result{k}"


_OF_ONE_DIM = {"softmax", "logsoftmax", "cumsum", "cumprod", "sort", "topk", "cat", "stack", "logcumsumexp"}
_REDUCTIONS = {"sum", "mean", "var", "std", "prod", "amax", "amin", "logsumexp", "max", "min", "median", "norm"}


def saved_options(name: str, params: dict[str, Any], shape: Any, result: Any) -> dict[str, Any]:
    """Return the options that the node `name` saves of `params`; `shape` and `result` are the shapes.

    >>> saved_options("SumBackward1", {"axes": (1,)}, (2, 3), (2,))
    {'dim': (1,), 'keepdim': False}
    """
    stem, options = _stem(name), {}
    if stem in ("add", "sub"):
        return {"alpha": 1}
    for key, value in params.items():
        if key in ("axes", "axis"):
            options["dim"] = value[0] if stem in _OF_ONE_DIM and isinstance(value, tuple) else value
        elif key == "ddof":
            options["correction"] = value
        elif key == "perm" and stem == "transpose":
            options["dim0"], options["dim1"] = [k for k, position in enumerate(value) if k != position] or (0, 0)
        elif key == "perm":
            options.update({"dims": value} if stem == "permute" else {})
        else:
            options[key] = value
    if stem in _REDUCTIONS and "dim" in options:
        options["keepdim"] = len(shape) == len(result)
    return options
