"""Define where the buffers of a plan live: in inputs, outputs, the arena, or on the stack of a region."""

from __future__ import annotations

from tracegrad.utils.lazy_dataclass import record

__all__ = ["ARENA", "CHECK", "ArenaPlace", "BufferPlace", "CheckPlace", "InputPlace", "OutputPlace", "StackPlace"]


@record(frozen=True)
class InputPlace:
    """The memory of an input."""

    index: int

    def pointer(self, inputs: int) -> int:
        """The number of its pointer among those of a function with this number of inputs."""
        return self.index

    def __str__(self) -> str:
        return f"input {self.index}"


@record(frozen=True)
class OutputPlace:
    """The memory of an output."""

    index: int

    def pointer(self, inputs: int) -> int:
        """The number of its pointer: outputs follow the inputs."""
        return inputs + self.index

    def __str__(self) -> str:
        return f"output {self.index}"


@record(frozen=True)
class ArenaPlace:
    """Temporary memory in the arena; the offset is a run-time word."""

    def __str__(self) -> str:
        return "temp"


@record(frozen=True)
class StackPlace:
    """Memory on the stack of a region, where LLVM promotes it to registers."""

    bytes: int

    def __str__(self) -> str:
        return f"stack {self.bytes}"


@record(frozen=True)
class CheckPlace:
    """The check of a program: a boolean in the arena, after all temporaries."""

    def __str__(self) -> str:
        return "check"


BufferPlace = InputPlace | OutputPlace | ArenaPlace | StackPlace | CheckPlace
ARENA, CHECK = ArenaPlace(), CheckPlace()
