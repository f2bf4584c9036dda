"""`trace`, the decorator that compiles a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.reroll import loop_detector, roll
from tracegrad.scipy_api.registry import add_homes
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.traced_function import Parameters, Result, Traced
from tracegrad.transform_support import require_callable, require_options

__all__ = ["trace"]

HOOKS.roll = roll
HOOKS.loop_detector = loop_detector
add_homes(
    "tracegrad.solvers",
    {
        "scipy.integrate": ["quadrature", "nquad", "ivp", "bvp"],
        "scipy.optimize": ["optimize"],
        "scipy.sparse.linalg": ["krylov"],
    },
)

Function = Callable[..., Any]


@overload
def trace(
    fun: Callable[Parameters, Result],
    *,
    static_argnums: tuple[object, ...] | int = (),
    static_argnames: tuple[str, ...] | str = (),
    tiered: bool | None = None,
    optimize: int | None = None,
    donate_argnums: tuple[object, ...] | int = (),
    donate_argnames: tuple[object, ...] = (),
) -> Traced[Parameters, Result]: ...
@overload
def trace(
    *,
    static_argnums: tuple[object, ...] | int = (),
    static_argnames: tuple[str, ...] | str = (),
    tiered: bool | None = None,
    optimize: int | None = None,
    donate_argnums: tuple[object, ...] | int = (),
    donate_argnames: tuple[object, ...] = (),
) -> Callable[[Callable[Parameters, Result]], Traced[Parameters, Result]]: ...
def trace(
    fun: Function | None = None,
    *,
    static_argnums: tuple[object, ...] | int = (),
    static_argnames: tuple[str, ...] | str = (),
    tiered: bool | None = None,
    optimize: int | None = None,
    donate_argnums: tuple[object, ...] | int = (),
    donate_argnames: tuple[object, ...] = (),
) -> Any:
    """Compile a NumPy function: trace it at the first call, and run the compiled program at further calls.

    Parameters
    ----------
    fun : callable, optional
        Function of arrays, numbers and pytrees of them. Without it, a decorator is returned.
    static_argnums : int or sequence of int
        Positions of static arguments: hashable constants of the program. A new value is traced again.
    static_argnames : str or sequence of str
        Names of static arguments.
    tiered : bool, optional
        True: NumPy evaluates the calls op by op while another thread compiles, if this is estimated to be faster.
        False: the first call waits for the compiler. The default is `settings.first_call`, with which NumPy
        evaluates the first call, and the second call compiles.
    optimize : {1, 2, 3}, optional
        Optimization level. 1 compiles fastest, 3 generates the fastest code. The default is `settings.optimize`,
        which is 2 unless it has been set.
    donate_argnums : int or sequence of int
        Positions of donated arguments: the program may overwrite their arrays with results, as in JAX.
    donate_argnames : str or sequence of str
        Names of donated arguments.

    Returns
    -------
    Traced
        Compiled function, with the parameters of `fun`. Functions derived from it, for example by `grad`, are
        compiled with the same options. Without `fun`, the decorator.

    Raises
    ------
    TypeError
        If `fun` is not callable, or `tiered` is not a boolean.
    ValueError
        If a static or donated argument does not exist, an argument is both, or `optimize` is no level.
    TraceError, DTypeError, UnsupportedError
        In calls: if an argument has another type or dtype, or `fun` does what cannot be compiled. The message has the
        user's file and line.

    See Also
    --------
    grad : Gradient of a function.
    disable_jit : Run traced functions as plain Python.

    Notes
    -----
    Arguments and results are ndarrays, NumPy scalars, Python numbers, and pytrees of them: tuple, list, dict,
    namedtuple, dataclass, None, and classes of `register_pytree_node`. Each combination of structure, dtypes, shapes
    and static values has a trace of its own, and so has each outcome of a test of a value (`if x.sum() > 0`).

    Each call reads outside variables again, and updates outside arrays, objects and names. Output of `print` appears
    once per trace. Results differ from NumPy's by rounding only. If the compiler fails in another thread, NumPy
    evaluates the calls, and a `PerformanceWarning` is issued.

    Of a Tensor, `trace` is PyTorch's function: the sum of the diagonal of a matrix.

    A result may take the memory of a donated array of the same shape and dtype. A training step
    `params = step(params, x)` then allocates nothing. The content of a donated array is undefined after the call, for
    every reference to it. Views, read-only arrays and arrays that share memory with another argument are not
    overwritten. No array is overwritten if the path through `fun` depends on values.

    Examples
    --------
    >>> import numpy as np
    >>> @trace
    ... def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> print(norm(np.array([3.0, 4.0])))
    5.0
    """
    options: dict[str, Any] = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    options |= {"tiered": tiered, "optimize": optimize}
    options |= {"donate_argnums": donate_argnums, "donate_argnames": donate_argnames}
    if fun is None:
        return lambda f: trace(f, **options)
    if isinstance(fun, TensorCarrier):
        matrix: Any = fun
        return matrix.trace()
    require_callable(fun, "trace")
    require_options("trace", (tiered, optimize))
    return Traced(fun, **options)
