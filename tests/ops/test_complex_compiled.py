"""Complex numbers in compiled functions: what NumPy computes, and gradients against differences."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from complex_samples import answer, samples
from graphs import several

import tracegrad as tg
from tracegrad.avals import aval_of
from tracegrad.ir import Graph, build, parse, run
from tracegrad.ops import TABLE
from tracegrad.passes import without_complex
from tracegrad.passes.dtypes.legalize import has_complex
from tracegrad.runtime.execution.program import compile_program

rng = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    """Complex numbers around 0."""
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


Z, A = numbers(6), numbers(4, 4)
X = rng.normal(size=6)


def compiled(graph: Graph, operands: Any) -> Any:
    """The outputs of the graph by machine code."""
    kinds = ("array",) * len(operands)
    return compile_program(graph, kinds, single=False).run([np.array(x, order="C") for x in operands])


def test_a_call_with_a_literal_before_the_pairs_has_their_dtype() -> None:
    text = (
        "graph(%0: f64[6,2]) "
        "{\n  %1 = call_joined(2.0, %0) {op_params=(), joined=(False, True), op='power'} : f64[6,2]\n"
        "  return %1\n}"
    )
    pairs = np.ascontiguousarray(Z)[:, None].view(np.float64)
    (result,) = compiled(parse(text), [pairs])
    np.testing.assert_allclose(result[:, 0] + 1j * result[:, 1], np.power(2.0, Z), rtol=1e-14)


# -- every op ----------------------------------------------------------------------------------------------------
def cases() -> Any:
    """Each op of the table that takes complex operands, or gives complex results, with operands."""
    for case in samples():
        op, operands, params = case.values
        if answer(op, operands, params) is not None:
            yield op, [np.asarray(x) for x in operands], params


def test_ops_are_what_numpy_computes() -> None:
    results = list(cases())
    flat = [x for _, operands, _ in results for x in operands]

    def every(*values: Any) -> Any:
        supply = iter(values)
        return [y for op, operands, params in results for y in several(op(*[next(supply) for _ in operands], **params))]

    graph = build(every, [aval_of(x) for x in flat])
    assert not has_complex(without_complex(graph))
    names = [op.name for op, operands, params in results for _ in several(op(*operands, **params))]
    assert len(names) > 150
    for name, got, want in zip(names, compiled(graph, flat), run(graph, flat), strict=True):
        assert (got.dtype, np.shape(got)) == (want.dtype, want.shape), name
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=name)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 1e30, 3e-5, 1e6, 60.0, -700.0, 710.0, np.inf, -np.inf, np.nan]
UNARY = """negative conj real imag absolute angle sgn isnan isinf isfinite square reciprocal sqrt rsqrt
           exp exp2 expm1 log log2 log10 sinh cosh tanh sin cos tan""".split()  # noqa: SIM905
BINARY = ["add", "subtract", "multiply", "divide", "equal", "not_equal"]
FINITE = [x for x in SPECIAL if abs(x) < 20]


def assert_parts(got: Any, want: Any, name: str, operands: Any) -> None:
    """The same parts but for 8 units in the last place (of the whole, where products are fused with sums): zeros,
    infinities and nan where they are, with their signs."""
    parts = [[x.real, x.imag] if x.dtype.kind == "c" else [x] for x in (got, want)]
    for a, b in zip(*parts, strict=True):
        same = (a == b) & (np.signbit(a) == np.signbit(b)) if b.dtype.kind == "f" else a == b
        same |= (a != a) & (b != b)
        if b.dtype.kind == "f":
            scale = abs(want) if name in BINARY else abs(b)
            same |= np.isfinite(b) & np.isfinite(scale) & (abs(a - b) <= 8 * np.finfo(b.dtype).eps * scale)
        listed = [(*(x[i] for x in operands), got[i], want[i]) for i in np.flatnonzero(~same)[:5]]
        assert not listed, f"{name}: (operands, got, want) {listed}"


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_special_values_are_numpys(dtype: str) -> None:
    with np.errstate(all="ignore"):
        z = np.array([complex(a, b) for a in SPECIAL for b in SPECIAL]).astype(dtype)
        x, y = (g.ravel().copy() for g in np.meshgrid(z[::3], z[::4]))
        graph = build(
            lambda z, x, y: [*(TABLE[op](z) for op in UNARY), *(TABLE[op](x, y) for op in BINARY)],
            [aval_of(v) for v in (z, x, y)],
        )
        result = compiled(graph, (z, x, y))
        for name, got in zip(UNARY, result):
            assert_parts(got, np.asarray(TABLE[name].impl(z)), name, (z,))
        for name, got in zip(BINARY, result[len(UNARY) :]):
            assert_parts(got, TABLE[name].impl(x, y), name, (x, y))


def test_powers_are_numpys() -> None:
    z = np.array([complex(a, b) for a in FINITE for b in FINITE])
    x, y = (g.ravel().copy() for g in np.meshgrid(z, z[::5]))
    literals = [1, 2, 3, 7, -1, -2, 0, 0.5, 1.5, 1j, 1 + 2j]
    power = TABLE["power"]
    graph = build(
        lambda z, x, y: [
            power(x, y),
            *(power(z, complex(c)) for c in literals),
            *(power(complex(c), z) for c in literals),
        ],
        [aval_of(v) for v in (z, x, y)],
    )
    for got, want in zip(compiled(graph, (z, x, y)), run(graph, (z, x, y))):
        np.testing.assert_allclose(got, want, rtol=2e-14, atol=1e-300)


def test_log1p_keeps_its_digits_near_0() -> None:
    z = np.array([3e-5j, 1e-9 + 1e-9j, -3e-5 + 1e-20j, 1e-300 + 1j])
    graph = build(lambda z: [TABLE["log1p"](z)], [aval_of(z)])
    (got,) = compiled(graph, (z,))
    with mpmath.workdps(40):
        want = [complex(mpmath.log(1 + mpmath.mpc(x))) for x in z]
    assert_parts(got, np.array(want), "log1p", (z,))


@pytest.mark.parametrize("lead", [(), (2,)])
def test_products_of_all_shapes(lead: tuple[int, ...]) -> None:
    shapes = [(1, 9, 1), (1, 5, 9), (2, 20, 3), (9, 5, 1), (9, 3, 4), (20, 9, 10)]
    pairs = [(numbers(*lead, m, k), numbers(*lead, k, n)) for m, k, n in shapes]
    args = [x for a, b in pairs for x in (a, b, a.real, b.real)]

    def every(*xs: Any) -> Any:
        groups = zip(*[iter(xs)] * 4, strict=True)
        return [y for a, b, c, d in groups for y in (a @ b, a.conj() @ b, c @ b, a @ d)]

    with tg.settings.override(first_call="compile"):
        for got, want in zip(tg.trace(every)(*args), every(*args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_literals_print_and_are_read_as_they_are() -> None:
    for value in (1j, -1j, 1 + 2j, complex(-0.0, 1), complex(0.0, -0.0), complex(np.nan, -np.inf), complex(0, np.inf)):
        text = f"graph(%0: c128[2]) {{\n  %1 = multiply(%0, {value!r}) : c128[2]\n  return %1\n}}"
        graph = parse(text)
        assert str(graph) == text
        assert repr(graph.nodes[0].inputs[1]) == repr(value)


# -- functions of users' ------------------------------------------------------------------------------------------
def mandelbrot(c: Any) -> Any:
    z = np.zeros(c.shape, complex)
    for _ in range(20):
        z = np.where(np.abs(z) < 2, z * z + c, z)
    return np.sum(np.abs(z))


def impedance(x: Any) -> Any:
    w = np.linspace(1.0, 10.0, 5)
    resistance, inductance, capacity = np.exp(x[0]), np.exp(x[1]), np.exp(x[2])
    return np.sum(np.abs(resistance + 1j * w * inductance + 1 / (1j * w * capacity)))


def evolution(x: Any) -> Any:
    state = np.array([1.0, 0.0], complex)
    for angle in x:
        iteration = np.array([[np.cos(angle), -1j * np.sin(angle)], [-1j * np.sin(angle), np.cos(angle)]])
        state = iteration @ state * np.exp(0.3j * angle)
    return np.real(np.vdot(state, np.array([[1.0, 1j], [-1j, -1.0]]) @ state))


def response(b: Any) -> Any:
    w = np.linspace(0.1, 3.0, 7)
    powers = np.exp(-1j * np.outer(w, np.arange(b.size)))
    return np.sum(np.log(np.abs(powers @ b / (1 + 0.5 * powers[:, 1]))))


def least_squares(z: Any) -> Any:
    a = np.array([[1, 1j, 2], [3j, 1, 0], [1, 1, 1], [0, 2j, 1j]])
    return np.sum(np.abs(a @ z[:3] - z[2:]) ** 2)


def beam(phase: Any) -> Any:
    steering = np.exp(1j * np.outer(np.arange(3.0), phase))
    return np.sum(np.abs(steering @ np.arange(1.0, 1.0 + phase.size)) ** 2)


def updates(z: Any) -> Any:
    w = z.copy()
    w[1] = 2j * w[0]
    w.real[0] = 7
    w.imag += w.real
    w *= 1j
    w[::2].imag[...] = 3
    return np.sum(np.abs(w) ** 2 * np.arange(w.size))


def scanned(z: Any) -> Any:
    last, rows = tg.scan(lambda c, a: (c * 0.9 + a * 1j, c * a), z[0], z)
    return np.sum(np.abs(rows)) + np.abs(tg.cond(last.real > 0, lambda c: c * 1j, np.conj, last) + z[1]) ** 2


def turning(z: Any) -> Any:
    count, last = tg.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] * z + 1j), (0, z))
    return np.sum(np.abs(last)) * count


def mapped(z: Any) -> Any:
    return np.sum(np.abs(tg.vmap(lambda a, x: np.exp(a) @ A[0] * x)(z[:, None] * np.ones(4), X)))


def linear_algebra(z: Any) -> Any:
    m = A + np.diag(z[:4])
    return np.abs(np.linalg.det(m)) + np.linalg.norm(np.linalg.inv(m) @ np.linalg.solve(m, z[2:]))


def single(z: Any) -> Any:
    return np.sum(np.abs(np.exp(z.astype(np.complex64) * 1j) + np.float32(2)))


FUNCTIONS = [
    (mandelbrot, 0.3 * Z),
    (impedance, X[:3]),
    (evolution, X[:3]),
    (response, X[:4]),
    (least_squares, Z),
    (beam, X),
    (updates, Z),
    (scanned, Z),
    (turning, Z),
    (mapped, Z),
    (linear_algebra, Z),
]
every_function = pytest.mark.parametrize(("f", "x"), FUNCTIONS, ids=[f.__name__ for f, _ in FUNCTIONS])


def differences(f: Any, x: Any, step: float = 1e-6) -> Any:
    """The gradient of a real function by central differences, in PyTorch's convention."""
    result = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        for axis in (1, 1j) if x.dtype.kind == "c" else (1,):
            h = np.zeros_like(x)
            h[i] = step * axis
            result[i] += axis * (f(x + h) - f(x - h)) / (2 * step)
    return result


