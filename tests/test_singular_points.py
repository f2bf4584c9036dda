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
    assert [float(f) for f in found] == [float(slope)] * 5
