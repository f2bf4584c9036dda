"""Files: where caches belong, who may write to them, and how one is replaced while others read it."""

from __future__ import annotations

import functools
import os
import stat
import sys

# Folders of installed packages; Debian's packages have one of their own.
INSTALLED = frozenset(["site-packages", "dist-packages"])


def user_cache_folder(name: str) -> str:
    """The folder for the caches of a program: platformdirs' choice.

    On Linux it is below `$XDG_CACHE_HOME` or `~/.cache`, on macOS below `~/Library/Caches`, on Windows below
    `%LOCALAPPDATA%`.
    """
    if sys.platform == "linux":  # platformdirs' own rule, without its slow import
        base = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return os.path.join(base, name)
    import platformdirs

    return platformdirs.user_cache_dir(name, appauthor=False)


def is_private(status: os.stat_result) -> bool:
    """Whether this user owns the file and nobody else may write to it.

    Windows keeps no owner in the status of a file: True there. Its folder for caches is the user's own.
    """
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def open_to_read(path: str) -> int:
    """Open a file for reading bytes: a link is refused, and a pipe or a device does not block."""
    return os.open(path, os.O_RDONLY | _flags("O_NOFOLLOW", "O_BINARY", "O_NONBLOCK"))


def create(path: str) -> int:
    """Make a new file for writing bytes, which only this user may read; FileExistsError if there is one."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flags("O_BINARY"), 0o600)


def _flags(*names: str) -> int:
    """The flags of `os.open` among these that the system has."""
    return functools.reduce(int.__or__, [getattr(os, name, 0) for name in names])


def replace_unless_read(new: str, path: str) -> None:
    """Rename the file `new` to `path`, at once, in place of a file there.

    Windows refuses while another process has the old file open. Then the old file stays, and `new` is removed.
    """
    try:
        os.replace(new, path)
    except PermissionError:
        if sys.platform != "win32" or not os.path.exists(path):
            raise
        os.unlink(new)


@functools.cache
def parts(path: str) -> frozenset[str]:
    """The names of the folders of a path and of its file. On Windows both slashes separate them.

    >>> sorted(parts("/opt/site-packages/a.py"))
    ['', 'a.py', 'opt', 'site-packages']
    """
    return frozenset(path.replace(os.altsep or os.sep, os.sep).split(os.sep))