@every_function
def test_a_function_and_its_derivatives_are_right(f: Any, x: Any) -> None:
    with tg.settings.override(first_call="compile"):
        value, gradient = tg.value_and_grad(f)(x)
    assert value == pytest.approx(f(x), rel=1e-12)
    assert (gradient.dtype, gradient.shape) == (x.dtype, x.shape)
    np.testing.assert_allclose(gradient, differences(f, x), rtol=1e-6, atol=1e-6)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(f)(x), gradient, rtol=1e-10, atol=1e-12)
    v = numbers(*x.shape) if x.dtype.kind == "c" else rng.normal(size=x.shape)
    _, tangent = tg.jvp(f, (x,), (v,))
    assert tangent == pytest.approx(np.vdot(gradient, v).real, rel=1e-9)


@every_function
def test_second_derivatives_are_right(f: Any, x: Any) -> None:
    v = numbers(*x.shape) if x.dtype.kind == "c" else rng.normal(size=x.shape)
    derivative = tg.grad(f)

    def along(x: Any) -> Any:
        return np.sum(np.real(derivative(x) * np.conj(v)))

    np.testing.assert_allclose(tg.grad(along)(x), differences(along, x, 1e-5), rtol=1e-5, atol=1e-5)


def test_single_precision_stays_single() -> None:
    z = Z.astype(np.complex64)
    f = tg.trace(lambda z, x: (z * 2.0 + 1j, np.abs(z), z * x, np.exp(z), z @ z))
    with tg.settings.override(first_call="compile"):
        result = f(z, X)
    want = (z * 2.0 + 1j, np.abs(z), z * X, np.exp(z), z @ z)
    for got, expected in zip(result, want):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    gradient = tg.grad(single)(z)
    assert gradient.dtype == np.complex64
    np.testing.assert_allclose(gradient, differences(lambda z: np.sum(np.abs(np.exp(z * 1j) + 2)), Z), rtol=1e-5)


