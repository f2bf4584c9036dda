"""State of modules as a dict of arrays: `state_dict`, and `load_state_dict` from any library."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn.parameter import Parameter, is_lazy, is_parameter
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.tensor import of_array

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["Stateful"]


class IncompatibleKeys(NamedTuple):
    """Missing and unexpected keys of `load_state_dict`."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


_NONE_EXPECTED = (
    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, if "
    "incompatible_keys need to be modified, it should be done inplace."
)


class _StateTarget(NamedTuple):
    """Target of an entry of the state: a parameter or buffer of a module."""

    table: dict[str, Any]
    name: str

    @property
    def now(self) -> Any:
        """Return the current value."""
        return self.table[self.name]


class Stateful:
    """Methods of a module that save and load its state."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _transient: frozenset[str]
    _hooks_of: Callable[[str], list[Any]]
    # Names that states of older versions lack; they are not reported as missing.
    _added_later: frozenset[str] = frozenset()

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """Return the parameters and persistent buffers by their dotted names, with `prefix` in front.

        They are detached Tensors that share the memory, or the module's own if `keep_vars`. With `destination` they are
        entered there.

        >>> from tracegrad.torch.nn import Linear
        >>> {name: x.shape for name, x in Linear(3, 2).state_dict().items()}
        {'weight': torch.Size([2, 3]), 'bias': torch.Size([2])}
        """
        result = OrderedDict() if destination is None else destination
        for hook in self._hooks_of("saving"):
            hook(self, prefix, keep_vars)
        for name, target in self._state_targets():
            now = target.now
            result[prefix + name] = now if keep_vars or is_lazy(now) else now.detach()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=result, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._hooks_of("saved"):
            if hook(self, result, prefix, {"version": 1}) is not None:
                raise RuntimeError(located("state_dict post-hook must return None"))
        return result

    def _state_targets(self) -> Iterator[tuple[str, _StateTarget]]:
        """Return the targets of the module's own entries in the state, by their names."""
        for name, x in self._parameters.items():
            if x is not None:
                yield name, _StateTarget(self._parameters, name)
        for name, x in self._buffers.items():
            if x is not None and name not in self._transient:
                yield name, _StateTarget(self._buffers, name)

    def _find(self, entries: Mapping[str, object], prefix: str, matched: StateMatch) -> None:
        """Match the entries of a state dict with the module and its submodules; call the pre-hooks."""
        for hook in self._hooks_of("loading"):
            hook(
                self, entries, prefix, {}, True, matched.keys.missing_keys, matched.keys.unexpected_keys, matched.errors
            )
        targets = dict(self._state_targets())
        for name, target in targets.items():
            if prefix + name in entries:
                matched.add(prefix + name, target, entries[prefix + name])
            elif name not in self._added_later:
                matched.keys.missing_keys.append(prefix + name)
        for key in entries:
            first, *inside = key.removeprefix(prefix).split(".", 1)
            if key.startswith(prefix) and first not in (self._modules if inside else targets):
                matched.keys.unexpected_keys.append(key)
        for name, module in self._modules.items():
            if module is not None:
                start = f"{prefix}{name}."
                module._find({k: v for k, v in entries.items() if k.startswith(start)}, start, matched)
        matched.after += [(self, hook) for hook in self._hooks_of("loaded")]

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Load the values of `state_dict`: copy them into the parameters and buffers, or replace these (`assign`).

        The values are Tensors, ndarrays or other arrays, PyTorch's among them; they are converted to the present dtype.
        All is checked before anything is written. If a hook raises afterwards, or leaves an error, the old values are
        restored. RuntimeError if a shape differs and, if `strict`, if keys are missing or unexpected; without `strict`
        the keys are returned. TypeError if `state_dict` is no mapping.

        >>> import numpy as np
        >>> from tracegrad.torch.nn import Linear
        >>> layer = Linear(2, 1, bias=False)
        >>> layer.load_state_dict({"weight": np.array([[1.0, 2.0]])})
        <All keys matched successfully>
        >>> layer.weight
        Parameter containing:
        tensor([[1., 2.]], requires_grad=True)
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        result = StateMatch()
        self._find(dict(state_dict), "", result)
        if result.errors or (strict and not result.after):
            self._refuse(result, strict)
        before = [
            (target, target.now, target.now.detach().clone().array) for target, _ in result.matches if result.after
        ]
        for target, array in result.matches:
            (_assign if assign else _copy)(target, array)
        try:
            for module, hook in result.after:
                if hook(module, result.keys) is not None:
                    raise AssertionError(located(_NONE_EXPECTED))
            self._refuse(result, strict)
        except BaseException:
            for target, now, array in before:
                target.table[target.name] = now
                _copy(target, array)
            raise
        return result.keys

    def _refuse(self, matched: StateMatch, strict: bool) -> None:
        """Raise RuntimeError for mismatches and, if strict, for missing or unexpected keys."""
        keys = matched.keys
        errors = (
            [*_listed("Missing", keys.missing_keys), *_listed("Unexpected", keys.unexpected_keys)] if strict else []
        )
        errors += matched.errors
        if errors:
            whole = "".join(f"\n\t{error}" for error in errors)
            raise RuntimeError(located(f"Error(s) in loading state_dict for {type(self).__name__}:{whole}"))


