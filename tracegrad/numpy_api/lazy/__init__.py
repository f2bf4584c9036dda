"""Functions of NumPy's that programs call less often: modules that are imported when one of them is first called.

`tracegrad.numpy_api.lazy_registry` lists them.
"""
