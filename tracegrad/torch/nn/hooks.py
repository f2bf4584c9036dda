"""Module hooks: called before and after `forward`, in the backward pass, and around `state_dict`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.torch.autograd.function import Function
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.backward.hooks import RemovableHandle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.torch.nn.module import Module
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["Hooked", "called"]

Hook = Callable[..., Any]


class ModuleHooks:
    """The hooks of one module, by kind and in order."""

    def __init__(self) -> None:
        self.before: dict[int, Hook] = {}
        self.after: dict[int, Hook] = {}
        self.backward_before: dict[int, Hook] = {}
        self.backward: dict[int, Hook] = {}
        self.saving: dict[int, Hook] = {}
        self.saved: dict[int, Hook] = {}
        self.loading: dict[int, Hook] = {}
        self.loaded: dict[int, Hook] = {}
        self.keywords: set[int] = set()
        self.always: set[int] = set()


class Hooked:
    """The methods of a module that register hooks."""

    _hooks: Any

    def _ensure_hooks(self) -> ModuleHooks:
        if self._hooks is None:
            object.__setattr__(self, "_hooks", ModuleHooks())
        hooks: ModuleHooks = self._hooks
        return hooks

    @property
    def _forward_pre_hooks(self) -> dict[int, Hook]:
        return self._ensure_hooks().before

    @property
    def _forward_hooks(self) -> dict[int, Hook]:
        return self._ensure_hooks().after

    @property
    def _backward_hooks(self) -> dict[int, Hook]:
        return self._ensure_hooks().backward

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before `forward`; its result, a tuple or one value, replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, and returns None or both.
        """
        hooks = self._ensure_hooks()
        handle = _added(hooks.before, hook, prepend)
        if with_kwargs:
            hooks.keywords.add(handle.id)
        return handle

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after `forward`; its result, unless None, replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`. With `always_call` it is called too, with the
        output None, if `forward` raises.
        """
        hooks = self._ensure_hooks()
        handle = _added(hooks.after, hook, prepend)
        if with_kwargs:
            hooks.keywords.add(handle.id)
        if always_call:
            hooks.always.add(handle.id)
        return handle

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before gradients pass the module; its result replaces them.

        `grad_output` is the tuple of the gradients of the outputs.
        """
        return _added(self._ensure_hooks().backward_before, hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after the gradients of the inputs are computed.

        Its result replaces `grad_input`. Both are tuples, of positional arguments and of outputs.
        """
        return _added(self._ensure_hooks().backward, hook, prepend)

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the module enters its values into a state dict."""
        return _added(self._ensure_hooks().saving, hook, False)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after the module and its submodules are entered.

        The hook may change the state dict.
        """
        return _added(self._ensure_hooks().saved, hook, False)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call a hook before the module loads its values from a state dict.

        It is `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`. The
        module loads the values after the hook's changes; the state dict is a copy.
        """
        return _added(self._ensure_hooks().loading, hook, False)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after the module has loaded its values.

        Keys that the hook removes from the two lists are no errors.
        """
        return _added(self._ensure_hooks().loaded, hook, False)

    def _hooks_of(self, kind: str) -> list[Hook]:
        return [] if self._hooks is None else list(getattr(self._hooks, kind).values())


def _added(hooks: dict[int, Hook], hook: Hook, first: bool) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if first:
        others = {k: x for k, x in hooks.items() if k != handle.id}
        for k, x in others.items():
            del hooks[k]
            hooks[k] = x
    return handle


def called(module: Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    """Call a module with hooks."""
    hooks = module._hooks
    args, kwargs = _before(module, hooks, args, kwargs)
    backward_hook = _BackwardHook(module) if hooks.backward or hooks.backward_before else None
    if backward_hook is not None:
        args = backward_hook.wrap_inputs(args)
    try:
        output = module.forward(*args, **kwargs)
    except Exception:
        for number, hook in list(hooks.after.items()):
            if number in hooks.always:
                hook(module, args, kwargs, None) if number in hooks.keywords else hook(module, args, None)
        raise
    for number, hook in list(hooks.after.items()):
        result = hook(module, args, kwargs, output) if number in hooks.keywords else hook(module, args, output)
        output = output if result is None else result
    return output if backward_hook is None else backward_hook.wrap_output(output)


def _before(module: object, hooks: ModuleHooks, args: object, kwargs: object) -> tuple[Any, Any]:
    for number, hook in list(hooks.before.items()):
        if number in hooks.keywords:
            result = hook(module, args, kwargs)
            if result is not None:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                args, kwargs = result
        else:
            result = hook(module, args)
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
    return args, kwargs


# -- backward hooks --------------------------------------------------------------------------------------------------
class _BackwardHook:
    """Backward hooks of one call: they get the gradients of the outputs, then of the inputs."""

    def __init__(self, module: Module):
        self.module = module
        self.grad_output: Any = None
        self.has_inputs = False

    def wrap_inputs(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Pass the arguments through a node that intercepts the gradients of the inputs."""
        positions = [k for k, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        self.has_inputs = bool(positions)
        self.count = len(args)
        self.input_positions = positions
        if not positions:
            return args
        passed = BackwardHookFunction.apply(self.at_inputs, *[args[k] for k in positions])
        results = list(args)
        for k, x in zip(positions, passed):
            results[k] = x
        return tuple(results)

    def wrap_output(self, output: Tensor) -> Any:
        """Pass the output through a node that intercepts the gradients of the outputs."""
        is_tuple = isinstance(output, tuple)
        outputs = output if is_tuple else (output,)
        positions = [k for k, x in enumerate(outputs) if isinstance(x, Tensor) and x.requires_grad]
        if not positions:
            return output
        self.outputs, self.output_positions = len(outputs), positions
        passed = BackwardHookFunction.apply(self.at_outputs, *[outputs[k] for k in positions])
        results = list(outputs)
        for k, x in zip(positions, passed):
            results[k] = x
        return tuple(results) if is_tuple else results[0]

    def at_outputs(self, grads: tuple[Array, ...]) -> tuple[Array, ...]:
        """Call the backward pre-hooks; call the backward hooks too if no input requires grad."""
        whole = _spread(grads, self.output_positions, self.outputs)
        for hook in list(self.module._hooks.backward_before.values()):
            result = hook(self.module, whole)
            if result is not None:
                whole = result if isinstance(result, tuple) else (result,)
        self.grad_output = whole
        if not self.has_inputs and self.module._hooks.backward:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                "inputs require gradients.",
                stacklevel=2,
            )
            for hook in list(self.module._hooks.backward.values()):
                hook(self.module, (None,) * self.count, whole)
        return tuple([whole[k] for k in self.output_positions])

    def at_inputs(self, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Call the backward hooks with the gradients of the inputs and outputs."""
        if self.grad_output is None:  # a gradient that does not come from the output, as in a second derivative
            return grads
        whole = _spread(grads, self.input_positions, self.count)
        for hook in list(self.module._hooks.backward.values()):
            result = hook(self.module, whole, self.grad_output)
            if result is not None:
                whole = result if isinstance(result, tuple) else (result,)
        self.grad_output = None
        return tuple([whole[k] for k in self.input_positions])


def _spread(xs: tuple[Any, ...], positions: list[int], count: int) -> tuple[Any, ...]:
    results: list[Any] = [None] * count
    for k, x in zip(positions, xs):
        results[k] = x
    return tuple(results)


class BackwardHookFunction(Function):
    """Identity of Tensors; its first argument is a function that transforms all their gradients together."""

    @staticmethod
    def forward(ctx: Any, transform: object, *xs: Tensor) -> tuple[Array, ...]:
        ctx.way = transform
        return tuple([x.clone() for x in xs])

    @staticmethod
    def backward(ctx: Any, *grads: object) -> Any:
        return None, *ctx.way(grads)
