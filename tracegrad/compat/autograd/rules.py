"""Primitives: functions that run untraced on arrays, with user-defined derivative rules.

A call with traced arguments is a call of a `Function`, whose forward pass runs the user's code on values at each call
of the compiled program. The rule runs the same way, and may be any code, as in autograd. If the result of a rule is
differentiated, the rule is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from tracegrad import api, tree
from tracegrad.avals import aval_of, short_name
from tracegrad.compat.autograd.spaces import vspace
from tracegrad.compat.autograd.transforms import conjugate
from tracegrad.compat.autograd.wrap_util import get_name, wraps
from tracegrad.errors import located
from tracegrad.ops import Carrier
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.core.recorders import aside
from tracegrad.torch.autograd.function import Function, inlined
from tracegrad.torch.autograd.function_ctx import ARRAYS
from tracegrad.torch.autograd.function_opaque import is_traced
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.transforms.custom_call import save_values, saved_values

__all__ = [
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "notrace_primitive",
    "primitive",
    "primitive_jvps",
    "primitive_vjps",
    "register_notrace",
]


class _Rules:
    """Function of a primitive, and its rules for cotangents and tangents."""

    def __init__(self, fun: Any):
        self.fun = fun
        self.pulls: Callable[..., Any] | None = None
        self.pushes: Callable[..., Any] | None = None

    def missing(self, kind: str, argnums: Sequence[int]) -> NotImplementedError:
        return NotImplementedError(located(f"{kind} of {get_name(self.fun)} wrt argnums {tuple(argnums)} not defined"))


def primitive(f_raw: Callable[..., Any]) -> Callable[..., Any]:
    """Function that runs untraced, on arrays; `defvjp` and `defjvp` set its derivative.

    >>> @primitive
    ... def logsumexp(x):
    ...     return np.log(np.sum(np.exp(x)))
    >>> defvjp(logsumexp, lambda ans, x: lambda g: g * np.exp(x - ans))
    >>> print(api.grad(logsumexp)(np.zeros(2)))
    [0.5 0.5]
    """
    rules = _Rules(f_raw)

    def f_wrapped(*args: object, **kwargs: object) -> object:
        leaves, structure = tree.flatten((args, kwargs))
        if not any(isinstance(x, Carrier) for x in leaves):
            return inlined(f_raw)(*args, **kwargs)
        call = _PrimitiveCall(rules, structure)
        outputs = _Primitive.apply(call, *leaves)
        return tree.unflatten(call.result, outputs)

    named = wraps(f_raw)(f_wrapped)
    named.fun, named._rules = f_raw, rules
    return named  # type: ignore[no-any-return]


def notrace_primitive(f_raw: Callable[..., object]) -> Callable[..., Any]:
    """Declare a function whose result has no derivative.

    >>> floor = notrace_primitive(np.floor)
    >>> print(api.grad(lambda x: x * floor(x))(2.5))
    2.0
    """

    def f_wrapped(*args: object, **kwargs: object) -> object:
        return inlined(f_raw)(*[api.stop_gradient(x) if isinstance(x, Carrier) else x for x in args], **kwargs)

    return wraps(f_raw)(f_wrapped)  # type: ignore[no-any-return]


def register_notrace(trace_type: object, primitive_fun: object) -> None:
    """Declare that the result of a primitive has no derivative."""
    rules = _rules_of(primitive_fun)
    if rules is not None:
        defvjp_argnums(primitive_fun, lambda argnums, ans, args, kwargs: lambda g: [_zeros(args[i]) for i in argnums])


def _rules_of(fun: Any) -> _Rules | None:
    """Return the rules of a primitive; None for other functions, which are traced and differentiated."""
    rules: _Rules | None = getattr(fun, "_rules", None)
    return rules


def _zeros(x: Any) -> object:
    return vspace(x).zeros()


# -- setting rules -----------------------------------------------------------------------------------------------------
def defvjp_argnums(fun: object, vjpmaker: Callable[..., object]) -> None:
    """Set `vjpmaker(argnums, ans, args, kwargs)`: the function from a cotangent to the arguments' cotangents.

    The rule has no effect for a function that is no primitive, such as the functions of NumPy and SciPy.

    >>> @primitive
    ... def product(x, y):
    ...     return x * y
    >>> defvjp_argnums(product, lambda argnums, ans, args, kwargs: lambda g: [g * args[1 - i] for i in argnums])
    >>> print(*api.grad(product, (0, 1))(2.0, 3.0))
    3.0 2.0
    """
    if rules := _rules_of(fun):
        rules.pulls = vjpmaker


def defvjp_argnum(fun: Any, vjpmaker: Callable[..., object]) -> None:
    """Set `vjpmaker(argnum, ans, args, kwargs)`: the function from a cotangent to one argument's cotangent."""

    def per_argnum(
        argnums: Sequence[int], ans: object, args: object, kwargs: object
    ) -> Callable[[object], list[object]]:
        vjps = [inlined(vjpmaker)(argnum, ans, args, kwargs) for argnum in argnums]
        return lambda g: [vjp(g) for vjp in vjps]

    defvjp_argnums(fun, per_argnum)


