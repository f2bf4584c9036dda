"""Calls of NumPy's functions that are imported on demand, on the arrays of `test_numpy_functions` and some more.

`SMOOTH` are functions of reals that have a second derivative at these arrays; `ROUGH` have kinks or jumps in places,
take integers, or give nan.
"""

from __future__ import annotations

import numpy as np

_RNG = np.random.default_rng(11)
MORE = {
    "gaps": np.where(_RNG.uniform(size=(5, 3)) < 0.25, np.nan, _RNG.uniform(-1, 1, (5, 3))),
    "up": np.sort(_RNG.uniform(-2, 2, 6)),
    "h": _RNG.uniform(0.5, 2, 6),
    "tensor": _RNG.uniform(-1, 1, (4, 2, 2)) + np.eye(4).reshape(4, 2, 2) * 3,
    "far": _RNG.uniform(-20, 20, (3, 5)),
    "small": _RNG.integers(0, 4, (3, 4)),
    "inner": _RNG.uniform(-1.2, 1.2, (2, 3)),
}

SMOOTH = """
np.cumprod(a, 1) | np.cumprod(v) | a.cumprod(0) | np.cumulative_prod(v) | np.cumulative_sum(a, axis=1)
np.cumulative_sum(v, include_initial=True) | np.cumulative_prod(a, axis=0, include_initial=True) | np.sum(a, where=m)
np.sum(a, axis=0, where=m, initial=2.0) | np.prod(a, axis=1, where=m) | np.mean(a, where=m) | np.var(a, where=m)
np.std(b, axis=0, mean=np.mean(b, axis=0, keepdims=True)) | np.add.reduce(a, where=m) | np.std(b, where=m)
np.add(a, b, casting="safe") | np.log(b, dtype=np.float64) | np.nanprod(b, 0) | np.nanstd(b, 0)
np.nanvar(b, 1, ddof=1) | np.nancumsum(a, 1) | np.nancumprod(b, 0) | np.median(a) | np.median(a, 1)
np.median(x3, axis=0, keepdims=True) | np.median(c, axis=(0, 2)) | np.percentile(a, 30)
np.percentile(a, [10, 50, 90], axis=1) | np.quantile(a, 0.25, axis=0) | np.quantile(v, b[0] / 3)
np.quantile(c, [0.1, 0.7], axis=(0, 1), keepdims=True) | np.quantile(a, 0.3, method="lower")
np.quantile(a, 0.3, method="hazen") | np.nanquantile(b, 0.3, axis=0) | np.nanmedian(b, 1)
np.nanpercentile(x3, [20, 50], axis=1) | np.cov(a) | np.cov(a, b) | np.cov(a, rowvar=False) | np.cov(v, bias=True)
np.cov(a, ddof=0) | np.cov(a, aweights=b[0]) | np.cov(a, fweights=p[0]) | np.corrcoef(a) | np.corrcoef(v, b[0])
np.histogram(a, bins=5, weights=b)[0] | np.bincount(t.ravel(), weights=a.ravel(), minlength=12)
np.histogram2d(a.ravel(), b.ravel(), bins=3, weights=b.ravel())[0] | np.histogram_bin_edges(a, 4)
np.histogramdd(x3, bins=2, weights=y3[:, 0])[0] | np.interp(inner, [-2.0, 0.0, 1.0], [1.0, 3.0, -1.0])
np.interp(inner, up, h) | np.interp(inner, up, h, left=0.0, right=1.0) | np.interp(0.3, up, h)
np.interp(inner, [-1.0, 0.0, 0.5], [1.0, 3.0, -1.0], period=2.0) | np.gradient(a) | np.gradient(v)
np.gradient(v, 0.5) | np.gradient(a, axis=1) | np.gradient(a, 2.0, 0.5) | np.gradient(h, up)
np.gradient(c, axis=(0, 2)) | np.gradient(a, axis=1, edge_order=2) | np.gradient(h, up, edge_order=2)
np.convolve(v, b[0]) | np.convolve(h, b[0, :2], "same") | np.convolve(b[0, :2], h, mode="valid")
np.correlate(v, b[0]) | np.correlate(h, b[0, :2], "full") | np.correlate(b[0, :2], h, "same")
np.correlate(h[:3], up, "valid") | np.unwrap(far) | np.unwrap(far[0], period=3.0)
np.unwrap(far, axis=0, discont=4.0) | np.vander(v) | np.vander(v, 3, increasing=True) | np.poly(v)
np.polyfit(up, h, 2) | np.polyfit(v, b.T, 1) | np.polyfit(v, b[0], 1, w=b[1]) | np.polyadd(v, b[0, :2])
np.polysub(v, [1.0, 2.0]) | np.polymul(v, b[0]) | np.polyder(v) | np.polyder(v, 2) | np.polyint(v)
np.polyint(v, 2, [1.0, 2.0]) | np.polydiv(v, b[0, :2]) | np.apply_along_axis(np.cumsum, 1, a)
np.apply_along_axis(lambda r: r.sum(), 0, a) | np.apply_over_axes(np.sum, c, [0, 2])
np.apply_along_axis(lambda r: np.outer(r, r), 0, x3)
np.piecewise(b, [b < 1, b >= 1], [lambda x: 1 / x, lambda x: x**2]) | np.piecewise(b, [b < 1], [1.0, lambda x: x**2])
np.choose(small % 3, [a, b, u]) | np.choose(i, [a, b], mode="clip") | np.choose(i, [a, b], mode="wrap")
np.insert(v, 1, 5.0) | np.insert(a, [0, 2], b[:, :2], axis=1) | np.insert(v, [1, 3], [8.0, 9.0])
np.insert(a, 1, b[0], axis=0) | np.insert(v, slice(0, 2), h[:2]) | np.delete(v, 1) | np.delete(a, [0, 2], axis=1)
np.delete(a, slice(0, 2), axis=0) | np.resize(v, (2, 3)) | np.resize(v, (4, 5)) | np.resize(a, 5)
np.compress([True, False, True], a, axis=0) | np.ediff1d(a, to_end=1.0) | np.extract([True, False, True, True], v)
np.ediff1d(v, to_begin=b[0, :2], to_end=h) | np.array_equiv(a, a) | np.real_if_close(a) | np.ldexp(a, small)
np.fmod(a, b) | np.subtract.reduce(a) | np.subtract.reduce(a, axis=1, keepdims=True) | np.divide.reduce(b, axis=1)
np.power.reduce(b) | np.logaddexp.reduce(a, 1) | np.hypot.reduce(a, axis=1) | np.logaddexp2.reduce(a)
np.arctan2.reduce(b) | np.subtract.accumulate(a, 1) | np.multiply.accumulate(a) | np.logaddexp.accumulate(a)
np.logaddexp2.accumulate(a, 1) | np.power.accumulate(b, axis=1) | np.divide.accumulate(b) | np.add.reduceat(a, [0, 2])
np.add.reduceat(a, [0, 2, 1], axis=1) | np.subtract.reduceat(h, [0, 3]) | np.multiply.reduceat(v, [0, 3, 1])
np.hypot.outer(v, h) | np.arctan2.outer(v, v) | np.lib.stride_tricks.sliding_window_view(v, 2)
np.lib.stride_tricks.sliding_window_view(a, (2, 2)) | np.lib.stride_tricks.sliding_window_view(a, 3, axis=1)
np.lib.stride_tricks.sliding_window_view(h, (2, 3), axis=(0, 0)) | np.pad(a, 1, mode="linear_ramp")
np.pad(v, 2, "linear_ramp", end_values=3.0) | np.pad(a, 2, "mean") | np.pad(a, 2, "reflect", reflect_type="odd")
np.pad(a, (1, 2), "symmetric", reflect_type="odd") | np.pad(a, 1, "mean", stat_length=2)
np.pad(a, ((1, 0), (2, 1)), "median") | np.linalg.tensorsolve(tensor, v)
np.linalg.tensorinv(tensor, ind=1) | np.geomspace(b[0], h[:4], 5)
np.geomspace(-1.0, v[0] - 9, 3, endpoint=False)
np.pad(v, (1, 2), constant_values=(v[0], 1.0)) | np.pad(a, 1, constant_values=((1.0, v[1]), (v[2], 0.0)))
np.geomspace(b[0], 4.0, 3, axis=1)
"""

