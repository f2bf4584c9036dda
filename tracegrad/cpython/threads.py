"""Tell whether this build of CPython runs threads without a global interpreter lock (GIL)."""

from __future__ import annotations

import sysconfig
from functools import cache


@cache
def is_free_threaded() -> bool:
    """Whether this build has no GIL, or one that can be switched on and off. Objects have a larger header, and other
    threads may change a dict or a list during a call of C.

    >>> is_free_threaded() in (False, True)
    True
    """
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
