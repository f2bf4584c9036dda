"""Stochastic gradient descent on nested containers of arrays: `sgd`, `rmsprop`, `adam`.

`grad(x, i)` returns the gradient at `x` in iteration `i`, and `callback(x, i, gradient)` is called in each iteration.

>>> print(f"{sgd(lambda x, i: 2 * (x - 3.0), 0.0):.3f}")
3.000
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.compat.autograd.misc.flatten import flatten
from tracegrad.compat.autograd.wrap_util import wraps

__all__ = ["adam", "rmsprop", "sgd", "unflatten_optimizer"]

Function = Callable[..., Any]


def unflatten_optimizer(optimize: Function) -> Function:
    """Lift an optimizer of vectors to an optimizer of nested containers."""

    def of_containers(
        grad: Function, x0: object, callback: Function | None = None, *args: object, **kwargs: object
    ) -> Any:
        start, unflatten = flatten(x0)

        def flat_grad(x: object, i: int) -> object:
            return flatten(grad(unflatten(x), i))[0]

        def flat_callback(x: object, i: int, g: object) -> object:
            assert callback is not None
            return callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(flat_grad, start, flat_callback if callback else None, *args, **kwargs))

    named: Function = wraps(optimize)(of_containers)
    return named


@unflatten_optimizer
def sgd(
    grad: Function,
    x: Any,
    callback: Function | None = None,
    num_iters: int = 200,
    step_size: float = 0.1,
    mass: float = 0.9,
) -> Any:
    """Gradient descent with momentum."""
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Function,
    x: Any,
    callback: Function | None = None,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Gradient descent by the gradient over the root of its mean square."""
    square = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        square = gamma * square + (1.0 - gamma) * g**2
        x = x - step_size * g / (np.sqrt(square) + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Function,
    x: Any,
    callback: Function | None = None,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Adam: the mean gradient over the root of its mean square, both corrected for their start at 0."""
    mean, square = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        if callback:
            callback(x, i, g)
        mean = b1 * mean + (1.0 - b1) * g
        square = b2 * square + (1.0 - b2) * g**2
        corrected = mean / (1.0 - b1 ** (i + 1)), square / (1.0 - b2 ** (i + 1))
        x = x - step_size * corrected[0] / (np.sqrt(corrected[1]) + eps)
    return x
