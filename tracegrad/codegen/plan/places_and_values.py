"""Define where the buffers of a plan live, and name its run-time values.

A buffer is memory of an input, of an output, of the arena, or on the stack of a region. A value is an int64 number that
the code reads at run time.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from tracegrad.utils.lazy_dataclass import record


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
    """Temporary memory in the arena; the offset is a run-time value."""

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


# -- run-time values ------------------------------------------------------------------------
class ValueName(NamedTuple):
    """The name of a run-time value.

    `field` is a symbol (a size, an integer or a constant of the graph), a function whose address the value is, or a
    quantity of the `step`, or of the `buffer`. A value of a region has the path to it, outermost first: steps and the
    names of their regions.

    >>> print(ValueName("s0"), ValueName("rows", 3), offset_name("b7"), partial_name(3, "b2").within(0, "body"))
    s0 rows.3 offset.b7 0.body/partial.3.b2
    """

    field: str
    step: int = -1
    buffer: str = ""
    regions: tuple[tuple[int, str], ...] = ()

    def within(self, step: int, region: str) -> ValueName:
        """The name of this value of a region in the enclosing plan, in which `step` has the region."""
        return self._replace(regions=((step, region), *self.regions))

    @property
    def outer_step(self) -> int:
        """The step of the plan to which the value, or the region of the value, belongs; -1 if to none."""
        return self.regions[0][0] if self.regions else self.step

    def counted_from(self, first: int) -> ValueName:
        """The name in a part of the plan that begins with step `first`."""
        if self.regions:
            (step, region), *inner = self.regions
            return self._replace(regions=((step - first, region), *inner))
        return self._replace(step=self.step - first)

    def __str__(self) -> str:
        own = [self.field, *([str(self.step)] if self.step >= 0 else ()), *([self.buffer] if self.buffer else ())]
        return "".join([f"{step}.{region}/" for step, region in self.regions]) + ".".join(own)


def value_bits(dtype: str, value: float) -> int:
    """The int64 whose first bytes are the bits of a number.

    >>> value_bits("i64", -1), hex(value_bits("f64", 1.0)), hex(value_bits("f32", 1.0))
    (-1, '0x3ff0000000000000', '0x3f800000')
    """
    if dtype[0] == "f":
        packed = struct.pack("<d" if dtype == "f64" else "<f", value)
    else:
        packed = struct.pack("<Q", int(value) % 2**64)
    return int(struct.unpack("<q", packed.ljust(8, b"\0"))[0])


@lru_cache(4096)
def offset_name(buffer: str) -> ValueName:
    """The offset of a temporary in the arena, in bytes."""
    return ValueName("offset", buffer=buffer)


@lru_cache(4096)
def partial_name(step: int, buffer: str) -> ValueName:
    """The offset in the arena of the partial results that the chunks of a step write for a buffer."""
    return ValueName("partial", step, buffer)


@lru_cache(4096)
def location_names(buffer: str) -> tuple[ValueName, ValueName]:
    """The two values that locate a buffer or the arena: the number of a pointer, and an offset in bytes."""
    return ValueName("place", buffer=buffer), ValueName("behind", buffer=buffer)
