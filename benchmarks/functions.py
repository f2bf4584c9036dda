"""Every NumPy function that traced code can call, on arrays of some 100,000 numbers: the rows of `bench_functions`.

A row is an expression over arrays, each named by a letter (`operand`). Both sides copy a view that NumPy returns,
because a view alone costs nothing. `WHY` has the reasons of slower rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.special

from benchmarks import kernels

__all__ = ["ASKED", "ROWS", "SIZE", "WHY", "function", "letters", "operand", "why"]

SIZE = 100_000

# Functions that answer a question about an array, or name its memory.
ASKED = [
    "can_cast",
    "common_type",
    "isfortran",
    "isscalar",
    "iscomplexobj",
    "isrealobj",
    "may_share_memory",
    "ndim",
    "result_type",
    "shape",
    "shares_memory",
    "size",
    "empty",
    "empty_like",
]

_OF = {
    "x": """absolute angle arcsinh arctan cbrt ceil conj conjugate cos cosh deg2rad degrees exp exp2 expm1 fabs fix
        floor i0 iscomplex isfinite isinf isnan isneginf isposinf isreal logical_not modf frexp nan_to_num negative
        positive rad2deg radians rint round around sign signbit sin sinc sinh spacing square tan tanh trunc unwrap
        all any amax amin argmax argmin argsort argwhere flatnonzero nonzero count_nonzero cumprod cumsum
        cumulative_prod cumulative_sum diff ediff1d gradient histogram histogram_bin_edges max mean median min nanargmax
        nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar prod ptp sort std
        sum trapezoid unique var copy array ones_like zeros_like real_if_close linalg.norm linalg.vector_norm
        fft.fft fft.rfft fft.ifft fft.hfft fft.ihfft fft.irfft fft.fftshift fft.ifftshift
        add.reduce add.accumulate maximum.reduce minimum.reduce multiply.reduce logical_and.reduce
        logical_or.reduce sort_complex""",
    "p": """log log10 log1p log2 reciprocal sqrt scipy.special.entr scipy.special.log_expit scipy.special.erf
        scipy.special.erfc scipy.special.ndtr scipy.special.expit arccosh""",
    "q": "arccos arcsin arctanh scipy.special.logit",
    "g": "bitwise_count invert bincount",
    "a": """tril triu trace cov linalg.trace linalg.matrix_norm fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn
        fft.ifftn fft.rfftn fft.irfftn""",
    "d": """corrcoef diag_indices_from tril_indices_from triu_indices_from linalg.cholesky linalg.cond linalg.det
        linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh linalg.inv linalg.matrix_rank linalg.pinv
        linalg.qr linalg.slogdet linalg.svd linalg.svdvals""",
    "xy": """add arctan2 allclose array_equal array_equiv copysign divide equal fmax fmin greater greater_equal
        heaviside hypot isclose less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum
        multiply nextafter not_equal subtract dot inner vdot vecdot linalg.vecdot append polyadd polysub""",
    "xp": "divmod floor_divide fmod remainder",
    "py": "float_power power",
    "yp": "scipy.special.xlogy",
    "xs": "digitize",
    "sy": "searchsorted",
    "pq": "scipy.special.rel_entr scipy.special.xlog1py",
    "gh": "bitwise_and bitwise_or bitwise_xor gcd lcm isin",
    "cr": "outer linalg.outer meshgrid",
    "aB": "matmul linalg.matmul",
    "ar": "matvec",
    "ca": "vecmat",
}
_VIEWS = {
    "x": """real asarray asanyarray require expand_dims(x,0) atleast_1d atleast_2d atleast_3d flip split(x,4)[1]
        array_split(x,3)[1] hsplit(x,4)[1] reshape(x,(2,-1)) lib.stride_tricks.sliding_window_view(x,3)
        lib.stride_tricks.as_strided(x,(1000,9),(80,8))""",
    "a": """diagonal diag linalg.diagonal fliplr flipud matrix_transpose linalg.matrix_transpose rot90 ravel squeeze
        transpose moveaxis(a,0,1) swapaxes(a,0,1) rollaxis(a,1) vsplit(a,[99])[0] dsplit(a[:,:,None],[1])[0]
        unstack(a)[1] broadcast_to(a[0],a.shape) broadcast_arrays(a[0],a)[0]""",
}
_OTHERS = """
    x[0] + np.arange(100_000.0); np.linspace(x[0], 3.0, 100_000); np.logspace(0.0, x[0], 100_000)
    np.geomspace(1.0, p[0], 100_000); np.full(100_000, x[0]); np.full_like(x, 2.0); np.ones(100_000) + x[0]
    np.zeros(100_000) + x[0]; np.eye(300) * x[0]; np.identity(300) * x[0]; np.tri(300) * x[0]; np.imag(x)
    np.astype(x, np.float32); np.average(x, weights=p); np.clip(x, -1.0, 1.0); np.round(x, 2); np.ldexp(x, g % 9)
    np.left_shift(g, h % 9); np.right_shift(g, h % 9); np.apply_along_axis(np.sum, 1, a)
    np.apply_over_axes(np.sum, a, (0, 1)); np.block([[a, a], [a, a]]); np.concatenate([x, y]); np.column_stack([x, y])
    np.dstack([a, b]); np.hstack([x, y]); np.vstack([x, y]); np.stack([x, y]); np.stack([x, y], axis=1)
    np.array([x, y]); np.insert(x, 3, 1.0); np.delete(x, 3); np.tile(x, 3); np.repeat(x, 3); np.roll(x, 3)
    np.pad(x, 5); np.pad(a, 1); np.resize(x, 250_000); np.diagflat(x[:300]); np.ascontiguousarray(a.T)
    np.asfortranarray(a); np.choose(m.astype(int), [x, y]); np.select([m, n], [x, y], 0.0)
    np.piecewise(x, [x > 0], [np.sin, np.cos]); np.where(m, x, y); np.where(m); np.compress(m, x); np.extract(m, x)
    x[m]; np.ix_(g[:300], h[:300]); np.take(x, i); x[i]; np.take_along_axis(a, l, 0); np.argpartition(x, 1000)
    np.partition(x, 1000)[1000]; np.lexsort((x, y)); np.percentile(x, 30.0); np.quantile(x, 0.3)
    np.nanpercentile(x, 30.0); np.nanquantile(x, 0.3); np.histogram2d(x, y); np.histogramdd(v.reshape(-1, 2))
    np.interp(x, s, y); np.unravel_index(i, (400, 500)); np.ravel_multi_index((g % 100, h % 100), (100, 100))
    np.bincount(i, weights=x); np.convolve(x, y[:9]); np.correlate(x, y[:9]); np.vander(x[:1000], 50)
    np.kron(a, np.ones((2, 2))); np.cross(t[:, :3, 0], u[:, :3, 0]); np.linalg.cross(t[:, :3, 0], u[:, :3, 0])
    np.gradient(a); np.einsum("ij,ij->i", a, b); np.einsum_path("ij,ij->i", a, b)[1]; np.tensordot(a, B, 1)
    np.linalg.tensordot(a, B, axes=1); np.inner(a, b); np.linalg.solve(d, r[:255]); np.linalg.multi_dot([a, B, a])
    np.linalg.matrix_power(d, 5); np.packbits(m); np.unpackbits(g.astype(np.uint8))
    np.linalg.lstsq(a, c)[0]; np.linalg.norm(a, axis=1); np.linalg.tensorinv(d.reshape(15, 17, 15, 17))
    np.linalg.tensorsolve(d.reshape(15, 17, 255), r[:255].reshape(15, 17)); np.poly(x[:100]); np.polyder(x)
    np.roots(x[:30]); np.union1d(g, h); np.intersect1d(g, h); np.setdiff1d(g, h); np.setxor1d(g, h); np.trim_zeros(x)
    np.polyint(x); np.polymul(x, y[:9]); np.polydiv(x[:1000], y[:9])[0]; np.polyfit(x, y, 3); np.polyval(y[:9], x)
    np.lib.scimath.sqrt(x); np.lib.scimath.log(x); np.lib.scimath.log2(x); np.lib.scimath.log10(x)
    np.lib.scimath.logn(3.0, x); np.lib.scimath.power(x, 2.5); np.lib.scimath.arccos(x); np.lib.scimath.arcsin(x)
    np.lib.scimath.arctanh(x); np.unique_all(g); np.unique_counts(g); np.unique_inverse(g); np.sort(np.unique_values(g))
    np.sum(a, axis=0); np.argmax(a, axis=1); np.cumsum(a, axis=0); np.cumprod(a, axis=1); np.sort(a, axis=0)
