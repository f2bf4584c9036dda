"""Compute minimum cuts of networks (max-flow min-cut).

The vertices reachable from the source at maximum flow (Ford and Fulkerson, "Maximal flow through a network", 1956) are
the same for every maximum flow: the source side of the minimum cut, and the smallest source side of all minimum cuts.
The flow grows by large amounts first (capacity scaling; Edmonds and Karp, "Theoretical improvements in algorithmic
efficiency for network flow problems", 1972), by depth-first paths, so a network soon reaches its maximum flow.
"""

from __future__ import annotations

from collections.abc import Iterable


class Network:
    """Flow network of the vertices 0, 1, ...; edge `k ^ 1` is the reverse of edge `k`."""

    def __init__(self, vertices: int, edges: Iterable[tuple[int, int, int]]):
        self.leaving: list[list[int]] = [[] for _ in range(vertices)]
        self.heads: list[int] = []
        self.room: list[int] = []  # residual capacity of each edge
        for tail, head, weight in edges:
            self.leaving[tail].append(len(self.heads))
            self.leaving[head].append(len(self.heads) + 1)
            self.heads += head, tail
            self.room += weight, 0

    def fill(self, source: int, sink: int, least: int) -> bool:
        """Augment the flow along paths with at least the capacity `least`; returns whether there were any."""
        room, heads, result = self.room, self.heads, False
        untried = [iter(edges) for edges in self.leaving]
        path: list[int] = []
        at, passed = source, {source}
        while True:
            for edge in untried[at]:
                if room[edge] >= least and heads[edge] not in passed:
                    path.append(edge)
                    at = heads[edge]
                    passed.add(at)
                    break
            else:  # a dead end
                if not path:
                    return result
                at = heads[path.pop() ^ 1]
                continue
            if at == sink:
                result = True
                at = self._send(path, least, passed)

    def _send(self, path: list[int], least: int, passed: set[int]) -> int:
        """Send as much flow along a path as it has capacity for, and retreat to the first full edge. Returns the vertex
        there."""
        capacity, heads = self.room, self.heads
        flow = min([capacity[edge] for edge in path])
        for edge in path:
            capacity[edge] -= flow
            capacity[edge ^ 1] += flow
        full = next(k for k, edge in enumerate(path) if capacity[edge] < least)
        passed.difference_update([heads[edge] for edge in path[full:]])
        at = heads[path[full] ^ 1]
        del path[full:]
        return at

    def reached(self, source: int) -> set[int]:
        """The vertices reachable from `source` in the residual network."""
        result, new = {source}, [source]
        while new:
            for edge in self.leaving[new.pop()]:
                head = self.heads[edge]
                if self.room[edge] and head not in result:
                    result.add(head)
                    new.append(head)
        return result


def source_side(vertices: int, edges: Iterable[tuple[int, int, int]], source: int, sink: int) -> set[int]:
    """The source side of the minimum cut nearest to the source; edges are (tail, head, weight).

    >>> sorted(source_side(4, [(0, 1, 5), (1, 2, 2), (2, 3, 5), (0, 2, 1)], 0, 3))
    [0, 1]
    """
    network = Network(vertices, edges)
    least = 1 << max(network.room, default=0).bit_length()
    while least := least >> 1:
        while network.fill(source, sink, least):
            pass
    return network.reached(source)
