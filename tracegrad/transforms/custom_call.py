"""Base of `custom_vjp` and `custom_jvp`: a function with a rule, its calls, and their saved values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import located
from tracegrad.ops import Carrier
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.ops.shape.linear import full
from tracegrad.torch.autograd.function import Function, inlined
from tracegrad.torch.autograd.function_ctx import ARRAYS, FunctionCtx
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.trace.builder.inlinable import DERIVED
from tracegrad.trace.sources.describe import Description, describe, signature_of
from tracegrad.trace.sources.sources import Attribute, Fixed, Source
from tracegrad.transforms.opaque import OpaqueFunction, as_result, bound
from tracegrad.utils.pickling import reference

if TYPE_CHECKING:
    from tracegrad.typing import Array, Number


class CustomRule:
    """Function whose derivative is a rule; the arguments `nondiff_argnums` are passed to the rule unchanged."""

    # Its derivatives are cached in its attributes (`api`).
    remembers = True
    _role = ""
    _function: type[Function]

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()):
        if not callable(fun):
            raise TypeError(located(f"{self._role} takes a function, got a {type(fun).__name__}"))
        functools.update_wrapper(self, fun)
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)
        self.label: Description = describe(fun, f"{self._role} of ")
        name = self.label.name.rpartition(".")[2].strip("<>")
        self._called: Any = type(name, (self._function,), {})

    def __get__(self, held: object, cls: Any = None) -> Any:
        return bound(self, held)

    def __call__(self, *args: Array | Number, **kwargs: object) -> Any:
        self._require_rule()
        self._guard_rules()
        call = RuleCall(self, _positional(self, args, kwargs))
        if not any(isinstance(x, Carrier) for x in call.leaves):
            return inlined(self.fun)(*call.args)
        outputs = self._called.apply(call, *call.leaves)
        return tree.unflatten(call.result, outputs)

    def _guard_rules(self) -> None:
        """Guard the rules that a trace has used, because users can set them anew."""
        world: Any = getattr(active_recorder(), "world", None)
        source: Source | None = None if world is None else world.natives.source_of(self)
        if source is None and DERIVED in vars(self) and world is not None and world.open:  # the traced function itself
            source = Fixed(self, self.label.name)
        for name, rule in self._rules().items() if source is not None else ():
            world.assume(Attribute(source, name), "is", rule)

    def defvmap(self, rule: Callable[..., object]) -> Callable[..., object]:
        """Set the rule for batches of the opaque function inside, as its `defvmap`; return the rule.

        Parameters
        ----------
        rule : callable
            Function `rule(axis_size, in_batched, *args)`.

        Returns
        -------
        callable
            The rule.

        Raises
        ------
        TypeError
            If the function inside is not opaque.
        """
        if not isinstance(self.fun, OpaqueFunction):
            raise TypeError(located(f"{self.label}: a rule for batches is one of a function that is opaque"))
        self.fun.defvmap(rule)
        return rule

    def _require_rule(self) -> None:
        raise NotImplementedError

    def _rules(self) -> dict[str, Any]:
        """Return the attributes that the user has set."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """Pickle by reference if another process can import it, else by its function and its rules."""
        return reference(self) or (type(self), (self.fun, self.nondiff_argnums), self._rules())

    def __setstate__(self, rules: dict[str, Any]) -> None:
        vars(self).update(rules)

    def parts(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the function that makes this object again, and its arguments."""
        return with_rules, (type(self), self.fun, self.nondiff_argnums, self._rules())

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __repr__(self) -> str:
        return f"<{self.label}>"


def with_rules(
    cls: Any,
    fun: Callable[..., object],
    nondiff_argnums: Sequence[int],
    rules: dict[str, tuple[Callable[..., object], ...] | Callable[..., object] | None],
) -> Any:
    """Make a function with these rules."""
    custom = cls(fun, nondiff_argnums)
    custom.__setstate__(rules)
    return custom


