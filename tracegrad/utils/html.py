"""HTML for notebooks: Tensors, graphs, explanations and profiles, with the same content as their text.

A fragment is self-contained: all text is escaped, there are no ids and no scripts, and one style sheet takes its
colours from the page, so that fragments are readable on light and dark pages. Long parts are folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tracegrad.utils.svg import escaped

OPEN = 24  # the most lines of a block that is not folded

_STYLE = (
    ".tracegrad-html{color:inherit;font-size:13px;line-height:1.45;max-width:100%}"
    ".tracegrad-html .head{font-weight:600}"
    ".tracegrad-html .pale{opacity:.65}"
    ".tracegrad-html details{margin:3px 0}"
    ".tracegrad-html summary{cursor:pointer}"
    ".tracegrad-html .code,.tracegrad-html td,.tracegrad-html th{"
    "font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px}"
    ".tracegrad-html .code{white-space:pre;overflow-x:auto;margin:3px 0;padding:6px 10px;border-radius:4px;"
    "border:1px solid rgba(128,128,128,.35);background:rgba(128,128,128,.08);color:inherit}"
    ".tracegrad-html .code .code{padding:0;margin:0;border:none;background:none}"
    ".tracegrad-html table{border-collapse:collapse;margin:3px 0;color:inherit}"
    ".tracegrad-html th,.tracegrad-html td{padding:2px 10px;text-align:left;color:inherit;background:none;"
    "border-bottom:1px solid rgba(128,128,128,.35)}"
    ".tracegrad-html svg{max-width:100%;height:auto}"
)


def object_html(title: str, subtitle: str, sections: Iterable[str]) -> str:
    """Return the HTML of one object: its title, the text next to it, and its parts."""
    subtitle_html = f' <span class="pale">{escaped(subtitle)}</span>' if subtitle else ""
    head = f'<div><span class="head">{escaped(title)}</span>{subtitle_html}</div>'
    return f'<div class="tracegrad-html"><style>{_STYLE}</style>{head}{"".join(sections)}</div>'


def note(text: str) -> str:
    """Return the HTML of a line of text."""
    return f"<div>{escaped(text)}</div>"


def fold(title: str, body: str, shown: bool = False) -> str:
    """Return a folded part with a title, open if it is `shown`.

    >>> fold("a < b", "<b>c</b>")
    '<details><summary>a &lt; b</summary><b>c</b></details>'
    """
    return f"<details{' open' if shown else ''}><summary>{escaped(title)}</summary>{body}</details>"


def block(title: str, lines: Sequence[str], shown: bool | None = None) -> str:
    """Return lines of text under a title that counts them; short text is open, unless `shown` decides."""
    if not lines:
        return f'<div class="pale">{escaped(title)}: none</div>'
    return fold(title, code(lines), len(lines) <= OPEN if shown is None else shown)


def code(lines: Sequence[str]) -> str:
    """Return lines in monospace; a nested block that a line ending in `{` opens is folded.

    Text after `#` is paler.
    """
    out, depth = ['<div class="code">'], 0
    for k, line in enumerate(lines):
        if line.endswith("{") and line[:1] == " ":
            out.append(f'<details><summary>{_coloured(line)}</summary><div class="code">')
            depth += 1
        elif line.strip() == "}" and depth:
            out.append(f"{_coloured(line)}</div></details>")
            depth -= 1
        else:
            out.append(_coloured(line) + ("\n" if k < len(lines) - 1 else ""))
    return "".join([*out, "</div></details>" * depth, "</div>"])


def _coloured(line: str) -> str:
    text, mark, rest = line.partition("  # ")
    result = re.sub(r"(?<== )\w+(?=\()", r"<b>\g<0></b>", escaped(text))
    return result + (f'<span class="pale">{escaped(mark + rest)}</span>' if mark else "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the HTML of a table of text."""
    titles = "".join(f"<th>{escaped(x)}</th>" for x in head)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(x)}</td>' for x in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"
