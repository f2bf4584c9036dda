"""Printing of Tensors, as in PyTorch.

All elements have one format, chosen from the elements that are shown: integral floats as `2.`, others with a fixed
number of decimals, or in scientific notation if their magnitudes are far from one or from each other. Large Tensors
show only the elements at their edges. `set_printoptions` sets the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.torch.functions.core.promotion import default_complex
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.torch.tape.tensors.dtypes import DTYPES, get_default_dtype
from tracegrad.typing import NDArray
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["format_of", "get_printoptions", "html_of", "options_set", "set_printoptions", "text_of", "text_of_array"]

PREFIX = "tensor("


@record(frozen=True, slots=True)
class PrintOptions:
    """Print options; `sci_mode` says whether floats are in scientific notation, None depends on the values."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}
_options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set the print options of Tensors: first those of a profile, then each one that is passed.

    ValueError for an unknown profile.

    >>> from tracegrad import tensor
    >>> set_printoptions(precision=2)
    >>> tensor([1.0, 2.5])
    tensor([1.00, 2.50])
    >>> set_printoptions(profile="default")
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"no print profile {profile!r}; there are {', '.join(_PROFILES)}")
    options: dict[str, Any] = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    base = _options if profile is None else _PROFILES[profile]
    _options = replace(base, sci_mode=sci_mode, **{name: x for name, x in options.items() if x is not None})


def options_set() -> str:
    """Return a key of the current options; "" for the defaults.

    >>> options_set()
    ''
    """
    return "" if _options == _PROFILES["default"] else repr(_options)


def get_printoptions() -> dict[str, Any]:
    """Return the print options of Tensors.

    >>> get_printoptions()["precision"]
    4
    """
    return {name: getattr(_options, name) for name in PrintOptions.__slots__}


# -- the format of an element ----------------------------------------------------------------------------------------
Text = Callable[[Any], str]


def _form(values: NDArray) -> tuple[Text, int]:
    """Return the format of the elements of an array that shows `values`, and the width of each in a line."""
    if values.dtype.kind == "c":
        return _form_of_complex(values)
    if values.dtype.kind == "f":
        text, width = _form_of_floats(values)
    else:
        text, width = str, max(map(len, map(str, values.tolist())), default=1)
    return lambda v: text(v).rjust(width), width


def _form_of_floats(values: NDArray) -> tuple[Text, int]:
    shown = values[np.isfinite(values) & (values != 0)]
    text = _text_of_floats(shown)
    return text, max(map(len, map(text, shown.tolist())), default=1)


def _text_of_floats(shown: NDArray) -> Text:
    """Return the format of floats, chosen by the finite nonzero ones."""
    precision = _options.precision
    integral = bool((shown == np.ceil(shown)).all())
    if _is_scientific(shown, integral):
        return lambda v: f"{v:.{precision}e}"
    if integral:
        return lambda v: f"{v:.0f}." if math.isfinite(v) else str(v)
    return lambda v: f"{v:.{precision}f}"


def _is_scientific(shown: NDArray, integral: bool) -> bool:
    if not shown.size:
        return False
    if _options.sci_mode is not None:
        return _options.sci_mode
    magnitudes = np.abs(shown)
    low, high = float(magnitudes.min()), float(magnitudes.max())
    return high / low > 1000 or high > 1e8 or (low < 1e-4 and not integral)


def _form_of_complex(values: NDArray) -> tuple[Text, int]:
    real, real_width = _form_of_floats(values.real)
    imag, imag_width = _form_of_floats(values.imag)

    def text(v: complex) -> str:
        below = imag(v.imag)
        sign = "" if below.startswith("-") else "+"
        return f"{real(v.real):>{real_width}}{sign}{below}j"

    return text, real_width + imag_width + 1