def _positional(
    custom: CustomRule, args: tuple[Array | Number, ...], kwargs: dict[str, object]
) -> tuple[Array | Number, ...]:
    """Bind all arguments by position, with the defaults of missing ones."""
    signature = signature_of(custom.fun)
    if signature is None:
        if kwargs:
            raise TypeError(located(f"{custom.label} has no signature that says where {sorted(kwargs)} are"))
        return args
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            located(
                f"{custom.label}: the arguments {sorted(bound.kwargs)} can be given by keyword only; a rule needs "
                "them by position"
            )
        )
    return bound.args


class RuleCall:
    """One call: its arguments, the leaves of the differentiated ones, and the structure of its result."""

    def __init__(self, custom: CustomRule, args: tuple[Any, ...]):
        self.custom, self.args = custom, args
        count = len(args)
        for i in custom.nondiff_argnums:
            if not -count <= i < count:
                raise ValueError(
                    located(f"{custom.label}: nondiff_argnums names argument {i}, but there are {count} arguments")
                )
        fixed = sorted({i % count for i in custom.nondiff_argnums})
        self.fixed = [args[i] for i in fixed]
        self.positions = [i for i in range(count) if i not in fixed]
        self.leaves, self.structure = tree.flatten(tuple([args[i] for i in self.positions]))
        self.result: Any = None

    def __repr__(self) -> str:
        return repr(self.custom)

    def _key(self) -> Any:
        return self.custom, self.structure, tuple(map(id, self.fixed))

    # Calls are equal if only the values of their leaves differ.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleCall) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def arguments(self, leaves: Sequence[Any]) -> list[Array | Number]:
        """Return all arguments, with these leaves."""
        args = list(self.args)
        for i, x in zip(self.positions, self.primals(leaves)):
            args[i] = x
        return args

    def primals(self, leaves: Sequence[Any]) -> tuple[Array | Number, ...]:
        """Return the differentiated arguments, with these leaves."""
        results: tuple[Any, ...] = tree.unflatten(self.structure, leaves)
        return results

    def names(self) -> list[str]:
        """Return the names of the leaves for error messages."""
        roots = [self.custom.label.argument(i) for i in self.positions]
        return [root + path for root, x in zip(roots, self.primals(self.leaves)) for path in tree.paths(x)]

    def outputs(self, result: object, operands: tuple[Array | Number, ...], has_node: bool) -> tuple[Array, ...]:
        """Flatten the result, and store its structure.

        The rule holds for constants too, because the function may have computed them from numbers.
        """
        leaves, self.result = tree.flatten(result)
        owner = next((x for x in operands if isinstance(x, Carrier)), None)
        return tuple([_carried(x, owner, has_node) for x in leaves])

    def require_result(self, result: object, rule: str) -> list[Array]:
        """Flatten a rule's result; raise TypeError unless it has the structure of the function's result."""
        leaves, structure = tree.flatten(result)
        if not tree.alike(structure, self.result):
            raise TypeError(
                located(
                    f"{self.custom.label}: {rule} must have the structure of the output of the function, "
                    f"{self.result}, got {structure}"
                )
            )
        return leaves


def save_values(ctx: Any, values: Sequence[Any]) -> None:
    """Save values, arrays and others, for the backward pass."""
    ctx.others = [None if isinstance(x, ARRAYS) else (x,) for x in values]
    ctx.save_for_backward(*[x for x in values if isinstance(x, ARRAYS)])


def saved_values(ctx: FunctionCtx) -> list[Any]:
    """Return the values that `save_values` saved."""
    supply = iter(ctx.saved_tensors)
    return [next(supply) if x is None else x[0] for x in ctx.others]


def _carried(x: Array, owner: Array | Number | None, has_node: bool) -> Any:
    """Lift a floating constant to the kind of the arguments if a derivative is active; return other values
    unchanged."""
    if isinstance(x, Carrier) or not isinstance(x, (*ARRAYS, float, complex)) or np.asarray(x).dtype.kind not in "fc":
        return x
    if isinstance(owner, Recorded):
        return as_result(owner, x) if has_node else x
    builder: Any = getattr(owner, "builder", None)
    if builder is None or isinstance(x, np.ndarray | np.generic) or not builder.derives():
        return x  # arrays are lifted where the call is recorded
    result: Any = full(shape=(), value=x, dtype=np.asarray(x).dtype.name)
    return result.builder.python_number(result.node)
