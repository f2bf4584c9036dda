"""Collation: how a list of samples becomes a batch of Tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.torch.functions.indexing.joining import stack
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import as_tensor, tensor

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["default_collate", "default_convert"]


def default_collate(batch: Any) -> Any:
    """Join samples to a batch, with a new first dimension.

    Tensors, arrays and numbers become one Tensor; Python floats one of float64. Texts stay a list. Tuples, lists and
    dicts of samples become lists, lists and dicts of batches.

    Parameters
    ----------
    batch : list
        Samples of one structure.

    Returns
    -------
    object
        Batch.

    Raises
    ------
    TypeError
        For a type that cannot be joined.
    RuntimeError
        If lists differ in length, or Tensors in shape.

    Examples
    --------
    >>> default_collate([{"x": 1, "y": 2.0}, {"x": 3, "y": 4.0}])
    {'x': tensor([1, 3]), 'y': tensor([2., 4.])}
    """
    sample = batch[0]
    for kind, join in _JOINS.items():
        if isinstance(sample, kind):
            return join(batch)
    if isinstance(sample, Mapping):
        return _rebuilt_mapping(sample, {key: default_collate([each[key] for each in batch]) for key in sample})
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(default_collate(column) for column in zip(*batch)))
    if isinstance(sample, Sequence):
        if any(len(each) != len(sample) for each in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(column) for column in zip(*batch)]
        return columns if isinstance(sample, tuple) else _rebuilt_sequence(sample, columns)
    raise TypeError(_REFUSED.format(type(sample)))


_REFUSED = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def _of_arrays(batch: Any) -> Array:
    dtype = batch[0].dtype
    if dtype.kind not in "biufc":
        raise TypeError(_REFUSED.format(dtype))
    return stack([as_tensor(each) for each in batch])


# How samples of a type are joined; the first type counts that a sample is an instance of.
_JOINS: dict[Any, Callable[[Any], Any]] = {
    Tensor: stack,
    np.ndarray: _of_arrays,
    np.generic: lambda batch: as_tensor(np.asarray(batch)),
    float: lambda batch: tensor(list(batch), dtype=np.float64),
    int: lambda batch: tensor(list(batch)),
    (str, bytes): lambda batch: batch,
}


def _rebuilt_mapping(sample: Any, values: dict[Any, Any]) -> Any:
    """Return a mapping of the type of `sample`, or a dict if that type takes other arguments."""
    try:
        if not isinstance(sample, MutableMapping):
            return type(sample)(values)
        clone = copy.copy(sample)
        clone.update(values)
        return clone
    except TypeError:
        return values


def _rebuilt_sequence(sample: Any, values: list[Tensor]) -> Any:
    """Return a sequence of the type of `sample`, or a list if that type takes other arguments."""
    try:
        if not isinstance(sample, MutableSequence):
            return type(sample)(values)
        clone = copy.copy(sample)
        for i, value in enumerate(values):
            clone[i] = value
        return clone
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """Convert the arrays in a sample to Tensors; all else stays as it is.

    Parameters
    ----------
    data : object
        Array, NumPy scalar, or nested lists, tuples and dicts of them.

    Returns
    -------
    object
        The same with Tensors. A tuple becomes a list.

    Examples
    --------
    >>> default_convert({"x": np.zeros(2), "name": "a"})
    {'x': tensor([0., 0.]), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return as_tensor(data) if data.dtype.kind in "biufc" else data
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _rebuilt_sequence(data, [default_convert(value) for value in data])
    return data
