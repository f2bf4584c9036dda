"""NumPy's face of a carried value: operators, methods, functions and array creation over the ops."""

from tracegrad.numpy_api import creation, indexing, joining, products, reductions, selection, shapes, special, ufuncs
from tracegrad.numpy_api.methods import ArrayMethods
from tracegrad.numpy_api.registry import implements, supported

__all__ = [
    "ArrayMethods", "creation", "implements", "indexing", "joining", "products", "reductions", "selection", "shapes",
    "special", "supported", "ufuncs",
]  # fmt: skip
