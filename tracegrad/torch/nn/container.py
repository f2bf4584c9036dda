"""Container modules of modules and parameters: `Sequential`, `ModuleList`, `ModuleDict` and the like."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any

from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape import Tensor

if TYPE_CHECKING:
    from typing import Self

    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["DataParallel", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _normalized_index(index: int, count: int) -> int:
    k: int = operator.index(index)
    if not -count <= k < count:
        raise IndexError(f"index {k} is out of range")
    return k % count


class _Numbered(Module):
    """Submodules in order, whose names are their numbers."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _renumber(self, modules: Iterable[Module]) -> None:
        args = list(modules)
        self._modules.clear()
        for k, module in enumerate(args):
            self._modules[str(k)] = module

    def _name(self, index: int) -> str:
        return list(self._modules)[_normalized_index(index, len(self))]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._subset(list(self._modules.items())[index])
        return self._modules[self._name(index)]

    def _subset(self, items: list[tuple[str, Module]]) -> Self:
        return type(self)([module for _, module in items])

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int) -> None:
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [self._name(index)]:
            del self._modules[name]
        self._renumber(self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Append modules; return the container. TypeError for objects that cannot be iterated."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend should be called with an iterable, but got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one at `index`; returns the container."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, index: int) -> Module:
        """Take the module at `index` out, and return it."""
        result = self[index]
        del self[index]
        output: Module = result
        return output


class Sequential(_Numbered):
    """Modules one after the other: the output of each is the input of the next.

    They are passed as arguments, or with names as one dict.

    >>> import tracegrad as tg
    >>> from tracegrad.torch.nn import Linear, ReLU
    >>> net = Sequential(Linear(3, 4), ReLU(), Linear(4, 1))
    >>> net(tg.ones(5, 3)).shape
    torch.Size([5, 1])
    >>> net
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): ReLU()
      (2): Linear(in_features=4, out_features=1, bias=True)
    )
    """

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for k, module in enumerate(args):
                self.add_module(str(k), module)

    def forward(self, input: Any) -> Any:
        """Return the output of the last module."""
        for module in self._modules.values():
            input = module(input)
        return input

    def _subset(self, items: list[tuple[str, Module]]) -> Self:
        return type(self)(dict(items))

    def __add__(self, other: Iterable[Module]) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)


class ModuleList(_Numbered):
    """List of modules, which are submodules of the list's owner.

    >>> from tracegrad.torch.nn import Linear
    >>> layers = ModuleList([Linear(2, 2) for _ in range(3)])
    >>> len(layers), layers[-1]
    (3, Linear(in_features=2, out_features=2, bias=True))
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> Module:
        return self.extend(other)

    def forward(self, *input: Any) -> Any:
        """Raise NotImplementedError: a list has no computation."""
        raise NotImplementedError('Module [ModuleList] is missing the required "forward" function')


class ModuleDict(Module):
    """Dict of modules by name, which are submodules of the dict's owner.

    >>> from tracegrad.torch.nn import Linear, ReLU
    >>> parts = ModuleDict({"first": Linear(2, 2), "act": ReLU()})
    >>> list(parts), parts["act"]
    (['first', 'act'], ReLU())
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        result: Module = self._modules[key]
        return result

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take a module out, and return it."""
        result: Module = self._modules.pop(key)
        return result

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """Return the names with their modules."""
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """Return the modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Take the modules of a mapping, or of pairs of names and modules. TypeError for other things."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        for name, module in modules.items() if hasattr(modules, "items") else modules:
            self[name] = module


# -- parameters -------------------------------------------------------------------------------------------------------
def _as_parameter(x: Array) -> Array:
    return Parameter(x) if isinstance(x, Tensor) and not isinstance(x, Parameter) else x


def _line(name: str, x: Array) -> str:
    if isinstance(x, Tensor):
        kind = "Parameter" if isinstance(x, Parameter) else "Tensor"
        return f"({name}): {kind} containing: [tracegrad.{x.dtype} of size {'x'.join(map(str, x.shape))}]"
    return f"({name}): Object of type: {type(x).__name__}"


class ParameterList(Module):
    """List of parameters. Tensors become parameters; other objects stay unchanged.

    >>> import tracegrad as tg
    >>> weights = ParameterList([tg.ones(2), tg.zeros(3)])
    >>> [name for name, _ in weights.named_parameters()], len(weights)
    (['0', '1'], 2)
    """

    def __init__(self, values: Iterable[object] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[k] for k in range(*index.indices(len(self)))])
        return getattr(self, str(_normalized_index(index, len(self))))

    def __setitem__(self, index: int, value: Array) -> None:
        setattr(self, str(_normalized_index(index, len(self))), _as_parameter(value))

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self[k] for k in range(len(self))])

    def append(self, value: Any) -> Self:
        """Add a parameter at the end; returns the list."""
        k = self._size
        self._size += 1
        self[k] = value
        return self

    def extend(self, values: Iterable[object]) -> Self:
        """Append parameters; return the list. TypeError for a Tensor, and for objects that cannot be iterated."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[object]) -> Self:
        return self.extend(values)

    def pop(self, index: int = -1) -> Any:
        """Take the parameter at `index` out, and return it."""
        k = _normalized_index(index, len(self))
        result, rest = self[k], [self[n] for n in range(k + 1, len(self))]
        for n, value in enumerate(rest):
            self[k + n] = value
        self._size -= 1
        delattr(self, str(self._size))
        return result

    def extra_repr(self) -> str:
        return "\n".join(_line(str(k), x) for k, x in enumerate(self))


class ParameterDict(Module):
    """Dict of parameters by name. Tensors become parameters; other objects stay unchanged.

    >>> import tracegrad as tg
    >>> weights = ParameterDict({"scale": tg.ones(2)})
    >>> list(weights), weights["scale"].requires_grad
    (['scale'], True)
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Array) -> None:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}')."
            )
        setattr(self, key, _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """Return the parameters."""
        return [self[key] for key in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return the names with their parameters."""
        return [(key, self[key]) for key in self._keys]

    def get(self, key: str, default: object = None) -> Any:
        """Return the parameter of this name, or `default`."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the parameter of this name, which is `default` if there was none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Take a parameter out, and return it."""
        result = self[key]
        del self[key]
        return result

    def clear(self) -> None:
        """Take all parameters out."""
        for key in list(self._keys):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Take the parameters of a mapping, or of pairs of names and parameters. TypeError for other things.

        As in PyTorch, a plain dict is taken in the order of its sorted names.
        """
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParameterDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        pairs = parameters.items() if hasattr(parameters, "items") else parameters
        in_order = isinstance(parameters, OrderedDict) or not isinstance(parameters, Mapping)
        for key, value in pairs if in_order else sorted(pairs, key=operator.itemgetter(0)):
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_line(key, x) for key, x in self.items())


class DataParallel(Module):
    """Module in the attribute `module`, as PyTorch wraps it to compute on several GPUs: here a call is its call.

    The names in the state begin with `module`.

    >>> from tracegrad.torch.nn import Linear
    >>> list(DataParallel(Linear(2, 1)).state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids: object = None, output_device: object = None, dim: int = 0):
        super().__init__()
        self.module: Any = module
        self.device_ids: list[int] = []  # as in PyTorch without a GPU

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Return the result of the module."""
        return self.module(*inputs, **kwargs)