def test_complex_functions_have_products_both_ways() -> None:
    def f(z: Any) -> Any:
        return np.exp(z) * z[::-1], np.abs(z)

    v, w, r = numbers(6), numbers(6), rng.normal(size=6)
    (out, _), pull = tg.vjp(f, Z)
    np.testing.assert_allclose(out, f(Z)[0])
    (ct,) = pull((w, r))
    _, (moved, grown) = tg.jvp(f, (Z,), (v,))
    assert np.vdot(ct, v).real == pytest.approx(np.vdot(w, moved).real + np.vdot(r, grown), rel=1e-12)
    np.testing.assert_allclose(moved, (f(Z + 1e-6 * v)[0] - f(Z - 1e-6 * v)[0]) / 2e-6, rtol=1e-6)
    _, push = tg.linearize(f, Z)
    np.testing.assert_allclose(push(v)[0], moved, rtol=1e-12)


# -- arguments, captured values, effects ---------------------------------------------------------------------------
def test_arguments_and_results_of_all_kinds() -> None:
    table = {"w": Z}

    @tg.trace
    def f(z: Any, x: Any, k: Any) -> Any:
        table["last"] = z[0] * k
        x[0] = 5
        z *= 1j
        return z, x * k, z[1], table["w"][2:] * 2, z.real

    with tg.settings.override(first_call="compile"):
        for k in (2j, 3 - 1j, -0.0 + 2j):
            z, x = Z.copy(), X.copy()
            result = f(z, x, k)
            assert result[0] is z
            np.testing.assert_array_equal(z, Z * 1j)
            assert x[0] == 5
            np.testing.assert_allclose(result[1], x * k)
            assert type(result[2]) is np.complex128
            np.testing.assert_array_equal(result[3], Z[2:] * 2)
            assert table["last"] == Z[0] * k
            np.testing.assert_array_equal(result[4], z.real)
            np.testing.assert_array_equal(f(Z[::-1].copy(), X.copy(), k)[2], Z[::-1][1] * 1j)


