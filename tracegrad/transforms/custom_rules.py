"""Functions with user-defined derivative rules: `custom_vjp` and `custom_jvp`, as in JAX.

A call is one of a `Function` (`tracegrad.torch.autograd.function`). The rule therefore holds in all transforms,
compiled or not, and on the tape of Tensors. Computations of a rule are differentiable, so derivatives of any order
exist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import aval_of, is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.ops import Carrier
from tracegrad.ops.elementwise.table import add
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.torch.autograd.backward_results import zeros
from tracegrad.torch.autograd.function import Function, inlined
from tracegrad.torch.autograd.function_ctx import ARRAYS, FunctionCtx, like, public_class_of
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.functional import eager_vjp
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.transforms.custom_call import CustomRule, RuleCall, save_values, saved_values
from tracegrad.transforms.jvp_function import linear_at, transposing
from tracegrad.transforms.opaque import OpaqueFunction
from tracegrad.transforms.vjp_function import traced_vjp

if TYPE_CHECKING:
    from tracegrad.typing import Array, Number


# -- custom_vjp --------------------------------------------------------------------------------------------------------
class _Vjp(Function):
    """Call of a function with a rule for cotangents.

    On a tape, `fwd` runs in place of the function. In a graph, and where the backward pass is itself recorded, the
    residuals are computed from the inputs when they are used.
    """

    @staticmethod
    def forward(ctx: Any, call: RuleCall, *leaves: Array) -> tuple[Array, ...]:
        ctx.call, ctx.structure = call, None
        custom: Any = call.custom
        if not ctx.has_node:
            save_values(ctx, leaves)
            return call.outputs(inlined(custom.fun)(*call.arguments(leaves)), leaves, ctx.has_node)
        result, residuals = custom.forward(call, leaves)
        values, ctx.structure = tree.flatten(residuals)
        save_values(ctx, [*leaves, *values])
        return call.outputs(result, leaves, ctx.has_node)

    @staticmethod
    def backward(ctx: Any, *cts: Array) -> tuple[Array | None, ...]:
        call, saved = ctx.call, saved_values(ctx)
        leaves = saved[: len(call.leaves)]
        if transposing():
            if call.custom.jvp is not None:
                return None, *_pulled_by_jvp(ctx, leaves, cts)
            _require_pulled(ctx)
        ctx.pulled = True
        if ctx.structure is None or STATE.enabled:
            result, residuals = call.custom.forward(call, leaves)
            call.require_result(result, "the output that the fwd rule returns")
        else:
            residuals = tree.unflatten(ctx.structure, saved[len(leaves) :])
        ct = tree.unflatten(call.result, cts)
        return None, *_cotangents(call, inlined(call.custom.bwd)(*call.fixed, residuals, ct), leaves)

    @staticmethod
    def jvp(ctx: FunctionCtx, *tangents: Any) -> tuple[Array, ...]:
        call, leaves = ctx.call, saved_values(ctx)[: len(ctx.call.leaves)]
        if call.custom.jvp is not None:
            return _pushed(ctx, leaves, tangents)
        _require_pulled(ctx)
        positions = [k for k, t in enumerate(tangents[1:]) if t is not None]
        moving = [tangents[k + 1] for k in positions]
        if isinstance(call.custom.fun, OpaqueFunction):
            return _pushed_by_vjp(call, leaves, positions, moving)

        # Forward mode over reverse mode: `fwd` computes the output instead of the function.
        def forward(*moving: Array) -> list[Any]:
            results: list[Any] = call.require_result(
                call.custom.forward(call, _with(leaves, positions, moving))[0], "the output of the fwd rule"
            )
            return results

        return tuple(linear_at(forward, [leaves[k] for k in positions])[1](moving))


def _with(values: Sequence[Any], positions: Sequence[int], others: list[Array] | tuple[Array, ...]) -> list[Any]:
    """Replace the values at these positions by others."""
    replaced = list(values)
    for k, x in zip(positions, others):
        replaced[k] = x
    return replaced


def _pushed_by_vjp(
    call: RuleCall, leaves: Sequence[Any], positions: Sequence[int], moving: list[Array]
) -> tuple[Array, ...]:
    """Compute the tangents of the outputs by transposing the rule for cotangents, which is linear."""
    custom: Any = call.custom
    result, residuals = custom.forward(call, leaves)
    outputs = call.require_result(result, "the output of the fwd rule")

    def pull(*cts: Array) -> list[Array]:
        bwd = inlined(custom.bwd)(*call.fixed, residuals, tree.unflatten(call.result, cts))
        cotangents = _cotangents(call, bwd, leaves)
        return [zeros_like(leaves[k]) if cotangents[k] is None else cotangents[k] for k in positions]

    start = [zeros_like(x) for x in outputs]
    _, pushforward = eager_vjp(pull, start) if any(isinstance(x, Recorded) for x in leaves) else traced_vjp(pull, start)
    return tuple(pushforward(moving))


def _require_pulled(ctx: FunctionCtx) -> None:
    """Raise TypeError unless the call was differentiated in reverse mode, or its rule is all that is known of it."""
    custom = ctx.call.custom
    if not getattr(ctx, "pulled", False) and not isinstance(custom.fun, OpaqueFunction):
        text = "can't apply forward-mode differentiation (jvp) to a custom_vjp function"
        raise TypeError(located(f"{text}: {custom.label}"))


class custom_vjp(CustomRule):
    """Function with a user-defined rule for its derivative in reverse mode, given by `defvjp(fwd, bwd)`.

    Parameters
    ----------
    fun : callable
        Function to differentiate; calls on ndarrays compute it.
    nondiff_argnums : sequence of int
        Arguments without cotangents; `bwd` receives them first, before the residuals.

    Raises
    ------
    AttributeError
        If the function is called before `defvjp`.
    TypeError
        If a rule returns another structure.
    ShapeError
        If a rule returns another shape.

    Notes
    -----
    `fwd` takes the arguments of the function, and returns a pair: the result of the function, and the residuals, a
    pytree. `bwd(residuals, ct)` receives the cotangent of the output, in its structure, and returns a tuple with the
    cotangent of each argument: a pytree of the argument's structure and shapes, or None for zero.

    Examples
    --------
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
        self.jvp: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., object], bwd: Callable[..., object]) -> None:
        """Set the rule for reverse mode.

        Parameters
        ----------
        fwd : callable
            Function `fwd(*args) -> (out, residuals)`.
        bwd : callable
            Function `bwd(residuals, ct)` to a tuple of cotangents, one for each argument.
        """
        self.fwd, self.bwd = fwd, bwd

    def defjvp(self, jvp: Callable[..., object]) -> Callable[..., object]:
        """Set a rule for forward mode besides the rule for reverse mode.

        Parameters
        ----------
        jvp : callable
            Rule as for `custom_jvp.defjvp`.

        Returns
        -------
        callable
            The rule, so that the method can be a decorator.
        """
        self.jvp = jvp
        return jvp

    def _rules(self) -> dict[str, Callable[..., object] | None]:
        return {"fwd": self.fwd, "bwd": self.bwd, "jvp": self.jvp}

    def _require_rule(self) -> None:
        if self.fwd is None:
            raise AttributeError(located(f"No VJP defined for custom_vjp function {self.label.name} using defvjp."))

    def forward(self, call: RuleCall, leaves: list[Array] | tuple[Array, ...]) -> tuple[Any, Any]:
        """Compute the output and the residuals with `fwd`."""
        assert self.fwd is not None
        pair = inlined(self.fwd)(*call.arguments(leaves))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                located(
                    f"{self.label}: the fwd rule must produce a pair of the output of the function and residuals, "
                    f"got {_type_text(pair)}"
                )
            )
        return pair[0], pair[1]


