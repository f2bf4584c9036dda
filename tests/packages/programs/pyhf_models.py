"""Likelihoods of `pyhf`, with its NumPy backend: models of histograms with all kinds of systematic uncertainties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyhf
import pytest
from gradients import gradient_by_differences, gradient_of


def sample(name: str, data: list[float], *modifiers: tuple[str, str, Any]) -> dict[str, Any]:
    return {"name": name, "data": data, "modifiers": [{"name": n, "type": t, "data": d} for n, t, d in modifiers]}


SIGNAL = sample("signal", [5.0, 10.0, 3.0], ("mu", "normfactor", None))
SHAPES = {"hi_data": [55.0, 48.0, 33.0], "lo_data": [45.0, 52.0, 27.0]}
BACKGROUNDS = {
    "scales": sample("background", [50.0, 50.0, 30.0], ("scale", "normsys", {"hi": 1.1, "lo": 0.9})),
    "histograms": sample("background", [50.0, 50.0, 30.0], ("tilt", "histosys", SHAPES)),
    "bins": sample("background", [50.0, 50.0, 30.0], ("bins", "shapesys", [5.0, 7.0, 3.0])),
    "statistics": sample("background", [50.0, 50.0, 30.0], ("statistics", "staterror", [2.0, 3.0, 1.0])),
    "luminosity": sample("background", [50.0, 50.0, 30.0], ("free", "shapefactor", None)),
    "all": sample(
        "background",
        [50.0, 50.0, 30.0],
        ("scale", "normsys", {"hi": 1.2, "lo": 0.7}),
        ("tilt", "histosys", SHAPES),
        ("bins", "shapesys", [5.0, 7.0, 3.0]),
    ),
}


def model_of(name: str, codes: tuple[str, str]) -> Any:
    channel = {"name": "one", "samples": [SIGNAL, BACKGROUNDS[name]]}
    settings = {"normsys": {"interpcode": codes[0]}, "histosys": {"interpcode": codes[1]}}
    return pyhf.Model({"channels": [channel]}, modifier_settings=settings, poi_name="mu")


@pytest.mark.parametrize("codes", [("code1", "code0"), ("code4", "code4p")])
@pytest.mark.parametrize("name", BACKGROUNDS)
def test_the_likelihood_has_the_gradient_of_differences(name: str, codes: tuple[str, str]) -> None:
    model = model_of(name, codes)
    data = np.array([52.0, 63.0, 30.0, *model.config.auxdata])

    def f(pars: Any) -> Any:
        return model.logpdf(pars, data)[0]

    start = np.array(model.config.suggested_init())
    for pars in (start + 0.1, start + np.linspace(-0.3, 0.4, len(start))):
        np.testing.assert_allclose(gradient_of(f)(pars), gradient_by_differences(f, pars), rtol=1e-5, atol=1e-6)


def test_expected_counts_have_derivatives() -> None:
    model = model_of("all", ("code4", "code4p"))
    start = np.array(model.config.suggested_init()) + 0.2

    def f(pars: Any) -> Any:
        return np.sum(model.expected_data(pars, include_auxdata=False) ** 2)

    np.testing.assert_allclose(gradient_of(f)(start), gradient_by_differences(f, start), rtol=1e-6)
