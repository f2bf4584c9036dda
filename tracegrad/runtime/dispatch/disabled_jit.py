"""Calls that are not compiled: jit is disabled, or a trace was given up. Derivatives are traced at each call.

What is only called runs as it stands. A derivative is recorded as compiled code has it recorded, so that it passes
through all that does there: through `np.array([x[0], x[1]])`, arrays that are filled element by element, `math`,
`float`, SciPy. Its graph is then replayed by NumPy. Loops are recorded turn by turn, so each line runs as often as in
Python, and what is printed or looked at on the way are values. The trace is of one call (`World.once`), so what it
could not repeat is no reason to end it.

On Tensors, too, a function runs as it stands, and they have the nodes of each operation. Where that loses a derivative,
which NumPy, SciPy and `math` do that ask them for an ndarray or a number, the call is recorded as well.

The tape is asked where a trace does not know how, as for complex numbers. A number that is taken there of what is
differentiated would lose its derivative, and raises instead.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Collection, Hashable, Sequence
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
from tracegrad.runtime.diagnostics.nan_origin import look
from tracegrad.runtime.dispatch.specializations import ROOM, Found, Interpreted, Path
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder.abort import STEPS, TURN_BY_TURN
from tracegrad.trace.driver.trace import Trace, trace_call
from tracegrad.trace.effects.effects import Effect, set_attribute
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.consumed_iterators import require_nothing_taken
from tracegrad.trace.sources.signature import Call
from tracegrad.trace.sources.sources import on_call
from tracegrad.transforms.container_writeback import shared_by, value_of

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher

# What Python says where a method of ndarray's, which it has looked up in the class, is given something else.
_OF_NDARRAYS = re.compile(r"descriptor '(\w+)' for 'numpy.ndarray' objects doesn't apply to a")

__all__ = ["as_it_stands", "as_memory_is", "eagerly", "once"]


def eagerly(
    function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any], why: str = "", call: Call | None = None
) -> Any:
    """A call of a traced function that is not compiled, for a reason or because nobody wants it; `call` is what its
    arguments were taken apart to, if they were."""
    if STATE.depth or STATE.level is not None:
        return function.body(*args, **kwargs)
    if function.has_plain:
        return as_it_stands(function, args, kwargs, why)
    return once(function, call or function.binder.take_apart(args, kwargs), args, kwargs, why)


def once(function: Dispatcher, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> Any:
    """A call of a derivative that is not compiled, as there is a reason or nobody wants it: what it does is recorded as
    a trace would record it, for this call alone, and replayed by NumPy. Where that is not known either, it runs on the
    tape."""
    found = None
    with plainly(why):
        try:
            if not call.carriers and not any(map(_is_of_subclass, call.leaves)):
                found = function._guarded(call, lambda: _recorded(function, call))
        except LostDerivativeError:
            raise
        except TracegradError as error:
            if not getattr(error, "on_tape", True):
                raise
            why = f"{why}; {error}" if why and why != str(error) else str(error)
        if found is not None and not _overlaps(call, found):
            return _finished(function, call, found)
        if found is not None:
            _undo(found[0].trace)
    rewind(call)
    _require_known_classes(call, why)
    effects: Sequence[Effect] = call.writes
    several = set[int]()
    if found is not None:
        world, effects = found[0].trace.world, found[0].trace.effects
        with on_call(call):
            shared = _shared_memory(found[0].trace)
            _require_own_memory(call, found, shared)
            several = {id(source.read()) for group in found[0].trace.groups for source in group}
        why = f"{why}; {shared}" if why else shared
        if world.class_asked:  # on the tape a value has another class
            raise UnsupportedError(f"{world.class_asked}: {why}")
    require_nothing_taken(call, why)
    with plainly(why), shared_by(several):
        return _on_the_tape(function, call, args, kwargs, effects, why)


def _require_known_classes(call: Call, why: str) -> None:
    """UnsupportedError where an argument is a memory map or the like, which would be an ndarray to code on the tape."""
    classes = [kind[2] for kind in call.key[1] if type(kind) is tuple and len(kind) == 3 and kind[2] is not np.generic]
    if classes:
        raise UnsupportedError(located(f"an argument is a {classes[0].__name__}: {why}"))


def as_memory_is(function: Dispatcher, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace) -> Any:
    """A call that is compiled, but writes to what is also something else that it reads: its graph does not know that,
    so that it runs as plain Python, or as it is recorded."""
    why = _shared_memory(trace)
    function.told.plain(function.name, why)
    if not function.has_plain:
        return once(function, call, args, kwargs, "")
    with plainly(why):
        return function.body(*args, **kwargs)


def _shared_memory(trace: Trace) -> str:
    """Why a call cannot write as its graph does. Within `on_call`."""
    sealed = [source for source in trace.written if not source.read().flags.writeable]
    if sealed:
        return f"{sealed[0]} cannot be written to: the array is read-only"
    written = " and ".join(sorted({str(source) for source in trace.written}))
    return f"{written or 'a container'}, which it writes to, shares memory with something else that it reads"


def _require_own_memory(call: Call, found: Found, why: str) -> None:
    """UnsupportedError where an argument has part in what is written and read: on the tape it would not."""
    arguments = [x for x in call.leaves if isinstance(x, np.ndarray)]
    captured = [x for x in found[2] if isinstance(x, np.ndarray)]
    for w in [source.read() for source in found[0].trace.written]:
        own = [x for x in arguments if x is w]
        others = [x for x in arguments if x is not w] + own[1:] + (captured if own else [])
        if any(np.may_share_memory(x, w) for x in others):
            raise UnsupportedError(located(f"{why}; pass a copy of one of them"))


def _on_the_tape(
    function: Dispatcher, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], effects: Sequence[Effect], why: str
) -> Any:
    """A call as it stands, of which is known what it writes: it leaves values there, not what stands for them."""
    try:
        return function.body(*args, **kwargs)
    except TypeError as error:
        name = _OF_NDARRAYS.match(str(error))
        if name is None:
            raise
        said = f"np.ndarray.{name[1]}(x) takes no value that is being differentiated, say x.{name[1]}()"
        raise UnsupportedError(f"{said}: {why}") from error
    finally:
        if effects and function.body is not function.fun:
            with on_call(call):
                _leave_values(effects)


def _leave_values(effects: Sequence[Effect]) -> None:
    for effect in effects:
        with contextlib.suppress(LookupError, AttributeError):
            holder = effect.holder.read()
            if effect.kind == "cell":
                holder.cell_contents = value_of(holder.cell_contents)
            items = list(enumerate(holder) if isinstance(holder, list | deque) else _named(holder).items())
            for k, x in items:
                if (value := value_of(x)) is not x:
                    set_attribute(holder, k, value) if hasattr(holder, "__dict__") else holder.__setitem__(k, value)


def _named(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})


def as_it_stands(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any], why: str = "") -> Any:
    """A call of a function that derives nothing itself. Where Tensors lose a derivative in it, what counts is its
    recording, if there is one that keeps it; unless the function changes what is outside, which is done by then."""
    refused = WARNED.refused
    with holding() as told, plainly(why):
        try:
            result, error = function.body(*args, **kwargs), None
        except RuntimeError as raised:
            if WARNED.refused == refused:
                raise
            result, error = None, raised
        if error is None and not told:
            return result
        instead = _instead(function, args, kwargs)
        if instead is not None:
            told.clear()
            return instead[0]
    if error is not None:
        raise error
    return result


def _instead(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
    """The result of a call that has been made, with the derivative that was lost there."""
    if function._is_method_call(args):
        function, args = function._method_of(args[0]), args[1:]
    with holding() as told:
        try:
            call = function.binder.take_apart(args, kwargs)
            call.again = True
            known = not call.carriers and not call.plainly
            found = function._guarded(call, lambda: _recorded(function, call)) if known else None
        except Exception:  # whatever it is, the call has met it
            return None
        finally:
            lost = bool(told)
            told.clear()
    if found is not None:
        _undo(found[0].trace)  # which the call itself has done
    if found is None or lost or found[0].trace.effects or found[0].trace.raised:
        return None
    return (_finished(function, call, found),)


def _undo(trace: Trace) -> None:
    """Take back what the recording of a call has done to objects that it was given as they are."""
    world: Any = trace.world
    world.natives.rewind()


def _overlaps(call: Call, found: Found) -> bool:
    with on_call(call):
        return found[0].overlaps(call, found[2])


def _finished(function: Dispatcher, call: Call, found: Found) -> Any:
    """The result of a call that was recorded."""
    path, outputs, captured = found
    error, path.trace.error = path.trace.error, None
    if error is not None:
        with on_call(call):
            path.trace.finish(outputs or (), effects=function.effects)
        raise error
    if STATE.watching:
        look(function, call, path, outputs or (), captured)
    with on_call(call):
        if path.on_tape is None:
            return path.trace.finish(outputs or (), effects=function.effects)
        return path.on_tape.finish(call, captured, outputs or (), function)


def _inputs(call: Call) -> list[Any]:
    """The leaves of a call as inputs of a graph: for objects, which a trace of one call takes as they are, any
    number."""
    return [x if isinstance(x, np.ndarray | np.generic | float | int | complex) else 0 for x in call.leaves]


def _is_of_subclass(x: Any) -> bool:
    return isinstance(x, np.ndarray) and type(x) is not np.ndarray


def _recorded(function: Dispatcher, call: Call) -> Found | None:
    """What a call records, and what NumPy makes of it; None where it has to run as it stands."""
    room, varying = ROOM, frozenset[Hashable]([TURN_BY_TURN, STEPS])
    while True:
        try:
            path, outputs, captured = _replayed(function, call, room, varying)
        except CapacityError:
            room *= 16
            continue
        views = path.views(call, captured) if outputs is not None else frozenset()
        if not views:
            path.trace.world.printed.settle(outputs is not None)
        if outputs is not None and not views:
            return path, outputs, captured
        _undo(path.trace)
        if not views:
            return None
        varying |= views


def _replayed(
    function: Dispatcher, call: Call, room: int, varying: Collection[Hashable]
) -> tuple[Path, Sequence[Any] | None, list[Any]]:
    """The path of a trace of this one call, its outputs, which are None where it does not come to its end, and the
    captured arrays."""
    trace = None
    try:
        with room_for(room):
            trace = trace_call(function.fun, function.body, call, None, {*varying}, function._shared)
        if trace.raised:
            raise UnsupportedError(trace.raised)
        on_tape = None
        if trace.tape is not None:
            from tracegrad.runtime.dispatch.compiled_backward import OnTape

            on_tape = OnTape(trace, function.name, function.body, None)
        captured = [c.settle() for c in trace.captures]
        path = Path(trace, Interpreted((on_tape or trace).graph), {}, on_tape)
        outputs, diverged = path.run(_inputs(call), captured)
    except TracegradError:
        if trace is not None:
            _undo(trace)
        raise
    return path, outputs if diverged is None else None, captured
