"""Layered graph layout of a directed acyclic graph, after Sugiyama, Tagawa and Toda (1981).

The four classic steps: boxes get a *level* (every edge goes down at least one level); each level gets an *order* with
few crossings, by barycentres and swaps of neighbours; boxes get a position *across* their level, as straight below and
above their neighbours as the order allows; edges are *routed* between the boxes. Edges from the same output of a box
share one line as long as possible. The line has a *bend* at each level that it passes. A bend takes room as a box
does, so that no line crosses a box.

Coordinates are (across, along): levels follow each other along. The layout depends on the input only.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from tracegrad.utils.lazy_dataclass import record

Size = tuple[float, float]
Point = tuple[float, float]
# A box is its number; a bend is (tail, output, level).
Vertex = int | tuple[int, int, int]

BOX_GAP, BEND_GAP, BEND = 26.0, 9.0, 6.0
LEVEL_GAP, MAX_LEVEL_GAP = 30.0, 84.0
PORT_SPACING = 22.0


@record(frozen=True, slots=True)
class LayoutEdge:
    """From an output of box `tail` down to box `head`; edges of a head enter it in their order, from left to right."""

    tail: int
    head: int
    output: int = 0
    weight: int = 1


@record(slots=True)
class LevelOrder:
    """The vertices of each level in order, and the links that join neighbouring levels."""

    rank: list[int]
    rows: list[list[Vertex]]


@record(slots=True)
class GraphLayout:
    """Layout: the centre of each box, the points of each edge, and the size of the picture.

    A route is a list of segments ((across, along), (across, along)) that run along, from the tail to the head; the
    renderer joins the segments. `whole` says whether a route starts at its tail, or branches off the line of another
    edge.
    """

    centres: dict[int, Point]
    routes: list[list[tuple[Point, Point]]]
    whole: list[bool]
    breadth: float = 0.0
    depth: float = 0.0
    bands: list[tuple[float, float]] = field(default_factory=list)


# -- levels ----------------------------------------------------------------------------------------------------------
def assign_levels(sizes: Sequence[Size], edges: Sequence[LayoutEdge], widest: float) -> list[int]:
    """Assign a level to each box, 0 on top: as low as its edges allow, higher if a level would be too wide."""
    heads: list[list[int]] = [[] for _ in sizes]
    waiting = [0] * len(sizes)
    tails: list[list[int]] = [[] for _ in sizes]
    for edge in edges:
        heads[edge.tail].append(edge.head)
        tails[edge.head].append(edge.tail)
        waiting[edge.tail] += 1
    height, room = [0] * len(sizes), [0.0]
    ready = [i for i, count in enumerate(waiting) if not count]
    for i in ready:
        level = 1 + max((height[j] for j in heads[i]), default=-1)
        breadth = sizes[i][0] + BOX_GAP
        while level < len(room) and room[level] and room[level] + breadth > widest:
            level += 1
        while level >= len(room):
            room.append(0.0)
        room[level] += breadth
        height[i] = level
        for j in tails[i]:
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    if len(ready) < len(sizes):
        raise ValueError("the graph has a cycle")
    top = max(height, default=0)
    return [top - h for h in height]


# -- order -----------------------------------------------------------------------------------------------------------
def arrange(rank: Sequence[int], edges: Sequence[LayoutEdge]) -> LevelOrder:
    """Order the vertices in each level, with few crossings."""
    rows = _first_order(rank, edges)
    links = _links(rank, edges)
    search = _Crossings(rows, links)
    search.improve()
    return LevelOrder(list(rank), search.best)


@record(frozen=True, slots=True)
class Link:
    """Connection of two vertices of neighbouring levels; `out` and `in_port` are port positions from 0 to 1."""

    upper: Vertex
    lower: Vertex
    out: float
    in_port: float
    weight: int


def _ports(
    edges: Sequence[LayoutEdge],
) -> tuple[dict[tuple[int, int], float], list[float], dict[int, int], dict[int, int]]:
    """Return the positions of outputs (by tail and output) and edges (by edge) at the boxes, with counts.

    Positions are fractions of the box.
    """
    outputs: dict[int, set[int]] = {}
    entering: dict[int, int] = {}
    for edge in edges:
        outputs.setdefault(edge.tail, set()).add(edge.output)
        entering[edge.head] = entering.get(edge.head, 0) + 1
    out_ports = {(t, o): (k + 0.5) / len(of) for t, of in outputs.items() for k, o in enumerate(sorted(of))}
    in_ports, seen = [], dict.fromkeys(entering, 0)
    for edge in edges:
        in_ports.append((seen[edge.head] + 0.5) / entering[edge.head])
        seen[edge.head] += 1
    return out_ports, in_ports, {t: len(of) for t, of in outputs.items()}, entering


def _links(rank: Sequence[int], edges: Sequence[LayoutEdge]) -> list[Link]:
    out_ports, in_ports, _, _ = _ports(edges)
    table: dict[tuple[Vertex, Vertex, float], Link] = {}
    for edge, in_port in zip(edges, in_ports):
        upper: Vertex = edge.tail
        out_port = out_ports[edge.tail, edge.output]
        for level in range(rank[edge.tail] + 1, rank[edge.head]):
            bend = (edge.tail, edge.output, level)
            key = (upper, bend, out_port)
            if key not in table:
                factor = 2 if upper == edge.tail else 8
                table[key] = Link(upper, bend, out_port, 0.5, factor * edge.weight)
            upper, out_port = bend, 0.5
        factor = 1 if upper == edge.tail else 2
        table[upper, edge.head, in_port] = Link(upper, edge.head, out_port, in_port, factor * edge.weight)
    return list(table.values())


def _first_order(rank: Sequence[int], edges: Sequence[LayoutEdge]) -> list[list[Vertex]]:
    """Order vertices as a depth-first walk from the lowest boxes up, operands from left to right, reaches them."""
    rows: list[list[Vertex]] = [[] for _ in range(max(rank, default=-1) + 1)]
    entering: dict[int, list[LayoutEdge]] = {}
    for edge in edges:
        entering.setdefault(edge.head, []).append(edge)
    tails = {edge.tail for edge in edges}
    seen: set[Vertex] = set()
    for root in (i for i in range(len(rank)) if i not in tails):
        stack: list[tuple[Vertex, ...]] = [(root,)]
        while stack:
            path = stack.pop()
            for vertex in path:
                if vertex not in seen:
                    seen.add(vertex)
                    rows[rank[vertex] if isinstance(vertex, int) else vertex[2]].append(vertex)
                    if isinstance(vertex, int):
                        stack += [_path_up(rank, e) for e in reversed(entering.get(vertex, ()))]
    return rows


def _path_up(rank: Sequence[int], edge: LayoutEdge) -> tuple[Vertex, ...]:
    """Return the vertices of the path from the head of an edge up to its tail."""
    between = range(rank[edge.head] - 1, rank[edge.tail], -1)
    return (*((edge.tail, edge.output, level) for level in between), edge.tail)


class _Crossings:
    """The search for an order with few crossings; `best` is the best that was seen."""

    def __init__(self, rows: list[list[Vertex]], links: Sequence[Link]):
        self.rows = rows
        self.best = [list(row) for row in rows]
        self.at = {v: float(i) for row in rows for i, v in enumerate(row)}
        level = {v: i for i, row in enumerate(rows) for v in row}
        self.above: dict[Vertex, list[tuple[Vertex, float, float]]] = {v: [] for v in self.at}
        self.below: dict[Vertex, list[tuple[Vertex, float, float]]] = {v: [] for v in self.at}
        self.links_below: list[list[Link]] = [[] for _ in rows]
        for link in links:
            self.above[link.lower].append((link.upper, _inside(link.out), _inside(link.in_port)))
            self.below[link.upper].append((link.lower, _inside(link.in_port), _inside(link.out)))
            self.links_below[level[link.upper]].append(link)

    def improve(self) -> None:
        least = self.crossings()
        rounds = 12 if len(self.at) < 4000 else 4
        idle = 0
        for iteration in range(rounds * 2):
            if not least or idle == 6:
                break
            self.sweep(down=iteration % 2 == 0)
            if len(self.at) < 4000:
                self.swap()
            result = self.crossings()
            idle += 1
            if result < least:
                least, idle = result, 0
                self.best = [list(row) for row in self.rows]

    def sweep(self, down: bool) -> None:
        """Sort each level by the mean position of its vertices' neighbours on the level before."""
        others = self.above if down else self.below
        for row in self.rows if down else reversed(self.rows):
            free = [v for v in row if not others[v]]
            keys = {v: sum(self.at[u] + p - q for u, p, q in others[v]) / len(others[v]) for v in row if others[v]}
            bound = iter(sorted(keys, key=keys.__getitem__))
            saved = set(free)
            row[:] = [v if v in saved else next(bound) for v in row]
            self.number(row)

    def number(self, row: Sequence[Vertex]) -> None:
        for i, v in enumerate(row):
            self.at[v] = float(i)

    def swap(self) -> None:
        """Exchange neighbours where this removes crossings, in at most four rounds."""
        for _ in range(4):
            changed = False
            for row in self.rows:
                for i in range(len(row) - 1):
                    v, w = row[i], row[i + 1]
                    if self._between(v, w) > self._between(w, v):
                        row[i], row[i + 1] = w, v
                        self.at[w], self.at[v] = float(i), float(i + 1)
                        changed = True
            if not changed:
                return

    def _between(self, left: Vertex, right: Vertex) -> int:
        """Count the crossings of the links of two neighbours in this order."""
        count = 0
        for others in (self.above, self.below):
            ends = sorted(self.at[u] + p for u, p, _ in others[right])
            for u, p, _ in others[left]:
                count += _below(ends, self.at[u] + p)
        return count

    def crossings(self) -> int:
        at, total = self.at, 0
        for links in self.links_below:
            pairs = [(at[x.upper] + _inside(x.out), at[x.lower] + _inside(x.in_port)) for x in links]
            ends: list[float] = []
            for _, end in sorted(pairs):
                total += len(ends) - bisect_right(ends, end)
                insort(ends, end)
        return total


