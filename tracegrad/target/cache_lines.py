"""Sizes of cache lines and pages, which decide the alignment of buffers."""

from tracegrad.target.tuning import TUNING

LINE, PAGE, BLOCK_OFFSET = TUNING.memory.cache_line, TUNING.memory.page, TUNING.memory.block_offset