ROUGH = """
np.unique_all(t)[0] | np.unique_counts(t)[1] | np.unique_inverse(t)[1] | np.unique_values(v)
np.intersect1d(t, [0, 2, 3], return_indices=True)[1] | np.intersect1d(v, v[1:3], True, return_indices=True)[2]
np.union1d(t, [1, 5]) | np.intersect1d(t, [0, 2, 3]) | np.setdiff1d(t, [0, 2]) | np.setxor1d(t, [0, 2, 90])
np.union1d(v, v[:2]) | np.intersect1d(v, v[1:3], assume_unique=True) | np.setdiff1d(v, v[:2], assume_unique=True)
np.trim_zeros(np.where(v > 0, v, 0.0)) | np.trim_zeros(np.where(v > 0, v, 0.0), "b") | np.trim_zeros(np.diag(v), axis=0)
np.trim_zeros(v * 0.0) | np.take(v, []) | np.resize(v[:0], 3) | np.min(v[:0], initial=2.0) | np.max(a, 1, initial=0.25)
np.minimum.reduce(a, 1, initial=-0.25) | np.argsort(a[0, 0]) | np.einsum("ij,kj->ik", a, a[:, :1])
np.choose(t > 1, [a[0, 0], 3]) | np.trapezoid(a[:0], axis=0)
np.cumprod(k, 0) | np.nancumsum(n, 1) | np.nancumprod(n[:, :3], 0) | np.nanmin(n, 0) | np.nanmax(n, 1) | np.nanmin(a)
np.nanmax(i, 0) | np.nanmax(a, initial=0.0) | np.nanmin(gaps, 1, keepdims=True) | np.nanprod(n[:, :3], 0)
np.nanstd(gaps, 0) | np.nanvar(gaps) | np.nanmedian(gaps, 0) | np.nanmedian(gaps) | np.nanquantile(gaps, 0.3, axis=0)
np.nanpercentile(gaps, [20, 50], axis=0) | np.nanargmax(gaps, 0) | np.nanargmin(gaps) | np.nansum(n, where=m)
np.nanmean(gaps, 0, where=gaps[:, :1] > -2) | np.median(i) | np.median(n, 1) | np.median(f, 0) | np.quantile(f, 0.3)
np.quantile(f, [0.3, 0.4], axis=0) | np.max(a, where=m, initial=-5.0) | np.min(a, axis=0, where=m, initial=5.0)
np.any(a > 0, where=m) | np.all(a > 0, axis=1, where=m) | np.std(a, axis=1, where=m) | np.sum(i, where=m)
np.histogram(a, bins=4)[0] | np.histogram(a, bins=4, range=(-1, 1)) | np.histogram(a, [-1.0, 0.0, 0.5, 2.0])
np.histogram(a, bins=5, density=True)[0] | np.histogram(i, bins=3) | np.histogram(f, bins=3)
np.histogram2d(a.ravel(), b.ravel(), bins=3) | np.histogram2d(v, v, bins=[2, [-3.0, 0.0, 3.0]])
np.histogramdd(x3, bins=2, density=True) | np.bincount(t.ravel()) | small.choose([a, b, u, a * b])
np.bincount(t.ravel(), minlength=12) | np.digitize(a, [-1.0, 0.0, 1.0]) | np.digitize(a, [1.0, 0.0, -1.0])
np.digitize(a, [-1.0, 0.0, 1.0], right=True) | np.convolve(i[0], p[0]) | np.convolve(f[0], f[1])
np.unwrap(i, period=10) | np.vander(p[0], 3) | np.polyadd(i[0], 1) | np.array_equiv(a, v) | np.isin(i, [1, 2, 3])
np.isin(i, p, invert=True) | np.lexsort((i[0], i[1])) | np.lexsort((a, b)) | np.unravel_index(t, (3, 4))
np.unravel_index(t, (3, 1, 6), order="F") | np.ravel_multi_index((t % 3, t % 4), (3, 4))
np.ravel_multi_index((i, p), (3, 4), mode=("wrap", "clip")) | np.spacing(a) | np.spacing(f) | np.nextafter(a, b)
np.nextafter(f, f) | np.gcd(i, p) | np.lcm(i, p) | np.ldexp(f, t) | np.bitwise_count(p) | np.bitwise_count(i)
np.fmax.reduce(n) | np.fmin.reduce(n, axis=1) | np.bitwise_and.reduce(p, axis=1) | np.bitwise_or.reduce(p)
np.bitwise_xor.reduce(p, axis=None) | np.logical_xor.reduce(m) | np.gcd.reduce(p, axis=1) | np.lcm.reduce(p[:2])
np.maximum.accumulate(a, axis=1) | np.minimum.accumulate(n, axis=1) | np.logical_or.accumulate(m, axis=1)
np.bitwise_xor.accumulate(p, axis=1) | np.gcd.accumulate(p) | np.maximum.reduceat(v, [0, 2]) | np.greater.outer(v, v)
np.remainder.reduce(p, axis=1) | np.maximum.outer(v, a) | np.pad(a, 1, "maximum") | np.pad(a, 1, "minimum")
np.pad(i, 2, "mean") | np.pad(a, 1, "empty").shape | np.add(a, b, dtype=np.float32)
np.exp(i, dtype=np.float32, casting="unsafe") | np.multiply(i, p, dtype=np.float64) | np.maximum(a, b, subok=False)
np.add(a, b, signature="ff->f", casting="same_kind") | np.trace(q, dtype=np.float32)
np.einsum_path("ij,jk->ik", a, w) | np.diag_indices_from(q) | a.view(np.int64)
f.view(np.int32) | i.view(np.uint64) | f.view(dtype="float32")
np.tril_indices_from(q) | np.triu_indices_from(a, 1) | np.unique(a) | np.unique(small % 2, axis=0)
np.unique(small % 2, axis=1, return_index=True, return_inverse=True, return_counts=True) | np.unique(n[:0], axis=1)
np.unique(a[[0, 1, 0]], axis=0)
np.unique(n, axis=0) | np.unique(f[[0, 0]], axis=-2, return_counts=True) | np.unique(v, axis=0)
np.packbits(m) | np.packbits(i > 0, axis=1, bitorder="little") | np.unpackbits(t) | np.unpackbits(t, axis=0, count=-3)
np.unique(small % 2 + 1j) | np.unique((small % 2) * (1 + 1j), axis=1, return_inverse=True)
"""


