"""The vector math of the kernels: its error, its special values, its bits, and that loops over it vectorise."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from mpmath import mp, mpf

from tracegrad import llvmir as ir
from tracegrad.codegen import vecmath
from tracegrad.runtime.compile import jit

pytestmark = pytest.mark.usefixtures("optimized")

DTYPES = {"f64": np.float64, "f32": np.float32}
TYPES = {"f64": ir.DoubleType(), "f32": ir.FloatType()}
BINARY = ("arctan2", "power")
UNARY = tuple(name for name in vecmath.FUNCTIONS if name not in BINARY)
SCALAR = ()  # left to the C library
ONE_ULP = ("exp", "log")
FOUR_ULP = ("erfc", "gelu_tanh", "ndtr", "sech2", "silu", "x_ndtr")
EIGHT_ULP = ("gelu_tanh_derivative", "silu_derivative", "sinc_derivative", "x_ndtr_derivative")
FLUSHED = ("sech2",)  # 0 where the result would be no normal number

each_format = pytest.mark.parametrize("fmt", DTYPES)
each_function = pytest.mark.parametrize("name", UNARY)


# -- loops over one function ---------------------------------------------------------------------------
def loop_module(name: str, fmt: str, arity: int) -> ir.IRModule:
    """void loop(const T *x, ..., T *y, i64 n): y[i] = name(x[i], ...)."""
    module = ir.IRModule(f"{name}_{fmt}")
    i64, pointer = ir.IntType(64), TYPES[fmt].as_pointer()
    function = ir.IRFunction(
        module, ir.FunctionType(ir.VoidType(), [pointer] * (arity + 1) + [i64]), f"loop_{name}_{fmt}"
    )
    *inputs, output, n = function.args
    for argument in (*inputs, output):
        argument.add_attribute("noalias")
    entry, body, done = (function.append_basic_block(label) for label in ("entry", "body", "done"))
    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_signed(">", n, i64(0)), body, done)
    builder.position_at_end(body)
    index = builder.phi(i64)
    value = vecmath.call(builder, name, *(builder.load(builder.gep(x, [index])) for x in inputs))
    builder.store(value, builder.gep(output, [index]))
    following = builder.add(index, i64(1))
    index.add_incoming(i64(0), entry)
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, n), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    return module


@cache
def compiled(name: str, fmt: str) -> Callable[..., Any]:
    """The loop as a function of arrays."""
    arity = 2 if name in BINARY else 1
    code = jit.load_object(jit.compile_ir(loop_module(name, fmt, arity), name))
    loop = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)(code.address(f"loop_{name}_{fmt}"))

    def apply(*arrays: Any) -> Any:
        assert code  # for as long as it may be called
        arrays = tuple(np.ascontiguousarray(a, DTYPES[fmt]) for a in arrays)
        result = np.empty_like(arrays[0])
        loop(*(a.ctypes.data for a in arrays), result.ctypes.data, result.size)
        return result

    return apply


def evaluate(name: str, fmt: str, *arrays: Any) -> Any:
    return compiled(name, fmt)(*arrays)


def on_vectors(name: str, fmt: str, *columns: Any) -> Any:
    """`evaluate` by a function of vectors of eight; neighbours share one."""
    dtype, arity, lanes = DTYPES[fmt], len(columns), 8
    module = ir.IRModule(f"vectors_{name}_{fmt}")
    pointer = ir.VectorType(TYPES[fmt], lanes).as_pointer()
    function = ir.IRFunction(module, ir.FunctionType(ir.VoidType(), [pointer] * (arity + 1)), module.name)
    builder = ir.IRBuilder(function.append_basic_block())
    *inputs, output = function.args
    arguments = [builder.load(x, align=dtype().itemsize) for x in inputs]
    builder.store(vecmath.call(builder, name, *arguments), output, align=dtype().itemsize)
    builder.ret_void()
    code = jit.load_object(jit.compile_ir(module, module.name, "vectors"))
    apply = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1))(code.address(module.name))
    arrays = [np.resize(np.array(c, dtype), -(-len(columns[0]) // lanes) * lanes) for c in columns]
    result = np.empty_like(arrays[0])
    for start in range(0, result.size, lanes):
        apply(*(a[start:].ctypes.data for a in (*arrays, result)))
    return result[: len(columns[0])]


# -- the truth -----------------------------------------------------------------------------------------
MP_NAMES = {
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
}


def sinc_derivative(x: Any) -> Any:
    return (mp.cospi(x) - mp.sincpi(x)) / x if abs(x) > 1e-12 else -(mp.pi**2) * x / 3


def normal(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def cubic(x: Any) -> Any:
    return 2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)


def below_cubic(x: Any) -> Any:
    return 1 / (1 + mp.exp(-cubic(x)))


MP: dict[str, Callable[..., Any]] = {
    "arctan2": lambda y, x: mp.atan2(y, x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "erfc": lambda x: mp.erfc(x) if abs(x) < 1000 else mpf(1 - mp.sign(x)),
    "exp2": lambda x: mpf(2) ** x,
    "gauss": lambda x: mp.exp(-x * x),
    "gauss_half": lambda x: mp.exp(-x * x / 2),
    "gelu_tanh": lambda x: x * below_cubic(x),
    "gelu_tanh_derivative": lambda x: (
        below_cubic(x) * (1 + (3 * cubic(x) - 4 * mp.sqrt(2 / mp.pi) * x) * below_cubic(-x))
    ),
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log1p": lambda x: mp.log1p(x),
    "ndtr": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2 if abs(x) < 1000 else mpf(x > 0),
    "power": lambda x, y: x**y,
    "sech2": lambda x: mp.sech(x) ** 2,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "silu_derivative": lambda x: (1 + mp.exp(-x) + x * mp.exp(-x)) / (1 + mp.exp(-x)) ** 2,
    "sinc_derivative": sinc_derivative,
    "x_ndtr": lambda x: x * MP["ndtr"](x),
    "x_ndtr_derivative": lambda x: MP["ndtr"](x) + x * normal(x),
}


def true_value(name: str, *point: float) -> Any:
    """The value at a finite point as an mpf; None where there is none."""
    function = MP.get(name) or getattr(mp, MP_NAMES.get(name, name))
    try:
        value = function(*map(mpf, point))
    except (ValueError, ZeroDivisionError):
        return None
    return value if isinstance(value, mpf) and mp.isfinite(value) else None


def ulp_error(got: float, true: Any, fmt: str) -> float:
    """|got - true| in units in the last place of the format at `true`; zero for an overflow that is due."""
    info = np.finfo(DTYPES[fmt])
    limit = mpf(float(info.max)) + mpf(2) ** (info.maxexp - 2 - info.nmant)
    if abs(true) >= limit:
        return 0.0 if math.isinf(got) and (got > 0) == (true > 0) else math.inf
    if not math.isfinite(got):
        return math.inf
    exponent = mp.frexp(true)[1] - 1 if true else info.minexp
    return float(abs(mpf(float(got)) - true) / mpf(2) ** (max(exponent, info.minexp) - info.nmant))


# Where the functions change their formula or their answer, in either format.
LANDMARKS = (
    *(0.1, 0.25, 1 / 3, 0.3466, 0.41421356, 0.4769, 0.5, 0.70710678, 0.75, 0.84375, 1.0, 1.41421356, 2.0, 2.41421356),
    *(math.pi / 4 * k for k in (1, 2, 3, 4, 6, 8, 22, 355, 710, 2**16, 2**20 + 1)),
    *(3.92, 4.0, 5.92, 6.0, 8.66, 9.01, 10.0, 16.6, 18.71, 19.06, 20.0, 36.04, 37.4, 40.0, 44.36, 53.0, 87.33, 88.72),
    *(
        0.7517915246935645,
        0.7524614220710163,
        1.2784645427610737,
        12.99,
        14.42,
        37.52,
        38.6,
        750.0,
    ),  # roots, and ends of tails
    *(89.41, 103.97, 126.0, 127.5, 128.0, 149.0, 150.0, 708.39, 709.78, 710.47, 744.44, 745.13, 1022.0, 1024.0, 1074.0),
    *(1075.0, 2.0**13, 2.0**17, 2.0**28, 2.0**40, 2.0**120, 1e22, 1e300),
    *(16367173 * 2.0**72, 6381956970095103 * 2.0**797),  # the closest to multiples of pi/2
)


@cache
def points(fmt: str) -> Any:
    """Finite points of both signs: near each landmark, over all exponents, denormal, and of everyday size."""
    random = np.random.default_rng(7)
    dtype, info = DTYPES[fmt], np.finfo(DTYPES[fmt])
    with np.errstate(over="ignore"):
        marks = np.array(LANDMARKS).astype(dtype)
    marks = marks[np.isfinite(marks)]
    near = [marks, np.nextafter(marks, dtype(0)), np.nextafter(marks, dtype(np.inf)), marks * dtype(1.0001)]
    exponents = np.linspace(info.minexp, info.maxexp - 1, 80).astype(int)
    spread = np.ldexp(random.uniform(1, 2, 80).astype(dtype), exponents)
    close = np.ldexp(random.uniform(1, 2, 60), np.linspace(-info.nmant - 3, 2, 60).astype(int)).astype(dtype)
    denormal = np.array([1, 2, 3, 5, 1000, 2**20 + 1]).astype(dtype) * info.smallest_subnormal
    everyday = random.uniform(0, 10, 120).astype(dtype)
    some = np.concatenate([*near, spread, close, 1 + close, 1 - close[:-3], denormal, everyday, [info.max]]).astype(
        dtype
    )
    some = some[np.isfinite(some)]
    return np.concatenate([some, -some])


@cache
def pairs(name: str, fmt: str) -> Any:
    """Two columns of finite points for a binary function, those of power with a result in range or just beyond."""
    random = np.random.default_rng(8)
    dtype, info = DTYPES[fmt], np.finfo(DTYPES[fmt])
    x = points(fmt)
    if name == "arctan2":
        with np.errstate(over="ignore"):
            ratios = x * random.uniform(-4, 4, x.size)
        ratios = np.clip(ratios, -float(info.max), float(info.max)).astype(dtype)
        return np.concatenate([x, x]), np.concatenate([random.permutation(x), ratios])
    base = np.abs(x[x != 0])
    logarithm = np.array([float(mp.log(mpf(float(b)))) for b in base])
    with np.errstate(all="ignore"):
        exponent = random.uniform(-1.06, 1.04, base.size) * math.log(float(info.max)) / logarithm
    exponent = np.clip(np.nan_to_num(exponent), -float(info.max), float(info.max)).astype(dtype)
    small = random.uniform(-20, 20, base.size).astype(dtype)
    return (
        np.concatenate([base, base[base < 1e3], -base[base < 1e3]]),
        np.concatenate([exponent, small[base < 1e3], np.rint(small[base < 1e3])]),
    )


def worst(name: str, fmt: str, *columns: Any) -> tuple[float, tuple[float, ...]]:
    """The largest error in ulp, and where."""
    got = evaluate(name, fmt, *columns)
    largest: tuple[float, tuple[float, ...]] = (0.0, ())
    for value, point in zip(got.tolist(), zip(*(c.tolist() for c in columns), strict=True), strict=True):
        true = true_value(name, *point)
        if true is None:
            assert math.isnan(value) or math.isinf(value), (name, point, value)
        elif name in FLUSHED and abs(true) < np.finfo(DTYPES[fmt]).smallest_normal:
            assert value in (0, np.finfo(DTYPES[fmt]).smallest_normal)
        else:
            largest = max(largest, (ulp_error(value, true, fmt), point))
    return largest


def bound(name: str) -> float:
    return 1.0 if name in ONE_ULP else 4.0 if name in FOUR_ULP else 8.0 if name in EIGHT_ULP else 2.0


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    with mp.workdps(50):
        yield


@each_format
@each_function
def test_error_stays_within_its_bound_over_the_whole_range(name: str, fmt: str) -> None:
    x = points(fmt)
    error, where = worst(name, fmt, x)
    assert error <= bound(name), (error, where)


@each_format
@pytest.mark.parametrize("name", BINARY)
def test_error_of_a_binary_function_stays_within_its_bound(name: str, fmt: str) -> None:
    error, where = worst(name, fmt, *pairs(name, fmt))
    assert error <= 2.0, (error, where)


def normal_below(x: float) -> float:
    return math.erfc(-x * math.sqrt(0.5)) / 2


def derivative_with_limits(name: str, x: float) -> float:
    """The slope of a function that is like x on the right and goes to 0 on the left."""
    return -0.0 if x < -1000 else 1.0 if x > 1000 else float(MP[name](mpf(x)))


NARROW: dict[str, Callable[[float], float]] = {
    "erf": math.erf,
    "erfc": math.erfc,
    "gelu_tanh": lambda x: -0.0 if x < -1000 else x if x > 1000 else x * float(below_cubic(mpf(x))),
    "gelu_tanh_derivative": partial(derivative_with_limits, "gelu_tanh_derivative"),
    "ndtr": normal_below,
    "silu_derivative": partial(derivative_with_limits, "silu_derivative"),
    "sinc_derivative": lambda x: -x if x == 0 else math.nan if math.isinf(x) else float(sinc_derivative(mpf(x))),
    "x_ndtr": lambda x: -0.0 if x == -math.inf else x * normal_below(x),
    "x_ndtr_derivative": partial(derivative_with_limits, "x_ndtr_derivative"),
}


# -- against NumPy's longer formats, on many more points ------------------------------------------------
WIDE: dict[str, Callable[[Any], Any]] = {
    "gauss": lambda x: np.exp(-x * x),
    "gauss_half": lambda x: np.exp(-x * x / 2),
    "sech2": lambda x: 1 / np.cosh(x) ** 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: np.where(x == -np.inf, -0.0, x / (1 + np.exp(-x))),
}


def wide_reference(name: str, *columns: Any) -> Any:
    x = columns[0]
    if name in WIDE:
        return WIDE[name](x)
    return getattr(np, name)(*columns)


def ulp_errors(got: Any, true: Any, fmt: str) -> Any:
    info = np.finfo(DTYPES[fmt])
    _, exponent = np.frexp(true)
    unit = np.ldexp(np.ones_like(true), np.maximum(exponent - 1, info.minexp) - info.nmant)
    return np.abs(got.astype(true.dtype) - true) / unit


@each_format
@pytest.mark.parametrize("name", [name for name in (*UNARY, *BINARY) if name not in NARROW])
def test_error_stays_within_its_bound_on_a_dense_grid(name: str, fmt: str) -> None:
    wide = np.float64 if fmt == "f32" else np.longdouble
    if np.finfo(wide).nmant < np.finfo(DTYPES[fmt]).nmant + 8:
        pytest.skip("long double is no longer than double here")
    random = np.random.default_rng(9)
    n = 60_000
    scales = np.exp2(random.uniform(-25, 9, n)) * random.choice([-1, 1], n)
    x = np.concatenate([random.uniform(-6, 6, n), scales, 1 + np.exp2(random.uniform(-20, 0, n))]).astype(DTYPES[fmt])
    columns = [np.abs(x), random.uniform(-5, 5, x.size).astype(DTYPES[fmt])] if name == "power" else [x]
    if name == "arctan2":
        columns.append(random.permutation(x))
    with np.errstate(all="ignore"):
        true = wide_reference(name, *(c.astype(wide) for c in columns))
        representable = np.isfinite(true) & (np.abs(true) < np.finfo(DTYPES[fmt]).max)
        representable &= (true >= np.finfo(DTYPES[fmt]).smallest_normal) | (name not in FLUSHED)
        errors = ulp_errors(evaluate(name, fmt, *columns), true, fmt)
    index = np.argmax(np.where(representable, errors, 0))
    assert errors[index] <= bound(name) + 0.01, (errors[index], [c[index] for c in columns])


# -- special values ------------------------------------------------------------------------------------
SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0, -2.0, 1e4, -1e4)


def special_reference(name: str, dtype: Any, *columns: Any) -> Any:
    columns = tuple(np.array(c, dtype) for c in columns)
    with np.errstate(all="ignore"):
        if name in NARROW:
            return np.array([NARROW[name](v) for v in columns[0].tolist()], dtype)
        return wide_reference(name, *columns).astype(dtype)


def assert_same_special(got: Any, true: Any, *columns: Any) -> None:
    """Where NumPy's result is nan, infinite, zero or a whole number, so is ours, of the same sign."""
    for value, expected, *point in zip(got, true, *columns, strict=True):
        if np.isnan(expected):
            assert np.isnan(value), point
        elif np.isinf(expected) or expected in (0.0, 1.0, -1.0):
            assert (value, np.signbit(value)) == (expected, np.signbit(expected)), point
        else:
            assert abs(value - expected) <= 3 * np.spacing(abs(expected)), (point, value, expected)


