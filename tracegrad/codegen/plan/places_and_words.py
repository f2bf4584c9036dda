"""Define where the buffers of a plan live, and name its run-time words.

A buffer is memory of an input, of an output, of the arena, or on the stack of a region. A word is an int64 number that
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


# -- run-time words ------------------------------------------------------------------------
class WordName(NamedTuple):
    """The name of a run-time word.

    `field` is a symbol (a size, an integer or a constant of the graph), a function whose address the word is, or a
    quantity of the `step`, or of the `buffer`. A word of a region has the path to it, outermost first: steps and the
    names of their regions.

    >>> print(WordName("s0"), WordName("rows", 3), offset_word("b7"), partial_word(3, "b2").within(0, "body"))
    s0 rows.3 offset.b7 0.body/partial.3.b2
    """

    field: str
    step: int = -1
    buffer: str = ""
    regions: tuple[tuple[int, str], ...] = ()

    def within(self, step: int, region: str) -> WordName:
        """The name of this word of a region in the enclosing plan, in which `step` has the region."""
        return self._replace(regions=((step, region), *self.regions))

    @property
    def outer_step(self) -> int:
        """The step of the plan to which the word, or the region of the word, belongs; -1 if to none."""
        return self.regions[0][0] if self.regions else self.step

    def counted_from(self, first: int) -> WordName:
        """The name in a part of the plan that begins with step `first`."""
        if self.regions:
            (step, region), *inner = self.regions
            return self._replace(regions=((step - first, region), *inner))
        return self._replace(step=self.step - first)

    def __str__(self) -> str:
        own = [self.field, *([str(self.step)] if self.step >= 0 else ()), *([self.buffer] if self.buffer else ())]
        return "".join([f"{step}.{region}/" for step, region in self.regions]) + ".".join(own)


def word_bits(dtype: str, value: float) -> int:
    """The word whose first bytes are the bits of a number.

    >>> word_bits("i64", -1), hex(word_bits("f64", 1.0)), hex(word_bits("f32", 1.0))
    (-1, '0x3ff0000000000000', '0x3f800000')
    """
    if dtype[0] == "f":
        packed = struct.pack("<d" if dtype == "f64" else "<f", value)
    else:
        packed = struct.pack("<Q", int(value) % 2**64)
    return int(struct.unpack("<q", packed.ljust(8, b"\0"))[0])


@lru_cache(4096)
def offset_word(buffer: str) -> WordName:
    """The offset of a temporary in the arena, in bytes."""
    return WordName("offset", buffer=buffer)


@lru_cache(4096)
def partial_word(step: int, buffer: str) -> WordName:
    """The offset in the arena of the partial results that the chunks of a step write for a buffer."""
    return WordName("partial", step, buffer)


@lru_cache(4096)
def location_words(buffer: str) -> tuple[WordName, WordName]:
    """The two words that locate a buffer or the arena: the number of a pointer, and an offset in bytes."""
    return WordName("place", buffer=buffer), WordName("behind", buffer=buffer)
