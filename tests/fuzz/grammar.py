"""The lines of random programs: expressions of real numbers, integers and truths.

A line has holes. A capital letter is a variable of a kind, a digit tells two of one kind apart:

    F  floating, of any shape      V  floating, one axis      M  floating, two axes      Q  floating, a square matrix
    I  integers                    B  bools                   S  floating, no axes       A  anything
    C  complex                     Z  complex, one axis       K  complex, two axes       T  complex, no axes
    U  a floating array made inside, which may be updated     G  floating, of a shape that goes with the first one's
    W  a complex array made inside                            Y  complex, of a shape that goes with the first one's
    J  an array of integers made inside

The other holes are about the first variable of the line: `axis` one of its axes, `axes` two, `at` an index, `cells` an
index that names no element twice, `mask` a condition on its elements, `order` the elements of an axis in any order,
`shape` another shape of as many elements. `c` is a number, `p` a positive one, `k` a small integer, `dtype` a dtype.

`statements` has the lines that are none, `complexes` those of complex numbers, `matrices` those of linear algebra.
"""

from __future__ import annotations

__all__ = [
    "ARRAYS",
    "CHOICES",
    "ELEMENTWISE",
    "INTEGERS",
    "MASKS",
    "PRODUCTS",
    "REDUCTIONS",
    "SETS",
    "UFUNC_METHODS",
    "VIEWS",
    "lines",
]


def lines(text: str, between: str = "\n") -> list[str]:
    """The lines, or what else stands between these."""
    return text.strip("\n").split(between)


ELEMENTWISE = lines("""
np.sin({F})
np.cos({F}) * {c}
np.tanh({F})
np.exp(-{F} ** 2)
np.log1p({F} ** 2)
np.sqrt(1.0 + {F} ** 2)
np.arctan({F}) + {G}
{F} + {G}
{F} - {G}
{F} * {G}
{F} / (2.0 + np.abs({G}))
{F} * {c} + {c2}
{F} ** 2
{F} ** 3 - {G}
(1.0 + np.abs({F})) ** {c}
np.power(np.abs({F}) + 0.5, {G})
-{F}
abs({F})
np.maximum({F}, {G})
np.minimum({F}, {c})
np.fmax({F}, {G})
np.hypot({F}, {p})
np.arctan2({F}, 1.0 + {G} ** 2)
np.logaddexp({F}, {G})
np.where({F} > {c}, {F}, {G})
np.clip({F}, {c}, {c} + 1.0)
np.sign({F}) * {G}
np.square({F}) - {c}
np.expm1({F} * 0.1)
np.cbrt(np.abs({F}) + 3.0)
np.sinc({F})
np.heaviside({F}, 0.5) + {F}
np.floor({F} * 2.0) * {c}
np.fmod({F}, {p})
{F} % {p}
np.copysign({p}, {F}) * {F}
np.reciprocal({F} ** 2 + 1.0)
np.nan_to_num({F})
np.round({F}, 1) + {F}
np.deg2rad({F})
np.float_power(np.abs({F}) + 1.0, 0.5)
np.positive({F})
np.multiply({F}, {G}, where={F} > 0.0, out=np.zeros(np.broadcast_shapes(np.shape({F}), np.shape({G}))))
np.add({F}, {c}, dtype='float64')
np.ldexp({F}, {k})
np.exp2({F})
np.arcsinh({F})
np.trunc({F}) - {F}
""")