@each_format
@each_function
def test_special_values_are_those_of_numpy(name: str, fmt: str) -> None:
    assert_same_special(evaluate(name, fmt, SPECIAL), special_reference(name, DTYPES[fmt], SPECIAL), SPECIAL)


@each_format
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs_are_those_of_numpy(name: str, fmt: str) -> None:
    whole = 2.0 ** np.finfo(DTYPES[fmt]).nmant
    values = (*SPECIAL, 0.5, -0.5, 3.0, -3.0, 1.5, whole + 1, -whole - 1, 4 * whole, 1e30, -1e30, 1e-30, -1e-30)
    x, y = zip(*itertools.product(values, values), strict=True)
    assert_same_special(evaluate(name, fmt, x, y), special_reference(name, DTYPES[fmt], x, y), x, y)


@each_format
@pytest.mark.parametrize(
    "name", ["sin", "tan", "expm1", "log1p", "tanh", "sinh", "arcsin", "arctan", "arcsinh", "arctanh"]
)
def test_a_function_like_x_at_zero_returns_tiny_arguments_unchanged(name: str, fmt: str) -> None:
    info = np.finfo(DTYPES[fmt])
    x = np.array([0.0, info.smallest_subnormal, 7 * info.smallest_subnormal, info.tiny, 1e-30], DTYPES[fmt])
    x = np.concatenate([x, -x])
    assert evaluate(name, fmt, x).tobytes() == x.tobytes()


