"""Namespace of `torch.nn.utils.prune`: parameters of which elements or channels are held at zero by a mask.

The parameter becomes `name_orig`, and the buffer `name_mask` is 0 where it is pruned. A hook computes their product
before each call of the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.nn.module import Module
from tracegrad.torch.tape.tensors.factories import ones_like, tensor
from tracegrad.torch.tape.tensors.random import rand
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


class BasePruningMethod:
    """Hook that computes the masked parameter of a module; subclasses say which elements are masked.

    >>> from tracegrad.nn import Linear
    >>> class Odd(BasePruningMethod):
    ...     def compute_mask(self, t, default_mask):
    ...         mask = default_mask.clone()
    ...         mask.view(-1)[::2] = 0
    ...         return mask
    >>> layer = Linear(4, 1)
    >>> method = Odd.apply(layer, "weight")
    >>> layer.weight_mask.tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """

    PRUNING_TYPE: ClassVar[str] = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask for importance scores `t`, at most the default mask."""
        raise NotImplementedError

    def apply_mask(self, module: Module) -> Tensor:
        """Return the masked parameter."""
        original = getattr(module, f"{self._tensor_name}_orig")
        result: Tensor = getattr(module, f"{self._tensor_name}_mask").to(original.dtype) * original
        return result

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prune a parameter of a module, once more if it is pruned already; returns the method.

        AssertionError for scores of another shape. The module stays as it was after an error.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        key, earlier = _hook_of(module, name)
        if earlier is not None:
            method = PruningContainer(*(earlier if isinstance(earlier, PruningContainer) else [earlier]), method)
        original = getattr(module, name if earlier is None else f"{name}_orig")
        default_mask = ones_like(original) if earlier is None else getattr(module, f"{name}_mask")
        mask = method.compute_mask(_scores(importance_scores, original, f"parameter {name} of {module}"), default_mask)
        if earlier is None:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", original)
        else:
            del module._forward_pre_hooks[key]
        module.register_buffer(f"{name}_mask", mask)
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Return the masked tensor `t`."""
        mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(_scores(importance_scores, t, "tensor t"), mask)

    def remove(self, module: Module) -> None:
        """Make the masked parameter the parameter of the module."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        original = getattr(module, f"{name}_orig")
        for attribute in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, attribute)
        original.data = weight.data
        module.register_parameter(name, original)


