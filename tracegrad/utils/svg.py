"""SVG utilities of all pictures: the document around a picture, its style sheet, numbers and texts.

There are no ids, so that several pictures may be on one page. Every colour is a class of the one style sheet, which
supports light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

TITLE, TEXT = 13.0, 11.5  # font sizes in a box
LETTER = 0.602  # the width of a letter of the usual monospaced fonts, in font sizes

LIGHT = {
    "page": ("#ffffff", "#d8dee9"),
    "panel": ("#f7f9fc", "#e3e8f0"),
    "text": ("#1c2330", ""),
    "pale": ("#667085", ""),
    "line": ("none", "#8593a8"),
    "arrow": ("#8593a8", ""),
    "leaf": ("#d9f2e3", "#2a9d5c"),
    "constant": ("#eceff4", "#98a2b3"),
    "op": ("#ffffff", "#5b7fb5"),
    "result": ("#dbe9ff", "#2f6fd0"),
    "seed": ("#dbe9ff", "#2f6fd0"),
    "backward": ("#fff0dc", "#d98a1f"),
    "accumulate": ("#d9f2e3", "#2a9d5c"),
    "guard": ("#f3e8fb", "#9b5cc9"),
}
DARK = {
    "page": ("#14181f", "#343c49"),
    "panel": ("#1a202a", "#2b3340"),
    "text": ("#e6eaf1", ""),
    "pale": ("#9aa6b8", ""),
    "line": ("none", "#76859c"),
    "arrow": ("#76859c", ""),
    "leaf": ("#173a2a", "#3fb878"),
    "constant": ("#2a313c", "#7c889a"),
    "op": ("#1d2735", "#6f97d3"),
    "result": ("#1a3358", "#5b97f0"),
    "seed": ("#1a3358", "#5b97f0"),
    "backward": ("#43301a", "#e0a044"),
    "accumulate": ("#173a2a", "#3fb878"),
    "guard": ("#38264a", "#b583df"),
}


def document(title: str, width: float, height: float, body: Iterable[str]) -> str:
    """Return the text of an SVG with these elements."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tracegrad-picture" role="img" '
        f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}">'
    )
    name = f"<title>{escaped(title)}</title>"
    return "\n".join([head, name, f"<style>{_style()}</style>", *body, "</svg>", ""])


def _style() -> str:
    def rules(colours: dict[str, tuple[str, str]]) -> str:
        results = []
        for name, (fill, stroke) in colours.items():
            line = f";stroke:{stroke}" if stroke else ""
            results.append(f".tracegrad-picture .{name}{{fill:{fill}{line}}}")
        return "".join(results)

    fonts = (
        ".tracegrad-picture text{font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"font-size:{TEXT}px}}"
        f".tracegrad-picture .title{{font-size:{TITLE}px;font-weight:600}}"
        ".tracegrad-picture .heading{font-size:15px;font-weight:600}"
        ".tracegrad-picture .line{stroke-width:1.4}"
        ".tracegrad-picture .dashed{stroke-dasharray:5 4}"
    )
    return f"{fonts}{rules(LIGHT)}@media (prefers-color-scheme:dark){{{rules(DARK)}}}"


def rectangle(cls: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    """Return the SVG of a box of a class, with round corners."""
    box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect class="{cls}" {box} rx="{number(radius)}"/>'


def text_element(text: str, x: float, y: float, cls: str, anchor: str = "start") -> str:
    """Return the SVG of a text of a class; the point is its start, its "middle" or its "end"."""
    return f'<text class="{cls}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{escaped(text)}</text>'


def number(x: float) -> str:
    """Format a coordinate, to a tenth."""
    text = f"{x:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def escaped(text: str) -> str:
    """Text for XML: escaped, without the characters that XML does not have."""
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text), quote=False)
