"""Values and derivatives have their digits over the whole range: those of `python -m benchmarks accuracy`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from scipy import optimize, special

from benchmarks import __main__ as command
from benchmarks.accuracy import FUNCTIONS, Error, compiled, eager, errors, errors_at, points

pytestmark = pytest.mark.usefixtures("optimized")

FOUR = (
    *("x ** 2.5", "erf", "erfc", "gelu", "gelu, tanh", "silu", "sinc", "logaddexp(x, 3)"),
    *("log_ndtr", "gammaln", "gammaln, x < 0", "digamma", "digamma, x < 0"),  # SciPy's on a part of the range
)


@pytest.mark.parametrize("way", [compiled, eager])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_have_their_digits(name: str, dtype: str, way: object) -> None:
    value, derivative = errors(name, dtype, way, count=40)
    assert value.ulps <= (4 if name in FOUR else 2), value
    assert derivative.ulps <= 16, derivative


@pytest.mark.parametrize("way", [compiled, eager])
@pytest.mark.parametrize(
    ("dtype", "least", "tails"),
    [
        ("float64", -760, {"silu": -700, "gelu": -37, "gelu, tanh": -20.5}),
        ("float32", -112, {"silu": -80, "gelu": -12.5, "gelu, tanh": -9.7}),
    ],
)
def test_tails_have_their_digits_where_their_exponential_is_denormal(
    dtype: str, least: float, tails: dict[str, float], way: object
) -> None:
    for name, start in tails.items():
        ends = {"silu": least, "gelu": -math.sqrt(-2 * least), "gelu, tanh": -math.cbrt(-15 * least)}
        end = ends[name]
        value, derivative = errors_at(name, np.linspace(end, start, 150, dtype=dtype), way)
        assert value.ulps <= 4, (name, value)
        assert derivative.ulps <= 4, (name, derivative)


@pytest.mark.parametrize("way", [compiled, eager])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_derivative_of_sinc_has_its_digits_at_its_roots(dtype: str, way: object) -> None:
    number, x = np.dtype(dtype).type, []
    for n in (1, 2, 3, 17, 1000, 100_003):
        root = mp.findroot(lambda x: mp.cospi(x) - mp.sincpi(x), n + 0.5 - 0.1 / n)
        nearest = number(float(root))
        x += [nearest, np.nextafter(nearest, number(0)), np.nextafter(nearest, number(np.inf))]
        x += [number(float(root + sign * mp.mpf(2) ** -k)) for k in range(2, 50) for sign in (-1, 1)]
    x = np.array(x, dtype)
    assert errors_at("sinc", np.concatenate([x, -x]), way)[1].ulps <= 16


def test_between_negative_whole_numbers_digamma_has_its_digits_at_its_roots() -> None:
    x = []
    for n in (*range(12), 1000, 10**5):
        near = mp.mpf(optimize.brentq(special.digamma, -n - 1 + 1e-9, -n - 1e-9))
        root = float(mp.findroot(mp.digamma, (near, near + mp.mpf("1e-9")), tol=1e-25))
        x += [root, np.nextafter(root, 0), np.nextafter(root, -n - 1), root + 1e-6, root - 1e-3]
    assert errors_at("digamma", np.array(x), compiled)[0].ulps <= 4
    assert errors_at("gammaln", np.array(x), compiled)[1].ulps <= 16


def test_an_error_that_is_there_is_found() -> None:
    def careless(function: object, x: object) -> tuple[object, object]:
        value = np.tanh(x)
        return value, 1 - value**2

    value, derivative = errors("tanh", "float64", careless, count=40)
    assert value.ulps <= 2
    assert derivative.ulps > 1e15


def test_points_reach_every_magnitude_of_the_domain() -> None:
    x = points(FUNCTIONS["log"], "float64", 400)
    assert x.min() < 1e-290
    assert x.max() > 1e290
    assert (x > 0).all()


def test_the_command_writes_the_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import accuracy

    monkeypatch.setattr(accuracy, "FUNCTIONS", {"exp": FUNCTIONS["exp"]})
    assert command.main(["accuracy", "--quick"]) == 0
    assert "| `exp` | " in capsys.readouterr().out
    assert str(Error(math.inf, 1.0)) == "**inf** at 1"
