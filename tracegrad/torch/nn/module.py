"""Class `Module`: functions with parameters, buffers and submodules, as in PyTorch.

Users derive from `Module`. It has three tables, for parameters, buffers and submodules; setting an attribute stores it
in one of the tables. Traversal is in `traversal.py`, saving and loading in `state_dict.py`, and hooks are in
`hooks.py`.

The code of this folder is traced like user code: a trace sees its reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.avals import supported
from tracegrad.torch.functions.core.device import check_device, is_device
from tracegrad.torch.functions.core.formats import check_format
from tracegrad.torch.nn.hooks import Hooked, called
from tracegrad.torch.nn.parameter import Buffer, Parameter, is_lazy
from tracegrad.torch.nn.state_dict import Stateful
from tracegrad.torch.nn.traversal import Walked
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.conversion import to, type_

if TYPE_CHECKING:
    from typing import Self

    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike, DTypeLike


__all__ = ["Module"]

_TABLES = ("_parameters", "_buffers", "_modules")


class Module(Walked, Stateful, Hooked):
    """Function with parameters: a subclass calls `super().__init__()`, sets attributes, and has `forward`.

    Attributes that are Parameters, Buffers or Modules are found by `parameters()`, `buffers()`, `modules()` and
    `state_dict()`. A call of the module runs `forward`, and the hooks.

    >>> import tracegrad as tg
    >>> class Affine(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = Parameter(tg.tensor([2.0, 3.0]))
    ...     def forward(self, x):
    ...         return self.scale * x
    >>> affine = Affine()
    >>> affine(tg.tensor([1.0, 1.0])).sum().backward()
    >>> affine.scale.grad
    tensor([1., 1.])
    >>> [name for name, _ in affine.named_parameters()]
    ['scale']
    """

    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _transient: frozenset[str]  # the names of buffers that are not in the state
    _hooks: Any = None

    def __init__(self, *args: Any, **kwargs: Any):
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
            )
        if args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        set_plainly = object.__setattr__
        set_plainly(self, "training", True)
        for name in _TABLES:
            set_plainly(self, name, {})
        set_plainly(self, "_transient", frozenset())

    # -- calls -----------------------------------------------------------------------------------------------------
    def forward(self, *input: Any) -> Any:
        """Compute the module's result; subclasses define it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None:
            return self.forward(*args, **kwargs)
        return called(self, args, kwargs)

    # -- attributes ------------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        # With `__dict__` here, a trace would have to guard that the classes lack each name in it.
        for table in (self._parameters, self._buffers, self._modules) if name not in _TABLES else ():
            if name in table:
                return table[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        attributes = self.__dict__
        if isinstance(value, Parameter):
            self._require_initialized("parameters")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif name in attributes.get("_parameters", ()):
            if value is not None:
                raise TypeError(_cannot(name, value, "parameter", "tracegrad.nn.Parameter or None"))
            self._parameters[name] = None
        elif isinstance(value, Module):
            self._require_initialized("module")
            self._forget(name, "_modules")
            self._modules[name] = value
        elif name in attributes.get("_modules", ()):
            if value is not None:
                raise TypeError(_cannot(name, value, "child module", "tracegrad.nn.Module or None"))
            self._modules[name] = None
        elif isinstance(value, Buffer):
            self._require_initialized("buffer")
            self._forget(name, "_buffers")
            self.register_buffer(name, value, getattr(value, "persistent", True))
        elif name in attributes.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(_cannot(name, value, "buffer", "tracegrad.nn.Buffer, tracegrad.Tensor or None"))
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def _require_initialized(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")

    def _forget(self, name: str, table: str) -> None:
        """Remove a name from all tables except this one."""
        attributes = self.__dict__
        attributes.pop(name, None)
        for other in _TABLES:
            if other != table:
                attributes[other].pop(name, None)
        if name in self._transient:
            object.__setattr__(self, "_transient", self._transient - {name})

    def __delattr__(self, name: str) -> None:
        for table in _TABLES:
            if name in self.__dict__.get(table, {}):
                del self.__dict__[table][name]
                object.__setattr__(self, "_transient", self._transient - {name})
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        tables = [name for table in _TABLES for name in self.__dict__.get(table, {})]
        return sorted({*super().__dir__(), *(name for name in tables if name.isidentifier())})

    # -- registering -----------------------------------------------------------------------------------------------
    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Register `param`, a Parameter or None, as the parameter `name`.

        KeyError for a name that is taken, empty or has a dot; TypeError for other objects than Parameters; ValueError
        for one that was computed from others.
        """
        self._require_initialized("parameter")
        self._require_name("parameter", name, "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                    "(tracegrad.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                    f"explicitly. To express '{name}' as a function of another Tensor, compute the value in the "
                    "forward() method."
                )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Operand | None, persistent: bool = True) -> None:
        """Register `tensor`, a Tensor or None, as the buffer `name`; only a `persistent` one is in `state_dict`.

        KeyError for a name that is taken, empty or has a dot; TypeError for other objects than Tensors.
        """
        self._require_initialized("buffer")
        self._require_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (tracegrad.Tensor or None required)"
            )
        self._buffers[name] = tensor
        saved = self._transient - {name} if persistent else self._transient | {name}
        object.__setattr__(self, "_transient", saved)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register `module`, a Module or None, as the submodule `name`.

        TypeError for other objects than Modules; KeyError for a name that is taken, empty or has a dot.
        """
        self._require_initialized("module")
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._require_name("module", name, "_modules")
        self._modules[name] = module

    register_module = add_module

    def _require_name(self, what: str, name: str, table: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            got = f", got: {name}" if what == "module" else ""
            raise KeyError(f'{what} name can\'t contain "."{got}')
        if not name:
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")

    # -- all submodules and parameters -----------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Self:
        """Set the training mode of the module and all submodules; return the module. ValueError for non-booleans."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Leave training: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether operations on the parameters are recorded; returns the module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zeros."""
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = p.grad.detach().zero_()

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call `fn(module)` for all modules inside, then for this one; returns it."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        """Replace the values of all parameters, their gradients and the buffers by the results of `fn`."""
        for module in self.children():
            module._apply(fn)
        for param in self._parameters.values():
            if param is not None:
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad.data = fn(param.grad.data)
        for name, buffer in self._buffers.items():
            if is_lazy(buffer):
                buffer.data = fn(buffer.data)
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(
        self,
        *args: Any,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        non_blocking: bool = False,
        memory_format: object = None,
    ) -> Self:
        """Convert the floating parameters and buffers, in place: `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        TypeError for a dtype that is neither floating nor complex, RuntimeError for a device other than the CPU.

        >>> from tracegrad.torch.nn import Linear
        >>> Linear(2, 1).to("float32").weight.dtype
        torch.float32
        """
        check_format("to", memory_format)
        for inputs in args:
            if isinstance(inputs, Tensor):
                dtype = inputs.dtype
            elif is_device(inputs):
                device = inputs
            elif inputs is not None and not isinstance(inputs, bool):
                dtype = inputs
        check_device(device)
        if dtype is None:
            return self
        kind = supported(dtype, "dtype=")
        if kind.kind not in "fc":
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={kind}")
        return self._apply(lambda x: to(x, kind) if x.dtype.kind in "fc" else x)

    def type(self, dst_type: DTypeLike) -> Self:
        """Convert all parameters and buffers to a dtype, in place; returns the module."""
        return self._apply(lambda x: type_(x, dst_type))

    def float(self) -> Self:
        """Convert the floating parameters and buffers to float32, in place; returns the module."""
        return self.to("float32")

    def double(self) -> Self:
        """Convert the floating parameters and buffers to float64, in place; returns the module."""
        return self.to("float64")

    def half(self) -> Self:
        """Convert the floating parameters and buffers to float16, in place; returns the module."""
        return self.to("float16")

    def cpu(self) -> Self:
        """Return this module: there is no other device."""
        return self

    def cuda(self, device: DeviceLike = None) -> Any:
        """Raise RuntimeError: there is no CUDA device."""
        check_device("cuda")

    # -- text ------------------------------------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """Return the module's own text in `repr`, between its name and its submodules."""
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        first = extra.split("\n") if extra else []
        inside = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        if len(first) <= 1 and not inside:
            return f"{self._get_name()}({''.join(first)})"
        lines = "\n  ".join([*first, *inside])
        return f"{self._get_name()}(\n  {lines}\n)"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _typename(x: object) -> str:
    if isinstance(x, Tensor):
        return str(type_(x))
    cls = type(x)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _cannot(name: str, value: object, what: str, expected: str) -> str:
    return f"cannot assign '{_typename(value)}' as {what} '{name}' ({expected} expected)"
