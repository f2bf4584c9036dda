"""Emit the Payne-Hanek range reduction (1983) of huge arguments of the circular functions, in wide integers.

With x = M * 2**e, M an integer, the quadrant and the fraction of x * 2/pi depend on few bits of 2/pi. Bits far to the
left contribute multiples of 4, and bits far to the right are insignificant. LLVM computes with integers of any width,
so the reduction is one shift, one product, and the conversion of the rest to two words. It is scalar code, which
`call_where` calls.
"""

from __future__ import annotations

from tracegrad import llvmir as ir
from tracegrad.codegen.vecmath.expr import Bits, DoubleWord, Real, fast_two_sum, multiply_pairs

HALF_PI = {
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
}

TWO_OVER_PI_BITS = 1168
# The first bits of 2/pi after the point.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d085603",
    16,
)

# Width of the product: two bits of the quadrant; one wrong bit per bit of M; the bits that cancel in the
# number closest to a multiple of pi/2 (62, 32); and the bits of the result, with enough more bits to round
# it.
PRODUCT = {"f64": ir.IntType(192), "f32": ir.IntType(128)}


def _window(builder: ir.IRBuilder, number: int, shift: ir.IRValue, result_type: ir.IntType) -> ir.IRValue:
    """The bits of `number` from `shift` on, with the width `result_type`. Shifts by bytes, because LLVM emits long code
    for a shift of a wide integer."""
    name, i8 = f"tg.window.{number.bit_length()}", ir.IntType(8)
    table = builder.module.globals.get(name)
    if table is None:
        data = bytearray(number.to_bytes(-(-number.bit_length() // 8), "little") + bytes(result_type.width // 8 + 8))
        table = ir.GlobalVariable(builder.module, ir.ArrayType(i8, len(data)), name)
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.IRConstant(table.value_type, data)
    load_type = ir.IntType(result_type.width + 64)
    address = builder.gep(builder.bitcast(table, i8.as_pointer()), [builder.lshr(shift, shift.type(3))])
    result = builder.load(builder.bitcast(address, load_type.as_pointer()), align=1)
    within = builder.zext(builder.and_(shift, shift.type(7)), load_type)
    return builder.trunc(builder.lshr(result, within), result_type)


def reduce_huge(x: Real) -> tuple[DoubleWord, Bits]:
    """r, |r| <= pi/4, and the low bits k of x = k*pi/2 + r, for a finite |x| of at least 1.

    The result for an infinity or NaN has no meaning.
    """
    builder, form, product_type = x.builder, x.format, PRODUCT[x.format.name]
    fraction_bits = product_type.width - 2
    digits = form.mantissa + 1
    biased = (x.bits & ~form.sign_bit) >> form.mantissa
    integer = (x.bits & ((1 << form.mantissa) - 1)) | (1 << form.mantissa)

    # floor(2/pi * 2**(e + fraction_bits)) modulo 4 * 2**fraction_bits, e = biased - bias - mantissa.
    largest = form.bias - form.mantissa
    known = largest + fraction_bits + 1
    shift = biased.constant(2 * form.bias + 1) - biased
    window = _window(builder, TWO_OVER_PI >> (TWO_OVER_PI_BITS - known), shift.value, product_type)
    product = builder.mul(window, builder.zext(integer.value, product_type))

    # Without the bits of the quadrant, the fraction is the signed distance from the nearest multiple.
    signed = builder.shl(product, product_type(2))
    negative = builder.icmp_signed("<", signed, product_type(0))
    quadrant = builder.add(builder.lshr(product, product_type(fraction_bits)), builder.zext(negative, product_type))
    size: ir.IRValue = builder.select(negative, builder.neg(signed), signed)
    zeros = builder.ctlz(size, ir.IntType(1)(1))
    size = builder.shl(size, zeros)

    def word(from_top: int) -> Real:
        """`digits` bits of the normalized number as an integral float."""
        bits = builder.and_(
            builder.lshr(size, product_type(product_type.width - from_top - digits)), product_type((1 << digits) - 1)
        )
        return Real(builder, form, builder.uitofp(builder.trunc(bits, form.word), form.real))

    scale = (biased.constant(form.bias) - Bits(builder, form, builder.trunc(zeros, form.word))) << form.mantissa
    sign = Bits(builder, form, builder.shl(builder.zext(negative, form.word), form.word(form.width - 1)))
    scale = scale ^ sign ^ (x.bits & form.sign_bit)
    fraction = DoubleWord(word(0) * scale.real * 2.0**-digits, word(digits) * scale.real * 2.0 ** (-2 * digits))
    high, low, _ = x.pick(HALF_PI)
    r = multiply_pairs(fraction, DoubleWord(x.constant(high), x.constant(low)))
    count = Bits(builder, form, builder.trunc(quadrant, form.word))
    backwards = Bits(builder, form, builder.ashr(x.bits.value, form.word(form.width - 1)))
    return fast_two_sum(r.hi, r.lo), (count ^ backwards) - backwards
