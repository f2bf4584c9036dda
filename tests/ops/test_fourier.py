"""Fourier transforms of NumPy and SciPy: their own values, and that a pullback is the transposed transform."""

from __future__ import annotations

import contextlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.fft
from along import differences

import tracegrad as tg
from tracegrad.errors import UnsupportedError
from tracegrad.ops.signal import fft
from tracegrad.scipy_api.registry import shadow_of

RNG = np.random.default_rng(5)
REAL = RNG.uniform(-1, 1, (3, 4, 5))
COMPLEX = REAL + 1j * RNG.uniform(-1, 1, (3, 4, 5))

# Arguments of transforms along one axis, and along several.
ONE = ["", "norm='ortho'", "norm='forward'", "axis=1", "4", "n=7, axis=0", "n=3, norm='ortho', axis=1", "8, -2"]
SEVERAL = ["", "norm='ortho'", "axes=(0, 2)", "s=(2, 7), axes=(0, 1), norm='forward'", "s=(4, 5), axes=(2, 1)"]
LINES, PLANES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"], ["fft", "ifft", "rfft", "irfft"]
NUMPYS = [
    f"np.fft.{name}{ending}(x{', ' * bool(args)}{args})"
    for names, ending, every in ((LINES, "", ONE), (PLANES, "n", SEVERAL), (PLANES, "2", SEVERAL[:3]))
    for name in names
    for args in every
]
SCIPYS = [
    f"scipy.fft.{name}{ending}(x{args})"
    for ending, args in (
        ("", ", 6, axis=0"),
        ("", ", norm='ortho'"),
        ("2", ""),
        ("n", ", axes=(2, 0)"),
        ("n", ", s=(3, 6), norm='forward'"),
    )
    for name in LINES
]
SHIFTS = ["np.fft.fftshift(x)", "np.fft.ifftshift(x, 2)", "np.fft.fftshift(x, (0, -1))", "scipy.fft.ifftshift(x)"]
# SciPy's functions do not dispatch; in traced code they are these.
SHADOWED = {name: shadow_of(getattr(scipy.fft, name)) or getattr(scipy.fft, name) for name in scipy.fft.__all__}
NAMES = {"np": np, "scipy": SimpleNamespace(fft=SimpleNamespace(**SHADOWED))}


def inner(x: Any, y: Any) -> float:
    """The inner product of arrays as vectors of their real and imaginary parts."""
    return float(np.vdot(x, y).real)


def like(x: Any) -> Any:
    rng = np.random.default_rng(x.size)
    out = rng.uniform(-1, 1, x.shape)
    return np.asarray(out + 1j * rng.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else out, x.dtype)


def operands(call: str) -> list[Any]:
    of_reals = any(f".{name}" in call for name in ("rfft", "ihfft"))
    return [REAL] if of_reals else [COMPLEX, REAL]


def check(f: Any, x: Any) -> None:
    """Values and cotangents of a linear function, on the tape."""
    want = f(x)
    t = tg.tensor(x, requires_grad=True)
    y = f(t)
    assert (y.shape, y.dtype) == (want.shape, want.dtype)
    tolerance = 1e-6 if want.dtype.itemsize == (8 if want.dtype.kind == "c" else 4) else 1e-13
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=tolerance, atol=tolerance)
    ct = like(want)
    (pulled,) = tg.autograd.grad(y, [t], [tg.tensor(ct)])
    assert (pulled.shape, pulled.dtype) == (x.shape, x.dtype)
    direction = like(x)
    assert inner(pulled.numpy(), direction) == pytest.approx(inner(ct, f(direction)), rel=100 * tolerance)


@pytest.mark.parametrize("call", NUMPYS + SCIPYS + SHIFTS)
def test_a_transform_has_the_values_of_numpy_and_scipy_and_its_pullback_is_the_transpose(call: str) -> None:
    def f(x: Any) -> Any:
        return eval(call, NAMES, {"x": x})

    for x in operands(call):
        check(f, x)
    single = operands(call)[0]
    check(f, single.astype(np.float32 if single.dtype.kind == "f" else np.complex64))
    whole = np.arange(60).reshape(3, 4, 5)
    np.testing.assert_allclose(f(tg.tensor(whole)).numpy(), f(whole), rtol=1e-13, atol=1e-12)


