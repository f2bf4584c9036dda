"""Partitioned arguments: the chunks of each array or list of partitions, in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tracegrad import tree
from tracegrad.dask.task import ChunkPlaceholder
from tracegrad.errors import ShapeError, located

__all__ = ["Columns", "of_dask"]


def _class(module: str, name: str) -> Any:
    """Return a Dask class if it is imported, else a class without instances."""
    return getattr(sys.modules.get(module), name, ())


def _is_array(x: object) -> bool:
    return isinstance(x, _class("dask.array", "Array"))


def of_dask(x: object) -> bool:
    """Whether Dask has to compute leaves of this pytree: a collection, or a future of a cluster."""
    return any(
        (hasattr(x, "__dask_graph__") and not isinstance(x, type)) or isinstance(x, _class("distributed", "Future"))
        for x in tree.leaves(x)
    )


class Columns:
    """Chunks of several arguments: chunk `i` has `entries[k][i]` at placeholder `k`."""

    def __init__(self, caller: str):
        self.caller = caller
        self.names: list[str] = []
        self.entries: list[Any] = []

    def placed(self, arg: object, name: str) -> object:
        """Return the argument with a placeholder for each column in it.

        A Dask array has its blocks along axis 0, a list has one partition an item; other containers are searched.
        TypeError for arguments without chunks, `ShapeError` for chunks along other axes.
        """
        if isinstance(arg, list) or _is_array(arg):
            self.names.append(name)
            self.entries.append(arg)
            return ChunkPlaceholder(len(self.entries) - 1, name)
        if not tree.is_node(arg) or not tree.children(arg):
            text = f"{name} must be a Dask array or a list of partitions, got a {type(arg).__name__}"
            raise TypeError(
                located(f"{self.caller}: {text}; dask.array.from_array(x, chunks=...) makes one of an array")
            )
        below = [path[len(name) :] for path in _child_paths(arg, name)]
        return tree.with_children(arg, [self.placed(x, name + path) for x, path in zip(tree.children(arg), below)])

    def check(self) -> int:
        """Return the number of chunks; `ShapeError` unless it and the known lengths agree in all columns."""
        arrays = [(n, x) for n, x in zip(self.names, self.entries) if not isinstance(x, list)]
        for name, x in arrays:
            self._check_axes(name, x)
        counts = {name: x.numblocks[0] if _is_array(x) else len(x) for name, x in zip(self.names, self.entries)}
        first, count = next(iter(counts.items()))
        for name, other in counts.items():
            if other != count:
                raise ShapeError(located(f"{self.caller}: {first} has {count} chunks, and {name} has {other}"))
        for name, x in arrays[1:]:
            self._check_lengths(arrays[0][0], arrays[0][1], name, x)
        if not count:
            raise ValueError(located(f"{self.caller}: {first} has no chunks"))
        return count

    def _check_axes(self, name: str, x: Any) -> None:
        if not x.ndim:
            raise ShapeError(located(f"{self.caller}: {name} has no axis to be in chunks along"))
        if any(n > 1 for n in x.numblocks[1:]):
            hint = "rechunk({" + ", ".join(f"{i}: -1" for i in range(1, x.ndim)) + "}) puts the others together"
            text = f"{name} has {x.numblocks} chunks along its axes, and may be in chunks along axis 0 only"
            raise ShapeError(located(f"{self.caller}: {text}; {hint}"))

    def _check_lengths(self, first: str, a: Any, name: str, b: Any) -> None:
        for i, (n, m) in enumerate(zip(a.chunks[0], b.chunks[0])):
            if n != m and n == n and m == m:  # nan is an unknown length
                text = f"chunk {i} of {first} has {n} rows, and that of {name} has {m}"
                raise ShapeError(located(f"{self.caller}: {text}; rechunk({{0: x.chunks[0]}}) cuts one as the other x"))

    def of_dask(self) -> bool:
        """Whether any of the chunks is to be computed by Dask."""
        return any(not isinstance(x, list) or of_dask(x) for x in self.entries)

    def chunk_entries(self) -> Sequence[tuple[Any, ...]]:
        """Return the entries of each chunk; entries of Dask arrays are `Delayed`."""
        arrays = [x for x in self.entries if not isinstance(x, list)]
        if arrays:
            import dask

            # One call for all arrays, so that tasks which they share are computed once.
            result = iter(dask.optimize(*arrays))
            blocks = [x if isinstance(x, list) else next(result).to_delayed(optimize_graph=False) for x in self.entries]
            return list(zip(*(x if isinstance(x, list) else x.ravel().tolist() for x in blocks), strict=True))
        return list(zip(*self.entries, strict=True))


def _child_paths(x: object, root: str) -> list[str]:
    """Return the expressions that lead to the children of a container."""
    return tree.paths(tree.with_children(x, [0] * len(tree.children(x))), root)
