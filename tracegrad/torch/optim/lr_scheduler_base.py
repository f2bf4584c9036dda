"""Base class of learning-rate schedules: the rates that they set, and their state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from tracegrad.errors import located
from tracegrad.torch.modes import no_grad
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.optimizer import Optimizer
from tracegrad.torch.tape import Tensor

__all__ = ["LRScheduler", "for_each", "set_rates"]


def set_rates(optimizer: Optimizer, rates: Iterable[Tensor | float], name: str = "lr") -> None:
    """Set the rates of the groups; a rate that is a Tensor stays that Tensor."""
    for group, rate in zip(optimizer.param_groups, rates):
        known = group.get(name)
        if isinstance(known, Tensor):
            with no_grad():
                known.fill_(rate)
        else:
            group[name] = float(rate) if isinstance(rate, Tensor) else rate


def for_each(name: str, x: object, optimizer: Optimizer) -> list[Any]:
    """Return `x` for each group; ValueError for a list of another length."""
    groups = len(optimizer.param_groups)
    if not isinstance(x, list | tuple):
        return [x] * groups
    if len(x) != groups:
        raise ValueError(located(f"{name} must have the same length as optimizer.param_groups, {groups}, not {len(x)}"))
    return list(x)


class LRScheduler:
    """Base class of schedules: a subclass has `get_lr`, which returns the rates at `last_epoch`.

    TypeError for an object that is no optimizer; KeyError if the groups of a resumed run have no initial rates.

    >>> from tracegrad import optim, tensor
    >>> class Halved(LRScheduler):
    ...     def get_lr(self):
    ...         return [group["initial_lr"] / 2 for group in self.optimizer.param_groups]
    >>> Halved(optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)).get_last_lr()
    [0.25]
    """

    optimizer: Any
    last_epoch: int
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(located(f"{type(optimizer).__name__} is not an Optimizer"))
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                rate = group["lr"]
                group.setdefault("initial_lr", rate.clone() if isinstance(rate, Tensor) else rate)
            elif "initial_lr" not in group:
                text = f"param 'initial_lr' is not specified in param_groups[{k}] when resuming scheduler"
                raise KeyError(f"{text} with last_epoch >= 0")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._update(None)

    def get_lr(self) -> list[float]:
        """Return the rates of the groups at `last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[Any]:
        """Return the rates that were set last, one for each group."""
        return self._last_lr

    def rates(self, factor: float = 1.0) -> list[Any]:
        """Return the present rates, times a factor."""
        results = [group["lr"] for group in self.optimizer.param_groups]
        return results if factor == 1.0 else [rate * factor for rate in results]

    def step(self, epoch: object = None) -> None:
        """Advance to the next epoch, or to this one; warn if the optimizer has made no step at the first rate."""
        if self._step_count == 1 and not self.optimizer._stepped:
            warnings.warn(
                located(
                    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
                    "order: `optimizer.step()` before `lr_scheduler.step()`; else the first rate is skipped"
                ),
                UserWarning,
                stacklevel=2,
            )
        self._update(epoch)

    def _update(self, epoch: Any) -> None:
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            rates = self.get_lr() if closed is None else closed()
        set_rates(self.optimizer, rates)
        self._last_lr = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes but the optimizer."""
        return {k: x for k, x in vars(self).items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        vars(self).update(state_dict)


OPTIM_DOCS.document(globals(), __all__)