# -- derivatives of what is not linear ---------------------------------------------------------------------------
V = RNG.uniform(-1, 1, 6)
LOSSES = {
    "power spectrum": lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 3),
    "magnitudes": lambda x: np.sum(np.abs(np.fft.fft(x, 9)) ** 3),
    "filter": lambda x: np.sum(np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(x**2), 6) ** 3),
    "autocorrelation": lambda x: np.sum(np.fft.ifft(np.fft.fft(x, 12) * np.conj(np.fft.fft(x, 12))).real ** 2),
    "phases": lambda x: np.sum(np.angle(np.fft.ihfft(x + 2.0)[1:]) ** 2),
    "of complex powers": lambda x: np.sum(np.abs(np.fft.hfft(np.exp(1j * x)))),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_of_both_orders_are_those_of_differences_and_both_modes_agree(name: str, jit: bool) -> None:
    f = LOSSES[name]
    t = np.cos(np.arange(6.0))
    with contextlib.nullcontext() if jit else tg.disable_jit():
        derivative = tg.grad(f)
        assert derivative(V) @ t == pytest.approx(differences(f, V, t), rel=1e-7)
        assert float(tg.jvp(f, (V,), (t,))[1]) == pytest.approx(derivative(V) @ t, rel=1e-12)
        want = [differences(lambda x: derivative(x)[k], V, t) for k in range(6)]  # noqa: B023
        np.testing.assert_allclose(tg.jvp(derivative, (V,), (t,))[1], want, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(tg.hessian(f)(V) @ t, want, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(tg.vmap(derivative)(np.stack([V, t])), [derivative(V), derivative(t)], rtol=1e-12)


CALLED = [
    "np.fft.fft(x)",
    "np.fft.irfft(x, 7)",
    "scipy.fft.hfft2(x)",
    "scipy.fft.fftn(x, (2, 3))",
    "np.fft.fftshift(np.fft.ifft2(x))",
]


@pytest.mark.parametrize("call", CALLED)
def test_compiled_transforms_are_those_of_numpy_and_scipy(call: str) -> None:
    f = eval(f"lambda x: {call}", {"np": np, "scipy": scipy})
    traced = tg.trace(f)
    derivative = tg.grad(lambda x: np.sum(np.abs(f(x)) ** 2))
    with tg.disable_jit():
        want = tg.grad(lambda x: np.sum(np.abs(eval(call, NAMES, {"x": x})) ** 2))(COMPLEX)
    for _ in range(2):  # replayed, and compiled
        np.testing.assert_allclose(traced(COMPLEX), f(COMPLEX), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(derivative(COMPLEX), want, rtol=1e-12, atol=1e-12)


def test_a_gradient_of_complex_numbers_is_pytorchs() -> None:
    z = tg.tensor(COMPLEX[0, 0], requires_grad=True)
    (result,) = tg.autograd.grad(np.sum(np.abs(np.fft.fft(z)) ** 2), [z])
    # d/dx + i d/dy of n * sum(abs(z)**2), by Parseval.
    np.testing.assert_allclose(result.numpy(), 2 * 5 * COMPLEX[0, 0], rtol=1e-13)


# -- what is refused -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("np.fft.fft(x, norm='other')", ValueError, "Invalid norm value other"),
        ("np.fft.fft(x, 0)", ValueError, r"Invalid number of FFT data points \(0\)"),
        ("np.fft.irfft(x[..., :1])", ValueError, r"Invalid number of FFT data points \(0\)"),
        ("np.fft.fft(x, axis=3)", IndexError, "axis 3 is out of bounds"),
        ("np.fft.fftn(x, (2, 3), (1,))", ValueError, "Shape and axes have different lengths"),
        ("np.fft.rfft(x + 1j)", TypeError, "rfft"),
        ("scipy.fft.rfft(x + 1j)", TypeError, "x must be a real sequence"),
        ("scipy.fft.fftn(x, axes=(1, 1))", ValueError, "axes must be unique"),
        ("scipy.fft.fht(x, 0.1, 0.0)", UnsupportedError, r"scipy\.fft\.fht is not supported"),
    ],
)
def test_what_cannot_be_transformed_says_why(call: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        eval(call, NAMES, {"x": tg.tensor(REAL)})


def test_large_transforms_are_scipys_and_have_the_values_of_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft, "LARGE", 8)
    x = np.random.default_rng(0).standard_normal((9, 10))
    for of in (np.fft.fft, np.fft.ifft, np.fft.fft2, partial(np.fft.fft, axis=0, norm="ortho")):
        for args in (x, x - 2j * x[::-1]):
            with tg.settings.override(first_call="compile"):
                np.testing.assert_allclose(tg.trace(of)(args), of(args), rtol=1e-13, atol=1e-14)


def test_out_is_written_as_by_numpy() -> None:
    x, out = np.random.default_rng(3).normal(size=(3, 4)), np.zeros((3, 4), complex)
    result = tg.trace(lambda x: np.fft.fft(x, out=out))(x)
    np.testing.assert_allclose(result, np.fft.fft(x), rtol=1e-13)
    np.testing.assert_array_equal(out, result)
