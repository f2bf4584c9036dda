"""Parameter groups of an optimizer: dicts with the hyperparameters of each group."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.tape import Tensor

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


# What an optimizer takes: parameters, groups of them, or parameters with names.
Params: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

__all__ = ["Params", "checked", "grouped", "required"]


class _Required:
    """Marker of a hyperparameter without default, which a group must define."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def grouped(params: Any) -> list[dict[str, Any]]:
    """Return the groups of `params`: one, unless they are dicts."""
    if isinstance(params, Tensor | np.ndarray):
        text = "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
        raise TypeError(located(f"{text}{type(params).__name__}"))
    results = list(params)
    if not results:
        raise ValueError(located("optimizer got an empty parameter list"))
    return results if isinstance(results[0], dict) else [{"params": results}]


def checked(param_group: object, defaults: Mapping[str, object], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Check a new group against the others, and return it."""
    if not isinstance(param_group, dict):
        raise TypeError(located(f"param_group must be a dict, but got {type(param_group)}"))
    params = param_group["params"]
    if isinstance(params, set):
        raise TypeError(
            located(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        )
    params = [params] if isinstance(params, Tensor) else list(params)
    named = [isinstance(p, tuple) for p in params]
    if any(named) and not all(named):
        raise ValueError(located("all optimizer params should be with/without names."))
    group = {**param_group, "params": [p[1] for p in params] if any(named) else params}
    if any(named):
        group["param_names"] = [p[0] for p in params]
    for p in group["params"]:
        _check(p)
    for name, default in defaults.items():
        if default is required and name not in group:
            raise ValueError(
                located(f"parameter group didn't specify a value of required optimization parameter {name}")
            )
        group.setdefault(name, default)
    _check_disjoint(group["params"], others)
    if any(("param_names" in other) != any(named) for other in others):
        raise ValueError(located("all optimizer param groups should be with/without names."))
    return group


def _check(p: Tensor) -> None:
    if not isinstance(p, Tensor):
        culprit = f"an {type(p).__name__}; make a Tensor of it" if isinstance(p, np.ndarray) else type(p).__name__
        raise TypeError(located(f"optimizer can only optimize Tensors, but one of the params is {culprit}"))
    if not (p.is_leaf or p.retains_grad):
        raise ValueError(located("can't optimize a non-leaf Tensor"))


def _check_disjoint(params: Sequence[object], others: Sequence[dict[str, Any]]) -> None:
    """Warn if a parameter is twice in the group; raise if another group has it."""
    param_ids = {id(p) for p in params}
    if len(param_ids) != len(params):
        warnings.warn(
            located(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "it is updated more than once in each step"
            ),
            stacklevel=4,
        )
    if any(id(p) in param_ids for other in others for p in other["params"]):
        raise ValueError(located("some parameters appear in more than one parameter group"))
