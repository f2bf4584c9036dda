"""float16: what NumPy computes, of all its numbers, in compiled code; derivatives against those of float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from along import differences, replayed
from graphs import several

import tracegrad as tg
from tracegrad.avals import LITERALS, aval_of
from tracegrad.codegen.instr import float_bits
from tracegrad.codegen.kernels import vectorize
from tracegrad.codegen.kernels.scalar_kernel import kernel_function
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.program.region_function import unit_module
from tracegrad.ir import build, parse, run
from tracegrad.ir.builder import recorder
from tracegrad.ops import TABLE
from tracegrad.passes import optimize, without_complex, without_half
from tracegrad.passes.dtypes.legalize import has_dtype
from tracegrad.runtime.compile import jit
from tracegrad.runtime.execution.program import compile_program
from tracegrad.target.cpu import converts_halves

HALF = np.float16
EVERY = np.arange(2**16, dtype=np.uint16).view(HALF)  # all numbers there are, and all nans
FINITE = EVERY[np.isfinite(EVERY)]
X = np.linspace(-1.5, 2.0, 12).astype(HALF).reshape(3, 4)
W = np.linspace(0.3, -1.0, 20).astype(HALF).reshape(4, 5)


def compiled(f: Any) -> Any:
    return tg.trace(f, tiered=False)


def apart(x: Any, y: Any) -> Any:
    """How many numbers of half precision are between those of `x` and `y`; two nans are one."""

    def place(x: Any) -> Any:
        bits = x.view(np.int16).astype(np.int32)
        return np.where(bits < 0, -(bits & 0x7FFF), bits)

    return np.where(np.isnan(x) & np.isnan(y), 0, np.abs(place(x) - place(y)))


@pytest.fixture(params=["by instructions", "of vectors by instructions", "by bits", "of vectors by bits"])
def converted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How numbers are converted to half precision and from there."""
    by_bits, key = "bits" in request.param, jit.cpu_key()
    if not by_bits and not converts_halves():
        pytest.skip("this CPU has no such instructions")
    monkeypatch.setattr(float_bits, "converts_halves", lambda: not by_bits)
    if "vectors" in request.param:
        monkeypatch.setattr(vectorize, "narrowest_bytes", lambda: 1)
    monkeypatch.setattr(jit, "cpu_key", lambda: f"{key} {request.param}")
    return str(request.param)


# -- conversions -------------------------------------------------------------------------------------------------------
def moves(x: Any, i: Any) -> Any:
    """What has elements of x alone, and numbers of its own."""
    y, (lower, upper), updated = x.reshape(256, 256), np.split(x, 2), x.copy()
    updated[7:900:3] = upper[:298]
    updated[5] = 1.5
    return (
        y.T.copy(),
        y.T,
        x[::-3],
        x[i],
        np.concatenate([upper, x[1:9]]),
        np.stack([upper, lower], 1),
        np.roll(y, 3, 1),
        np.where(i > 9, x, x[::-1]),
        np.where(i > 9, x, 0.1),
        np.where(i > 9, -2, x),
        np.pad(y, 1),
        np.diagonal(y),
        *y[:3],
        np.pad(x, 2, constant_values=-0.1),
        np.broadcast_to(x[:4], (3, 4)),
        np.repeat(x, 2),
        updated,
        np.tril(y),
        np.take_along_axis(y, i.reshape(256, 256) % 256, 1),
        np.insert(x, 9, np.nan),
    )


def test_every_bit_pattern_is_moved_as_it_is(converted: str) -> None:
    i = np.random.default_rng(0).permutation(EVERY.size)
    wanted = moves(EVERY, i)
    for got, want in zip(compiled(moves)(EVERY, i), wanted, strict=True):
        assert got.dtype == HALF
        np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


def test_what_is_moved_alone_is_not_converted() -> None:
    graph = optimize(without_half(compiled(moves).graph(EVERY, np.arange(EVERY.size))))
    assert not {"half_value", "half_bits"} & {node.name for node in graph.nodes}


