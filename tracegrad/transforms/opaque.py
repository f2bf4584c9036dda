"""Opaque functions: functions that no trace can enter, for example functions in C, as nodes of graphs.

A call is one of a `Function` (`tracegrad.torch.autograd.function_opaque`) without a derivative. Differentiating it is
an error unless a rule around the function (`custom_vjp`, `custom_jvp`) gives the derivative.
"""

from __future__ import annotations

import contextlib
import functools
import random
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import LostDerivativeError, ShapeError, located
from tracegrad.numpy_api import ArrayMethods
from tracegrad.ops import Carrier
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.settings import opaque as opaque_package
from tracegrad.torch.autograd.function import Function
from tracegrad.torch.autograd.function_opaque import is_traced, key_of
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.trace.proxies.builtin_proxies import unshadowed
from tracegrad.trace.proxies.namespace_proxies import contents
from tracegrad.trace.proxies.opaque_state import ObjectState, UnreadableState
from tracegrad.trace.random.rejected_reads import draws
from tracegrad.trace.sources.describe import describe
from tracegrad.utils.pickling import reference

if TYPE_CHECKING:
    from tracegrad.torch.autograd.function_ctx import FunctionCtx
    from tracegrad.trace.world.world import World
    from tracegrad.typing import Array, NDArray, Number


_MAX_CACHED_KINDS = 256  # number of argument kinds for which a function caches the kind of its result


class _OpaqueFunctionCall(Function):
    """Call of an opaque function, which is the first argument, on its leaves."""

    opaque = True

    @staticmethod
    def forward(ctx: FunctionCtx, call: _CallStructure, *leaves: Array) -> tuple[Array, ...]:
        owner = next((x for x in leaves if isinstance(x, Recorded)), None)
        if owner is None:
            return call.computed(leaves)
        result = call.computed([_value(x) if isinstance(x, Recorded) else x for x in leaves])
        return tuple([as_result(owner, x) for x in result])

    _pure = True

    @classmethod
    def _batch_rule(cls, *args: Any) -> Callable[..., object] | None:
        call: _CallStructure = args[0]
        return call.each if call.custom.batch is not None else None

    @classmethod
    def _remember(cls, args: Any, kinds: object, result: tuple[Array, ...]) -> None:
        call: _CallStructure = args[0]
        kinds_of = call.custom.results
        if len(kinds_of) >= _MAX_CACHED_KINDS and kinds not in kinds_of:
            del kinds_of[next(iter(kinds_of))]
        kinds_of[kinds] = call.result, tuple(map(_like, result))

    @classmethod
    def _foreseen(cls, args: Any, kinds: object) -> Any:
        call: _CallStructure = args[0]
        call.result, result = call.custom.results.get(kinds, (None, None))
        return result

    @classmethod
    def pulled(cls, context: Any, cotangents: Sequence[Any]) -> Any:
        raise _lost(cls)

    @classmethod
    def pushed(cls, context: Any, tangents: Sequence[Any]) -> Any:
        raise _lost(cls)


