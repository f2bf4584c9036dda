"""Namespace of `torch.nn.utils.parametrize`: parameters that modules compute from others at each read.

A module with such a parameter gets a class of its own, with a property. `parametrizations.weight.original` is the
parameter that is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NoReturn

from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.container import ModuleDict, ModuleList
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]


class _Cache:
    """Tensors that are computed once, by the identity of their list, while contexts of `cached` are open."""

    def __init__(self) -> None:
        self.depth = 0
        self.tensors: dict[int, Any] = {}


_CACHE = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Compute each tensor once within the context, at its first read.

    >>> from tracegrad import nn
    >>> layer = register_parametrization(nn.Linear(2, 1), "weight", nn.Tanh())
    >>> with cached():
    ...     layer.weight is layer.weight
    True
    """
    _CACHE.depth += 1
    try:
        yield
    finally:
        _CACHE.depth -= 1
        if not _CACHE.depth:
            _CACHE.tensors.clear()


def _trained(value: Any, like: Any) -> Any:
    """Return the value as a parameter, or as a buffer if the tensor that it belongs to is one."""
    if not isinstance(like, Parameter):
        return value
    return (
        value if isinstance(value, Parameter) else Parameter(value.detach().clone(), requires_grad=like.requires_grad)
    )


def _inverse(module: Any, value: Any) -> Any:
    """Return what a module computes `value` from, or `value` itself if the module cannot tell."""
    if not hasattr(module, "right_inverse"):
        return value
    with no_grad():
        try:
            return module.right_inverse(value)
        except NotImplementedError:
            return value


def _require_same(result: Any, value: Any, what: str, fix: str) -> None:
    """Raise ValueError unless a result has the dtype and the shape of the tensor that it belongs to."""
    if not isinstance(result, Tensor):
        raise ValueError(f"{what} must return a tensor. Got {type(result).__name__}.")
    for name in ("dtype", "shape"):
        expected, got = getattr(value, name), getattr(result, name)
        if expected != got:
            raise ValueError(
                f"Registering a parametrization may not change the {name} of the tensor, "
                f"unless {fix} flag is enabled.\n"
                f"unparametrized {name}: {expected}\nparametrized {name}: {got}"
            )