def test_every_number_is_converted_to_every_dtype(converted: str) -> None:
    def all_of(x: Any, whole: Any) -> Any:
        floats = [x.astype(d) for d in ("float64", "float32", "complex128", "bool")]
        return (*floats, *[whole.astype(d) for d in ("int64", "int32", "uint16", "int8")], x.view(np.uint16))

    whole = np.arange(100).astype(HALF)
    for got, want in zip(compiled(all_of)(EVERY, whole), all_of(EVERY, whole), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_a_conversion_rounds_once(converted: str) -> None:
    # Ties, and what is beside them by less than single precision can tell.
    x = np.sort(FINITE.astype(np.float64))
    ties = (x[1:] + x[:-1]) / 2
    beside = [np.nextafter(ties, end) for end in (np.inf, -np.inf)]
    edges = [65519.999, 65520.0, -65520.0, 1e300, np.inf, np.nan, 5e-324, 2.0**-25, -0.0]
    doubles = np.concatenate([x, ties, *beside, edges])
    with np.errstate(all="ignore"):
        singles = doubles.astype(np.float32)
        near = [np.nextafter(np.float32(ties), np.float32(end)) for end in (np.inf, -np.inf)]
    floats = np.concatenate([singles, *near, np.arange(0, 2**32, 65521, dtype=np.uint32).view(np.float32)])
    whole = np.arange(-70000, 70000)
    args = [doubles, floats, whole, whole.astype(np.uint16), whole.astype(np.int8), whole > 0]
    with np.errstate(all="ignore"):
        wanted = [x.astype(HALF) for x in args]
    for got, want in zip(compiled(lambda *xs: tuple([x.astype(HALF) for x in xs]))(*args), wanted, strict=True):
        assert not apart(got, want).any()
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


# -- functions ---------------------------------------------------------------------------------------------------------
EXACT = """negative absolute fabs sqrt square reciprocal floor ceil trunc rint sign spacing deg2rad rad2deg signbit
    isnan isfinite isinf"""
CLOSE = """exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh
    cbrt"""


def test_functions_of_every_number_are_numpys(converted: str) -> None:
    names = [*EXACT.split(), *CLOSE.split()]
    result = compiled(lambda x: tuple([getattr(np, name)(x) for name in names]))(EVERY)
    off = {}
    for name, got in zip(names, result, strict=True):
        with np.errstate(all="ignore"):
            want = getattr(np, name)(EVERY)
        assert got.dtype == want.dtype
        off[name] = apart(got, want) if got.dtype == HALF else got != want
    assert not any(off[name].any() for name in EXACT.split())
    assert max(off[name].max() for name in CLOSE.split()) <= 1
    assert max(np.count_nonzero(off[name]) for name in CLOSE.split()) < 30


OF_TWO = """add subtract multiply divide maximum minimum fmax fmin copysign nextafter less equal greater_equal heaviside
    fmod remainder floor_divide hypot arctan2 logaddexp logaddexp2 power"""
FACTORING = "inv det slogdet cholesky qr svd svdvals eigh eigvalsh eig eigvals pinv matrix_rank cond"
A = EVERY[::37]
B = np.random.default_rng(0).permutation(A)


@pytest.mark.parametrize("name", OF_TWO.split())
def test_functions_of_two_are_numpys(name: str) -> None:
    function = getattr(np, name)
    got = compiled(lambda x, y: function(x, y))(A, B)
    with np.errstate(all="ignore"):
        want = function(A, B)
    assert got.dtype == want.dtype
    assert (apart(got, want) if got.dtype == HALF else got != want).max() <= (name in ("hypot", "arctan2", "power"))


def test_promotion_is_numpys() -> None:
    small = np.arange(1, 13, dtype=np.int8).reshape(3, 4)

    def every(x: Any, small: Any, expected: Any, short: Any, single: Any, double: Any, number: Any) -> Any:
        return (
            x + small, x * expected, x + short, x - single, x * double, x * number, x * 0.1, 3 * x, 1 / x, x**2, x + 1j,
            x // 0.3, x % 0.3, x > 0.1, np.where(x > 0, x, 0.1), np.where(x > 0, x, 1), np.clip(x, -0.3, 0.4),
            np.sqrt(small), np.exp(expected), np.divide(small, 3), np.float16(0.1) * x, x * np.float32(0.1),
            np.float64(0.1) * x, np.full(3, 0.1, HALF), np.arange(0, 1, 0.1, dtype=HALF),
            np.linspace(0, 1, 7, dtype=HALF), np.add(x, x, dtype=np.float32), np.sum(small, dtype=HALF), np.mean(x),
            np.var(x), np.std(x, 0), np.sum(x, dtype=np.float64), np.pad(x, 1, constant_values=0.1),
            np.stack([x, single]), np.eye(3, dtype=HALF), x.astype(np.complex64),
            np.geomspace(np.abs(x[0, 0]), 9, 3), x * 1e6, x * 1e-9,
        )  # fmt: skip

    args = X, small, small > 4, small.astype(np.int16), X.astype(np.float32), X.astype(np.float64), 0.1
    with np.errstate(all="ignore"):
        wanted = every(*args)
    for got, want in zip(compiled(every)(*args), wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=2**-10, atol=1e-7)


def test_fourier_transforms_have_numpys_dtypes() -> None:
    for name in ("fft", "ifft", "rfft", "irfft", "fft2"):
        function = getattr(np.fft, name)
        got, want = compiled(lambda x, function=function: function(x))(X), function(X)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_scipys_functions_take_the_dtypes_that_they_take_of_ndarrays() -> None:
    x = X[2]

    def every(x: Any) -> Any:
        return sp.erf(x), sp.expit(x), sp.entr(x), sp.gamma(x), sp.xlogy(x, x), sp.ndtri(x / 4), sp.rel_entr(x, 2 * x)

    for args in (x, x.astype(np.float32)):
        for got, want in zip(compiled(every)(args), every(args), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=2e-6)


# -- sums --------------------------------------------------------------------------------------------------------------
def test_what_is_made_of_many_is_rounded_once() -> None:
    def sums(x: Any) -> Any:
        return np.sum(x, 0), np.mean(x, 0), x.T @ x, np.cumsum(x, 0)[-1], np.mean(x, 0, where=x > 0)

    x = np.full((5000, 3), 1.5, HALF)  # whose sums in half precision end at 4096
    wanted = [y.astype(HALF) for y in sums(x.astype(np.float64))]
    with replayed():
        answered = tg.trace(sums)(x)
    for got, again, want in zip(compiled(sums)(x), answered, wanted, strict=True):
        assert got.dtype == HALF
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(again, want)


def test_gradients_of_means_of_very_many_are_not_lost() -> None:
    x = np.ones(100_000, HALF)  # more than the largest number
    np.testing.assert_allclose(tg.grad(lambda x: np.mean(x) * HALF(100))(x), 1e-3, rtol=2**-10)
    x[::2] = 3.0
    np.testing.assert_allclose(tg.grad(lambda x: np.var(x) * HALF(100))(x), np.where(x > 2, 2e-3, -2e-3), rtol=2**-9)


def test_a_running_sum_does_not_wait_for_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float_bits, "converts_halves", lambda: True)
    graph = optimize(without_half(compiled(np.cumsum).graph(X[0])))
    (serial, *_) = [x.kernel for x in plan(graph).steps if isinstance(x, Launch) and x.serial]
    module = unit_module("serial")
    kernel_function(module, serial, "serial")
    text = str(module)
    assert "load atomic i16" in text
    assert "fpext half" in text


