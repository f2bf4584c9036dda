"""Registry of the NumPy functions in `lazy`, whose modules are imported at the first call."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import peer_of
from tracegrad.numpy_api.registry import FUNCTIONS, UFUNC_METHODS, refuse
from tracegrad.tree import register_pytree_node

# The names after `np.`, by module.
MODULES = {
    "nanfunctions": "nanmin nanmax nanprod nanvar nanstd nancumsum nancumprod nanargmin nanargmax",
    "quantiles": "median percentile quantile nanmedian nanpercentile nanquantile",
    "statistics": "average cov corrcoef",
    "ranges": "geomspace linspace logspace",
    "histograms": "histogram histogram_bin_edges histogram2d histogramdd bincount digitize",
    "sampled_functions": "interp gradient convolve correlate unwrap",
    "polynomials": "vander poly polyfit polyadd polysub polymul polydiv polyder polyint polyval",
    "editing": "insert delete resize put place putmask copyto fill_diagonal put_along_axis choose array_equiv",
    "bits": "packbits unpackbits",
    "index_tricks": (
        "diag_indices_from tril_indices_from triu_indices_from unravel_index ravel_multi_index isin lexsort"
    ),
    "unique": "unique unique_all unique_counts unique_inverse unique_values",
    "sets": "union1d intersect1d setdiff1d setxor1d trim_zeros",
    "functional": "apply_along_axis apply_over_axes piecewise",
    "pad": "pad",
    "tensors": "einsum_path linalg.tensorsolve linalg.tensorinv",
    "eig": "linalg.eig linalg.eigvals roots sort_complex",
    "lstsq": "linalg.lstsq",
    "fft": (
        "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 "
        "fft.fftn fft.ifftn fft.rfftn fft.irfftn fft.fftshift fft.ifftshift"
    ),
    "emath": (
        "emath.sqrt emath.log emath.log2 emath.log10 emath.logn emath.power emath.arccos emath.arcsin emath.arctanh"
    ),
    "stride_tricks": "lib.stride_tricks.sliding_window_view lib.stride_tricks.as_strided",
}


class _Deferred:
    """Placeholder of a function until its module is imported."""

    def __init__(self, module: str, table: dict[Any, Any], key: object):
        self.module, self.table, self.key = f"{__package__}.lazy.{module}", table, key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import_module(self.module)
        return self.table[self.key](*args, **kwargs)


def _function(path: str) -> Any:
    result: Any = np
    for name in path.split("."):
        result = getattr(result, name)
    return result


for _module, _paths in MODULES.items():
    for _function_at in map(_function, _paths.split()):
        FUNCTIONS[_function_at] = _Deferred(_module, FUNCTIONS, _function_at)
for _method in ("reduce", "accumulate", "reduceat", "outer", "at", "axes"):
    UFUNC_METHODS["", _method] = _Deferred("ufunc_methods", UFUNC_METHODS, ("", _method))


# -- functions that do not dispatch ------------------------------------------------------------------------------------
class _Shadow:
    """Replacement in traced code of a NumPy function or class that does not dispatch."""

    def __init__(self, name: str, module: str = "iteration"):
        self.name, self.module = name, module

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return getattr(import_module(f"{__package__}.lazy.{self.module}"), self.name)(*args, **kwargs)


class _Joining:
    """Replacement in traced code of `np.r_` or `np.c_`."""

    def __init__(self, *how: int):
        self.how = how

    def __getitem__(self, key: object) -> Any:
        return import_module(f"{__package__}.lazy.iteration").joined(key, *self.how)


class _MeshgridIndexer:
    """Replacement in traced code of `np.mgrid` or `np.ogrid`, for traced ends or steps."""

    def __init__(self, real: Any):
        self.real = real

    def __getitem__(self, key: Any) -> Any:
        slices = key if isinstance(key, tuple) else (key,)
        if (
            peer_of(*[x for each in slices if isinstance(each, slice) for x in (each.start, each.stop, each.step)])
            is None
        ):
            return self.real[key]
        return import_module(f"{__package__}.lazy.iteration").grid(key, self.real.sparse)


class Unless:
    """NumPy function or class in traced code that refuses traced arguments."""

    def __init__(self, real: Any, name: str, instead: str):
        self.real, self.name, self.instead = real, name, instead

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if peer_of(*args, *kwargs.values()) is not None:
            raise refuse(self.name, self.instead)
        return self.real(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


# The replacement of a call of `np.poly1d`.
POLYNOMIAL = _Shadow("polynomial", "polynomials")
register_pytree_node(np.poly1d, lambda p: ((p.coeffs,), p.variable), _Shadow("of_coefficients", "polynomials"))
MATRICES = "use arrays of two axes, whose product is x @ y"
# Replacements, by name, of functions and objects that would convert their arguments to ndarrays.
SHADOWS: dict[str, Any] = {
    "vectorize": _Shadow("Vectorized"),
    "nditer": _Shadow("NDIter"),
    "ndenumerate": _Shadow("NDEnumerate"),
    "broadcast": _Shadow("Broadcast"),
    "fromiter": _Shadow("fromiter"),
    "frompyfunc": _Shadow("frompyfunc"),
    "asarray_chkfinite": _Shadow("asarray_chkfinite"),
    "r_": _Joining(0, 1, -1),
    "c_": _Joining(-1, 2, 0),
    "mgrid": _MeshgridIndexer(np.mgrid),
    "ogrid": _MeshgridIndexer(np.ogrid),
} | {name: Unless(getattr(np, name), f"np.{name}", MATRICES) for name in ("asmatrix", "bmat")}
