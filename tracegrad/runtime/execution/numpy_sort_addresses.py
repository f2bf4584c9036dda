"""Find the addresses of NumPy's sort routines, which sort a row in memory (`tracegrad.codegen.libs.sorting`).

Each dtype has a table of functions, `PyArray_ArrFuncs` (numpy/dtype_api.h and ndarraytypes.h), which has been part of
NumPy's ABI since NumPy 2. `np.sort` calls its entries: the best sort that NumPy has for this CPU.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from tracegrad.avals import dtype_named
from tracegrad.runtime.execution.entry_callable import numpy_table, unsupported_reason

_TABLE_OF_DTYPE = 365  # PyDataType_GetArrFuncs in NumPy's C API table
_CASTS, _OTHERS = 21, 12  # functions before the sorts in the table
_KINDS = ("quick", "heap", "stable")


@cache
def sort_address(name: str) -> int:
    """The address of `tg_sort.<dtype>` or `tg_argsort.<dtype>`, or of the stable version (`.stable`); 0 if it is not
    known.

    >>> sort_address("tg_sort.f64") != sort_address("tg_argsort.f64.stable")
    True
    """
    if unsupported_reason() is not None or np.lib.NumpyVersion(np.__version__).major != 2:
        return 0
    routine, dtype, *kind = name.split(".")
    functions = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(numpy_table()[_TABLE_OF_DTYPE])
    index = _CASTS + _OTHERS + len(_KINDS) * (routine == "tg_argsort") + _KINDS.index((*kind, "quick")[0])
    address = functions(dtype_named(dtype))
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_size_t))[index] if address else 0
