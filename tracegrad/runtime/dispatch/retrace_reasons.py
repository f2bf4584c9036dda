"""Explain in words why a function was traced again or is not compiled, and log traces."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval
from tracegrad.errors import PerformanceWarning, located
from tracegrad.runtime.dispatch.plain_python_policy import MAX_RETRACES_FOR_ONE, MAX_UNMET
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.value_guards import GuardValues, ValueGuard
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.sources.signature import Binder, BoundCall
from tracegrad.utils.log import enabled, log

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


MAX_RETRACES_FOR_ALL = TUNING.plain_python.max_retraces_for_all


def limited(last: str = "") -> str:
    """The message for a function that is no longer traced."""
    return f"{MAX_UNMET} calls for such arguments, one after the other, were traced again{last}"


class Warnings:
    """The warnings of one function, each issued once, and counts of the causes of its retraces."""

    def __init__(self) -> None:
        self._issued: set[str] = set()
        self._causes: Counter[str] = Counter()
        self._last = ""

    def plain(self, name: str, why: str) -> bool:
        """Warn that calls run as plain Python: the trace raised and Python did not, errors would differ, or arguments
        cannot be traced. Returns whether there is a reason."""
        if why:
            self._warn_once("plain", f"{name} runs as plain Python, uncompiled: {why}")
        return bool(why)

    def answered(self, name: str, guard: ValueGuard) -> None:
        """Count a retrace because a value guard has changed."""
        advice = _NUMBER if guard.query in ("float()", "item()", "tolist()", "format()") else _CHOICE
        self._count(name, f"{guard.query} at {guard.location} has another answer", advice)

    def changed(self, name: str, assumption: str) -> None:
        """Count a retrace because a captured variable has changed."""
        self._count(name, f"{re.split(' == | is | holds ', assumption)[0]} has changed", _ARGUMENT)

    def keyed(self, name: str, why: str, alike: bool) -> None:
        """Count a retrace because of new arguments, of kinds that may be `alike`."""
        self._last = f", the last time because of {why}"
        if alike:
            self._warn_once("retraced", f"{name} is traced again and again, this time because of {why}: {_OBJECT}")

    def limited(self, name: str) -> None:
        """Warn that many calls were traced without a valid program."""
        self._warn_once("limited", f"{name} runs as plain Python, uncompiled: {limited(self._last)}")

    def slower(self, name: str, by_programs: float, plainly: float) -> str:
        """Warn that calls are faster as plain Python, given the seconds of both; returns the reason."""
        result = f"a call took {_time(plainly)} so, and {_time(by_programs)} as its program had to be traced or found"
        why = f"that is quicker, as was measured: {result}{self._last}"
        self._warn_once("limited", f"{name} runs as plain Python, uncompiled, as long as {why}")
        return why

    def _count(self, name: str, cause: str, advice: str) -> None:
        self._causes[cause] += 1
        self._last = f", the last time because {cause}"
        total = self._causes.total()
        if self._causes[cause] >= MAX_RETRACES_FOR_ONE or total >= MAX_RETRACES_FOR_ALL:
            self._warn_once(
                "retraced", f"{name} has been traced {total + 1} times, this time because {cause}: {advice}"
            )

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._issued:
            self._issued.add(about)
            warnings.warn(located(message), PerformanceWarning, stacklevel=2)


_NUMBER = (
    "each number makes another program; compute with the value itself, and return what is to be shown or kept, to make "
    "a number of it outside"
)
_CHOICE = (
    "each answer makes another program; choose between values by np.where or tg.cond, and repeat by tg.while_loop or "
    "tg.fori_loop"
)
_OBJECT = "each object makes another program; pass the same one, or make it inside"
_ARGUMENT = "each state makes another program; pass what changes with each call as an argument"


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} us" if seconds < 1e-2 else f"{1e3 * seconds:.0f} ms"


def show_kind(kind: tuple[Any, ...] | type) -> str:
    """A leaf's part of the key: `f64[3,2]`, or the type of a Python number; for a Tensor also its state on the tape.

    >>> show_kind((np.dtype("float32"), (2,))), show_kind(float)
    ('f32[2]', 'float')
    """
    if isinstance(kind, type):
        return kind.__name__
    if isinstance(kind[0], np.dtype):
        return str(Aval(kind[1], kind[0]))
    if kind[0] in (int, complex):
        return str(kind[1])
    cls, dtype, shape, requires_grad, is_leaf = kind  # the kind of a Tensor
    text = f"{cls.__name__} {Aval(shape, dtype)}"
    return text if not requires_grad else f"{text} that requires grad" if is_leaf else f"{text} on the tape"


def show_key(binder: Binder, key: tuple[Any, ...]) -> list[str]:
    """Describe a key: the leaves of the arguments, and the static values."""
    structure, kinds, statics = key
    names = [path for name, argument in binder.arguments(structure, statics) for path in tree.paths(argument, name)]
    fixed = [(p if isinstance(p, str) else binder.parameter(p), _exactly(value)) for p, value in statics]
    leaves = [f"{n}: {show_kind(kind)}" for n, kind in zip(names, kinds)]
    return leaves + [f"{n} == {text} (static)" for n, text in fixed]


def new_key(binder: Binder, known: Iterable[tuple[object, ...]], call: BoundCall) -> str:
    """The difference of `call` from the most similar known key; of several, the last."""
    candidates = [_differences(binder, key, call) for key in reversed(list(known)) if key != call.key]
    return (
        min(candidates, key=len, default=["another signature"])[0]
        if candidates
        else "its programs were dropped from the cache, or settings.disable is another"
    )


def _differences(binder: Binder, key: tuple[Any, ...], call: BoundCall) -> list[str]:
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
        # Sorted after all other differences.
        text = ", ".join(changed) or f"an object that is another one among the arguments {new_structure}"
        return [text, *changed[1:], *("" for _ in range(999))]
    names = binder.leaf_names(call)
    results = [f"{n}: {show_kind(a)} -> {show_kind(b)}" for n, a, b in zip(names, kinds, new_kinds) if a != b]
    results += _static_differences(binder, statics, new_statics)
    return [", ".join(results), *results[1:]]


def _static_differences(binder: Binder, old: Sequence[Any], new: Sequence[Any]) -> list[str]:
    before, after = dict(old), dict(new)
    results = []
    for parameter in (*before, *(p for p in after if p not in before)):
        if before.get(parameter) != after.get(parameter):
            name = parameter if isinstance(parameter, str) else binder.parameter(parameter)
            values = [_exactly(side[parameter]) if parameter in side else "nothing" for side in (before, after)]
            results.append(f"the static argument {name}: {values[0]} -> {values[1]}")
    return results


def _exactly(x: Any) -> str:
    """The repr of a value encoded by `tracegrad.trace.sources.signature.exact`."""
    cls, value = x if not x or isinstance(x[0], type) else (None, x)
    if cls is None:
        return f"({', '.join(map(_exactly, value))}{',' if len(value) == 1 else ''})"
    return value if isinstance(value, str) and cls is not str else repr(value)


def new_world(traces: Iterable[Trace]) -> str:
    """The assumption about captured variables of the most recent trace that does not hold."""
    for trace in traces:
        failed = trace.world.failures(trace.captures)
        if failed:
            return "; ".join(failed)
        if trace.layouts:
            return "an array lies in memory in another order"
    return "captured variables"


def new_guard_value(guard: ValueGuard, value: object) -> str:
    """The value guard that differs."""
    return f"{guard.query} at {guard.location}: {_short(guard.value)} -> {_short(np.asarray(value))}"


def _short(x: NDArray) -> str:
    return repr(x.item()) if x.ndim == 0 else f"an array of shape {x.shape}"


def report_retrace(function: Any, spec: Any, call: BoundCall, guard_values: GuardValues) -> None:
    """Log why the function is retraced, and warn about repeated retraces."""
    retrace_warnings, keys = function.retrace_warnings, guard_values.keys
    same = [p for p in spec.paths if p.keys[: len(keys)] == keys]
    other = [p for p in spec.paths if p.keys[: len(keys) - 1] == keys[:-1] and len(p.keys) >= len(keys)]
    result = [g for g in other[0].trace.guards if g.number == len(keys) - 1] if keys and other and not same else []
    guard = result[0] if result else None
    if enabled("retrace"):
        if not spec.paths:
            why = new_key(function.binder, function._specializations, call)
        else:
            why = new_world(p.trace for p in same) if guard is None else new_guard_value(guard, guard_values.values[-1])
        log("retrace", "%s: %s", function.name, why)
    if guard is not None:
        retrace_warnings.answered(function.name, guard)
    elif same:
        retrace_warnings.changed(function.name, new_world(p.trace for p in same))
    elif not spec.paths and len(function._specializations) > MAX_RETRACES_FOR_ONE:
        why = new_key(function.binder, function._specializations, call)
        retrace_warnings.keyed(function.name, why, function._unmet.often(call))


def log_compile(name: str, trace: Trace, program: object, tracing: float, compiling: float) -> None:
    """Log a new trace in one line."""
    guards = len(trace.guards) + sum(not guard.implied for guard in trace.world.guards)
    log(
        "compile",
        "%s: traced %d nodes, %d guards, %d captured arrays in %.1f ms; program from %s in %.1f ms",
        name,
        len(trace.graph.nodes),
        guards,
        len(trace.captures),
        1e3 * tracing,
        getattr(program, "cache", "the interpreter"),
        1e3 * compiling,
    )
