"""Module traversal: submodules, parameters and buffers with their names, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracegrad.torch.nn.module import Module
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["Walked"]

Named = Iterator[tuple[str, Any]]


class Walked:
    """Traversal methods of a module."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    # -- modules ---------------------------------------------------------------------------------------------------
    def named_children(self) -> Named:
        """Yield the direct submodules of this module with their names; each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules of this module; each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Named:
        """Yield this module and all submodules, with their dotted names; each once unless not `remove_duplicate`.

        >>> from tracegrad.torch.nn import Linear, Sequential
        >>> [name for name, _ in Sequential(Linear(1, 1), Sequential(Linear(1, 1))).named_modules()]
        ['', '0', '1', '1.0']
        """
        seen = set() if memo is None else memo
        if id(self) in seen:
            return
        if remove_duplicate:
            seen.add(id(self))
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(seen, _dotted(prefix, name), remove_duplicate)

    def modules(self) -> Iterator[Tensor]:
        """Yield this module and all submodules; each once."""
        for _, module in self.named_modules():
            yield module

    # -- parameters and buffers ------------------------------------------------------------------------------------
    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        """Yield the parameters with their dotted names; of this module alone unless `recurse`.

        A shared parameter comes once, unless `remove_duplicate` is false.

        >>> from tracegrad.torch.nn import Linear, Sequential
        >>> [name for name, _ in Sequential(Linear(1, 1), Linear(1, 1, bias=False)).named_parameters()]
        ['0.weight', '0.bias', '1.weight']
        """
        return self._members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the parameters; of this module alone unless `recurse`.

        A shared parameter comes once.
        """
        for _, parameter in self.named_parameters("", recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        """Yield the buffers with their dotted names, as `named_parameters`."""
        return self._members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers, as `parameters`."""
        for _, buffer in self.named_buffers("", recurse):
            yield buffer

    def _members(
        self, members: Callable[[Any], Iterable[tuple[str, Any]]], prefix: str, recurse: bool, once: bool
    ) -> Named:
        seen: set[int] = set()
        modules = self.named_modules(None, prefix, once) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, x in members(module):
                if x is None or id(x) in seen:
                    continue
                if once:
                    seen.add(id(x))
                yield _dotted(path, name), x

    # -- by name ---------------------------------------------------------------------------------------------------
    def get_submodule(self, target: str) -> Module:
        """Return the module of a dotted name; itself for "". AttributeError if there is none."""
        module: Any = self
        for name in target.split(".") if target else []:
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Walked):
                raise AttributeError(f"`{name}` is not an nn.Module")
        result: Module = module
        return result

    def get_parameter(self, target: str) -> Tensor:
        """Return the parameter of a dotted name. AttributeError if there is none."""
        result: Tensor = self._member(target, "_parameters", "an nn.Parameter")
        return result

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer of a dotted name. AttributeError if there is none."""
        result: Tensor = self._member(target, "_buffers", "a buffer")
        return result

    def _member(self, target: str, table: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in getattr(module, table):
            raise AttributeError(f"`{name}` is not {kind}")
        return getattr(module, table)[name]


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