# -- every op ----------------------------------------------------------------------------------------------------------
def halved(x: Any) -> Any:
    return x.astype(HALF) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def cases() -> Any:
    """Each op of the table that takes float16, or gives it, with operands that it does so for."""
    for op in TABLE.values():
        for xs, params in op.sample_cases():
            options = dict(params)
            if options.get("dtype") in ("float32", "float64"):
                options["dtype"] = "float16"
            if any(map(of_regions, params.values())):
                continue
            operands = [halved(x) for x in xs]
            try:
                result = op.aval(*[x if type(x) in LITERALS else aval_of(x) for x in operands], **options)
            except TypeError:
                continue
            of_half = [x.dtype for x in operands if type(x) not in LITERALS] + [y.dtype for y in several(result)]
            if HALF in of_half:
                yield op, operands, options
                break


def of_regions(x: Any) -> bool:
    return hasattr(x, "nodes") or (isinstance(x, tuple) and bool(x) and hasattr(x[0], "nodes"))


@pytest.mark.filterwarnings("ignore:logm result may be inaccurate")
def test_ops_are_what_numpy_computes() -> None:
    results = list(cases())
    flat = [x for _, operands, _ in results for x in operands if type(x) not in LITERALS]

    def every(*values: Any) -> Any:
        supply = iter(values)
        for op, operands, params in results:
            args = tuple([x if type(x) in LITERALS else next(supply) for x in operands])
            yield from several(recorder().emit(op, args, params))

    graph = build(every, [aval_of(x) for x in flat])
    assert not has_dtype(without_half(without_complex(graph)), "e")
    names = [op.name for op, operands, params in results for _ in several(op.compute(tuple(operands), params))]
    assert len(set(names)) > 150
    result = compile_program(graph, ("array",) * len(flat), single=False, optimize=1)
    for name, got, want in zip(names, result.run(flat), run(graph, flat), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


# -- derivatives -------------------------------------------------------------------------------------------------------
def loss(x: Any, w: Any) -> Any:
    h = np.tanh(x @ w) * 1.5 + 0.1
    return np.mean((h / (1 + np.exp(-h))) ** 2) + np.sum(np.sqrt(x * x + 1)) / 12


def test_derivatives_are_those_of_doubles_in_both_modes() -> None:
    doubles = X.astype(float), W.astype(float)
    value, derivatives = tg.value_and_grad(loss, argnums=(0, 1), tiered=False)(X, W)
    exact, wanted = tg.value_and_grad(loss, argnums=(0, 1))(*doubles)
    assert value.dtype == HALF
    assert value == pytest.approx(exact, rel=2e-3)
    for got, want in zip(derivatives, wanted, strict=True):
        assert got.dtype == HALF
        np.testing.assert_allclose(got, want, atol=2e-3)
    _, derivative = tg.jvp(loss, (X, W), (np.ones_like(X), np.ones_like(W)))
    assert derivative.dtype == HALF
    assert derivative == pytest.approx(differences(lambda s: loss(doubles[0] + s, doubles[1] + s), 0.0, 1.0), rel=4e-3)


def test_second_derivatives_are_those_of_doubles_in_both_modes() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.tanh(x) * x**2 + np.sort(x) * np.cumsum(x))

    wanted = tg.hessian(f)(X[0].astype(float))
    for result in (tg.hessian(f, tiered=False)(X[0]), tg.jacrev(tg.jacrev(f))(X[0]), tg.jacfwd(tg.jacfwd(f))(X[0])):
        assert result.dtype == HALF
        np.testing.assert_allclose(result, wanted, atol=0.02)


