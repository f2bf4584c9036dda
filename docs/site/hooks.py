"""Pages of the site that are not files of this folder: documents of the repository's root, and tables of functions.

`functions.md` is generated when the site is built. All its functions take minutes to try, so the page is kept in
`build/functions` until a source changes. The environment variable DOCS_FUNCTIONS limits the page to a few functions.

Links in documents are written for readers of the repository. Here they become links to pages of the site. A link to a
file that is no page becomes plain text.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import pkgutil
import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import tracegrad

ROOT = Path(__file__).parent.parent.parent
# Documents outside of this folder, and their pages.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md",
    "examples/README.md": "examples.md",
    "README.md": "index.md",
}
SOURCES = {page: source for source, page in PAGES.items() if page != "index.md"}

KINDS: dict[str, Callable[[Any], bool]] = {"functions": inspect.isroutine, "classes": inspect.isclass}

_CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_SECTION = re.compile(r'^<!-- section "(.+)" of (\S+) -->$', re.MULTILINE)
_TABLE = re.compile(r"^<!-- (functions|classes) of ([\w.]+) -->$", re.MULTILINE)


def on_files(files: Files, *, config: Any) -> Files:
    for page, source in SOURCES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "functions.md", content=functions_page()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")
    text = at_home(markdown, source, here)
    text = _SECTION.sub(lambda found: at_home(section(found[2], found[1]), found[2], here), text)
    return _TABLE.sub(lambda found: table(found[2], KINDS[found[1]]), text)


def at_home(markdown: str, source: str, page: str) -> str:
    """Return the text of the file `source` with links for `page`."""
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda found: link(found, source, page), part) for part in parts[::2]]
    return "".join(parts)


def section(source: str, title: str) -> str:
    """Return the text of a document below a heading, up to the next heading of the same level."""
    text = (ROOT / source).read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0].strip()


def link(found: re.Match[str], source: str, page: str) -> str:
    """Return a link of the file `source` as a link in `page`."""
    path, hash_, anchor = found[2].partition("#")
    if not path or "://" in path:
        return found[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target not in PAGES and not target.startswith("docs/"):
        return found[1]
    there = PAGES.get(target, target.removeprefix("docs/"))
    return f"[{found[1]}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{hash_}{anchor})"


# -- the table of NumPy's and SciPy's functions ------------------------------------------------------------------------
def functions_page() -> str:
    """Return the page `functions.md`, from `build/functions` if it has been generated from the same sources."""
    wanted = os.environ.get("DOCS_FUNCTIONS", "").split()
    if wanted:
        with tempfile.TemporaryDirectory() as folder:
            return generated(Path(folder) / "functions.md", wanted)
    path = ROOT / "build" / "functions" / f"{digest()}.md"
    if path.exists():
        return path.read_text(encoding="utf-8")
    logging.getLogger("mkdocs").info("Trying all functions of NumPy and SciPy, which takes some minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob("*.md"):
        old.unlink()
    return generated(path, [])


def generated(path: Path, wanted: list[str]) -> str:
    """Run `docs/make_functions.py`, and return the page that it has written to `path`."""
    part = path.with_suffix(".part")
    run = subprocess.run(
        [sys.executable, "docs/make_functions.py", "--page", str(part), *wanted],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise PluginError(f"docs/make_functions.py failed:\n{run.stderr}")
    part.replace(path)
    return path.read_text(encoding="utf-8")


def digest() -> str:
    """Return a digest of everything that decides about the rows: sources, tests with calls, versions of packages."""
    paths = [*ROOT.glob("tracegrad/**/*.py"), *ROOT.glob("tests/*.py"), *ROOT.glob("tests/scipy_api/*.py")]
    result = hashlib.sha256()
    for path in sorted([*paths, ROOT / "docs" / "make_functions.py"]):
        result.update(path.read_bytes())
    result.update(repr([metadata.version(name) for name in ("numpy", "scipy", "numba")]).encode())
    return result.hexdigest()[:16]


# -- tables of functions -----------------------------------------------------------------------------------------------
def table(dotted: str, wanted: Callable[[Any], bool]) -> str:
    """Make a table of the functions or classes of a namespace: a row has the signature and the summary."""
    rows = [f"| `{name}{parameters(member)}` | {said_first(member)} |" for name, member in members(dotted, wanted)]
    return "\n".join(["| name | |", "|---|---|", *rows])


def said_first(function: Any) -> str:
    first = (inspect.getdoc(function) or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def members(dotted: str, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Return the members of a namespace: those in `NAMES` or `__all__` of a module, or the methods of a class.

    A method that is also a function of the package is left out.
    """
    home: Any = pkgutil.resolve_name(dotted)
    names = set(dir(home)) - set(dir(tracegrad)) if inspect.isclass(home) else home.__all__
    found = getattr(home, "NAMES", None) or {name: getattr(home, name, None) for name in names}
    for name in sorted(found):
        if not name.startswith("_") and wanted(found[name]):
            yield name, found[name]


def parameters(function: Any) -> str:
    """Return the signature without annotations; `(...)` if Python knows none."""
    try:
        given = inspect.signature(function)
    except ValueError:
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in given.parameters.values() if p.name != "self"]
    text = str(given.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return text.replace("|", "\\|")
