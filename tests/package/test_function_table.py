"""The page `functions.md` of the site: every function of the registries has a row, and rows are what its calls give."""

from __future__ import annotations

import importlib
import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "docs"))
make_functions = importlib.import_module("make_functions")

# Rows as the page has them, with a hyphen for its dash.
ROWS = """
| np.absolute | `np.absolute(a)` | yes | fused | yes | yes | yes | yes |
| np.add.reduce | `np.add.reduce(a, where=m)` | yes | fused | yes | yes | yes | yes |
| np.argmax | `np.argmax(a)` | yes | fused | - | - | - | yes |
| np.floor | `np.floor(a)` | yes | fused | - | - | - | yes |
| np.matmul | `np.matmul(c, w)` | yes | fused | yes | yes | yes | yes |
| np.sort | `np.sort(a)` | yes | native | yes | yes | yes | yes |
| np.unique | `np.unique(a)` | yes | native | yes | yes | yes | - |
| np.where | `np.where(m, a, b)` | yes | fused | yes | yes | yes | yes |
| np.zeros | `np.zeros(3)` | - | fused | - | - | - | - |
| np.linalg.cholesky | `np.linalg.cholesky(w4 @ w4.mT)` | yes | native | yes | yes | yes | yes |
| np.fft.rfft | `np.fft.rfft(a)` | yes | called | yes | yes | yes | yes |
| scipy.linalg.expm | `test_scipy_linalg: expm` | no | called | yes | yes | yes | yes |
| scipy.ndimage.zoom | `test_scipy_images: zoom` | no | fused | yes | yes | yes | yes |
| scipy.signal.lfilter | `test_scipy_others: lfilter` | no | called | yes | yes | yes | yes |
| scipy.special.gammainc | `test_scipy_special: gammainc, shape` | yes | called | yes | yes | yes | yes |
| scipy.spatial.distance.cdist | `test_scipy_others: cdist, euclidean` | no | fused | yes | yes | yes | yes |
| scipy.stats.norm.logpdf | `scipy.stats.norm.logpdf(x)` | no | fused | yes | yes | yes | yes |
| scipy.optimize.brentq | `test_scipy_solvers: brentq` | no | called | yes | yes | yes | yes |
| scipy.sparse.csr_array | `scipy.sparse.csr_array(np.eye(4)) @ v` | no | called | yes | yes | yes | yes |
| scipy.integrate.quad | `test_scipy_solvers: quad` | no | called | yes | yes | yes | yes |
"""
EXPECTED = {row.split()[1]: row.replace("-", make_functions.NONE) for row in ROWS.strip().splitlines()}


def test_every_function_of_the_registries_is_known_once() -> None:
    names = make_functions.names()
    assert len(names) > 1195
    assert names == sorted(set(names))
    assert {make_functions.package(name) for name in names} > {"np", "np.linalg", "scipy.special", "scipy.stats"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_row_is_what_trying_the_function_gives(name: str) -> None:
    assert make_functions.lines([name]) == [EXPECTED[name]]


def test_the_page_has_a_table_for_each_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_functions, "all_lines", lambda wanted: [f"| {name} | a row |" for name in wanted])
    page = make_functions.page(["np.linalg.inv", "np.sin", "np.linalg.det"])
    assert "the 3 functions" in page
    tables = {part.split("\n")[0]: part.split("\n")[4:] for part in page.strip().split("\n\n## ")[1:]}
    assert tables == {
        "np": ["| np.sin | a row |"],
        "np.linalg": ["| np.linalg.inv | a row |", "| np.linalg.det | a row |"],
    }
