"""Solve Riccati equations; imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ops.core.op import Op
from tracegrad.typing import Array, NDArray


def _solved(a: Array, b: Array, q: Array, r: Array, s: NDArray, *, discrete: bool) -> NDArray:
    """The stabilizing solution x of a.T x + x a - (x b + s) r^-1 (b.T x + s.T) + q = 0, or of its discrete form."""
    import scipy.linalg

    result: NDArray = (scipy.linalg.solve_discrete_are if discrete else scipy.linalg.solve_continuous_are)(
        a, b, q, r, s=s
    )
    return result


# This op is not in the table, because its callers differentiate the equation instead of the op.
riccati = Op("riccati", ("a", "b", "q", "r", "s"), _solved, _solved.__doc__ or "", variadic=False, listed=False)


@riccati.def_aval
def _(a: Aval, b: Aval, q: Aval, r: Aval, s: Aval, *, discrete: bool) -> Aval:
    n, m = b.shape if b.ndim == 2 else (0, 0)
    if (a.shape, q.shape, r.shape, s.shape) != ((n, n), (n, n), (m, m), (n, m)):
        raise ShapeError(f"Riccati's equation of {a}, {b}, {q}, {r} and {s}")
    return q


@riccati.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, *operands: Array, discrete: bool) -> list[Any]:
    raise UnsupportedError(located("the derivative of a solution of Riccati's equation that is no fixed point"))


@riccati.def_batch
def _(size: int, batched: object, *operands: Array, discrete: bool) -> Any:
    raise UnsupportedError(located("solutions of Riccati's equation in batches are not supported; solve one by one"))