# The same of arguments and numbers that are rarer: complex numbers in order, every method of quantiles, traced indices
# that change shapes.
RARE_SMOOTH = """
np.average(c, axis=(2, 0), weights=c[:, 0].T ** 2) | np.average(c, axis=(1, 2), weights=b, returned=True, keepdims=True)
np.clip(a, -1, b, dtype=np.float64)
np.nanvar(b, axis=0, mean=np.mean(a, 0, keepdims=True)) | np.pad(a, {0: 1, -1: (2, 0)}, mode="linear_ramp")
np.max(a + 1j * b) | np.min(a + 1j * b, axis=0) | (a + 1j * b).max(1, keepdims=True) | np.ptp(a + 1j * b, axis=(0, 1))
np.max(a + 1j * b, axis=1, initial=0.5j) | np.min(a + 1j * b, axis=1, initial=9.0, where=m)
np.maximum(a + 1j * b, u) | np.minimum(a + 1j * b, 0.25j) | np.fmax(a + 1j * b, b) | np.clip(a + 1j * b, -0.5, 0.5 + 1j)
np.maximum.accumulate(a + 1j * b, axis=1) | np.minimum.accumulate(a - 1j * b) | np.median(a + 1j * b, axis=1)
np.median(a.T + 1j * b.T, axis=1) | np.sort(a + 1j * b, axis=0) | np.nanmax(a + 1j * b, 1)
np.minimum.reduce(a + 1j * b)
np.nanvar(a + 1j * b, axis=0) | np.nanstd(a - 1j * b, 1) | np.var(a + 1j * b, where=m)
np.partition(a[0] + 1j * b[0], 1) | np.where(a + 1j * b < b + 1j * a, a, b) | np.fmin.reduce(a + 1j * b)
np.polyval(v, v[:2]) | np.polyval(a + 1j, 0.5) | np.polyfit(up, h, 2, full=True)[:2] | np.polyfit(up, h, 1, cov=True)
np.polyfit(up, h, 2, cov="unscaled") | np.polyfit(up, np.stack([h, up**2], 1), 1, cov=True, w=h)
np.quantile(a, 0.3, method="averaged_inverted_cdf") | np.quantile(a, v[0]**2 / 9, axis=1, method="midpoint")
np.quantile(a, [0.1, 0.6], axis=1, weights=b, method="inverted_cdf")
np.percentile(a, 40, axis=0, weights=b[:, 0], method="inverted_cdf", keepdims=True)
np.nanpercentile(a, [20, 75], axis=1, method="closest_observation")
np.nanquantile(a, 0.4, weights=b, method="inverted_cdf")
np.linalg.svd(q + q.T, hermitian=True) | np.linalg.svd(q + q.T, compute_uv=False, hermitian=True)
np.linalg.svd(tensor + tensor.mT, hermitian=True) | np.linalg.eigh(q + q.T, UPLO="U")
np.linalg.eig(q) | np.linalg.eig(q + 1j * w4[0]) | np.linalg.eig(w4)
np.matmul(a, a, axes=[(0, 1), (1, 0), (0, 1)]) | np.matmul(c, a, axes=[(0, 2), (1, 0), (0, 1)])
np.vecdot(a, b, axes=[0, 0]) | np.vecdot(a, b, keepdims=True) | np.matvec(a, b[:, 0], axes=[(1, 0), 0, 0])
np.delete(v, v > 0) | np.delete(a, a[:, 0] > 0, axis=0) | np.delete(h, np.argsort(h)[:2])
np.delete(a, -np.argsort(v)[:2], 1)
np.insert(v, np.argsort(v)[:2], h[:2]) | np.insert(a, np.argsort(v)[:2], b[:, :2], axis=1) | np.insert(v, v > 0, 9.0)
np.insert(v, np.argsort(v)[:1], h[:2]) | np.insert(v, [1], h[:2]) | np.insert(a, np.argsort(a[:, 0])[:2], b[:2], axis=0)
"""
if np.lib.NumpyVersion(np.__version__) < "2.5.0":  # which takes vectors of three components only
    RARE_SMOOTH += "np.cross(a[:, :2], b[:, :2]) | np.cross(a[:, :2], b[:, 1:]) | np.cross(x3, b[0, :2])\n"