def _cotangents(call: RuleCall, result: Any, leaves: Sequence[Any]) -> list[Array]:
    """Extract the cotangents of the leaves from the result of `bwd`."""
    label, count = call.custom.label, len(call.positions)
    if not isinstance(result, tuple | list) or len(result) != count:
        got = _type_text(result)
        text = f"{label}: the bwd rule must produce a tuple of {count}, a cotangent for each argument, got {got}"
        raise TypeError(located(text))
    results: list[Any] = []
    for i, x, ct in zip(call.positions, call.primals(leaves), result):
        structure, name = tree.structure(x), label.argument(i)
        if ct is None:
            results += [None] * structure.num_leaves
            continue
        try:
            results += tree.flatten_up_to(structure, ct, name)
        except ShapeError as error:
            text = f"{label}: the bwd rule must produce a cotangent of the structure of {name}: {error}"
            raise TypeError(located(text)) from None
    return [_cotangent(call, k, x, ct) for k, (x, ct) in enumerate(zip(leaves, results))]


def _cotangent(call: RuleCall, k: int, x: Array, ct: Any) -> Any:
    if ct is None or not isinstance(x, Carrier):
        return None
    label = call.custom.label
    if not isinstance(ct, ARRAYS):
        if type(ct) not in (int, float, bool):
            raise TypeError(
                located(f"{label}: the bwd rule returned {_type_text(ct)} as the cotangent of {call.names()[k]}")
            )
        ct = np.asarray(ct, x.dtype)
    if ct.shape != x.shape:
        raise ShapeError(
            located(
                f"{label}: the bwd rule returned a cotangent of shape {ct.shape} for {call.names()[k]}, which has "
                "shape "
                f"{x.shape}"
            )
        )
    return ct


