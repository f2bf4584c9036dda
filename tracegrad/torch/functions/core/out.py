"""Argument `out=`: write the result of a function into a Tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.torch.functions.core.dims import size_error, type_name
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import ONE_OP
from tracegrad.torch.modes import STATE, no_grad
from tracegrad.typing import Array

# The functions that take out= in PyTorch.
_NAMES = """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax angle any arange arccos
    arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh baddbmm
    bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm
    bucketize cat ceil cholesky clamp clamp_max clamp_min clip column_stack complex concat concatenate
    conj_physical copysign cos cosh cross cummax cummin cumprod cumsum deg2rad diag diff digamma div divide dot
    dstack empty eq erf erfc erfinv exp exp2 expm1 eye fix float_power floor floor_divide fmax fmin fmod frac
    full gather gcd ge ger greater greater_equal gt heaviside histc hstack hypot i0 index_add index_copy
    index_reduce index_select inner inverse isin isneginf isposinf kron kthvalue lcm ldexp le lerp less
    less_equal lgamma linspace log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and
    logical_not logical_or logical_xor logit logspace logsumexp lt masked_select matmul matrix_power max maximum
    mean median min minimum mm mode moveaxis msort mul multinomial multiply mv nan_to_num nanmean nanmedian
    nanquantile nansum ne neg negative nextafter nonzero norm normal not_equal ones outer polar polygamma pow
    prod quantile rad2deg rand randint randn randperm range reciprocal remainder renorm round row_stack rsqrt
    scatter scatter_add scatter_reduce searchsorted sgn sigmoid sign signbit sin sinc sinh softmax sort sqrt
    square stack std sub subtract sum take take_along_dim tan tanh tensordot topk tril triu true_divide trunc
    var vdot vstack where xlogy zeros
"""
WITH_OUT = frozenset(_NAMES.split())


# Functions whose `out` must have the dtype of the result; other functions convert the result.
_EXACT_NAMES = """
    abs absolute addbmm addmm addmv all amax amin aminmax any argmax argmin argsort baddbmm bitwise_not bmm ceil
    cholesky clip cross cummax cummin diag dot fix float_power floor frac gather histc index_add index_copy index_reduce
    index_select inverse isneginf isposinf kthvalue ldexp log_softmax logcumsumexp masked_select matmul matrix_power
    max median min mm mode msort mv nan_to_num nanmedian nanquantile neg negative norm quantile round scatter
    scatter_add scatter_reduce sgn sign signbit softmax sort take take_along_dim tensordot topk tril triu trunc vdot
    where
