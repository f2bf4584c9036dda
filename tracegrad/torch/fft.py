"""Namespace of `torch.fft`: discrete Fourier transforms, computed by NumPy and recorded.

`norm` is "backward" (the inverse is divided by n), "ortho", or "forward". `dim` is the dimension, or dimensions, and
`n` or `s` the lengths to which they are cut or padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.core.operands import as_array
from tracegrad.torch.functions.core.out import with_out
from tracegrad.torch.tape.tensors.dtypes import get_default_dtype
from tracegrad.torch.tape.tensors.factories import tensor
from tracegrad.typing import Axes

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array, DeviceLike, DTypeLike


_WHAT = {
    "fft": "discrete Fourier transform",
    "ifft": "inverse of `fft`",
    "rfft": "discrete Fourier transform of real numbers, without the negative frequencies",
    "irfft": "inverse of `rfft`, whose result is real",
    "hfft": "discrete Fourier transform of half of a signal with Hermitian symmetry, whose result is real",
    "ihfft": "inverse of `hfft`",
}

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_DOC = """Compute the {what}{over}.

Parameters
----------
input : Tensor or ndarray
    Input.
{length}
{dim}
norm : {{"backward", "ortho", "forward"}}, optional
    Which of the transform and its inverse is divided by n, or whether both are divided by its square root.

Returns
-------
Tensor or ndarray
    Transform.

Examples
--------
>>> import tracegrad as tg
>>> tg.fft.{name}(tg.ones(2, 4)).shape
torch.Size([2, {count}])
"""
_COUNTS = {"rf": 3, "irf": 6, "hf": 6, "ihf": 3}  # elements of 4, by the letters before "ft"


def _described(call: Callable[..., object], name: str, over: str, length: str, dim: str) -> Callable[..., object]:
    call.__name__ = call.__qualname__ = name
    kind = name.rstrip("n2")
    count = _COUNTS.get(kind.removesuffix("ft"), 4)
    call.__doc__ = _DOC.format(name=name, what=_WHAT[kind], over=over, length=length, dim=dim, count=count)
    return with_out(name, call)


def _described_of_several(
    call: Callable[..., object], name: str, default: tuple[int, int] | None
) -> Callable[..., object]:
    length = "s : sequence of int, optional\n    Lengths of the dimensions; -1 keeps a length."
    dims = f"dim : int or sequence of int, default {default}\n    Dimensions; by default all, or as many as `s` has."
    return _described(call, name, " over several dimensions", length, dims)


def _of_one(name: str) -> Callable[..., object]:
    numpys = getattr(np.fft, name)

    def call(input: Array, n: int | None = None, dim: int = -1, norm: str | None = None) -> Array:
        result: Array = numpys(as_array(input), n, dim, norm)
        return result

    length = "n : int, optional\n    Length of the dimension."
    return _described(call, name, " along a dimension", length, "dim : int, default -1\n    Dimension.")


def _of_several(name: str, default: tuple[int, int] | None) -> Callable[..., object]:
    numpys = getattr(np.fft, f"{name[:-1]}n")

    def call(input: Array, s: Sequence[int] | None = None, dim: Any = default, norm: str | None = None) -> Array:
        x = as_array(input)
        if dim is None:
            dim = tuple(range(len(x.shape))) if s is None else tuple(range(-len(s), 0))
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        sizes = None if s is None else tuple([x.shape[d] if n == -1 else n for n, d in zip(s, dims)])
        result: Array = numpys(x, sizes, dims, norm)
        return result

    return _described_of_several(call, name, default)


_OTHER_NORM = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _of_half(name: str, default: tuple[int, int] | None) -> Callable[..., object]:
    """Define a transform of half of a signal with Hermitian symmetry: that of the conjugate, in the other direction."""
    is_inverse = name.startswith("i")
    of_conjugate = _of_several("rfftn" if is_inverse else "irfftn", default)

    def call(input: Array, s: Sequence[int] | None = None, dim: Any = default, norm: str | None = None) -> Any:
        x = as_array(input)
        if norm not in _OTHER_NORM:
            raise RuntimeError(located(f'Invalid normalization mode: "{norm}"'))
        result: Any = of_conjugate(x if is_inverse else np.conj(x), s, dim, _OTHER_NORM[norm])
        return np.conj(result) if is_inverse else result

    return _described_of_several(call, name, default)


fft, ifft, rfft, irfft, hfft, ihfft = map(_of_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fft2, ifft2, rfft2, irfft2 = [_of_several(name, (-2, -1)) for name in ("fft2", "ifft2", "rfft2", "irfft2")]
hfft2, ihfft2 = [_of_half(name, (-2, -1)) for name in ("hfft2", "ihfft2")]
hfftn, ihfftn = [_of_half(name, None) for name in ("hfftn", "ihfftn")]
fftn, ifftn, rfftn, irfftn = [_of_several(name, None) for name in ("fftn", "ifftn", "rfftn", "irfftn")]


def fftfreq(
    n: int, d: float = 1.0, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return the frequencies of `fft`.

    Parameters
    ----------
    n : int
        Length of the transform.
    d : float, default 1.0
        Distance of the samples.
    dtype : dtype, optional
        Dtype; by default the default dtype.
    device : str or device, optional
        Device, which is "cpu".
    requires_grad : bool, default False
        Whether operations on the result are recorded.

    Returns
    -------
    Tensor
        Frequencies, (n,).

    Examples
    --------
    >>> fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _frequencies(np.fft.fftfreq(n, d), dtype, device, requires_grad)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return the frequencies of `rfft`.

    Parameters
    ----------
    n : int
        Length of the real signal.
    d : float, default 1.0
        Distance of the samples.
    dtype : dtype, optional
        Dtype; by default the default dtype.
    device : str or device, optional
        Device, which is "cpu".
    requires_grad : bool, default False
        Whether operations on the result are recorded.

    Returns
    -------
    Tensor
        Frequencies, (n // 2 + 1,).

    Examples
    --------
    >>> rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    return _frequencies(np.fft.rfftfreq(n, d), dtype, device, requires_grad)


def _frequencies(values: object, dtype: DTypeLike, device: DeviceLike, requires_grad: bool) -> Tensor:
    kind = get_default_dtype() if dtype is None else dtype
    return tensor(values, dtype=kind, device=device, requires_grad=requires_grad)


def fftshift(input: Array, dim: Axes = None) -> Array:
    """Move the frequency 0 to the middle.

    Parameters
    ----------
    input : Tensor or ndarray
        Input.
    dim : int or sequence of int, optional
        Dimensions; by default all.

    Returns
    -------
    Tensor or ndarray
        Result.

    Examples
    --------
    >>> fftshift(fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    return np.fft.fftshift(as_array(input), dim)


def ifftshift(input: Array, dim: Axes = None) -> Array:
    """Undo `fftshift`.

    Parameters
    ----------
    input : Tensor or ndarray
        Input.
    dim : int or sequence of int, optional
        Dimensions; by default all.

    Returns
    -------
    Tensor or ndarray
        Result.

    Examples
    --------
    >>> ifftshift(fftshift(fftfreq(4)))
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return np.fft.ifftshift(as_array(input), dim)
