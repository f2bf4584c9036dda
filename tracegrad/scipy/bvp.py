"""Boundary value problems, `solve_bvp`, with compiled functions and Jacobians of pytrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import api, tree
from tracegrad.errors import ShapeError, located
from tracegrad.scipy.ravel_pytree import Vector, array_if_list, joined
from tracegrad.scipy.vector_functions import compiled, of_scipy
from tracegrad.transforms.flat_function import inlined

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


__all__ = ["solve_bvp"]

Function = Callable[..., Any]
API_NAME = "tracegrad.scipy.solve_bvp"


def solve_bvp(
    fun: Function,
    bc: Function,
    x: Any,
    y: Any,
    p: Any = None,
    S: object = None,
    fun_jac: object = None,
    bc_jac: object = None,
    **options: object,
) -> Any:
    """Solve a boundary value problem, with the arguments and the result of `scipy.integrate.solve_bvp`.

    Parameters
    ----------
    fun : callable
        Right-hand side `fun(x, y)` or `fun(x, y, p)`. It takes and returns pytrees of the structure of `y`. Its result
        at a point of the mesh depends on `y` at this point only.
    bc : callable
        Residuals of the boundary conditions, `bc(ya, yb)` or `bc(ya, yb, p)`, of the states at the ends. Its result has
        as many elements as a state and the parameters together, in any structure.
    x : array of shape (m,)
        Initial mesh.
    y : list of rows, array, or pytree of arrays
        Initial guess of the solution. The last axis of each leaf is along the mesh. A list of rows is an array.
    p : array, list of numbers, or pytree of arrays, optional
        Initial guess of unknown parameters.
    S : ndarray, optional
        Singular term, as in SciPy.
    fun_jac, bc_jac : callable, optional
        Derivatives of `fun` and of `bc`. If one is None, it is derived and compiled.
    **options
        Other arguments of `scipy.integrate.solve_bvp`, for example `tol`.

    Returns
    -------
    bunch
        Result of SciPy. `y`, `yp` and the values of `sol` have the structure of `y`, and `p` has the structure of `p`.

    Raises
    ------
    ShapeError
        If the result of `fun` does not match `y`.

    Notes
    -----
    The matrix `S`, and the results of `fun_jac` and `bc_jac`, have a row and a column for each element of a state, in
    the order of the leaves.

    In a traced function, it is the `scipy.integrate.solve_bvp` of traced code, without `S`. The solution then has
    derivatives, by the implicit function theorem, with respect to the ends of the mesh and the values that `fun` and
    `bc` read. SciPy's own errors are unchanged.

    Examples
    --------
    >>> x = np.linspace(0, 1, 5)
    >>> result = solve_bvp(lambda x, y: {"u": y["v"], "v": -np.exp(y["u"])}, lambda a, b: (a["u"], b["u"]), x,
    ...                    {"u": np.zeros(5), "v": np.zeros(5)}, tol=1e-8)
    >>> print(f"{result.sol(0.5)['u']:.5f}")
    0.14054
    """
    y, p = np.asarray(y) if _is_vector_list(y) else array_if_list(y), array_if_list(p)
    unknown = None if p is None else Vector(API_NAME, "p", p)
    layout = BvpLayout(_state(x, y), unknown)
    law, derivatives = layout.of_law(fun, fun_jac)
    ends, derivatives_at_ends = layout.of_ends(bc, bc_jac)
    start = layout.state.pack(y, np.shape(x)), None if unknown is None else unknown.pack(p)
    result = of_scipy("integrate.solve_bvp")(law, ends, x, *start, S, derivatives, derivatives_at_ends, **options)
    return layout.solved(result)


def _is_vector_list(y: object) -> bool:
    return isinstance(y, list | tuple) and all(isinstance(row, np.ndarray) and row.ndim == 1 for row in y)


def _state(x: Any, y: Any) -> Vector:
    """Return the layout of the leaves of `y` at one point of the mesh in a column."""
    for leaf, path in zip(tree.leaves(y), tree.paths(y)):
        if np.ndim(x) != 1 or np.shape(leaf)[-1:] != np.shape(x):
            text = f"y{path} of shape {np.shape(leaf)} has no last axis for the mesh x of shape {np.shape(x)}"
            raise ShapeError(located(f"{API_NAME}: {text}"))
    return Vector(API_NAME, "y", tree.map(lambda leaf: leaf[..., 0], y))


class BvpLayout:
    """Layout of states and parameters in SciPy's arrays, and adapters of functions of them."""

    def __init__(self, state: Vector, unknown: Vector | None):
        self.state, self.unknown = state, unknown

    def of_law(self, fun: Function, jac: Any) -> tuple[Any, Any]:
        """Return `fun` on columns, and its derivatives with respect to the columns and the parameters."""

        def flat(fun: Function) -> Function:
            return lambda x, y, *p: self.state.pack(inlined(fun)(x, *self._arguments((y,), p)), y.shape[1:])

        def user_jacobian(x: Array, y: Array, *p: Array) -> object:
            return jac(x, *self._arguments((y,), p))

        derivatives = (
            self._compiled(fun, lambda fun: _columns(flat(fun)), "Jacobian of fun") if jac is None else user_jacobian
        )
        return self._compiled(fun, flat, "fun"), derivatives

    def of_ends(self, bc: Function, jac: Any) -> tuple[Any, Any]:
        """Return `bc` on two columns, and its derivatives with respect to the columns and the parameters."""
        wanted = (0, 1) if self.unknown is None else (0, 1, 2)

        def flat(bc: Function) -> Function:
            return lambda a, b, *p: joined(tree.leaves(inlined(bc)(*self._arguments((a, b), p))))

        def user_jacobian(a: Any, b: Any, *p: Any) -> object:
            return jac(*self._arguments((a, b), p))

        derivatives = (
            self._compiled(bc, lambda bc: api.jacfwd(flat(bc), wanted), "Jacobian of bc")
            if jac is None
            else user_jacobian
        )
        return self._compiled(bc, flat, "bc"), derivatives

    def solved(self, result: Any) -> Any:
        """Convert a solution to pytrees; the spline of an array state is unchanged."""
        if not self.state.flat:
            spline, shape = result["sol"], result["x"].shape
            result["sol"] = lambda x: self.state.along(spline(x), np.shape(x))
            result |= {name: self.state.along(result[name], shape) for name in ("y", "yp")}
        if self.unknown is not None:
            result["p"] = self.unknown.unpack(result["p"])
        return result

    def _arguments(self, columns: tuple[Any, ...], p: tuple[Operand, ...]) -> list[Any]:
        """Return the arguments of the user's functions."""
        states = [self.state.along(y, y.shape[1:]) for y in columns]
        return states if self.unknown is None else [*states, *map(self.unknown.unpack, p)]

    def _compiled(self, fun: Function, make: Callable[[Function], Function], name: str) -> object:
        key = API_NAME, name, self.state.key, None if self.unknown is None else self.unknown.key
        return compiled(fun, key, make, f"{API_NAME}: {name}")


def _columns(fun: Function) -> Function:
    """Differentiate each result column with respect to the same column of `y`, and to the parameters."""

    def call(x: object, y: Any, *p: object) -> Any:
        n, m = y.shape

        def along(direction: object) -> Any:
            return api.jvp(lambda y: fun(x, y, *p), (y,), (direction,))[1]

        directions = np.broadcast_to(np.eye(n)[:, :, None], (n, n, m))
        derivatives = np.transpose(api.vmap(along)(directions), (1, 0, 2))
        if not p:
            return derivatives
        return derivatives, np.swapaxes(api.jacfwd(lambda p: fun(x, y, p))(p[0]), 1, 2)

    return call
