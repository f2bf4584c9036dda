"""LLVM reads what the builder writes, and computes what it says."""

from __future__ import annotations

import copy
import ctypes
import math
import struct
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tracegrad import llvmir as ir
from tracegrad.runtime.compile import jit

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = I8.as_pointer()
C_TYPES: dict[Any, Any] = {I64: ctypes.c_int64, DOUBLE: ctypes.c_double, FLOAT: ctypes.c_float}


def run(result: Any, args: list[tuple[Any, Any]], body: Callable[..., Any]) -> Any:
    """What the function gives that `body` writes, called with these arguments, each behind its type."""
    module = ir.IRModule("test")
    function = ir.IRFunction(module, ir.FunctionType(result, [t for t, _ in args]), "f")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    b.ret(body(b, *function.args))
    code = jit.load_object(jit.compile_ir(module, "test"))
    call = ctypes.CFUNCTYPE(C_TYPES[result], *[C_TYPES[t] for t, _ in args])(code.address("f"))
    return call(*[value for _, value in args])


# -- types and constants ---------------------------------------------------------------------------------------------
def test_a_type_is_one_object() -> None:
    same = [
        lambda: ir.IntType(32),
        lambda: ir.VectorType(DOUBLE, 4),
        lambda: ir.ArrayType(I8, 3),
        lambda: I64.as_pointer(),
        lambda: ir.FunctionType(I64, [POINTER, I64]),
        lambda: ir.LiteralStructType([I64, I8]),
        ir.VoidType,
        lambda: ir.PointerType(I64),
    ]
    results = [make() for make in same]
    assert all(make() is t for make, t in zip(same, results))
    assert len(set(results)) == len(results) - 1  # a pointer to one type, asked for in two ways
    assert I64.as_pointer() is not I8.as_pointer()
    with pytest.raises(TypeError, match="compared as objects"):
        copy.deepcopy(I64)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.5, 0.1, 1e-310, 5e-324, 1e308, math.inf, -math.inf, math.nan])
def test_a_float_keeps_its_bits(value: float) -> None:
    result = run(DOUBLE, [(I64, 0)], lambda _, x: DOUBLE(value))
    assert struct.pack("<d", result) == struct.pack("<d", value)
    with np.errstate(over="ignore", under="ignore"):
        for t, dtype in ((FLOAT, np.float32), (HALF, np.float16)):
            bits = I32 if t is FLOAT else I16
            if t is HALF and not np.isfinite(dtype(value)) and np.isfinite(value):
                continue  # no number of that type
            if t is FLOAT and value == 1e308:
                continue
            result = run(I64, [(I64, 0)], lambda b, x, t=t, bits=bits: b.zext(b.bitcast(t(value), bits), I64))
            assert result == int(dtype(value).view(np.uint32 if t is FLOAT else np.uint16))


def test_constants_are_spelled_as_llvm_reads_them() -> None:
    pair = ir.VectorType(I32, 2)
    spelled = {
        "i64 -3": I64(-3),
        "i1 1": I1(True),
        "<2 x i32> <i32 1, i32 -2>": pair([1, -2]),
        "[2 x i8] [i8 1, i8 2]": ir.ArrayType(I8, 2)([1, 2]),
        '[2 x i8] c"\\00\\ff"': ir.ArrayType(I8, 2)(b"\x00\xff"),
        "ptr null": POINTER(None),
        "<2 x i32> zeroinitializer": pair(None),
        "{ i64, i8 } {i64 1, i8 2}": ir.LiteralStructType([I64, I8])([1, 2]),
        "i64 poison": ir.TextConstant(I64, "poison"),
    }
    assert [x.typed for x in spelled.values()] == list(spelled)
    assert [x.constant for x in pair([1, -2]).constant] == [1, -2]


# -- instructions ----------------------------------------------------------------------------------------------------
INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "sdiv": lambda x, y: int(x / y),
    "srem": lambda x, y: int(math.fmod(x, y)),
    "udiv": lambda x, y: x % 2**64 // y,
    "urem": lambda x, y: x % 2**64 % y,
    "and_": lambda x, y: x & y,
    "or_": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y,
    "lshr": lambda x, y: x % 2**64 >> y,
    "ashr": lambda x, y: x >> y,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    result = run(I64, [(I64, -1000), (I64, 7)], lambda b, x, y: getattr(b, name)(x, y))
    wanted = INTEGERS[name](-1000, 7)
    assert result % 2**64 == wanted % 2**64


