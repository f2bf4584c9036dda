"""Expressions of NumPy's functions, and the arrays that they are evaluated on."""

from __future__ import annotations

import numpy as np
import scipy.special as sp

RNG = np.random.default_rng(7)


ARRAYS = {
    "a": RNG.uniform(-2, 2, (3, 4)),
    "b": RNG.uniform(0.5, 2, (3, 4)),
    "u": RNG.uniform(-0.9, 0.9, (3, 4)),
    "c": RNG.uniform(-2, 2, (2, 3, 4)),
    "v": RNG.uniform(-2, 2, 4),
    "w": RNG.uniform(-2, 2, (4, 2)),
    "q": RNG.uniform(-2, 2, (4, 4)),
    "f": RNG.uniform(-2, 2, (3, 4)).astype(np.float32),
    "s": np.array(1.5),
    "i": RNG.integers(-9, 9, (3, 4)),
    "p": RNG.integers(1, 9, (3, 4)),
    "k": RNG.integers(-9, 9, (3, 4)).astype(np.int8),
    "t": RNG.integers(0, 9, (3, 4)).astype(np.uint8),
    "m": RNG.integers(0, 2, (3, 4)).astype(bool),
    "n": np.array([[1.0, np.nan, -0.0, np.inf], [-np.inf, 2.5, -3.5, 0.0], [0.5, np.nan, 1e300, -1e-300]]),
    "z": RNG.uniform(-1, 1, (0, 4)),
    "o": RNG.uniform(-1, 1, (1, 3, 1)),
    "x3": RNG.uniform(-1, 1, (5, 3)),
    "y3": RNG.uniform(-1, 1, (5, 3)),
    "w4": RNG.uniform(-0.5, 0.5, (2, 4, 4)) + np.diag([2.0, 3.0, 4.0, 5.0]),
}


UFUNCS = """
exp exp2 expm1 log1p:u sqrt:b cbrt log:b log2:b log10:b sin cos tan arcsin:u arccos:u arctan sinh cosh tanh arcsinh
arctanh:u arccosh:p absolute fabs sign floor ceil trunc rint square reciprocal:b negative positive deg2rad rad2deg
radians degrees conjugate isnan:n isinf:n isfinite:n logical_not:m abs:n sign:n floor:n exp:n tanh:n sqrt:n absolute:i
negative:i square:i sign:i floor:i logical_not:i positive:i exp:i sqrt:p invert:m bitwise_not:m
exp:f invert:i invert:t absolute:f
modf modf:n modf:f modf:i frexp frexp:n frexp:f frexp:i
square:f absolute:k negative:k square:t isnan:i fabs:i deg2rad:i signbit:n signbit:a signbit:f
"""


BINARY = """
add subtract multiply divide true_divide power:b,a float_power:b,a remainder:a,b mod:i,p floor_divide:a,b
floor_divide:i,p maximum minimum fmax fmin fmax:n,a fmin:a,n fmax:n,n maximum:n,a minimum:n,n hypot arctan2 logaddexp
logaddexp2 equal not_equal less less_equal greater greater_equal equal:n,n less:n,a heaviside:a,b heaviside:n,b
logical_and:m,m logical_or:m,i logical_xor:a,m bitwise_and:m,m bitwise_or:m,m bitwise_xor:m,m add:a,v add:c,a
multiply:f,a multiply:f,f multiply:i,f add:k,t add:i,k divide:i,p divide:f,i power:i,p subtract:s,a add:m,m
multiply:m,a multiply:m,i float_power:p,i fmax:i,k divmod:a,b divmod:i,p add:z,v maximum:i,a heaviside:f,f
heaviside:f,a heaviside:i,i logaddexp2:f,f logaddexp2:f,a logaddexp2:i,f logaddexp2:n,n
bitwise_and:i,p bitwise_or:k,t bitwise_xor:i,m left_shift:i,p left_shift:k,t right_shift:i,p right_shift:t,t
copysign copysign:n,a copysign:a,n copysign:i,f fmod:a,b fmod:i,p fmod:n,a fmod:f,a
"""


