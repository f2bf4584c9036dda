"""Class `LazyModuleMixin`: modules whose parameters get their shapes from the first input."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import is_lazy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.torch.nn.state_dict import StateMatch

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(Module):
    """Base of modules with uninitialized parameters, before the class of the module.

    A subclass has `initialize_parameters`, which is called with the arguments of the first call of the module and
    materializes all parameters and buffers. The class of the module is then `cls_to_become`, unless that is None.

    >>> import tracegrad as tg
    >>> class Shift(LazyModuleMixin):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.shift = tg.nn.UninitializedParameter()
    ...     def initialize_parameters(self, x):
    ...         if self.has_uninitialized_params():
    ...             self.shift.materialize(x.shape[-1])
    ...             tg.nn.init.ones_(self.shift)
    ...     def forward(self, x):
    ...         return x + self.shift
    >>> Shift()(tg.zeros(2)).detach()
    tensor([1., 1.])
    """

    cls_to_become: type[Module] | None = None
    _initialized = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._initialized:
            return super().__call__(*args, **kwargs)
        self._infer_parameters(args, kwargs)
        return self(*args, **kwargs)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters and buffers for these arguments of `forward`; subclasses define it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of the module itself is uninitialized."""
        return any(is_lazy(x) for x in chain(self._parameters.values(), self._buffers.values()))

    def _infer_parameters(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(located(f"module {type(self).__name__} has not been fully initialized"))
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]
        else:
            self._initialized = True

    def _find(self, entries: Mapping[str, Any], prefix: str, matched: StateMatch) -> None:
        """Materialize what a state dict has values of, then match as all modules do."""
        for name, x in chain(self._parameters.items(), self._buffers.items()):
            value = entries.get(prefix + name)
            if value is not None and is_lazy(x) and not is_lazy(value):
                with no_grad():
                    x.materialize(value.shape)
        super()._find(entries, prefix, matched)
