"""The lines of random programs that are about complex numbers."""

from __future__ import annotations

from fuzz.grammar import lines

__all__ = ["COMPLEX", "COMPLEX_UPDATES", "OF_COMPLEX"]

# What makes complex numbers of real ones, and real ones of complex ones.
OF_COMPLEX = lines("""
{F} + 1j * {G}
{F} * 1j
{F} * (0.5 - 1j)
{F}.astype(complex)
np.exp(1j * {F})
np.array([{S}, 1j * {S2}])
np.array([1j, {S}])
complex({S}, {S2})
np.full(3, {S} + 0.5j)
np.zeros(3, dtype=complex) + {S}
np.fft.fft({V})
np.fft.rfft({V})
np.fft.ifft({F})
np.fft.fft2({M})
np.fft.rfft({F}, {k} + 2, {axis})
np.fft.rfft2({M})
({F} + 0.1j) ** 0.5
np.sqrt({F} + 0.1j)
np.linalg.eigvals({Q} @ {Q}.T + np.diag([0, 1, 2]) + 0j).sum()
np.roots([1.0, {S}, 1.0 + {S2} ** 2]).sum()
np.real({C})
{C}.real
{C}.imag
np.imag({C}) * {c}
np.abs({C})
abs({C}) ** 2
np.absolute({C} + 3.0)
np.angle({C} + 2.5)
np.angle({C})
np.arctan2({C}.imag, 3.0 + {C}.real)
({C} * np.conj({C})).real
np.linalg.norm({C} + 0.1)
np.abs({C}).sum({axis})
np.fft.irfft({Z})
np.fft.irfft(np.fft.rfft({V}), {k} + 3)
np.fft.ifft(np.fft.fft({V})).real
np.fft.hfft({Z})
np.std({C})
np.var({C}, {axis})
np.isreal({C}) * {c}
np.iscomplex({C})
np.real_if_close({C} * np.conj({C}))
np.abs({C}) > {p}
{C} == {C}
np.count_nonzero({C})
np.vdot({C}, {C}).real
{C}.view(float)
np.argmax(np.abs({C})) * {c}
abs({T}) if {T}.real > {c} else {T}.imag
""")

