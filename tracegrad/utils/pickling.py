"""How functions that tracegrad has made are pickled: by reference where they can be imported, as Python's own.

Others are made again, of the function that they were made of, which pickles as it does: one that can be imported by
reference, others by cloudpickle, with what they captured.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Recipe", "bound_method", "made_again", "reduced", "reference"]

# The function of tracegrad's that made another, and its arguments behind the function.
Recipe = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


def reference(x: Any) -> str | None:
    """The name in its module by which another process finds it; None where there is none."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if module is None or name is None or (module == "__main__" and _by_value()):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is x else None


def _by_value() -> bool:
    """Whether cloudpickle asks, or a copy of it: it sends what `__main__` has along, which no other process has."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if "cloudpickle" in frame.f_globals.get("__name__", ""):
            return True
        frame = frame.f_back
    return False


def reduced(x: Any, fun: Any, recipe: Recipe) -> str | tuple[Any, ...]:
    """What `__reduce_ex__` of `x`, made of `fun` by this recipe, returns."""
    return reference(x) or (made_again, (recipe[0], fun, recipe[1], dict(recipe[2])))


def made_again(make: Callable[..., Any], fun: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """What a recipe makes of a function."""
    return make(fun, *args, **keywords)


def bound_method(instance: Any, name: str) -> Any:
    """The method of an instance, which it keeps alive: a traced method itself does not."""
    return types.MethodType(inspect.getattr_static(type(instance), name), instance)