def _hook_of(module: Module, name: str) -> tuple[Any, BasePruningMethod | None]:
    """Return the pruning hook of a parameter and its key; None without one."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None, None


def _scores(scores: Tensor | None, values: Tensor, what: str) -> Tensor:
    """Return the importance scores, by default the values; AssertionError for scores of another shape."""
    if scores is not None and scores.shape != values.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, got {scores.shape} vs {values.shape}"
        )
    return (values if scores is None else scores).detach()


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter: each prunes among what the methods before it have left.

    ValueError for a method for another parameter.

    >>> len(PruningContainer())
    0
    """

    def __init__(self, *args: BasePruningMethod):
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method; TypeError for another object, ValueError for a method for another parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask of the last method, for what the default mask leaves."""
        method, mask = self._pruning_methods[-1], default_mask.detach().clone()
        left = _left(method, mask.numpy())
        mask[left] = method.compute_mask(t[left], default_mask=mask[left]).to(mask.dtype)
        return mask


def _left(method: Any, mask: NDArray) -> Any:
    """Return the index of what a method may prune: elements, or channels in which there is one."""
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * mask.ndim
    if method.PRUNING_TYPE == "unstructured":
        return tensor(mask == 1)
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    axis = _axis(method.dim, mask)
    others = tuple(k for k in range(mask.ndim) if k != axis)
    return (*(slice(None),) * axis, tensor(np.flatnonzero(mask.sum(others))))


def _axis(dim: int, x: Any) -> int:
    """Return a dimension counted from the first; IndexError if there is no such dimension."""
    if not -len(x.shape) <= dim < len(x.shape):
        raise IndexError(f"Invalid index {dim} for tensor of size {x.shape}")
    return dim % len(x.shape)


def _checked(amount: float) -> float:
    """Return the number or share that is pruned; TypeError or ValueError unless it is one."""
    if not isinstance(amount, int | float | np.number):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, int | np.integer) and amount > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
    return amount


def _count(amount: float, size: int) -> int:
    """Return how many of `size` are pruned; ValueError if there are fewer."""
    if not isinstance(amount, int | np.integer):
        return round(float(amount) * size)
    if amount > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return int(amount)


class Identity(BasePruningMethod):
    """Nothing is pruned: the parameter gets its names and its mask.

    >>> import tracegrad as tg
    >>> Identity().prune(tg.ones(2)).tolist()
    [1.0, 1.0]
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the default mask."""
        return default_mask


class _Unstructured(BasePruningMethod):
    """The elements of the lowest ranks are pruned."""

    def __init__(self, amount: float):
        self.amount = _checked(amount)

    def ranks(self, t: Tensor) -> NDArray:
        """Return a number for each element."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the default mask without the elements of the lowest ranks."""
        count = _count(self.amount, t.numel())
        mask = default_mask.detach().clone()
        lowest = np.argsort(self.ranks(t).ravel(), kind="stable")[:count]
        mask.numpy()[np.unravel_index(lowest, tuple(mask.shape))] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Elements are pruned at random: a number of them, or a share between 0 and 1.

    >>> import tracegrad as tg
    >>> RandomUnstructured(0.5).prune(tg.ones(4)).sum().item()
    2.0
    """

    def ranks(self, t: Tensor) -> NDArray:
        """Return random numbers."""
        ranks: NDArray = rand(*t.shape).numpy()
        return ranks


class L1Unstructured(_Unstructured):
    """The elements nearest to zero are pruned: a number of them, or a share between 0 and 1.

    >>> import tracegrad as tg
    >>> L1Unstructured(1).prune(tg.tensor([3.0, 1.0])).tolist()
    [3.0, 0.0]
    """

    def ranks(self, t: Tensor) -> NDArray:
        """Return the magnitudes."""
        magnitudes: NDArray = np.abs(t.detach().numpy())
        return magnitudes


class _Structured(BasePruningMethod):
    """The channels of the lowest ranks are pruned."""

    PRUNING_TYPE = "structured"
    amount: Any
    dim: int

    def ranks(self, channels: NDArray) -> NDArray:
        """Return a number for each row."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the default mask without the channels of the lowest ranks."""
        if len(t.shape) <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. "
                f"Found tensor of shape {t.shape} with {len(t.shape)} dims"
            )
        axis = _axis(self.dim, t)
        count = _count(self.amount, t.shape[axis])
        rows = np.moveaxis(t.detach().numpy(), axis, 0).reshape(t.shape[axis], -1)
        mask = default_mask.detach().clone()
        lowest = np.argsort(self.ranks(rows), kind="stable")[:count]
        index: Any = (*(slice(None),) * axis, lowest)
        mask.numpy()[index] = 0
        return mask


class RandomStructured(_Structured):
    """Channels of a dimension are pruned at random: a number of them, or a share between 0 and 1.

    >>> import tracegrad as tg
    >>> RandomStructured(1, dim=0).prune(tg.ones(2, 2)).sum().item()
    2.0
    """

    def __init__(self, amount: float, dim: int = -1):
        self.amount, self.dim = _checked(amount), dim

    def ranks(self, channels: NDArray) -> NDArray:
        """Return random numbers."""
        ranks: NDArray = rand(len(channels)).numpy()
        return ranks


class LnStructured(_Structured):
    """The channels of a dimension with the smallest n-norms are pruned: a number, or a share between 0 and 1.

    >>> import tracegrad as tg
    >>> LnStructured(1, n=2, dim=0).prune(tg.tensor([[3.0, 4.0], [1.0, 1.0]])).tolist()
    [[3.0, 4.0], [0.0, 0.0]]
    """

    def __init__(self, amount: float, n: float | str, dim: int = -1):
        self.amount, self.n, self.dim = _checked(amount), n, dim

    def ranks(self, channels: NDArray) -> NDArray:
        """Return the norms."""
        norms: NDArray = np.linalg.norm(channels, ord=None if self.n == "fro" else float(self.n), axis=1)
        return norms


