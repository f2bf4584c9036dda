"""`tg.scipy.LossPlot`: the losses of a solver's iterations, and their picture, in a notebook while it runs."""

from __future__ import annotations

import sys
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from tracegrad.scipy import LossPlot, least_squares, loss_plot, minimize

START = {"a": np.array([-1.2, 1.0]), "b": 0.5}
NAME = "{http://www.w3.org/2000/svg}"


def cost(p: Any) -> Any:
    return 100.0 * (p["a"][1] - p["a"][0] ** 2) ** 2 + (1.0 - p["a"][0]) ** 2 + p["b"] ** 2


def picture(plot: LossPlot) -> Any:
    return ElementTree.fromstring(plot._repr_svg_())


@pytest.mark.parametrize(
    "method", ["BFGS", "L-BFGS-B", "CG", "Newton-CG", "TNC", "Nelder-Mead", "SLSQP", "trust-constr", "COBYQA"]
)
def test_each_method_gives_the_losses_of_its_iterations(method: str) -> None:
    plot = LossPlot()
    result = minimize(cost, START, method=method, callback=plot)
    assert len(plot.losses) > 3
    assert plot.losses[-1] < 0.5 * plot.losses[0]
    if method in ("BFGS", "L-BFGS-B", "CG", "TNC", "SLSQP"):
        assert plot.losses[-1] == pytest.approx(result.fun, rel=1e-12)


def test_scipys_own_solvers_take_it_too() -> None:
    plot = LossPlot()
    result = optimize.minimize(optimize.rosen, [-1.0, 2.0], method="BFGS", callback=plot)
    assert len(plot.losses) == result.nit
    fit = LossPlot()
    least_squares(lambda x: x**3 - np.array([1.0, 8.0]), np.array([3.0, 3.0]), callback=fit)
    assert fit.losses[-1] < 1e-12 < fit.losses[0]


def test_an_axis_of_logarithms_is_for_positive_losses_that_differ_much() -> None:
    for losses, labels in [([1e3, 10.0, 1e-2], ["1000", "1", "0.01"]), ([3.0, 2.0, 2.5], ["2", "2.4", "3"])]:
        plot = LossPlot()
        plot.losses += losses
        texts = [x.text for x in picture(plot).iter(f"{NAME}text")]
        assert set(labels) <= set(texts)


@pytest.mark.parametrize(
    "losses",
    [[], [1.0], [0.0, 0.0], [-1.0, -1e9], [np.nan, np.inf, 2.0], [*np.geomspace(1e-300, 1e300, 5000)], [1e-320, 1.0]],
)
def test_every_list_of_losses_is_drawn_within_the_picture(losses: list[float]) -> None:
    plot = LossPlot("a < b & c")
    plot.losses += losses
    root = picture(plot)
    lines = list(root.iter(f"{NAME}polyline"))
    assert len(lines) == (np.isfinite(losses).sum() > 1)
    for line in lines:
        points = np.array([point.split(",") for point in line.get("points", "").split()], float)
        assert len(points) <= loss_plot.MAX_POINTS
        assert points.min() >= 0
        assert points[:, 0].max() <= loss_plot.WIDTH
        assert points[:, 1].max() <= loss_plot.HEIGHT
    assert "a < b & c" in [x.text for x in root.iter(f"{NAME}text")]


class _Display:
    def __init__(self) -> None:
        self.shown: list[int] = []

    def display(self, plot: LossPlot, display_id: bool) -> _Display:
        assert display_id
        self.update(plot)
        return self

    def update(self, plot: LossPlot) -> None:
        self.shown.append(len(plot.losses))


def test_a_notebook_sees_the_first_iteration_and_at_the_end_all(monkeypatch: pytest.MonkeyPatch) -> None:
    display = _Display()
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    plot = LossPlot()
    minimize(cost, START, method="BFGS", callback=plot)
    assert display.shown[0] == 1
    assert display.shown[-1] == len(plot.losses)
    assert len(display.shown) < len(plot.losses)
    shell.get_ipython = lambda: object()  # a terminal
    display.shown.clear()
    minimize(cost, START, method="BFGS", callback=LossPlot())
    assert display.shown == []


def test_it_is_saved_as_an_svg_and_says_what_it_has(tmp_path: Path) -> None:
    plot = LossPlot("fit")
    assert repr(plot) == "LossPlot('fit', 0 iterations)"
    minimize(cost, START, method="BFGS", callback=plot)
    plot.save(tmp_path / "loss.svg")
    assert (tmp_path / "loss.svg").read_text() == plot._repr_svg_()
    with pytest.raises(ValueError, match=r"loss\.svg"):
        plot.save(tmp_path / "loss.png")
    with pytest.raises(TypeError, match="results that have `fun`"):
        plot(np.ones(2))