COMPLEX = lines("""
{C} + {Y}
{C} - {Y}
{C} * {Y}
{C} * {G}
{C} / (3.0 + np.abs({Y}))
{C} / ({Y} + 3.5)
1.0 / ({C} + 3.0j)
{C} + {c}
{C} * 1j
-{C}
np.conj({C})
{C}.conj()
np.exp({C} * 0.3)
np.log({C} + 3.0)
np.sqrt({C} + 2.5)
np.sin({C} * 0.5)
np.cos({C} * 0.5)
np.tan({C} * 0.2)
np.tanh({C} * 0.3)
np.sinh({C} * 0.3)
np.cosh({C} * 0.3)
np.arctan({C} * 0.2)
np.arcsinh({C} * 0.2)
np.log1p({C} * 0.1)
np.expm1({C} * 0.1)
{C} ** 2
{C} ** 3
{C} ** -1
({C} + 3.0) ** {c}
({C} + 3.0) ** (0.5 + 0.5j)
np.power({C} + 3.0, {G})
np.square({C})
np.reciprocal({C} + 3.0)
np.sign({C} + 2.0)
np.positive({C})
np.round({C}, 1) + {C}
np.nan_to_num({C})
np.where(np.abs({C}) > {p}, {C}, {Y})
np.where({C}.real > 0.0, {C}, {c})
np.sum({C})
np.sum({C}, {axis})
{C}.mean({axis})
np.mean({C})
np.prod(1.0 + 0.1 * {C}, {axis})
np.cumsum({C}, {axis})
np.cumprod(1.0 + 0.1 * {C}, {axis})
np.add.reduce({C}, {axis})
np.multiply.accumulate(1.0 + 0.1 * {C}, {axis})
np.add.reduceat({C}, [0, {k}], {axis})
np.multiply.outer({Z}, {Z2})
np.diff({C}, axis={axis})
np.average({C}, axis={axis})
np.trapezoid({C}, axis={axis})
np.vdot({C}, {C2})
np.dot({Z}, {Z2})
np.inner({Z}, {Z2})
np.outer({Z}, {Z2})
{K} @ {K2}
{K} @ np.conj({K}).T
{K} @ {V}
np.einsum('ij,ik', {K}, {K2})
np.einsum('i,i', {Z}, np.conj({Z}))
np.tensordot({K}, {K2}, axes=([0], [0]))
np.convolve({Z}, {Z2})
np.polyval([1.0, {T}, -0.5j], {C})
np.trace({K})
np.linalg.solve({K} @ np.conj({K}).T + 3.0 * np.eye(len({K})), {K})
np.linalg.inv({K} @ np.conj({K}).T + 3.0 * np.eye(len({K})))
np.linalg.det({K} @ np.conj({K}).T + 2.0 * np.eye(len({K})))
np.fft.fft({C}, axis={axis})
np.fft.ifft({C}, axis={axis})
np.fft.fft({Z}, {k} + 1)
np.fft.fftshift({C})
np.fft.fftn({C})
np.fft.fft({C}, norm='ortho')
np.fft.fft2({K})
np.stack([{C}, {C2}])
np.concatenate([{C}, {C} * 1j], {axis})
np.concatenate([np.ravel({C}), np.ravel({F})])
np.pad({C}, 1)
np.tile({C}, 2)
np.roll({C}, {k}, {axis})
np.append({C}, {F})
np.zeros_like({C}) + {Y}
np.array([{T}, {S}, 1.0])
{C}[{at}]
{C}[{order}]
{C}[::-1]
{C}.T
{C}.ravel()
{C}.reshape({shape})
{C}.copy()
np.take({C}, [{k}, 0], {axis}, mode='wrap') if {C}.size else {C}
{C}[np.abs({C}) > {p}]
{C}[{C}.imag > 0.0]
{C}[np.argsort(np.round(np.abs({C}[..., 0]), 6))]
np.flip({C}, {axis})
np.transpose({C})
np.diag({Z})
np.diagonal({K})
np.repeat({Z}, 2)
np.squeeze({C})
{C}[..., None]
{C}.astype(np.complex64)
np.asarray({C}, dtype=complex)
np.complex64(1j) * {C}
{C} * np.float32(0.5)
{C} * {I}
{C} * {B}
np.sum({C}, where=np.abs({C}) > {p})
np.multiply({C}, {c}, where=np.abs({C}) > {p}, out=np.zeros_like({C}))
np.interp({F}, [-1.0, 0.0, 1.0], [0.5j, 1.0, -1.0])
np.sort_complex({C})
np.sort({C}, {axis})
{T} * {C}
{T} ** {k}
np.array([z * np.conj(z) + 1j for z in {Z}])
np.vectorize(lambda z: z * 2j)({C})
np.apply_along_axis(lambda r: np.sum(r * r), {axis}, {C})
sum(z * {c} for z in {Z})
""")

COMPLEX_UPDATES = lines("""
{W} += {c}
{W} *= 1j
{W} *= {Y}
{W} -= {G}
{W} /= {p}
{W} **= 2
{W}[{at}] = {c}
{W}[{at}] = {T}
{W}[{at}] *= 0.5j
{W}[{at}] += {S}
{W}[np.abs({W}) > {p}] = {c}
{W}[np.abs({W}) > {p}] *= 0.5
{W}[{cells}] += {T}
{W}[...] = {G}
{W}[...] = {Y}
{W}.real = {c}
{W}.imag *= {c}
{W}.real[...] = {S}
{W}.imag += {G}
{W}[{at}].real += {c}
{W}.T[0] += 1j
np.add.at({W}, [0, 0, -1], {c})
np.multiply({W}, {W}, out={W})
np.conj({W}, out={W})
np.exp({W} * 0.1, out={W})
np.copyto({W}, {Y})
np.fill_diagonal({W}, {T})
{W}.fill({T})
{W}[::-1] = {W}.copy()
{W}[1:] -= {W}[:-1]
""")
