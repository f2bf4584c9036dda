"""Places in the arena: blocks that live at the same time share no memory, in as little memory as can be."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.plan.arena import LINE, PAGE, Arena, room_for


def run(arena, story):
    """Take and give blocks: the offset and size of each, and which live at one time."""
    result, live, together = {}, set(), set()
    for name, size in story:
        if size is None:
            arena.free(name)
            live.discard(name)
        else:
            result[name] = (arena.allocate(name, size), size)
            together |= {(name, other) for other in live}
            live.add(name)
    return result, together


def most_at_once(story):
    live, most = {}, 0
    for name, size in story:
        if size is None:
            live.pop(name)
        else:
            live[name] = room_for(size)
        most = max(most, sum(live.values()))
    return most


def stories():
    for seed in range(60):
        draw = random.Random(seed)
        story, live = [], []
        for k in range(draw.randrange(2, 60)):
            story.append((k, draw.choice([1, 64, 5000, 100_000, draw.randrange(1, 200_000)])))
            live.append(k)
            while live and draw.random() < 0.45:
                story.append((live.pop(draw.randrange(len(live))), None))
        yield story


def assert_apart(found, together):
    for a, b in together:
        (x, m), (y, n) = found[a], found[b]
        assert x + m <= y or y + n <= x


def test_blocks_that_live_at_one_time_share_no_memory():
    for story in stories():
        first = Arena()
        result, together = run(first, story)
        assert_apart(result, together)
        assert first.top >= most_at_once(story)
        before = first.top
        better = first.improve()
        if better:
            assert_apart({name: (better[name], size) for name, (_, size) in result.items()}, together)
            assert first.top == max(better[name] + room_for(size) for name, (_, size) in result.items())
            assert most_at_once(story) <= first.top < before
        else:
            assert first.top == before
            assert not any(offset % LINE for offset, _ in result.values())


def test_most_arenas_are_as_small_as_can_be():
    tight = 0
    for story in stories():
        arena = Arena()
        run(arena, story)
        arena.improve()
        tight += arena.top <= 1.02 * most_at_once(story)
    assert tight >= 45


def test_a_large_block_gets_the_place_of_small_ones_that_are_gone():
    story = [("a", 6000), ("b", 100), ("c", 6000), ("b", None), ("a", None), ("d", 12_000), ("c", None), ("d", None)]
    arena = Arena()
    run(arena, story)
    assert arena.top > most_at_once(story)
    assert arena.improve()["d"] == 0
    assert arena.top == most_at_once(story)


@pytest.mark.parametrize("size", [PAGE, 5 * PAGE, 100 * PAGE, 2**22])
def test_no_block_begins_a_few_lines_ahead_of_one_beside_it(size):
    """A kernel that reads one and writes the other would wait for what it has written."""
    arena = Arena()
    places = [arena.allocate(name, size) % PAGE // LINE for name in "abcde"]
    for a, b in itertools.combinations(places, 2):
        assert min((a - b) % 64, (b - a) % 64) >= 7


@pytest.mark.parametrize("layers", [2, 5])
def test_gradients_have_the_values_that_they_have_in_any_arena(layers):
    def loss(ws, x):
        for k, w in enumerate(ws):
            x = np.tanh(x @ w) if k % 2 else np.maximum(x @ w, 0.0)
            x = x.reshape(-1, x.shape[1]) * (1.0 + k)
        return np.mean(x**2)

    rng = np.random.default_rng(0)
    sizes = [40, 300, 20, 150, 70, 33][: layers + 1]
    ws = [rng.standard_normal((m, n)) / np.sqrt(m) for m, n in itertools.pairwise(sizes)]
    x = rng.standard_normal((60, 40))
    compiled = tg.grad(loss)(ws, x)
    with tg.disable_jit():
        eager = tg.grad(loss)(ws, x)
    for a, b in zip(compiled, eager):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)
