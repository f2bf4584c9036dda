"""Find repeated subsequences in a token sequence: the candidates for loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


# Lengths, in tokens, of the contexts that are compared to find candidate periods. A longer context distinguishes the
# occurrences of a token that an iteration contains several times.
_CONTEXTS = (1, 2, 4, 8, 16, 32, 64)
# Number of the most frequent distances, for each context length, that become candidate periods.
_MAX_PERIODS = 200


class RepeatRun(NamedTuple):
    """A maximal run: a part of the sequence in which each token equals the token `period` later."""

    start: int
    period: int
    length: int

    @property
    def iterations(self) -> int:
        return self.length // self.period


def runs(tokens: Sequence[int], least: int) -> Iterator[RepeatRun]:
    """The maximal runs of at least `least` iterations, short periods first.

    >>> list(runs([7, 1, 2, 1, 2, 1, 2, 9], 3))
    [RepeatRun(start=1, period=2, length=6)]
    """
    if not _may_repeat(tokens, least):
        return
    codes = np.asarray(tokens, np.int64)
    for period in _periods(codes, least):
        alike = np.flatnonzero(np.diff(np.concatenate([[0], codes[:-period] == codes[period:], [0]]).astype(np.int8)))
        starts, lengths = alike[::2], alike[1::2] - alike[::2] + period
        enough = lengths >= least * period
        for start, length in zip(starts[enough].tolist(), lengths[enough].tolist()):
            yield RepeatRun(start, period, length)


def _may_repeat(tokens: Sequence[int], least: int) -> bool:
    """Whether some part of the sequence contains each of its tokens often enough for a run.

    A token that a part has less often is in no run of that part, which is cut there.

    >>> [_may_repeat(tokens, 3) for tokens in ([1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3, 1], [1, 2, 9, 1, 2, 9, 2, 1])]
    [True, False, False]
    """
    segments = [tokens]
    while segments:
        segment = segments.pop()
        counts = Counter(segment)
        rare = {x for x, count in counts.items() if count < least}
        if not rare:
            return True
        begin = 0
        for i, x in enumerate(segment):
            if x in rare:
                if i - begin >= least:
                    segments.append(segment[begin:i])
                begin = i + 1
        if len(segment) - begin >= least:
            segments.append(segment[begin:])
    return False


def _periods(codes: np.ndarray[tuple[int], np.dtype[np.int64]], least: int) -> list[int]:
    """The frequent distances between successive occurrences of a context, in ascending order."""
    results: set[int] = set()
    context = _scattered(codes)
    for length in _CONTEXTS:
        if length > 1:
            half = length // 2
            if len(context) <= half:
                break
            # Different contexts may have one hash; `runs` therefore compares token by token.
            context = _scattered(context[:-half] + (context[half:] >> np.uint64(7)))
        order = np.argsort(context, kind="stable")
        ordered = context[order]
        distances, counts = np.unique(np.diff(order)[ordered[1:] == ordered[:-1]], return_counts=True)
        enough = counts >= least - 1
        frequent = np.argsort(-counts[enough], kind="stable")[:_MAX_PERIODS]
        results.update(distances[enough][frequent].tolist())
    return sorted(results)


def _scattered(codes: NDArray) -> np.ndarray[Any, Any]:
    """Pseudorandom hashes of numbers: multiplied by an odd number, with their halves mixed."""
    mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))
