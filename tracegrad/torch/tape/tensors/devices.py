"""Device and memory-layout attributes of Tensors: always the CPU, always strided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import Size
from tracegrad.errors import UnsupportedError, located
from tracegrad.torch.functions.core.device import CPU, check_device, device
from tracegrad.torch.functions.core.formats import strided, with_memory
from tracegrad.torch.tape.tensors import factories
from tracegrad.torch.tape.tensors.conversion import place_of
from tracegrad.torch.tape.tensors.factories import tensor_method

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike


__all__: list[str] = []


def _of_tensor(self: Tensor) -> device:
    """Return the device of the Tensor: the CPU."""
    return CPU


tensor_method("device")(property(_of_tensor))


def _never(name: str) -> property:
    def is_it(self: Tensor) -> bool:
        return False

    is_it.__name__, is_it.__doc__ = name, "False: Tensors are dense, and on the CPU."
    return property(is_it)


def _layout(self: Tensor) -> str:
    """Return the memory layout: strided."""
    return strided


def is_pinned(self: Tensor) -> bool:
    """False: there is no other device that the memory could be locked for."""
    return False


def get_device(self: Tensor) -> int:
    """Return the index of the device, which is -1 for the CPU."""
    return -1


def pin_memory(self: Tensor, device: DeviceLike = None) -> Any:
    """Raise RuntimeError: there is no other device that the memory could be locked for."""
    check_device("cuda")


def share_memory_(self: Tensor) -> Tensor:
    """Raise UnsupportedError: other processes get copies of Tensors."""
    raise UnsupportedError(located("share_memory_: Tensors are copied to other processes; send them back by a queue"))


def is_shared(self: Tensor) -> bool:
    """False: no other process has the memory."""
    return False


def storage_offset(self: Tensor) -> int:
    """Return the number of elements before the first one in the memory that the Tensor is a view of."""
    array = self.concrete("storage_offset")
    return place_of(array)[1] // int(array.itemsize)


def new(self: Tensor, *args: Any) -> Tensor:
    """Make a Tensor of the dtype of this one: of sizes, or of data."""
    if len(args) == 1 and not isinstance(args[0], int | Size):
        return factories.new_tensor(self, args[0])
    return factories.new_empty(self, *(args or (0,)))


def _on_cpu(self: Tensor) -> bool:
    """True: Tensors are on the CPU."""
    return True


tensor_method("layout")(property(_layout))
tensor_method("is_cpu")(property(_on_cpu))
for _fn in (get_device, is_pinned, is_shared, new, pin_memory, share_memory_, storage_offset):
    tensor_method(_fn.__name__)(_fn)
for _name in ("new_empty", "new_full", "new_ones", "new_zeros"):
    tensor_method(_name)(with_memory(getattr(factories, _name), _name))
for _name in ("is_cuda", "is_meta", "is_mkldnn", "is_mps", "is_nested", "is_quantized", "is_sparse", "is_xpu"):
    tensor_method(_name)(_never(_name))