def test_strided_and_transposed_arguments() -> None:
    f = tg.trace(lambda m: (m @ m.T).real + np.sum(m.imag))
    with tg.settings.override(first_call="compile"):
        for m in (A, A.T, A[::-1, ::-1], np.asfortranarray(A), numbers(8, 8)[::2, 1::2]):
            np.testing.assert_allclose(f(m), (m @ m.T).real + np.sum(m.imag), rtol=1e-12)


def test_what_has_no_gradient_says_so() -> None:
    with pytest.raises(tg.DTypeError, match=r"the output must be real, got complex128: its real part, or abs\(\)"):
        tg.grad(np.sum)(Z)
    with pytest.raises(tg.TraceError, match=r"with respect to z, which is a complex; numpy.complex128"):
        tg.grad(lambda z: abs(z))(1 + 2j)
    with pytest.raises(tg.DTypeError, match="floor is not defined for dtypes"):
        tg.trace(lambda z: np.floor(z))(Z)


# -- holomorphic functions -------------------------------------------------------------------------------------------
def test_holomorphic_functions_have_derivatives() -> None:
    z = Z[:3]

    def f(z: Any) -> Any:
        return np.sum(np.exp(z) * z**2)

    def several(z: Any) -> Any:
        return np.array([z[0] * z[1], np.sin(z[2]), z[0] ** 2])

    value, derivative = tg.value_and_grad(f, holomorphic=True)(z)
    assert value == pytest.approx(f(z))
    np.testing.assert_allclose(derivative, np.exp(z) * (z**2 + 2 * z))
    rows = [[z[1], z[0], 0], [0, 0, np.cos(z[2])], [2 * z[0], 0, 0]]
    for jacobian in (tg.jacfwd, tg.jacrev):
        np.testing.assert_allclose(jacobian(several, holomorphic=True)(z), rows)
    np.testing.assert_allclose(tg.hessian(lambda z: np.sum(z**3), holomorphic=True)(z), np.diag(6 * z))
    np.testing.assert_allclose(tg.jacfwd(lambda x: np.exp(1j * x))(X), np.diag(1j * np.exp(1j * X)))
    np.testing.assert_allclose(tg.jacrev(lambda z: np.abs(z) ** 2)(z), np.diag(2 * z))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tg.grad(np.sum, holomorphic=True)(X),
            "the arguments of a holomorphic function are complex, got float64",
        ),
        (
            lambda: tg.grad(lambda z: np.sum(np.abs(z)), holomorphic=True)(Z),
            "the results of a holomorphic function are",
        ),
        (lambda: tg.jacrev(lambda x: x * 1j)(X), "the outputs must be floating, got complex128"),
        (lambda: tg.jacfwd(np.abs)(Z), "the arguments must be floating, got complex128"),
        (lambda: tg.hessian(lambda z: np.sum(np.abs(z)))(Z), "must be floating, got complex128"),
    ],
)
def test_what_is_not_holomorphic_says_so(call: Any, message: str) -> None:
    with pytest.raises(tg.DTypeError, match=message):
        call()


