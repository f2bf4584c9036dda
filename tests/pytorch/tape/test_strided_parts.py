"""`view_as_complex` of parts that do not lie side by side: copied by backward passes, an error to who wants a view.

The stand-ins by which a trace asks NumPy for views have no memory, so each case runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import numpy as np, tracegrad as tg
x = np.arange(1.0, 11.0).reshape(2, 5) / 7
"""
CASES = {
    "the real part, transposed": """
def step(x):
    loss = ((x * (1 + 2j)).real.T @ tg.ones(2, 3)).pow(2).sum()
    loss.backward()
    return x.grad
""",
    "the imaginary part, backwards": """
def step(x):
    loss = ((x * (1 + 2j)).imag.flip(1).T @ tg.ones(2, 3)).pow(2).sum()
    loss.backward()
    return x.grad
""",
    "parts, transposed": """
def step(x):
    parts = tg.view_as_real(x * (1 + 2j))
    (parts.transpose(0, 2).transpose(1, 2) ** 2).sum().backward()
    return x.grad
""",
}
BOTH = """
eager = step(tg.tensor(x, requires_grad=True))
for _ in range(2):
    np.testing.assert_allclose(tg.trace(step)(tg.tensor(x, requires_grad=True)), eager, rtol=1e-12)
"""


def run(text: str) -> None:
    subprocess.run([sys.executable, "-c", HEAD + text], check=True, timeout=120)


@pytest.mark.parametrize("case", CASES)
def test_a_traced_backward_pass_through_strided_parts_is_the_eager_one(case: str) -> None:
    run(CASES[case] + BOTH)


def test_traced_parts_that_do_not_lie_side_by_side_are_refused_as_eager_ones() -> None:
    run("""
f = lambda x: tg.view_as_complex((x * 2).T)
for call in (f, tg.trace(f)):
    try:
        call(tg.tensor(x))
    except RuntimeError as error:
        assert "last dimension with stride 1" in str(error)
    else:
        raise AssertionError
g = tg.trace(lambda x: tg.view_as_complex(tg.stack([x[0], x[1]], -1)))
np.testing.assert_array_equal(g(tg.tensor(x)), x[0] + 1j * x[1])
""")