RARE_ROUGH = """
np.clip(i, -2, 2, dtype=np.int64) | np.clip(a, -1, 1, dtype=np.int64, casting="unsafe")
np.nanstd(gaps, 0, mean=np.zeros((1, 3)))
a + 1j * b < b | a + 1j * b >= 0.5 | a > 1j * b | (a <= a + 0j) & (f > 1j) | np.argmax(a + 1j * b)
np.argmin(small + 1j * i, 1)
np.max(small + 1j * i, 1) | np.max(n + 1j, 1) | np.argmin(n - 1j * n) | np.less(n + 1j * n.T[:3, :1], n)
np.nanargmin(n + 1j)
np.searchsorted(np.sort(small[0] + 1j * i[0]), small + 1j, "right") | np.argpartition(a[0] + 1j * b[0], 2)
np.quantile(i, 0.4, method="lower") | np.quantile(t, [0.3, 0.4], method="inverted_cdf") | np.quantile(i, 1)
np.quantile(k, 1, 1)
np.percentile(t, [50, 60], 0, method="higher", keepdims=True) | np.nanpercentile(i, 50, 1, method="nearest")
np.nanquantile(gaps, [0.0, 0.3, 0.6, 1.0], axis=0, method="averaged_inverted_cdf")
np.nanquantile(gaps, 0.3, axis=0, method="midpoint") | np.nanquantile(gaps, 0.3, method="higher")
np.nanquantile(gaps, [0.3, 0.5], axis=0, method="closest_observation") | np.nanquantile(gaps, 0.3, 0, method="nearest")
np.nanquantile(gaps, [0.3, 0.5], axis=1, method="inverted_cdf") | np.nanquantile(gaps, 0.5, 0, method="lower")
np.nanquantile(gaps, 0.6, axis=0, weights=x3**2, method="inverted_cdf") | np.nanquantile(f, 0.3, axis=0, method="hazen")
np.quantile(a, 0.5, weights=b, method="inverted_cdf") | np.quantile(a, v[:1]**2 / 9, method="nearest")
np.histogram(a, bins="auto") | np.histogram(a, "fd", range=(-1, 1)) | np.histogram(c, bins="doane", density=True)
np.histogram(a, bins="scott") | np.histogram(a, bins="stone") | np.histogram(i, bins="rice")
np.histogram(f, bins="sqrt")
np.histogram_bin_edges(a, "sturges") | np.polyfit(up, h, 1, full=True)
np.unpackbits(t, axis=1, count=40, bitorder="little") | np.cov(a, dtype=np.float32) | np.corrcoef(a, dtype=np.float32)
np.cov(f, dtype=np.float32, bias=True)
"""


