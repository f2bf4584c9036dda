"""Variables of frames are set from outside, and values that nothing else holds end with that."""

from __future__ import annotations

import sys
import weakref

from tracegrad.trace.bytecode.frame_locals import set_variables, variables


class _Value:
    pass


def test_variables_are_read_and_set() -> None:
    x, y = 1, 2
    inner = lambda: y  # noqa: E731
    frame = sys._getframe()
    assert variables(frame)["x"] == 1
    set_variables(frame, {"x": 3, "y": 4})
    assert (x, inner()) == (3, 4)


def test_an_overwritten_value_ends() -> None:
    for _ in range(100):  # Python specializes code that runs often
        x, y = _Value(), _Value()
        held, ended = y, weakref.ref(x)
        set_variables(sys._getframe(), {"x": None, "y": None})
        assert (x, y) == (None, None)
        assert ended() is None
        assert type(held) is _Value