REDUCTIONS = lines("""
np.sum({F})
{F}.sum({axis})
np.sum({F}, {axis}, keepdims=True)
np.mean({F}, {axis})
{F}.mean()
np.std({F})
np.var({F}, {axis})
np.var({F}, {axis}, ddof=1)
np.prod(1.0 + 0.1 * {F}, {axis})
np.max({F})
np.min({F}, {axis})
{F}.max({axis}, keepdims=True)
np.ptp({F})
np.median({F}, {axis})
np.median({F})
np.quantile({F}, 0.3)
np.percentile({F}, 60, axis={axis})
np.linalg.norm({F} + 0.01)
np.linalg.norm({M}, axis={axis})
np.cumsum({F}, {axis})
np.cumsum({F})
np.cumprod(1.0 + 0.1 * {F}, {axis})
np.nansum({F}, {axis})
np.nanmax({F})
np.average({F}, axis={axis})
np.average({V}, weights=1.0 + {V} ** 2)
np.trapezoid({F}, axis={axis})
np.diff({F}, axis={axis})
np.gradient({V})
np.sum({F}, where={mask})
np.max({F}, initial={c})
np.sum({F}, {axes})
np.mean({F}, {axes})
np.logaddexp.reduce({F}, {axis})
np.trace({M})
np.count_nonzero({F} > 0.0, {axis}) * 0.5
np.cov({V}, {V} ** 2)
np.any({F} > {c}) * {c}
np.all({F} > {c}, {axis}) * 1.5
np.ediff1d({F})
np.unwrap({V} * 3.0)
np.nancumsum({F}, {axis})
np.nancumprod(1.0 + 0.1 * {F}, {axis})
np.cumulative_sum({F}, axis={axis})
np.cumulative_sum({V}, include_initial=True)
np.cumulative_prod(1.0 + 0.1 * {F}, axis={axis})
{F}.cumsum({axis}, dtype={dtype})
np.mean({F}, {axis}, dtype={dtype})
np.nanmean({F}, {axis})
np.nanstd({F}, {axis})
np.nanmedian({F}, {axis})
np.quantile({F}, [0.2, 0.7], axis={axis})
np.mean({F}, where={mask})
""")

UFUNC_METHODS = lines("""
np.add.reduce({F}, {axis})
np.multiply.reduce(1.0 + 0.1 * {F}, {axis})
np.maximum.reduce({F}, {axis})
np.minimum.reduce({F}, {axis}, initial={c})
np.add.accumulate({F}, {axis})
np.maximum.accumulate({F}, {axis})
np.multiply.accumulate(1.0 + 0.1 * {F}, {axis})
np.add.reduceat({F}, [0, {k}], {axis})
np.add.outer({V}, {V2})
np.multiply.outer({V}, {V2})
np.subtract.outer({V}, {V2})
np.maximum.reduceat({F}, [0, {k}], {axis})
np.hypot.outer({V}, 1.0 + {V2} ** 2)
np.add.reduce({F}, None)
np.add.reduce({F}, {axis}, keepdims=True)
np.minimum.reduceat({F}, [{k}, 0], {axis})
np.multiply.reduceat(1.0 + 0.1 * {F}, [0, {k}, 0], {axis})
np.logaddexp.reduceat({F}, [0, {k}], {axis})
np.logaddexp.accumulate({F}, {axis})
np.minimum.accumulate({F}, {axis})
np.subtract.accumulate({F}, {axis})
np.subtract.reduce({F}, {axis})
np.hypot.reduce(1.0 + {F} ** 2, {axis})
np.divide.outer({F}, 2.0 + {V} ** 2)
np.maximum.outer({V}, {F})
np.arctan2.outer({V}, 1.0 + {V2} ** 2)
np.power.outer(1.0 + np.abs({V}), [1.0, 2.0])
np.less.outer({V}, {V2}) * {c}
np.logical_or.reduce({F} > {c}, {axis}) * {c}
np.logical_and.accumulate({F} > {c}, {axis}) * {c}
np.add.reduce({F}, {axis}, where={mask})
np.multiply.reduce({F}, {axis}, where={mask}, initial={c})
np.maximum.reduce({F}, {axis}, where={mask}, initial={c})
np.add.reduce({F}, {axes})
np.add.reduce({F}, {axis}, dtype={dtype})
""")

VIEWS = lines("""
{F}[{at}]
{F}.T
{F}.reshape({shape})
{F}.ravel()
np.ravel({F}, order='F')
np.transpose({F})
np.swapaxes({F}, 0, -1)
np.moveaxis({F}, 0, -1)
np.flip({F}, {axis})
np.expand_dims({F}, {axis})
np.squeeze({F})
np.atleast_2d({F})
np.diagonal({M})
np.diag({V})
np.diag({M}, {k})
{M}[:, ::-1]
{M}[::2, 1:]
{V}[:, None]
{V}[None, :]
np.broadcast_to({V}, (2, *{V}.shape))
np.array_split({F}, 2)[1]
np.rot90({M})
np.lib.stride_tricks.sliding_window_view({V}, 3)
{F}.flatten()
{F}.copy()
{F}[...]
np.split({V}, [1, 3])[1]
""")