def _like(x: Array) -> Array:
    """Make an array of the shape and dtype of `x` that takes no memory; return other objects unchanged."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, np.ndarray) else x


def _value(x: Any) -> Any:
    """Return the array or number of a Tensor, or of an array on the tape."""
    return x.array.item() if getattr(x, "weak", False) else x.array.copy()


def as_result(owner: Any, x: Array) -> Any:
    """Convert a result to the class of `owner`: a Tensor, or an array on the tape."""
    if not isinstance(x, np.ndarray | np.generic | int | float | complex):
        return x
    number = isinstance(owner, ArrayMethods) and not isinstance(x, np.ndarray | np.generic)
    result = owner._like(np.asarray(x))
    return owner._weakened(result) if number else result


def _lost(cls: Any) -> LostDerivativeError:
    name = cls.__name__
    return LostDerivativeError(
        located(
            f"{name} is opaque, so its derivative is not known: give it a rule, rule = tg.custom_vjp({name}) and "
            "rule.defvjp(fwd, bwd), or cut it off with tg.stop_gradient"
        )
    )


class _CallStructure:
    """Facts that hold in every call of the program: the function, and the structure of its arguments."""

    def __init__(self, custom: OpaqueFunction, structure: Any):
        self.custom, self.structure = custom, structure
        self.result: Any = None
        # Results of equal calls in the same trace, while this call is traced.
        self.cached: dict[Any, Any] | None = None

    def _key(self) -> Any:
        return self.custom, self.structure

    # Two calls on the same values have equal results, so they are one node.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CallStructure) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return repr(self.custom)

    def computed(self, leaves: Sequence[Any]) -> tuple[NDArray, ...]:
        """Compute the leaves of the result."""
        args, kwargs = tree.unflatten(self.structure, leaves[: self.structure.num_leaves])
        key = (self._key(), *map(key_of, leaves)) if self.cached is not None else None
        flat_result = self.cached.get(key) if self.cached is not None else None
        if flat_result is None:
            fn = self.custom.fun if self.cached is None else self.custom.watched
            flat_result = tree.flatten(fn(*args, **kwargs))
            if self.cached is not None:
                self.cached[key] = flat_result
        result, structure = flat_result
        if self.result is None:
            self.result = structure
        elif not tree.alike(structure, self.result):
            raise ShapeError(f"{self.custom.name} is opaque to traces and returned {structure}, not {self.result}")
        return tuple(result)

    def each(self, size: int, batched: Sequence[bool], leaves: list[Array | Number]) -> tuple[NDArray, ...]:
        """Compute the leaves of the results of a batch by the rule for batches."""
        assert self.custom.batch is not None
        count = self.structure.num_leaves
        args, kwargs = tree.unflatten(self.structure, leaves[:count])
        in_batched, named = tree.unflatten(self.structure, batched[:count])
        operands = (*args, *kwargs.values())
        result, structure = tree.flatten(self.custom.batch(size, (*in_batched, *named.values()), *operands))
        if not tree.alike(structure, self.result):
            raise ShapeError(f"it returned {structure}, not {self.result}")
        return tuple(result)


# Results of the calls in a trace, by its builder.
_TRACE_RESULTS: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _results_of_trace(builder: Any) -> dict[Any, Any]:
    while builder.around is not None:
        builder = builder.around
    return _TRACE_RESULTS.setdefault(builder, {})


def bound(rule: Any, held: Any) -> Any:
    """Bind a function with a rule that is a class attribute: a method if the function inside would be one."""
    return types.MethodType(rule, held) if held is not None and hasattr(type(rule.fun), "__get__") else rule


def _real(world: World, x: Array) -> Any:
    """Return an argument as untraced code receives it: the real object, if nothing outside has changed yet."""
    real = unshadowed(x)
    if real is not x and world.open and world.writes.written_locations():
        text = "an opaque function is given an object from outside after something outside was changed"
        raise world.builder.abort(f"{text}; call it before, or give it what is needed of the object")
    return real


def _generators(fun: Callable[..., object], args: tuple[Array, ...], kwargs: object) -> list[ObjectState]:
    """Return the states of the random generators that a function may use, as far as its code names them."""
    holder, code = getattr(fun, "__self__", None), getattr(fun, "__code__", None)
    results = [holder, *tree.leaves((args, kwargs)), *(vars(holder).values() if hasattr(holder, "__dict__") else ())]
    if code is not None:
        results += [contents(cell) for cell in fun.__closure__ or ()]
        results += [fun.__globals__.get(name) for name in code.co_names]
        results += [np.random.seed.__self__, random.seed.__self__] if "random" in code.co_names else []  # type: ignore[attr-defined]
    distinct = {id(x): x for x in results if draws(x)}
    states = []
    for x in distinct.values():
        with contextlib.suppress(UnreadableState):
            states.append(ObjectState(x))
    return states


def _name_of(fun: Callable[..., object]) -> str:
    """Return the name of a function; a ctypes function stores its name elsewhere."""
    has_plain_name = isinstance(getattr(fun, "__name__", None), str) and not hasattr(fun, "__qualname__")
    return str(fun.__name__) if has_plain_name else describe(fun).name


class OpaqueFunction:
    """Function that runs untraced, on ndarrays with values, at each call of a traced function."""

    remembers = True

    def __init__(self, fun: Callable[..., Any]):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.batch: Callable[..., Any] | None = None
        # For each kind of traced arguments, the structure of the result, and arrays like its leaves.
        self.results: dict[Any, Any] = {}
        self.name = _name_of(fun)
        self.draws = False  # whether it has drawn random numbers from a generator that other code uses
        self._called: Any = type(self.name.rpartition(".")[2].strip("<>"), (_OpaqueFunctionCall,), {})

    def watched(self, *args: Array, **kwargs: object) -> Any:
        """Call the function during tracing; restore the states of the random generators that it has used."""
        held = _generators(self.fun, args, kwargs)
        result = self.fun(*args, **kwargs)
        moved = [state for state in held if not state.is_unchanged]
        for state in moved:
            state.restore()
        self.draws = self.draws or bool(moved)
        return result

    def defvmap(self, rule: Callable[..., object]) -> Callable[..., object]:
        """Set the rule for batches, which replaces a call for each example; return the rule.

        Parameters
        ----------
        rule : callable
            Function `rule(axis_size, in_batched, *args)`. `args` are the arguments, keyword arguments last.
            `in_batched` says for each of them, in its structure, whether its first axis is the batch of that size. The
            result has a batch axis.

        Returns
        -------
        callable
            The rule.
        """
        self.batch = rule
        return rule

    def __get__(self, held: object, cls: Any = None) -> Any:
        return bound(self, held)

    def __call__(self, *args: Array, **kwargs: object) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        call = _CallStructure(self, structure)
        builder: Any = active_recorder()
        world = getattr(builder, "world", None)
        if world is not None:
            leaves = [_real(world, x) for x in leaves]
        if world is None:
            if not any(isinstance(x, Carrier) for x in leaves):
                return self.fun(*args, **kwargs)
            outputs = self._called.apply(call, *leaves)
        else:
            if not any(map(is_traced, leaves)):
                leaves.append(builder.lift(np.float64(0.0)))  # an operand, so that it runs at each call
            try:
                call.cached = _results_of_trace(builder)
                outputs = self._called.apply(call, *leaves)
            finally:
                call.cached = None
            if self.draws and world.open:
                problem = f"{self.name} is opaque and draws random numbers, in an order that a program does not have"
                raise world.builder.abort(f"{problem}; draw outside of it and pass what was drawn")
        return tree.unflatten(call.result, outputs)

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """Pickle by reference if another process can import it, else by its function and its rule."""
        return reference(self) or (type(self), (self.fun,), {"batch": self.batch})

    def __deepcopy__(self, memo: object) -> OpaqueFunction:
        return self

    def __repr__(self) -> str:
        return f"<opaque {self.name}>"


def opaque(x: Any) -> Any:
    """Make a function opaque, so that no trace enters its code, or exclude a whole package from tracing.

    Parameters
    ----------
    x : callable or str
        Function, or the name of a package.

    Returns
    -------
    OpaqueFunction or None
        Function with the same results; None for a package.

    Raises
    ------
    TypeError
        If `x` is neither a function nor a name.

    Notes
    -----
    In traced code the function is called with NumPy arrays and numbers at each call, once for equal arguments. It may
    be in C, read files, or ask another process. It must depend on its arguments alone, and not update them. Arguments
    and results are pytrees of arrays; the shapes of the arguments must determine the structure, shapes and dtypes of
    the results.

    A derivative raises `LostDerivativeError` unless `custom_vjp` or `custom_jvp` gives the function a rule. The rule
    may call the function, so derivatives of any order exist. `vmap` calls the function for each example, or once by the
    rule that `defvmap` sets.

    Functions and objects of an excluded package run as plain Python. In traced code, passing a value through which a
    derivative flows to its functions raises `LostDerivativeError`. Name the package before anything is traced that uses
    it; `settings.opaque_packages` lists all.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> @tg.custom_vjp
    ... @opaque
    ... def root(x):
    ...     return x**0.5  # imagine C
    >>> root.defvjp(lambda x: (root(x), root(x)), lambda y, ct: (0.5 * ct / y,))
    >>> print(tg.grad(root)(4.0), tg.grad(tg.grad(root))(4.0))
    0.25 -0.03125
    >>> opaque("package.of.mine")
    >>> tg.settings.reload()
    """
    if isinstance(x, str):
        return opaque_package(x)
    if not callable(x):
        raise TypeError(located(f"opaque takes a function or the name of a package, got a {type(x).__name__}"))
    return OpaqueFunction(x)
