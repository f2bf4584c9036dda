"""Switch the code that calls of a traced function run.

Python calls the `__call__` of the class of an object. A fast path is therefore the `__call__` of a generated subclass,
which becomes the class of the traced function. No call of Python is in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher


def class_with_call(plain: type[Dispatcher], call: Callable[..., object]) -> type[Dispatcher]:
    """Return a subclass of a class of traced functions whose calls run `call`."""
    return type(plain.__name__, (plain,), {"__call__": call, "__slots__": (), "entry": None})


def switch_class(function: Dispatcher, cls: type[Dispatcher]) -> None:
    """Make `cls`, a class with the same slots, the class of a traced function."""
    function.__class__ = cls
