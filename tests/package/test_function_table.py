"""`docs/functions.md`, the table of functions: every function has a row, and rows are what trying the calls gives."""

from __future__ import annotations

import importlib
import re
import sys

import pytest
from paths import ROOT

DOCS = ROOT / "docs"

sys.path.insert(0, str(DOCS))
make_functions = importlib.import_module("make_functions")

LINES = [line for line in make_functions.PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \w+\.", line)]
ROWS = {line.split(" | ")[0].removeprefix("| "): line for line in LINES}


def test_every_function_of_the_registries_has_a_row() -> None:
    assert list(ROWS) == make_functions.names()
    assert f"the {len(ROWS)} functions" in make_functions.PAGE.read_text(encoding="utf-8")


TRIED = """
np.absolute np.add.reduce np.argmax np.floor np.matmul np.sort np.unique np.where np.zeros np.linalg.cholesky
np.fft.rfft scipy.linalg.expm scipy.ndimage.zoom scipy.signal.lfilter scipy.special.gammainc
scipy.spatial.distance.cdist scipy.stats.norm.logpdf scipy.optimize.brentq scipy.sparse.csr_array scipy.integrate.quad
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRIED.split())
def test_a_row_is_what_trying_the_function_gives(name: str) -> None:
    assert make_functions.line(name, make_functions.row(name, make_functions.tables())) == ROWS[name]