CHOICES = lines("""
{F}[{order}]
{F}[{cells}]
np.take({F}, {order}, {axis})
np.take({F}, [{k}, 0, {k}], {axis}, mode='wrap') if {F}.size else {F}
np.sort({F}, {axis})
np.sort({F}, None)
{F}[np.argsort(np.round({V}, 6))]
np.take_along_axis({F}, np.argsort(np.round({F}, 6), {axis}), {axis})
np.argmax({F}, {axis}) * {c}
np.partition({V}, {k})
np.searchsorted(np.sort({V}), {F}) * 0.5
np.digitize({F}, [-0.5, 0.0, 0.7]) + {F}
np.interp({F}, [-1.0, 0.0, 0.9], [0.2, -0.4, 1.5])
np.choose(({F} > 0.0).astype(int), [{F}, {c}])
np.roll({F}, {k}, {axis})
np.select([{F} > 0.5, {F} > 0.0], [{F} ** 2, -{F}], {c})
np.piecewise({F}, [{F} < 0.1], [lambda z: z ** 2, lambda z: 3 * z])
np.lexsort((np.round({V}, 6), {V} > 0.0)) * 0.1
{F}.take({order})
np.rot90({M}, {k})
np.tril({M})
np.triu({M}, 1)
np.histogram({V}, bins=4, range=(-2, 2))[0] * 0.5
np.bincount([0, 1, 1, 2], weights=[{S}, 1.0, {S}, 2.0])
{M}[[0, -1], [-1, 0]]
{M}[np.ix_([0, -1], [0])]
{M}[np.triu_indices(min({M}.shape))]
np.unravel_index({k}, (3, 4))[0] * {S}
np.partition({F}, {k}, {axis})
np.argpartition(np.round({V}, 6), {k})[:1] * {c}
np.argsort(np.round({F}, 6), {axis}) * 0.5
np.argsort(np.round(-{F}, 6), {axis}, kind='stable') * 0.5
np.sort({F}, {axis})[::-1]
np.sort(-np.abs({F}), {axis})
{F}[np.argsort(np.round({F}[..., 0], 6))]
np.take_along_axis({F}, np.expand_dims(np.argmax({F}, {axis}), {axis}), {axis})
np.take_along_axis({F}, np.argsort(np.round({F}, 6), {axis})[:2], {axis})
np.argmin({F}, {axis}) * {c}
np.sort({F}, axis=None)[-1]
np.searchsorted(np.sort({V}), {V2}, side='right') * 0.5
np.sort({V})[np.searchsorted(np.sort({V}), {c}):]
np.unique(np.round({F}, 1), return_counts=True)[1] * {c}
np.unique(np.round({F}, 1), return_inverse=True)[1] * {c}
{V}[:int(abs({S}) * 3)]
{V}[int(abs({S})) % len({V})]
{F}[{I} % len({F})]
np.take({V}, {I}, mode='clip' if {V}.size else 'raise')
{F}[..., {I} % 1]
""")

MASKS = lines("""
{F}[{mask}]
{F}[{mask}] ** 2
np.sum({F}[{mask}])
np.mean(np.append({F}[{mask}], 0.3))
np.compress({V} > {c}, {V})
np.extract({mask}, {F})
{V}[np.nonzero({V} > {c})[0]]
np.flatnonzero({F} > {c}) * 0.5
np.argwhere({F} > {c}).sum(0) * 0.1
np.unique(np.round({F}, 1))
np.repeat({V}, 2)
np.repeat({V}, np.abs({V} * 2).astype(int))
np.where({F} > {c})[0] * 0.25
np.delete({V}, {k})
np.insert({V}, {k}, {c})
np.trim_zeros(np.where({V} > 0.0, {V}, 0.0))
np.isin(np.round({F}), [0.0, 1.0]) * {F}
np.where({B}, {F}, {c})
np.where({B}, {c}, {c2})
np.where({M} > {c})[1] * 0.5
{F}[np.where({F} > {c})]
{M}[np.where({M}[:, 0] > {c})[0]]
{M}[{M}[:, 0] > {c}]
{M}[:, {M}[0] > {c}]
np.cumsum({F}[{mask}])
np.sort({F}[{mask}])
np.repeat({V}, ({V} > {c}).astype(int) + 1)
np.repeat({F}, 2, {axis})
np.repeat({M}, ({M}[:, 0] > 0.0).astype(int) + 1, axis=0)
np.repeat({S}, int(abs({S2}) * 3))
np.tile({V}, int(abs({S}) * 2))
np.arange(int(abs({S}) * 5)) * {S2}
np.zeros(int(abs({S}) * 4)) + {S}
np.append({F}[{mask}], {V})
np.max(np.append({F}[{mask}], {c}))
np.diff({F}[{mask}])
np.outer({F}[{mask}], {V})
np.split({V}, np.flatnonzero({V} > {c}))[-1]
""")

