"""Functions that call a method of their first argument: in-place updates, and copies of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.torch.functions.core.dims import one
from tracegrad.torch.functions.core.registry import METHODS
from tracegrad.torch.functions.indexing import shapes, slicing  # noqa: F401  (they register the methods)

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


_IN_PLACE = """
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_ ceil_ clamp_
    clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_
    floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_
    reciprocal_ relu_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
"""
_COPIES = """
    as_strided_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy split_copy
    split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy
"""

_IN_PLACE_DOC = """Update a Tensor in place, as its method `{name}`.

Parameters
----------
input : Tensor
    Tensor to update.
*args, **kwargs
    Other arguments of `{function}`.

Returns
-------
Tensor
    The input.
"""
_COPY_DOC = """Copy what `{view}` returns as a view.

Parameters
----------
input : Tensor or ndarray
    Input.
*args, **kwargs
    Other arguments of `{view}`.

Returns
-------
Tensor or ndarray, or tuple of them
    Copy.
"""


def _updating(name: str) -> Callable[..., object]:
    def update(input: Array, *args: object, **kwargs: object) -> Any:
        if not isinstance(input, Carrier):
            raise TypeError(located(f"{name}() takes a Tensor, which it updates in place, got {_kind(input)}"))
        return getattr(input, name)(*args, **kwargs)

    doc = _IN_PLACE_DOC.format(name=name, function=name.removesuffix("_"))
    return _called(update, name, doc)


def _copying(name: str) -> Callable[..., object]:
    view = name.removesuffix("_copy")
    of_array: Any = METHODS.get(view, one)

    def copy(input: Array, *args: object, **kwargs: object) -> Any:
        if not isinstance(input, Carrier | np.ndarray):
            raise TypeError(located(f"{name}() takes a Tensor or an array, got {_kind(input)}"))
        if hasattr(input, "requires_grad"):
            result = getattr(input, view)(*args, **kwargs)
        else:
            result = of_array(input, *args, **kwargs)
        return tuple([_copied(x) for x in result]) if isinstance(result, tuple | list) else _copied(result)

    return _called(copy, name, _COPY_DOC.format(view=view))


def _copied(x: Any) -> Any:
    return x.clone() if hasattr(x, "clone") else x.copy()


def _kind(x: Operand) -> str:
    return f"a {type(x).__name__}"


def _called(fn: Callable[..., object], name: str, doc: str) -> Callable[..., object]:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return fn


OF_METHODS: dict[str, Callable[..., Any]] = {
    **{name: _updating(name) for name in _IN_PLACE.split()},
    **{name: _copying(name) for name in _COPIES.split()},
}
