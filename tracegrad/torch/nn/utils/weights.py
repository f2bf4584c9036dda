"""Weights as functions of other parameters, which a hook computes before each call of a module.

T. Salimans and D. P. Kingma, "Weight normalization", NeurIPS 2016; T. Miyato, T. Kataoka, M. Koyama, Y. Yoshida,
"Spectral normalization for generative adversarial networks", ICLR 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn import functional as F
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape.tensors.random import randn

if TYPE_CHECKING:
    from tracegrad.torch.nn.module import Module
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


def norms(v: Tensor, dim: int | None) -> Tensor:
    """Return the norms over all dimensions except `dim`, as WeightNorm does; one norm for None."""
    if dim is None:
        return v.norm()
    others = [k for k in range(len(v.shape)) if k != dim % len(v.shape)]
    return v.square().sum(others, keepdim=True).sqrt() if others else v.abs()


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Return the weight as a matrix, with dimension `dim` first."""
    return weight.movedim(dim, 0).reshape(weight.shape[dim], -1)


def unit_vector(count: int, like: Tensor, eps: float) -> Any:
    """Return a random vector of length 1, with the dtype of a weight."""
    return F.normalize(randn(count, dtype=like.dtype), dim=0, eps=eps)


def iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float) -> None:
    """Improve the singular vectors `u` and `v` of the greatest singular value in place, `v` first."""
    with no_grad():
        for _ in range(count):
            v.copy_(F.normalize(FUNCTIONS["mv"](matrix.mT, u), dim=0, eps=eps))
            u.copy_(F.normalize(FUNCTIONS["mv"](matrix, v), dim=0, eps=eps))


def divided_by_norm(weight: Tensor, matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Return the weight divided by the singular value of the singular vectors `u` and `v` of its matrix."""
    result: Tensor = weight / FUNCTIONS["dot"](u, FUNCTIONS["mv"](matrix, v))
    return result


def spectral_dim(module: Module, name: str, n_power_iterations: int, dim: int | None) -> int:
    """Return the dimension of a module's outputs in a weight; ValueError without power iterations."""
    if n_power_iterations <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
    if dim is None:
        return 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return dim % len(getattr(module, name).shape)


class _WeightHook:
    """Hook that computes the attribute `name` of a module before each call."""

    what: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]  # of the names of the parameters and buffers that it needs
    name: str

    def compute(self, module: Module, training: bool) -> Tensor:
        """Return the weight."""
        raise NotImplementedError

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self.name, self.compute(module, module.training))


class WeightNorm(_WeightHook):
    """Weight of the norms `name_g` and directions `name_v`."""

    what, endings = "weight", ("_g", "_v")

    def __init__(self, name: str, dim: int | None):
        self.name, self.dim = name, dim

    def compute(self, module: Module, training: bool) -> Tensor:
        v = getattr(module, f"{self.name}_v")
        result: Tensor = v * (getattr(module, f"{self.name}_g") / norms(v, self.dim))
        return result


class SpectralNorm(_WeightHook):
    """Weight divided by its largest singular value, which power iterations estimate."""

    what, endings = "spectral", ("_orig", "_u", "_v")

    def __init__(self, name: str, n_power_iterations: int, eps: float, dim: int):
        self.name, self.n_power_iterations, self.eps, self.dim = name, n_power_iterations, eps, dim

    def compute(self, module: Module, training: bool) -> Tensor:
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = as_matrix(weight, self.dim)
        if training:
            iterate(matrix, u, v, self.n_power_iterations, self.eps)
            u, v = u.clone(), v.clone()
        return divided_by_norm(weight, matrix, u, v)


def _hooks_of(module: Module) -> dict[tuple[type, str], tuple[Any, Any]]:
    """Return the hooks of a module and their handles, by kind and name."""
    return module.__dict__.setdefault("_weight_hooks", {})  # type: ignore[no-any-return]


def _install(module: Module, hook: _WeightHook) -> None:
    _hooks_of(module)[type(hook), hook.name] = hook, module.register_forward_pre_hook(hook)


def _remove(module: Module, kind: type[_WeightHook], name: str) -> Module:
    """Remove a hook, and make the weight that it computes in evaluation a parameter; ValueError if there is none."""
    hook, handle = _hooks_of(module).pop((kind, name), (None, None))
    if hook is None or handle is None:
        raise ValueError(f"{kind.what}_norm of '{name}' not found in {module}")
    handle.remove()
    weight = hook.compute(module, training=False).detach()
    for ending in ("", *kind.endings):
        delattr(module, f"{name}{ending}")
    module.register_parameter(name, Parameter(weight))
    return module


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a parameter of a module by its norms `name_g` and its directions `name_v`; returns the module.

    >>> from tracegrad.nn import Linear
    >>> sorted(name for name, _ in weight_norm(Linear(2, 3)).named_parameters())
    ['bias', 'weight_g', 'weight_v']
    """
    hook, weight = WeightNorm(name, dim), getattr(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(norms(weight.detach(), dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach().clone()))
    if any(other == name for _, other in _hooks_of(module)):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    setattr(module, name, hook.compute(module, module.training))
    _install(module, hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo `weight_norm`: the present weight becomes a parameter; returns the module.

    ValueError if there is no such weight.

    >>> from tracegrad.nn import Linear
    >>> [name for name, _ in remove_weight_norm(weight_norm(Linear(2, 3))).named_parameters()]
    ['bias', 'weight']
    """
    return _remove(module, WeightNorm, name)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a parameter of a module by its largest singular value before each call; returns the module.

    The parameter becomes `name_orig`, with buffers `name_u` and `name_v` of the singular vectors. ValueError unless
    there is at least one power iteration.

    >>> from tracegrad.nn import Linear
    >>> sorted(name for name, _ in spectral_norm(Linear(2, 3)).named_buffers())
    ['weight_u', 'weight_v']
    """
    dim = spectral_dim(module, name, n_power_iterations, dim)
    hook, weight = SpectralNorm(name, n_power_iterations, eps, dim), getattr(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    height, width = as_matrix(weight.detach(), dim).shape
    for ending, count in (("u", height), ("v", width)):
        module.register_buffer(f"{name}_{ending}", unit_vector(count, weight, eps))
    module.__dict__[name] = weight.detach()
    _install(module, hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Undo `spectral_norm`: the present weight becomes a parameter; returns the module.

    ValueError if there is no such weight.

    >>> from tracegrad.nn import Linear
    >>> [name for name, _ in remove_spectral_norm(spectral_norm(Linear(2, 3))).named_parameters()]
    ['bias', 'weight']
    """
    return _remove(module, SpectralNorm, name)


MODULE_DOCS.document(globals(), __all__)