@each_format
def test_powers_of_two_and_ten_are_exact(fmt: str) -> None:
    dtype = DTYPES[fmt]
    info = np.finfo(dtype)
    k = np.arange(info.minexp - info.nmant, info.maxexp)
    powers = np.ldexp(dtype(1), k)
    assert np.array_equal(evaluate("exp2", fmt, k), powers)
    assert np.array_equal(evaluate("log2", fmt, powers), k.astype(dtype))
    assert np.array_equal(evaluate("power", fmt, np.full(k.size, 2), k), powers)
    tens = np.arange(11 if fmt == "f32" else 23)
    assert np.array_equal(evaluate("log10", fmt, 10.0**tens), tens.astype(dtype))
    whole = np.arange(-100, 101)
    assert np.array_equal(evaluate("cbrt", fmt, whole**3), whole.astype(dtype))


# -- loops ---------------------------------------------------------------------------------------------
@each_format
@each_function
def test_vector_body_and_scalar_tail_give_the_same_bits(name: str, fmt: str) -> None:
    x = np.concatenate([points(fmt), np.array(SPECIAL, DTYPES[fmt])])
    whole = evaluate(name, fmt, x)
    alone = np.concatenate([evaluate(name, fmt, x[i : i + 1]) for i in range(x.size)])
    same = (whole == alone) & (np.signbit(whole) == np.signbit(alone)) | np.isnan(whole) & np.isnan(alone)
    assert same.all(), x[~same]


