"""Pickling of functions made by tracegrad: by reference if they can be imported, as Python does.

Other functions are pickled as their transform and the function that it was applied to. That function is pickled by
reference, or by cloudpickle together with its captured variables.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from tracegrad.cpython.frames import frame_at

# A transform of tracegrad, and its arguments after the function that it is applied to.
Recipe = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


def reference(x: object) -> str | None:
    """Return the name in its module by which another process finds it; None if there is none."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if module is None or name is None or (module == "__main__" and _by_value()):
        return None
    result: Any = sys.modules.get(module)
    for attribute in name.split("."):
        result = getattr(result, attribute, None)
    return name if result is x else None


def _by_value() -> bool:
    """Whether cloudpickle (or a copy of it) pickles: it sends the contents of `__main__` by value."""
    frame: Any = frame_at(1)
    while frame is not None:
        if "cloudpickle" in frame.f_globals.get("__name__", ""):
            return True
        frame = frame.f_back
    return False


def reduced(x: object, fun: object, recipe: Recipe) -> str | tuple[object, ...]:
    """Return the `__reduce_ex__` value of `x`, made of `fun` by this recipe."""
    return reference(x) or (apply_recipe, (recipe[0], fun, recipe[1], dict(recipe[2])))


def apply_recipe(
    make: Callable[..., object] | type,
    fun: object,
    args: tuple[int | None, ...],
    keywords: dict[str, tuple[object, ...] | None],
) -> object:
    """Apply a recipe to a function."""
    return make(fun, *args, **keywords)


def bound_method(instance: object, name: str) -> object:
    """Bind a method to an instance, which the result keeps alive: a traced method itself does not."""
    return types.MethodType(inspect.getattr_static(type(instance), name), instance)