def defvjp(fun: Any, *vjpmakers: Callable[..., Any] | None, argnums: Iterable[int] | None = None) -> None:
    """Set, for each argument, `vjpmaker(ans, *args, **kwargs)`: the function from a cotangent to the argument's.

    None is zero; `argnums` says which arguments the makers are for. See `primitive`.
    """
    makers = dict(zip(count() if argnums is None else argnums, vjpmakers))

    def one(argnum: int, ans: Any, args: Any, kwargs: Any) -> Callable[[Any], Any]:
        if argnum not in makers:
            raise _Rules(fun).missing("VJP", [argnum])
        maker = makers[argnum]
        if maker is None:
            return lambda g: _zeros(args[argnum])
        result: Callable[[Any], Any] = inlined(maker)(ans, *args, **kwargs)
        return result

    defvjp_argnum(fun, one)


def defjvp_argnums(fun: object, jvpmaker: Callable[..., object]) -> None:
    """Set `jvpmaker(argnums, gs, ans, args, kwargs)`: the output's tangent for tangents `gs` of these arguments.

    The rule has no effect for a function that is no primitive, such as the functions of NumPy and SciPy.
    """
    if rules := _rules_of(fun):
        rules.pushes = jvpmaker


def defjvp_argnum(fun: object, jvpmaker: Callable[..., object]) -> None:
    """Set `jvpmaker(argnum, g, ans, args, kwargs)`: the output's tangent for the tangent `g` of one argument."""

    def per_argnum(argnums: Sequence[int], gs: Sequence[object], ans: object, args: object, kwargs: object) -> object:
        space, total = vspace(ans), None
        for argnum, g in zip(argnums, gs):
            total = space.add(total, inlined(jvpmaker)(argnum, g, ans, args, kwargs))
        return total

    defjvp_argnums(fun, per_argnum)


def defjvp(fun: Any, *jvpfuns: Any, argnums: Iterable[int] | None = None) -> None:
    """Set, for each argument, `jvpfun(g, ans, *args, **kwargs)`: the output's tangent for the argument's.

    None is zero, and "same" the function itself, which is linear in the argument.

    >>> @primitive
    ... def logsumexp(x):
    ...     return np.log(np.sum(np.exp(x)))
    >>> defjvp(logsumexp, lambda g, ans, x: np.sum(g * np.exp(x - ans)))
    >>> print(*api.jvp(logsumexp, (np.zeros(2),), (np.array([1.0, 0.0]),)))
    0.6931471805599453 0.5
    """
    functions = dict(zip(count() if argnums is None else argnums, jvpfuns))

    def one(argnum: int, g: Any, ans: Any, args: Any, kwargs: Any) -> Any:
        if argnum not in functions:
            raise _Rules(fun).missing("JVP", [argnum])
        function = functions[argnum]
        if function is None:
            return _zeros(ans)
        if isinstance(function, str):
            return _linear_tangent(fun, argnum, g, args, kwargs)
        return inlined(function)(g, ans, *args, **kwargs)

    defjvp_argnum(fun, one)


