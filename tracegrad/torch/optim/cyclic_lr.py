"""Cyclic learning-rate schedules: periodic, one cycle, or cosine annealing with restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.lr_scheduler_base import LRScheduler, for_each, set_rates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.torch.optim.optimizer import Optimizer


__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


def _by_betas(optimizer: Optimizer) -> bool:
    """Whether the first of `betas` is cycled together with the rate, instead of the momentum."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            located(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled; or cycle_momentum=False"
            )
        )
    return "betas" in optimizer.defaults


def _set_momentum(group: dict[str, Any], momentum: float, by_betas: bool) -> None:
    if by_betas:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _by_cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * done))


def _by_line(start: float, end: float, done: float) -> float:
    return (end - start) * done + start


class OneCycleLR(LRScheduler):
    """The rate rises to `max_lr`, and falls far below the initial rate; the momentum goes the other way.

    Source: Smith 2018. `step` is called after each batch, `total_steps` (or `epochs` times `steps_per_epoch`)
    times. ValueError for a number of steps or a share out of range, and after the last step.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.1, momentum=0.9)
    >>> schedule = OneCycleLR(sgd, max_lr=1.0, total_steps=10)
    >>> for _ in range(2):
    ...     sgd.step()
    ...     schedule.step()
    >>> schedule.get_last_lr(), sgd.param_groups[0]["momentum"]
    ([1.0], 0.85)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise ValueError(located(f"Expected float between 0 and 1 pct_start, but got {pct_start}"))
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                located(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
            )
        self._anneal_func_type = anneal_strategy
        total, high, low = self.total_steps, "max_lr", "initial_lr"
        up, down = "base_momentum", "max_momentum"
        if three_phase:
            ends = (pct_start * total - 1, 2 * pct_start * total - 2, total - 1)
            self._schedule_phases = [
                (ends[0], low, high, down, up),
                (ends[1], high, low, up, down),
                (ends[2], low, "min_lr", down, down),
            ]
        else:
            self._schedule_phases = [
                (pct_start * total - 1, low, high, down, up),
                (total - 1, high, "min_lr", up, down),
            ]
        highest = for_each("max_lr", max_lr, optimizer)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, highest):
                group["initial_lr"], group["max_lr"] = rate / div_factor, rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _by_betas(optimizer)
            least, most = (for_each(n, x, optimizer) for n, x in ((up, base_momentum), (down, max_momentum)))
            for group, b, m in zip(optimizer.param_groups, least, most) if last_epoch == -1 else ():
                _set_momentum(group, m, self.use_beta1)
                group["max_momentum"], group["base_momentum"] = m, b
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        n = self.last_epoch
        if n > self.total_steps:
            raise ValueError(
                located(f"Tried to step {n} times. The specified number of total steps is {self.total_steps}")
            )
        anneal = _by_cosine if self._anneal_func_type == "cos" else _by_line
        phases: Any = self._schedule_phases
        k = next((k for k, phase in enumerate(phases) if n <= phase[0]), len(phases) - 1)
        start, (end, *names) = phases[k - 1][0] if k else 0.0, phases[k]
        done = (n - start) / (end - start)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                _set_momentum(group, anneal(group[names[2]], group[names[3]], done), self.use_beta1)
        return [anneal(group[names[0]], group[names[1]], done) for group in self.optimizer.param_groups]


def _total(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError(located("You must define either total_steps OR (epochs AND steps_per_epoch)"))
    args = (
        {"total_steps": total_steps}
        if total_steps is not None
        else {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    )
    for name, x in args.items():
        if not (isinstance(x, int) and x > 0):
            raise ValueError(located(f"Expected positive integer {name}, but got {x}"))
    return int(math.prod(args.values()))


class CyclicLR(LRScheduler):
    """The rate goes up and down between two bounds; the momentum goes the other way.

    Source: Smith 2017. In the mode "triangular2" the amplitude is halved after each cycle, and in "exp_range" it is
    multiplied by `gamma` at each step. ValueError for an unknown mode.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.5, momentum=0.9)
    >>> schedule = CyclicLR(sgd, base_lr=0.1, max_lr=0.5, step_size_up=2)
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.30000000000000004]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ):
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(located("mode is invalid and scale_fn is None"))
        if last_epoch == -1:
            base = for_each("base_lr", base_lr, optimizer)
            set_rates(optimizer, base)
            set_rates(optimizer, base, "initial_lr")
        self.max_lrs = for_each("max_lr", max_lr, optimizer)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _by_betas(optimizer)
            self.base_momentums = for_each("base_momentum", base_momentum, optimizer)
            self.max_momentums = for_each("max_momentum", max_momentum, optimizer)
            momenta = zip(optimizer.param_groups, self.base_momentums, self.max_momentums)
            for group, b, m in momenta if last_epoch == -1 else ():
                _set_momentum(group, m, self.use_beta1)
                group["max_momentum"], group["base_momentum"] = m, b
        super().__init__(optimizer, last_epoch)

    def scale_fn(self, x: float) -> float:
        """Return the factor of the amplitude in this cycle or at this iteration."""
        scale: float = 1.0
        if self._scale_fn_custom is not None:
            scale = self._scale_fn_custom(x)
        elif self.mode == "triangular2":
            scale = 1 / (2.0 ** (x - 1))
        elif self.mode == "exp_range":
            scale = self.gamma**x
        return scale

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, b, m in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                _set_momentum(group, m - (m - b) * height * scale, self.use_beta1)
        return [base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes but the optimizer, and `scale_fn` if it is a function."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        held = getattr(custom, "__dict__", None)
        return state | {"_scale_fn_custom": dict(held) if held else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        held = state_dict.get("_scale_fn_custom")
        super().load_state_dict({k: x for k, x in state_dict.items() if k != "_scale_fn_custom"})
        if held is not None:
            vars(self._scale_fn_custom).update(held)


class CosineAnnealingWarmRestarts(LRScheduler):
    """The rate falls to `eta_min` along half a wave of a cosine, again and again.

    Source: Loshchilov and Hutter 2017. The argument of `step` may be a fraction of an epoch. ValueError for a length
    that is not positive.

    >>> from tracegrad import optim, tensor
    >>> sgd = optim.SGD([tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = CosineAnnealingWarmRestarts(sgd, T_0=2)
    >>> sgd.step(), schedule.step()
    (None, None)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(located(f"Expected positive integer T_0, but got {T_0}"))
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(located(f"Expected integer T_mult >= 1, but got {T_mult}"))
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        wave = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]

    def _update(self, epoch: Any) -> None:
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(located(f"Expected non-negative epoch, but got {epoch}"))
        else:
            self._restart(epoch)
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        set_rates(self.optimizer, self.get_lr())
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _restart(self, epoch: float) -> None:
        """Find the wave that this epoch is in."""
        self.T_i, self.T_cur = self.T_0, epoch
        if epoch >= self.T_0 and self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        elif epoch >= self.T_0:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n

    def step(self, epoch: object = None) -> None:
        """Advance to the next epoch, or to this one, possibly fractional."""
        self._update(epoch)


OPTIM_DOCS.document(globals(), __all__)