class StateMatch:
    """Match of a state dict and a module: targets with their arrays, missing keys, errors, and post-hooks."""

    def __init__(self) -> None:
        self.keys = IncompatibleKeys([], [])
        self.errors: list[str] = []
        self.matches: list[tuple[_StateTarget, Any]] = []
        self.after: list[tuple[Any, Any]] = []

    def add(self, name: str, target: _StateTarget, value: Any) -> None:
        if is_lazy(value):
            if is_lazy(target.now):
                return
            value.shape  # noqa: B018 - the RuntimeError says what to do
        array = array_of(value)
        error = _mismatch(name, target.now, array, value)
        if error:
            self.errors.append(error)
        else:
            self.matches.append((target, array))


def array_of(x: Any) -> Any:
    """Return the array of an entry of any library; None for other objects."""
    if isinstance(x, Tensor):
        return x.array
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        # NumPy has no bfloat16; float32 represents all its values.
        x = x.float() if "bfloat16" in str(x.dtype) else x
        return x.numpy()
    if hasattr(x, "__array__"):
        return np.asarray(x)
    return np.from_dlpack(x) if hasattr(x, "__dlpack__") else None


def _mismatch(name: str, now: Tensor, array: Array, value: Tensor) -> str:
    """Describe the mismatch of an entry with the target's value `now`; "" for none."""
    if array is None:
        return (
            f'While copying the parameter named "{name}", expected a Tensor or another array from checkpoint but '
            f"received {type(value)}."
        )
    if array.shape != now.shape:
        return (
            f"size mismatch for {name}: copying a param with shape {_size(array.shape)} from checkpoint, the shape in "
            f"current model is {_size(now.shape)}."
        )
    if array.dtype.kind not in "biufc" or (array.dtype.kind == "c" and now.dtype.kind != "c"):
        return (
            f"dtype mismatch for {name}: copying {array.dtype} from checkpoint, the dtype in current model is "
            f"{now.dtype}."
        )
    return ""


def _size(shape: tuple[int, ...]) -> str:
    return f"torch.Size({list(shape)})"


def _listed(what: str, keys: list[str]) -> list[str]:
    names = ", ".join(f'"{key}"' for key in keys)
    return [f"{what} key(s) in state_dict: {names}. "] if keys else []


def _copy(target: _StateTarget, array: object) -> None:
    with no_grad():
        target.now.copy_(of_array(array if isinstance(array, Carrier) else np.asarray(array)))


def _assign(target: _StateTarget, array: Array) -> None:
    now = target.now
    result = Parameter(array, now.requires_grad) if is_parameter(now) else of_array(array)
    target.table[target.name] = result