class CustomFromMask(BasePruningMethod):
    """What a mask says is pruned.

    >>> import tracegrad as tg
    >>> CustomFromMask(tg.tensor([1, 0])).prune(tg.ones(2)).tolist()
    [1.0, 0.0]
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the product of both masks; AssertionError for masks of different shapes."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Give a parameter a mask of ones; returns the module.

    >>> from tracegrad.nn import Linear
    >>> sorted(identity(Linear(2, 1), "weight").state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements of a parameter at random; returns the module.

    TypeError or ValueError for a wrong amount, as in the functions below.

    >>> from tracegrad.nn import Linear
    >>> float(random_unstructured(Linear(4, 2), "weight", 0.25).weight_mask.sum())
    6.0
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of a parameter that are nearest to zero; returns the module.

    >>> import tracegrad as tg
    >>> layer = tg.nn.Linear(4, 1)
    >>> layer.weight.data = tg.tensor([[3.0, -1.0, 2.0, 0.5]])
    >>> l1_unstructured(layer, "weight", 2).weight.tolist()
    [[3.0, -0.0, 2.0, 0.0]]
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels of a dimension of a parameter at random; returns the module.

    >>> from tracegrad.nn import Linear
    >>> random_structured(Linear(4, 2), "weight", 1, 0).weight_mask.sum(1).sort().values.tolist()
    [0.0, 4.0]
    """
    RandomStructured.apply(module, name, amount, dim=dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: float | str, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the channels of a dimension of a parameter that have the smallest n-norms; returns the module.

    >>> import tracegrad as tg
    >>> layer = tg.nn.Linear(2, 2)
    >>> layer.weight.data = tg.tensor([[3.0, 4.0], [1.0, 1.0]])
    >>> ln_structured(layer, "weight", 1, n=2, dim=0).weight.tolist()
    [[3.0, 4.0], [0.0, 0.0]]
    """
    LnStructured.apply(module, name, amount, n, dim=dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune what a mask says; returns the module.

    >>> import tracegrad as tg
    >>> layer = custom_from_mask(tg.nn.Linear(2, 1), "bias", tg.tensor([0]))
    >>> layer.bias_mask.tolist()
    [0.0]
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one vector.

    TypeError if the parameters are not an iterable, or for a method that prunes channels.

    >>> import tracegrad as tg
    >>> layer = tg.nn.Linear(2, 1)
    >>> layer.weight.data, layer.bias.data = tg.tensor([[3.0, 1.0]]), tg.tensor([2.0])
    >>> global_unstructured([(layer, "weight"), (layer, "bias")], L1Unstructured, amount=2)
    >>> layer.weight.tolist(), layer.bias.tolist()
    ([[3.0, 0.0]], [0.0])
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if importance_scores is not None and not isinstance(importance_scores, Mapping):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {pruning_method.PRUNING_TYPE}"
        )
    method = pruning_method(**kwargs)
    method._tensor_name = "all"
    tensors = [(module, name, getattr(module, name)) for module, name in parameters]
    by_parameter = importance_scores or {}
    scores = [by_parameter.get((module, name), x).detach().numpy() for module, name, x in tensors]
    masks = [getattr(module, f"{name}_mask", ones_like(x)).numpy() for module, name, x in tensors]
    values, default = (tensor(np.concatenate([x.ravel() for x in parts])) for parts in (scores, masks))
    mask = PruningContainer(method).compute_mask(values, default).numpy()
    ends = np.cumsum([x.numel() for _, _, x in tensors])
    for (module, name, x), part in zip(tensors, np.split(mask, ends[:-1])):
        custom_from_mask(module, name, tensor(part.reshape(tuple(x.shape))))


def remove(module: Module, name: str) -> Module:
    """Make a masked parameter a parameter again; returns the module. ValueError if it is not pruned.

    >>> from tracegrad.nn import Linear
    >>> sorted(remove(random_unstructured(Linear(2, 1), "weight", 1), "weight").state_dict())
    ['bias', 'weight']
    """
    key, hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned.

    >>> from tracegrad.nn import Linear
    >>> layer = Linear(2, 1)
    >>> is_pruned(layer), is_pruned(identity(layer, "weight"))
    (False, True)
    """
    hooks = (m._hooks.before.values() for m in module.modules() if m._hooks is not None)
    return any(isinstance(hook, BasePruningMethod) for each in hooks for hook in each)


MODULE_DOCS.document(globals(), __all__)
