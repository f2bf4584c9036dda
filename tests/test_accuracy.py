"""Values and derivatives have their digits over the whole range: those of `python -m benchmarks accuracy`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp

from benchmarks import __main__ as command
from benchmarks.accuracy import FUNCTIONS, Error, compiled, eager, errors, errors_at, points

FOUR = (
    *("x ** 2.5", "erf", "erfc", "gelu", "silu", "sinc", "logaddexp(x, 3)"),
    *("log_ndtr", "gammaln", "digamma"),  # SciPy's on a part of the range
)


@pytest.mark.parametrize("way", [compiled, eager])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_have_their_digits(name: str, dtype: str, way: object) -> None:
    value, slope = errors(name, dtype, way, count=40)
    assert value.ulps <= (4 if name in FOUR else 2), value
    assert slope.ulps <= 16, slope


@pytest.mark.parametrize("way", [compiled, eager])
@pytest.mark.parametrize(
    ("dtype", "least", "tails"),
    [("float64", -760, {"silu": -700, "gelu": -37}), ("float32", -112, {"silu": -80, "gelu": -12.5})],
)
def test_tails_have_their_digits_where_their_exponential_is_denormal(
    dtype: str, least: float, tails: dict[str, float], way: object
) -> None:
    for name, start in tails.items():
        end = least if name == "silu" else -math.sqrt(-2 * least)
        value, slope = errors_at(name, np.linspace(end, start, 150, dtype=dtype), way)
        assert value.ulps <= 4, (name, value)
        assert slope.ulps <= 4, (name, slope)


@pytest.mark.parametrize("way", [compiled, eager])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_slope_of_sinc_has_its_digits_close_to_its_roots(dtype: str, way: object) -> None:
    roots = [float(mp.findroot(lambda x: mp.cospi(x) - mp.sincpi(x), n + 0.5 - 0.1 / n)) for n in (1, 2, 3, 17)]
    x = [sign * root + 2.0**-k for root in roots for k in range(2, 20) for sign in (-1, 1)]
    assert errors_at("sinc", np.array(x, dtype), way)[1].ulps <= 16


def test_an_error_that_is_there_is_found() -> None:
    def careless(function: object, x: object) -> tuple[object, object]:
        value = np.tanh(x)
        return value, 1 - value**2

    value, slope = errors("tanh", "float64", careless, count=40)
    assert value.ulps <= 2
    assert slope.ulps > 1e15


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
