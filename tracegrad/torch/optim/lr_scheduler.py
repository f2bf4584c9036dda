"""Namespace of `torch.optim.lr_scheduler`: learning-rate schedules for the parameter groups of an optimizer.

A schedule sets `group["lr"]` when it is made and at each `step`, mostly as a multiple of the old rate, so schedules can
be chained. A rate is an input of a traced step, so a new rate does not recompile it.
"""

from __future__ import annotations

import bisect
import math
import types
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.optim.cyclic_lr import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.lr_scheduler_base import LRScheduler, set_rates
from tracegrad.torch.optim.reduce_on_plateau import ReduceLROnPlateau

if TYPE_CHECKING:
    from tracegrad.torch.optim.optimizer import Optimizer


__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

Factor = Callable[[int], float]


class _OfFunctions(LRScheduler):
    """Base class of schedules by functions of the epoch: one function for all groups, or one for each."""

    lr_lambdas: list[Factor]

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1):
        groups = len(optimizer.param_groups)
        results: list[Any] = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * groups
        if len(results) != groups:
            raise ValueError(located(f"Expected {groups} lr_lambdas, but got {len(results)}"))
        self.lr_lambdas = results
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, without functions, and with the attributes of callable objects."""
        state = {k: x for k, x in vars(self).items() if k not in ("optimizer", "lr_lambdas")}
        plain = types.FunctionType | types.BuiltinFunctionType | types.MethodType
        return state | {"lr_lambdas": [None if isinstance(f, plain) else dict(vars(f)) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: x for k, x in state_dict.items() if k != "lr_lambdas"})
        for f, state in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if state is not None:
                vars(f).update(state)


class LambdaLR(_OfFunctions):
    """The initial rate, multiplied by a function of the epoch.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = LambdaLR(sgd, lambda epoch: 1 / (1 + epoch))
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.25]
    """

    def get_lr(self) -> list[float]:
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_OfFunctions):
    """The rate, multiplied by a function of the epoch at each epoch.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = MultiplicativeLR(sgd, lambda epoch: 0.5)
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.25]
    """

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self.rates()
        return [rate * f(self.last_epoch) for f, rate in zip(self.lr_lambdas, self.rates())]


class StepLR(LRScheduler):
    """The rate, multiplied by `gamma` every `step_size` epochs.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = StepLR(sgd, step_size=2, gamma=0.1)
    >>> for _ in range(5):
    ...     sgd.step()
    ...     schedule.step()
    >>> sgd.param_groups[0]["lr"]
    0.005000000000000001
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        changes = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return self.rates(self.gamma) if changes else self.rates()

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate, multiplied by `gamma` at each of the epochs `milestones`.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = MultiStepLR(sgd, milestones=[1, 3], gamma=0.5)
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        times = self.milestones.get(self.last_epoch, 0)
        return self.rates(self.gamma**times) if times else self.rates()

    def _get_closed_form_lr(self) -> list[float]:
        times = bisect.bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**times for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate, multiplied by `factor` for `total_iters` epochs.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> ConstantLR(sgd, factor=0.5).get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 <= factor <= 1.0:
            raise ValueError(located("Constant multiplicative factor expected to be between 0 and 1."))
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self.rates(self.factor)
        return self.rates(1.0 / self.factor) if self.last_epoch == self.total_iters else self.rates()

    def _get_closed_form_lr(self) -> list[float]:
        return [base * (self.factor if self.last_epoch < self.total_iters else 1) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The rate, multiplied by a factor that goes from `start_factor` to `end_factor`.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> LinearLR(sgd, start_factor=0.5).get_last_lr()
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                located("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError(located("Ending multiplicative factor expected to be between 0 and 1."))
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self.rates(self.start_factor)
        if self.last_epoch > self.total_iters:
            return self.rates()
        change = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * change
        return self.rates(1.0 + change / before)

    def _get_closed_form_lr(self) -> list[float]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * done) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate, multiplied by `gamma` at each epoch.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = ExponentialLR(sgd, gamma=0.5)
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self.rates(self.gamma) if self.last_epoch else self.rates()

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The rate, which falls to 0 as a power of the number of epochs that are left.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> schedule = PolynomialLR(sgd, total_iters=4)
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.375]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        n, total = self.last_epoch, self.total_iters
        if n == 0 or n > total:
            return self.rates()
        return self.rates(((1.0 - n / total) / (1.0 - (n - 1) / total)) ** self.power)

    def _get_closed_form_lr(self) -> list[float]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (1.0 - done) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """The rate, which goes to `eta_min` and back along half waves of a cosine of `T_max` epochs.

    Source: Loshchilov and Hutter 2017.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = CosineAnnealingLR(sgd, T_max=4)
    >>> for _ in range(2):
    ...     sgd.step()
    ...     schedule.step()
    >>> round(schedule.get_last_lr()[0], 12)
    0.5
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        n, whole = self.last_epoch, self.T_max
        if n == 0:
            return self.rates()
        if self._step_count == 1 and n > 0:
            return self._get_closed_form_lr()
        if (n - 1 - whole) % (2 * whole) == 0:  # the rate is minimal, and the quotient below is 0 / 0
            rise = (1 - math.cos(math.pi / whole)) / 2
            return [rate + (base - self.eta_min) * rise for rate, base in zip(self.rates(), self.base_lrs)]
        quotient = (1 + math.cos(math.pi * n / whole)) / (1 + math.cos(math.pi * (n - 1) / whole))
        return [quotient * (rate - self.eta_min) + self.eta_min for rate in self.rates()]

    def _get_closed_form_lr(self) -> list[float]:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]


class _OfSchedules(LRScheduler):
    """Base class of schedules that consist of schedules of one optimizer."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]):
        for k, each in enumerate(schedulers):
            if not hasattr(each, "optimizer"):
                raise TypeError(located(f"the scheduler at index {k} has no optimizer"))
            if isinstance(each, ReduceLROnPlateau):
                text = f"the scheduler at index {k} is a ReduceLROnPlateau, whose step needs a metric"
                raise ValueError(located(text))
            if each.optimizer is not optimizer:
                text = f"the scheduler at index {k} belongs to another optimizer than the one at index 0"
                raise ValueError(located(text))
        self.optimizer, self._schedulers = optimizer, list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the states of the schedules."""
        state = {k: x for k, x in super().state_dict().items() if k != "_schedulers"}
        return state | {"_schedulers": [each.state_dict() for each in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: x for k, x in state_dict.items() if k != "_schedulers"})
        for each, state in zip(self._schedulers, state_dict["_schedulers"]):
            each.load_state_dict(state)


class SequentialLR(_OfSchedules):
    """Schedules one after the other; each of the `milestones` begins the next one.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> parts = [ConstantLR(sgd, factor=0.1), ExponentialLR(sgd, gamma=0.5)]
    >>> SequentialLR(sgd, parts, milestones=[2]).get_last_lr()
    [0.05]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ):
        if not schedulers:
            raise ValueError(located("SequentialLR expects at least one scheduler, but got no scheduler."))
        super().__init__(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                located(
                    "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                    f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to "
                    f"be equal to {len(milestones)}"
                )
            )
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        # Undo the initial steps of all schedules; then repeat the initial step of the first.
        set_rates(optimizer, [group["initial_lr"] for group in optimizer.param_groups])
        for each in self._schedulers:
            each.last_epoch -= 1
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: object = None) -> None:
        """Step the schedule that is active in the next epoch."""
        self.last_epoch += 1
        iteration = bisect.bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[iteration]
        if iteration > 0 and self._milestones[iteration - 1] == self.last_epoch:
            schedule._update(0)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_OfSchedules):
    """Schedules that are applied together: each one changes the rates that the previous one has set.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5)
    >>> ChainedScheduler([ConstantLR(sgd, factor=0.1), ExponentialLR(sgd, gamma=0.5)]).get_last_lr()
    [0.05]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None):
        if not schedulers:
            raise ValueError(
                located("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
            )
        super().__init__(schedulers[0].optimizer if optimizer is None else optimizer, schedulers)
        self._last_lr = self.rates()

    def step(self, epoch: object = None) -> None:
        """Advance all schedules to the next epoch."""
        for each in self._schedulers:
            each.step()
        self._last_lr = self.rates()


OPTIM_DOCS.document(globals(), __all__)
