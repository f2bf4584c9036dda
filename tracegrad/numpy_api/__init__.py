"""NumPy front end: operators, methods, functions and array creation for carried values, over the ops."""

from tracegrad.numpy_api import (
    boolean_mask,
    compress,
    creation,
    indexing,
    joining,
    lazy_registry,
    linalg,
    memory_layout,
    products,
    reductions,
    selection,
    shapes,
    sorting,
    ufuncs,
)
from tracegrad.numpy_api import complex as complex_numbers
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.registry import implements, supported

__all__ = [
    "ArrayMethods",
    "boolean_mask",
    "complex_numbers",
    "compress",
    "creation",
    "implements",
    "indexing",
    "joining",
    "lazy_registry",
    "linalg",
    "memory_layout",
    "products",
    "reductions",
    "selection",
    "shapes",
    "sorting",
    "supported",
    "ufuncs",
]
