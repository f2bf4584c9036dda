"""Minimum cuts, by trying all of them."""

from __future__ import annotations

import itertools
import random

from tracegrad.transforms.min_cut import source_side


def test_the_source_side_is_the_smallest_of_the_least_cuts() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        size = draw.randrange(3, 8)
        ends = [draw.sample(range(size), 2) for _ in range(draw.randrange(1, 3 * size))]
        edges = [(a, b, draw.choice((1, 2, 3, 50, 2**30))) for a, b in ends]
        inner = range(1, size - 1)
        sides = [{0, *side} for n in range(size - 1) for side in itertools.combinations(inner, n)]
        weights = [sum(w for a, b, w in edges if a in side and b not in side) for side in sides]
        least = [side for side, weight in zip(sides, weights) if weight == min(weights)]
        assert source_side(size, edges, 0, size - 1) == min(least, key=len), seed