def _inside(port: float) -> float:
    """Return the position of a port relative to the middle of its box, whose neighbours are 1 away."""
    return 0.8 * (port - 0.5)


def _below(values: Sequence[float], limit: float) -> int:
    return sum(v < limit for v in values)


# -- positions -------------------------------------------------------------------------------------------------------
def place_boxes(
    levels: LevelOrder, sizes: Mapping[int, Size], edges: Sequence[LayoutEdge], bands: Sequence[float] | None = None
) -> GraphLayout:
    """Lay out the boxes in `sizes` and the edges between them, in the order of `levels`.

    `bands` are the depths of the levels, if they differ from the depths of their boxes. Levels may have boxes that are
    not in `sizes`.
    """
    rank = levels.rank
    links = _links(rank, edges)
    present: set[Vertex] = set(sizes)
    present.update(x for link in links for x in (link.upper, link.lower))
    rows = [[v for v in row if v in present] for row in levels.rows]
    _, _, outs, ins = _ports(edges)

    def breadth(v: Vertex) -> float:
        return sizes[v][0] if isinstance(v, int) else BEND

    def out_offset(v: Vertex, port: float) -> float:
        return _offset(port, outs[v], sizes[v][0]) if isinstance(v, int) else 0.0

    def in_offset(v: Vertex, port: float) -> float:
        return _offset(port, ins[v], sizes[v][0]) if isinstance(v, int) else 0.0

    joined = [(x.upper, x.lower, out_offset(x.upper, x.out), in_offset(x.lower, x.in_port), x.weight) for x in links]
    x = _across(rows, breadth, joined)
    depths = bands or [max((sizes[v][1] for v in row if isinstance(v, int)), default=0.0) for row in rows]
    starts = _along(rows, depths, x, joined)
    centres = {v: (x[v], starts[rank[v]] + depths[rank[v]] / 2) for v in sizes}
    placed = GraphLayout(centres, [], [], bands=[(s, s + d) for s, d in zip(starts, depths)])
    _route(placed, rank, sizes, edges, x, (out_offset, in_offset))
    placed.breadth = max((x[v] + breadth(v) / 2 for v in x), default=0.0)
    placed.depth = placed.bands[-1][1] if placed.bands else 0.0
    return placed


