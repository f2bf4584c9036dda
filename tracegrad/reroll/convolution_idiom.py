"""Recognize convolutions written as sums of window products, and compute each as one product.

    sum(x[:, i : i + h, j : j + w] @ weights[i, j] for i in range(m) for j in range(n))

adds products that are too small for BLAS, and copies a window for each. With the windows concatenated (im2col) it is
one product, and so is each derivative. The sums then round differently, as the sums of any product may.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode
from tracegrad.ir.builder import node_of
from tracegrad.ir.rebuild import below
from tracegrad.ops.elementwise.table import add
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.nn.im2col import patches
from tracegrad.ops.shape.linear import concatenate, reshape, slice
from tracegrad.reroll.offset_slices import SliceWindow, operands_of_all, window_of
from tracegrad.reroll.thresholds import MIN_ITERATIONS
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.typing import Array


ROOM = TUNING.loops.max_window_bytes

Moved = Callable[[GraphNode], Any]  # maps a node to its replacement, a value


class _ProductTerm(NamedTuple):
    """A term: the product of a window and a matrix."""

    window: SliceWindow
    weights: GraphNode
    shape: tuple[int, ...]  # of the result


def sums_of_windows(nodes: Sequence[GraphNode]) -> Mapping[GraphNode, Callable[[Moved], GraphNode]]:
    """The convolutions among the sums in `nodes`, each with a function that writes it as one product."""
    ops = [x.op for x in nodes]
    if ops.count(matmul) < MIN_ITERATIONS or slice not in ops:
        return {}
    readers = Counter([x for operands in operands_of_all(nodes) for x in operands])
    result, visited = {}, set[GraphNode]()
    for node in reversed(nodes):
        if node.op is add and node not in visited:
            terms = _terms(node, readers, visited)
            grid = _WindowGrid.of(terms) if len(terms) >= MIN_ITERATIONS else None
            if grid is not None:
                result[node] = grid.written
    return result


def _terms(node: GraphNode, readers: Mapping[GraphNode, int], visited: set[GraphNode]) -> list[_ProductTerm]:
    """The terms of a sum if all are products of windows; else empty. The partial sums become `visited`."""
    terms: list[_ProductTerm] = []
    while node.op is add and not is_literal(node.inputs[1]):
        visited.add(node)
        first, last = node.inputs
        term = _term(last)
        if term is None or (not is_literal(first) and readers[first] > 1):
            return []
        terms.append(term)
        if is_literal(first):
            return terms[::-1] if first == 0 else []
        node = first
    term = _term(node)
    return [*terms, term][::-1] if term is not None else []


def _term(node: GraphNode) -> _ProductTerm | None:
    result = below(node)
    if result.op is not matmul or len(result.operands) < 2:
        return None
    x, weights = result.operands
    window = window_of(below(x))
    if window is None or window.mask is not None or len(weights.aval.shape) != 2:
        return None
    if x.aval.shape not in ((math.prod(window.sizes[:-1]), window.sizes[-1]), window.sizes):
        return None
    return _ProductTerm(window, weights, node.aval.shape)


class _WindowGrid(NamedTuple):
    """Terms whose windows start at the points of a grid, in grid order."""

    terms: list[_ProductTerm]
    start: tuple[int, ...]
    taps: tuple[int, ...]  # number of different window starts along each axis
    spacing: tuple[int, ...]  # distance of neighbouring starts along each axis

    @staticmethod
    def of(terms: list[_ProductTerm]) -> _WindowGrid | None:
        if not terms or not all(_alike(terms[0], term) for term in terms):
            return None
        terms = sorted(terms, key=lambda term: term.window.starts)
        starts = [sorted({term.window.starts[axis] for term in terms}) for axis in range(len(terms[0].window.sizes))]
        spacing = tuple(p[1] - p[0] if len(p) > 1 else 1 for p in starts)
        even = all(p == list(range(p[0], p[-1] + 1, g)) for p, g in zip(starts, spacing))
        full = [term.window.starts for term in terms] == list(product(*starts))
        if not even or not full or len(starts[-1]) > 1:
            return None
        first = terms[0].window
        bytes_of_all = math.prod(first.sizes) * len(terms) * first.array.aval.dtype.itemsize
        if bytes_of_all > ROOM:
            return None
        return _WindowGrid(terms, first.starts, tuple(map(len, starts)), spacing)

    def written(self, moved: Moved) -> GraphNode:
        """The sum as one product."""
        window, weights = self.terms[0].window, self.terms[0].weights
        *counts, channels = window.sizes
        *taps, _ = self.taps
        result = patches(
            moved(window.array),
            counts=(*counts, 1),
            sizes=(*taps, channels),
            start=self.start,
            step=(*window.step[:-1], 1),
            gap=(*self.spacing[:-1], window.step[-1]),
        )
        together = reshape(result, shape=(math.prod(counts), len(self.terms) * channels))
        total = matmul(together, self._weights(moved, weights.aval.shape[-1]))
        return node_of(reshape(total, shape=self.terms[0].shape))

    def _weights(self, moved: Moved, columns: int) -> Array:
        """All matrices stacked along rows, as a slice if they are adjacent in one array."""
        windows = [window_of(below(term.weights)) for term in self.terms]
        if all(w is not None and w.mask is None for w in windows) and len({w.array for w in windows if w}) == 1:
            starts = [w.starts for w in windows if w]
            (array, sizes), rank = (windows[0].array, windows[0].sizes), len(starts[0])  # type: ignore[union-attr]
            n_leading = rank - 2
            shape = array.aval.shape
            whole = sizes[:n_leading] == (1,) * n_leading and sizes[n_leading:] == shape[n_leading:]
            if n_leading > 0 and whole and starts == [(*at, 0, 0) for at in product(*map(range, shape[:n_leading]))]:
                return reshape(moved(array), shape=(math.prod(shape[:-1]), columns))
        return concatenate(*(moved(term.weights) for term in self.terms), axis=0)


def _alike(first: _ProductTerm, other: _ProductTerm) -> bool:
    a, b = first.window, other.window
    return (a.array, a.sizes, a.step, first.shape, first.weights.aval) == (
        b.array,
        b.sizes,
        b.step,
        other.shape,
        other.weights.aval,
    )
