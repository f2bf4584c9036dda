"""Count references to objects, in the units of the running CPython.

A count includes the references of the evaluation stack and of arguments, whose number depends on the version: since
Python 3.14, a local variable is lent to a call. Each count is therefore measured at import, in code of the same form as
that which is tested.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from tracegrad.cpython.instruction_set import attributes_of_lent

reference_count: Callable[[object], int] = sys.getrefcount


class _SlotOwner:
    """An object that holds another in a slot."""

    __slots__ = ("item",)

    def __init__(self) -> None:
        self.item = object()


class _CountInGet:
    """Descriptor that gives the reference count of the instance that it is looked up on."""

    def __get__(self, instance: object, owner: type | None = None) -> int:
        return sys.getrefcount(instance)


class _Temporary:
    count = _CountInGet()


def _of_attribute() -> int:
    holder = _SlotOwner()
    return sys.getrefcount(holder.item)


def _of_loop_item() -> int:
    return next(sys.getrefcount(item) for item in [object()])


# The count of an object that only an attribute refers to: `reference_count(x.attribute)`.
COUNT_OF_ATTRIBUTE = _of_attribute()
# The count of an element that only a list refers to, in a loop over the list.
COUNT_OF_LOOP_ITEM = _of_loop_item()
# The count, in the `__get__` of a descriptor, of an instance that nothing else refers to, as in `Model().step(x)`.
COUNT_IN_GET = _Temporary().count


def is_lent(caller: FrameType) -> bool:
    """Whether the frame loads an attribute of a local variable, which since Python 3.14 has the only reference: the
    count in `__get__` is then that of a temporary.

    >>> class Getter:
    ...     def __get__(self, instance, owner):
    ...         return reference_count(instance) <= COUNT_IN_GET and not is_lent(sys._getframe(1))
    >>> class Model:
    ...     is_temporary = Getter()
    >>> def of_variable():
    ...     model = Model()
    ...     return model.is_temporary, model.is_temporary
    >>> Model().is_temporary, of_variable()
    (True, (False, False))
    """
    return caller.f_lasti in attributes_of_lent(caller.f_code)


def _count(x: object) -> int:
    return sys.getrefcount(x)


def _of_variable() -> int:
    x = object()
    return _count(x)


_COUNT_OF_VARIABLE = _of_variable()


def other_references(x: object) -> int:
    """The number of references to an object, besides the local variable of the caller that is the argument.

    >>> def others(*held):
    ...     x = object()
    ...     holders = [x for _ in held]
    ...     return other_references(x)
    >>> others(), others(1, 2)
    (0, 2)
    """
    return sys.getrefcount(x) - _COUNT_OF_VARIABLE
