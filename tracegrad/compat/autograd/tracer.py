"""Boxes: autograd's name for values that are differentiated, and their values without a derivative."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tracegrad.api import stop_gradient
from tracegrad.compat.autograd.rules import notrace_primitive, primitive, register_notrace
from tracegrad.numpy_api.array_methods import ArrayMethods

__all__ = ["Box", "getval", "isbox", "notrace_primitive", "primitive", "register_notrace"]


class _OfTraced(type):
    takes_traced = True  # `isinstance` in traced code calls this metaclass with the traced value

    def __instancecheck__(cls, instance: object) -> bool:
        return isbox(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        """Accept the class that a traced value stands for, which traced code queries."""
        return super().__subclasscheck__(subclass) or issubclass(subclass, np.ndarray | np.generic | float | complex)


class Box(metaclass=_OfTraced):
    """The class of all values that are being differentiated.

    >>> import tracegrad as tg
    >>> isinstance(2.0, Box), float(tg.grad(lambda x: x if isinstance(x, Box) else 0.0)(2.0))
    (False, 1.0)
    """

    types: ClassVar[set[type]] = set()
    type_mappings: ClassVar[dict[type, type]] = {}
    _value: Any

    @classmethod
    def register(cls, value_type: type) -> None:
        """Do nothing: types of values need no registration."""
        Box.type_mappings[value_type] = cls


def isbox(x: object) -> bool:
    """Whether a value is being differentiated."""
    return isinstance(x, ArrayMethods) and x._is_differentiated()


def getval(x: object) -> Any:
    """Return the value without a derivative, not a box.

    >>> import tracegrad as tg
    >>> print(tg.grad(lambda x: x * getval(x))(3.0))
    3.0
    """
    return stop_gradient(x) if isbox(x) else x
