"""Namespace of `torch.optim.swa_utils`: averages of models over the steps of training.

P. Izmailov, D. Podoprikhin, T. Garipov, D. Vetrov, A. G. Wilson, "Averaging weights leads to wider optima and better
generalization", UAI 2018.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.lr_scheduler_base import LRScheduler
from tracegrad.torch.tape.tensors.factories import tensor
from tracegrad.typing import DeviceLike

if TYPE_CHECKING:
    from tracegrad.torch.optim.optimizer import Optimizer
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., object]:
    """Return the function of an exponential moving average, for `AveragedModel`. ValueError for a bad `decay`.

    >>> import tracegrad as tg
    >>> get_ema_avg_fn(0.75)(tg.tensor(4.0), tg.tensor(8.0), 1)
    tensor(5.)
    """
    _check_decay(decay)

    def update(averaged: Array, current: Tensor, num_averaged: Tensor) -> Array:
        return decay * averaged + (1 - decay) * current

    return update


def get_swa_avg_fn() -> Callable[..., object]:
    """Return the function of the mean over all updates, for `AveragedModel`.

    >>> import tracegrad as tg
    >>> get_swa_avg_fn()(tg.tensor(4.0), tg.tensor(8.0), 1)
    tensor(6.)
    """

    def update(averaged: Array, current: Tensor, num_averaged: Tensor) -> Array:
        return averaged + (current - averaged) / (num_averaged + 1)

    return update


def _of_lists(function: Callable[..., object]) -> Callable[..., None]:
    def update(averaged: list[Any], current: list[object], num_averaged: Any) -> None:
        with no_grad():
            for x, y in zip(averaged, current):
                x.copy_(function(x, y, num_averaged))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """Return the function of an exponential moving average of lists, in place. ValueError for a bad `decay`.

    >>> import tracegrad as tg
    >>> averaged = tg.tensor(4.0)
    >>> get_ema_multi_avg_fn(0.75)([averaged], [tg.tensor(8.0)], 1)
    >>> averaged
    tensor(5.)
    """
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """Return the function of the mean of lists over all updates, in place.

    >>> import tracegrad as tg
    >>> averaged = tg.tensor(4.0)
    >>> get_swa_multi_avg_fn()([averaged], [tg.tensor(8.0)], 1)
    >>> averaged
    tensor(6.)
    """
    return _of_lists(get_swa_avg_fn())


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


class AveragedModel(Module):
    """Copy of a module, whose parameters are averages over the calls of `update_parameters`; by default the mean.

    With `use_buffers` the buffers are averaged too, otherwise they are copied.

    >>> from tracegrad.nn import Linear
    >>> model = Linear(2, 1)
    >>> averaged = AveragedModel(model)
    >>> averaged.update_parameters(model)
    >>> bool((averaged.module.weight == model.weight).all()), int(averaged.n_averaged)
    (True, 1)
    """

    def __init__(
        self,
        model: Module,
        device: DeviceLike = None,
        avg_fn: Callable[..., object] | None = None,
        multi_avg_fn: Callable[..., object] | None = None,
        use_buffers: bool = False,
    ):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Call the averaged module."""
        return self.module(*args, **kwargs)

    def _values(self, module: Module) -> list[Any]:
        buffers = module.buffers() if self.use_buffers else []
        return [x.detach() for x in (*module.parameters(), *buffers)]

    def update_parameters(self, model: Module) -> None:
        """Include the parameters of a model in the average; the first ones are copied."""
        averaged, current = self._values(self.module), self._values(model)
        with no_grad():
            if int(self.n_averaged) == 0:
                for x, y in zip(averaged, current):
                    x.copy_(y)
            else:
                function = self.multi_avg_fn or _of_lists(self.avg_fn or get_swa_avg_fn())
                function(averaged, current, self.n_averaged)
            if not self.use_buffers:
                for x, y in zip(self.module.buffers(), model.buffers()):
                    x.copy_(y)
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Compute the running statistics of the batch normalizations of a model over the batches of `loader`.

    A batch may be a list or tuple, whose first element is the input.

    >>> import tracegrad as tg
    >>> from tracegrad.nn import BatchNorm1d
    >>> norm = BatchNorm1d(1)
    >>> update_bn([tg.tensor([[1.0], [3.0]])], norm)
    >>> norm.running_mean
    tensor([2.])
    """
    norms = [m for m in model.modules() if isinstance(m, BatchNorm1d | BatchNorm2d | BatchNorm3d)]
    if not norms:
        return
    momenta, was_training = [m.momentum for m in norms], model.training
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    with no_grad():
        for batch in loader:
            model(batch[0] if isinstance(batch, list | tuple) else batch)
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Schedule that moves the rates to `swa_lr` within `anneal_epochs`, along a cosine or linearly.

    ValueError for another strategy, or a number of epochs below 0.

    >>> import tracegrad as tg
    >>> optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = SWALR(optimizer, 0.0, anneal_epochs=2, anneal_strategy="linear")
    >>> optimizer.step(), schedule.step(), schedule.get_last_lr()
    (None, None, [0.5])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        rates = swa_lr if isinstance(swa_lr, list | tuple) else [swa_lr] * len(optimizer.param_groups)
        for rate, group in zip(rates, optimizer.param_groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """Return the share of the final rate after a number of steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """Return the rates of the groups."""
        step = self._step_count - 1 if self.anneal_epochs else max(1, self._step_count - 1)
        before, share = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            final = group["swa_lr"]
            first = final if before == 1 else (group["lr"] - before * final) / (1 - before)
            rates.append(final * share + first * (1 - share))
        return rates


OPTIM_DOCS.document(globals(), __all__)
