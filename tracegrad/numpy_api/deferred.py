"""Which functions of NumPy's are found in the modules of `on_demand`, which are imported when one of them is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tracegrad.numpy_api.registry import FUNCTIONS, UFUNC_METHODS

__all__ = ["MODULES"]

# The names behind `np.`, by module.
MODULES = {
    "nans": "nanmin nanmax nanprod nanvar nanstd nancumsum nancumprod nanargmin nanargmax",
    "quantiles": "median percentile quantile nanmedian nanpercentile nanquantile",
    "statistics": "cov corrcoef",
    "histograms": "histogram histogram_bin_edges histogram2d histogramdd bincount digitize",
    "samples": "interp gradient convolve correlate unwrap",
    "polynomials": "vander poly polyfit polyadd polysub polymul polydiv polyder polyint",
    "editing": "insert delete resize put place putmask copyto fill_diagonal put_along_axis choose compress extract "
    "array_equiv",
    "places": "diag_indices_from tril_indices_from triu_indices_from unravel_index ravel_multi_index isin lexsort",
    "functional": "apply_along_axis apply_over_axes piecewise",
    "padding": "pad",
    "tensors": "einsum_path linalg.tensorsolve linalg.tensorinv",
    "strides": "lib.stride_tricks.sliding_window_view lib.stride_tricks.as_strided",
}


class _Deferred:
    """Stands for a function until its module has been imported."""

    def __init__(self, module: str, table: dict[Any, Any], key: Any):
        self.module, self.table, self.key = f"{__package__}.on_demand.{module}", table, key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import_module(self.module)
        return self.table[self.key](*args, **kwargs)


def _function(path: str) -> Any:
    found: Any = np
    for name in path.split("."):
        found = getattr(found, name)
    return found


for _module, _paths in MODULES.items():
    for _function_at in map(_function, _paths.split()):
        FUNCTIONS[_function_at] = _Deferred(_module, FUNCTIONS, _function_at)
for _method in ("reduce", "accumulate", "reduceat", "outer", "at"):
    UFUNC_METHODS["", _method] = _Deferred("ufunc_methods", UFUNC_METHODS, ("", _method))
