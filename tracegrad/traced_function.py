"""Class `Traced`: the compiled function that `trace`, `grad` and the other transforms return."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from tracegrad.explain import Explanation, explain
from tracegrad.ir import Graph
from tracegrad.runtime.dispatch.bound_method import BoundMethod
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.runtime.dispatch.retrace_reasons import show_key
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.describe import describe
from tracegrad.utils.pickling import Recipe, apply_recipe, bound_method, reduced

if TYPE_CHECKING:
    from tracegrad.profile import Profile

__all__ = ["Parameters", "Result", "Traced"]

Parameters = ParamSpec("Parameters")
Others = ParamSpec("Others")
Result = TypeVar("Result")

if TYPE_CHECKING:

    class _Typed(Dispatcher, Generic[Parameters, Result]):
        """Types for type checkers: the parameters and the result of the function."""

        def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result: ...

        @overload
        def __get__(self, instance: None, owner: object = None) -> Traced[Parameters, Result]: ...
        @overload
        def __get__(
            self: _Typed[Concatenate[Any, Others], Result], instance: object, owner: object = None
        ) -> Traced[Others, Result]: ...
        def __get__(self, instance: object, owner: object = None) -> Any: ...
else:
    _Typed = Dispatcher


class Traced(_Typed[Parameters, Result]):
    """Compiled function: traced and compiled when it is called; the result of `trace`, `grad` and other transforms.

    For type checkers it has the parameters of the function, and its result, or `Any` for derivatives.
    """

    # Derivatives are cached in the attributes of this object, as for a Python function.
    remembers = True
    __slots__ = ("recipe",)

    def __init__(self, fun: Callable[..., Any], *, recipe: Recipe | None = None, **options: Any):
        super().__init__(fun, **options)
        self.recipe = (Traced, (), options) if recipe is None and options.get("body") is None else recipe

    @property
    def __globals__(self) -> dict[str, Any]:
        """Return the globals of the function, which decorators and readers of annotations use."""
        fun: Any = self.fun.__wrapped__ if isinstance(self.fun, BoundMethod) else self.fun
        table: dict[str, Any] = fun.__globals__
        return table

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """Pickle by reference if another process can import it; else by the recipe and the function.

        PicklingError if the recipe is not known.
        """
        if isinstance(self.fun, BoundMethod):
            return bound_method, (self.fun.instance, self.fun.__wrapped__.__name__)
        if self.recipe is None:
            raise PicklingError(f"{self} cannot be pickled; pickle the function that it was made of")
        return reduced(self, self.fun, self.recipe)

    def parts(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Return the function that makes this object again, and its arguments; None if that is not known."""
        if self.recipe is None:
            return None
        make, args, keywords = self.recipe
        return apply_recipe, (make, self.fun, args, dict(keywords))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        """Return itself, as for Python functions; a method is bound to a copy of its instance."""
        if isinstance(self.fun, BoundMethod):
            return bound_method(copy.deepcopy(self.fun.instance, memo), self.fun.__wrapped__.__name__)
        return self

    def _repr_html_(self) -> str:
        from tracegrad.utils.html import note, object_html, table

        rows = [
            (", ".join(show_key(self.binder, key)), str(len(path.trace.graph.nodes)), path.stage)
            for key, result in self._specializations.items()
            for path in result.paths
        ]
        info = self.cache_info()
        summary = f"{info.traces} traces, {info.retraces} of them retraces"
        parts = (
            [note(summary), table(("calls with", "nodes", "computed by"), rows)] if rows else [note("not called yet")]
        )
        return object_html(f"traced {self.name}", describe(self.fun).location, parts)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Explain how a call is computed: its guards, its graph, its loops and its kernels.

        The call is traced and compiled if necessary.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the call.

        Returns
        -------
        Explanation
            Text to print.

        Examples
        --------
        >>> print(Traced(lambda x: x + 1).explain(2.0))  # doctest: +ELLIPSIS
        <lambda> (...
        """
        return explain(self, args, kwargs)

    def profile(self, *args: Any, **kwargs: object) -> Profile:
        """Measure the time of each step of a call.

        The call is traced and compiled if necessary. Its program runs for half a second on memory of its own, so arrays
        and objects outside are not updated.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the call.

        Returns
        -------
        Profile
            Times of the steps. Print it.

        Raises
        ------
        UnsupportedError
            If the call runs as plain Python.

        Examples
        --------
        >>> import numpy as np
        >>> [(step.kind, step.bytes) for step in Traced(lambda x: 2 * x).profile(np.ones(100)).steps]
        [('kernel', 1600)]
        """
        from tracegrad.profile import profile

        return profile(self, args, kwargs)

    def as_numba(self, *args: Any) -> Any:
        """Export the function to Numba: the result can be called in `numba.njit` functions.

        Parameters
        ----------
        *args : number or ndarray
            Examples of the arguments. Arrays are in C order. All calls must have their dtypes and shapes.

        Returns
        -------
        callable
            Function to arrays, numbers, or a tuple of them. A call raises ValueError for another shape, ArithmeticError
            if the function would raise, and Numba's own errors for other types.

        Raises
        ------
        UnsupportedError
            If calls depend on values (`if x[0] > 0`), change something outside, or run as plain Python.

        Notes
        -----
        Captured variables keep the values that they have now. Calls need neither Python nor the GIL. The machine code
        stays in memory for the life of the process.

        Examples
        --------
        >>> import numpy as np
        >>> square_sum = Traced(lambda x: np.sum(x * x)).as_numba(np.ones(3))
        >>> import numba
        >>> numba.njit(lambda x: square_sum(x) + square_sum(2.0 * x))(np.ones(3))
        15.0
        """
        from tracegrad.numba_export import as_numba

        return as_numba(self, args)

    def as_cfunc(self, signature: Any) -> Any:
        """Export a function of numbers as a C function.

        Parameters
        ----------
        signature : str or Numba signature
            Types of the result and of the arguments, for example `"float64(float64)"`.

        Returns
        -------
        CFunc
            Result of `numba.cfunc`, with the attributes `address`, `ctypes` and `cffi`. Numba prints errors in calls.

        Raises
        ------
        UnsupportedError
            As for `as_numba`.

        Examples
        --------
        >>> import numpy as np
        >>> Traced(lambda x, y: np.sin(x) * y).as_cfunc("float64(float64, float64)").ctypes(0.0, 3.0)
        0.0
        """
        from tracegrad.numba_export import as_cfunc

        return as_cfunc(self, signature)

    def graph(
        self,
        *args: Any,
        **kwargs: Any,
    ) -> Graph:
        """Return the graph of a call as it was recorded, before the passes.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the call.

        Returns
        -------
        Graph
            Graph with the names of the arguments. Its text is parsed by `tracegrad.ir.parse`, which returns an equal
            graph.

        Examples
        --------
        >>> print(Traced(lambda x: x + x)(1.5), Traced(lambda x: x + x).graph(1.5))
        3.0 graph(x: f64[]) {
          %1 = add(x, x) : f64[]
          return %1
        }
        """
        call = self.binder.bind_checked(args, kwargs)
        result = self.find(call)[0].trace
        rewind(call)
        return result.graph.named(result.input_names(self.binder.leaf_names(call)))