def _offset(port: float, count: int, breadth: float) -> float:
    spread = min(PORT_SPACING * count, breadth - 8)
    return (port - 0.5) * spread


def _gap(v: Vertex, w: Vertex) -> float:
    if isinstance(v, int) and isinstance(w, int):
        return BOX_GAP
    return BEND_GAP + (7.0 if isinstance(v, int) or isinstance(w, int) else 0.0)


Joined = tuple[Vertex, Vertex, float, float, int]


def _across(
    rows: Sequence[Sequence[Vertex]], breadth: Callable[[Vertex], float], joined: Sequence[Joined]
) -> dict[Vertex, float]:
    """Compute the middle of each vertex. Each round sets each level to its best positions for fixed neighbours."""
    above: dict[Vertex, list[tuple[Vertex, float, float]]] = {v: [] for row in rows for v in row}
    below: dict[Vertex, list[tuple[Vertex, float, float]]] = {v: [] for row in rows for v in row}
    for upper, lower, out_offset, in_offset, weight in joined:
        above[lower].append((upper, out_offset - in_offset, float(weight)))
        below[upper].append((lower, in_offset - out_offset, float(weight)))
    x: dict[Vertex, float] = {}
    offsets: list[list[float]] = []
    for row in rows:
        at = [0.0] if row else []
        for v, w in pairwise(row):
            at.append(at[-1] + (breadth(v) + breadth(w)) / 2 + _gap(v, w))
        middle = at[-1] / 2 if at else 0.0
        x.update((v, a - middle) for v, a in zip(row, at))
        offsets.append(at)
    rounds = 8 if len(x) < 4000 else 3
    for sides in [(above,), (below,)] * rounds + [(above, below), (above, below)] * 3:
        pairs = list(zip(rows, offsets))
        for row, at in pairs if sides[0] is above else reversed(pairs):
            wishes = [[(x[u] + d, w) for side in sides for u, d, w in side[v]] or [(x[v], 0.01)] for v in row]
            x.update(zip(row, _spaced(wishes, at)))
    left = min((x[v] - breadth(v) / 2 for v in x), default=0.0)
    return {v: at - left for v, at in x.items()}