"""
_EXACT = frozenset(_EXACT_NAMES.split())
# Functions whose `out` may not share memory with an operand.
_SEPARATE = frozenset({"cat", "concat", "concatenate", "gather", "index_select", "masked_select", "take"})
_PROMOTED = frozenset({"max", "min"})  # with two operands they are `maximum` and `minimum`


def with_out(name: str, fn: Callable[..., object]) -> Callable[..., object]:
    """Wrap `fn` to accept `out=`, a Tensor for its result or a tuple for its results, which is then returned.

    RuntimeError if the written value would have a derivative, as in PyTorch.
    """

    def of_any(*args: object, out: object = None, **kwargs: object) -> Any:
        if out is None:
            return fn(*args, **kwargs)
        if name in _SEPARATE:
            _require_own_memory(out, args)
        return written(name, out, fn(*_still(name, out, args), **kwargs))

    def of_one(input: Array, *, out: object = None) -> Any:
        return fn(input) if out is None else written(name, out, fn(*_still(name, out, (input,))))

    call: Any = of_one if name in ONE_OP else of_any
    call.__name__, call.__qualname__, call.__doc__ = fn.__name__, fn.__qualname__, fn.__doc__
    call.__module__, call.__wrapped__ = fn.__module__, fn
    return call  # type: ignore[no-any-return]


def _still(name: str, out: object, args: tuple[object, ...]) -> tuple[object, ...]:
    if STATE.enabled and any(getattr(x, "requires_grad", False) for x in _leaves((out, args))):
        raise RuntimeError(
            located(
                f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
                "arguments requires grad."
            )
        )
    if STATE.level is not None and any(getattr(x, "_dual", None) is not None for x in _leaves((out, args))):
        text = "an out= function does not support forward mode, but one of the arguments has a tangent"
        raise RuntimeError(located(f"{name}(): {text}"))
    return args


def _require_own_memory(out: object, args: tuple[object, ...]) -> None:
    """Raise RuntimeError if elements of `out` share memory with each other, or with an operand."""
    target = getattr(out, "array", out)
    if not isinstance(target, np.ndarray):
        return
    end = "refer to a single memory location. Please clone() the tensor before performing the operation."
    if any(stride == 0 and n > 1 for stride, n in zip(target.strides, target.shape)):
        text = f"more than one element of the written-to tensor {end.replace('refer', 'refers', 1)}"
        raise RuntimeError(located(f"unsupported operation: {text}"))
    for x in _leaves(args):
        array = getattr(x, "array", x)
        if isinstance(array, np.ndarray) and np.may_share_memory(array, target):
            text = f"some elements of the input tensor and the written-to tensor {end}"
            raise RuntimeError(located(f"unsupported operation: {text}"))


def _leaves(x: object) -> Iterator[object]:
    if isinstance(x, list | tuple):
        for y in x:
            yield from _leaves(y)
    else:
        yield x


def written(name: str, out: Any, result: Any) -> Any:
    """Write the result, or a tuple of results, into `out`, and return `out`."""
    targets, results = (out, result) if isinstance(result, tuple) else ((out,), (result,))
    if not isinstance(targets, list | tuple) or len(targets) != len(results):
        raise TypeError(located(f"{name}(): out= has to be a tuple of {len(results)}"))
    exact = name in _EXACT and (isinstance(result, tuple) or name not in _PROMOTED)
    for target, value in zip(targets, results):
        _write(name, target, value, exact)
    return type(result)(*targets) if hasattr(result, "_fields") else targets if isinstance(result, tuple) else out


def _write(name: str, target: Array, value: Array, exact: bool) -> None:
    if not hasattr(target, "dtype"):
        raise TypeError(located(f"{name}(): argument 'out' must be Tensor, not {type(target).__name__}"))
    if exact:
        require_one_dtype(value, target, "Expected out tensor to have dtype {a}, but got {b} instead")
    if not np.can_cast(value.dtype, target.dtype, "same_kind"):
        raise RuntimeError(
            located(
                f"result type {type_name(value.dtype)} can't be cast to the desired output type "
                f"{type_name(target.dtype)}"
            )
        )
    if target.shape != value.shape:
        _resize(name, target, value.shape)
    store(target, value)


def _resize(name: str, target: Any, shape: tuple[int, ...]) -> None:
    if not hasattr(target, "_resized"):
        raise size_error(f"{name}(): out= has the shape {list(target.shape)}, and the result {list(shape)}")
    if 0 not in target.shape:
        warnings.warn(
            located(
                f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does "
                f"not match the required output shape {list(shape)}. This behavior is deprecated, and in a future "
                "PyTorch release outputs will not be resized unless they have zero elements."
            ),
            UserWarning,
            stacklevel=2,
        )
    target._resized(shape)


def store(target: Any, value: Any) -> None:
    """Write `value`, of the same shape, into `target`, an array or a Tensor, without recording the write."""
    if isinstance(target, Carrier) and hasattr(target, "copy_"):
        with no_grad():
            target.copy_(value)
    elif isinstance(target, Carrier):
        target[...] = value  # type: ignore[index]
    else:
        np.copyto(target, value.array if hasattr(value, "array") else value, casting="same_kind")
