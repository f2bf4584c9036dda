"""NumPy's own functions of linear algebra, and the transpose of matrices that autograd has beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.utils.lazy_import import mirrored

__getattr__, __dir__ = mirrored(globals(), "numpy.linalg")


def T(x: Any) -> Any:
    """The transposes of matrices.

    >>> T(np.array([[1.0, 2.0]]))
    array([[1.],
           [2.]])
    """
    return np.swapaxes(x, -1, -2)


def _dot(x: Any, y: Any) -> Any:
    return np.einsum("...ij,...jk->...ik", x, y)
