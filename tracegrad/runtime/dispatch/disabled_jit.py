"""Run calls without compilation: `disable_jit`, or a trace that was given up.

A function that derives nothing runs as plain Python. A derivative is traced at each call, so that it passes through
everything a compiled derivative passes through: `np.array([x[0], x[1]])`, arrays filled element by element, `math`,
`float`, SciPy. Its graph is then replayed by NumPy. Loops are recorded iteration by iteration, so each line runs as
often as in Python, and printed or inspected values are concrete. The trace serves one call (`World.once`), so an action
that it could not repeat does not abort it.

On Tensors, a function also runs as plain Python, and each operation records a node. If that loses a derivative, as in
NumPy, SciPy and `math`, which convert Tensors to ndarrays or numbers, the call is traced as well.

The eager tape computes a derivative that no trace supports, for example of complex numbers. A conversion to a number
would lose its derivative there, and raises instead.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.control.while_op import room_for
from tracegrad.errors import (
    WARNED,
    CapacityError,
    LostDerivativeError,
    TracegradError,
    UnsupportedError,
    holding,
    located,
    plainly,
)
from tracegrad.runtime.diagnostics.nan_origin import check_outputs
from tracegrad.runtime.dispatch.python_support import require_known_python
from tracegrad.runtime.dispatch.specializations import ROOM, Interpreted, PathResult, TracePath, tape_of
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder.facts import Fact, TraceFact
from tracegrad.trace.driver.trace import Trace, trace_call
from tracegrad.trace.effects.effects import Effect, set_attribute
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.consumed_iterators import require_nothing_consumed
from tracegrad.trace.sources.signature import BoundCall
from tracegrad.trace.sources.sources import on_call
from tracegrad.transforms.container_writeback import shared_by, value_of

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher
    from tracegrad.typing import Array

# Python's error text for a method of ndarray that is called on another type.
_OF_NDARRAYS = re.compile(r"descriptor '(\w+)' for 'numpy.ndarray' objects doesn't apply to a")


def eagerly(
    function: Dispatcher, args: tuple[object, ...], kwargs: dict[str, Any], why: str = "", call: BoundCall | None = None
) -> Any:
    """Run a call of a traced function without compilation, for the reason `why` or because it is disabled; `call` has
    its unpacked arguments, if they are unpacked."""
    if STATE.depth or STATE.level is not None:
        return function.body(*args, **kwargs)
    if function.has_plain:
        return run_plain_python(function, args, kwargs, why)
    return once(function, call or function.binder.bind(args, kwargs), args, kwargs, why)


def once(function: Dispatcher, call: BoundCall, args: tuple[object, ...], kwargs: dict[str, Any], why: str) -> Any:
    """Run a call of a derivative without compilation: trace it for this call alone, and replay the graph by NumPy. If
    it cannot be traced either, run it on the tape."""
    result = None
    with plainly(why):
        try:
            if not call.carriers and not any(map(_is_of_subclass, call.leaves)):
                result = function._guarded(call, lambda: _recorded(function, call))
        except LostDerivativeError:
            raise
        except TracegradError as error:
            if not getattr(error, "on_tape", True):
                raise
            why = f"{why}; {error}" if why and why != str(error) else str(error)
        if result is not None and not _overlaps(call, result):
            return _finished(function, call, result)
        if result is not None:
            _undo(result[0].trace)
    rewind(call)
    _require_known_classes(call, why)
    effects: Sequence[Effect] = call.writes
    aliased = set[int]()
    if result is not None:
        world, effects = result[0].trace.world, result[0].trace.effects
        with on_call(call):
            shared = _shared_memory(result[0].trace)
            _require_disjoint(call, result, shared)
            aliased = {id(source.read()) for group in result[0].trace.groups for source in group}
        why = f"{why}; {shared}" if why else shared
        if world.class_read:  # a value on the tape has another class
            raise UnsupportedError(f"{world.class_read}: {why}")
    require_nothing_consumed(call, why)
    with plainly(why), shared_by(aliased):
        return _on_the_tape(function, call, args, kwargs, effects, why)


def _require_known_classes(call: BoundCall, why: str) -> None:
    """Raise UnsupportedError for a memory map or another subclass of ndarray, which would be an ndarray on the tape."""
    classes = [kind[2] for kind in call.key[1] if type(kind) is tuple and len(kind) == 3 and kind[2] is not np.generic]
    if classes:
        raise UnsupportedError(located(f"an argument is a {classes[0].__name__}: {why}"))


def run_aliased(
    function: Dispatcher,
    call: BoundCall,
    args: tuple[object, ...],
    kwargs: dict[str, Any],
    trace: Trace,
) -> Any:
    """Run a compiled call whose outputs overwrite other operands that it reads. Its graph does not model the aliasing,
    so the call runs as plain Python, or is recorded."""
    why = _shared_memory(trace)
    function.retrace_warnings.plain(function.name, why)
    if not function.has_plain:
        return once(function, call, args, kwargs, "")
    with plainly(why):
        return function.body(*args, **kwargs)


def _shared_memory(trace: Trace) -> str:
    """Why a call cannot write as its graph does. Used within `on_call`."""
    sealed = [source for source in trace.written if not source.read().flags.writeable]
    if sealed:
        return f"{sealed[0]} cannot be written to: the array is read-only"
    written = " and ".join(sorted({str(source) for source in trace.written}))
    return f"{written or 'a container'}, which it writes to, shares memory with something else that it reads"


def _require_disjoint(call: BoundCall, result: PathResult, why: str) -> None:
    """Raise UnsupportedError if an argument aliases an array that is written and read: the tape does not model the
    alias."""
    arguments = [x for x in call.leaves if isinstance(x, np.ndarray)]
    captured = [x for x in result[2] if isinstance(x, np.ndarray)]
    for w in [source.read() for source in result[0].trace.written]:
        same = [x for x in arguments if x is w]
        others = [x for x in arguments if x is not w] + same[1:] + (captured if same else [])
        if any(np.may_share_memory(x, w) for x in others):
            raise UnsupportedError(located(f"{why}; pass a copy of one of them"))


def _on_the_tape(
    function: Dispatcher,
    call: BoundCall,
    args: tuple[Any, ...],
    kwargs: dict[str, object],
    effects: Sequence[Effect],
    why: str,
) -> Any:
    """Run a call on the tape; its known writes store values, not proxies."""
    try:
        return function.body(*args, **kwargs)
    except TypeError as error:
        name = _OF_NDARRAYS.match(str(error))
        if name is None:
            raise
        message = f"np.ndarray.{name[1]}(x) takes no value that is being differentiated, say x.{name[1]}()"
        raise UnsupportedError(f"{message}: {why}") from error
    finally:
        if effects and function.body is not function.fun:
            with on_call(call):
                _unwrap_written(effects)


def _unwrap_written(effects: Sequence[Effect]) -> None:
    for effect in effects:
        with contextlib.suppress(LookupError, AttributeError):
            holder = effect.holder.read()
            if effect.kind == "cell":
                holder.cell_contents = value_of(holder.cell_contents)
            items = list(enumerate(holder) if isinstance(holder, list | deque) else _named(holder).items())
            for k, x in items:
                if (value := value_of(x)) is not x:
                    set_attribute(holder, k, value) if hasattr(holder, "__dict__") else holder.__setitem__(k, value)


def _named(holder: object) -> Any:
    return holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})


def run_plain_python(
    function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, dict[str, Array]], why: str = ""
) -> object:
    """Run a function that derives nothing itself as plain Python. If a Tensor loses its derivative, a recording of the
    call that keeps the derivative replaces the result, unless the function has side effects, which are already done."""
    refused = WARNED.refused
    with holding() as warned, plainly(why):
        try:
            result, error = function.body(*args, **kwargs), None
        except RuntimeError as raised:
            if WARNED.refused == refused:
                raise
            result, error = None, raised
        if error is None and not warned:
            return result
        replacement = _with_derivative(function, args, kwargs)
        if replacement is not None:
            warned.clear()
            return replacement[0]
    if error is not None:
        raise error
    return result


def _with_derivative(function: Dispatcher, args: tuple[object, ...], kwargs: dict[str, Any]) -> tuple[object] | None:
    """The result of a completed call with the lost derivative restored, or None."""
    if function._is_method_call(args):
        function, args = function._method_of(args[0]), args[1:]
    with holding() as warned:
        try:
            call = function.binder.bind(args, kwargs)
            call.again = True
            known = not call.carriers and not call.plainly
            result = function._guarded(call, lambda: _recorded(function, call)) if known else None
        except Exception:  # the call itself has raised it, too
            return None
        finally:
            lost = bool(warned)
            warned.clear()
    if result is not None:
        _undo(result[0].trace)  # the call itself has done the effects
    if result is None or lost or result[0].trace.effects or result[0].trace.raised:
        return None
    return (_finished(function, call, result),)


def _undo(trace: Trace) -> None:
    """Undo the effects of a recording on objects that were passed unchanged."""
    world: Any = trace.world
    world.natives.rewind()


def _overlaps(call: BoundCall, result: PathResult) -> bool:
    with on_call(call):
        return result[0].overlaps(call, result[2])


def _finished(function: Dispatcher, call: BoundCall, result: PathResult) -> object:
    """The result of a recorded call."""
    path, outputs, captured = result
    error, path.trace.error = path.trace.error, None
    if error is not None:
        with on_call(call):
            path.trace.finish(outputs or (), effects=function.effects)
        raise error
    if STATE.watching:
        check_outputs(function, call, path, outputs or (), captured)
    with on_call(call):
        if path.on_tape is None:
            return path.trace.finish(outputs or (), effects=function.effects)
        return path.on_tape.finish(call, captured, outputs or (), function)


def _inputs(call: BoundCall) -> list[Any]:
    """The leaves of a call as graph inputs; an object, which a trace of one call takes unchanged, becomes a dummy
    number."""
    return [x if isinstance(x, np.ndarray | np.generic | float | int | complex) else 0 for x in call.leaves]


def _is_of_subclass(x: object) -> bool:
    return isinstance(x, np.ndarray) and type(x) is not np.ndarray


def _recorded(function: Dispatcher, call: BoundCall) -> PathResult | None:
    """Record a call and replay it by NumPy; None if it must run as plain Python."""
    room, facts = ROOM, frozenset[Fact]([TraceFact.ITERATION_BY_ITERATION, TraceFact.STEPS])
    while True:
        try:
            path, outputs, captured = _replayed(function, call, room, facts)
        except CapacityError:
            room *= 16
            continue
        views = path.views(call, captured) if outputs is not None else frozenset()
        if not views:
            path.trace.world.printed.finish(outputs is not None)
        if outputs is not None and not views:
            return path, outputs, captured
        _undo(path.trace)
        if not views:
            return None
        facts |= views


def _replayed(
    function: Dispatcher, call: BoundCall, room: int, facts: Collection[Fact]
) -> tuple[TracePath, Sequence[Any] | None, list[Any]]:
    """The path of a trace of this one call, its outputs (None if the trace was aborted), and the captured arrays."""
    trace = None
    try:
        require_known_python()
        with room_for(room):
            trace = trace_call(function.fun, function.body, call, None, {*facts}, function._shared)
        if trace.raised:
            raise UnsupportedError(trace.raised)
        on_tape = tape_of(trace, function, None)
        captured = [c.release_array() for c in trace.captures]
        path = TracePath(trace, Interpreted((on_tape or trace).graph), {}, on_tape)
        outputs, diverged = path.run(_inputs(call), captured)
    except TracegradError:
        if trace is not None:
            _undo(trace)
        raise
    return path, outputs if diverged is None else None, captured