# -- the layout --------------------------------------------------------------------------------------------------------
@record(frozen=True, slots=True)
class _PrintLayout:
    """Layout of the elements of one array; `summary` says that only the edges are shown."""

    text: Text
    width: int
    summary: bool

    def nested(self, array: NDArray, indent: int) -> str:
        """Format the rows of an array between brackets, each indented to the column of the first."""
        if array.ndim == 0:
            return self.text(array.item())
        if array.ndim == 1:
            return self.row(array, indent)
        cut = self.cut(len(array))
        parts = [self.nested(part, indent + 1) for part in _edges(array, cut)]
        if cut:
            parts.insert(cut, "...")
        return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"

    def row(self, array: NDArray, indent: int) -> str:
        cut = self.cut(len(array))
        texts = [self.text(v) for part in _edges_of_row(array, cut) for v in part.tolist()]
        if cut:
            texts.insert(cut, " ...")
        each = max(1, (_options.linewidth - indent) // (self.width + 2))
        lines = [", ".join(texts[i : i + each]) for i in range(0, len(texts), each)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"

    def cut(self, length: int) -> int:
        """Return the number of elements shown at each end of an axis of `length`; 0 if all are shown."""
        return _options.edgeitems if self.summary and length > 2 * _options.edgeitems else 0


def _edges(array: NDArray, cut: int) -> Iterator[NDArray]:
    for part in _edges_of_row(array, cut):
        yield from part


def _edges_of_row(array: NDArray, cut: int) -> tuple[NDArray, ...]:
    return (array[:cut], array[-cut:]) if cut else (array,)


def _shown(array: NDArray) -> NDArray:
    """Return the elements that a summary shows."""
    edge = _options.edgeitems
    for axis, length in enumerate(array.shape):
        if length > 2 * edge:
            array = np.take(array, [*range(edge), *range(length - edge, length)], axis)
    return array


def _elements(array: NDArray) -> str:
    summary = array.size > _options.threshold
    text, width = _form((_shown(array) if summary else array).reshape(-1))
    return _PrintLayout(text, width, summary).nested(array, len(PREFIX))


# -- the text of a Tensor ----------------------------------------------------------------------------------------------
def _notes(array: NDArray, requires_grad: bool, grad_fn: str | None) -> Iterator[str]:
    """Return the text after the elements."""
    if not array.size and array.ndim != 1:
        yield f"size={array.shape}"
    known = {get_default_dtype()} | ({default_complex(), DTYPES["int64"], DTYPES["bool"]} if array.size else set())
    if array.dtype not in known:
        yield f"dtype={array.dtype}"
    if grad_fn is not None:
        yield f"grad_fn=<{grad_fn}>"
    elif requires_grad:
        yield "requires_grad=True"


def html_of(x: Tensor) -> str:
    """Return the notebook view of a Tensor: shape, dtype, tape role, text, and the text of its grad, if any."""
    from tracegrad.utils.html import block, object_html

    size = " x ".join(map(str, x.shape)) if x.shape else "of one number"
    node = x.grad_fn
    labels = [str(x.dtype)] + ["requires grad"] * (x.requires_grad and node is None)
    parts = [block("values", text_of(x).splitlines())]
    if x._grad is not None:
        parts.append(block("grad", text_of(x._grad).splitlines(), shown=False))
    return object_html(
        f"Tensor {size}", ", ".join([*labels, *([f"grad_fn {node.name()}"] if node is not None else [])]), parts
    )


def text_of_array(array: NDArray, requires_grad: bool = False, grad_fn: str | None = None, tangent: str = "") -> str:
    """Return the text of a Tensor that holds `array`, with its node's name, and its tangent's text, if any.

    >>> text_of_array(np.array([1.5, 2.0]), grad_fn="MulBackward0")
    'tensor([1.5000, 2.0000], grad_fn=<MulBackward0>)'
    """
    text = PREFIX + (_elements(array) if array.size else "[]")
    line = len(text) - (text.rfind("\n") + 1) + 2  # characters in the last line, with the separator ", "
    notes = _notes(array, requires_grad, grad_fn)
    for note in notes if not tangent else [*notes, f"tangent={tangent}"]:
        if line + len(note) + 2 > _options.linewidth:
            text, line = f"{text},\n{' ' * len(PREFIX)}{note}", len(PREFIX) + len(note)
        else:
            text, line = f"{text}, {note}", line + len(note) + 2
    return text + ")"


def text_of(tensor: Tensor) -> str:
    """Return the text of a Tensor: elements, dtype unless it is the expected one, and its role on the tape.

    >>> from tracegrad import tensor
    >>> print(text_of(tensor([[1.0, 2.0], [3.0, 4.5]], requires_grad=True)))
    tensor([[1.0000, 2.0000],
            [3.0000, 4.5000]], requires_grad=True)
    """
    array, node = tensor.array, tensor.grad_fn
    if not isinstance(array, np.ndarray):  # in a trace the elements are not known
        return f"{PREFIX}{array!r})"
    tangent = "" if tensor._dual is None or tensor._dual.tangent is None else format_of(tensor._dual.tangent, "")
    text = text_of_array(array, tensor.requires_grad, None if node is None else node.name(), tangent)
    return f"Parameter containing:\n{text}" if getattr(tensor, "_is_param", False) else text


def format_of(tensor: Tensor, spec: str) -> str:
    """`format(tensor, spec)`: as a number without axes, else as text; TypeError for a spec with axes.

    >>> from tracegrad import tensor
    >>> format_of(tensor(0.5), ".3f")
    '0.500'
    """
    if not tensor.shape:
        return format(tensor.item(), spec)
    if spec:
        raise TypeError("unsupported format string passed to Tensor.__format__")
    return text_of(tensor)


TENSOR_DOCS.document(globals(), __all__)
