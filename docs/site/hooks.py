"""What the site has that is not in this folder: documents of the repository's root, and tables of functions.

Links are written for who reads the files where they lie, in an editor or on a code host. Here they become links to the
site's pages; a link to a file that is no page becomes its text.
"""

from __future__ import annotations

import inspect
import pkgutil
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import tracegrad

ROOT = Path(__file__).parent.parent.parent
# Documents outside of this folder, and the pages that they are.
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
_ROW = re.compile(r"\| (?:np|scipy)\.")
_SECTION = re.compile(r'^<!-- section "(.+)" of (\S+) -->$', re.MULTILINE)
_TABLE = re.compile(r"^<!-- (functions|classes) of ([\w.]+) -->$", re.MULTILINE)


def on_files(files: Files, *, config: Any) -> Files:
    for page, source in SOURCES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    here = page.file.src_uri
    if here == "changelog.md":  # it has every word
        page.meta["search"] = {"exclude": True}
    source = SOURCES.get(here, f"docs/{here}")
    text = at_home(markdown, source, here)
    text = _SECTION.sub(lambda found: at_home(section(found[2], found[1]), found[2], here), text)
    text = _TABLE.sub(
        lambda found: table(found[2], inspect.isclass if found[1] == "classes" else inspect.isroutine), text
    )
    return by_package(text) if here == "functions.md" else text


def at_home(markdown: str, source: str, page: str) -> str:
    """Text of the file `source`, with the links that it needs in `page`."""
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda found: link(found, source, page), part) for part in parts[::2]]
    return "".join(parts)


def section(source: str, title: str) -> str:
    """What a document has below a heading, to the next one of its rank."""
    text = (ROOT / source).read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0].strip()


def link(found: re.Match[str], source: str, page: str) -> str:
    """The link in `page`, which was written in the file `source`."""
    path, hash_, anchor = found[2].partition("#")
    if not path or "://" in path:
        return found[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target not in PAGES and not target.startswith("docs/"):
        return found[1]
    there = PAGES.get(target, target.removeprefix("docs/"))
    return f"[{found[1]}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{hash_}{anchor})"


def by_package(markdown: str) -> str:
    """The one long table of functions as a table for each package, with a heading that the search finds."""
    lines = markdown.splitlines()
    rows = [line for line in lines if _ROW.match(line)]
    text = [line for line in lines if not _ROW.match(line)]
    packages: dict[str, list[str]] = {}
    for row in rows:
        packages.setdefault(package(row.split()[1]), []).append(row)
    head = text[-2:]
    tables = ["\n".join([f"## {name}", "", *head, *packages[name]]) for name in sorted(packages)]
    return "\n\n".join(["\n".join(text[:-2]), *tables])


def package(function: str) -> str:
    """The package of a function: `np.linalg` of `np.linalg.inv`, `np` of `np.add.reduce`."""
    top, second, *rest = function.split(".")
    return f"{top}.{second}" if rest and (top == "scipy" or second in ("fft", "lib", "linalg")) else top


# -- tables of functions -----------------------------------------------------------------------------------------------
def table(dotted: str, wanted: Callable[[Any], bool]) -> str:
    """A row for each function, or class, that a namespace or class of the package offers, with what its docstring says
    first."""
    rows = [f"| `{name}{parameters(member)}` | {said_first(member)} |" for name, member in members(dotted, wanted)]
    return "\n".join(["| name | |", "|---|---|", *rows])


def said_first(function: Any) -> str:
    first = (inspect.getdoc(function) or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def members(dotted: str, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """What is wanted of a module, those of its `NAMES` or else of its `__all__`; the methods of a class that are no
    functions of the package too."""
    home: Any = pkgutil.resolve_name(dotted)
    names = set(dir(home)) - set(dir(tracegrad)) if inspect.isclass(home) else home.__all__
    found = getattr(home, "NAMES", None) or {name: getattr(home, name, None) for name in names}
    for name in sorted(found):
        if not name.startswith("_") and wanted(found[name]):
            yield name, found[name]


def parameters(function: Any) -> str:
    """The signature without annotations; `(...)` where Python knows none."""
    try:
        given = inspect.signature(function)
    except ValueError:
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in given.parameters.values() if p.name != "self"]
    text = str(given.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return text.replace("|", "\\|")
