"""The lines of random programs.

A line has holes. A capital letter is a variable of a kind, a digit tells two of one kind apart:

    F  floating, of any shape      V  floating, one axis      M  floating, two axes      Q  floating, a square matrix
    I  integers                    B  bools                   S  floating, no axes       A  anything
    U  a floating array made inside, which may be updated     G  floating, of a shape that goes with the first one's

The other holes are about the first variable of the line: `axis` one of its axes, `axes` two, `at` an index, `cells` an
index that names no element twice, `mask` a condition on its elements, `order` the elements of an axis in any order,
`shape` another shape of as many elements. `c` is a number, `p` a positive one, `k` a small integer, `dtype` a dtype.
"""

from __future__ import annotations

__all__ = ["ARRAYS", "CHOICES", "ELEMENTWISE", "FLOW", "INTEGERS", "MASKS", "PRODUCTS", "REDUCTIONS", "SETS",
           "UFUNC_METHODS", "UPDATES", "VIEWS"]  # fmt: skip


def _lines(text: str, between: str = "\n") -> list[str]:
    return text.strip("\n").split(between)


ELEMENTWISE = _lines("""
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
np.cbrt({F} + 3.0)
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

REDUCTIONS = _lines("""
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
""")

UFUNC_METHODS = _lines("""
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
""")

VIEWS = _lines("""
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

CHOICES = _lines("""
{F}[{order}]
{F}[{cells}]
np.take({F}, {order}, {axis})
np.take({F}, [{k}, 0, {k}], {axis}, mode='wrap')
np.sort({F}, {axis})
np.sort({F}, None)
{F}[np.argsort({V})]
np.take_along_axis({F}, np.argsort({F}, {axis}), {axis})
np.argmax({F}, {axis}) * {c}
np.partition({V}, {k})
np.searchsorted(np.sort({V}), {F}) * 0.5
np.digitize({F}, [-0.5, 0.0, 0.7]) + {F}
np.interp({F}, [-1.0, 0.0, 0.9], [0.2, -0.4, 1.5])
np.choose(({F} > 0.0).astype(int), [{F}, {c}])
np.roll({F}, {k}, {axis})
np.select([{F} > 0.5, {F} > 0.0], [{F} ** 2, -{F}], {c})
np.piecewise({F}, [{F} < 0.1], [lambda z: z ** 2, lambda z: 3 * z])
np.lexsort(({V}, {V} > 0.0)) * 0.1
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
""")

MASKS = _lines("""
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
""")

PRODUCTS = _lines("""
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
""")

ARRAYS = _lines("""
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
""")

INTEGERS = _lines("""
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
""")

SETS = _lines("""
np.intersect1d({I}, [0, 1, 2]) * 1.0
np.union1d({I}, [1]) * 0.5
np.setdiff1d({I}, [0]) * 1.0
np.unique({I}) * 0.1
""")

UPDATES = _lines("""
{U} += {c}
{U} *= {c}
{U} -= {G}
{U}[{at}] = {c}
{U}[{at}] *= {c}
{U}[{at}] += {S}
{U}[{mask}] = {c}
{U}[{mask}] *= {S}
{U}[{mask}] += 0.25
{U}[{cells}] = {S}
{U}[{cells}] += {c}
{U}[...] = {G}
{U}.T[0] += {c}
{U}.ravel()[1:] = {c}
{U}.reshape(-1)[::2] *= {S}
np.add.at({U}, [0, 0, -1], {c})
np.add({U}, {G}, out={U})
np.sin({U}, out={U})
np.maximum({U}, {c}, out={U})
np.put({U}, [0, -1], {S})
np.putmask({U}, {U} > {c}, {S})
np.copyto({U}, {G})
np.fill_diagonal({U}, {S})
np.place({U}, {U} > {c}, [{c2}])
{U}.fill({S})
{U}.sort()
{U}[0], {U}[-1] = {U}[-1] * 1.0, {U}[0] * 1.0
{U}[1:] -= {U}[:-1]
{U} **= 2
{U} /= {p}
{U}.flat[0] = {S}
np.subtract.at({U}, 0, {c})
np.multiply.at({U}, [0], {S})
{U}[:, 0] = {V}
{U}[::-1] = {U}.copy()
np.clip({U}, -1.0, {p}, out={U})
np.copyto({U}, {c}, where={mask})
""")

# What holds `NEW` makes a variable.
FLOW = _lines(
    """
NEW = 0.0
for z in {V}:
    NEW = NEW * 0.5 + np.sin(z)

NEW = {F}
for i in range({k}):
    NEW = NEW + 0.1 * np.sin(NEW) * i

NEW = {F} * 1.0
for i in range({k}):
    NEW = 0.5 * (NEW + {c} / (1.0 + NEW ** 2))

NEW = {S}
while abs(NEW) > 0.3:
    NEW = NEW * 0.6

if {S} > {c}:
    NEW = {F} * 2.0
else:
    NEW = {F} - 1.0

NEW = {F} if np.sum({F}) > {c} else -{F}

NEW = np.zeros({k} + 1)
for i in range({k}):
    NEW[i + 1] = NEW[i] * 0.5 + {S}

NEW = np.zeros(len({V}))
for i, z in enumerate({V}):
    NEW[i] = z ** 2 if z > 0.1 else z

NEW = np.zeros_like({M})
for i in range({M}.shape[0]):
    for j in range({M}.shape[1]):
        NEW[i, j] = {M}[i, j] * (i + 1) - j

NEW = [row * {c} for row in {M}]
NEW = sum(NEW)

try:
    NEW = {F} * {M}
except ValueError:
    NEW = {F} * 0.5

NEW = {V}
for i in range(1, len(NEW)):
    if NEW[i] < NEW[i - 1]:
        break
    NEW = NEW * 0.9

NEW = max({S}, {S2}) + min({S}, {c})

NEW = sum(z * {c} for z in {V})

NEW = {F}
for w in ({c}, {c2}):
    NEW = np.tanh(NEW + w)

total = {'a': {S}, 'b': {c}}
total['a'] = total['a'] + 1.0
NEW = total['a'] * total['b']

NEW = float(np.floor({S})) * {F}

NEW = np.cumsum([{S}, *({c}, {c2})])
""",
    "\n\n",
)
