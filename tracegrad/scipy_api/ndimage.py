"""`scipy.ndimage`: filters that are linear in the image. Along an axis each is a matrix, which SciPy itself makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.op import lead
from tracegrad.scipy_api.registry import shadow
from tracegrad.scipy_api.signal import over_windows

__all__: list[str] = []


def _along(name: str, x: Any, axis: int, *args: Any, **kwargs: Any) -> Any:
    """The filter `name` of SciPy's along an axis: the matrix that it makes of the identity, and what it adds."""
    import scipy.ndimage

    if lead((*args, *kwargs.values())) is not None:
        raise refuse(f"scipy.ndimage.{name} with traced parameters", "only the image may be traced")
    filtered = getattr(scipy.ndimage, name)
    n = x.shape[axis]
    added = filtered(np.zeros(n), *args, **kwargs)
    matrix = filtered(np.eye(n), *args, axis=0, **kwargs) - added[:, None]
    found = np.moveaxis(np.tensordot(matrix.astype(x.dtype), x, axes=(1, axis)), 0, axis)
    if np.any(added):
        found = found + added.astype(x.dtype).reshape([n if i == axis else 1 for i in range(len(x.shape))])
    return found


def _one_axis(name: str) -> None:
    @shadow(f"scipy.ndimage.{name}")
    def filtered(input: Any, parameter: Any, axis: int = -1, *args: Any, output: Any = None, **kwargs: Any) -> Any:
        if output is not None or (args and name != "gaussian_filter1d"):
            raise refuse(f"the argument output= of scipy.ndimage.{name}", "give arguments by keyword")
        x = to_float(arrays(input)[0])
        return _along(name, x, axis % len(x.shape), parameter, **({"order": args[0]} if args else {}), **kwargs)


for _name in ("correlate1d", "convolve1d", "gaussian_filter1d", "uniform_filter1d"):
    _one_axis(_name)


@shadow("scipy.ndimage.gaussian_filter")
def gaussian_filter(input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect",
                    cval: float = 0.0, truncate: float = 4.0, *, radius: Any = None,
                    axes: Any = None) -> Any:  # fmt: skip
    """`scipy.ndimage.gaussian_filter`"""
    if output is not None:
        raise refuse("the argument output= of scipy.ndimage.gaussian_filter")
    x = to_float(arrays(input)[0])
    along = range(len(x.shape)) if axes is None else [a % len(x.shape) for a in np.atleast_1d(axes).tolist()]
    each = [v if isinstance(v, list | tuple) else [v] * len(along) for v in (sigma, order, mode, radius)]
    for axis, s, o, m, r in zip(along, *each):
        if s > 1e-15:
            x = _along("gaussian_filter1d", x, axis, s, order=o, mode=m, cval=cval, truncate=truncate, radius=r)
    return x


_PADDING = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}


def _correlated(name: str, input: Any, weights: Any, output: Any, mode: str, cval: float, origin: Any,
                flipped: bool) -> Any:  # fmt: skip
    if output is not None:
        raise refuse(f"the argument output= of scipy.ndimage.{name}")
    if mode not in _PADDING or origin not in (0, (0,), [0]):
        raise refuse(f"scipy.ndimage.{name} with mode={mode!r} and origin={origin!r}")
    x, w = (to_float(v) for v in arrays(input, weights))
    w = np.flip(w) if flipped else w
    before = [(n - 1) // 2 if flipped else n // 2 for n in w.shape]
    sides = [(b, n - 1 - b) for b, n in zip(before, w.shape)]
    extra = {"constant_values": cval} if mode == "constant" else {}
    wide = np.pad(x, sides, mode=_PADDING[mode], **extra)  # type: ignore[call-overload]
    return over_windows(wide, w)


@shadow("scipy.ndimage.correlate")
def correlate(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0,
              origin: Any = 0) -> Any:  # fmt: skip
    """`scipy.ndimage.correlate`"""
    return _correlated("correlate", input, weights, output, mode, cval, origin, flipped=False)


@shadow("scipy.ndimage.convolve")
def convolve(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0,
             origin: Any = 0) -> Any:  # fmt: skip
    """`scipy.ndimage.convolve`"""
    return _correlated("convolve", input, weights, output, mode, cval, origin, flipped=True)
