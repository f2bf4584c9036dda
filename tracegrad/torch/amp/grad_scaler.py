"""Scaling of losses, so that small gradients in float16 are not zero, and steps without infinite gradients."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.functions.indexing.select import where
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.dtypes import DTYPES
from tracegrad.torch.tape.tensors.factories import full, zeros

if TYPE_CHECKING:
    from tracegrad.torch.optim.optimizer import Optimizer


__all__ = ["GradScaler"]


class GradScaler:
    """Factor of the loss, which shrinks after gradients that are not finite, and grows after many that are.

    Parameters
    ----------
    device : str, default "cuda"
        Type of the device. For another one than the CPU, a UserWarning, and the scaler is not enabled.
    init_scale : float, default 65536.0
        First factor.
    growth_factor : float, default 2.0
        Factor by which the factor grows.
    backoff_factor : float, default 0.5
        Factor by which the factor shrinks.
    growth_interval : int, default 2000
        Number of steps with finite gradients after which the factor grows.
    enabled : bool, default True
        Whether the scaler does anything. If not, `step` is that of the optimizer.

    Raises
    ------
    AssertionError
        If `growth_factor` is not above 1, or `backoff_factor` not below.

    Examples
    --------
    >>> from tracegrad import nn, optim, ones
    >>> model = nn.Linear(2, 1)
    >>> optimizer, scaler = optim.SGD(model.parameters(), lr=0.1), GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale(model(ones(1, 2)).sum()).backward()
    >>> scaler.unscale_(optimizer)
    >>> model.bias.grad
    tensor([1.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> scaler.get_scale()
    8.0
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if enabled and str(device).partition(":")[0] != "cpu":
            text = f"GradScaler of {str(device)!r} is enabled, but the device is not available. Disabling"
            warnings.warn(located(f"torch.amp: {text}"), UserWarning, stacklevel=2)
            enabled = False
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._scale = full((), init_scale, dtype=DTYPES["float32"])
        self._tracker = zeros((), dtype=DTYPES["int32"])
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        # By id of the optimizers since the last update: numbers of gradients that were not finite, and who has stepped.
        self._infinite: dict[int, Any] = {}
        self._stepped: set[int] = set()

    def is_enabled(self) -> bool:
        """Return whether the scaler does anything."""
        return self._enabled

    def scale(self, outputs: object) -> Any:
        """Return a Tensor, or a list or tuple of them, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, list | tuple):
            scaled = [self.scale(each) for each in outputs]
            return type(outputs)(*scaled) if hasattr(outputs, "_fields") else type(outputs)(scaled)
        raise ValueError(located("outputs must be a Tensor or an iterable of Tensors"))

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the factor; RuntimeError if it has been done."""
        if not self._enabled:
            return
        if id(optimizer) in self._stepped:
            raise RuntimeError(located("unscale_() is being called after step()."))
        if id(optimizer) in self._infinite:
            text = "unscale_() has already been called on this optimizer since the last update()."
            raise RuntimeError(located(text))
        with no_grad():
            self._infinite[id(optimizer)] = self._unscaled(optimizer)

    def _unscaled(self, optimizer: Optimizer) -> Any:
        """Divide gradients; returns how many of them are not finite, or None if there are none."""
        infinite = None
        inverse = 1.0 / self._scale
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.grad.dtype == DTYPES["float16"]:
                    raise ValueError(located("Attempting to unscale FP16 gradients."))
                param.grad.mul_(inverse.to(param.grad.dtype))
                bad = (~param.grad.isfinite()).any().to(DTYPES["float32"])
                infinite = bad if infinite is None else infinite + bad
        return infinite

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Step the optimizer if all gradients are finite, and return its result.

        The gradients are divided by the factor first, unless `unscale_` has done it.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError(located("Closure use is not currently supported if GradScaler is enabled."))
        if id(optimizer) in self._stepped:
            raise RuntimeError(located("step() has already been called since the last update()."))
        if id(optimizer) not in self._infinite:
            self.unscale_(optimizer)
        infinite = self._infinite[id(optimizer)]
        if infinite is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if infinite > 0 else optimizer.step(*args, **kwargs)
        self._stepped.add(id(optimizer))
        return result

    def update(self, new_scale: Any = None) -> None:
        """Change the factor after the steps of all optimizers, or set it."""
        if not self._enabled:
            return
        with no_grad():
            if new_scale is not None:
                self._scale.fill_(new_scale)
            else:
                self._grow_or_shrink()
        self._infinite.clear()
        self._stepped.clear()

    def _grow_or_shrink(self) -> None:
        counts = [each for each in self._infinite.values() if each is not None]
        if not counts:
            raise AssertionError("No inf checks were recorded prior to update.")
        infinite = sum(counts[1:], counts[0]) > 0
        grows = self._tracker + 1 == self._interval
        grown = where(grows, self._scale * self._growth, self._scale)
        grown = where(grown.isfinite(), grown, self._scale)
        self._scale.copy_(where(infinite, self._scale * self._backoff, grown))
        self._tracker.copy_(where(infinite | grows, 0, self._tracker + 1))

    def get_scale(self) -> float:
        """Return the factor; 1.0 if the scaler is not enabled."""
        return float(self._scale.item()) if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """Return the factor by which the factor grows."""
        return self._growth

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the factor grows."""
        self._growth = new_factor

    def get_backoff_factor(self) -> float:
        """Return the factor by which the factor shrinks."""
        return self._backoff

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the factor shrinks."""
        self._backoff = new_factor

    def get_growth_interval(self) -> int:
        """Return the number of steps after which the factor grows."""
        return self._interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of steps after which the factor grows."""
        self._interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """Return the state: empty if the scaler is not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": int(self._tracker.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state; RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                located(
                    "The source state dict is empty, possibly because it was saved from a disabled instance of "
                    "GradScaler."
                )
            )
        self._scale.fill_(state_dict["scale"])
        self._tracker.fill_(state_dict["_growth_tracker"])
        self._growth, self._backoff = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._interval = state_dict["growth_interval"]
