"""Functional optimizers: pairs of pure functions of pytrees of ndarrays or Tensors, traced or not.

`init(params)` returns the state, `update(grads, state, params)` the new parameters and the new state; neither writes to
its arguments. The rules are PyTorch's (`update_rules`). `lr` is a number, or a function of the step number, which
starts at 0, for example one of `schedules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad import tree
from tracegrad.errors import ShapeError, located
from tracegrad.ops import Carrier, TensorCarrier
from tracegrad.ops.elementwise.table import sqrt
from tracegrad.ops.shape.linear import cast
from tracegrad.torch.modes import no_grad
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.update_rules import RULES, UpdateRule
from tracegrad.torch.tape.tensors.factories import from_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.typing import Array


__all__ = ["Pure", "adagrad", "adam", "adamw", "clip_by_global_norm", "rmsprop", "sgd"]

Rate = float | Callable[[Any], Any]


class Pure(NamedTuple):
    """Optimizer as a pair of pure functions.

    >>> optimizer = sgd(0.5)
    >>> optimizer.update(np.array(2.0), optimizer.init(np.array(3.0)), np.array(3.0))[0]
    array(2.)
    """

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


def sgd(lr: Rate = 1e-3, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Pure:
    """Gradient descent, as `SGD`, as pure functions.

    >>> init, update = sgd(0.25)
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> params, state = update({"w": 2 * params["w"]}, init(params), params)
    >>> params["w"], state["step"]
    (array([ 0.5, -1. ]), array(1))
    """
    settings = {"momentum": momentum, "dampening": 0, "nesterov": nesterov, "weight_decay": weight_decay}
    return _pure("sgd", lr, settings)


def adam(
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    *,
    decoupled_weight_decay: bool = False,
) -> Pure:
    """Adam, as the class `Adam`, as pure functions.

    >>> import tracegrad as tg
    >>> init, update = adam(0.1)
    >>> loss = tg.value_and_grad(lambda w: np.sum((w - 3.0) ** 2))
    >>> @tg.trace
    ... def step(w, state):
    ...     value, gradient = loss(w)
    ...     return update(gradient, state, w)
    >>> w = np.zeros(2)
    >>> state = init(w)
    >>> for _ in range(200):
    ...     w, state = step(w, state)
    >>> w.round(2)
    array([3., 3.])
    """
    settings = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
    return _pure("adam", lr, settings | {"decoupled_weight_decay": decoupled_weight_decay})


def adamw(
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
) -> Pure:
    """Adam with weight decay that is taken from the parameters, as `AdamW`, as pure functions.

    >>> init, update = adamw(0.25, weight_decay=0.1)
    >>> w = np.array([1.0, -2.0])
    >>> update(2 * w, init(w), w)[0]
    array([ 0.725, -1.7  ])
    """
    return adam(lr, betas, eps, weight_decay, amsgrad, decoupled_weight_decay=True)


def rmsprop(
    lr: Rate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> Pure:
    """The gradient, divided by the root of the mean of its squares, as `RMSprop`, as pure functions.

    >>> init, update = rmsprop(0.025)
    >>> w = np.array([1.0, -2.0])
    >>> update(2 * w, init(w), w)[0].round(6)
    array([ 0.75, -1.75])
    """
    settings = {"alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum, "centered": centered}
    return _pure("rmsprop", lr, settings)


def adagrad(
    lr: Rate = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
) -> Pure:
    """The gradient, divided by the root of the sum of all its squares, as `Adagrad`, as pure functions.

    >>> init, update = adagrad(0.25)
    >>> w = np.array([1.0, -2.0])
    >>> update(2 * w, init(w), w)[0]
    array([ 0.75, -1.75])
    """
    settings = {"lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
    return _pure("adagrad", lr, settings | {"initial_accumulator_value": initial_accumulator_value})


def clip_by_global_norm(grads: object, max_norm: float) -> Any:
    """Scale gradients so that the norm of all their elements together is at most `max_norm`.

    >>> clip_by_global_norm({"w": np.array([3.0, 0.0]), "b": np.array(4.0)}, 1.0)
    {'w': array([0.6, 0. ]), 'b': array(0.8)}
    """
    leaves = [_array(x) for x in tree.leaves(grads)]
    if not leaves:
        return grads
    square = sum([(abs(x) ** 2).sum() for x in leaves])
    norm = sqrt(square)
    factor = max_norm / (norm + (max_norm - norm) * (norm < max_norm))
    return tree.map(lambda x: _array(_array(x) * cast(factor, dtype=_array(x).dtype.name)), grads)


def _pure(name: str, lr: Rate, settings: Mapping[str, object]) -> Pure:
    rule = RULES[name]

    def init(params: object) -> dict[str, Any]:
        """Return the state of parameters that were never updated, in ndarrays or Tensors like the parameters."""
        leaves, structure = tree.flatten(params)
        states = [_initial_state(rule, _array(p, f"{name}: parameter {k}"), settings) for k, p in enumerate(leaves)]
        names = states[0] if states else {}
        moments = {key: tree.unflatten(structure, [state[key] for state in states]) for key in names}
        return {"step": np.zeros((), np.int64), **moments}

    def update(grads: object, state: Any, params: object) -> tuple[Any, dict[str, Any]]:
        """Return the new parameters, and the new state."""
        leaves, structure = tree.flatten(params)
        gradients = tree.flatten_up_to(structure, grads)
        keys = [key for key in state if key != "step"]
        moments = [tree.flatten_up_to(structure, state[key]) for key in keys]
        step = _array(state["step"] + 1)
        rate = lr(state["step"]) if callable(lr) else lr
        h, t = {"lr": rate, **settings}, cast(step, dtype="float64")
        with no_grad():
            results = [
                _apply_rule(rule, f"{name}: the gradient of parameter {k}", p, g, dict(zip(keys, s)), t, h)
                for k, (p, g, s) in enumerate(zip(leaves, gradients, zip(*moments) if keys else [()] * len(leaves)))
            ]
        new = {key: tree.unflatten(structure, [s[key] for _, s in results]) for key in keys}
        return tree.unflatten(structure, [p for p, _ in results]), {"step": step, **new}

    return Pure(init, update)


def _initial_state(rule: UpdateRule, p: Array, settings: Mapping[str, object]) -> dict[str, Any]:
    state = rule.begin(p, settings)
    return {k: from_numpy(x) if isinstance(p, TensorCarrier) else x for k, x in state.items()}


def _apply_rule(rule: UpdateRule, label: str, p: Any, g: Any, s: dict[str, Any], t: Any, h: dict[str, Any]) -> Any:
    p, g = _array(p), _array(g, label)
    if g.shape != p.shape:
        raise ShapeError(located(f"{label} has the shape {tuple(g.shape)}, and the parameter {tuple(p.shape)}"))
    new, now = rule.change(p, g, s, t, h)
    return _array(new), {key: _array(x) for key, x in now.items()}


def _array(x: Any, label: str = "") -> Any:
    """Convert a number to an array; return arrays and carriers unchanged."""
    if isinstance(x, Carrier):
        return x
    array = np.asarray(x)
    if array.dtype.kind not in "fc" and label:
        raise TypeError(located(f"{label} is {array.dtype}; parameters are arrays of floating-point numbers"))
    return array


OPTIM_DOCS.document(globals(), __all__)
