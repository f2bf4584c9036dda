"""`trace`, the decorator that compiles a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from tracegrad.reroll import find_circles, roll
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.traced_function import Parameters, Result, Traced
from tracegrad.transform_support import require_callable, require_options

__all__ = ["trace"]

TraceBuilder.roll = staticmethod(roll)
TraceBuilder.find_circles = staticmethod(find_circles)

Function = Callable[..., Any]


@overload
def trace(
    fun: Callable[Parameters, Result], *, static_argnums: Any = (), static_argnames: Any = (),
    tiered: bool | None = None, optimize: int | None = None, donate_argnums: Any = (), donate_argnames: Any = (),
) -> Traced[Parameters, Result]: ...  # fmt: skip
@overload
def trace(
    *, static_argnums: Any = (), static_argnames: Any = (), tiered: bool | None = None, optimize: int | None = None,
    donate_argnums: Any = (), donate_argnames: Any = (),
) -> Callable[[Callable[Parameters, Result]], Traced[Parameters, Result]]: ...  # fmt: skip
def trace(
    fun: Function | None = None, *, static_argnums: Any = (), static_argnames: Any = (), tiered: bool | None = None,
    optimize: int | None = None, donate_argnums: Any = (), donate_argnames: Any = (),
) -> Any:  # fmt: skip
    """Compile a NumPy function: trace it at the first call, and run the compiled program from then on.

    Parameters
    ----------
    fun : callable; without it, a decorator is returned
    static_argnums, static_argnames : int or str, or sequence of them; arguments that are constants, hashable
    tiered : bool, optional
        True: NumPy evaluates calls op by op while another thread compiles, if that is faster than to wait. False: the
        first call waits. Default: `settings.first_call`; NumPy evaluates the first call, the second compiles.
    optimize : {1, 2, 3}, optional
        1 compiles fastest, 3 makes the fastest code. Default: `settings.optimize`, 2: nearly as fast, and sooner.
    donate_argnums, donate_argnames : int or str, or sequence of them; arguments to overwrite with results, as in JAX

    Returns
    -------
    Traced, the compiled function; functions derived from it, as by `grad`, have the same options

    Raises
    ------
    TraceError, DTypeError, UnsupportedError for other types, dtypes or NumPy functions, with the user's file and line
    ValueError if a static or donated argument does not exist, or is both

    Notes
    -----
    Arguments are ndarrays, NumPy scalars, Python numbers, and pytrees of them (tuple, list, dict, namedtuple,
    dataclass, None, `register_pytree_node`). Each structure, dtype, shape and static value has its own program, and so
    has each answer to Python code that asks for a value (`if x.sum() > 0`). Every call reads the variables from
    outside, and changes arrays, objects and names there; text is printed once per trace. NumPy's results differ by
    rounding only. If the compiling thread fails, NumPy goes on, and a later call issues a `PerformanceWarning`.

    A result may be written into a donated array of its shape and dtype, and is then that array, so that a training step
    `params = step(params, x)` allocates nothing. Results change by rounding at most; the array's content is undefined
    for all who refer to it. Views, read-only arrays and arrays that share memory with another argument are not
    overwritten, nor is any array if a result depends on answers to questions for values.

    Examples
    --------
    >>> import numpy as np
    >>> @trace
    ... def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> print(norm(np.array([3.0, 4.0])))
    5.0
    """
    options = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    options |= {"tiered": tiered, "optimize": optimize}
    options |= {"donate_argnums": donate_argnums, "donate_argnames": donate_argnames}
    if fun is None:
        return lambda f: trace(f, **options)
    require_callable(fun, "trace")
    require_options("trace", (tiered, optimize))
    return Traced(fun, **options)