# Statements that change `y`, a copy of `a`.
IN_PLACE = """
np.put(y, [0, 5, -1], [1.0, 2.0]) | np.put(y, small[0], b[0, :1]) | np.put(y, [13, 40], b[0], mode="wrap")
np.put(y, [13, 40], b[0], mode="clip") | y.put([1, 2], b[1, :2]) | np.place(y, m, b[0]) | np.place(y, a > 0, h[:2])
np.putmask(y, m, b) | np.putmask(y, a > 0, h[:5]) | np.fill_diagonal(y, b[0, 0]) | np.fill_diagonal(y.T, [1.0, 2.0])
np.fill_diagonal(y.T, 7.0, wrap=True) | np.put_along_axis(y, small[:, :1], b[:, :1], 1) | np.copyto(y, b, where=m)
np.put_along_axis(y, np.argmax(a, axis=0, keepdims=True), 0.5, axis=0) | np.copyto(y, b[0])
np.copyto(y, 1, where=a > 0) | np.nan_to_num(y, copy=False) | np.multiply.at(y, ([0, 0, 2], [1, 1, 3]), b[0, :3])
np.maximum.at(y, [0, 0], b[:2]) | np.negative.at(y, ([0, 0, 1], [0, 0, 1])) | np.power.at(y[1:], 1, 2)
np.add(a, b, out=y) | np.exp(a, where=m, out=y) | np.divide(a, b, out=y, where=b > 1)
np.modf(a, out=(y, np.zeros((3, 4)))) | np.cumsum(a, axis=1, out=y) | np.log(a, where=a > 0, out=y)
np.sqrt(a, where=a > 0, out=y) | np.maximum.accumulate(a, 1, out=y) | np.clip(a, 0, 1, out=y)
np.subtract.reduce(a, 0, out=y[0]) | np.multiply.reduce(a, axis=1, out=y[:, 0])
np.logaddexp.outer(a[0, :3], b[0], out=y)
np.maximum.at(y, np.argsort(v)[:3] % 3, b[:3]) | np.multiply.at(y, (np.argsort(v) % 3, np.argsort(v)), b[0])
np.power.at(y, (np.argsort(v) % 2, 1), 2) | np.negative.at(y, np.argsort(v) % 2)
np.subtract.at(y, [v.argmax() % 3, 1], v)
y.shape = (4, 3) | y.shape = -1 | q = y[1]; y.shape = 12; y[4] = b[0, 0] * q[1]; q[1] *= 2.0
q = y[1]; q.shape = (2, 2); q[0] = b[0, :2] | q = y.T; y.shape = (2, 6); q[1] = y[0, :3] * 3.0
"""


def calls(text: str) -> list[str]:
    """The expressions of a table."""
    return [part.strip() for part in text.replace("\n", " | ").split(" | ") if part.strip()]
