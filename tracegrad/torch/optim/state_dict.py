"""State of an optimizer as plain containers in PyTorch's format, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import from_numpy

if TYPE_CHECKING:
    from tracegrad.torch.optim.optimizer import Optimizer
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["exported", "imported"]


def exported(optimizer: Optimizer) -> dict[str, Any]:
    """Return the states by the numbers of the parameters, without unchanged ones, and the groups."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = {id(p): k for k, p in enumerate(params)}
    groups = [
        {**{k: x for k, x in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    states = {numbers.get(id(p), p): s for p, s in optimizer.state.items() if _has_stepped(s)}
    return {"state": states, "param_groups": groups}


def _has_stepped(state: Any) -> bool:
    """Whether a step has been made with a state, as far as the state shows it."""
    if not isinstance(state, Mapping):
        return True
    step_count = state.get("step", 1)
    return any(x is not None for x in state.values()) and (
        not isinstance(step_count, Tensor) or bool(step_count.item())
    )


def imported(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    """Convert the state dict `state_dict` to states by parameters, in separate memory, and groups.

    ValueError if the groups differ, or an array of a state does not fit its parameter.
    """
    groups, saved = optimizer.param_groups, [dict(group) for group in state_dict["param_groups"]]
    if len(groups) != len(saved):
        raise ValueError(located("loaded state dict has a different number of parameter groups"))
    if any(len(own_group["params"]) != len(saved_group["params"]) for own_group, saved_group in zip(groups, saved)):
        text = "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
        raise ValueError(located(text))
    numbers = [number for group in saved for number in group["params"]]
    params = dict(zip(numbers, [p for group in groups for p in group["params"]]))
    is_lbfgs = len(params) == 1 and "history_size" in groups[0]  # LBFGS has one state for all parameters
    states = {}
    for number, state in state_dict["state"].items():
        p = params.get(number, number)
        known = isinstance(p, Tensor) and not is_lbfgs
        states[p] = {k: _arrived(x, k, number, p if known else None) for k, x in state.items()}
    return states, [
        _updated(own_group, saved_group, optimizer.defaults) for own_group, saved_group in zip(groups, saved)
    ]


def _updated(
    own_group: Mapping[str, object], saved_group: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, Any]:
    names = {"param_names": own_group["param_names"]} if "param_names" in own_group else {}
    return {**defaults, **saved_group, **names, "params": own_group["params"]}


_NUMBERS = frozenset({"step", "mu_product", "eta", "mu"})  # entries with one number for the whole parameter
_MEANS = {"row_var": -1, "col_var": -2}  # entries that are means along an axis, which stays with size 1


def _arrived(x: Tensor, name: str, number: object, p: Any) -> Any:
    """Copy a value of a state, in the dtype of its parameter."""
    if isinstance(x, Mapping):
        return {k: _arrived(each, name, number, None) for k, each in x.items()}
    if isinstance(x, list | tuple):
        return type(x)([_arrived(each, name, number, None) for each in x])
    if not hasattr(x, "__array__"):
        return x
    array = np.array(x.detach() if hasattr(x, "detach") else x)
    if p is None or name in _NUMBERS:
        return from_numpy(array)
    expected = list(p.shape)
    if name in _MEANS and len(expected) > 1:
        expected[_MEANS[name]] = 1
    if array.shape != tuple(expected):
        raise ValueError(
            located(f"{name} of parameter {number} has the shape {array.shape}, and the parameter {tuple(p.shape)}")
        )
    return from_numpy(array.astype(p.dtype))