Wishes = list[tuple[float, float]]


def _spaced(wishes: Sequence[Wishes], at: Sequence[float]) -> list[float]:
    """Minimize the weighted distances to the wishes, with at least the distances between positions in `at`.

    Pool adjacent violators: neighbours that wish to be closer than allowed move as one block from then on.
    """
    blocks: list[tuple[float, Wishes, int]] = []
    for wished, offset in zip(wishes, at):
        merged, count = sorted((p - offset, w) for p, w in wished), 1
        middle = _median(merged)
        while blocks and blocks[-1][0] > middle:
            _, other, other_count = blocks.pop()
            merged, count = sorted(other + merged), count + other_count
            middle = _median(merged)
        blocks.append((middle, merged, count))
    starts = [middle for middle, _, count in blocks for _ in range(count)]
    return [s + offset for s, offset in zip(starts, at)]


def _median(wishes: Wishes) -> float:
    """Return the weighted median; the middle if the minimum is an interval."""
    half, cumulative = sum(w for _, w in wishes) / 2, 0.0
    for i, (at, weight) in enumerate(wishes):
        cumulative += weight
        if cumulative > half + 1e-9:
            return at
        if cumulative > half - 1e-9 and i + 1 < len(wishes):
            return (at + wishes[i + 1][0]) / 2
    return wishes[-1][0]


def _along(
    rows: Sequence[Sequence[Vertex]], depths: Sequence[float], x: Mapping[Vertex, float], joined: Sequence[Joined]
) -> list[float]:
    """Return the start of each level: the gap before it is wider if edges run far across."""
    level = {v: i for i, row in enumerate(rows) for v in row}
    far = [0.0] * len(rows)
    for upper, lower, out_offset, in_offset, _ in joined:
        far[level[upper]] = max(far[level[upper]], abs(x[upper] + out_offset - x[lower] - in_offset))
    starts, at = [], 0.0
    for depth, reach in zip(depths, far):
        starts.append(at)
        at += depth + min(LEVEL_GAP + reach / 14, MAX_LEVEL_GAP)
    return starts


# -- routes ----------------------------------------------------------------------------------------------------------
def _route(
    placed: GraphLayout,
    rank: Sequence[int],
    sizes: Mapping[int, Size],
    edges: Sequence[LayoutEdge],
    x: Mapping[Vertex, float],
    ports: tuple[Callable[[Vertex, float], float], Callable[[Vertex, float], float]],
) -> None:
    """Fill in the routes: the longest edge of an output draws the common line, the others branch off it."""
    out_offset, in_offset = ports
    out, enter, _, _ = _ports(edges)
    drawn: dict[tuple[int, int], int] = {}
    placed.routes = [[] for _ in edges]
    placed.whole = [True] * len(edges)
    by_length = sorted(range(len(edges)), key=lambda k: (rank[edges[k].tail] - rank[edges[k].head], k))
    for k in by_length:
        edge = edges[k]
        source = (edge.tail, edge.output)
        first = rank[edge.tail] + 1
        if source in drawn and rank[edge.head] > first:
            first = rank[edge.head] - 1
            placed.whole[k] = False
        drawn.setdefault(source, rank[edge.head])
        segments = []
        if placed.whole[k]:
            start = x[edge.tail] + out_offset(edge.tail, out[source])
            edge_of_box = placed.centres[edge.tail][1] + sizes[edge.tail][1] / 2
            segments.append(((start, edge_of_box), (start, placed.bands[rank[edge.tail]][1])))
        for level in range(first, rank[edge.head]):
            at = x[edge.tail, edge.output, level]
            segments.append(((at, placed.bands[level][0]), (at, placed.bands[level][1])))
        end = x[edge.head] + in_offset(edge.head, enter[k])
        edge_of_box = placed.centres[edge.head][1] - sizes[edge.head][1] / 2
        segments.append(((end, placed.bands[rank[edge.head]][0]), (end, edge_of_box)))
        placed.routes[k] = segments