# -- rules for tangents ------------------------------------------------------------------------------------------------
def _push(call: RuleCall, leaves: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Compute the leaves of the output's tangent with the rule for tangents."""
    custom: Any = call.custom
    pair = inlined(custom.jvp)(*call.fixed, call.primals(leaves), call.primals(tangents))
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            located(
                f"{custom.label}: the jvp rule must produce a pair of the output of the function and its tangent, "
                f"got {_type_text(pair)}"
            )
        )
    outputs = call.require_result(pair[0], "the output that the jvp rule returns")
    result = call.require_result(pair[1], "the tangent that the jvp rule returns")
    for x, t in zip(outputs, result):
        if np.shape(x) != np.shape(t):
            text = f"a tangent of shape {np.shape(t)} for an output of shape {np.shape(x)}"
            raise ShapeError(located(f"{custom.label}: the jvp rule returned {text}"))
    return result


def _pushed(ctx: FunctionCtx, leaves: list[Array | Number], tangents: tuple[Array | None, ...]) -> tuple[Array, ...]:
    """Compute the tangents of the outputs with the rule."""
    return tuple(_push(ctx.call, leaves, [_no_tangent(x) if t is None else t for x, t in zip(leaves, tangents[1:])]))


def _pulled_by_jvp(ctx: Any, leaves: Sequence[Any], cts: tuple[Array, ...]) -> list[Array | None]:
    """Compute the cotangents of the leaves by transposing the rule for tangents, which is linear."""
    if not STATE.enabled:
        leaves = [like(public_class_of(x), x.array, None) if isinstance(x, Recorded) else x for x in leaves]
    positions = [k for k, need in enumerate(ctx.needs_input_grad[1:]) if need]
    tangents = [_no_tangent(x) for x in leaves]

    def push(*moving: Any) -> list[Array]:
        return _push(ctx.call, leaves, _with(tangents, positions, moving))

    on_tape = any(isinstance(x, Recorded) for x in leaves)
    start = [tangents[k] for k in positions]
    _, pullback = eager_vjp(push, start) if on_tape else traced_vjp(push, start)
    return _with([None] * len(leaves), positions, pullback(cts))