CALLS = """
np.sum(a) | np.sum(a, 0) | np.sum(a, axis=(0, 1)) | np.sum(c, axis=(0, -1), keepdims=True) | np.sum(i) | np.sum(k, 1)
np.sum(t) | np.sum(m) | np.sum(f) | np.sum(f, dtype=np.float64) | np.sum(a, axis=()) | np.sum(z, 0)
np.sum(a, initial=3.0) | np.sum(s) | a.sum(1) | a.sum(axis=0, keepdims=True) | np.prod(a) | np.prod(a, 1)
np.prod(k, 0) | np.prod(m) | np.prod(c, axis=(0, 2)) | np.prod(a, 0, initial=2.0) | np.mean(a)
np.mean(a, 1, keepdims=True) | np.mean(i) | np.mean(f, 0) | np.mean(m) | a.mean(0) | np.mean(f, dtype=np.float64)
np.var(a) | np.var(a, 0, ddof=1) | np.var(i) | np.var(f, 1) | np.std(a) | np.std(c, axis=(0, 1))
np.std(a, 1, correction=1) | a.std(0, keepdims=True) | np.max(a) | np.max(a, 0) | np.amax(i, 1) | np.min(n)
np.min(a, axis=1) | np.amin(k) | np.max(m) | np.max(a, 1, initial=1.0) | np.min(a, 0, keepdims=True) | np.any(m, 0)
np.all(m) | np.any(a) | np.all(i, 1) | np.all(m, axis=1, keepdims=True) | np.argmax(a) | np.argmax(a, 0)
np.argmin(a, axis=1, keepdims=True) | np.argmin(n, 1) | np.argmax(i, -1) | np.cumsum(a) | np.cumsum(a, 1)
np.cumsum(k, 0) | np.cumsum(m) | np.cumsum(f, 0) | np.ptp(a) | np.ptp(i, 0) | np.average(a)
np.average(a, 0, weights=b) | np.average(a, axis=1, weights=v) | np.count_nonzero(i) | np.count_nonzero(m, axis=0)
np.average(a, axis=1, weights=v, returned=True) | np.nansum(n[:1, :3]) | np.nanmean(n[2:, :1], 0) | np.nansum(i, 1)
np.nansum(a, 0) | np.nanmean(a, 1, keepdims=True) | np.add.reduce(a) | np.add.reduce(a, 1)
np.multiply.reduce(a, axis=None) | np.maximum.reduce(a) | np.minimum.reduce(a, axis=1, keepdims=True)
np.logical_and.reduce(m) | np.logical_or.reduce(m, axis=1) | np.add.accumulate(a, 1) | np.add.outer(v, v)
np.multiply.outer(v, a) | np.subtract.outer(v, s) | np.allclose(a, a) | np.array_equal(a, a) | np.isclose(a, a + 1e-9)
np.isclose(n, n) | np.isclose(n, n, equal_nan=True) | np.isclose(i, p) | np.isclose(a, b) | np.isclose(m, m)
m**2 | np.nan_to_num(f) | np.nan_to_num(n.astype(np.float32)) | k**2
np.array_equal(n, n, equal_nan=True) | np.array_equal(a, v) | np.reshape(a, (4, 3)) | np.reshape(a, -1)
a.reshape(2, -1) | a.reshape((6, 2)) | np.reshape(a, (2, 6), order="F") | np.reshape(s, (1, 1)) | np.ravel(a)
a.ravel() | a.flatten() | np.ravel(a, "F") | np.transpose(a) | a.T | np.transpose(c, (1, 0, 2)) | c.transpose(2, 0, 1)
c.transpose((2, 0, -2)) | c.mT | np.matrix_transpose(c) | np.swapaxes(c, 0, -1) | np.moveaxis(c, 0, -1)
np.rollaxis(c, 2) | np.rollaxis(c, 0, 2) | np.moveaxis(c, [0, 1], [-1, 0]) | np.expand_dims(a, 0)
np.expand_dims(a, (0, -1)) | np.squeeze(o) | np.squeeze(o, 0) | o.squeeze(axis=(0, 2)) | np.broadcast_to(v, (3, 4))
np.broadcast_to(s, (2, 2)) | np.broadcast_arrays(a, v) | np.atleast_1d(s) | np.atleast_2d(v) | np.atleast_3d(v)
np.atleast_3d(a) | np.atleast_3d(s) | np.atleast_2d(s, c) | np.flip(a) | np.flip(a, 0) | np.flip(c, (0, 2))
np.fliplr(a) | np.flipud(a) | np.rot90(a) | np.rot90(a, 2) | np.rot90(a, 3) | np.rot90(a, 4) | np.rot90(c, 1, (1, 2))
np.roll(a, 1) | np.roll(a, -2, 1) | np.roll(a, (1, 2), (0, 1)) | np.roll(a, 7, axis=0) | np.roll(z, 1, 0)
np.concatenate([a, b]) | np.concatenate((a, f), axis=1) | np.concatenate([a, i], axis=None)
np.concatenate([i, f, m], 1) | np.concatenate([f, f], dtype=np.float64) | np.stack([a, b]) | np.stack([a, i], axis=-1)
np.stack([s, 1.0, 2]) | np.vstack([v, a]) | np.hstack([a, b]) | np.hstack([v, v]) | np.dstack([a, b])
np.dstack([v, v]) | np.column_stack([v, v]) | np.column_stack([q, v]) | np.append(a, [1.0, 2.0]) | np.append(a, b, 0)
np.split(a, 2, axis=1) | np.split(a, [1, 3], axis=1) | np.array_split(a, 3, axis=1) | np.array_split(a, 2)
np.hsplit(a, 2) | np.vsplit(a, 3) | np.split(v, [1, 9]) | np.dsplit(c, 2) | np.tile(v, 2) | np.tile(a, (2, 1, 2))
np.nonzero(m) | np.flatnonzero(i) | np.argwhere(m) | np.where(m) | np.argwhere(s) | np.compress(m[0], a, axis=1)
np.compress([True, False], a, 0) | np.extract(m, a) | np.unique(i) | np.unique(n) | np.unique(n, equal_nan=False)
np.unique(i, True, True, True) | np.unique(k, return_counts=True) | np.unique(m) | np.unique(z) | np.unique(z, 1, 1, 1)
np.tile(s, 3) | np.repeat(a, 2) | np.repeat(a, 3, axis=1) | np.repeat(v, [1, 0, 2, 3]) | a.repeat(2, 0)
np.repeat(a, [2, 0, 1], axis=0) | np.pad(a, 1) | np.pad(a, ((1, 0), (0, 2))) | np.pad(v, 2, constant_values=5)
np.pad(a, 1, constant_values=((1, 2), (3, 4))) | np.pad(i, (1, 2)) | np.pad(a, 2, mode="edge")
np.pad(a, 2, mode="reflect") | np.pad(v, 3, "symmetric") | np.pad(a, (0, 5), "wrap") | np.diff(a) | np.diff(a, axis=0)
np.diff(a, n=2) | np.diff(m) | np.diff(i, prepend=0) | np.diff(a, append=a[:, :1]) | np.diff(v, n=9)
np.diff(v, prepend=1.0, append=2.0) | np.ediff1d(a) | np.meshgrid(v, v[:2]) | np.meshgrid(v, v[:3], indexing="ij")
np.meshgrid(v, v[:3], sparse=True) | np.ix_(p[0], p[1, :2]) | np.ix_(k[0], t[1], i[2])
np.kron(a, w) | np.kron(v, a) | np.unstack(a) | np.unstack(a, axis=1)
np.where(m, a, b) | np.where(a > 0, a, 0.0) | np.where(m, 1, 0) | np.where(i, a, f) | np.where(m, i, 1.5)
np.where(True, a, v) | np.select([a > 1, a > 0], [a, 2 * a], -1.0) | np.clip(a, -1, 1) | np.clip(a, 0, None)
np.clip(i, -2, 3) | np.clip(i, 0.5, 2) | np.clip(a, v, b) | np.clip(n, -1, 1) | a.clip(-0.5, 0.5) | a.clip(min=0)
np.clip(t, -1, 5) | np.clip(k, -200, 3) | np.clip(t, 2, 300)
np.clip(a, max=b) | np.clip(f, -1.0, 1.0) | np.clip(a, n, None) | np.nan_to_num(n)
np.nan_to_num(n, nan=1.0, posinf=2.0, neginf=-2.0) | np.nan_to_num(i) | np.isposinf(n) | np.isneginf(n) | np.round(a)
np.round(a, 2) | np.round(1000 * a, -2) | np.round(i) | a.round(1) | np.around(n) | np.fix(a) | np.sinc(a) | np.i0(a)
np.sinc(0.01 * a) | np.sinc(0 * a) | np.take(a, [0, 2], axis=0) | np.take(a, [[0, 1], [-1, 2]], axis=1)
np.take(a, 5) | np.take(a, i % 3, axis=0) | a.take([1, 1]) | np.take(v, [7, -9], mode="wrap")
np.take(v, [7, -9], mode="clip") | np.take_along_axis(a, np.argsort(ARR["a"], 1), 1)
np.take_along_axis(a, np.argmax(a, 0, keepdims=True), 0) | np.take_along_axis(a, np.array([3, 1]), None) | np.diag(v)
np.diag(v, 1) | np.diag(v, -2) | np.diag(q) | np.diag(a, 1) | np.diag(a, -1) | np.diag(a, 9) | np.diagonal(c, 0, 1, 2)
np.diagonal(c, 1, 0, 2) | a.diagonal() | np.diagflat(a) | np.trace(q) | np.trace(c, 1, 1, 2) | q.trace() | np.trace(k)
np.tril(a) | np.tril(a, 1) | np.triu(a) | np.triu(c, -1) | np.tril(v) | np.triu(m, 1) | np.linalg.diagonal(c)
np.linalg.trace(c) | np.zeros_like(a) | np.ones_like(i) | np.full_like(a, 3) | np.full_like(i, 2.7)
np.zeros_like(a, dtype=np.float32) | np.ones_like(a, shape=5) | np.full_like(a, v) | np.empty_like(a).shape
np.angle(a) | np.angle(f, deg=True) | np.angle(i) | np.angle(n) | np.iscomplex(a) | np.isreal(n) | np.imag(i)
np.copy(a) | np.real(a) | np.imag(a) | np.shape(a) | np.ndim(c) | np.size(a) | np.size(a, 1) | np.isscalar(a)
np.iscomplexobj(a) | np.isrealobj(a) | np.result_type(f, 1.0) | np.result_type(f, a) | np.can_cast(f, np.float64)
np.common_type(f, a)
np.dot(a, w) | np.dot(v, v) | np.dot(c, w) | np.dot(a, c.transpose(0, 2, 1)) | np.dot(a, 2.0) | np.dot(i, i.T)
a.dot(v) | np.vdot(a, b) | np.inner(a, b) | np.inner(v, v) | np.inner(c, v) | np.inner(a, s) | np.outer(v, a)
np.linalg.outer(v, v) | a @ w | a @ v | v @ w | v @ v | c @ w | c @ v | q @ q | a @ c.mT | i @ i.T | f @ w
ARR["a"] @ w | np.matmul(c, w) | np.linalg.matmul(a, w) | np.tensordot(a, w, 1)
np.tensordot(c, a, axes=([1, 2], [0, 1])) | np.tensordot(a, v, axes=([1], [0])) | np.tensordot(v, v, 0)
np.linalg.tensordot(a, w, axes=1) | np.linalg.multi_dot([a, w, w.T]) | np.linalg.matrix_power(q, 3)
np.linalg.matrix_power(q, 1) | np.einsum("ij,jk->ik", a, w) | np.einsum("ij->ji", a) | np.einsum("ii", q)
np.einsum("ii->i", q) | np.einsum("bij,ij->b", c, a) | np.einsum("...j,j", c, v) | np.einsum("i,j->ij", v, v)
np.einsum("ij,ij", a, b) | np.einsum("ij,jk,kl->il", a, w, w.T) | np.einsum("ij->", i) | np.vecdot(a, b)
np.vecdot(a, b, axis=0) | np.linalg.vecdot(c, v) | np.matvec(c, v) | np.vecmat(v, c.mT) | np.cross(x3, y3)
np.cross(x3, y3[0]) | np.cross(x3.T, y3.T, axis=0) | np.linalg.cross(x3, y3) | np.linalg.norm(a) | np.linalg.norm(v)
np.linalg.norm(a, axis=1) | np.linalg.norm(a, 1, axis=0) | np.linalg.norm(v, np.inf) | np.linalg.norm(v, -np.inf)
np.linalg.norm(v, 3) | np.linalg.norm(v, 0) | np.linalg.norm(a, "fro") | np.linalg.norm(a, 1)
np.linalg.norm(a, np.inf, keepdims=True) | np.linalg.norm(c, axis=(1, 2)) | np.linalg.norm(i)
np.linalg.norm(f, axis=0, keepdims=True) | np.linalg.norm(c, -1, axis=(2, 0)) | np.linalg.norm(c)
np.linalg.norm(v, 1) | np.linalg.norm(v, 2) | np.trapezoid(a) | np.trapezoid(a, dx=0.5, axis=0) | np.trapezoid(a, v)
np.trapezoid(a, b) | np.linalg.vector_norm(c) | np.linalg.vector_norm(c, axis=(0, 1), ord=1)
np.linalg.matrix_norm(c) | np.linalg.norm(a, 2) | np.linalg.norm(c, "nuc", axis=(0, 2)) | np.linalg.norm(q, -2)
np.linalg.norm(a, 2, keepdims=True) | np.linalg.matrix_power(q, -2) | np.linalg.matrix_power(q, 0) | np.linalg.inv(q)
np.linalg.inv(w4) | np.linalg.solve(q, v) | np.linalg.solve(q, w) | np.linalg.solve(w4, w) | np.linalg.det(q)
np.linalg.det(w4) | np.linalg.slogdet(w4) | np.linalg.pinv(a) | np.linalg.pinv(w4, rtol=None) | np.linalg.pinv(a, 0.5)
np.linalg.cholesky(w4) | np.linalg.cholesky(w4, upper=True) | np.linalg.qr(c) | np.linalg.qr(a, "r") | np.linalg.qr(q)
np.linalg.eig(w4) | np.linalg.eig(q) | np.linalg.eigvals(q) | np.roots(v) | np.poly(q) | np.sort_complex(a)
np.linalg.eigh(w4) | np.linalg.eigh(q, UPLO="U") | np.linalg.eigvalsh(q) | np.linalg.svd(q) | np.linalg.svdvals(c)
np.linalg.svd(c, full_matrices=False) | np.linalg.svd(a, compute_uv=False) | np.linalg.matrix_rank(c)
np.linalg.matrix_rank(a, tol=1.5) | np.linalg.matrix_rank(v) | np.linalg.cond(a) | np.linalg.cond(q, 1)
np.linalg.cond(w4, -2) | np.linalg.lstsq(w, v) | np.linalg.lstsq(a, x3[:3]) | np.linalg.lstsq(x3, y3)
np.linalg.inv(p[:, :3]) | np.sort(a) | np.sort(i, axis=0) | np.sort(n, None) | np.sort(k, kind="stable")
np.lib.scimath.logn(2.5, p) | np.sort(m, axis=0, stable=True) | np.argsort(a) | np.argsort(i, axis=0, kind="stable")
np.argsort(n, None, stable=True) | a.argsort(0)
np.partition(a, 3) | np.argpartition(v, 3) | v.argpartition(3) | np.searchsorted(np.sort(v), a)
np.searchsorted(v, a, side="right", sorter=np.argsort(v)) | np.searchsorted(np.sort(i[0]), 3)
np.sort(v).searchsorted(0.5) | np.polyval(v, a) | np.polyval([1.0, 2.0], a) | np.astype(a, np.float32)
np.astype(a, float) | np.block([[a, b], [b, a]]) | np.block([v, s]) | np.block([[q[:3], a], [1.0 + a, a]])
sp.expit(a) | sp.erf(a) | sp.xlogy(a, b) | sp.xlogy(0 * a, 0 * a) | sp.xlogy(n, b) | sp.xlog1py(a, b) | sp.entr(a)
sp.entr(n) | sp.rel_entr(b, b * b) | sp.rel_entr(a, b) | sp.logit(abs(u)) | sp.log_expit(a) | sp.log1p(b)
sp.erfc(a) | sp.ndtr(a)
sp.expm1(a) | sp.cbrt(a) | sp.exp2(a) | a + 1 | 1 - a | 2 * a | a / 2 | 2 / b | a // b | 7 // p | a % 2 | 7 % p
divmod(a, b) | divmod(9, p) | a**2 | b**0.5 | a**-1 | a**3 | 2**a | b**a | i**2 | i**2.0 | f**2 | f**0.5 | -a | +a
abs(a) | ~m | m & m | ~m | m ^ True | a < b | a <= 0 | a > v | 1 >= a | a == a | a != n | i + 1.5 | i + f | f + 1
f + 1.5 | k + 1 | t * 2 | m + 1 | m * 1.0 | a + ARR["v"] | ARR["v"] - a | a + [1, 2, 3, 4] | [1.0, 2.0, 3.0, 4.0] * a
np.float64(2) * f | f * np.float32(2) | np.int64(2) + a | (1, 2, 3, 4) - v | np.float32(1) / f | a.astype(np.float32)
a.astype(int) | i.astype(bool) | a.astype(float) | a.copy() | a.conj() | a.view() | a.real | a.imag | a.swapaxes(0, 1)
a.ndim | a.size | a.shape | a.dtype | a.itemsize | a.nbytes | len(a) | a.item(3) | a.item(1, 2) | a.item((0, 1))
s.item() | a.tolist() | float(s) | int(s) | bool(s) | complex(s) | [0, 1, 2][i[0, 0] % 3] | list(a) | [x for x in c]
100.0 in a | ARR["a"][0, 0] in a | np.add(a, b, dtype=np.float32, casting="unsafe") | np.multiply(i, i, dtype=float)
np.sum(a, axis=np.int64(1)) | s + s | s**2 | np.max(c, axis=(0, 2)) | np.sum([a, b][0]) | a[1:3, ::2].sum()
np.add(a, b, where=True) | np.sum(a, keepdims=np._NoValue) | np.exp(a, out=None)
np.vstack([[1.0, 2.0, 3.0, 4.0], a]) | np.maximum(a, [0, 1, 2, 3]) | np.permute_dims(c, (2, 1, 0)) | np.concat([a, a])
np.logaddexp(n, n) | np.floor_divide(n, 2.0) | np.power(n, 2) | n * 0 | np.sign(n) | n**0.5 | n**2 | n**-1
""".replace("\n", " | ")


