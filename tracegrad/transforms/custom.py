"""`custom_vjp` and `custom_jvp`: functions with derivative rules of the user's, as in JAX.

A call is one of a `Function` (`tracegrad.torch.autograd.function`), so the rule holds wherever derivatives are taken:
in transforms, compiled or not, and on the tape of Tensors. What a rule computes is differentiated like anything else,
so there are derivatives of any order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tracegrad import tree
from tracegrad.avals import aval_of, is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise import add
from tracegrad.ops.linear import zeros_like
from tracegrad.pickling import reference
from tracegrad.torch.autograd.context import face_of, like
from tracegrad.torch.autograd.function import Function, inlined
from tracegrad.torch.autograd.gradients import zeros
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.functional import eager_vjp
from tracegrad.torch.tape.recorded import Recorded
from tracegrad.trace.describe import Description, describe, signature_of
from tracegrad.transforms.forward import linear_at, transposing
from tracegrad.transforms.grad import traced_vjp

__all__ = ["CustomRule", "custom_jvp", "custom_vjp"]

_ARRAYS = (Carrier, np.ndarray, np.generic)


class CustomRule:
    """A function whose derivative is a rule; the arguments `nondiff_argnums` are handed to the rule as they are."""

    # Derivatives of it are kept with it (`api`).
    remembers = True
    _role = ""
    _function: type[Function]

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()):
        if not callable(fun):
            raise TypeError(located(f"{self._role} takes a function, got a {type(fun).__name__}"))
        functools.update_wrapper(self, fun)
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)
        self.who: Description = describe(fun, f"{self._role} of ")
        name = self.who.name.rpartition(".")[2].strip("<>")
        self._called: Any = type(name, (self._function,), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._require_rule()
        call = _Call(self, _positional(self, args, kwargs))
        if not any(isinstance(x, Carrier) for x in call.leaves):
            return inlined(self.fun)(*call.given)
        outputs = self._called.apply(call, *call.leaves)
        return tree.unflatten(call.result, outputs)

    def _require_rule(self) -> None:
        raise NotImplementedError

    def _rules(self) -> dict[str, Any]:
        """The attributes that the user has given."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """By reference where another process can import it; else its function and its rules."""
        return reference(self) or (type(self), (self.fun, self.nondiff_argnums), self._rules())

    def __setstate__(self, rules: dict[str, Any]) -> None:
        vars(self).update(rules)

    def parts(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What makes it again, and of which parts."""
        return with_rules, (type(self), self.fun, self.nondiff_argnums, self._rules())

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __repr__(self) -> str:
        return f"<{self.who}>"


def with_rules(cls: Any, fun: Any, nondiff_argnums: Sequence[int], rules: dict[str, Any]) -> Any:
    """A function with these rules."""
    custom = cls(fun, nondiff_argnums)
    custom.__setstate__(rules)
    return custom


