"""Emit packbits and unpackbits; `sorting.py` describes their operands.

    32 booleans of a row: compared with 0, a vector of bits is a word
    8 booleans, and in the end the remaining ones, as a byte
    4 bytes, and in the end one: repeated in eight lanes, each of which tests one bit

If the highest bit is the first, the lanes of each byte are reversed.
"""

from __future__ import annotations

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.support import loop
from tracegrad.codegen.libs.native_call import I8, I32, NativeCallEmitter, whole
from tracegrad.codegen.vecmath.lanes import number, of_lanes

EACH = 8  # bits of a byte
AT_A_TIME = 4  # bytes


def _of_bytes(b: ir.IRBuilder, values: ir.IRValue, lanes: list[int]) -> ir.IRValue:
    """Shuffle a vector; `lanes` are the numbers of the source lanes."""
    return b.shuffle_vector(values, values, ir.IRConstant(of_lanes(I32, len(lanes)), lanes))


class _Packing(NativeCallEmitter):
    def run(self, rows: ir.IRValue) -> None:
        with self.b.if_else(self.flag) as orders:
            for order, self.big in zip(orders, (True, False)):
                with order:
                    loop(self.b, rows, self.emit_row)

    def emit_row(self, row: ir.Phi) -> None:
        """Emit the loop over a row."""
        b = self.b
        x = self.at(self.addresses[0], I8, b.mul(row, self.n))
        out = self.at(self.out, I8, b.mul(row, self.side))
        whole_bytes = self.bytes()
        groups = b.lshr(whole_bytes, whole(2))
        done = b.shl(groups, whole(2))
        loop(b, groups, lambda k: self.emit_group(x, out, b.shl(k, whole(2)), AT_A_TIME))
        loop(b, b.sub(whole_bytes, done), lambda k: self.emit_group(x, out, b.add(done, k), 1))
        self.rest(x, out, whole_bytes)

    def bytes(self) -> ir.IRValue:
        """The number of whole bytes of a row."""
        raise NotImplementedError

    def emit_group(self, x: ir.IRValue, out: ir.IRValue, first: ir.IRValue, count: int) -> None:
        """Emit the result of `count` bytes, or of a short vector."""
        raise NotImplementedError

    def rest(self, x: ir.IRValue, out: ir.IRValue, done: ir.IRValue) -> None:
        """Emit the remainder."""

    def lane_of(self, bit: int) -> int:
        """The number of a bit within its byte, counted from the lowest."""
        return EACH - 1 - bit if self.big else bit


class Pack(_Packing):
    def bytes(self) -> ir.IRValue:
        return self.b.lshr(self.n, whole(3))

    def emit_group(self, x: ir.IRValue, out: ir.IRValue, first: ir.IRValue, count: int) -> None:
        b, lanes = self.b, of_lanes(I8, count * EACH)
        booleans = b.load(b.bitcast(b.gep(x, [b.shl(first, whole(3))]), lanes.as_pointer()), align=1)
        self.write(booleans, b.gep(out, [first]))

    def write(self, booleans: ir.IRValue, target: ir.IRValue) -> None:
        b, count = self.b, booleans.type.count
        in_order = _of_bytes(b, booleans, [k // EACH * EACH + self.lane_of(k % EACH) for k in range(count)])
        word = ir.IntType(count)
        bits = b.bitcast(b.icmp_unsigned("!=", in_order, number(booleans.type, 0)), word)
        b.store(bits, b.bitcast(target, word.as_pointer()), align=1)

    def rest(self, x: ir.IRValue, out: ir.IRValue, done: ir.IRValue) -> None:
        b, lanes = self.b, of_lanes(I8, EACH)
        begin = b.shl(done, whole(3))
        remaining = b.sub(self.n, begin)
        with b.if_then(b.icmp_signed(">", remaining, whole(0))):
            b.store(number(lanes, 0), self.room)
            room = b.bitcast(self.room, I8.as_pointer())
            loop(b, remaining, lambda k: b.store(b.load(b.gep(x, [b.add(begin, k)])), b.gep(room, [k])))
            self.write(b.load(self.room), b.gep(out, [done]))

    def run(self, rows: ir.IRValue) -> None:
        self.room = self.b.alloca(of_lanes(I8, EACH))
        super().run(rows)


class Unpack(_Packing):
    def bytes(self) -> ir.IRValue:
        return self.n

    def emit_group(self, x: ir.IRValue, out: ir.IRValue, first: ir.IRValue, count: int) -> None:
        b, lanes = self.b, of_lanes(I8, count * EACH)
        operands = b.load(b.bitcast(b.gep(x, [first]), of_lanes(I8, count).as_pointer()), align=1)
        repeated = _of_bytes(b, operands, [k // EACH for k in range(lanes.count)])
        bit_masks = ir.IRConstant(lanes, [1 << self.lane_of(k % EACH) for k in range(lanes.count)])
        bits = b.zext(b.icmp_unsigned("!=", b.and_(repeated, bit_masks), number(lanes, 0)), lanes)
        b.store(bits, b.bitcast(b.gep(out, [b.shl(first, whole(3))]), lanes.as_pointer()), align=1)
