"""Connectionist temporal classification, of `torch.nn.functional`: `ctc_loss`.

Source: A. Graves, S. Fernandez, F. Gomez, J. Schmidhuber, "Connectionist temporal classification", ICML 2006.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.elementwise.table import less, logical_and, not_equal, where
from tracegrad.ops.shape.linear import reshape
from tracegrad.torch.functions.core.dims import one
from tracegrad.torch.functions.core.operands import as_node, floating
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn.losses import checked, mean_or_sum
from tracegrad.typing import Array, ArrayLike, NDArray

_take, _cat, _logaddexp = (FUNCTIONS[name] for name in ("take_along_dim", "cat", "logaddexp"))
_NEVER = -1e30  # stands for the logarithm of 0, because differences of infinities are nan


def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: object,
    target_lengths: object,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Array:
    """Return the negative logarithm of the probability of the targets, summed over all alignments with blanks.

    `log_probs` is (T, N, C) or (T, C), the targets are (N, S), or concatenated, or (S,). With "mean", a loss is divided
    by the length of its target. With `zero_infinity`, an infinite loss is 0. ValueError for lengths that do not fit.

    >>> logs = np.log(np.full((2, 2), 0.5))
    >>> round(float(np.exp(-ctc_loss(logs, np.array([1]), 2, 1))), 6)
    0.75
    """
    x = floating(log_probs)
    single = len(x.shape) == 2
    x = reshape(x, shape=(x.shape[0], 1, x.shape[1])) if single else x
    time, batch, classes = x.shape
    if not 0 <= blank < classes:
        raise RuntimeError(located("blank must be in label range"))
    known = [np.asarray(_values(lengths)).reshape(-1) for lengths in (input_lengths, target_lengths)]
    if any(len(lengths) != batch for lengths in known):
        raise RuntimeError(located("input_lengths and target_lengths must be of size batch_size"))
    if (known[0] > time).any():
        raise RuntimeError(
            located(f"Expected input_lengths to have value at most {time}, but got value {known[0].max()}")
        )
    labels = _rows(one(targets), known[1], batch, blank)
    how = checked(reduction)
    loss = as_node("CtcLossBackward0", _ctc_loss, x, labels, known[0], known[1], blank, zero_infinity)
    if single and how == "none":
        return reshape(loss, shape=())
    if how == "mean":
        loss = loss / np.maximum(known[1], 1).astype(x.dtype)
    return mean_or_sum(loss, how)


def _values(x: Any) -> Any:
    """Return lengths as numbers, of which a trace then depends."""
    if isinstance(x, int | tuple | list | np.ndarray):
        return x
    return x.tolist()


def _rows(targets: Array, lengths: NDArray, batch: int, blank: int) -> Array:
    """Return the targets as a matrix (N, S), filled with blanks."""
    longest = int(lengths.max(initial=0))
    if len(targets.shape) == 2 and targets.shape[0] == batch:
        return targets[:, :longest]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    flat = reshape(targets, shape=(-1,))
    if flat.shape[0] < lengths.sum():
        raise RuntimeError(located("Expected the targets to have as many elements as the sum of target_lengths"))
    inside = np.arange(longest) < lengths[:, None]
    return where(inside, flat[np.where(inside, starts[:, None] + np.arange(longest), 0)], blank)


def _ctc_loss(
    x: Array, labels: Array, input_lengths: NDArray, target_lengths: NDArray, blank: int, zero_infinity: bool
) -> Array:
    time, batch, _ = x.shape
    count = 2 * labels.shape[1] + 1
    # the target with a blank before each label and at the end
    blanks = np.full((batch, labels.shape[1] + 1), blank)
    odd = np.arange(count) % 2 == 1
    columns = np.minimum(np.arange(count) // 2, max(labels.shape[1] - 1, 0))
    path = where(odd, labels[:, columns], blank) if labels.shape[1] else blanks
    # a label may follow the last but one, unless the two are equal or a blank is between
    jumps = logical_and(odd[2:], not_equal(path[:, 2:], path[:, :-2]))
    first = np.where(np.arange(count) < 2, 0.0, _NEVER).astype(x.dtype)
    alpha: Any = _take(x[0], path, 1) + first
    for t in range(1, time):
        step = _take(x[t], path, 1) + _advanced(alpha, jumps)
        alpha = where(np.asarray(t < input_lengths)[:, None], step, alpha)
    ends = np.stack([2 * target_lengths, np.maximum(2 * target_lengths - 1, 0)], 1)
    last = _take(alpha, ends, 1)
    second = where(np.asarray(target_lengths > 0), last[:, 1], _NEVER)
    loss = -_logaddexp(last[:, 0], second)
    impossible = less(-_NEVER / 2, loss)
    return where(impossible, 0.0 if zero_infinity else math.inf, loss)


def _advanced(alpha: Array, jumps: Array) -> Array:
    """Return the logarithm of the sum over the states that a state follows: itself, the last, the last but one."""
    if alpha.shape[1] == 1:
        return alpha
    sums = _logaddexp(alpha[:, 1:], alpha[:, :-1])
    if alpha.shape[1] > 2:
        sums = _cat([sums[:, :1], _logaddexp(sums[:, 1:], where(jumps, alpha[:, :-2], _NEVER))], 1)
    result: Array = _cat([alpha[:, :1], sums], 1)
    return result