# -- memory ----------------------------------------------------------------------------------------------------------
def test_views_as_parts_and_as_complex_numbers() -> None:
    def parts(z: Any) -> Any:
        w = z.copy()
        v = w.view(z.real.dtype)
        v[1] = 5
        v *= 2
        return w

    def pairs(x: Any) -> Any:
        w = x.copy()
        v = w.view(np.complex128)
        v[1] *= 5j
        v += 2
        return w

    np.testing.assert_array_equal(tg.trace(parts)(Z), parts(Z))
    np.testing.assert_array_equal(tg.trace(parts)(Z.astype(np.complex64)), parts(Z.astype(np.complex64)))
    np.testing.assert_array_equal(tg.trace(pairs)(X), pairs(X))
    gradient = tg.grad(lambda z: np.sum(parts(z).view(float) ** 2))(Z)
    np.testing.assert_allclose(gradient, differences(lambda z: np.sum(parts(z).view(float) ** 2), Z), rtol=1e-6)
    with pytest.raises(ValueError, match="its size must be a divisor"):
        tg.trace(lambda x: x.view(complex))(X[:5].copy())


def test_results_in_memory_that_is_given_away_have_their_dtypes() -> None:
    x = rng.normal(size=(50, 2))
    with tg.settings.override(first_call="compile"):
        joined = tg.trace(lambda x: x[:, 0] + 1j * x[:, 1], donate_argnums=0)(x.copy())
        apart = tg.trace(lambda z: np.stack([z.real, z.imag], -1) * 2, donate_argnums=0)(x.view(complex)[:, 0].copy())
    np.testing.assert_array_equal(joined, x.view(complex)[:, 0])
    np.testing.assert_array_equal(apart, 2 * x)
    assert (joined.dtype, apart.dtype) == (np.complex128, np.float64)