def def_linear(fun: object) -> None:
    """Declare that a primitive is linear in each of its arguments: its tangents are its own values.

    >>> @primitive
    ... def twice(x):
    ...     return 2.0 * x
    >>> def_linear(twice)
    >>> print(*api.jvp(twice, (3.0,), (10.0,)))
    6.0 20.0
    """
    defjvp_argnum(fun, lambda argnum, g, ans, args, kwargs: _linear_tangent(fun, argnum, g, args, kwargs))


def _linear_tangent(fun: Any, argnum: int, g: Any, args: Any, kwargs: Any) -> Any:
    """Compute the tangent of a function that is linear in one argument, for its tangent `g`."""
    return fun(*args[:argnum], g, *args[argnum + 1 :], **kwargs)


class _RulesOf:
    """The rules of one kind, by the primitives that have them."""

    def __init__(self, kind: str):
        self._kind = kind

    def __contains__(self, fun: object) -> bool:
        return getattr(_rules_of(fun), self._kind, None) is not None

    def __getitem__(self, fun: Any) -> Any:
        if fun not in self:
            raise KeyError(fun)
        return getattr(_rules_of(fun), self._kind)

    def __setitem__(self, fun: Any, rule: object) -> None:
        if rules := _rules_of(fun):
            setattr(rules, self._kind, rule)

    def pop(self, fun: object, *default: object) -> Any:
        """Remove the rule of a primitive, and return it."""
        if fun not in self and default:
            return default[0]
        rule, self[fun] = self[fun], None
        return rule


primitive_vjps, primitive_jvps = _RulesOf("pulls"), _RulesOf("pushes")


# -- calls -------------------------------------------------------------------------------------------------------------
class _UntracedPrimitive(Function):
    """Primitive, which runs untraced, on arrays."""

    opaque = True

    @staticmethod
    def forward(ctx: object, run: Any, *leaves: Any) -> tuple[Any, ...]:
        return tuple(run(*[_plain(x) for x in leaves]))


def _plain(x: Any) -> Any:
    """Convert an array for autograd's users: no Tensor, and a number if it has no axes."""
    if isinstance(x, Recorded):
        x = x.array
    return x[()] if isinstance(x, np.ndarray) and not x.ndim else x


class _PrimitiveCall:
    """A call of a primitive: its rules, and the structures of its arguments and of its result."""

    def __init__(self, rules: _Rules, structure: Any):
        self.rules, self.structure = rules, structure
        self.result: Any = None

    # Two calls are equal if they differ only in their leaves.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PrimitiveCall) and (self.rules, self.structure) == (other.rules, other.structure)

    def __hash__(self) -> int:
        return hash((self.rules, self.structure))

    def __repr__(self) -> str:
        return get_name(self.rules.fun)

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = tree.unflatten(self.structure, leaves)
        result, self.result = tree.flatten(self.rules.fun(*args, **kwargs))
        return list(result)

    def argnums(self, leaves: Sequence[Any]) -> list[int]:
        """Return, for each leaf, the number of its argument; -1 for keyword arguments."""
        args, _ = tree.unflatten(self.structure, leaves)
        numbers = [i for i, x in enumerate(args) for _ in tree.leaves(x)]
        return numbers + [-1] * (len(leaves) - len(numbers))

    def chosen(self, needs: Sequence[bool], leaves: Sequence[object], kind: str) -> list[int]:
        """Return the numbers of the arguments that are needed."""
        results = sorted({i for i, need in zip(self.argnums(leaves), needs) if need})
        if -1 in results:
            raise NotImplementedError(
                located(f"{kind} of {self!r} with respect to an argument by keyword; give it by position")
            )
        return results


