"""Records of a zip archive as PyTorch writes it: uncompressed, below one folder, with aligned data."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.typing import NDArray

_ALIGNMENT = 64  # bytes
_HEADER = 30  # bytes of a local header without its name
_PART = 1 << 22  # bytes that are read at once
_LARGE = 1 << 31  # bytes from which on a record needs the 64-bit form


class ArchiveWriter:
    """Archive that is being written to a path or a binary file."""

    def __init__(self, file: Any):
        is_path = isinstance(file, str | os.PathLike)
        self.folder = Path(os.fspath(file)).stem if is_path else "archive"
        self.zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)

    def write(self, name: str, data: Any) -> None:
        """Write a record: bytes, or anything with a contiguous buffer."""
        view = memoryview(data)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        info = zipfile.ZipInfo(f"{self.folder}/{name}")
        info.file_size, large = view.nbytes, view.nbytes >= _LARGE
        assert self.zip.fp is not None
        begin = self.zip.fp.tell() + _HEADER + len(info.filename.encode()) + 4 + 20 * large
        padding = -begin % _ALIGNMENT
        info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        with self.zip.open(info, "w", force_zip64=large) as record:
            record.write(view)

    def close(self) -> None:
        """Write the directory of the archive."""
        self.zip.close()


class ArchiveReader:
    """Archive that is read from a path or a binary file. RuntimeError for other files."""

    def __init__(self, file: Any):
        try:
            self.zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            text = "load: the file is not a zip archive; files of PyTorch before 1.6 must be saved by a newer one"
            raise RuntimeError(located(text)) from error
        names = [name for name in self.zip.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1:
            raise RuntimeError(located("load: the archive has no data.pkl: it was not written by torch.save"))
        self.folder = names[0].partition("/")[0]
        if f"{self.folder}/constants.pkl" in self.zip.namelist():
            raise RuntimeError(located("load: the archive is a TorchScript program, which cannot be loaded"))

    def read(self, name: str, default: bytes | None = None) -> bytes:
        """Return the bytes of a record; `default` if there is none."""
        if default is not None and f"{self.folder}/{name}" not in self.zip.namelist():
            return default
        return self.zip.read(f"{self.folder}/{name}")

    def array(self, name: str, nbytes: int) -> NDArray:
        """Return the bytes of a record as an array of uint8; RuntimeError if they are not so many."""
        try:
            info = self.zip.getinfo(f"{self.folder}/{name}")
        except KeyError:
            raise RuntimeError(located(f"load: the archive has no record {name!r}")) from None
        if info.file_size != nbytes:
            raise RuntimeError(located(f"load: record {name!r} has {info.file_size} bytes in place of {nbytes}"))
        out: Any = np.empty(nbytes, np.uint8)
        view, at = memoryview(out), 0
        with self.zip.open(info) as record:
            while at < nbytes and (part := record.read(_PART)):
                view[at : at + len(part)] = part
                at += len(part)
        return out  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the archive, but not a file that it was opened with."""
        self.zip.close()
