"""Cache machine code on disk across processes.

There is one file per key, or one file with a name for each key of a group stored together. A file checks itself:

    one line of JSON     {"format": 2, "header": {...}, "keys": ["...", ...], "size": bytes of payload}
    payload              object code
    32 bytes             SHA-256 of everything before

A file is written under a temporary name in the same folder and renamed, so a reader sees all of it or nothing. Two
writers of one key write equivalent data, and the last one wins. Nothing is ever unpickled.

The data is run as machine code, so only the user's own files are trusted. A folder or file of another owner, or
writable by group or others, counts as absent, and so does a damaged file. The cache never makes a program fail: if it
cannot read or write, tracegrad compiles again, and reports each kind of problem once by a `CacheWarning`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import stat
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tracegrad.errors import CacheWarning, user_location
from tracegrad.platform.files import create, is_private, open_to_read, replace_unless_read, user_cache_folder
from tracegrad.settings import settings
from tracegrad.target.tuning import TUNING
from tracegrad.utils.log import log

_FORMAT = 2
_SUFFIX, _TEMPORARY = ".tgc", ".tmp"
_CACHE_FILE = re.compile(r"\.tgc(\.\d+\.\d+\.tmp)?$")  # the suffix .tmp alone may belong to other programs
_DIGEST = hashlib.sha256().digest_size
_MAX_BYTES = TUNING.caches.disk_bytes
_SWEEPS = TUNING.caches.disk_sweeps
_DAY = 86400.0
_HINT = "Set TRACEGRAD_CACHE_DIR to a folder of your own, or TRACEGRAD_CACHE=0 to do without."

_warned: set[str] = set()
_serial = itertools.count()


class _DamagedError(Exception):
    """A file differs from its checksum."""


def _warn_once(kind: str, message: str) -> None:
    log("cache", "%s", message)
    if kind not in _warned:
        _warned.add(kind)
        file, _, line = user_location().rpartition(":")
        warnings.warn_explicit(f"{message} {_HINT}", CacheWarning, file or __file__, int(line or 1))


def _encode(keys: Sequence[str], header: dict[str, Any], payload: bytes) -> bytes:
    fields = {"format": _FORMAT, "header": header, "keys": keys, "size": len(payload)}
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n" + payload
    return body + hashlib.sha256(body).digest()


def _decode(data: bytes, key: str) -> tuple[dict[str, object], bytes] | None:
    """Decode header and payload; None for another format or key; `_DamagedError` if the checksum is wrong."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise _DamagedError
    line, _, payload = body.partition(b"\n")
    try:
        fields = json.loads(line)
        if fields["format"] != _FORMAT or key not in fields["keys"]:
            return None
        if fields["size"] != len(payload) or not isinstance(fields["header"], dict):
            raise _DamagedError
        return fields["header"], payload
    except (ValueError, KeyError, TypeError) as error:
        raise _DamagedError from error


class Entry(NamedTuple):
    """A file of the cache: its size in bytes, its modification time in seconds since 1970, its purpose (or its format,
    if only another version of tracegrad reads it), and its problem, or ""."""

    path: str
    size: int
    changed: float
    kind: str
    problem: str


def _entry(path: str, status: os.stat_result) -> Entry:
    """Read and check a file, without warnings or changes."""
    kind, problem = "", ""
    try:
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            raise _DamagedError("it must be a file of yours that nobody else can write to")
        with open(path, "rb") as file:
            data = file.read()
        if hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
            raise _DamagedError("it is damaged: its checksum is not that of its contents")
        fields = json.loads(data.partition(b"\n")[0])
        if fields["format"] != _FORMAT:
            return Entry(path, _size(status), status.st_mtime, f"format {int(fields['format'])}", "")
        kind = str(fields["header"].get("kind", "shared"))
        named = [key for key in fields["keys"] if DiskCache._path("", key) == os.path.basename(path)]
        if not named or _decode(data, named[0]) is None:
            raise _DamagedError("it has the name of another key")
    except _DamagedError as error:
        problem = str(error) or "it is damaged"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "it is damaged: its first line says nothing"
    return Entry(path, _size(status), status.st_mtime, kind, problem)


