"""Namespace of `torch.testing`: `assert_close`, with PyTorch's tolerances and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from tracegrad.avals import Size
from tracegrad.torch.tape import Tensor
from tracegrad.typing import DType, NDArray

__all__ = ["assert_close"]

# Relative and absolute tolerance of a dtype; others are compared exactly.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
}


class _CloseRules(NamedTuple):
    """How two values are compared."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_dtype: bool

    def tolerances(self, *dtypes: DType) -> tuple[float, float]:
        """Return the tolerances for values of these dtypes: the larger ones, unless they were passed."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        pairs = [_TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def assert_close(
    actual: object,
    expected: object,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| for all elements.

    Tensors, arrays, numbers, and sequences and mappings of them are compared. ValueError if only one tolerance is
    passed; TypeError for values of other kinds, or of two kinds.

    Parameters
    ----------
    actual : object
        Values.
    expected : object
        Values that they should have.
    allow_subclasses : bool, default True
        Without effect.
    rtol : float, optional
        Relative tolerance; by default 1e-3 for float16, 1.3e-6 for float32, 1e-7 for float64, and 0 for integers.
    atol : float, optional
        Absolute tolerance; by default 1e-5 for float16 and float32, 1e-7 for float64, and 0 for integers.
    equal_nan : bool, default False
        Whether nan equals nan.
    check_device : bool, default True
        Without effect: there is one device.
    check_dtype : bool, default True
        Whether the dtypes must be equal.
    check_layout : bool, default True
        Without effect: there is one layout.
    check_stride : bool, default False
        Without effect.
    msg : str or callable, optional
        Message of the error, or a function of the usual message.

    Examples
    --------
    >>> import tracegrad as tg
    >>> assert_close(tg.tensor([1.0]), tg.tensor([1.0 + 1e-9]))
    >>> assert_close(tg.tensor([1, 2]), tg.tensor([1, 3]))
    Traceback (most recent call last):
    AssertionError: Tensor-likes are not equal!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 1 at index (1,)
    Greatest relative difference: 0.3333333333333333 at index (1,)
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            "Both 'rtol' and 'atol' must be either specified or omitted, "
            f"but got no {'rtol' if rtol is None else 'atol'}."
        )
    text = _difference(actual, expected, _CloseRules(rtol, atol, equal_nan, check_dtype), ())
    if text is None:
        return
    if msg is not None:
        text = msg(text) if callable(msg) else msg
    raise AssertionError(text)


def _difference(actual: object, expected: object, rules: _CloseRules, path: tuple[object, ...]) -> str | None:
    """Return what is not close, or None."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            missing, more = ([k for k in x if k not in y] for x, y in ((expected, actual), (actual, expected)))
            keys = f"\nMissing keys in the actual mapping: {missing}" if missing else ""
            keys += f"\nAdditional keys in the actual mapping: {more}" if more else ""
            return _at(f"The keys of the mappings do not match:{keys}", path)
        pairs = [(key, actual[key], expected[key]) for key in actual]
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return _at(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path)
        pairs = [(k, *pair) for k, pair in enumerate(zip(actual, expected))]
    else:
        text = _of_values(actual, expected, rules)
        return None if text is None else _at(text, path)
    texts = (_difference(x, y, rules, (*path, key)) for key, x, y in pairs)
    return next((text for text in texts if text is not None), None)


def _is_sequence(x: object) -> TypeGuard[Sequence[object]]:
    return isinstance(x, Sequence) and not isinstance(x, str)


def _at(text: str, path: tuple[object, ...]) -> str:
    return text + (f"\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in path)}" if path else "")


def _of_values(actual: object, expected: object, rules: _CloseRules) -> str | None:
    """Return what is not close of two arrays, numbers, booleans or None, or None."""
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}"
    are_numbers = [isinstance(x, int | float | complex) for x in (actual, expected)]
    are_arrays = [isinstance(x, Tensor | np.ndarray) for x in (actual, expected)]
    if not (all(are_numbers) or all(are_arrays)):
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")
    if rules.check_dtype and all(are_numbers) and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    x, y = (v.detach().numpy() if isinstance(v, Tensor) else np.asarray(v) for v in (actual, expected))
    if x.shape != y.shape:
        return f"The values for attribute 'shape' do not match: {Size(x.shape)} != {Size(y.shape)}."
    if rules.check_dtype and x.dtype != y.dtype:
        return f"The values for attribute 'dtype' do not match: {x.dtype} != {y.dtype}."
    return _of_elements(x, y, rules)


def _of_elements(x: NDArray, y: NDArray, rules: _CloseRules) -> str | None:
    """Return which elements of two arrays of one shape are not close, or None."""
    rtol, atol = rules.tolerances(x.dtype, y.dtype)
    wide = np.result_type(x, y, np.int64)
    x, y = x.astype(wide), y.astype(wide)
    with np.errstate(all="ignore"):
        distance = np.abs(x - y)
        relative = distance / np.abs(y)
        is_close = (x == y) | (np.isfinite(distance) & (distance <= atol + rtol * np.abs(y)))
    if rules.equal_nan:
        is_close |= np.isnan(x) & np.isnan(y)
    if is_close.all():
        return None
    noun, relation = "Scalars" if not x.ndim else "Tensor-likes", "close" if rtol or atol else "equal"
    bounds = [f" (up to {bound} allowed)" if rtol or atol else "" for bound in (atol, rtol)]
    if not x.ndim:
        details = [
            f"Expected {y.item()} but got {x.item()}.",
            f"Absolute difference: {distance.item()}{bounds[0]}",
            f"Relative difference: {relative.item()}{bounds[1]}",
        ]
    else:
        count = int(np.sum(~is_close))
        details = [f"Mismatched elements: {count} / {x.size} ({count / x.size:.1%})"]
        for name, values, bound in zip(("absolute", "relative"), (distance, relative), bounds):
            worst = int(np.argmax(np.where(is_close, -1, values)))
            at = tuple(int(k) for k in np.unravel_index(worst, x.shape))
            details.append(f"Greatest {name} difference: {values[at].item()} at index {at}{bound}")
    return "\n".join([f"{noun} are not {relation}!", "", *details])
