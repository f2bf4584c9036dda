"""NumPy's face of a carried value: operators, methods, functions and array creation over the ops."""

from tracegrad.numpy_api import (
    by_value,
    chosen,
    complex_numbers,
    creation,
    deferred,
    indexing,
    joining,
    linalg,
    memory,
    products,
    reductions,
    selection,
    shapes,
    sorting,
    ufuncs,
)
from tracegrad.numpy_api.methods import ArrayMethods
from tracegrad.numpy_api.registry import implements, supported

__all__ = [
    "ArrayMethods", "by_value", "chosen", "complex_numbers", "creation", "deferred", "implements", "indexing",
    "joining", "linalg", "memory", "products", "reductions", "selection", "shapes", "sorting", "supported", "ufuncs",
]  # fmt: skip
