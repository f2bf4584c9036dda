"""Optimizers whose rule sees a parameter as a matrix: Adafactor and Muon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.elementwise.table import maximum, minimum, sqrt
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.reduce.reductions import mean
from tracegrad.ops.shape.linear import cast, reduce_sum, reshape, transpose
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.optimizer import Optimizer
from tracegrad.torch.optim.update_rules import UpdateRule
from tracegrad.torch.tape import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.typing import Array, NDArray

    Settings = Mapping[str, Any]
    State = dict[str, Array]

__all__ = ["Adafactor", "Muon"]


def _require_real(name: str, p: Array) -> None:
    if p.dtype.kind == "c":
        raise RuntimeError(located(f"{name} does not support complex parameters"))


def _require_not_negative(texts: Mapping[str, tuple[str, Any]]) -> None:
    for text, value in texts.values():
        if not value >= 0:  # nan is invalid too
            raise ValueError(located(f"{text} should be >= 0 but is: {value}"))


def _require_scalar(lr: Tensor | float) -> None:
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(located("Tensor lr must be 1-element"))


def _mean_along(x: Array, axis: int) -> Array:
    """Return the mean along an axis, which stays with size 1."""
    axis %= len(x.shape)
    return reshape(mean(x, axes=(axis,)), shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))


def _root_mean_square(x: Array) -> Array:
    return sqrt(mean(x * x, axes=tuple(range(len(x.shape)))))


# -- Adafactor -------------------------------------------------------------------------------------------------------
def _begin_adafactor(p: Array, h: Settings) -> dict[str, NDArray]:
    _require_real("Adafactor", p)
    if len(p.shape) < 2:
        return {"variance": np.zeros(p.shape, p.dtype)}
    rows, columns = (*p.shape[:-1], 1), (*p.shape[:-2], 1, p.shape[-1])
    return {"row_var": np.zeros(rows, p.dtype), "col_var": np.zeros(columns, p.dtype)}


def _adafactor(p: Array, g: Array, s: State, t: Any, h: Settings) -> tuple[Array, State]:
    kind = p.dtype.name
    least, smallest_scale = h["eps"]
    least = float(np.finfo(p.dtype).eps) if least is None else least
    weight = cast(t ** h["beta2_decay"], dtype=kind)
    scale = maximum(cast(_root_mean_square(p), dtype="float64"), smallest_scale) * minimum(t**-0.5, h["lr"])
    if h["weight_decay"]:
        p = p * _in(1 - h["lr"] * h["weight_decay"], p)
    square = g * g
    if len(p.shape) < 2:
        now = {"variance": s["variance"] + (square - s["variance"]) * weight}
        variance = now["variance"]
    else:
        rows, columns = _mean_along(square, -1), _mean_along(square, -2)
        now = {
            "row_var": s["row_var"] + (rows - s["row_var"]) * weight,
            "col_var": s["col_var"] + (columns - s["col_var"]) * weight,
        }
        variance = now["row_var"] * now["col_var"] / maximum(_mean_along(now["row_var"], -2), least)
    update = g / sqrt(maximum(variance, least * least))
    clip = maximum(cast(_root_mean_square(update), dtype="float64") / h["d"], 1.0)
    return p - update * cast(scale / clip, dtype=kind), now


def _in(x: Any, p: Array) -> Any:
    """Convert a number to the dtype of the parameter; Python numbers take the dtype of the other operand."""
    return x if isinstance(x, int | float) else cast(x, dtype=p.dtype.name)


class Adafactor(Optimizer):
    """Adam whose mean of squares is the product of a row and a column: the state of a matrix is two vectors.

    Source: Shazeer and Stern 2018. Steps are as in PyTorch: `lr` bounds the relative step size. RuntimeError for
    complex parameters; ValueError for hyperparameters out of range; other errors as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([[1.0, -2.0]], requires_grad=True)
    >>> adafactor = Adafactor([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> adafactor.step()
    >>> w
    tensor([[ 0.6047, -1.6047]], requires_grad=True)
    >>> [tuple(adafactor.state[w][name].shape) for name in ("row_var", "col_var")]
    [(1, 1), (1, 2)]
    """

    rule = UpdateRule(_begin_adafactor, _adafactor)

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ):
        _require_scalar(lr)
        _require_not_negative({"lr": ("Learning rate", lr)})
        if not beta2_decay <= 0:
            raise ValueError(located(f"beta2_decay should be <= 0 but is: {beta2_decay}"))
        _require_not_negative({"eps1": ("epsilon1", eps[0] or 0.0), "eps2": ("epsilon2", eps[1])})
        if not d >= 1:
            raise ValueError(located(f"Clipping threshold d should be >= 1 but is: {d}"))
        _require_not_negative({"weight_decay": ("weight_decay", weight_decay)})
        settings = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, settings | {"foreach": foreach, "maximize": maximize})


# -- Muon ------------------------------------------------------------------------------------------------------------
def _begin_muon(p: Array, h: Settings) -> dict[str, NDArray]:
    _require_real("Muon", p)
    return {"momentum_buffer": np.zeros(p.shape, p.dtype)}


def _muon(p: Array, g: Array, s: State, t: object, h: Settings) -> tuple[Array, State]:
    share = 1 - h["momentum"]
    buffer = s["momentum_buffer"] + (g - s["momentum_buffer"]) * share
    update = g + (buffer - g) * h["momentum"] if h["nesterov"] else buffer
    update = _orthogonalized(update, h["ns_coefficients"], h["ns_steps"], h["eps"])
    rows, columns = p.shape
    ratio = math.sqrt(max(1, rows / max(columns, 1)))
    if h["adjust_lr_fn"] == "match_rms_adamw":
        ratio = 0.2 * math.sqrt(max(rows, columns))
    p = p * _in(1 - h["lr"] * h["weight_decay"], p)
    return p - update * _in(h["lr"] * ratio, p), {"momentum_buffer": buffer}


def _orthogonalized(x: Array, coefficients: tuple[float, float, float], steps: int, eps: float) -> Array:
    """Move the singular values of a matrix towards 1 (quintic Newton-Schulz iteration)."""
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = transpose(x, perm=(1, 0)) if is_tall else x
    x = x / maximum(sqrt(reduce_sum(x * x, axes=(0, 1))), eps)
    for _ in range(steps):
        gram = matmul(x, transpose(x, perm=(1, 0)))
        x = x * a + matmul(gram * b + matmul(gram, gram) * c, x)
    return transpose(x, perm=(1, 0)) if is_tall else x


class Muon(Optimizer):
    """Momentum whose step is orthogonalized: all singular values of the step of a matrix are near 1.

    Source: Jordan 2024. Steps are as in PyTorch, except that they are computed in the dtype of the parameter, where
    PyTorch rounds the orthogonalized step to bfloat16. ValueError for parameters that are no matrices and
    hyperparameters out of range; RuntimeError for complex parameters; other errors as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([[1.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> muon = Muon([w], lr=0.25, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> muon.step()
    >>> w.round(decimals=1)
    tensor([[0.8000, 0.0000],
            [0.0000, 3.8000]], grad_fn=<RoundBackward1>)
    """

    rule = UpdateRule(_begin_muon, _muon, counts=False)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ):
        _require_scalar(lr)
        _require_not_negative(
            {"lr": ("Learning rate", lr), "m": ("momentum", momentum), "decay": ("weight decay", weight_decay)}
        )
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(located(f"Adjust learning rate function {adjust_lr_fn} is not supported"))
        if ns_steps >= 100:
            raise ValueError(located("Number of steps must be less than 100 for computational efficiency"))
        if len(ns_coefficients) != 3:
            raise ValueError(located("Coefficients must be a tuple of exactly 3 values"))
        settings = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        settings |= {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps}
        super().__init__(params, settings | {"adjust_lr_fn": adjust_lr_fn})

    def add_param_group(self, param_group: Mapping[str, object]) -> None:
        """Optimize these matrices too: a dict with `"params"` and the settings in which they differ.

        Raises as the constructor does, and leaves the optimizer as it was then.
        """
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)  # type: ignore[call-overload]
        for p in params:
            shape = (p[1] if isinstance(p, tuple) else p).shape
            if len(shape) != 2:
                text = f"Muon only supports 2D parameters whereas we found a parameter with size: {shape}"
                raise ValueError(located(text))
        super().add_param_group({**param_group, "params": params})


OPTIM_DOCS.document(globals(), __all__)
