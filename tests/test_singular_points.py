"""Each row of `docs/singular_points.md`: compiled, eager and under `disable_jit`, in both modes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

PAGE = Path(__file__).parents[1] / "docs" / "singular_points.md"
ROWS = re.findall(r"^\| `(.+?)` \| (\S+) \| (\S+) \|$", PAGE.read_text(encoding="utf-8"), re.M)


def test_the_page_has_its_rows() -> None:
    assert len(ROWS) >= 30


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("text", "at", "slope"), ROWS)
def test_the_slope_is_that_of_the_page(text: str, at: str, slope: str) -> None:
    fun = eval(f"lambda x: {text}", {"np": np})
    x = np.array(float(at))

    def on_the_tape() -> Any:
        t = tg.tensor(x, requires_grad=True)
        value = fun(t)
        if value.requires_grad:
            value.backward()
        return 0.0 if t.grad is None else t.grad.item()

    compiled = tg.grad(fun)
    found = [compiled(x), compiled(x), on_the_tape(), tg.jvp(fun, (x,), (np.array(1.0),))[1]]
    with tg.disable_jit():
        found.append(tg.grad(fun)(x))
    np.testing.assert_array_equal([float(f) for f in found], [float(slope)] * 5)


@pytest.mark.parametrize("function", [np.logaddexp, np.logaddexp2])
def test_log_sums_are_smooth_where_their_arguments_are_equal(function: Any) -> None:
    base = np.log(2.0) if function is np.logaddexp2 else 1.0
    second = 0.25 * base * np.array([[1.0, -1.0], [-1.0, 1.0]])
    at = np.array([0.5, 0.5])
    hessian = tg.hessian(lambda v: function(v[0], v[1]))
    for _ in range(2):
        np.testing.assert_allclose(hessian(at), second, rtol=1e-12)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.hessian(lambda v: function(v[0], v[1]))(at), second, rtol=1e-12)
    beside_a_number = tg.jvp(tg.grad(lambda v: np.sum(function(v, 0.5))), (at,), (np.ones(2),))[1]
    np.testing.assert_allclose(beside_a_number, 0.25 * base, rtol=1e-12)
