"""Memory of the process: whether more can be had, aligned blocks, and huge pages."""

from __future__ import annotations

import mmap
import sys
from typing import Any

from tracegrad.platform.libraries import c_library

MAX_PAGE_BYTES = 2**16  # a page of Linux on 64-bit ARM has 4, 16 or 64 KiB, one of macOS there 16, all others 4


def can_allocate(size: int) -> bool:
    """Whether the system grants `size` bytes more to this process; none of them is touched.

    Linux refuses what exceeds a limit of the process, Windows what exceeds memory and page file. macOS refuses only
    what exceeds the address space.

    >>> can_allocate(1 << 20), can_allocate(1 << 60)
    (True, False)
    """
    private: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mmap.mmap(-1, size, **private).close()
    except (OSError, OverflowError):
        return False
    return True


def has_aligned_alloc() -> bool:
    """Whether the C library has C11's `aligned_alloc`, whose memory `free` takes.

    Microsoft's does not, because its `free` takes no aligned memory; Apple's does from macOS 10.15 on.
    """
    return hasattr(c_library(), "aligned_alloc")


def advises_huge_pages() -> bool:
    """Whether `madvise(address, size, 14)` asks for huge pages; elsewhere 14 has no or another meaning."""
    return sys.platform == "linux"