def _positional(custom: CustomRule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, with the defaults of those that are not given."""
    signature = signature_of(custom.fun)
    if signature is None:
        return args
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            located(f"{custom.who}: the arguments {sorted(bound.kwargs)} can be given by keyword only; a rule needs "
                    "them by position")
        )  # fmt: skip
    return bound.args


class _Call:
    """One call: its arguments, those that take part in derivatives taken apart, and the structure of its result."""

    def __init__(self, custom: CustomRule, args: tuple[Any, ...]):
        self.custom, self.given = custom, args
        count = len(args)
        for i in custom.nondiff_argnums:
            if not -count <= i < count:
                raise ValueError(
                    located(f"{custom.who}: nondiff_argnums names argument {i}, but there are {count} arguments")
                )
        fixed = sorted({i % count for i in custom.nondiff_argnums})
        self.fixed = [args[i] for i in fixed]
        self.places = [i for i in range(count) if i not in fixed]
        self.leaves, self.structure = tree.flatten(tuple([args[i] for i in self.places]))
        self.result: Any = None

    def __repr__(self) -> str:
        return repr(self.custom)

    def _key(self) -> Any:
        return self.custom, self.structure, tuple(map(id, self.fixed))

    # Calls that differ in the values of their leaves only are equal.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def arguments(self, leaves: Sequence[Any]) -> list[Any]:
        """All arguments, with these leaves."""
        args = list(self.given)
        for i, x in zip(self.places, self.primals(leaves)):
            args[i] = x
        return args

    def primals(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments that take part in derivatives, with these leaves."""
        found: tuple[Any, ...] = tree.unflatten(self.structure, leaves)
        return found

    def names(self) -> list[str]:
        """What messages call the leaves."""
        roots = [self.custom.who.argument(i) for i in self.places]
        return [root + path for root, x in zip(roots, self.primals(self.leaves)) for path in tree.paths(x)]

    def outputs(self, result: Any) -> tuple[Any, ...]:
        """The leaves of the result, whose structure is noted."""
        leaves, self.result = tree.flatten(result)
        return tuple(leaves)

    def require_result(self, result: Any, rule: str) -> list[Any]:
        """The leaves of what a rule returned in the place of the result; TypeError for another structure."""
        leaves, structure = tree.flatten(result)
        if not tree.alike(structure, self.result):
            raise TypeError(
                located(
                    f"{self.custom.who}: {rule} must have the structure of the output of the function, "
                    f"{self.result}, got {structure}"
                )
            )
        return leaves


def _keep(ctx: Any, values: Sequence[Any]) -> None:
    """Save values for the backward pass, arrays and others."""
    ctx.others = [None if isinstance(x, _ARRAYS) else (x,) for x in values]
    ctx.save_for_backward(*[x for x in values if isinstance(x, _ARRAYS)])


def _kept(ctx: Any) -> list[Any]:
    supply = iter(ctx.saved_tensors)
    return [next(supply) if x is None else x[0] for x in ctx.others]


# -- custom_vjp --------------------------------------------------------------------------------------------------------
class _Vjp(Function):
    """A call of a function with a rule for cotangents. On a tape, `fwd` runs in place of the function; in a graph, and
    where the backward pass is itself recorded, its residuals are computed from the inputs when they are needed."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> tuple[Any, ...]:
        ctx.call, ctx.structure = call, None
        custom: Any = call.custom
        if not ctx.has_node:
            _keep(ctx, leaves)
            return call.outputs(inlined(custom.fun)(*call.arguments(leaves)))
        result, residuals = custom.forward(call, leaves)
        kept, ctx.structure = tree.flatten(residuals)
        _keep(ctx, [*leaves, *kept])
        return call.outputs(result)

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        if transposing():
            _require_pulled(ctx)
        ctx.pulled = True
        call, kept = ctx.call, _kept(ctx)
        leaves = kept[: len(call.leaves)]
        if ctx.structure is None or STATE.enabled:
            result, residuals = call.custom.forward(call, leaves)
            call.require_result(result, "the output that the fwd rule returns")
        else:
            residuals = tree.unflatten(ctx.structure, kept[len(leaves) :])
        ct = tree.unflatten(call.result, cts)
        return None, *_cotangents(call, inlined(call.custom.bwd)(*call.fixed, residuals, ct), leaves)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        # Forward mode over reverse mode: what `fwd` computes has taken the place of the function.
        _require_pulled(ctx)
        call, leaves = ctx.call, _kept(ctx)[: len(ctx.call.leaves)]
        places = [k for k, t in enumerate(tangents[1:]) if t is not None]

        def forward(*moving: Any) -> list[Any]:
            given = list(leaves)
            for k, x in zip(places, moving):
                given[k] = x
            found: list[Any] = call.require_result(call.custom.forward(call, given)[0], "the output of the fwd rule")
            return found

        return tuple(linear_at(forward, [leaves[k] for k in places])[1]([tangents[k + 1] for k in places]))


def _require_pulled(ctx: Any) -> None:
    """TypeError unless a derivative in reverse mode was taken of the call."""
    if not getattr(ctx, "pulled", False):
        text = "can't apply forward-mode differentiation (jvp) to a custom_vjp function"
        raise TypeError(located(f"{text}: {ctx.call.custom.who}"))


class custom_vjp(CustomRule):
    """A function with a rule for its derivative in reverse mode, given by `defvjp(fwd, bwd)`.

    `fwd` takes the arguments of the function and returns a pair: what the function returns, and residuals, a pytree.
    `bwd(residuals, ct)` gets the cotangent of the output, in its structure, and returns a tuple with the cotangent of
    each argument: a pytree of the structure and shapes of the argument, or None for zero. Arguments in
    `nondiff_argnums` have no cotangents; `bwd` gets them first, before the residuals.

    The function itself is what calls on ndarrays compute. AttributeError at a call before `defvjp`; TypeError if a rule
    returns another structure, `ShapeError` for another shape.

    >>> import numpy as np
    >>> import tracegrad as tg
    >>> @custom_vjp
    ... def clipped(x, limit):
    ...     return x
    >>> clipped.defvjp(lambda x, limit: (x, limit), lambda limit, ct: (np.clip(ct, -limit, limit), None))
    >>> print(tg.grad(lambda x: 100.0 * clipped(x, 1.0))(3.0))
    1.0
    """

    _role = "custom_vjp"
    _function = _Vjp

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()):
        super().__init__(fun, nondiff_argnums)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Give the rule."""
        self.fwd, self.bwd = fwd, bwd

    def _rules(self) -> dict[str, Any]:
        return {"fwd": self.fwd, "bwd": self.bwd}

    def _require_rule(self) -> None:
        if self.fwd is None:
            raise AttributeError(located(f"No VJP defined for custom_vjp function {self.who.name} using defvjp."))

    def forward(self, call: _Call, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The output and the residuals, by `fwd`."""
        assert self.fwd is not None
        pair = inlined(self.fwd)(*call.arguments(leaves))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                located(
                    f"{self.who}: the fwd rule must produce a pair of the output of the function and residuals, "
                    f"got {_what(pair)}"
                )
            )
        return pair[0], pair[1]


def _cotangents(call: _Call, result: Any, leaves: Sequence[Any]) -> list[Any]:
    """The cotangents of the leaves, out of what `bwd` returned."""
    who, count = call.custom.who, len(call.places)
    if not isinstance(result, tuple | list) or len(result) != count:
        text = (
            f"{who}: the bwd rule must produce a tuple of {count}, a cotangent for each argument, got {_what(result)}"
        )
        raise TypeError(located(text))
    found: list[Any] = []
    for i, x, ct in zip(call.places, call.primals(leaves), result):
        structure, name = tree.structure(x), who.argument(i)
        if ct is None:
            found += [None] * structure.num_leaves
            continue
        try:
            found += tree.flatten_up_to(structure, ct, name)
        except ShapeError as error:
            text = f"{who}: the bwd rule must produce a cotangent of the structure of {name}: {error}"
            raise TypeError(located(text)) from None
    return [_cotangent(call, k, x, ct) for k, (x, ct) in enumerate(zip(leaves, found))]


def _cotangent(call: _Call, k: int, x: Any, ct: Any) -> Any:
    if ct is None or not isinstance(x, Carrier):
        return None
    who = call.custom.who
    if not isinstance(ct, _ARRAYS):
        if type(ct) not in (int, float, bool):
            raise TypeError(located(f"{who}: the bwd rule returned {_what(ct)} as the cotangent of {call.names()[k]}"))
        ct = np.asarray(ct, x.dtype)  # type: ignore[attr-defined]
    if ct.shape != x.shape:  # type: ignore[attr-defined]
        raise ShapeError(
            located(
                f"{who}: the bwd rule returned a cotangent of shape {ct.shape} for {call.names()[k]}, which has shape "
                f"{x.shape}"  # type: ignore[attr-defined]
            )
        )
    return ct


# -- custom_jvp --------------------------------------------------------------------------------------------------------
class _Jvp(Function):
    """A call of a function with a rule for tangents. For cotangents it is transposed: it is linear in the tangents."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> tuple[Any, ...]:
        ctx.call = call
        _keep(ctx, leaves)
        return call.outputs(inlined(call.custom.fun)(*call.arguments(leaves)))

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        call: _Call = ctx.call
        leaves, custom = _kept(ctx), cast("custom_jvp", call.custom)
        if not STATE.enabled:
            leaves = [like(face_of(x), x.array, None) if isinstance(x, Recorded) else x for x in leaves]
        places = [k for k, need in enumerate(ctx.needs_input_grad[1:]) if need]
        tangents = [_no_tangent(x) for x in leaves]

        def tangent(*given: Any) -> list[Any]:
            moved = list(tangents)
            for k, t in zip(places, given):
                moved[k] = t
            return custom.push(call, leaves, moved)

        on_tape = any(isinstance(x, Recorded) for x in leaves)
        start = [tangents[k] for k in places]
        _, pullback = eager_vjp(tangent, start) if on_tape else traced_vjp(tangent, start)
        found: list[Any] = [None] * len(leaves)
        for k, ct in zip(places, pullback(cts)):
            found[k] = ct
        return None, *found

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        leaves, custom = _kept(ctx), cast("custom_jvp", ctx.call.custom)
        moved = [_no_tangent(x) if t is None else t for x, t in zip(leaves, tangents[1:])]
        return tuple(custom.push(ctx.call, leaves, moved))


def _no_tangent(x: Any) -> Any:
    """The tangent 0 of a leaf: of a number if that is what `x` is or stands for in a graph; None for other objects."""
    if not isinstance(x, _ARRAYS):
        return 0.0 if is_literal(x) else None
    if isinstance(x, Recorded):
        return x._like(zeros(x))
    if getattr(x, "weak", False):
        return 0.0
    aval = aval_of(x)
    return zeros_like(x) if aval.dtype.kind in "fc" else np.zeros(aval.shape)


class custom_jvp(CustomRule):
    """A function with a rule for its derivative, given by `defjvp(rule)` or `defjvps(*rules)`.

    `rule(primals, tangents)` gets the arguments of the function and their tangents, as tuples, and returns a pair: what
    the function returns, and its tangent, in the same structure. It must be linear in the tangents; reverse mode is its
    transpose. Arguments in `nondiff_argnums` have no tangents; the rule gets them first.

    The function itself is what calls on ndarrays compute. AttributeError at a call without a rule; TypeError if the
    rule returns another structure, `ShapeError` for another shape.

    >>> import numpy as np
    >>> import tracegrad as tg
    >>> @custom_jvp
    ... def log1pexp(x):
    ...     return np.log(1.0 + np.exp(x))
    >>> log1pexp.defjvps(lambda t, ans, x: t * (1.0 - 1.0 / (1.0 + np.exp(x))))
    >>> print(tg.grad(log1pexp)(100.0), tg.grad(tg.grad(log1pexp))(0.0))
    1.0 0.25
    """

    _role = "custom_jvp"
    _function = _Jvp

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = ()):
        super().__init__(fun, nondiff_argnums)
        self.jvp: Callable[..., Any] | None = None
        self._jvps: tuple[Callable[..., Any] | None, ...] | None = None

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Give the rule; returns it, so that this can be a decorator."""
        self.jvp, self._jvps = jvp, None
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Give a rule for each argument: `rule(tangent, answer, *primals)` is its share of the tangent of the output;
        None for an argument that the output does not depend on."""
        if self.nondiff_argnums:
            raise TypeError(located("Can't use `defjvps` with `nondiff_argnums`."))

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            answer = self(*primals)
            shares = [inlined(rule)(t, answer, *primals) for rule, t in zip(jvps, tangents) if rule is not None]
            if not shares:
                return answer, tree.map(zeros_like, answer)
            return answer, functools.reduce(lambda x, y: tree.map(add, x, y), shares)

        self.jvp, self._jvps = jvp, jvps

    def _rules(self) -> dict[str, Any]:
        return {"jvp": self.jvp} if self._jvps is None else {"_jvps": self._jvps}

    def __setstate__(self, rules: dict[str, Any]) -> None:
        super().__setstate__(rules)
        if self._jvps is not None:
            self.defjvps(*self._jvps)

    def _require_rule(self) -> None:
        if self.jvp is None:
            raise AttributeError(located(f"No JVP defined for custom_jvp function {self.who.name} using defjvp."))

    def push(self, call: _Call, leaves: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The leaves of the tangent of the output, by the rule."""
        assert self.jvp is not None
        pair = inlined(self.jvp)(*call.fixed, call.primals(leaves), call.primals(tangents))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                located(
                    f"{self.who}: the jvp rule must produce a pair of the output of the function and its tangent, "
                    f"got {_what(pair)}"
                )
            )
        outputs = call.require_result(pair[0], "the output that the jvp rule returns")
        found = call.require_result(pair[1], "the tangent that the jvp rule returns")
        for x, t in zip(outputs, found):
            if np.shape(x) != np.shape(t):
                text = f"a tangent of shape {np.shape(t)} for an output of shape {np.shape(x)}"
                raise ShapeError(located(f"{self.who}: the jvp rule returned {text}"))
        return found


def _what(x: Any) -> str:
    return f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, tuple | list | dict) else "")