def _expressions() -> list[str]:
    results = []
    for text, default in ((UFUNCS, "a"), (BINARY, "a,b")):
        for word in text.split():
            name, _, args = word.partition(":")
            results.append(f"np.{name}({args or default})")
    # The table is split at " | "; the operator is tested by the ufuncs.
    return results + [part.strip() for part in CALLS.split(" | ") if part.strip()]


EXPRESSIONS = _expressions()


SCOPE = {"np": np, "sp": sp, "ARR": ARRAYS, "__builtins__": __builtins__}

# Functions that make arrays.
CREATION = """
np.zeros(3) | np.zeros((2, 3), int) | np.ones((2, 2), dtype=np.float32) | np.full((2, 2), 7)
np.full(3, 1.5, dtype=int) | np.full((2, 4), v) | np.arange(5) | np.arange(1, 7, 2) | np.arange(5, 0, -2)
np.arange(0.0, 1.0, 0.3) | np.arange(3, dtype=float) | np.arange(2, 2) | np.arange(0.5) | np.linspace(0, 1)
np.linspace(2.0, 3.0, 5) | np.linspace(0, 1, 4, endpoint=False) | np.linspace(0, 1, 1) | np.linspace(0, 1, 0)
np.linspace(0, 1, 3, retstep=True) | np.linspace(0, 10, 5, dtype=int) | np.linspace(s, 3.0, 4)
np.linspace(v, 2 * v, 3) | np.linspace(v, 2 * v, 3, axis=1) | np.logspace(0, 2, 3) | np.eye(3) | np.eye(2, 4, 1)
np.eye(3, dtype=int) | np.identity(3) | np.tri(3) | np.tri(3, 4, 1, dtype=int) | np.array([1, 2, 3])
np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32) | np.array(3) | np.asarray([1.0]) | np.ascontiguousarray(2.0)
np.asanyarray(v) | np.array([s, s]) | np.array([[s, 1.0], [2, s]]) | np.array([v, [1, 2, 3, 4]])
np.array(v, copy=True) | np.array(v, ndmin=3) | np.array([f[0], i[0]]) | np.array(a, dtype=int)
np.asarray(a, dtype=np.float32) | np.array((v, v), float) | np.array(2.5, int)
"""
