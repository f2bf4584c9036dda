"""Nearest-neighbour queries of `scipy.spatial`: distances have derivatives, indices have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.scipy_api.registry import replaces_objects, shadow
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.typing import Array, ArrayLike


class _Query:
    """Query of the indices of neighbours; `real` is the tree of the data if they are constant."""

    def __init__(self, real: Any, tree_options: dict[str, object], query_options: dict[str, object]):
        self.real, self.tree_options, self.query_options = real, tree_options, query_options

    def __repr__(self) -> str:
        return repr(f"scipy.spatial.KDTree.query {self.tree_options} {self.query_options}")

    def __call__(self, x: NDArray, data: NDArray) -> tuple[NDArray, ...]:
        from scipy.spatial import KDTree

        x, data = np.asarray(x), np.asarray(data)
        known = self.real is not None and np.array_equal(self.real.data, data)
        tree = self.real if known else KDTree(data, **self.tree_options)
        return (np.asarray(tree.query(x, **self.query_options)[1], np.int64),)


class Tree:
    """Replacement of a k-d tree, of points that may be traced."""

    def __init__(self, data: Array, table: dict[str, object], real: object = None):
        self.data, self._options, self._real = data, table, real

    @property
    def n(self) -> int:
        return int(self.data.shape[0])

    @property
    def m(self) -> int:
        return int(self.data.shape[1])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refuse(f"scipy.spatial.KDTree.{name}", "use KDTree.query, or call it outside of the traced function")

    def query(
        self,
        x: ArrayLike,
        k: Any = 1,
        eps: float = 0.0,
        p: float = 2.0,
        distance_upper_bound: float = np.inf,
        workers: int = 1,
    ) -> tuple[Array, Array]:
        """`scipy.spatial.KDTree.query`"""
        points, data = promoted([to_float(v) for v in arrays(x, self.data)], np.dtype(np.float64))
        query_options = {"k": k, "eps": eps, "p": p, "distance_upper_bound": distance_upper_bound, "workers": workers}
        count = () if isinstance(k, int | np.integer) and k == 1 else (np.size(k) if np.ndim(k) else int(k),)
        shape = (*points.shape[:-1], *count)
        (result,) = opaque(
            points, data, results=((shape, "i64"),), call=_Query(self._real, self._options, query_options)
        )
        exists = result < data.shape[0]
        near = np.take(data, np.where(exists, result, 0), axis=0)
        differences = (points[..., None, :] if count else points) - near
        return np.where(exists, np.linalg.norm(differences, p, axis=-1), np.inf), result


@shadow("scipy.spatial.KDTree", "scipy.spatial.cKDTree")
def tree(
    data: ArrayLike,
    leafsize: int = 10,
    compact_nodes: bool = True,
    copy_data: bool = False,
    balanced_tree: bool = True,
    boxsize: object = None,
) -> Tree:
    """`scipy.spatial.KDTree` of traced points"""
    if boxsize is not None:
        raise refuse("the argument boxsize= of scipy.spatial.KDTree")
    table: dict[str, object] = {"leafsize": leafsize, "compact_nodes": compact_nodes, "balanced_tree": balanced_tree}
    return Tree(to_float(arrays(data)[0]), table)


@replaces_objects("scipy.spatial")
def _of_spatial(value: Any, read: Any) -> Tree | None:
    if type(value).__name__ not in ("KDTree", "cKDTree") or read is None or value.boxsize is not None:
        return None
    return Tree(read("data"), {"leafsize": value.leafsize}, value)
