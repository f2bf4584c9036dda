"""Calls while jit is disabled: Python and NumPy run the function, and derivatives are traced at each call.

What is only called runs as it stands. A derivative is recorded as compiled code has it recorded, so that it passes
through all that does there: through `np.array([x[0], x[1]])`, arrays that are filled element by element, `math`,
`float`, SciPy. Its graph is then replayed by NumPy. Loops are recorded turn by turn, so each line runs as often as in
Python, and what is printed or looked at on the way are values.

On Tensors, too, a function runs as it stands, and they have the nodes of each operation. Where that loses a derivative,
which NumPy, SciPy and `math` do that ask them for an ndarray or a number, the call is recorded as well.

The tape is asked where a trace does not know how, as for complex numbers. A number that is taken there of what is
differentiated would lose its derivative, and raises instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.control.until import room_for
from tracegrad.errors import (
    WARNED,
    CapacityError,
    LostDerivativeError,
    TracegradError,
    UnsupportedError,
    holding,
    plainly,
)
from tracegrad.quiet import sprung
from tracegrad.runtime.anomalies import look
from tracegrad.runtime.paths import ROOM, Found, Interpreted, Path
from tracegrad.settings import jit_disabled
from tracegrad.torch.modes import STATE
from tracegrad.trace.endings import STEPS, TURN_BY_TURN
from tracegrad.trace.signature import Call
from tracegrad.trace.sources import on_call
from tracegrad.trace.trace import trace_call

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch import Dispatcher

__all__ = ["as_it_stands", "eagerly"]


def eagerly(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a traced function that is not compiled."""
    if not jit_disabled() or STATE.depth or STATE.level is not None or sprung():
        return function.body(*args, **kwargs)
    if function.body is function.fun and function.effects:  # not a derivative, nor a backward pass
        return as_it_stands(function, args, kwargs)
    found, why = None, None
    try:
        call = function.binder.take_apart(args, kwargs)
        if not call.carriers and not call.plainly:
            found = function._guarded(call, lambda: _recorded(function, call))
    except LostDerivativeError:
        raise
    except TracegradError as error:
        why = error
    if why is not None:
        return _on_tape(function, args, kwargs, why)
    if found is None or _overlaps(call, found):
        return function.body(*args, **kwargs)
    return _finished(function, call, found)


def as_it_stands(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function that derives nothing itself. Where Tensors lose a derivative in it, what counts is its
    recording, if there is one that keeps it; unless the function changes what is outside, which is done by then."""
    refused = WARNED.refused
    with holding() as told:
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
            known = not call.carriers and not call.plainly
            found = function._guarded(call, lambda: _recorded(function, call)) if known else None
        except Exception:  # whatever it is, the call has met it
            return None
        finally:
            lost = bool(told)
            told.clear()
    if found is None or lost or found[0].trace.effects or found[0].trace.raised:
        return None
    return (_finished(function, call, found),)


def _overlaps(call: Call, found: Found) -> bool:
    with on_call(call):
        return found[0].overlaps(call, found[2])


def _finished(function: Dispatcher, call: Call, found: Found) -> Any:
    """The result of a call that was recorded."""
    path, outputs, captured = found
    if STATE.watching:
        look(function, call, path, outputs or (), captured)
    with on_call(call):
        if path.on_tape is None:
            return path.trace.finish(outputs or (), effects=function.effects)
        return path.on_tape.finish(call, captured, outputs or (), function)


def _recorded(function: Dispatcher, call: Call) -> Found | None:
    """What a call records, and what NumPy makes of it; None where it has to run as it stands."""
    room = ROOM
    while True:
        try:
            with room_for(room):
                trace = trace_call(function.fun, function.body, call, None, {TURN_BY_TURN, STEPS}, function._shared)
            if trace.error is not None:
                raise trace.error
            if trace.raised:
                raise UnsupportedError(trace.raised)
            on_tape = None
            if trace.tape is not None:
                from tracegrad.runtime.on_tape import OnTape

                on_tape = OnTape(trace, function.name, function.body, None)
            captured = [c.settle() for c in trace.captures]
            path = Path(trace, Interpreted((on_tape or trace).graph), {}, on_tape)
            outputs, diverged = path.run(call.leaves, captured)
        except CapacityError:
            room *= 16
        else:
            return None if outputs is None or diverged is not None else (path, outputs, captured)


def _on_tape(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any], error: TracegradError) -> Any:
    """A call that cannot be traced, for which `error` is the reason."""
    with plainly(str(error)):
        return function.body(*args, **kwargs)
