"""Storages of PyTorch: the names of their types and dtypes, and the NumPy arrays that they are here."""

from __future__ import annotations

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.core.dims import TYPE_NAMES
from tracegrad.torch.tape.tensors.dtypes import DTYPES, bfloat16
from tracegrad.typing import NDArray

BFLOAT16 = "bfloat16"


class StorageType(NamedTuple):
    """Type of a storage in a file: the name of its dtype, which is bytes for a storage without a type."""

    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype == BFLOAT16 else DTYPES[self.dtype].itemsize


STORAGE_TYPES = {
    **{f"torch.{stem}Storage": StorageType(name) for name, stem in TYPE_NAMES.items()},
    "torch.BFloat16Storage": StorageType(BFLOAT16),
    "torch.UntypedStorage": StorageType("uint8"),
    "torch.storage.UntypedStorage": StorageType("uint8"),
}

# Dtypes under the names that a file has for them.
DTYPE_NAMES: dict[str, Any] = {
    **{f"torch.{dtype.name}": dtype for dtype in DTYPES.values()},
    "torch.bfloat16": bfloat16,
}


def typed(data: NDArray, kind: str, byteorder: str) -> NDArray:
    """Return the bytes of a storage as an array of a dtype. bfloat16 becomes float32, with a UserWarning."""
    order: Literal["<", ">"] = ">" if byteorder == "big" else "<"
    if kind == BFLOAT16:
        text = "load: NumPy has no bfloat16; the values are loaded as float32"
        warnings.warn(located(text), UserWarning, stacklevel=2)
        words = data.view(np.dtype(np.uint16).newbyteorder(order))
        return (words.astype(np.uint32) << 16).view(np.float32)
    dtype = DTYPES[kind]
    array = data.view(dtype.newbyteorder(order))
    return array if array.dtype == dtype else array.astype(dtype)
