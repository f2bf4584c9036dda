"""Namespace of `torch.compiler`, and `compile`, which is `tg.trace` under PyTorch's signature."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from tracegrad.api import trace
from tracegrad.errors import located
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.settings import disable_jit
from tracegrad.torch.nn import Module

__all__ = ["compile", "disable", "is_compiling", "reset"]


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or module: `tg.trace` under PyTorch's signature.

    Parameters
    ----------
    model : callable or Module, optional
        Function or module. Without it, the result is a decorator.
    fullgraph : bool, default False
        Without effect: there are no graph breaks.
    dynamic : bool, optional
        Without effect: a new size compiles nothing if it is above 8.
    backend : str or callable, default "inductor"
        Without effect.
    mode : str, optional
        Without effect.
    options : dict, optional
        Without effect.
    disable : bool, default False
        Whether the result is `model` itself.

    Returns
    -------
    callable or Module
        Compiled function; of a module, a module with its attributes.

    Raises
    ------
    RuntimeError
        With both `mode` and `options`.

    Examples
    --------
    >>> import tracegrad as tg
    >>> @compile(fullgraph=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(tg.ones(2))
    tensor([2., 2.])
    """
    if mode is not None and options is not None:
        raise RuntimeError(located("Either mode or options can be specified, but both can't be specified at once."))
    if model is None:
        return lambda function: compile(function, disable=disable)
    if disable:
        return model
    return OptimizedModule(model) if isinstance(model, Module) else trace(model)


class OptimizedModule(Module):
    """Module whose calls are those of a compiled module. Its attributes are those of that module."""

    def __init__(self, module: Any):
        super().__init__()
        self._orig_mod, self.training = module, module.training
        object.__setattr__(self, "_compiled", trace(module))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled module."""
        return self._compiled(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._orig_mod,)

    def train(self, mode: bool = True) -> Any:
        """Set the training mode of the module."""
        self._orig_mod.train(mode)
        return super().train(mode)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, index: Any) -> Any:
        return self._orig_mod[index]


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Decorate a function that runs as plain Python, and is not compiled when it is called outside of traces.

    Parameters
    ----------
    fn : callable, optional
        Function; without it, the result is a decorator.
    recursive : bool, default True
        Without effect.
    reason : str, optional
        Without effect.

    Returns
    -------
    callable
        Function.

    Examples
    --------
    >>> disable(lambda x: x + 1)(1)
    2
    """
    if fn is None:
        return disable

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return fn(*args, **kwargs)
        with disable_jit():
            return fn(*args, **kwargs)

    return call


def is_compiling() -> bool:
    """Return whether a function is being traced.

    Returns
    -------
    bool
        Answer.

    Examples
    --------
    >>> is_compiling()
    False
    """
    return active_recorder() is not None


def reset() -> None:
    """Do nothing: compiled functions belong to their owners.

    Examples
    --------
    >>> reset()
    """
