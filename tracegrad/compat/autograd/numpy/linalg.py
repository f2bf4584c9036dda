"""NumPy's own linear algebra, and autograd's matrix transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy.linalg")


def T(x: Any) -> Any:
    """Transpose matrices.

    >>> T(np.array([[1.0, 2.0]]))
    array([[1.],
           [2.]])
    """
    return np.swapaxes(x, -1, -2)


def _dot(x: Any, y: Any) -> Any:
    return np.einsum("...ij,...jk->...ik", x, y)