def test_convolutions_are_numpys() -> None:
    w = Z[:3]
    for function in (np.convolve, np.correlate):
        for mode in ("full", "same", "valid"):
            got = tg.trace(lambda z, w: function(z, w, mode))(Z, w)  # noqa: B023
            np.testing.assert_allclose(got, function(Z, w, mode))


def test_sign_and_conj_are_other_ops_of_complex_numbers() -> None:
    f = tg.trace(lambda z: np.sign(z) + np.conj(z))
    np.testing.assert_allclose(f(Z), np.sign(Z) + Z.conj())
    assert "conj" not in str(f.graph(X))
    np.testing.assert_array_equal(f(X), np.sign(X) + X)


def escape(x: Any) -> Any:
    z, iterations, c = 0j, 0, complex(x[0], x[1])
    while abs(z) < 2 and iterations < 30:
        z, iterations = z * z + c, iterations + 1
    return abs(z)


PYTHONS = (
    lambda x: complex(x[0], x[1]) ** 2 * complex(x[1]),
    lambda x: abs(float(x[0]) + 1j * x[1].item()) ** 3,
    lambda x: (x + 1j)[0].item().conjugate() / (1 + 2j) - x[1],
    lambda x: -complex(x[0], 1) * x[1] + (complex(x[0]) == 1),
    lambda x: complex(x[0]).real * (x * 1j).tolist()[1].imag + isinstance(complex(x[0]), complex),
    lambda x: np.sum(np.exp(1j * float(x[0]) * np.arange(3.0))) ** complex(x[1]),
    lambda x: complex(x[0], x[1]) ** -0.5 + complex(1j * x[0], x[1]),
    escape,
)


@pytest.mark.filterwarnings("ignore:complex.. argument 'real' must be a real number:DeprecationWarning")  # since 3.14
@pytest.mark.parametrize("function", PYTHONS)
def test_complex_numbers_of_pythons_are_numbers_of_the_trace(function: Any) -> None:
    f, x, y = tg.trace(function), np.array([0.3, 0.4]), np.array([0.31, 0.42])
    for each in (x, y):
        result, wanted = f(each), function(each)
        assert type(result) is type(wanted)
        np.testing.assert_allclose(result, wanted, rtol=1e-14)
    assert f.cache_info().traces == 1

    def size(x: Any) -> Any:
        return abs(function(x)) ** 2

    for gradient in (tg.grad(size), tg.disable_jit()(tg.grad(size))):
        np.testing.assert_allclose(gradient(x), differences(size, x), rtol=1e-6, atol=1e-8)


def test_complex_numbers_of_pythons_raise_what_python_raises() -> None:
    for function, error in (
        (lambda x: 1 / complex(x[0]), ZeroDivisionError),
        (lambda x: complex(x[0]) < 1, TypeError),
        (lambda x: float(complex(x[0])), TypeError),
        (lambda x: complex(x[0]) // 2, TypeError),
    ):
        with pytest.raises(error):
            tg.trace(function)(np.zeros(1))


def test_a_complex_number_beside_single_precision_takes_that() -> None:
    f = tg.trace(lambda x, s: complex(s[0], 1) * x)
    assert f(np.ones(3, np.float32), np.ones(1)).dtype == np.complex64


def test_complex_numbers_are_sorted_as_numpy_sorts_them() -> None:
    z = np.array([[1 + 2j, 1 - 1j, 0.5], [np.nan + 1j, complex(2, np.nan), 1]])
    for function in (np.sort, lambda z: np.sort(z, 0), np.argsort, np.sort_complex, lambda z: np.sort(z, None)):
        np.testing.assert_array_equal(tg.trace(function)(z), function(z))


COMPLEX_ORDER: dict[str, Any] = {
    "sort": np.sort,
    "argsort": np.argsort,
    "stable": lambda z: np.argsort(z, kind="stable"),
    "searchsorted": lambda z: np.searchsorted(np.sort(z), z),
    "on the right": lambda z: np.searchsorted(np.sort(z), z, side="right"),
    "partition": lambda z: np.partition(z, len(z) // 2) if len(z) else z,
    "argpartition": lambda z: np.argpartition(z, len(z) // 3) if len(z) else z,
    "unique": lambda z: np.unique(z, return_inverse=True)[1],
}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX_ORDER)
def test_complex_numbers_are_in_numpys_order(name: str, dtype: str) -> None:
    rng, parts = np.random.default_rng(0), np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf, np.nan])
    f = COMPLEX_ORDER[name]
    traced = tg.trace(f)
    for n in (0, 1, 2, 7, 16, 17, 33, 1000):
        for some in (parts[1:6], parts):
            z = np.empty(n, dtype)
            z.real, z.imag = rng.choice(some, n), rng.choice(some, n)
            np.testing.assert_array_equal(traced(z), f(z))
            np.testing.assert_array_equal(f(tg.tensor(z)), f(z))


