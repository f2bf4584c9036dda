"""Sizes of cache lines and pages, which decide where buffers lie."""

__all__ = ["LINE", "PAGE", "STEP"]

LINE, PAGE = 64, 4096  # bytes; those of a line of the cache come together
STEP = 27  # lines: where a page begins again, places of up to six blocks are seven lines apart, or more
