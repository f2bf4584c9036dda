"""Slopes of SciPy's special functions: of inverses in their parameters, and of functions of mathematical physics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from along import differences, weighted

import tracegrad as tg
from tracegrad.errors import UnsupportedError

X, U = [0.6, 1.3], [0.35, 0.62]


def mixed(values: Any) -> Any:
    """A sum of the results of a function that has several."""
    return sum((k + 1.0) * value for k, value in enumerate(values))


ONE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "bdtr": (lambda x: sp.bdtr(3.0, 9, x) - 2.0 * sp.bdtrc(2.0, 8, x), U),
    "bdtri": (lambda x: sp.bdtri(3.0, 9, x), U),
    "bdtrik": (lambda x: sp.bdtrik(x, 9.3, 0.3) + sp.bdtrik(0.4, 9.0 + x, x), U),
    "bdtrin": (lambda x: sp.bdtrin(2.5, x, 0.3) + sp.bdtrin(2.0 + x, 0.4, x), U),
    "nbdtr": (lambda x: sp.nbdtr(3, 5, x) - 2.0 * sp.nbdtrc(2, 5, x), U),
    "nbdtri": (lambda x: sp.nbdtri(3, 5, x), U),
    "nbdtrik": (lambda x: sp.nbdtrik(x, 5.3, 0.3) + sp.nbdtrik(0.4, 4.0 + x, x), U),
    "nbdtrin": (lambda x: sp.nbdtrin(4.5, x, 0.3) + sp.nbdtrin(4.0 + x, 0.4, x), U),
    "pdtri": (lambda x: sp.pdtri(3, x), U),
    "pdtrik": (lambda x: sp.pdtrik(x, 3.0) + sp.pdtrik(0.4, 3.0 + x), U),
    "btdtria": (lambda x: sp.btdtria(x, 2.0, 0.3) + sp.btdtria(0.4, 1.5 + x, x), U),
    "btdtrib": (lambda x: sp.btdtrib(2.0, x, 0.3) + sp.btdtrib(1.5 + x, 0.4, 0.3), U),
    "gdtria": (lambda x: sp.gdtria(x, 1.7, 2.5) + sp.gdtria(0.4, 1.0 + x, 2.0 + x), U),
    "gdtrib": (lambda x: sp.gdtrib(1.7, x, 2.5) + sp.gdtrib(1.0 + x, 0.4, 2.0 + x), U),
    "gdtrix": (lambda x: sp.gdtrix(1.0 + x, 2.0 + x, x), U),
    "chdtri": (lambda x: sp.chdtri(2.5, x) + sp.chdtri(2.0 + x, 0.4), U),
    "chdtriv": (lambda x: sp.chdtriv(0.4, 2.0 + x), U),
    "fdtri": (lambda x: sp.fdtri(3.0 + x, 4.0 - x, x), U),
    "fdtridfd": (lambda x: sp.fdtridfd(3.0 + x, 0.4, 1.2 + x), U),
    "stdtridf": (lambda x: sp.stdtridf(0.8, 1.0 + 0.1 * x), U),
    "nrdtrimn": (lambda x: sp.nrdtrimn(x, 1.0 + x, 0.3 * x), U),
    "nrdtrisd": (lambda x: sp.nrdtrisd(x, 0.8, 1.0 + 2.0 * x), U),
    "it2j0y0": (lambda x: mixed(sp.it2j0y0(x)), X),
    "it2i0k0": (lambda x: mixed(sp.it2i0k0(x)), X),
    "itj0y0": (lambda x: mixed(sp.itj0y0(x)), X),
    "iti0k0": (lambda x: mixed(sp.iti0k0(x)), X),
    "itstruve0": (sp.itstruve0, X),
    "itmodstruve0": (sp.itmodstruve0, X),
    "it2struve0": (sp.it2struve0, X),
    "jve": (lambda x: sp.jve(1.5, x) + sp.yve(0.5, x), X),
    **{name: (getattr(sp, name), X) for name in ("ber", "berp", "bei", "beip", "ker", "kerp", "kei", "keip")},
    "airye": (lambda x: mixed(sp.airye(x)), X),
    "cotdg": (sp.cotdg, [20.0, 65.0]),
    "elliprf": (lambda x: sp.elliprf(x, 1.0 + x, 2.0 - x), X),
    "elliprc": (lambda x: sp.elliprc(x, 1.5 + 2.0 * x), X),
    "lpmv": (lambda x: sp.lpmv(1, 2.5, x), U),
    "pbdv": (lambda x: mixed(sp.pbdv(1.5, x)), X),
    "pbvv": (lambda x: mixed(sp.pbvv(1.5, x)), X),
    "pbwa": (lambda x: mixed(sp.pbwa(0.8, x)), X),
    "mathieu_cem": (lambda x: mixed(sp.mathieu_cem(2, 1.5, x)), [12.0, 26.0]),
    "mathieu_sem": (lambda x: mixed(sp.mathieu_sem(2, 1.5, x)), [12.0, 26.0]),
    "mathieu_modcem1": (lambda x: mixed(sp.mathieu_modcem1(2, 1.5, x)), U),
    "mathieu_modcem2": (lambda x: mixed(sp.mathieu_modcem2(2, 1.5, x)), U),
    "mathieu_modsem1": (lambda x: mixed(sp.mathieu_modsem1(2, 1.5, x)), U),
    "mathieu_modsem2": (lambda x: mixed(sp.mathieu_modsem2(2, 1.5, x)), U),
    "log_wright_bessel": (lambda x: sp.log_wright_bessel(1.5, 0.7, x), X),
    "eval_chebyc": (lambda x: sp.eval_chebyc(4, x), X),
    "eval_chebys": (lambda x: sp.eval_chebys(4, x), X),
    "eval_sh_chebyt": (lambda x: sp.eval_sh_chebyt(4, x), U),
    "eval_sh_chebyu": (lambda x: sp.eval_sh_chebyu(4, x), U),
    "eval_sh_legendre": (lambda x: sp.eval_sh_legendre(4, x), U),
    "eval_sh_jacobi": (lambda x: sp.eval_sh_jacobi(3, 2.5, 1.5, x), U),
}

ONCE = {"elliprf", "elliprc"}
# SciPy's own answers have some ten digits only.
ROUGH = {"stdtridf": 1e-4, "fdtridfd": 1e-6}


@pytest.mark.parametrize("name", ONE)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f, at = ONE[name]
    x, v, rtol = np.asarray(at), np.array([0.7, -0.4]), ROUGH.get(name, 1e-7)
    np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-14, atol=1e-15)
    of = weighted(f, name)
    derivative = tg.grad(of)
    assert derivative(x) @ v == pytest.approx(differences(of, x, v, 1e-3), rel=rtol, abs=rtol)
    assert tg.jvp(of, (x,), (v,))[1] == pytest.approx(derivative(x) @ v, rel=1e-12)
    if name not in ONCE:
        want = differences(lambda x: derivative(x) @ v, x, v, 1e-3)
        assert v @ tg.hessian(of)(x) @ v == pytest.approx(want, rel=10 * rtol, abs=10 * rtol)


@pytest.mark.parametrize("name", ["bdtrik", "fdtri", "it2j0y0", "mathieu_cem"])
def test_compiled_and_interpreted_derivatives_are_the_same(name: str) -> None:
    f, at = ONE[name]
    derivative = tg.grad(weighted(f, name))
    compiled = derivative(np.asarray(at))
    with tg.disable_jit():
        np.testing.assert_allclose(derivative(np.asarray(at)), compiled, rtol=1e-13)


def test_derivatives_beyond_the_last_count_and_at_zero() -> None:
    x = np.array([0.0, 0.5])
    np.testing.assert_array_equal(tg.grad(lambda p: np.sum(sp.bdtr(9.0, 9, p)))(x), 0.0)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(sp.beip(x)))(x)[0], 0.5, rtol=1e-15)
    assert tg.grad(lambda x: sp.it2struve0(x))(1e-9) == pytest.approx(-2.0 / np.pi, rel=1e-9)


def test_arguments_that_count_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"scipy\.special\.bdtr has no derivative .* argument 0"):
        tg.grad(lambda k: np.sum(sp.bdtr(k, 9, 0.3)))(np.array([2.0]))
