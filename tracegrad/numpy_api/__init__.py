"""NumPy's face of a carried value: operators, methods, functions and array creation over the ops."""

from tracegrad.numpy_api import boolean_mask as chosen
from tracegrad.numpy_api import complex as complex_numbers
from tracegrad.numpy_api import compress as by_value
from tracegrad.numpy_api import (
    creation,
    indexing,
    joining,
    linalg,
    products,
    reductions,
    selection,
    shapes,
    sorting,
    ufuncs,
)
from tracegrad.numpy_api import lazy_registry as deferred
from tracegrad.numpy_api import memory_layout as memory
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.registry import implements, supported

__all__ = [
    "ArrayMethods", "by_value", "chosen", "complex_numbers", "creation", "deferred", "implements", "indexing",
    "joining", "linalg", "memory", "products", "reductions", "selection", "shapes", "sorting", "supported", "ufuncs",
]  # fmt: skip