PRODUCTS = lines("""
{M} @ {M2}
{M} @ {M}.T
{M}.T @ {M2}
{M} @ {V}
{V} @ {M}
np.dot({V}, {V2})
np.dot({F}, {F2})
np.inner({V}, {V2})
np.outer({V}, {V2})
np.vdot({F}, {F2})
np.einsum('ij,kj->ik', {M}, {M2})
np.einsum('i,j->ij', {V}, {V2})
np.einsum('ij->j', {M})
np.tensordot({M}, {M2}, axes=([1], [1]))
np.kron({V}, {V2})
np.convolve({V}, {V2})
np.correlate({V}, {V2}, 'same')
np.cross({V}[:3], {V2}[:3])
np.linalg.solve({Q} @ {Q}.T + 3.0 * np.eye(len({Q})), {Q2})
np.linalg.det({Q} * 0.5 + np.eye(len({Q})))
np.linalg.inv({Q} @ {Q}.T + 2.0 * np.eye(len({Q})))
np.linalg.cholesky({Q} @ {Q}.T + 2.0 * np.eye(len({Q})))
np.linalg.matrix_power({Q} * 0.5, 3)
np.linalg.multi_dot([{M}, {M}.T, {M2}])
np.matmul({M}, {M2}) * 0.1
np.linalg.slogdet({Q} @ {Q}.T + 2.0 * np.eye(len({Q})))[1]
np.vander({V}, 3)
np.polyval([{S}, 0.5, -1.0], {F})
np.einsum('ij,ij->i', {M}, {M})
np.einsum('ij,ij', {M}, {M})
np.einsum('ij,j', {M}, {V})
np.einsum('ii->i', {Q})
np.einsum('ii', {Q})
np.einsum('ij->ji', {M})
np.einsum('i,i', {V}, {V2})
np.einsum('...i,...i', {F}, {F})
np.einsum('...ij->...', {F})
np.einsum('...i->i...', {F})
np.einsum('ij,jk,k->i', {M}, {M}.T, {V})
np.einsum('ij,jk,kl', {M}, {M}.T, {M2}, optimize=True)
np.tensordot({F}, {F2}, axes=0)
np.tensordot({F}, {F2}, axes=1)
np.tensordot({F}, {F}, axes={F}.ndim)
np.tensordot({M}, {M2}, axes=([0], [0]))
np.inner({F}, {F2})
np.kron({M}, {M2})
np.vecdot({F}, {F2})
np.matvec({M}, {V})
{F} @ {F2}
""")