def test_a_derivative_is_not_lost_where_a_square_overflows() -> None:
    for f in (np.arcsinh, np.arccosh):
        assert tg.grad(f)(HALF(500)) == pytest.approx(1 / 500, rel=2e-3)


def test_eager_derivatives_are_the_compiled_ones() -> None:
    step = tg.value_and_grad(loss, argnums=(0, 1), tiered=False)
    value, derivatives = step(X, W)
    with tg.disable_jit():
        eager_value, eager_derivatives = step(X, W)
    assert type(eager_value) is type(value) is HALF
    assert apart(value, eager_value).max() <= 1
    for got, want in zip(derivatives, eager_derivatives, strict=True):
        assert got.dtype == want.dtype == HALF
        np.testing.assert_allclose(got, want, atol=1e-3)


# -- control flow and state ------------------------------------------------------------------------------------------
def recurrence(x: Any, rows: Any) -> Any:
    return tg.scan(lambda c, r: (np.tanh(c * 0.9 + r), c * r), x, rows)


def test_loops_carry_float16_and_round_it_each_iteration() -> None:
    def steps(a: Any) -> Any:
        out = np.zeros(len(a), HALF)
        for i in range(1, len(a)):
            out[i] = out[i - 1] * HALF(0.7) + a[i]
        return out

    a = np.linspace(0, 1, 200).astype(HALF)
    np.testing.assert_array_equal(compiled(steps)(a), steps(a))

    def root(a: Any) -> Any:
        y = a
        while abs(y * y - a) > 0.01:
            y = (y + a / y) / 2
        return y

    result = compiled(root)
    assert [result(HALF(x)) for x in (9, 2.5)] == [root(HALF(x)) for x in (9, 2.5)]
    assert result.cache_info().traces == 1
    last, rows = compiled(recurrence)(X[0], X)
    assert last.dtype == rows.dtype == HALF
    derivative = tg.grad(lambda x, rows: np.sum(recurrence(x, rows)[0]), tiered=False)(X[0], X)
    wanted = tg.grad(lambda x, rows: np.sum(recurrence(x, rows)[0]))(X[0].astype(float), X.astype(float))
    assert derivative.dtype == HALF
    np.testing.assert_allclose(derivative, wanted, atol=1e-3)


