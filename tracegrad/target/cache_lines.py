"""Sizes of cache lines and pages, which decide the alignment of buffers."""

from tracegrad.target.tuning import TUNING

__all__ = ["LINE", "PAGE", "STEP"]

LINE, PAGE, STEP = TUNING.memory.cache_line, TUNING.memory.page, TUNING.memory.block_offset
