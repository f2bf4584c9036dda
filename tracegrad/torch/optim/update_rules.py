"""Update rules of optimizers, in ops: for ndarrays, Tensors and traced values.

A rule has two parts. `begin(p, h)` returns the state of a parameter that was never updated: a dict of arrays, by
PyTorch's names. `change(p, g, s, t, h)` returns the new parameter and the new state from the gradient `g`, the state
`s`, the step number `t`, which starts at 1, in float64, and the hyperparameters `h`, by PyTorch's names. Neither writes
anything. Expressions of numbers alone are computed in float64, and rounded once when they meet the parameter.

The sources are the papers: Adam by Kingma and Ba (2015), AdamW by Loshchilov and Hutter (2019), AMSGrad by Reddi et al.
(2018), NAdam by Dozat (2016), RAdam by Liu et al. (2020), Adagrad by Duchi et al. (2011), Adadelta by Zeiler (2012),
RMSprop by Hinton (lecture 6e, 2012) and, centered, by Graves (2013), averaged gradient descent by Polyak and Juditsky
(1992), Rprop by Riedmiller and Braun (1993).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.ops.elementwise.table import maximum, minimum, sqrt, where
from tracegrad.ops.shape.linear import cast
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.typing import DTypeLike


__all__ = ["RULES", "UpdateRule"]

State = dict[str, Array]
InitialState = dict[str, Any]  # ndarrays, or None for no value yet
Settings = Mapping[str, Any]


class UpdateRule(NamedTuple):
    """Update rule of an optimizer for one parameter, and whether it counts its steps."""

    begin: Callable[[Array, Settings], InitialState]
    change: Callable[[Array, Array, State, Any, Settings], tuple[Array, State]]
    counts: bool = True


def _zeros(p: Array, dtype: DTypeLike = None) -> NDArray:
    return np.zeros(p.shape, p.dtype if dtype is None else dtype)


def _to(x: Array | float, p: Array) -> Any:
    """Convert a number to the dtype of the parameter; Python numbers take the dtype of the other operand."""
    kind: type = type(x)
    return x if kind in (int, float) else cast(x, dtype=p.dtype.name)


def _toward(x: Array, y: Array, weight: Array | float) -> Array:
    """Interpolate from `x` to `y`."""
    return x + (y - x) * weight


def _decayed(p: Array, g: Array, h: Settings) -> Array:
    """Return the gradient of the loss and of the penalty on large parameters."""
    return g + p * h["weight_decay"] if h["weight_decay"] else g


def _shrunk(p: Array, g: Array, h: Settings) -> tuple[Array, Array]:
    """Return the parameter and the gradient after weight decay of one of the two."""
    if not h["weight_decay"]:
        return p, g
    if h["decoupled_weight_decay"]:
        return p * _to(1 - h["lr"] * h["weight_decay"], p), g
    return p, _decayed(p, g, h)


# -- gradient descent --------------------------------------------------------------------------------------------------
def _begin_sgd(p: Array, h: Settings) -> InitialState:
    # With dampening the first step uses the whole gradient, so there is no buffer of zeros before it.
    return {"momentum_buffer": None if h["dampening"] else _zeros(p)} if h["momentum"] else {}


def _sgd(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    g = _decayed(p, g, h)
    if not h["momentum"]:
        return p - g * _to(h["lr"], p), {}
    before = s.get("momentum_buffer")
    buffer = g if before is None else before * h["momentum"] + g * (1 - h["dampening"])
    g = g + buffer * h["momentum"] if h["nesterov"] else buffer
    return p - g * _to(h["lr"], p), {"momentum_buffer": buffer}


# -- moments -----------------------------------------------------------------------------------------------------------
def _begin_adam(p: Array, h: Settings) -> InitialState:
    greatest = {"max_exp_avg_sq": _zeros(p)} if h["amsgrad"] else {}
    return {"exp_avg": _zeros(p), "exp_avg_sq": _zeros(p), **greatest}


def _adam(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    first, second = h["betas"]
    p, g = _shrunk(p, g, h)
    now = _moments(g, s, h)
    square = now["exp_avg_sq"]
    if h["amsgrad"]:
        square = now["max_exp_avg_sq"] = maximum(s["max_exp_avg_sq"], square)
    root = sqrt(square) / _to(sqrt(1 - second**t), p) + h["eps"]
    return p - now["exp_avg"] / root * _to(h["lr"] / (1 - first**t), p), now


def _moments(g: Array, s: State, h: Settings) -> State:
    first, second = h["betas"]
    square = s["exp_avg_sq"] * second + g * g * (1 - second)
    return {"exp_avg": _toward(s["exp_avg"], g, 1 - first), "exp_avg_sq": square}


def _begin_adamax(p: Array, h: Settings) -> InitialState:
    return {"exp_avg": _zeros(p), "exp_inf": _zeros(p)}


def _adamax(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    first, second = h["betas"]
    g = _decayed(p, g, h)
    mean = _toward(s["exp_avg"], g, 1 - first)
    norm = maximum(s["exp_inf"] * second, abs(g) + h["eps"])
    return p - mean / norm * _to(h["lr"] / (1 - first**t), p), {"exp_avg": mean, "exp_inf": norm}


def _begin_moments(p: Array, h: Settings) -> InitialState:
    return {"exp_avg": _zeros(p), "exp_avg_sq": _zeros(p)}


def _begin_nadam(p: Array, h: Settings) -> InitialState:
    return {"mu_product": np.ones(()), **_begin_moments(p, h)}


def _nadam(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    first, second = h["betas"]
    p, g = _shrunk(p, g, h)
    now = _moments(g, s, h)
    mu, following = (first * (1 - 0.5 * 0.96 ** (n * h["momentum_decay"])) for n in (t, t + 1))
    product = cast(s["mu_product"], dtype="float64") * mu
    root = sqrt(now["exp_avg_sq"] / _to(1 - second**t, p)) + h["eps"]
    of_gradient = _to(h["lr"] * (1 - mu) / (1 - product), p)
    of_mean = _to(h["lr"] * following / (1 - product * following), p)
    new = p - g / root * of_gradient - now["exp_avg"] / root * of_mean
    return new, {"mu_product": cast(product, dtype=s["mu_product"].dtype.name), **now}


def _radam(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    first, second = h["betas"]
    p, g = _shrunk(p, g, h)
    now = _moments(g, s, h)
    last = 2 / (1 - second) - 1
    length = last - 2 * t * second**t / (1 - second**t)
    known = length > 5  # otherwise the variance of the step is unknown
    safe = where(known, length, 6.0)
    factor = sqrt((safe - 4) * (safe - 2) * last / ((last - 4) * (last - 2) * safe) * (1 - second**t))
    mean = now["exp_avg"] / _to(1 - first**t, p)
    step = where(known, _to(factor, p) / (sqrt(now["exp_avg_sq"]) + h["eps"]), 1.0)
    return p - mean * step * _to(h["lr"], p), now


# -- squares -----------------------------------------------------------------------------------------------------------
def _begin_rmsprop(p: Array, h: Settings) -> InitialState:
    names = ["square_avg"] + ["momentum_buffer"] * (h["momentum"] > 0) + ["grad_avg"] * bool(h["centered"])
    return {name: _zeros(p) for name in names}


def _rmsprop(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    g = _decayed(p, g, h)
    now = {"square_avg": s["square_avg"] * h["alpha"] + g * g * (1 - h["alpha"])}
    spread = now["square_avg"]
    if h["centered"]:
        mean = now["grad_avg"] = _toward(s["grad_avg"], g, 1 - h["alpha"])
        spread = spread - mean * mean
    step = g / (sqrt(spread) + h["eps"])
    if h["momentum"] > 0:
        step = now["momentum_buffer"] = s["momentum_buffer"] * h["momentum"] + step
    return p - step * _to(h["lr"], p), now


def _begin_adagrad(p: Array, h: Settings) -> InitialState:
    value = h["initial_accumulator_value"]
    return {"sum": np.full(p.shape, complex(value, value) if p.dtype.kind == "c" else value, p.dtype)}


def _adagrad(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    g = _decayed(p, g, h)
    total = s["sum"] + g * g
    rate = h["lr"] / (1 + (t - 1) * h["lr_decay"])
    return p - g / (sqrt(total) + h["eps"]) * _to(rate, p), {"sum": total}


def _begin_adadelta(p: Array, h: Settings) -> InitialState:
    return {"square_avg": _zeros(p), "acc_delta": _zeros(p)}


def _adadelta(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    g = _decayed(p, g, h)
    rho, eps = h["rho"], h["eps"]
    square = s["square_avg"] * rho + g * g * (1 - rho)
    step = sqrt(s["acc_delta"] + eps) / sqrt(square + eps) * g
    new = {"square_avg": square, "acc_delta": s["acc_delta"] * rho + step * step * (1 - rho)}
    return p - step * _to(h["lr"], p), new


# -- means and signs ---------------------------------------------------------------------------------------------------
def _begin_asgd(p: Array, h: Settings) -> InitialState:
    return {"eta": np.full((), _rate(h)), "mu": np.ones(()), "ax": _zeros(p)}


def _asgd(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    g = _decayed(p, g, h)
    eta, mu = cast(s["eta"], dtype="float64"), _to(s["mu"], p)
    new = p * _to(1 - eta * h["lambd"], p) - g * _to(eta, p)
    mean = where(mu == 1, new, _toward(s["ax"], new, mu))
    rate = h["lr"] / (1 + h["lr"] * h["lambd"] * t) ** h["alpha"]
    weight = 1 / maximum(t - h["t0"], 1.0)
    kinds = (s["eta"].dtype.name, s["mu"].dtype.name)
    return new, {"eta": cast(rate, dtype=kinds[0]), "mu": cast(weight, dtype=kinds[1]), "ax": mean}


def _rate(h: Settings) -> Any:
    return h["lr"].item() if hasattr(h["lr"], "item") else h["lr"]


def _begin_rprop(p: Array, h: Settings) -> InitialState:
    value = _rate(h)
    return {
        "prev": _zeros(p),
        "step_size": np.full(p.shape, complex(value, value) if p.dtype.kind == "c" else value, p.dtype),
    }


def _rprop(p: Array, g: Array, s: State, t: Array, h: Settings) -> tuple[Array, State]:
    shorter, longer = h["etas"]
    least, most = h["step_sizes"]
    same = g * s["prev"]
    factor = where(same > 0, _as(longer, p), where(same < 0, _as(shorter, p), _as(1.0, p)))
    size = minimum(maximum(s["step_size"] * factor, least), most)
    g = where(same < 0, 0.0, g)
    step = where(g > 0, size, where(g < 0, -size, 0.0))
    return p - step, {"prev": g, "step_size": size}


def _as(x: float, p: Array) -> NDArray:
    return np.asarray(x, p.dtype)


RULES = {
    "sgd": UpdateRule(_begin_sgd, _sgd, counts=False),
    "adam": UpdateRule(_begin_adam, _adam),
    "adamax": UpdateRule(_begin_adamax, _adamax),
    "nadam": UpdateRule(_begin_nadam, _nadam),
    "radam": UpdateRule(_begin_moments, _radam),
    "rmsprop": UpdateRule(_begin_rmsprop, _rmsprop),
    "adagrad": UpdateRule(_begin_adagrad, _adagrad),
    "asgd": UpdateRule(_begin_asgd, _asgd),
    "rprop": UpdateRule(_begin_rprop, _rprop),
    "adadelta": UpdateRule(_begin_adadelta, _adadelta),
}
