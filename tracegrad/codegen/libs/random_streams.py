"""Emit random number generation for loops: the draws of `np.random.default_rng()` that programs use most.

The generated code advances the PCG64 state and converts its words as NumPy does: floats in [0, 1), integers below a
bound, and the first, common branch of the ziggurat algorithm for the normal and the exponential distribution. In the
rare branches NumPy makes the whole draw, from the same state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop
from tracegrad.codegen.loopir.random_draws import Native

I32, I128, F64 = ir.IntType(32), ir.IntType(128), ir.DoubleType()
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
# Margin of the computed thresholds: NumPy makes a draw whose position is this close to its threshold.
_MARGIN = 1 << 12


# -- tables --------------------------------------------------------------------------------------------------------
def _generator_at(word: int) -> object:
    """A generator whose next 64 bits are `word`."""
    generator = np.random.Generator(np.random.PCG64(0))
    state = generator.bit_generator.state
    inside = state["state"]
    inside["state"] = (word - inside["inc"]) * pow(_MULTIPLIER, -1, 2**128) % 2**128
    generator.bit_generator.state = state
    return generator


@functools.cache
def _table(distribution: str) -> tuple[list[float], list[int]]:
    """The ziggurat tables: for each layer its width per step of the position, and the position below which a draw is
    inside the next layer. NumPy computes the width at position 1."""
    normal = distribution == "normal"
    words = [i | 1 << 9 if normal else i << 3 | 1 << 11 for i in range(256)]
    method = "standard_normal" if normal else "standard_exponential"
    widths = [getattr(_generator_at(word), method)() for word in words]
    whole = 2.0 ** (52 if normal else 53)
    limits = [int(whole * (widths[i - 1] / widths[i])) - _MARGIN for i in range(256)]
    return widths, [0 if i == 1 else max(x, 0) for i, x in enumerate(limits)]


# -- machine code --------------------------------------------------------------------------------------------------
def write_draw(
    b: ir.IRBuilder, native: Native, state: object, outs: list[object], otherwise: Callable[[], None]
) -> None:
    """Emit a draw from the state at an address: store the next state and the numbers to the addresses `outs` (None for
    unused ones), or run `otherwise`."""
    _DrawEmitter(b, native, state, outs).write(otherwise)


def _whole(x: int, t: ir.IRType = I64) -> Any:
    return ir.IRConstant(t, x)


class _DrawEmitter:
    def __init__(self, b: Any, native: Native, state: Any, outs: list[object]):
        self.b, self.native = b, native
        with b.goto_entry_block():
            self.state, self.half, self.failed = b.alloca(I128), b.alloca(I64), b.alloca(I32)
        words = [b.load(b.gep(b.bitcast(state, I64.as_pointer()), [_whole(k)])) for k in range(6)]
        self.begin = words
        b.store(self._joined(*words[:2]), self.state)
        self.inc = self._joined(*words[2:4])
        # The saved half of a 64-bit word, and in bit 32 whether there is one.
        b.store(b.or_(b.shl(words[4], _whole(32)), words[5]), self.half)
        b.store(_whole(0, I32), self.failed)
        self.next, self.out = outs

    def _joined(self, low: ir.IRValue, high: ir.IRValue) -> object:
        b = self.b
        return b.or_(b.zext(low, I128), b.shl(b.zext(high, I128), _whole(64, I128)))

    def write(self, otherwise: Callable[[], None]) -> None:
        b, native = self.b, self.native
        t = I64 if native.distribution == "integers" else F64
        out = None if self.out is None else b.bitcast(self.out, t.as_pointer())

        def each(i: ir.Phi) -> None:
            x = getattr(self, f"_{native.distribution}")()
            if t is F64 and (native.low, native.width) != (0.0, 1.0):
                x = b.fmul(ir.IRConstant(F64, native.width), x)
                x = b.fadd(ir.IRConstant(F64, native.low), x) if native.distribution != "exponential" else x
            if out is not None:
                b.store(x, b.gep(out, [i]))

        loop(b, _whole(native.count), each)
        with b.if_else(b.icmp_signed("==", b.load(self.failed), _whole(0, I32))) as (good, bad):
            with good:
                self._store_state()
            with bad:
                otherwise()

    def _store_state(self) -> None:
        if self.next is None:
            return
        b, state, half = self.b, self.b.load(self.state), self.b.load(self.half)
        low, high = b.trunc(state, I64), b.trunc(b.lshr(state, _whole(64, I128)), I64)
        rest = [b.lshr(half, _whole(32)), b.and_(half, _whole(0xFFFFFFFF))]
        at = b.bitcast(self.next, I64.as_pointer())
        for k, word in enumerate([low, high, *self.begin[2:4], *rest]):
            b.store(word, b.gep(at, [_whole(k)]))

    def _fails_unless(self, condition: ir.IRValue) -> None:
        b = self.b
        b.store(b.or_(b.load(self.failed), b.zext(b.not_(condition), I32)), self.failed)

    def _word(self) -> object:
        """The next 64 bits."""
        b = self.b
        state = b.add(b.mul(b.load(self.state), _whole(_MULTIPLIER, I128)), self.inc)
        b.store(state, self.state)
        high = b.trunc(b.lshr(state, _whole(64, I128)), I64)
        mixed = b.xor(high, b.trunc(state, I64))
        by = b.lshr(high, _whole(58))
        back = b.and_(b.sub(_whole(0), by), _whole(63))
        return b.or_(b.lshr(mixed, by), b.shl(mixed, back))

    def _half_word(self) -> object:
        """The next 32 bits: half of a word; the other half is saved for the next draw."""
        b = self.b
        saved = b.load(self.half)
        has = b.icmp_unsigned("!=", b.lshr(saved, _whole(32)), _whole(0))
        result = self._slot()
        with b.if_else(has) as (then, otherwise):
            with then:
                b.store(b.and_(saved, _whole(0xFFFFFFFF)), result)
                b.store(b.and_(saved, _whole(0xFFFFFFFF)), self.half)
            with otherwise:
                word = self._word()
                b.store(b.and_(word, _whole(0xFFFFFFFF)), result)
                b.store(b.or_(b.lshr(word, _whole(32)), _whole(1 << 32)), self.half)
        return b.load(result)

    def _slot(self) -> Any:
        with self.b.goto_entry_block():
            return self.b.alloca(I64)

    def _uniform(self) -> object:
        b = self.b
        return b.fmul(b.uitofp(b.lshr(self._word(), _whole(11)), F64), ir.IRConstant(F64, 2.0**-53))

    def _integers(self) -> object:
        """Draw a bounded integer by Lemire's method: the upper half of a product, unless its lower half must be
        rejected."""
        b, width = self.b, int(self.native.width)
        product = b.mul(self._half_word(), _whole(width))
        low_half = b.and_(product, _whole(0xFFFFFFFF))
        self._fails_unless(b.icmp_unsigned(">=", low_half, _whole(width)))
        return b.add(b.lshr(product, _whole(32)), _whole(int(self.native.low)))

    def _normal(self) -> object:
        b, word = self.b, self._word()
        position = b.and_(b.lshr(word, _whole(9)), _whole((1 << 52) - 1))
        x = self._in_layer(b.and_(word, _whole(255)), position)
        negative = b.icmp_unsigned("!=", b.and_(word, _whole(256)), _whole(0))
        return b.select(negative, b.fneg(x), x)

    def _exponential(self) -> object:
        b, word = self.b, self._word()
        return self._in_layer(b.and_(b.lshr(word, _whole(3)), _whole(255)), b.lshr(word, _whole(11)))

    def _in_layer(self, layer: ir.IRValue, position: ir.IRValue) -> object:
        b = self.b
        widths, limits = (self._global(k, t) for k, t in enumerate((F64, I64)))
        width, limit = (b.load(b.gep(table, [_whole(0), layer])) for table in (widths, limits))
        self._fails_unless(b.icmp_unsigned("<", position, limit))
        return b.fmul(b.uitofp(position, F64), width)

    def _global(self, k: int, t: ir.IRType) -> object:
        name = f"tg_layers.{self.native.distribution}.{k}"
        result = self.b.module.globals.get(name)
        if result is None:
            whole = ir.ArrayType(t, 256)
            result = ir.GlobalVariable(self.b.module, whole, name)
            result.linkage, result.global_constant = "internal", True
            result.initializer = ir.IRConstant(whole, _table(self.native.distribution)[k])
        return result
