"""Base class of all optimizers: parameter groups, states, and the step.

An optimizer computes all changes of a step before it writes any, so an error leaves parameters and states unchanged.
The state of a parameter exists from the beginning, as zeros that take no memory before they are written. The first call
of a traced step is therefore the same program as all others.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.functions.math.complex import view_as_complex, view_as_real
from tracegrad.torch.modes import enable_grad, no_grad
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.param_groups import checked, grouped
from tracegrad.torch.optim.state_dict import exported, imported
from tracegrad.torch.optim.update_rules import UpdateRule
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.backward.hooks import RemovableHandle
from tracegrad.torch.tape.tensors.factories import from_numpy, tensor, tracing
from tracegrad.utils.live_objects import LiveObjects

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["Optimizer"]

_LIVE: LiveObjects[Optimizer] = LiveObjects()


class _SharedStepRecord:
    """Record of the steps of two optimizers, 0 and 1, that share a parameter: the last one, and who made any."""

    def __init__(self, text: str):
        self.text, self.last, self.warned = text, 0, False
        self.has_stepped = [False, False]


class Optimizer:
    """Base class of optimizers: a subclass has a `rule`, or its own `step`.

    TypeError for objects that are no Tensors; ValueError for Tensors that are no leaves, an empty list, and a parameter
    in several groups.

    >>> from tracegrad import nn, tensor
    >>> class Descent(Optimizer):
    ...     def step(self):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 p.data -= group["lr"] * p.grad
    >>> w = tensor([3.0], requires_grad=True)
    >>> descent = Descent([w], {"lr": 0.5})
    >>> (w * w).sum().backward()
    >>> descent.step()
    >>> w
    tensor([0.], requires_grad=True)
    """

    rule: UpdateRule | None = None
    saved_order = ""  # the hyperparameters in the order of PyTorch's states, if it is not that of the constructor
    _HOOKS = ("_before", "_after", "_before_saving", "_after_saving", "_before_loading", "_after_loading")

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __new__(cls, *args: object, **kwargs: object) -> Optimizer:
        # A subclass that wraps another optimizer need not call `__init__`.
        self = super().__new__(cls)
        self._prepare()
        return self

    def __init__(self, params: Iterable[object], defaults: dict[str, Any]):
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Any, Any] = {}
        self._prepare()
        for group in grouped(params):
            self.add_param_group(group)

    def _prepare(self) -> None:
        """Set up the attributes that are not part of the state."""
        for name in self._HOOKS:
            setattr(self, name, {})
        self._stepped = False
        self._iterations: list[tuple[_SharedStepRecord, int]] = []
        _LIVE.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for number, group in enumerate(self.param_groups):
            text += f"\nParameter Group {number}\n"
            text += "".join([f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params"])
        return text + ")"

    # -- groups --------------------------------------------------------------------------------------------------------
    def add_param_group(self, param_group: Mapping[str, object]) -> None:
        """Optimize these parameters too: a dict with `"params"` and the settings in which they differ.

        Raises as the constructor does, and leaves the optimizer as it was then.
        """
        group = checked(param_group, self.defaults, self.param_groups)
        # A parameter of a lazy module has no shape yet; its state begins at the first step.
        fresh = {p: self._begin(p, group) for p in group["params"] if not p._uninitialized}
        self.param_groups.append(group)
        self.state.update(fresh)
        self._meet(group["params"])

    def _begin(self, p: Array, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the initial state of a parameter."""
        if self.rule is None:
            return {}
        counted = {"step": tensor(0.0)} if self.rule.counts else {}
        arrays = self.rule.begin(p, group)
        make = tensor if tracing() else from_numpy  # the state of an optimizer of one call is part of its trace
        return counted | {name: x if x is None else make(x) for name, x in arrays.items()}

    def _meet(self, params: list[Array]) -> None:
        """Find other optimizers that share the parameters."""
        param_ids = {id(p) for p in params}
        for other in _LIVE.all():
            shared = [p for group in vars(other).get("param_groups", ()) for p in group["params"] if id(p) in param_ids]
            if other is not self and shared:
                names = f"{type(self).__name__} and {type(other).__name__}"
                shape = tuple(shared[0].shape)
                iterations = _SharedStepRecord(
                    f"a parameter of the shape {shape} is shared by two optimizers, {names}, whose steps come in turn: "
                    "each has a state of its own and knows nothing of what the other does to the parameter; give each "
                    "parameter to one of them, in groups of their own where settings differ"
                )
                self._iterations.append((iterations, 0))
                other._iterations.append((iterations, 1))

    def _check_shared_steps(self) -> None:
        """Warn once if another optimizer has changed shared parameters since the last step of this one."""
        for iterations, index in self._iterations:
            if not iterations.warned and iterations.last != index and iterations.has_stepped[index]:
                iterations.warned = True
                warnings.warn(located(iterations.text), UserWarning, stacklevel=4)
            iterations.last = index
            iterations.has_stepped[index] = True

    # -- steps ---------------------------------------------------------------------------------------------------------
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take the gradients of all parameters away, or set them to zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None  # unconditional: a test of the gradient would make the first trace differ
                elif p.grad is not None:
                    p.grad.detach_() if p.grad.grad_fn is not None else p.grad.requires_grad_(False)
                    p.grad.zero_()

    def step(self, closure: Callable[[], object] | None = None) -> Any:
        """Change all parameters that have gradients. `closure` computes the loss again, and its gradients, before."""
        if self.rule is None:
            raise NotImplementedError(f"{type(self).__name__} has no rule, and no step of its own")
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            self._change(self.rule)
        return loss

    def _change(self, rule: UpdateRule) -> None:
        written: list[tuple[Any, Any]] = []
        results: list[tuple[Any, str, Any]] = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p not in self.state:
                    self.state[p] = self._begin(p, group)
                state = self.state[p]
                new, changed = _changed(rule, p, p.grad, state, group)
                written += [(p, new), *[(state[k], x) for k, x in changed.items() if state.get(k) is not None]]
                results += [(state, k, x.clone()) for k, x in changed.items() if state.get(k) is None]
        for target, x in written:
            self._fit(target, x)
        for target, x in written:
            target.copy_(x)
        for state, name, x in results:
            state[name] = x

    def _fit(self, target: Tensor, x: Tensor) -> None:
        if target.shape != x.shape:
            shapes = f"the shape {tuple(x.shape)} where there is {tuple(target.shape)}"
            raise RuntimeError(
                located(f"{type(self).__name__}: a state that does not fit its parameter gives {shapes}")
            )

    def register_step_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return other arguments, as a pair."""
        return RemovableHandle(self._before, hook)  # type: ignore[attr-defined]

    def register_step_post_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return RemovableHandle(self._after, hook)  # type: ignore[attr-defined]

    # -- saving --------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return `"state"`, by the numbers of the parameters, and `"param_groups"`, in PyTorch's format.

        It holds the Tensors themselves. A parameter without steps has no state there.
        """
        for hook in self._hooks("_before_saving"):
            hook(self)
        result = exported(self)
        for hook in self._hooks("_after_saving"):
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the state and the settings of a `state_dict`, PyTorch's with its Tensors too; arrays are copied.

        Raises ValueError where its groups or shapes are others, and leaves the optimizer as it was then.
        """
        state_dict = {**state_dict}
        for hook in self._hooks("_before_loading"):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        states, groups = imported(self, state_dict)
        for group in groups:
            for p in group["params"]:
                states[p] = self._begin(p, group) | states.get(p, {})
        self.state, self.param_groups = states, groups
        for hook in self._hooks("_after_loading"):
            hook(self)

    def _hooks(self, kind: str) -> list[Callable[..., Any]]:
        return list(getattr(self, kind).values())

    def register_state_dict_pre_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return self._registered("_before_saving", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; it may return another one."""
        return self._registered("_after_saving", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before `load_state_dict`; it may return another one."""
        return self._registered("_before_loading", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after `load_state_dict`."""
        return self._registered("_after_loading", hook, prepend)

    def _registered(self, kind: str, hook: Callable[..., object], first: bool) -> RemovableHandle:
        hooks = getattr(self, kind)
        handle = RemovableHandle(hooks, hook)
        if first:
            others = {k: x for k, x in hooks.items() if k != handle.id}
            for k in others:
                del hooks[k]
            hooks.update(others)
        return handle


def _with_hooks(step: Callable[..., object]) -> Callable[..., object]:
    """Wrap a step in the hooks of the optimizer."""
    if getattr(step, "hooked", False):
        return step

    @functools.wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = (self, *args)
        for hook in list(self._before.values()):
            inputs = hook(self, args, kwargs)
            if inputs is not None:
                if not (isinstance(inputs, tuple) and len(inputs) == 2):
                    raise RuntimeError(
                        located(f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {inputs}")
                    )
                args, kwargs = inputs
        if self._iterations:
            self._check_shared_steps()
        out = step(*args, **kwargs)
        self._stepped = True
        for hook in list(self._after.values()):
            hook(self, args, kwargs)
        return out

    call.hooked = True  # type: ignore[attr-defined]
    return call


Optimizer.step = _with_hooks(Optimizer.step)  # type: ignore[method-assign]


def _changed(rule: UpdateRule, p: Array, g: Array, state: Any, group: Any) -> tuple[Any, dict[str, Any]]:
    """Return the new parameter, and the new entries of its state."""
    counted = {}
    t = None
    if rule.counts:
        step = state["step"]
        if not isinstance(step, Tensor):  # some programs store a number there
            step = tensor(float(step))
        counted = {"step": step + 1}
        t = counted["step"].double()
    g = -g if group.get("maximize") else g
    if p.dtype.kind != "c":
        new, now = rule.change(p, g, state, t, group)
        return new, counted | now
    real_state = {k: _real(x) for k, x in state.items()}
    new, now = rule.change(_real(p), _real(g), real_state, t, group)
    whole = {k: view_as_complex(x) if _is_complex(state.get(k, p)) else x for k, x in now.items()}
    return view_as_complex(new), counted | whole


def _is_complex(x: Array) -> bool:
    return x is None or (isinstance(x, Tensor) and x.dtype.kind == "c")


def _real(x: Array) -> Array:
    """View a complex Tensor as real, with its parts along a last axis; return other Tensors unchanged."""
    is_complex = isinstance(x, Tensor) and x.dtype.kind == "c"
    return view_as_real(x) if is_complex else x


OPTIM_DOCS.document(globals(), __all__)
