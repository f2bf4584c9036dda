"""Scheduler `ReduceLROnPlateau`: reduce the rate when a metric stops improving."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracegrad.errors import located
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.lr_scheduler_base import LRScheduler, for_each, set_rates
from tracegrad.torch.optim.optimizer import Optimizer
from tracegrad.torch.tape import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """The rate, multiplied by `factor` if a metric has not improved for more than `patience` epochs.

    `step(metrics)` takes the metric. ValueError for a factor that is not below 1, and for an unknown mode.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = ReduceLROnPlateau(sgd, patience=1)
    >>> for loss in (3.0, 3.0, 3.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.05]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ):
        if factor >= 1.0:
            raise ValueError(located("Factor should be < 1.0."))
        if not isinstance(optimizer, Optimizer):
            raise TypeError(located(f"{type(optimizer).__name__} is not an Optimizer"))
        if mode not in ("min", "max"):
            raise ValueError(located(f"mode {mode} is unknown!"))
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(located(f"threshold mode {threshold_mode} is unknown!"))
        self.optimizer, self.factor, self.patience, self.cooldown, self.eps = optimizer, factor, patience, cooldown, eps
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.min_lrs = for_each("min_lr", min_lr, optimizer)
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self) -> None:
        self.best, self.cooldown_counter, self.num_bad_epochs = self.mode_worse, 0, 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the rate was reduced recently, so that bad epochs are not counted."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether the metric `a` is better than the best, by more than the threshold."""
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            return sign * a > sign * best * (1.0 + sign * self.threshold)
        return sign * a > sign * best + self.threshold

    def step(self, metrics: Tensor | float, epoch: int | None = None) -> None:  # type: ignore[override]
        """Advance to the next epoch, with this metric."""
        current = float(metrics.detach() if isinstance(metrics, Tensor) else metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _reduce(self) -> None:
        old = self.rates()
        least = self.min_lrs + [self.default_min_lr or 0] * (len(old) - len(self.min_lrs))
        new = [max(float(rate) * self.factor, bound) for rate, bound in zip(old, least)]
        set_rates(self.optimizer, [b if float(a) - b > self.eps else float(a) for a, b in zip(old, new)])


OPTIM_DOCS.document(globals(), __all__)
