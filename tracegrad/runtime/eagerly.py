"""Calls while jit is disabled: Python and NumPy run the function, and derivatives are traced at each call.

What is only called runs as it stands. A derivative is recorded as compiled code has it recorded, so that it passes
through all that does there: through `np.array([x[0], x[1]])`, arrays that are filled element by element, `math`,
`float`, SciPy. Its graph is then replayed by NumPy. Loops are recorded turn by turn, so each line runs as often as in
Python, and what is printed or looked at on the way are values.

The tape is asked where a trace does not know how, as for complex numbers, and where Tensors take part. A number that is
taken there of what is differentiated would lose its derivative, and raises instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.control.until import room_for
from tracegrad.errors import WARNED, CapacityError, TracegradError, UnsupportedError
from tracegrad.quiet import sprung
from tracegrad.runtime.paths import ROOM, Found, Interpreted, Path
from tracegrad.settings import jit_disabled
from tracegrad.torch.modes import STATE
from tracegrad.trace.endings import STEPS, TURN_BY_TURN
from tracegrad.trace.signature import Call
from tracegrad.trace.sources import on_call
from tracegrad.trace.trace import trace_call

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch import Dispatcher

__all__ = ["eagerly"]


def eagerly(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a traced function that is not compiled."""
    derives = function.body is not function.fun and jit_disabled()
    if not derives or STATE.depth or STATE.level is not None or sprung():
        return function.body(*args, **kwargs)
    found, why = None, None
    try:
        call = function.binder.take_apart(args, kwargs)
        if not call.carriers:
            found = function._guarded(call, lambda: _recorded(function, call))
    except TracegradError as error:
        why = error
    if why is not None:
        return _on_tape(function, args, kwargs, why)
    if found is None:
        return function.body(*args, **kwargs)
    path, outputs, captured = found
    with on_call(call):
        if not path.overlaps(call, captured):
            return path.trace.finish(outputs or (), effects=function.effects)
    return function.body(*args, **kwargs)


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
            if trace.tape is not None:
                return None
            captured = [c.settle() for c in trace.captures]
            path = Path(trace, Interpreted(trace.graph), {})
            outputs, diverged = path.run(call.leaves, captured)
        except CapacityError:
            room *= 16
        else:
            return None if outputs is None or diverged is not None else (path, outputs, captured)


def _on_tape(function: Dispatcher, args: tuple[Any, ...], kwargs: dict[str, Any], error: TracegradError) -> Any:
    """A call that cannot be traced, for which `error` is the reason."""
    before = WARNED.count
    result = function.body(*args, **kwargs)
    if WARNED.count > before:  # a derivative was lost
        raise error
    return result
