"""What a trace does when traced code calls a function that tracegrad itself made."""

from __future__ import annotations

from typing import Any

__all__ = ["DERIVED", "Inlinable"]

# The attribute under which functions have what transforms have made of them.
DERIVED = "__tracegrad_derived__"


class Inlinable:
    """A callable that, called inside a trace, is recorded into it.

    What it has by itself is in slots: decorators that copy the attributes of what they wrap do not copy that.
    """

    def labels(self) -> dict[str, Any]:
        """The attributes that users gave it."""
        return {k: x for k, x in vars(self).items() if not k.startswith("__")}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def inlined(self, world: Any) -> Any:
        """The callable that records into the trace of `world`."""
        raise NotImplementedError