@each_format
@pytest.mark.parametrize("name", BINARY)
def test_vector_body_and_scalar_tail_of_a_binary_function_give_the_same_bits(name: str, fmt: str) -> None:
    x, y = pairs(name, fmt)
    whole = evaluate(name, fmt, x, y)
    alone = np.concatenate([evaluate(name, fmt, x[i : i + 1], y[i : i + 1]) for i in range(x.size)])
    same = (whole == alone) & (np.signbit(whole) == np.signbit(alone)) | np.isnan(whole) & np.isnan(alone)
    assert same.all(), (x[~same], y[~same])


@each_format
@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
def test_vectors_give_the_same_bits_as_single_numbers(name: str, fmt: str) -> None:
    marks = list(itertools.product((*SPECIAL, 0.5, -0.5, 3.0, -3.0, 1.5, 1e-40, 1e300), repeat=2))
    with np.errstate(over="ignore"):
        special = np.array(marks).astype(DTYPES[fmt]).T
    usual = pairs(name, fmt) if name in BINARY else [points(fmt)]
    # Each special point alone among usual ones as well as beside the others.
    spread = [np.repeat(special[k], 8) for k in range(len(usual))]
    for k, column in enumerate(spread):
        column.reshape(-1, 8)[:, 1:] = (1.5, 2.5)[k]
    columns = [np.concatenate([u, special[k], spread[k]]) for k, u in enumerate(usual)]
    single, vectors = evaluate(name, fmt, *columns), on_vectors(name, fmt, *columns)
    same = (single == vectors) & (np.signbit(single) == np.signbit(vectors)) | np.isnan(single) & np.isnan(vectors)
    assert same.all(), [c[~same] for c in columns]