def test_floats() -> None:
    def body(b: ir.IRBuilder, x: Any, y: Any) -> Any:
        return b.frem(b.fdiv(b.fneg(b.fsub(b.fmul(x, y), y)), b.fadd(x, y, flags=("nnan", "nsz"))), DOUBLE(0.25))

    assert run(DOUBLE, [(DOUBLE, 3.0), (DOUBLE, 2.5)], body) == math.fmod(-(3.0 * 2.5 - 2.5) / 5.5, 0.25)


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons(sign: str) -> None:
    wanted = {"==": 1, "!=": 2, "<": 4, "<=": 5, ">": 8, ">=": 9}[sign]

    def body(b: ir.IRBuilder, x: Any, y: Any) -> Any:
        signed, unsigned = b.icmp_signed(sign, x, y), b.icmp_unsigned(sign, x, y)
        reals = [b.sitofp(each, DOUBLE) for each in (x, y)]
        ordered, no = b.fcmp_ordered(sign, *reals), b.fcmp_unordered(sign, reals[0], DOUBLE(math.nan))
        never = b.fcmp_ordered(sign, reals[0], DOUBLE(math.nan))
        bits = [b.zext(each, I64) for each in (signed, unsigned, ordered, no, never)]
        total = bits[0]
        for k, bit in enumerate(bits[1:], 1):
            total = b.or_(total, b.shl(bit, I64(k)))
        return total

    for x, y in ((-1, 1), (1, -1), (2, 2)):
        holds = {-2: 6, 2: 10, 0: 1}[x - y] & wanted != 0
        swapped = {-2: 10, 2: 6, 0: 1}[x - y] & wanted != 0  # without signs, -1 is the greatest
        assert run(I64, [(I64, x), (I64, y)], body) == holds + 2 * swapped + 4 * holds + 8


def test_conversions_and_bits() -> None:
    def body(b: ir.IRBuilder, x: Any) -> Any:
        short = b.trunc(x, I8)
        real = b.fpext(b.fptrunc(b.uitofp(b.not_(b.sext(short, I32)), DOUBLE), FLOAT), DOUBLE)
        counted = b.add(b.ctlz(x, I1(0)), b.mul(b.add(b.cttz(x, I1(0)), b.ctpop(x)), I64(100)))
        return b.add(b.add(b.fptosi(real, I64), counted), b.neg(b.ptrtoint(b.inttoptr(x, POINTER), I64)))

    assert run(I64, [(I64, 40)], body) == np.float32(2**32 - 41) + 58 + 500 - 40


def test_vectors() -> None:
    def body(b: ir.IRBuilder, x: Any) -> Any:
        vector = ir.VectorType(I64, 2)
        pair = b.insert_element(ir.TextConstant(vector, "poison"), x, I32(0))
        pair = b.add(b.shuffle_vector(pair, pair, ir.VectorType(I32, 2)([0, 0])), vector([1, 2]))
        pair = b.select(b.icmp_signed(">", pair, vector([11, 11])), b.neg(pair), b.not_(pair))
        total = b.call(b.module.intrinsic("vector.reduce.add", [vector], I64, [vector]), [pair])
        return b.sub(total, b.extract_element(pair, I32(1)))

    assert run(I64, [(I64, 10)], body) == ~11


def test_memory() -> None:
    def body(b: ir.IRBuilder, x: Any) -> Any:
        kind = ir.LiteralStructType([I64, ir.ArrayType(DOUBLE, 3)])
        place, room = b.alloca(kind, align=16), b.bitcast(b.alloca(I64, 4), POINTER)
        words = b.bitcast(room, I64.as_pointer())
        b.memset(room, I8(1), I64(32))
        at = b.gep(place, [I32(0), I32(1), I64(2)])
        assert at.type is DOUBLE.as_pointer()
        b.store(DOUBLE(2.5), at, align=8)
        b.memcpy(b.bitcast(place, POINTER), room, I64(8))
        b.store_atomic(b.load(b.gep(place, [I32(0), I32(0)])), words, "monotonic", 8)
        before = b.atomic_rmw("add", words, x, "release")
        swapped = b.cmpxchg(words, b.add(before, x), I64(7), "acquire", "monotonic")
        same = b.zext(b.extract_value(swapped, 1), I64)
        late = b.load(b.gep(b.bitcast(b.gep(room, [I64(0)]), I64.as_pointer()), [same]), align=1)
        seven = b.load_atomic(words, "monotonic", 8)
        half = b.load(b.bitcast(at, I64.as_pointer()), typ=DOUBLE)
        return b.sub(b.add(b.add(seven, b.fptosi(half, I64)), late), before)

    assert run(I64, [(I64, 5)], body) == 7 + 2


def test_addresses_by_a_vector_of_numbers() -> None:
    module = ir.IRModule()
    function = ir.IRFunction(module, ir.FunctionType(ir.VoidType(), [DOUBLE.as_pointer(), ir.VectorType(I64, 4)]), "f")
    b = ir.IRBuilder(function.append_basic_block())
    result = b.gep(function.args[0], [function.args[1]])
    b.ret_void()
    assert result.type is ir.VectorType(DOUBLE.as_pointer(), 4)
    llvm.parse_assembly(str(module)).verify()


