"""Conditionals with the signatures of JAX: `cond` and `switch`.

Inside a traced function a conditional is one node with a region for each branch, and one region runs. Elsewhere it is a
Python `if`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Aval
from tracegrad.control import cond_op
from tracegrad.control.operands import RecordedFunction, inlined, joined, operand, recorded, records_regions
from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise.table import not_equal
from tracegrad.ops.shape.linear import cast
from tracegrad.trace.driver.region import weakened
from tracegrad.trace.sources.describe import describe

if TYPE_CHECKING:
    from tracegrad.typing import Array


Function = Callable[..., Any]


def cond(pred: Array, true_fun: Function, false_fun: Function, *operands: Array) -> Any:
    """Compute `true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`.

    Parameters
    ----------
    pred : bool, number, or array of one element
        Predicate.
    true_fun, false_fun : callable
        Functions of the operands, with results of one structure, and equal shapes and dtypes.
    *operands : pytree of arrays
        Arguments of both functions.

    Returns
    -------
    pytree of arrays
        Result of the function that is chosen.

    Raises
    ------
    TypeError
        If the results differ in structure, shapes or dtypes, or `pred` is not one value.

    Examples
    --------
    >>> import tracegrad as tg
    >>> @tg.trace
    ... def root(x):
    ...     return tg.cond(x >= 0.0, lambda x: x**0.5, lambda x: x + 2.0, x)
    >>> print(root(9.0), root(-2.0), tg.grad(root)(4.0))
    3.0 0.0 0.25
    """
    if not records_regions() or not isinstance(pred, Carrier):
        return inlined(true_fun if pred else false_fun)(*operands)
    _require_one("cond", "pred", pred)
    index = cast(pred if pred.dtype.kind == "b" else not_equal(pred, 0), dtype="int64")
    return _chosen("cond", index, (false_fun, true_fun), operands)


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """Compute `branches[index](*operands)`; an index out of range is clamped to the nearest branch.

    Parameters
    ----------
    index : int, or integer array of one element
        Number of the branch.
    branches : sequence of callable
        Functions of the operands, with results of one structure, and equal shapes and dtypes.
    *operands : pytree of arrays
        Arguments of the functions.

    Returns
    -------
    pytree of arrays
        Result of the branch that is chosen.

    Raises
    ------
    TypeError
        If the results differ in structure, shapes or dtypes, or `index` is not one integer.
    ValueError
        If there are no branches.

    Examples
    --------
    >>> print(switch(1, [lambda x: x + 1.0, lambda x: x * 10.0], 2.0))
    20.0
    """
    branches = tuple(branches)
    if not branches:
        raise ValueError(located("switch needs at least one branch"))
    if isinstance(index, Carrier):
        _require_one("switch", "index", index)
    if np.result_type(index.dtype if hasattr(index, "dtype") else index).kind not in "iu":
        raise TypeError(located(f"switch: the index must be an integer, got {index!r}"))
    if not records_regions() or not isinstance(index, Carrier):
        return inlined(branches[min(max(int(index), 0), len(branches) - 1)])(*operands)
    return _chosen("switch", cast(index, dtype="int64"), branches, operands)


def _require_one(name: str, label: str, x: Any) -> None:
    if x.shape != ():
        raise TypeError(located(f"{name}: {label} must be one value, got an array of shape {x.shape}"))


def _chosen(name: str, index: object, functions: Sequence[Function], operands: Sequence[Any]) -> Any:
    names = [f"a branch of {name} ({describe(f).name})" for f in functions]
    outputs = [recorded(f, operands, label) for f, label in zip(functions, names)]
    structure = outputs[0].structures[0]
    for other, label in zip(outputs, names):
        if not tree.alike(other.structures[0], structure):
            text = f"{structure}, which {names[0]} does, but returns {other.structures[0]}"
            raise TypeError(located(f"{label} must return a value of the structure {text}"))
    wanted = _agreed(outputs)
    if any(other.region.avals != tuple(wanted) for other in outputs):
        # A Python number takes the dtype of the result of another branch.
        outputs = [recorded(f, operands, label, wanted=wanted) for f, label in zip(functions, names)]
    for other, label in zip(outputs, names):
        for path, a, b in zip(tree.paths(structure, "the result"), other.region.avals, wanted):
            if a != b:
                raise TypeError(located(f"the branches of {name} must agree, but {path} of {label} is {a}, not {b}"))
    leaves = tree.leaves(tuple(operands))
    captured, graphs = joined([other.region for other in outputs], len(leaves))
    args = [operand(x, a) for x, a in zip(leaves, graphs[0].avals)]
    results = cond_op.cond(operand(index, _INDEX), *args, *captured, branches=tuple(graphs))
    weak = [all(each) for each in zip(*[other.region.weak for other in outputs])]
    return tree.unflatten(structure, [weakened(x) if w else x for x, w in zip(results, weak)])


_INDEX = Aval((), np.dtype(np.int64))


def _agreed(outputs: Sequence[RecordedFunction]) -> list[Aval]:
    """The avals that all branches must return: the aval of an array takes precedence over a Python number."""
    results = []
    for avals, weak in zip(zip(*[x.region.avals for x in outputs]), zip(*[x.region.weak for x in outputs])):
        strong = [a for a, is_number in zip(avals, weak) if not is_number]
        results.append(strong[0] if strong else Aval(avals[0].shape, np.result_type(*[a.dtype for a in avals])))
    return results
