"""Learning-rate schedules as functions of the step number, from 0 on, for the functional optimizers.

Each function here returns a schedule, which takes a number, an array or a traced value.

>>> rate = cosine(0.1, 100, warmup=10)
>>> [round(float(rate(n)), 4) for n in (0, 5, 10, 55, 100, 1000)]
[0.0, 0.05, 0.1, 0.05, 0.0, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.torch.optim.docs import OPTIM_DOCS

__all__ = ["constant", "cosine", "exponential", "linear"]

Schedule = Callable[[Any], Any]


def constant(lr: float) -> Schedule:
    """Return the schedule that always has the rate `lr`.

    >>> float(constant(0.1)(7))
    0.1
    """
    return lambda step: lr + 0.0 * _float(step)


def linear(lr: float, steps: int, end: float = 0.0) -> Schedule:
    """Return the schedule that goes linearly from `lr` to `end`, and stays there.

    >>> [float(linear(1.0, 4)(n)) for n in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    return lambda step: lr + (end - lr) * np.clip(_float(step) / steps, 0.0, 1.0)


def exponential(lr: float, rate: float, steps: int = 1) -> Schedule:
    """Return the schedule that multiplies `lr` by `rate` for every `steps` steps.

    >>> [float(exponential(1.0, 0.5, 2)(n)) for n in (0, 2, 4)]
    [1.0, 0.5, 0.25]
    """
    return lambda step: lr * np.exp(math.log(rate) / steps * _float(step)) if rate > 0 else lr * (_float(step) == 0)


def cosine(lr: float, steps: int, end: float = 0.0, warmup: int = 0) -> Schedule:
    """Return the schedule that rises to `lr`, and falls to `end` along half a wave of a cosine.

    >>> [float(cosine(1.0, 4)(n)).__round__(3) for n in (0, 2, 4, 5)]
    [1.0, 0.5, 0.0, 0.0]
    """

    def rate(step: Any) -> Any:
        step = _float(step)
        done = np.clip((step - warmup) / max(steps - warmup, 1), 0.0, 1.0)
        wave = end + (lr - end) * 0.5 * (1.0 + np.cos(np.pi * done))
        return wave if warmup == 0 else np.where(step < warmup, lr * (step / warmup), wave)

    return rate


def _float(step: Any) -> Any:
    return np.multiply(step, 1.0)


OPTIM_DOCS.document(globals(), __all__)