# -- control ---------------------------------------------------------------------------------------------------------
def test_a_loop_with_branches() -> None:
    """The sum of i * i for even numbers i below n, less that of odd ones; and 100 for 5, and 1000 for 2 and 3."""

    def body(b: ir.IRBuilder, n: Any) -> Any:
        total = b.alloca(I64)
        b.store(I64(0), total)
        before = b.block
        head, inside, after = (b.append_basic_block(name) for name in ("head", "head", "head"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(I64(0), before)
        branch = b.cbranch(b.icmp_signed("<", i, n), inside, after, likely=True)
        branch.set_metadata("llvm.loop", b.module.loop_id([["llvm.loop.unroll.disable"], ["x", I32(3)]]))
        b.position_at_end(inside)

        def add(x: Any) -> None:
            b.store(b.add(b.load(total), x, flags=("nsw",)), total)

        with b.if_else(b.icmp_signed("==", b.and_(i, I64(1)), I64(0))) as (then, otherwise):
            with then:
                add(b.mul(i, i))
            with otherwise:
                add(b.neg(b.mul(i, i)))
                with b.if_then(b.icmp_signed("==", i, I64(5)), likely=False):
                    with b.goto_entry_block():
                        hundred = b.alloca(I64)
                    b.store(I64(100), hundred)
                    add(b.load(hundred))
        two, others, joined = (b.append_basic_block(name) for name in ("two", "others", "joined"))
        b.switch(i, [(I64(2), two), (I64(3), two)], others)
        b.position_at_end(two)
        add(I64(1000))
        b.branch(joined)
        b.position_at_end(others)
        b.branch(joined)
        b.position_at_end(joined)
        i.add_incoming(b.add(i, I64(1)), b.block)
        b.branch(head)
        b.position_at_end(after)
        return b.load(total)

    assert run(I64, [(I64, 8)], body) == 0 - 1 + 4 - 9 + 16 - 25 + 36 - 49 + 100 + 2000


def test_a_block_ends_once() -> None:
    function = ir.IRFunction(ir.IRModule(), ir.FunctionType(ir.VoidType(), []), "f")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    b.ret_void()
    assert b.block.is_terminated
    with pytest.raises(ValueError, match=r"block entry has ended with ret void"):
        b.ret_void()


# -- modules ---------------------------------------------------------------------------------------------------------
def test_names_of_all_kinds_are_read() -> None:
    module = ir.IRModule("names")
    for name in ("plain.name", "with space", 'a "quote" \\ and ü', "1st"):
        function = ir.IRFunction(module, ir.FunctionType(I64, [I64]), name)
        b = ir.IRBuilder(function.append_basic_block(name))
        for _ in range(2):
            after = b.append_basic_block(f"{name}.1")
            b.branch(after)
            b.position_at_end(after)
        b.ret(function.args[0])
    read = llvm.parse_assembly(str(module))
    read.verify()
    assert [f.name for f in read.functions] == [f.name for f in module.functions]
    assert module.get_unique_name("new") == "new"
    assert module.get_unique_name("plain.name") == "plain.name.1"
    with pytest.raises(ValueError, match=r"has a 'plain\.name'"):
        ir.IRFunction(module, ir.FunctionType(I64, []), "plain.name")


def test_globals_attributes_and_metadata_are_read() -> None:
    module = ir.IRModule("all")
    table = ir.GlobalVariable(module, ir.ArrayType(I8, 3), "table")
    table.linkage, table.global_constant, table.initializer = "internal", True, ir.IRConstant(table.value_type, b"abc")
    ir.GlobalVariable(module, I64, "elsewhere")
    used = ir.GlobalVariable(module, ir.ArrayType(POINTER, 1), "llvm.compiler.used")
    used.linkage, used.section, used.initializer = "appending", "llvm.metadata", ir.IRConstant(used.value_type, [table])
    function = ir.IRFunction(module, ir.FunctionType(I8, [I64.as_pointer(), I64]), "f")
    function.linkage = "internal"
    function.attributes.update(("nounwind", "noinline", '"key"="value"', "alignstack(64)"))
    function.args[0].add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block())
    loaded = b.load(function.args[0])
    loaded.set_metadata("invariant.load", module.add_metadata([]))
    b.ret(b.load(b.gep(b.bitcast(table, POINTER), [loaded])))
    assert function.is_declaration is False
    read = llvm.parse_assembly(str(module))
    read.verify()
    text = str(read)
    wanted = ["alignstack=64", '"key"="value"', "noalias", "!invariant.load", "@elsewhere = external global i64"]
    assert [words for words in (*wanted, '@table = internal constant [3 x i8] c"abc"') if words not in text] == []


def test_equal_nodes_are_one_and_loops_are_not() -> None:
    module = ir.IRModule()
    assert module.add_metadata(["a", I32(1)]).ref == module.add_metadata(["a", I32(1)]).ref
    hints = [["llvm.loop.unroll.disable"]]
    assert module.loop_id(hints).ref != module.loop_id(hints).ref
    llvm.parse_assembly(str(module)).verify()
