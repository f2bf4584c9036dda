"""What `trace`, `grad` and the other transforms give: a function that is compiled, and tells what it is compiled to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from tracegrad.explain import Explanation, explain
from tracegrad.ir import Graph
from tracegrad.runtime.dispatch.bound_method import Method
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.runtime.dispatch.retrace_reasons import show_key
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.describe import describe
from tracegrad.utils.pickling import Recipe, bound_method, made_again, reduced

if TYPE_CHECKING:
    from tracegrad.profile import Profile

__all__ = ["Parameters", "Result", "Traced"]

Parameters = ParamSpec("Parameters")
Others = ParamSpec("Others")
Result = TypeVar("Result")

if TYPE_CHECKING:

    class _Typed(Dispatcher, Generic[Parameters, Result]):
        """What type checkers know: the parameters of the function, and what it gives."""

        def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result: ...

        @overload
        def __get__(self, instance: None, owner: Any = None) -> Traced[Parameters, Result]: ...
        @overload
        def __get__(
            self: _Typed[Concatenate[Any, Others], Result], instance: object, owner: Any = None
        ) -> Traced[Others, Result]: ...
        def __get__(self, instance: Any, owner: Any = None) -> Any: ...
else:
    _Typed = Dispatcher


class Traced(_Typed[Parameters, Result]):
    """A function that is traced and compiled when it is called: what `trace`, `grad` and `value_and_grad` return.

    For type checkers it has the parameters of the function, and gives what that gives, or for derivatives, `Any`.
    """

    # Derivatives of it are kept with it, as they are with a Python function.
    remembers = True
    __slots__ = ("recipe",)

    def __init__(self, fun: Callable[..., Any], *, recipe: Recipe | None = None, **given: Any):
        super().__init__(fun, **given)
        self.recipe = (Traced, (), given) if recipe is None and given.get("body") is None else recipe

    @property
    def __globals__(self) -> dict[str, Any]:
        """Those of the function, which decorators and readers of annotations ask for."""
        fun: Any = self.fun.__wrapped__ if isinstance(self.fun, Method) else self.fun
        found: dict[str, Any] = fun.__globals__
        return found

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """By reference where another process can import it; else it is made again, of the function that it was made
        of. PicklingError where that is not known."""
        if isinstance(self.fun, Method):
            return bound_method, (self.fun.instance, self.fun.__wrapped__.__name__)
        if self.recipe is None:
            raise PicklingError(f"{self} cannot be pickled; pickle the function that it was made of")
        return reduced(self, self.fun, self.recipe)

    def parts(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """What makes it again, and of which parts; None where that is not known."""
        if self.recipe is None:
            return None
        make, args, keywords = self.recipe
        return made_again, (make, self.fun, args, dict(keywords))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Itself, as of Python's functions; of a method, that of a copy of its instance."""
        if isinstance(self.fun, Method):
            return bound_method(copy.deepcopy(self.fun.instance, memo), self.fun.__wrapped__.__name__)
        return self

    def _repr_html_(self) -> str:
        from tracegrad.utils.html import note, piece, table

        rows = [
            (", ".join(show_key(self.binder, key)), str(len(path.trace.graph.nodes)), path.stage)
            for key, found in self._specializations.items()
            for path in found.paths
        ]
        info = self.cache_info()
        told = f"{info.traces} traces, {info.retraces} of them retraces"
        parts = [note(told), table(("calls with", "nodes", "computed by"), rows)] if rows else [note("not called yet")]
        return piece(f"traced {self.name}", describe(self.fun).where, parts)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How a call with these arguments is computed; print it. Traces and compiles when need be.

        >>> print(Traced(lambda x: x + 1).explain(2.0))  # doctest: +ELLIPSIS
        <lambda> (...
        """
        return explain(self, args, kwargs)

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """What a call with these arguments takes its time for, measured for half a second; print it.

        Traces and compiles when need be; runs the program on memory of its own, so that what the function does to
        arrays and objects is not done. UnsupportedError for a call that a program cannot compute.

        >>> import numpy as np
        >>> [(step.kind, step.bytes) for step in Traced(lambda x: 2 * x).profile(np.ones(100)).steps]
        [('kernel', 1600)]
        """
        from tracegrad.profile import profile

        return profile(self, args, kwargs)

    def as_numba(self, *args: Any) -> Any:
        """This function for code of Numba's: what `numba.njit` functions call as one of their own.

        The arguments are examples: arrays, of whose dtypes and shapes those of all calls must be, in C order, and
        numbers. Results are arrays, numbers, or a tuple of them. What the function has captured is as it was when this
        was called, and stays so. Calls need neither Python nor the GIL; the code stays for the life of the process.

        `UnsupportedError` where calls depend on values (`if x[0] > 0`), change something outside, or run as plain
        Python. In calls, `ValueError` for another shape, `ArithmeticError` where the function would raise; Numba's
        own errors for other types.

        >>> import numpy as np
        >>> slope = Traced(lambda x: np.sum(x * x)).as_numba(np.ones(3))
        >>> import numba
        >>> numba.njit(lambda x: slope(x) + slope(2.0 * x))(np.ones(3))
        15.0
        """
        from tracegrad.numba_export import as_numba

        return as_numba(self, args)

    def as_cfunc(self, signature: Any) -> Any:
        """This function of numbers as a C function, with the signature that Numba writes `"float64(float64)"`: what
        `numba.cfunc` gives, with an `address`, `ctypes` and `cffi`. Errors as for `as_numba`; in calls, Numba prints
        them.

        >>> import numpy as np
        >>> Traced(lambda x, y: np.sin(x) * y).as_cfunc("float64(float64, float64)").ctypes(0.0, 3.0)
        0.0
        """
        from tracegrad.numba_export import as_cfunc

        return as_cfunc(self, signature)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph that a call with these arguments recorded; `tracegrad.ir.parse(str(graph)) == graph`.

        >>> print(Traced(lambda x: x + x)(1.5), Traced(lambda x: x + x).graph(1.5))
        3.0 graph(x: f64[]) {
          %1 = add(x, x) : f64[]
          return %1
        }
        """
        call = self.binder.take_apart_fitting(args, kwargs)
        made = self.find(call)[0].trace
        rewind(call)
        return made.graph.named(made.input_names(self.binder.leaf_names(call)))