def _size(status: os.stat_result) -> int:
    """The size of a file, divided by the number of its names (hard links)."""
    return -(-status.st_size // max(status.st_nlink, 1))


class DiskCache:
    """A directory of files by key; with folder None, a cache that is always empty.

    `max_bytes` limits the sum of file sizes: an occasional `put` evicts the least recently used files (a hit renews a
    file's modification time, at most once a day).

    >>> import tempfile
    >>> cache = DiskCache(tempfile.mkdtemp())
    >>> cache.put("key", {"symbols": 1}, b"code")
    >>> cache.get("key")
    ({'symbols': 1}, b'code')
    >>> cache.get("another key") is None
    True
    >>> cache.clear()
    >>> cache.info()[1:]
    (0, 0)
    """

    def __init__(self, folder: str | None, max_bytes: int = _MAX_BYTES) -> None:
        self.folder = None if folder is None else os.path.abspath(os.path.expanduser(folder))
        self.max_bytes = max_bytes

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The header and payload stored under `key`, or None. Problems raise only `CacheWarning`, if warnings are
        errors."""
        if self.folder is None or not self._folder_is_trusted(self.folder):
            return None
        path = self._path(self.folder, key)
        try:
            data = self._read(path)
            result = None if data is None else _decode(data, key)
            log("cache", "%s %s", "read" if result else "cannot use", path)
            return result
        except FileNotFoundError:
            log("cache", "there is no %s yet", path)
        except OSError as error:
            _warn_once("read", f"Cannot read {path} of tracegrad's cache ({error.strerror}); compiling anew.")
        except _DamagedError:
            _warn_once("damaged", f"{path} of tracegrad's cache is damaged; compiling and writing it again.")
        return None

    def has(self, key: str) -> bool:
        """Whether there is a file for `key`, without reading it.

        >>> DiskCache(None).has("key")
        False
        """
        return self.folder is not None and os.path.exists(self._path(self.folder, key))

    def put(self, key: str, header: dict[str, list[str] | str], payload: bytes, *others: str) -> None:
        """Store `payload` and `header` under `key`, and under `others`, replacing earlier files.

        `header` is JSON data: dicts with text keys, lists, text, numbers, None. It comes back equal (tuples come back
        as lists). Raises `TypeError` for another header. A full or read-only disk is not an error.
        """
        data = _encode((key, *others), header, payload)
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if not self._folder_is_trusted(self.folder):
                return
            self._store_file(path, data)
            for other in others:
                self._store_file(self._path(self.folder, other), data, path)
        except OSError as error:
            _warn_once(
                "folder",
                f"Cannot write to tracegrad's cache folder {self.folder} ({error.strerror}); "
                "machine code is not kept for the next process.",
            )
            return
        log("cache", "wrote %d bytes to %s", len(data), path)
        if self._triggers_sweep(path, len(data)):
            self._sweep(self.folder)

    def clear(self) -> None:
        """Remove every file of the cache, but not the folder or other files."""
        for path, _ in self._files((_SUFFIX, _TEMPORARY)):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def entries(self) -> list[Entry]:
        """All files of the cache, read and checked, the oldest first."""
        results = [_entry(path, status) for path, status in self._files((_SUFFIX,))]
        return sorted(results, key=lambda entry: entry.changed)

    def info(self) -> tuple[str, int, int]:
        """The folder ("" if there is none), the number of files, and their size in bytes."""
        sizes = [_size(status) for _, status in self._files((_SUFFIX,))]
        return self.folder or "", len(sizes), sum(sizes)

    @staticmethod
    def _path(folder: str, key: str) -> str:
        return os.path.join(folder, hashlib.sha256(key.encode()).hexdigest()[:40] + _SUFFIX)

    def _triggers_sweep(self, path: str, size: int) -> bool:
        """Whether the `put` of this file sweeps the cache: by chance, once per 64th of `max_bytes` written, because
        listing thousands of files takes longer than compiling a kernel."""
        return int(os.path.basename(path)[:8], 16) * self.max_bytes < size * _SWEEPS * 2**32

    @staticmethod
    def _folder_is_trusted(folder: str) -> bool:
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            _warn_once("folder", f"Cannot use tracegrad's cache folder {folder} ({error.strerror}).")
            return False
        if stat.S_ISDIR(status.st_mode) and is_private(status):
            return True
        _warn_once(
            "folder",
            f"tracegrad's cache folder {folder} is not used: it must be a folder that you own and that "
            f"nobody else can write to (chmod 700 {folder}).",
        )
        return False

    @staticmethod
    def _read(path: str) -> bytes | None:
        """All bytes of a trusted file; None if it is not trusted."""
        with open(open_to_read(path), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not is_private(status):
                _warn_once(
                    "file",
                    f"{path} of tracegrad's cache is not used: it must be a file that you own and that "
                    "nobody else can write to. Remove it.",
                )
                return None
            data = file.read()
        if time.time() - status.st_mtime > _DAY:
            with contextlib.suppress(OSError):
                os.utime(path)
        return data

    def _store_file(self, path: str, data: bytes, same: str = "") -> None:
        """Write a file atomically, or make it a hard link to `same` if the file system can."""
        temporary = f"{path}.{os.getpid()}.{next(_serial)}{_TEMPORARY}"
        try:
            try:
                os.link(same, temporary)
            except (OSError, AttributeError):
                self._write(temporary, data)
            replace_unless_read(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    @staticmethod
    def _write(path: str, data: bytes) -> None:
        with open(create(path), "wb") as file:
            file.write(data)

    def _files(self, suffixes: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
        """The files of the cache, except files that another process removes meanwhile."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes) and _CACHE_FILE.search(entry.name):
                    with contextlib.suppress(OSError):
                        yield entry.path, entry.stat(follow_symlinks=False)

    def _sweep(self, folder: str) -> None:
        """Remove the files of crashed writers, and evict the oldest files down to 3/4 if the cache is too large."""
        now = time.time()
        files = []
        for path, status in self._files((_SUFFIX, _TEMPORARY)):
            if path.endswith(_SUFFIX):
                files.append((path, status))
            elif now - status.st_mtime > _DAY:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        files.sort(key=lambda file: file[1].st_mtime)
        total = sum(_size(status) for _, status in files)
        if total <= self.max_bytes:
            return
        for path, status in files:
            if total <= self.max_bytes * 3 // 4:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= _size(status)


_caches: dict[str | None, DiskCache] = {}


def default_cache() -> DiskCache:
    """The cache of `settings.cache` and `settings.cache_dir`; the same object for the same folder.

    The default folder is the user's cache folder of platformdirs.

    >>> default_cache() is default_cache()
    True
    """
    folder = _default_folder()
    cache = _caches.get(folder)
    return cache if cache is not None else _caches.setdefault(folder, DiskCache(folder))


def _default_folder() -> str | None:
    return (settings.cache_dir or user_cache_folder("tracegrad")) if settings.cache else None