class _Primitive(Function):
    """A call of a primitive whose arguments are traced."""

    @staticmethod
    def forward(ctx: Any, call: _PrimitiveCall, *leaves: Any) -> tuple[Any, ...]:
        outputs = _UntracedPrimitive.apply(call, *leaves)
        ctx.call, ctx.number = call, len(leaves)
        save_values(ctx, [*leaves, *outputs])
        return outputs  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        call, saved = ctx.call, saved_values(ctx)
        leaves = saved[: ctx.number]
        argnums = call.chosen(ctx.needs_input_grad[1:], leaves, "VJP")
        pulled = iter(_Derived.apply(_Pull(call, argnums, ctx.number), *saved, *cts))
        cotangents = [
            next(pulled) if i in argnums and _is_inexact(x) else None for i, x in zip(call.argnums(leaves), leaves)
        ]
        return None, *cotangents

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        call, saved = ctx.call, saved_values(ctx)
        leaves = saved[: ctx.number]
        argnums = call.chosen([t is not None for t in tangents[1:]], leaves, "JVP")
        moved = [
            t if t is not None else np.zeros(np.shape(x)) if _is_inexact(x) else x for t, x in zip(tangents[1:], leaves)
        ]
        return tuple(_Derived.apply(_Push(call, argnums, ctx.number), *saved, *moved))


def _is_inexact(x: object) -> bool:
    return isinstance(x, (*ARRAYS, float, complex)) and _dtype(x).kind in "fc"


def _dtype(x: object) -> np.dtype[Any]:
    return aval_of(x).dtype if isinstance(x, ARRAYS) else np.dtype(type(x))


class _RuleFunction:
    """Result of a rule for a cotangent or tangents, as a function of the leaves of arguments and results."""

    def __init__(self, call: _PrimitiveCall, argnums: Sequence[int], number: int):
        self.call, self.argnums, self.number = call, tuple(argnums), number
        self.result = call.result

    def _key(self) -> Any:
        return type(self), self.call, self.argnums, self.number, self.result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RuleFunction) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_').lower()} of {self.call!r}"

    def __call__(self, *leaves: Any) -> list[Any]:
        raise NotImplementedError

    def like(self, leaves: Sequence[object]) -> list[Any]:
        """Return the leaves whose shapes and dtypes the results have."""
        raise NotImplementedError

    def split_leaves(self, leaves: Sequence[Any]) -> tuple[Any, Any, Any, Sequence[Any]]:
        """Return the arguments, keyword arguments, the result, and the remaining leaves."""
        end = self.number + self.result.num_leaves
        args, kwargs = tree.unflatten(self.call.structure, leaves[: self.number])
        return args, kwargs, tree.unflatten(self.result, leaves[self.number : end]), leaves[end:]


class _Pull(_RuleFunction):
    """Cotangents of arguments."""

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs, ans, cts = self.split_leaves(leaves)
        rule = self.call.rules.pulls
        if rule is None:
            raise self.call.rules.missing("VJP", self.argnums)
        g = conjugate(tree.unflatten(self.result, cts))
        pulled = list(inlined(rule)(self.argnums, ans, args, kwargs)(g))
        return [y for i, ct in zip(self.argnums, pulled) for y in self._cotangents(i, args[i], ct)]

    def like(self, leaves: Sequence[Any]) -> list[Any]:
        args = self.split_leaves(leaves)[0]
        return [x for i in self.argnums for x in tree.leaves(args[i]) if _is_inexact(x)]

    def _cotangents(self, i: int, x: object, ct: object) -> Iterable[Any]:
        structure = tree.structure(x)
        for leaf, y in zip(tree.leaves(x), tree.flatten_up_to(structure, ct, f"the cotangent of argument {i}")):
            if _is_inexact(leaf):
                yield conjugate(_fitted(y, leaf, f"the VJP of {self.call!r} wrt argnum {i}"))


