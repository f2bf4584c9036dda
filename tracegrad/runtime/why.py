"""Why a function was traced again, or is not compiled, in words; and the log lines of traces."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval
from tracegrad.errors import PerformanceWarning, located
from tracegrad.logs import log
from tracegrad.trace.guards import ValueGuard
from tracegrad.trace.signature import Binder, Call
from tracegrad.trace.trace import Trace

__all__ = ["Warnings", "log_compile", "new_answer", "new_key", "new_world", "show_key", "show_kind"]


# So many times, a function may be traced again for one reason, and for all, before it is told to be slow.
MOST_FOR_ONE, MOST_FOR_ALL = 8, 24


class Warnings:
    """What one function has been warned of, once each, and what it has been traced again for."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._causes: Counter[str] = Counter()

    def plain(self, name: str, raised: str) -> None:
        """It raised when it was traced, and not as plain Python; or could not have raised what Python would."""
        self._say("plain", f"{name} runs as plain Python, uncompiled: {raised}")

    def answered(self, name: str, guard: ValueGuard) -> None:
        """A question of it got another answer."""
        advice = _NUMBER if guard.asked in ("float()", "item()", "tolist()", "format()") else _CHOICE
        self._count(name, f"{guard.asked} at {guard.location} has another answer", advice)

    def changed(self, name: str, what: str) -> None:
        """Something that it reads from outside has changed."""
        self._count(name, f"{re.split(' == | is | holds ', what)[0]} has changed", _ARGUMENT)

    def _count(self, name: str, cause: str, advice: str) -> None:
        self._causes[cause] += 1
        total = self._causes.total()
        if self._causes[cause] >= MOST_FOR_ONE or total >= MOST_FOR_ALL:
            self._say("retraced", f"{name} has been traced {total + 1} times, this time because {cause}: {advice}")

    def _say(self, about: str, message: str) -> None:
        if about not in self._said:
            self._said.add(about)
            warnings.warn(located(message), PerformanceWarning, stacklevel=2)


_NUMBER = (
    "each number makes another program; compute with the value itself, and return what is to be shown or kept, to make "
    "a number of it outside"
)
_CHOICE = (
    "each answer makes another program; choose between values by np.where or tg.cond, and repeat by tg.while_loop or "
    "tg.fori_loop"
)
_ARGUMENT = "each state makes another program; pass what changes with each call as an argument"


def show_kind(kind: Any) -> str:
    """A leaf's part of the key: `f64[3,2]`, or the type of a Python number; of a Tensor, what it is on the tape too.

    >>> show_kind((np.dtype("float32"), (2,))), show_kind(float)
    ('f32[2]', 'float')
    """
    if isinstance(kind, type):
        return kind.__name__
    if isinstance(kind[0], np.dtype):
        return str(Aval(kind[1], kind[0]))
    if kind[0] in (int, complex):
        return str(kind[1])
    cls, dtype, shape, requires_grad, is_leaf = kind  # of a Tensor
    text = f"{cls.__name__} {Aval(shape, dtype)}"
    return text if not requires_grad else f"{text} that requires grad" if is_leaf else f"{text} on the tape"


def show_key(binder: Binder, key: tuple[Any, ...]) -> list[str]:
    """What calls of a key are like: the leaves of their arguments, and what is static."""
    structure, kinds, statics = key
    names = [path for name, part in binder.arguments(structure, statics) for path in tree.paths(part, name)]
    fixed = [(p if isinstance(p, str) else binder.parameter(p), _exactly(value)) for p, value in statics]
    leaves = [f"{n}: {show_kind(kind)}" for n, kind in zip(names, kinds)]
    return leaves + [f"{n} == {text} (static)" for n, text in fixed]


def new_key(binder: Binder, known: Iterable[tuple[Any, ...]], call: Call) -> str:
    """What about `call` is unlike the most similar key that is known; of several, the last."""
    candidates = [_differences(binder, key, call) for key in reversed(list(known)) if key != call.key]
    return (
        min(candidates, key=len, default=["another signature"])[0]
        if candidates
        else "its programs were dropped from the cache"
    )


def _differences(binder: Binder, key: tuple[Any, ...], call: Call) -> list[str]:
    structure, kinds, statics = key
    new_structure, new_kinds, new_statics = call.key
    if structure != new_structure:
        before = dict(binder.arguments(structure, statics))
        after = dict(binder.arguments(new_structure, new_statics))
        changed = [
            f"the structure of {name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        ]
        # Sorted behind every difference of another kind.
        return [", ".join(changed), *changed[1:], *("" for _ in range(999))]
    names = binder.leaf_names(call)
    found = [f"{n}: {show_kind(a)} -> {show_kind(b)}" for n, a, b in zip(names, kinds, new_kinds) if a != b]
    found += _static_differences(binder, statics, new_statics)
    return [", ".join(found), *found[1:]]


def _static_differences(binder: Binder, old: Sequence[Any], new: Sequence[Any]) -> list[str]:
    before, after = dict(old), dict(new)
    found = []
    for place in (*before, *(p for p in after if p not in before)):
        if before.get(place) != after.get(place):
            name = place if isinstance(place, str) else binder.parameter(place)
            values = [_exactly(side[place]) if place in side else "nothing" for side in (before, after)]
            found.append(f"the static argument {name}: {values[0]} -> {values[1]}")
    return found


def _exactly(x: Any) -> str:
    """The value behind what `tracegrad.trace.signature.exact` made of it, as Python writes it."""
    cls, value = x if not x or isinstance(x[0], type) else (None, x)
    if cls is None:
        return f"({', '.join(map(_exactly, value))}{',' if len(value) == 1 else ''})"
    return value if isinstance(value, str) and cls is not str else repr(value)


def new_world(traces: Iterable[Trace]) -> str:
    """What the most recent trace assumed of the captured variables that does not hold."""
    for trace in traces:
        failed = trace.world.failures(trace.captures)
        if failed:
            return "; ".join(failed)
        if trace.layouts:
            return "an array lies in memory in another order"
    return "captured variables"


def new_answer(guard: ValueGuard, answer: Any) -> str:
    """The question whose answer differs."""
    return f"{guard.asked} at {guard.location}: {_short(guard.seen)} -> {_short(np.asarray(answer))}"


def _short(x: Any) -> str:
    return repr(x.item()) if x.ndim == 0 else f"an array of shape {x.shape}"


def log_compile(name: str, trace: Trace, program: Any, tracing: float, compiling: float) -> None:
    """One line for a new trace."""
    guards = len(trace.guards) + sum(not guard.implied for guard in trace.world.guards)
    log(
        "compile", "%s: traced %d nodes, %d guards, %d captured arrays in %.1f ms; program from %s in %.1f ms", name,
        len(trace.graph.nodes), guards, len(trace.captures), 1e3 * tracing,
        getattr(program, "cache", "the interpreter"), 1e3 * compiling,
    )  # fmt: skip
