"""Functions `save` and `load`: objects with Tensors to files that PyTorch reads, and from files that it wrote."""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from tracegrad.errors import UnsupportedError, located
from tracegrad.torch.functions.core.device import check_device
from tracegrad.torch.serialization import weights_unpickler
from tracegrad.torch.serialization.archive import ArchiveReader, ArchiveWriter
from tracegrad.torch.serialization.pickler import TensorPickler
from tracegrad.torch.serialization.rebuild import CALLABLES, VALUES, FileStorage
from tracegrad.torch.serialization.storage_types import StorageType, typed

__all__ = ["load", "save"]


def save(
    obj: object,
    f: Any,
    pickle_module: object = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Save an object with Tensors to a file, in PyTorch's format.

    Views that share memory share it in the file too. The history and `grad` of Tensors are not saved.

    Parameters
    ----------
    obj : object
        Nested containers of Tensors, or any object that can be pickled.
    f : str, path or binary file
        File.
    pickle_module : module, optional
        Without effect.
    pickle_protocol : int, default 2
        Protocol of the pickle.

    Raises
    ------
    RuntimeError
        If two Tensors are views of the same memory with different dtypes.

    Examples
    --------
    >>> import io
    >>> from tracegrad import tensor
    >>> file = io.BytesIO()
    >>> save({"w": tensor([1.0, 2.0]), "epoch": 3}, file)
    >>> load(file)
    {'w': tensor([1., 2.]), 'epoch': 3}
    """
    if not _use_new_zipfile_serialization:
        raise UnsupportedError(located("save: files are zip archives; leave _use_new_zipfile_serialization out"))
    if not isinstance(f, str | os.PathLike) and not hasattr(f, "write"):
        raise AttributeError(located(f"expected 'f' to be string, path, or a file-like object, got {type(f).__name__}"))
    text = io.BytesIO()
    pickler = TensorPickler(text, pickle_protocol)
    pickler.dump(obj)
    archive = ArchiveWriter(f)
    try:
        archive.write("data.pkl", text.getvalue())
        archive.write("byteorder", sys.byteorder.encode())
        for key, data in pickler.storages.items():
            archive.write(f"data/{key}", data)
        archive.write("version", b"3\n")
    finally:
        archive.close()


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load an object that `save`, or `torch.save` of PyTorch, has written to a file.

    Parameters
    ----------
    f : str, path or binary file
        File.
    map_location : str, device, dict or callable, optional
        Place of the Tensors, which is the CPU. It is needed for files with Tensors on other devices.
    pickle_module : module, optional
        Without effect.
    weights_only : bool, default True
        Whether only containers, numbers, texts and Tensors are loaded, and what `add_safe_globals` has named. With
        False the file can run any code.
    mmap : bool, optional
        Without effect.
    **pickle_load_args : object
        `encoding` and `errors` of `pickle.Unpickler`, with `weights_only=False`.

    Returns
    -------
    object
        Object. bfloat16 becomes float32.

    Raises
    ------
    pickle.UnpicklingError
        If the file names a class or function that is not allowed.
    RuntimeError
        If the file is no archive of PyTorch, or has Tensors on another device and no `map_location`.

    Examples
    --------
    >>> import io
    >>> from tracegrad import eye
    >>> file = io.BytesIO()
    >>> save(eye(2)[0], file)
    >>> load(file)
    tensor([1., 0.])
    """
    if isinstance(map_location, str):
        check_device(map_location)
    archive = ArchiveReader(f)
    try:
        byteorder = archive.read("byteorder", default=b"little").decode()
        find = _storages(archive, byteorder, map_location)
        data = archive.read("data.pkl")
        if weights_only in (None, True):
            return weights_unpickler.loads(data, find)
        unpickler = _Unpickler(io.BytesIO(data), **pickle_load_args)
        unpickler.find = find
        return unpickler.load()
    finally:
        archive.close()


def _storages(archive: ArchiveReader, byteorder: str, map_location: Any) -> Callable[[Any], FileStorage]:
    """Return the function that loads the storage of a persistent id, each once."""
    loaded: dict[tuple[str, str], FileStorage] = {}

    def find(identity: Any) -> FileStorage:
        kind, storage_type, key, location, numel = identity
        if kind != "storage" or not isinstance(storage_type, StorageType) or not isinstance(numel, int):
            raise pickle.UnpicklingError(located(f"load: the file has an unknown kind of storage, {kind!r}"))
        if location != "cpu":
            _check_location(location, map_location)
        storage = loaded.get((key, storage_type.dtype))
        if storage is None:
            data = archive.array(f"data/{key}", numel * storage_type.itemsize)
            storage = FileStorage(typed(data, storage_type.dtype, byteorder), byteorder)
            loaded[key, storage_type.dtype] = storage
        return storage

    return find


def _check_location(location: str, map_location: Any) -> None:
    """Raise RuntimeError for a storage of another device, unless it is mapped to the CPU."""
    mapped = map_location.get(location) if isinstance(map_location, dict) else map_location
    if mapped is None:
        raise RuntimeError(
            located(
                f"Attempting to deserialize object on the device {location!r}, which is not there. If you are running "
                "on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
                "storages to the CPU."
            )
        )
    if not callable(mapped):
        check_device(mapped)


class _Unpickler(pickle.Unpickler):
    """Unpickler of the standard library, with PyTorch's names. A file can run any code."""

    find: Callable[[Any], FileStorage]

    def persistent_load(self, identity: object) -> FileStorage:
        return self.find(identity)

    def find_class(self, module: str, name: str) -> Any:
        text = f"{module}.{name}"
        if module.partition(".")[0] != "torch":
            return super().find_class(module, name)
        if text in VALUES:
            return VALUES[text]
        if text in CALLABLES:
            return CALLABLES[text]
        raise pickle.UnpicklingError(located(f"load: the file names {text}, which has no equivalent here"))