class _Push(_RuleFunction):
    """Tangents of results."""

    def like(self, leaves: Sequence[object]) -> list[Any]:
        return list(leaves[self.number : self.number + self.result.num_leaves])

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs, ans, moved = self.split_leaves(leaves)
        rule = self.call.rules.pushes
        if rule is None:
            raise self.call.rules.missing("JVP", self.argnums)
        tangents, _ = tree.unflatten(self.call.structure, moved)
        result = inlined(rule)(self.argnums, [tangents[i] for i in self.argnums], ans, args, kwargs)
        pairs = zip(tree.leaves(result), tree.leaves(ans))
        rule_name = f"the JVP of {self.call!r}"
        return [_fitted(t, y, rule_name) if _is_inexact(y) else np.zeros(np.shape(y), _dtype(y)) for t, y in pairs]


def _fitted(ct: Any, leaf: Any, rule_name: str) -> Any:
    """Convert a rule's result for a leaf to an array of its dtype; ValueError for another shape."""
    ct = ct if isinstance(ct, ARRAYS) else np.asarray(ct)
    if np.shape(ct) != np.shape(leaf):
        if np.size(ct) != np.size(leaf):
            text = f"{rule_name} has the shape {np.shape(ct)}, where the value has the shape {np.shape(leaf)}"
            raise ValueError(located(text))
        ct = np.reshape(ct, np.shape(leaf))
    dtype = _dtype(leaf)
    if dtype.kind == "c":
        return ct.astype(dtype)
    return (np.real(ct) if np.iscomplexobj(ct) else ct).astype(dtype)


class _RuleNode:
    """Computation of a rule's node, from the leaves at these positions."""

    def __init__(self, run: _RuleFunction, leaves: Sequence[Any], positions: Sequence[int]):
        self.run, self.positions = run, tuple(positions)
        self.leaves = [None if k in positions else x for k, x in enumerate(leaves)]

    def __repr__(self) -> str:
        return repr(repr(self.run))

    def __call__(self, *arrays: Any) -> list[Any]:
        leaves = list(self.leaves)
        for k, x in zip(self.positions, arrays):
            leaves[k] = x.copy()
        with aside(), no_grad():
            return self.run(*map(_plain, leaves))


def _ruled(run: _RuleFunction, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Run a rule untraced; its results have known shapes, so a trace needs no values."""
    positions = [k for k, x in enumerate(leaves) if is_traced(x)]
    if not positions:
        return tuple(run(*map(_plain, leaves)))
    arrays = [x.array if isinstance(x, Recorded) else x for x in (leaves[k] for k in positions)]
    described = tuple([(np.shape(x), short_name(_dtype(x))) for x in run.like(leaves)])
    results: tuple[Any, ...] = opaque(*arrays, results=described, call=_RuleNode(run, leaves, positions))
    return results


class _Derived(Function):
    """Result of a rule that runs untraced; its derivative is that of the rule's code, which is then traced."""

    @staticmethod
    def forward(ctx: Any, run: _RuleFunction, *leaves: object) -> tuple[Any, ...]:
        outputs = _ruled(run, leaves)
        ctx.run = run
        save_values(ctx, leaves)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        leaves = saved_values(ctx)
        positions = [k for k, x in enumerate(leaves) if ctx.needs_input_grad[k + 1] and _is_inexact(x)]
        _, pull = api.vjp(_of_some(ctx.run, leaves, positions), *[leaves[k] for k in positions])
        results: list[Any] = [None] * len(leaves)
        for k, ct in zip(positions, pull(tuple(cts))):
            results[k] = ct
        return None, *results

    @staticmethod
    def jvp(ctx: Any, *tangents: object) -> tuple[Any, ...]:
        leaves = saved_values(ctx)
        positions = [k for k, t in enumerate(tangents[1:]) if t is not None]
        args = [leaves[k] for k in positions], [tangents[k + 1] for k in positions]
        return tuple(api.jvp(_of_some(ctx.run, leaves, positions), *args)[1])


def _of_some(run: _RuleFunction, leaves: Sequence[object], positions: Sequence[int]) -> Callable[..., Any]:
    def moving(*some: object) -> tuple[Any, ...]:
        args = list(leaves)
        for k, x in zip(positions, some):
            args[k] = x
        return tuple(run(*args))

    return moving
