"""Protocol of callables that are inlined when traced code calls them."""

from __future__ import annotations

from typing import Any

# The attribute of a function that stores the functions which transforms derived from it.
DERIVED = "__tracegrad_derived__"


class Inlinable:
    """A callable that is recorded into the current trace if it is called inside a trace.

    Its own fields are slots, because decorators such as `functools.wraps` copy the `__dict__` of the object they wrap.
    """

    def labels(self) -> dict[str, object]:
        """The attributes set by users."""
        return {k: x for k, x in vars(self).items() if not k.startswith("__")}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def inlined(self, world: object) -> Any:
        """The callable that records into the trace of `world`."""
        raise NotImplementedError