has_avx2 = llvm.get_default_triple().startswith("x86_64") and bool(llvm.get_host_cpu_features().get("avx2"))


@pytest.mark.skipif(not has_avx2, reason="looks for AVX2 or AVX-512 instructions")
@each_format
@pytest.mark.parametrize("name", [name for name in vecmath.FUNCTIONS if name not in SCALAR])
def test_a_loop_over_the_function_vectorises(name: str, fmt: str) -> None:
    assembly = jit.optimized_assembly(loop_module(name, fmt, 2 if name in BINARY else 1), name)
    suffix = {"f64": "pd", "f32": "ps"}[fmt]
    assert re.search(rf"vfn?m(add|sub)\d+{suffix}\s.*%[yz]mm", assembly)
    assert not re.search(r"vcvt(ss2sd|sd2ss|ps2pd|pd2ps)", assembly), "float32 went through float64"


@each_format
def test_erf_and_its_derivative_share_an_exponential(fmt: str) -> None:
    """Each exponential shifts bits into exponents; both functions take no more of that than erf alone."""

    def shifts(with_derivative: bool) -> int:
        module = ir.IRModule()
        vector = ir.VectorType(TYPES[fmt], 8)
        function = ir.IRFunction(module, ir.FunctionType(ir.VoidType(), [vector] + [vector.as_pointer()] * 2), "f")
        builder = ir.IRBuilder(function.append_basic_block())
        x, *places = function.args
        if with_derivative:
            square = builder.fmul(x, x)
            builder.store(vecmath.call(builder, "exp", builder.fneg(square)), places[1])
        builder.store(vecmath.call(builder, "erf", x), places[0])
        builder.ret_void()
        return jit.optimized_ir(str(module), "shared", "vectors").count(" = shl ")

    assert shifts(with_derivative=True) == shifts(with_derivative=False) > 0


