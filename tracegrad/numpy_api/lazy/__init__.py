"""Rarely used NumPy functions, in modules that are imported at the first call.

`tracegrad.numpy_api.lazy_registry` lists them.
"""