def test_complex_numbers_have_no_order_in_pytorch() -> None:
    z = tg.tensor(A.ravel())
    for f in (tg.sort, tg.argsort, lambda z: tg.topk(z, 2), lambda z: tg.searchsorted(z, z)):
        with pytest.raises(tg.errors.UnsupportedError, match="complex numbers is not supported"):
            f(z)


MOVED: dict[str, tuple[Any, list[str]]] = {
    "concatenate": (lambda x, y: np.concatenate([x, y], axis=1), ["concatenate"]),
    "stack": (lambda x, y: np.stack([x, y, x], axis=2), ["concatenate", *["reshape"] * 2]),
    "roll": (lambda x, y: np.roll(x, 3, axis=0), ["slice", "slice", "concatenate"]),
    "flip": (lambda x, y: x[::-1, ::2].copy(), ["flip", "slice"]),
    "pad": (lambda x, y: np.pad(x, 2), ["pad"]),
    "transpose": (lambda x, y: np.ascontiguousarray(x.T), ["transpose"]),
    "take": (lambda x, y: x[:, np.array([3, 0, 3])], ["gather"]),
    "repeat": (lambda x, y: np.broadcast_to(x, (3, 7, 5)).copy(), ["broadcast_to"]),
    "sum of rows": (lambda x, y: np.sum(x, axis=0), ["reduce_sum"]),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_that_lie_side_by_side_are_moved_together(name: str, dtype: str) -> None:
    f, ops = MOVED[name]
    x, y = numbers(7, 5).astype(dtype), numbers(7, 5).astype(dtype)
    result = tg.trace(f)
    np.testing.assert_array_equal(result(x, y), f(x, y))
    assert sorted(node.name for node in result.explain(x, y).optimized.nodes) == sorted(ops)


def test_what_is_put_beside_complex_numbers_may_have_parts_that_differ() -> None:
    def padded(x: Any) -> Any:
        return np.pad(x, 1, constant_values=3 + 3j), np.pad(x, 1, constant_values=2.5)

    for got, want in zip(tg.trace(padded)(A), padded(A)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [*range(9, 30), 64, 67])
def test_lanes_hold_pairs_in_any_order(n: int, dtype: str) -> None:
    """Each pair is written where it was read, or its parts where these belong."""
    x, y = numbers(n).astype(dtype), numbers(n).astype(dtype)

    def f(x: Any, y: Any) -> Any:
        return x + y, (x + y[0]).conj(), x.real - y.imag, x + y.real, np.where(np.arange(n) > 5, x, y)

    for got, want in zip(tg.trace(f)(x, y), f(x, y)):
        np.testing.assert_array_equal(got, want)
    for k in range(5):
        np.testing.assert_array_equal(tg.trace(lambda x, y, k=k: f(x, y)[k])(x, y), f(x, y)[k])
