"""Define the sizes of cache lines and pages, which determine the alignment of buffers."""

__all__ = ["LINE", "PAGE", "STEP"]

LINE, PAGE = 64, 4096  # bytes of a cache line and of a page
STEP = 27  # cache lines between the page offsets of consecutive blocks: six blocks differ by seven or more