class ParametrizationList(ModuleList):
    """Modules that compute a tensor, one after the other, from `original`, or from `original0`, `original1`, ...

    ValueError without modules, or if the result has another dtype or shape and it is not `unsafe`.

    >>> from tracegrad import nn
    >>> layer = register_parametrization(nn.Linear(2, 1), "weight", nn.Tanh())
    >>> [name for name, _ in layer.parametrizations.weight.named_parameters()]
    ['original']
    """

    def __init__(self, modules: Any, original: Any, unsafe: bool = False):
        if not len(modules):
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        values = original
        for module in reversed(list(self)):
            values = _inverse(module, values)
        self.is_tensor = isinstance(values, Tensor)
        if not self.is_tensor and not isinstance(values, tuple | list):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(values).__name__}"
            )
        self.ntensors = 1 if self.is_tensor else len(values)
        for name, value in self._named(values):
            tensor = _trained(value, original)
            if isinstance(tensor, Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
        if not unsafe:
            with no_grad():
                _require_same(self(), original, "A parametrization", "`unsafe`")

    def _named(self, values: Any) -> list[tuple[str, Any]]:
        if self.is_tensor:
            return [("original", values)]
        return [(f"original{k}", value) for k, value in enumerate(values)]

    def right_inverse(self, value: Any) -> None:
        """Set the original tensors such that the result is `value`.

        RuntimeError if a module has no `right_inverse`.
        """
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            for name, tensor in self._named(value):
                getattr(self, name).copy_(tensor)

    def forward(self) -> Any:
        """Compute the tensor."""
        originals = [self.original] if self.is_tensor else [getattr(self, f"original{k}") for k in range(self.ntensors)]
        result = self[0](*originals)
        for k in range(1, len(self)):
            result = self[k](result)
        return result


def _property(name: str) -> property:
    def get(self: Module) -> Any:
        computed = self.parametrizations[name]
        if not _CACHE.depth:
            return computed()
        if id(computed) not in _CACHE.tensors:
            _CACHE.tensors[id(computed)] = computed()
        return _CACHE.tensors[id(computed)]

    def put(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module computes a tensor, or the one of this name.

    >>> from tracegrad import nn
    >>> is_parametrized(nn.Linear(2, 1))
    False
    """
    computed = module._modules.get("parametrizations")
    if not isinstance(computed, ModuleDict):
        return False
    return len(computed) > 0 if tensor_name is None else tensor_name in computed


def type_before_parametrizations(module: Module) -> type[Module]:
    """Return the class that a module has without the property of its computed tensors.

    >>> from tracegrad import nn
    >>> type_before_parametrizations(register_parametrization(nn.Linear(2, 1), "weight", nn.Tanh())) is nn.Linear
    True
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def _require_same_or_unsafe(parametrization: Any, value: Any) -> None:
    """Raise ValueError if one more parametrization changes the dtype or the shape of a tensor, forth or back."""
    with no_grad():
        result = parametrization(value)
        _require_same(result, value, "A parametrization", "the `unsafe`")
        _require_same(_inverse(parametrization, result), value, "parametrization.right_inverse", "the `unsafe`")


def _refuse_pickling(self: object) -> NoReturn:
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")


def _copy(self: Module, memo: dict[int, Any]) -> Any:
    """Return a deep copy of a module with computed tensors, which has a class of its own, too."""
    cls = type_before_parametrizations(self)
    result = memo[id(self)] = cls.__new__(cls)
    result.__dict__.update(deepcopy(self.__dict__, memo))
    _give_class(result, result.parametrizations)
    return result


def _give_class(module: Module, names: Iterable[str]) -> None:
    """Give a module a class of its own, with properties of these names."""
    cls = type(module)
    members: dict[str, Any] = {"__module__": cls.__module__, "__getstate__": _refuse_pickling}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _copy
    members.update((name, _property(name)) for name in names)
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def register_parametrization(module: Module, tensor_name: str, parametrization: Any, *, unsafe: bool = False) -> Module:
    """Compute a parameter or buffer of a module by another module at each read; returns the module.

    The present value stays if the parametrization has `right_inverse`. Several are applied one after the other.
    ValueError unless the module has a parameter or buffer of this name, and for a parametrization that changes its
    dtype or shape and is not `unsafe`.

    >>> import tracegrad as tg
    >>> from tracegrad import nn
    >>> class Positive(nn.Module):
    ...     def forward(self, x):
    ...         return x.exp()
    ...     def right_inverse(self, y):
    ...         return y.log()
    >>> layer = register_parametrization(nn.Linear(2, 1), "weight", Positive(), unsafe=True)
    >>> layer.weight = tg.ones(1, 2)
    >>> layer.parametrizations.weight.original.tolist()
    [[0.0, 0.0]]
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _require_same_or_unsafe(parametrization, getattr(module, tensor_name).detach())
        computed = module.parametrizations[tensor_name]
        computed.append(parametrization)
        computed.unsafe = computed.unsafe or unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    computed = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _give_class(module, ())
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = computed
    return module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a computed tensor a parameter or buffer again, with its present value or the original; returns the module.

    ValueError if the tensor is not computed, or has several originals that are to be left.

    >>> from tracegrad import nn
    >>> layer = register_parametrization(nn.Linear(2, 1), "weight", nn.Tanh())
    >>> remove_parametrizations(layer, "weight")
    Linear(in_features=2, out_features=1, bias=True)
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    computed = module.parametrizations[tensor_name]
    if not computed.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    first = computed.original if computed.is_tensor else computed.original0
    with no_grad():
        value = computed().clone() if leave_parametrized else first
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, _trained(value, first))
    else:
        module.register_buffer(tensor_name, value)
    return module


MODULE_DOCS.document(globals(), __all__)
