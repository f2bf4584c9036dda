"""Stateless calls of modules: the functions of modules in `tracegrad.func`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d

if TYPE_CHECKING:
    from tracegrad.torch.nn.module import Module
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]

_stack = FUNCTIONS["stack"]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: object,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers, as a pure function of them.

    Parameters
    ----------
    module : Module
        Module, which is unchanged afterwards.
    parameter_and_buffer_dicts : dict, or sequence of dict
        Tensors or ndarrays by dotted names. The module's own values are used for other names.
    args : tuple, or one argument, optional
        Arguments of the call.
    kwargs : mapping, optional
        Keyword arguments of the call.
    tie_weights : bool
        Whether a shared parameter is replaced under all its names.
    strict : bool
        Whether missing and unknown names are an error.

    Returns
    -------
    object
        Result of `module(*args, **kwargs)`.

    Raises
    ------
    ValueError
        If a name is in several dicts, or names of one shared parameter have different values.
    RuntimeError
        With `strict`, if names are missing or unknown.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> layer = tg.nn.Linear(2, 1, bias=False)
    >>> loss = lambda p: functional_call(layer, p, np.array([3.0, 4.0])).sum()
    >>> print(tg.grad(loss)({"weight": np.zeros((1, 2))})["weight"])
    [[3. 4.]]
    """
    inputs = _merged(parameter_and_buffer_dicts)
    slots = dict(_param_slots(module))
    if strict:
        _require_names(inputs, slots)
    wanted = {name: x for name, x in inputs.items() if name in slots}
    if tie_weights:
        wanted |= _twins(wanted, slots)
    before = {name: slots[name][0][slots[name][1]] for name in wanted}
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        _assign_values(wanted, slots)
        return module(*arguments, **({} if kwargs is None else kwargs))
    finally:
        _assign_values(before, slots)


ParamSlots = dict[str, tuple[dict[str, Any], str]]


def _param_slots(module: Module) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
    """Return the dotted names of parameters and buffers, with the tables that hold them."""
    for path, each in module.named_modules(remove_duplicate=False):
        for table in (each._parameters, each._buffers):
            for name in table:
                yield (f"{path}.{name}" if path else name), (table, name)


def _assign_values(values: Mapping[str, object], slots: ParamSlots) -> None:
    for name, value in values.items():
        table, key = slots[name]
        table[key] = value


def _twins(wanted: Mapping[str, object], slots: ParamSlots) -> dict[str, Any]:
    """Return the replacements of shared parameters under their other names."""
    known: dict[int, Any] = {}
    names: dict[int, str] = {}
    for name, x in wanted.items():
        shared = slots[name][0][slots[name][1]]
        if shared is not None and known.setdefault(id(shared), x) is not x:
            text = "which are tied. Consider using tie_weights=False"
            raise ValueError(
                located(f"functional_call got multiple values for keys {[names[id(shared)], name]}, {text}")
            )
        names.setdefault(id(shared), name)
    rest = {name: table[key] for name, (table, key) in slots.items() if name not in wanted}
    return {name: known[id(x)] for name, x in rest.items() if x is not None and id(x) in known}


def _merged(dicts: object) -> dict[str, Any]:
    if isinstance(dicts, Mapping):
        return dict(dicts)
    if not isinstance(dicts, Sequence):
        raise ValueError(
            located(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, got {type(dicts)}")
        )
    table: dict[str, Any] = {}
    for each in dicts:
        for name, value in each.items():
            if name in table:
                raise ValueError(
                    located(f"{name} appears in multiple dictionaries; behavior of functional call is ambiguous")
                )
            table[name] = value
    return table


def _require_names(inputs: Mapping[str, object], slots: ParamSlots) -> None:
    missing = [name for name, (table, key) in slots.items() if name not in inputs and table[key] is not None]
    unexpected = [name for name in inputs if name not in slots]
    texts = [
        f"{label} key(s): {', '.join(keys)}."
        for label, keys in (("Missing", missing), ("Unexpected", unexpected))
        if keys
    ]
    if texts:
        raise RuntimeError(located(f"Error(s) in functional_call: {' '.join(texts)}"))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stack the parameters and the buffers of modules of one class along a new first dimension, for `vmap`.

    Parameters
    ----------
    models : sequence of Module
        Modules of one class.

    Returns
    -------
    params : dict of str to Tensor
        Stacked parameters, which are leaves and require grad as before.
    buffers : dict of str to Tensor
        Stacked buffers.

    Raises
    ------
    RuntimeError
        If there are no modules, they have several classes, or only some of them are in training, or only some of the
        Tensors of one name require grad.

    Examples
    --------
    >>> from tracegrad.torch.nn import Linear
    >>> params, buffers = stack_module_state([Linear(2, 1) for _ in range(3)])
    >>> {name: x.shape for name, x in params.items()}
    {'weight': torch.Size([3, 1, 2]), 'bias': torch.Size([3, 1])}
    """
    if not models:
        raise RuntimeError(located("stack_module_state: Expected at least one model, got 0."))
    if len({model.training for model in models}) > 1:
        raise RuntimeError(located("stack_module_state: Expected all models to have the same training/eval mode."))
    if len({type(model) for model in models}) > 1:
        raise RuntimeError(located("stack_module_state: Expected all models to be of the same class."))
    params = {
        name: _stacked(name, [model.get_parameter(name) for model in models])
        for name, _ in models[0].named_parameters()
    }
    buffers = {
        name: _stacked(name, [model.get_buffer(name) for model in models]) for name, _ in models[0].named_buffers()
    }
    return params, buffers


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Remove the running statistics of all batch normalizations in a module, which `vmap` could not update.

    Parameters
    ----------
    root : Module
        Module, which is changed.

    Returns
    -------
    Module
        The module `root`. Its batch normalizations use the statistics of each batch, also in evaluation.

    Examples
    --------
    >>> from tracegrad.torch.nn import BatchNorm1d, Sequential
    >>> net = replace_all_batch_norm_modules_(Sequential(BatchNorm1d(2)))
    >>> print(net[0].running_mean, net[0].track_running_stats)
    None False
    """
    for module in root.modules():
        if isinstance(module, BatchNorm1d | BatchNorm2d | BatchNorm3d) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def _stacked(name: str, xs: list[Tensor]) -> Tensor:
    if len({x.requires_grad for x in xs}) > 1:
        raise RuntimeError(located(f"Expected {name} from each model to have the same .requires_grad"))
    result: Tensor = _stack([x.detach() for x in xs]).requires_grad_(xs[0].requires_grad)
    return result