"""
_WRITING = {
    "x": """np.add.at(z, i, y); np.subtract.at(z, i, y); np.copyto(z, y); np.place(z, m, y); np.put(z, i, y)
        np.putmask(z, m, y)""",
    "a": "np.fill_diagonal(z, 1.0); np.put_along_axis(z, l, 1.0, 0)",
}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in re.split("[;\n]", text) if line.strip()]


def _named(name: str) -> str:
    return name if name.startswith("scipy.") else f"np.{name}"


def _called(name: str, operands: str) -> str:
    return _named(name) if "(" in name else f"{_named(name)}({', '.join(operands)})"


ROWS = [
    *[_called(name, of) for of, names in _OF.items() for name in names.split()],
    *[f"np.copy({_called(name, of)})" for of, names in _VIEWS.items() for name in names.split()],
    *_lines(_OTHERS),
    *[f"z = np.copy({of}); {line}; z" for of, lines in _WRITING.items() for line in _lines(lines)],
]

WHY = {
    "np.argpartition": "a call of NumPy's, and as much as that costs",
    "np.frexp": "by bits; NumPy uses instructions of AVX-512 for exponents and mantissas",
    "np.gcd": "a call of NumPy's, and as much as that costs",
    "np.lcm": "a call of NumPy's, and as much as that costs",
    "np.linalg.lstsq": "a call of NumPy's, and as much as that costs",
    "np.absolute": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.negative": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.invert": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.fmax": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.fmin": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.maximum": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.minimum": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.divide": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.array(x)": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.asfortranarray": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.ascontiguousarray": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.delete": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.fill_diagonal": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.meshgrid": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.equal": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.not_equal": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.less": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.less_equal": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.greater": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.greater_equal": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.isnan": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.amax": "waits for the cache, as NumPy's does",
    "np.amin": "waits for the cache, as NumPy's does",
    "np.max": "waits for the cache, as NumPy's does",
    "np.min": "waits for the cache, as NumPy's does",
    "np.dot": "waits for the cache, as NumPy's does",
    "np.vdot": "waits for the cache, as NumPy's does",
    "np.vecdot": "waits for the cache, as NumPy's does",
    "np.linalg.vecdot": "waits for the cache, as NumPy's does",
    "np.vecmat": "waits for the cache, as NumPy's does",
    "np.matmul": "a product of BLAS's, as NumPy's",
    "np.linalg.matmul": "a product of BLAS's, as NumPy's",
    "np.log1p": "NumPy's code for AVX-512 has fewer instructions",
    "np.arctanh": "NumPy's code for AVX-512 has fewer instructions",
    "np.arcsinh": "NumPy's code for AVX-512 has fewer instructions",
    "np.array([x, y])": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.concatenate": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.hstack": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.append": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.sort": "NumPy's routine, on a copy as there",
    "np.linalg.qr": "a call of NumPy's, the answers of which are copied",
    "np.linalg.svd": "a call of NumPy's, the answers of which are copied",
    "np.linalg.cholesky": "LAPACK's routine, as NumPy's",
    "np.linalg.inv": "LAPACK's routine, as NumPy's",
    "np.linalg.tensorinv": "LAPACK's routine, as NumPy's",
    "np.log": "NumPy's code for AVX-512 has fewer instructions",
    "np.power": "NumPy's code for AVX-512 has fewer instructions",
    "np.fft.fft": "a call of SciPy's, the answer of which is copied",
    "np.linalg.eig": "a call of NumPy's; whether the eigenvalues are real is asked for",
    "np.linalg.eigvals": "a call of NumPy's; whether the eigenvalues are real is asked for",
    "np.linalg.eigh": "the symmetric part of the matrix is taken first",
    "np.linalg.eigvalsh": "the symmetric part of the matrix is taken first",
    "np.linalg.matrix_rank": "a call of NumPy's LAPACK, and comparisons",
    "np.unravel_index": "whether all indices are within the shape is asked for",
    "np.fmod": "LLVM has one remainder at a time",
    "np.linalg.det": "LAPACK's routine, as NumPy's",
    "np.imag": "waits for the cache, as NumPy's does; where the result lies makes the difference",
    "np.copy": "waits for the cache, as NumPy's does; where the result lies makes the difference",
}


def letters(row: str) -> list[str]:
    """The operands of a row: its names of one letter that it does not make itself."""
    result = re.findall(r"(?<![.\w])[a-zB](?!\w| = )", re.sub('"[^"]*"', "", row))
    return [x for x in dict.fromkeys(result) if f"{x} = " not in row]


def function(row: str) -> Callable[..., Any]:
    """What a row computes of its operands."""
    *before, last = row.split("; ")
    lines = [f"def row({', '.join(letters(row))}):", *[f"    {line}" for line in before], f"    return {last}"]
    scope: dict[str, Any] = {"np": np, "scipy": scipy}
    exec("\n".join(lines), scope)
    result: Callable[..., Any] = scope["row"]
    return result


def why(row: str) -> str:
    """Why a row loses, if that is known."""
    return next((reason for name, reason in WHY.items() if re.search(rf"\b{re.escape(name)}(?!\w)", row)), "")


@cache
def operand(letter: str) -> Any:
    """The array that a letter stands for: q: numbers between -1 and 1, g, h: positive integers, d: a positive definite
    matrix; the others as in `kernels`."""
    rng = np.random.default_rng(ord(letter))
    match letter:
        case "q":
            return rng.uniform(-1.0, 1.0, SIZE)
        case "g" | "h":
            return rng.integers(1, 1000, SIZE)
        case "d":
            x = rng.standard_normal((255, 255))
            return x @ x.T / 255 + np.eye(255)
        case _:
            return kernels.operand(letter, "float64", SIZE)
