"""The documentation site: its build gives no warning, each document is a page, and no page fetches anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

DOCS = ROOT / "docs"

# The functions that the page `functions.md` has here; a row of each function of the registries would take minutes.
FUNCTIONS = ["np.linalg.cholesky", "np.linalg.inv", "np.sort"]

pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. `strict`: a link or an anchor that leads nowhere fails, as does a page that the
    navigation does not have, or a name in the reference that the package does not."""
    folder = tmp_path_factory.mktemp("site")
    # No proxy answers: a plugin that asked the network would fail.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1", "DOCS_FUNCTIONS": " ".join(FUNCTIONS)}
        | nowhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def html(site: Path) -> dict[str, str]:
    return {p.relative_to(site).as_posix(): p.read_text(encoding="utf-8") for p in site.rglob("*.html")}


def test_each_document_is_a_page(site: Path) -> None:
    wanted = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    outside = {
        "architecture.html",
        "contributing.html",
        "changelog.html",
        "results.html",
        "examples.html",
        "functions.html",
    }
    assert set(html(site)) - {"404.html"} == wanted | outside


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
    assert {name: result for name, text in html(site).items() if (result := re.findall(fetched, text))} == {}
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert [result for text in styles for result in re.findall(r"url\(\s*[\"']?https?:[^)]*|@import[^;]*", text)] == []


def test_the_reference_has_docstrings_and_their_examples_are_code(site: Path) -> None:
    page = html(site)["reference/transforms.html"]
    text = re.sub(r"<[^>]+>", "", page)
    assert "The gradient has the structure, shapes and dtypes of the argument argnums" in " ".join(text.split())
    assert "&gt;&gt;&gt; value, gradient = value_and_grad" in text
    assert "<blockquote>" not in page  # what Markdown makes of `>>>`


def test_the_tables_have_a_row_for_each_function(site: Path) -> None:
    import tracegrad as tg

    pages = html(site)
    listed = set(re.findall(r"<td><code>(\w+)\(", pages["reference/tensors.html"]))
    functions = {name: getattr(tg.linalg, name) for name in tg.linalg.__all__}
    assert listed >= {name for name, x in functions.items() if callable(x) and not isinstance(x, type)}
    assert re.findall(r"<td>(np[.\w]+)</td>", pages["functions.html"]) == sorted(FUNCTIONS, key="np.sort".__ne__)
    assert 'id="nplinalg"' in pages["functions.html"]


def test_the_search_finds_pages_and_functions(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "coming_from/jax.html" in index
    assert "tg.value_and_grad" in index
    assert "np.linalg.cholesky" in index
