"""Fields and derivatives of `ceviche`: sparse systems as primitives, in both modes, and steps of FDTD."""

from __future__ import annotations

from typing import Any

import autograd.numpy as npa
import ceviche
import ceviche.primitives
import numpy as np
import pytest
from autograd import grad

OMEGA, DL, NPML = 2 * np.pi * 200e12, 5e-8, (10, 10)
SIZE = (40, 36)


def intensity(kind: str) -> Any:
    """The intensity of the field at a probe, of the permittivity in a box."""
    source = np.zeros(SIZE, complex)
    source[15, 18] = 1.0
    probe = np.zeros(SIZE)
    probe[28, 14:22] = 1.0
    box = np.zeros(SIZE)
    box[18:24, 14:22] = 1.0

    def f(eps: Any) -> Any:
        simulation = getattr(ceviche, f"fdfd_{kind}")(OMEGA, DL, 1.0 + box * npa.reshape(eps, ()), NPML)
        field = simulation.solve(source)[2]
        return npa.sum(npa.abs(field * probe) ** 2) * 1e-4

    return f


@pytest.mark.parametrize("kind", ["ez", "hz"])
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_intensities_have_the_derivatives_of_differences(kind: str, mode: str) -> None:
    f = intensity(kind)
    exact = ceviche.jacobian(f, mode=mode)(np.array([2.0]))
    numeric = ceviche.jacobian(f, mode="numerical")(np.array([2.0]))
    np.testing.assert_allclose(exact, numeric, rtol=1e-3)


def test_a_gradient_descent_on_the_permittivity() -> None:
    f, eps = intensity("ez"), np.array([2.0])
    before = f(eps)
    for _ in range(3):
        gradient = grad(f)(eps)
        eps = eps + 0.01 * gradient / np.abs(gradient)
    assert f(eps) > before


def entries(n: int = 20) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    indices = np.array([np.tile(np.arange(n), 3), rng.integers(0, n, 3 * n)])
    indices = np.concatenate([indices, [np.arange(n), np.arange(n)]], axis=1)
    values = rng.normal(size=indices.shape[1]) + 1j * rng.normal(size=indices.shape[1])
    values[-n:] += 8.0
    return values, indices, rng.normal(size=n) + 1j * rng.normal(size=n)


@pytest.mark.parametrize("name", ["sp_mult", "sp_solve"])
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_sparse_primitives_of_real_scales(name: str, mode: str) -> None:
    values, indices, b = entries()
    primitive = getattr(ceviche.primitives, name)

    def f(scale: Any) -> Any:
        return npa.sum(npa.abs(primitive(values * scale[0], indices, b * scale[1])) ** 2)

    exact = ceviche.jacobian(f, mode=mode)(np.array([1.5, 0.5]))
    assert exact == pytest.approx(ceviche.jacobian(f, mode="numerical")(np.array([1.5, 0.5])), rel=1e-4)


def test_steps_in_time_have_derivatives() -> None:
    shape = (20, 20, 1)

    def f(eps: Any) -> Any:
        box = np.zeros(shape)
        box[8:12, 8:12] = 1.0
        simulation = ceviche.fdtd(1.0 + box * eps, dL=5e-8, npml=[5, 5, 0])
        source = np.zeros(shape)
        source[6, 10] = 1.0
        total = 0.0
        for t in range(15):
            fields = simulation.forward(Jz=source * np.exp(-(((t - 6) / 3) ** 2)))
            total = total + npa.sum(npa.abs(fields["Ez"][14]) ** 2)
        return total * 1e20

    x = 2.0
    numeric = (f(x + 1e-4) - f(x - 1e-4)) / 2e-4
    assert grad(f)(x) == pytest.approx(numeric, rel=1e-4)