@each_format
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_a_huge_argument_does_not_disturb_its_neighbours(name: str, fmt: str) -> None:
    x = np.linspace(-3, 3, 64).astype(DTYPES[fmt])
    quiet = evaluate(name, fmt, x)
    x[5::7] = 1e30
    mixed = evaluate(name, fmt, x)
    assert np.array_equal(np.delete(mixed, np.s_[5::7]), np.delete(quiet, np.s_[5::7]))
    assert (ulp_error(mixed[5], true_value(name, float(x[5])), fmt)) <= 2


def test_a_function_is_defined_once_in_a_module_and_is_private_to_it() -> None:
    module = ir.IRModule()
    double = ir.DoubleType()
    function = ir.IRFunction(module, ir.FunctionType(double, [double]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    call = partial(vecmath.call, builder)
    builder.ret(call("sin", call("cos", call("sin", call("exp", function.args[0])))))
    llvm.parse_assembly(str(module)).verify()
    names = [f.name for f in module.functions if not f.is_declaration]
    assert names.count("tg.sin.f64") == 1
    assert all(f.linkage == "internal" for f in module.functions if f.name.startswith("tg."))


@each_format
def test_no_instruction_carries_a_fast_math_flag(fmt: str) -> None:
    text = "".join(str(loop_module(name, fmt, 2 if name in BINARY else 1)) for name in vecmath.FUNCTIONS)
    assert not re.search(r"\b(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\b", text)


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        loop_module("no_such_function", "f64", 1)
