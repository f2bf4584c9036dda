"""Device and memory-layout attributes of Tensors: always the CPU, always strided."""

from __future__ import annotations

from typing import Any

from tracegrad.errors import located
from tracegrad.torch.functions.core.formats import strided, with_memory
from tracegrad.torch.tape.tensors import factories
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.torch.tape.tensors.factories import tensor_method

__all__ = ["device"]


class device(str):
    """Device: the CPU, which is the only one. It is the text "cpu" with PyTorch's `type` and `index`.

    RuntimeError for another device.

    >>> device("cpu").type, device("cpu:0").index
    ('cpu', 0)
    """

    __slots__ = ("index", "type")
    type: str
    index: Any

    def __new__(cls, type: Any = "cpu", index: int | None = None) -> device:
        kind, _, number = str(type).partition(":")
        if kind != "cpu":
            raise RuntimeError(located(f"tracegrad computes on the CPU: there is no device {str(type)!r}"))
        self = super().__new__(cls, str(type) if index is None else f"{kind}:{index}")
        self.type, self.index = kind, int(number) if number else index
        return self


_CPU = device("cpu")


def _of_tensor(self: Any) -> device:
    """Return the device of the Tensor: the CPU."""
    return _CPU


tensor_method("device")(property(_of_tensor))


def _never(name: str) -> property:
    def is_it(self: Any) -> bool:
        return False

    is_it.__name__, is_it.__doc__ = name, "False: Tensors are dense, and on the CPU."
    return property(is_it)


def _layout(self: Any) -> str:
    """Return the memory layout: strided."""
    return strided


def is_pinned(self: Any) -> bool:
    """False: there is no other device that the memory could be locked for."""
    return False


tensor_method("layout")(property(_layout))
tensor_method("is_pinned")(is_pinned)
for _name in ("new_empty", "new_full", "new_ones", "new_zeros"):
    tensor_method(_name)(with_memory(getattr(factories, _name), _name))
for _name in ("is_cuda", "is_meta", "is_mkldnn", "is_nested", "is_quantized", "is_sparse", "is_xpu"):
    tensor_method(_name)(_never(_name))


TENSOR_DOCS.document(globals(), __all__)