ARRAYS = lines("""
np.zeros_like({F})
np.ones_like({F}) * {c}
np.full(np.shape({F}), {S})
np.arange({k}) * {S}
np.linspace({S}, 1.0, 5)
np.eye(3) * {S}
np.array([{S}, {c}, {S2} ** 2])
np.array([[{S}, 1.0], [0.0, {S2}]])
np.stack([{F}, {F}])
np.concatenate([{F}, {F2}])
np.concatenate([{F}, {F} ** 2], {axis})
np.hstack([{V}, {V2}])
np.vstack([{V}, {V}])
np.column_stack([{V}, {V}])
np.block([[{M}, {M}], [{M}, {M}]])
np.pad({F}, 1)
np.pad({V}, (1, 2), mode='edge')
np.pad({F}, 1, mode='reflect')
np.tile({F}, 2)
np.append({F}, {F2})
np.meshgrid({V}, {V2})[0]
np.fromfunction(lambda i, j: i * {S} + j, (2, 3))
np.resize({F}, (2, 3))
np.apply_along_axis(lambda r: np.sum(r ** 2), {axis}, {F})
np.vectorize(lambda r: r * 2.0 + 1.0)({F})
np.array([np.sum(row) for row in {M}])
np.array([float(k) for k in range({k})])
{F}.astype({dtype})
np.asarray({F}, dtype={dtype})
np.float32({S}) * {F}
np.r_[{V}, {c}, {V}]
np.c_[{V}, {V}]
{F}.astype(np.float32) + {F2}
np.float32(0.5) * {F}
{F} + np.arange({k}, dtype=np.int8)[-1:]
np.where({B}, {I}, {F})
np.concatenate([np.ravel({I}), np.ravel({F})])
np.concatenate([np.ravel({F}), np.ravel({B})])
{F} * {B}
{F} + {I}
{F} - np.uint8(3)
np.maximum({I}, {F})
np.full_like({F}, {k}, dtype={dtype})
np.zeros_like({F}, dtype={dtype}) + {S}
""")

INTEGERS = lines("""
({F} * 3.0).astype(int)
np.floor({F} * 2).astype(np.int32)
{I} + {k}
{I} * {k} - 1
{I} // 3
{I} % 4
{I} & 3
{I} | 4
{I} ^ 5
~{I}
{I} << 1
{I} >> 1
np.gcd({I}, 6)
np.abs({I})
np.sum({I})
np.cumsum({I})
np.max({I})
np.bitwise_count(np.abs({I}))
np.argsort({I}, kind='stable')
{I} * {S}
{I} / 2
np.lcm(np.abs({I}) + 1, 4)
np.minimum({I}, 2)
{F} > {c}
{F} <= {G}
np.logical_and({B}, {B2})
~{B}
{B} | {B2}
np.isfinite({F})
{F} != {G}
np.logical_xor({B}, {F} > 0.0)
{B}.any()
np.all({B})
{B} * {c}
{B} + 1
np.sum({B})
np.invert({B})
np.divmod({I}, 3)[1]
np.power(np.abs({I}) % 5, 2)
np.sort({I})
np.diff({I})
np.bincount(np.abs({I}).ravel() % 5)
{I}.astype(np.uint8)
{I}.astype(float)
np.clip({I}, -1, 2)
np.sign({I})
{I}.astype(np.int8)
{I}.astype(np.int16) * {I2}
{I}.astype(np.uint16) + 1
{I} + {I2}
{I} - {B}
{I} * {B}
{I} ** 2
-{I}
{B} + {B2}
{B} * {B2}
{B} ^ {B2}
np.where({B}, {I}, 1)
np.mean({I}, {axis})
np.mean({B})
np.var({I})
np.cumsum({B})
np.prod({I} % 3, {axis})
np.sum({I}, {axis}, dtype=np.int32)
np.sum({B}, {axis})
np.maximum.accumulate({I}, {axis})
np.add.reduceat({I}, [0, {k}], {axis})
np.int32({k}) - {I}
np.float32({k}) * {I}
{I} @ {I2}
np.dot({I}, {I2})
np.einsum('i,i', {I}, {I2})
np.right_shift({I}, {B})
np.true_divide({I}, 4)
np.floor_divide({I}, 2.0)
np.remainder({I}, 2.5)
np.argmax({I}, {axis})
np.unique({I}, return_counts=True)[1]
np.nonzero({I})[0]
{I}[{I} > 0]
np.bitwise_or.reduce({I}, {axis})
np.equal({I}, {I2}).sum()
np.arange({k}, dtype=np.uint8) - 1
np.array([{k}, 2, 250], dtype=np.uint8) + np.uint8(10)
""")

SETS = lines("""
np.intersect1d({I}, [0, 1, 2]) * 1.0
np.union1d({I}, [1]) * 0.5
np.setdiff1d({I}, [0]) * 1.0
np.unique({I}) * 0.1
""")