def _no_tangent(x: Array | Number) -> Any:
    """Return the tangent 0 of a leaf: a number if the leaf is one or stands for one in a graph; None for other
    objects."""
    if not isinstance(x, ARRAYS):
        return 0.0 if is_literal(x) else None
    if isinstance(x, Recorded):
        return x._like(zeros(x))
    if getattr(x, "weak", False):
        return 0.0
    aval = aval_of(x)
    return zeros_like(x) if aval.dtype.kind in "fc" else np.zeros(aval.shape)


# -- custom_jvp --------------------------------------------------------------------------------------------------------
class _Jvp(Function):
    """Call of a function with a rule for tangents; the transpose of the rule, linear in the tangents, gives
    cotangents."""

    @staticmethod
    def forward(ctx: Any, call: RuleCall, *leaves: Array | Number) -> tuple[Array, ...]:
        ctx.call = call
        save_values(ctx, leaves)
        return call.outputs(inlined(call.custom.fun)(*call.arguments(leaves)), leaves, ctx.has_node)

    @staticmethod
    def backward(ctx: Any, *cts: Array) -> tuple[Array | None, ...]:
        return None, *_pulled_by_jvp(ctx, saved_values(ctx), cts)

    @staticmethod
    def jvp(ctx: FunctionCtx, *tangents: Any) -> tuple[Array, ...]:
        return _pushed(ctx, saved_values(ctx), tangents)


class custom_jvp(CustomRule):
    """Function with a user-defined rule for its derivative, given by `defjvp(rule)` or `defjvps(*rules)`.

    Parameters
    ----------
    fun : callable
        Function to differentiate; calls on ndarrays compute it.
    nondiff_argnums : sequence of int
        Arguments without tangents; the rule receives them first.

    Raises
    ------
    AttributeError
        If the function is called before it has a rule.
    TypeError
        If the rule returns another structure.
    ShapeError
        If the rule returns another shape.

    Notes
    -----
    `rule(primals, tangents)` receives the arguments of the function and their tangents, as tuples, and returns a pair:
    the result of the function, and its tangent, in the same structure. The rule must be linear in the tangents; reverse
    mode is its transpose.

    Examples
    --------
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

    def defjvp(self, jvp: Callable[..., object]) -> Callable[..., object]:
        """Set the rule for forward mode.

        Parameters
        ----------
        jvp : callable
            Function `jvp(primals, tangents) -> (out, tangent)`.

        Returns
        -------
        callable
            The rule, so that the method can be a decorator.
        """
        self.jvp, self._jvps = jvp, None
        return jvp

    def defjvps(self, *jvps: Callable[..., object] | None) -> None:
        """Set a rule for each argument.

        Parameters
        ----------
        *jvps : callable or None
            Function `jvp(tangent, out, *primals)` to the argument's share of the tangent of the output. None is for an
            argument that the output does not depend on.

        Raises
        ------
        TypeError
            If the function has `nondiff_argnums`.
        """
        if self.nondiff_argnums:
            raise TypeError(located("Can't use `defjvps` with `nondiff_argnums`."))

        def jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, ...]:
            out = self(*primals)
            shares = [inlined(rule)(t, out, *primals) for rule, t in zip(jvps, tangents) if rule is not None]
            if not shares:
                return out, tree.map(zeros_like, out)
            return out, functools.reduce(lambda x, y: tree.map(add, x, y), shares)

        self.jvp, self._jvps = jvp, jvps

    def _rules(self) -> dict[str, Any]:
        return {"jvp": self.jvp} if self._jvps is None else {"_jvps": self._jvps}

    def __setstate__(self, rules: dict[str, Any]) -> None:
        super().__setstate__(rules)
        if self._jvps is not None:
            self.defjvps(*self._jvps)

    def _require_rule(self) -> None:
        if self.jvp is None:
            raise AttributeError(located(f"No JVP defined for custom_jvp function {self.label.name} using defjvp."))


def _type_text(x: Any) -> str:
    return f"a {type(x).__name__}" + (f" of {len(x)}" if isinstance(x, tuple | list | dict) else "")
