"""Check derivatives against finite differences: `check_grads`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from tracegrad.compat.autograd.spaces import vspace
from tracegrad.compat.autograd.transforms import make_jvp, make_vjp
from tracegrad.compat.autograd.wrap_util import get_name, unary_to_nary

__all__ = ["check_equivalent", "check_grads", "check_jvp", "check_vjp", "combo_check", "scalar_close"]

TOL, RTOL, EPS = 1e-6, 1e-6, 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Whether two numbers are as good as equal.

    >>> scalar_close(1.0, 1.0 + 1e-8), scalar_close(1.0, 1.1)
    (True, False)
    """
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


def _difference(f: Callable[..., object], x: object, v: object) -> object:
    """Compute the numerical derivative of `f` at `x` along `v`."""
    space, y = vspace(x), vspace(f(x))
    ahead, behind = (f(space.add(x, space.scalar_mul(v, step))) for step in (EPS / 2, -EPS / 2))
    return y.scalar_mul(y.add(ahead, y.scalar_mul(behind, -1.0)), 1.0 / EPS)


def check_vjp(f: Callable[..., object], x: object) -> None:
    """Compare the cotangent of `x`, for random cotangents of the output, with differences."""
    vjp, y = make_vjp(f, x)
    x_space, y_space = vspace(x), vspace(y)
    x_v, y_v = x_space.randn(), y_space.randn()
    pulled = x_space.covector(vjp(y_space.covector(y_v)))
    assert vspace(pulled) == x_space, f"the cotangent is in {vspace(pulled)}, the argument in {x_space}"
    exact, numeric = x_space.inner_prod(x_v, pulled), y_space.inner_prod(y_v, _difference(f, x, x_v))
    text = f"Derivative (VJP) check of {get_name(f)} failed with arg {x}:\nanalytic: {exact}\nnumeric:  {numeric}"
    assert scalar_close(numeric, exact), text


def check_jvp(f: Callable[..., object], x: object) -> None:
    """Compare the tangent of the output, for a random tangent of `x`, with differences."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], _difference(f, x, v))


def check_equivalent(x: object, y: object) -> None:
    """Compare two values in a random direction."""
    space = vspace(x)
    assert space == vspace(y), f"VSpace mismatch:\nx: {space}\ny: {vspace(y)}"
    v = space.randn()
    assert scalar_close(space.inner_prod(x, v), space.inner_prod(y, v)), f"Value mismatch:\nx: {x}\ny: {y}"


@unary_to_nary
def check_grads(f: Callable[..., object], x: object, modes: Sequence[str] = ("fwd", "rev"), order: int = 2) -> None:
    """Return the function that compares derivatives of `f` with differences, in these modes and up to this order.

    >>> check_grads(lambda x: x**3)(2.0)
    """
    assert all(mode in ("fwd", "rev") for mode in modes)
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:
            check_grads(lambda x, v: make_jvp(f, x)(v)[1], (0, 1), modes, order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:
            check_grads(lambda x, v: make_vjp(f, x)[0](v), (0, 1), modes, order - 1)(x, vspace(f(x)).randn())


def combo_check(fun: Callable[..., object], *args: object, **kwargs: object) -> Callable[..., None]:
    """Return the function that checks `fun` at all combinations of lists of arguments."""

    def check(*lists: Any, **by_name: Any) -> None:
        for inputs in product(*lists):
            for values in product(*by_name.values()):
                check_grads(fun, *args, **kwargs)(*inputs, **dict(zip(by_name, values)))

    return check
