"""SVG renderer of diagrams: sizes of boxes, panels next to each other, curves, a legend.

The text depends on the diagram alone. It has no ids, so that several pictures may be on one page. Every colour is a
class of its one style sheet, which supports light and dark pages. Every long text is complete in the tooltip of its
box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracegrad.utils.svg import LETTER, TEXT, TITLE, document, escaped, number, rectangle
from tracegrad.visualization.diagram import BoxLine, Diagram, Panel, shortened
from tracegrad.visualization.layered_layout import GraphLayout, LayoutEdge, Point, arrange, assign_levels, place_boxes

# Colours of groups, drawn over the colours of boxes, and visible on light and dark pages.
GROUPS = ("#e4572e", "#2e86ab", "#8f5bd1", "#2a9d5c", "#c98a00", "#d6457f", "#3d9e9e", "#7a7f87")
PADDING, LINE = 10.0, 16.0
MARGIN, HEADING = 20.0, 26.0
WIDEST = 1500.0


def render(diagram: Diagram, direction: str = "down") -> tuple[str, float, float]:
    """Return the SVG text, its width and its height; levels go `"down"` or to the `"right"`."""
    drawing = _SvgDrawing(diagram, direction == "right")
    body = list(drawing.elements())
    width, height = drawing.width, drawing.height
    return document(diagram.title, width, height, body), width, height


class _SvgDrawing:
    """Layout of the panels; `width` and `height` are known after the last element of `elements`."""

    def __init__(self, diagram: Diagram, sideways: bool):
        self.diagram, self.sideways = diagram, sideways
        self.width = self.height = 0.0
        self.edges = [LayoutEdge(t, h, o, 1 if kind == "leaf" else 3) for t, h, o, kind in diagram.edges]
        # Panels share levels and order, and differ in the sizes of boxes and in the positions across.
        max_sizes = [self._size_at(i) for i in range(diagram.count)]
        self.levels = arrange(assign_levels(max_sizes, self.edges, WIDEST), self.edges)
        self.bands = [
            max((max_sizes[v][1] for v in row if isinstance(v, int)), default=0.0) for row in self.levels.rows
        ]

    def _box_size(self, panel: Panel, i: int) -> tuple[float, float]:
        """The size of a box, across and along the levels."""
        box = panel.boxes[i]
        letters = max([len(_shown(x)) * TEXT for x in box.lines] + [len(shortened(box.title)) * TITLE * 1.02])
        ports = max(sum(e.head == i for e in self.edges), len({e.output for e in self.edges if e.tail == i}))
        width, height = LETTER * letters + 2 * PADDING, LINE * (1 + len(box.lines)) + PADDING + 2
        if self.sideways:
            return max(height, 12.0 * ports), width
        return max(width, 12.0 * ports, 56.0), height

    def _size_at(self, i: int) -> tuple[float, float]:
        sizes = [self._box_size(panel, i) for panel in self.diagram.panels if i in panel.boxes]
        return max(a for a, _ in sizes), max(b for _, b in sizes)

    # -- elements ----------------------------------------------------------------------------------------------------
    def elements(self) -> Iterator[str]:
        placed = [self._placed(panel) for panel in self.diagram.panels]
        body: list[str] = []
        x, y = MARGIN, MARGIN + HEADING
        for panel, layout in zip(self.diagram.panels, placed):
            body += self._panel(panel, layout, x, y)
            w, h = self._oriented((layout.breadth, layout.depth))
            w, h = w + 2 * MARGIN, h + 2 * MARGIN + HEADING
            self.width = max(self.width, x + w + MARGIN)
            self.height = max(self.height, y + h + MARGIN)
            x, y = (x, y + h + MARGIN) if self.sideways else (x + w + MARGIN, y)
        title = shortened(self.diagram.title, 90)
        self.width = max(self.width, LETTER * 15 * len(title) + 2 * MARGIN, 360.0)
        legend = list(self._legend())
        yield rectangle("page", 0.5, 0.5, self.width - 1, self.height - 1, 8)
        yield f'<text class="text heading" x="{number(MARGIN)}" y="{number(MARGIN + 12)}">{escaped(title)}</text>'
        yield from body
        yield from legend

    def _placed(self, panel: Panel) -> GraphLayout:
        sizes = {i: self._box_size(panel, i) for i in panel.boxes}
        edges = [e for e in self.edges if e.tail in sizes and e.head in sizes]
        return place_boxes(self.levels, sizes, edges, self.bands)

    def _oriented(self, point: Point) -> Point:
        return (point[1], point[0]) if self.sideways else point

    def _panel(self, panel: Panel, layout: GraphLayout, x: float, y: float) -> Iterator[str]:
        w, h = self._oriented((layout.breadth, layout.depth))
        yield rectangle("panel", x, y, w + 2 * MARGIN, h + 2 * MARGIN + HEADING, 6)
        yield f'<text class="pale title" x="{number(x + MARGIN)}" y="{number(y + 22)}">{escaped(panel.title)}</text>'
        yield f'<g transform="translate({number(x + MARGIN)} {number(y + MARGIN + HEADING)})">'
        edges = [k for k, e in enumerate(self.edges) if e.tail in panel.boxes and e.head in panel.boxes]
        for k, route, whole in zip(edges, layout.routes, layout.whole):
            yield from self._edge(panel, k, route, whole)
        for i in sorted(panel.boxes):
            yield from self._box(panel, i, self._oriented(layout.centres[i]))
        yield "</g>"

    def _edge(self, panel: Panel, k: int, route: Sequence[tuple[Point, Point]], whole: bool) -> Iterator[str]:
        kind = self.diagram.edges[k][3]
        dashed = " dashed" if kind == "residual" else ""
        yield f'<path class="line{dashed}" d="{self._curve(route)}"/>'
        if not panel.upward:
            yield self._arrow(route[-1][1], 1)
        elif whole:
            yield self._arrow(route[0][0], -1)
        edge = self.edges[k]
        if edge.tail in self.diagram.multi_output and whole:
            across, along = route[0][0]
            # The text is on the side that the line does not bend to.
            right = len(route) < 2 or route[1][0][0] <= across + 0.3
            x, y = self._oriented((across + (5 if right else -5), along + 15))
            anchor = "start" if right else "end"
            yield f'<text class="pale" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{edge.output}</text>'

    def _curve(self, route: Sequence[tuple[Point, Point]]) -> str:
        """Return the path of an edge: straight along each segment, with an S-curve from one to the next."""
        text = [f"M{self._p(route[0][0])}"]
        at = route[0][0]
        for start, end in route:
            if abs(start[0] - at[0]) > 0.3:
                middle = (start[1] + at[1]) / 2
                text.append(f"C{self._p((at[0], middle))} {self._p((start[0], middle))} {self._p(start)}")
            if abs(end[1] - start[1]) > 0.3 or abs(start[0] - at[0]) <= 0.3:
                text.append(f"L{self._p(end)}")
            at = end
        return "".join(text)

    def _arrow(self, tip: Point, direction: int) -> str:
        """Return the head of an edge at `tip`, which points along the levels (1) or against (-1)."""
        across, along = tip
        corners = [(across, along), (across - 4, along - 8 * direction), (across + 4, along - 8 * direction)]
        return f'<path class="arrow" d="M{"L".join(self._p(c) for c in corners)}Z"/>'

    def _p(self, point: Point) -> str:
        x, y = self._oriented(point)
        return f"{number(x)} {number(y)}"

    def _box(self, panel: Panel, i: int, centre: Point) -> Iterator[str]:
        box = panel.boxes[i]
        w, h = self._oriented(self._box_size(panel, i))
        x, y = centre[0] - w / 2, centre[1] - h / 2
        full = "\n".join([box.title, *([box.hint] if box.hint else []), *(f"{s.key}{s.text}" for s in box.lines)])
        yield f"<g><title>{escaped(full)}</title>"
        round_ = {"leaf": 12, "constant": 12, "accumulate": 12}.get(box.kind, 4)
        yield rectangle(box.kind, x, y, w, h, round_)
        if box.group >= 0:
            yield _over(box.group, x, y, w, h, round_)
        top = centre[1] - (LINE * len(box.lines)) / 2 + 4.5
        middle = number(centre[0])
        position = f'x="{middle}" y="{number(top)}" text-anchor="middle"'
        yield f'<text class="text title" {position}>{escaped(shortened(box.title))}</text>'
        for k, line in enumerate(box.lines):
            yield self._line(line, middle, number(top + LINE * (k + 1)))
        yield "</g>"

    def _line(self, line: BoxLine, x: str, y: str) -> str:
        text = _shown(line)
        key = text[: len(line.key)]
        spans = f'<tspan class="pale">{escaped(key)}</tspan><tspan class="text">{escaped(text[len(key) :])}</tspan>'
        return f'<text x="{x}" y="{y}" text-anchor="middle" xml:space="preserve">{spans}</text>'

    def _legend(self) -> Iterator[str]:
        used = {box.kind for panel in self.diagram.panels for box in panel.boxes.values()}
        x, y = MARGIN, self.height + 4
        for kind, label in self.diagram.legend.items():
            if kind not in used:
                continue
            width = 24 + LETTER * TEXT * len(label) + 22
            if x + width > self.width - MARGIN and x > MARGIN:
                x, y = MARGIN, y + 22
            yield f'<rect class="{kind}" x="{number(x)}" y="{number(y - 10)}" width="16" height="12" rx="3"/>'
            yield f'<text class="text" x="{number(x + 24)}" y="{number(y)}">{escaped(label)}</text>'
            x += width
        for group, label in enumerate(self.diagram.groups):
            x, y, label = MARGIN, y + 22, shortened(label, 90)
            self.width = max(self.width, x + 24 + LETTER * TEXT * len(label) + MARGIN)
            yield _over(group, x, y - 10, 16, 12, 3)
            yield f'<text class="text" x="{number(x + 24)}" y="{number(y)}">{escaped(label)}</text>'
        self.height = y + MARGIN


def _over(group: int, x: float, y: float, width: float, height: float, radius: float) -> str:
    """Return the colour of a group over a box."""
    colour = GROUPS[group % len(GROUPS)]
    box = rectangle("", x, y, width, height, radius).replace('class="" ', "")
    return box.replace("/>", f' style="fill:{colour};fill-opacity:.2;stroke:{colour};stroke-width:2"/>')


def _shown(line: BoxLine) -> str:
    return shortened_keeping(line.key + line.text)


def shortened_keeping(text: str) -> str:
    return text if len(text) <= 34 else text[:33] + "…"