def test_no_region_is_left_with_float16() -> None:
    def f(x: Any) -> Any:
        y = tg.fori_loop(0, 3, lambda i, v: v * 0.5 + i, x)
        return tg.cond(
            np.sum(y) > 0, lambda v: tg.while_loop(lambda u: np.sum(u) < 99, lambda u: u * 1.5, v), np.negative, y
        )

    graph = compiled(f).graph(X)
    assert has_dtype(graph, "e")
    assert not has_dtype(without_half(graph), "e")
    assert parse(str(graph)) == graph
    np.testing.assert_array_equal(compiled(f)(X), run(graph, [X])[0])


def test_arrays_are_captured_and_updated_in_place() -> None:
    scale = np.arange(4).astype(HALF)

    def update(a: Any) -> Any:
        a[1:] *= 0.5
        a[0] = 7.3
        a += scale
        return np.sum(a)

    f = compiled(update)
    for _ in range(2):
        mine, numpys = X.copy(), X.copy()
        assert f(mine) == update(numpys)
        np.testing.assert_array_equal(mine, numpys)
        scale[2] = 100


def test_batches_and_checkpoints_are_what_they_are_of_one() -> None:
    rows = compiled(tg.vmap(lambda r: np.sum(np.sin(r) * r)))(X)
    np.testing.assert_array_equal(rows, np.stack([compiled(lambda r: np.sum(np.sin(r) * r))(r) for r in X]))
    saved = tg.grad(lambda x: np.sum(np.tanh(x) * x))(X)
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(tg.checkpoint(lambda v: np.tanh(v) * v)(x)))(X), saved)


def test_an_array_is_given_away_for_results_of_its_own_dtype_alone() -> None:
    double = tg.trace(lambda p: p * 2, donate_argnums=0, tiered=False)
    bits = tg.trace(lambda p, k: k + np.uint16(1), donate_argnums=0, tiered=False)
    for call in range(3):
        p = np.linspace(0, 1, 10).astype(HALF)
        assert (double(p) is p) == (call > 0)
        result = bits(X.copy(), X.view(np.uint16))
        assert result.dtype == np.uint16
        np.testing.assert_array_equal(result, X.view(np.uint16) + 1)


