"""Sizes of cache lines and pages, which decide the alignment of buffers."""

__all__ = ["LINE", "PAGE", "STEP"]

LINE, PAGE = 64, 4096  # bytes of a cache line and of a page
STEP = 27  # lines between page offsets of consecutive blocks: up to six blocks are at least seven lines apart