# -- what there is not -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FACTORING.split())
def test_factorizations_refuse_float16_as_numpy_does(name: str) -> None:
    x, function = X[:3, :3], getattr(np.linalg, name)
    with pytest.raises(TypeError, match="float16"):
        function(x)
    with pytest.raises(tg.DTypeError, match=r"linalg\.\w+: array type float16 is unsupported.*test_half.py"):
        tg.trace(function)(x)


def test_a_system_with_one_side_of_float16_is_refused() -> None:
    for pair in ((X[:3, :3], np.eye(3)), (np.eye(3), X[:3, :3])):
        with pytest.raises(tg.DTypeError, match=r"linalg\.solve: array type float16"):
            tg.trace(np.linalg.solve)(*pair)


def test_products_and_norms_of_matrices_are_numpys() -> None:
    def every(x: Any, w: Any) -> Any:
        return np.linalg.norm(x), np.linalg.matrix_power(x[:3, :3], 3), np.linalg.multi_dot([x, w, w.T]), np.trace(x)

    for got, want in zip(compiled(every)(X, W), every(X, W), strict=True):
        assert got.dtype == want.dtype == HALF
        np.testing.assert_allclose(got, want, rtol=4e-3)


def test_numbas_code_takes_none() -> None:
    with pytest.raises(tg.UnsupportedError, match="Numba knows no float16"):
        tg.trace(lambda x: x * 2).as_numba(X)


# -- Tensors -----------------------------------------------------------------------------------------------------------
def test_tensors_of_half_precision() -> None:
    t = tg.tensor([1.5, 2.0, 3.0]).half().requires_grad_()
    assert (t.dtype, t.type(), tg.half) == (tg.float16, "tracegrad.HalfTensor", tg.float16)
    (derivative,) = tg.autograd.grad((tg.tanh(t) * t).sum(), t, create_graph=True)
    (curve,) = tg.autograd.grad(derivative.sum(), t)
    x = t.detach().numpy().astype(float)
    np.testing.assert_allclose(derivative.detach().numpy(), np.tanh(x) + x / np.cosh(x) ** 2, rtol=2e-3)
    np.testing.assert_allclose(curve.numpy(), 2 * (1 - x * np.tanh(x)) / np.cosh(x) ** 2, rtol=4e-3)
    assert derivative.dtype == curve.dtype == tg.float16

    @tg.trace(tiered=False)
    def energy(x: Any) -> Any:
        return (tg.tanh(x * t) ** 2).mean()

    value = energy(tg.ones(3, dtype=tg.half))
    value.backward()
    assert value.dtype == t.grad.dtype == tg.float16
    np.testing.assert_allclose(t.grad.numpy(), 2 * np.tanh(x) / np.cosh(x) ** 2 / 3, rtol=1e-2)
    drawn = tg.rand(10_000, dtype=tg.half)
    assert (drawn.dtype, bool((drawn < 1).all())) == (tg.float16, True)
    assert tg.randn(3, dtype=tg.half).dtype == tg.float16


def test_tensors_of_other_kinds_of_half_precision_are_refused_by_name() -> None:
    t = tg.ones(2, dtype=tg.half)
    with pytest.raises(tg.DTypeError, match="bfloat16"):
        t.bfloat16()
    for call in (lambda: tg.complex(t, t), lambda: tg.view_as_complex(t), lambda: tg.linalg.inv(t.expand(2, 2))):
        with pytest.raises(tg.DTypeError, match=r"half precision|float16"):
            call()
    assert tg.linalg.matrix_norm(t.expand(2, 2)).dtype == tg.float16
