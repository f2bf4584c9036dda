"""Adapters of functions of pytrees to compiled functions of a vector, with the derivatives that a solver needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import api, tree
from tracegrad.errors import located
from tracegrad.locks import cached_property
from tracegrad.runtime.dispatch.closure_families import remembered
from tracegrad.scipy.ravel_pytree import Vector, joined
from tracegrad.scipy_api.registry import shadow_of
from tracegrad.solvers.scipy_function import scipy_function
from tracegrad.trace.builder.builder import current_trace
from tracegrad.transform_support import standing_for
from tracegrad.transforms.flat_function import inlined

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import NDArray


__all__ = ["Both", "OfVector", "ResidualFunction", "WithGradient", "checked", "compiled", "number", "of_scipy"]

Function = Callable[..., Any]


def of_scipy(name: str) -> Any:
    """Return the SciPy function of a name such as `optimize.root`; in a trace, its shadow."""
    result = scipy_function(name)
    return result if current_trace() is None else shadow_of(result)


def compiled(fun: Function, key: object, make: Callable[[Function], Function], name: str) -> Any:
    """Apply `make` to a function, compile the result, and cache it on the function under this key and `name`."""

    def body(*args: object) -> Any:
        return make(fun)(*args)

    return remembered(fun, ("scipy", key), lambda: standing_for(fun, body, name))


class OfVector:
    """Adapter of a function with one pytree argument to a function of the vector of the pytree.

    The functions that its methods return are compiled at their first call. They are cached on `fun`, and the next
    solver of the same function reuses them.
    """

    def __init__(self, fun: Function, vector: Vector, argnum: int = 0):
        if not callable(fun):
            raise TypeError(located(f"{vector.api_name} takes a function, got a {type(fun).__name__}"))
        self.fun, self.vector, self.argnum = fun, vector, argnum

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)

    def plain(self, *args: object) -> Any:
        """Evaluate the function itself, uncompiled."""
        x = self.vector.unpack(args[self.argnum])
        return inlined(self.fun)(*args[: self.argnum], x, *args[self.argnum + 1 :])

    def transformed(self, name: str, make: Callable[[Function], Function]) -> Any:
        """Apply a transform to the function of the vector; `name` is the cache key, and its name in messages."""

        key = (self.vector.key, self.argnum, name)
        return compiled(self.fun, key, lambda _: make(self._as_function()), f"{self.vector.api_name}: {name}")

    def _as_function(self) -> Function:
        def flat(*args: object) -> Any:
            return self.plain(*args)

        flat.__wrapped__ = self.fun  # type: ignore[attr-defined]
        return flat

    def value(self) -> Any:
        """Return the compiled function `(v, *args) -> scalar`."""
        return self.transformed("value", lambda flat: flat)

    def value_and_gradient(self) -> Any:
        """Return the compiled function `(v, *args) -> (scalar, vector)`."""
        return self.transformed("value and gradient", lambda flat: api.value_and_grad(flat, self.argnum))

    def hessian(self) -> Any:
        """Return the compiled function `(v, *args) -> matrix`."""
        return self.transformed("Hessian", lambda flat: api.hessian(flat, self.argnum))

    def product(self) -> Any:
        """Return the compiled function `(v, p, *args) -> vector`, the Hessian times `p`."""

        def make(flat: Function) -> Function:
            return lambda v, p, *args: api.hvp(lambda v: flat(v, *args), (v,), (p.astype(np.float64),))

        return self.transformed("Hessian-vector product", make)


class WithGradient(OfVector):
    """Function that returns its gradient together with its value; second derivatives differentiate that gradient."""

    def __call__(self, *args: Any) -> Any:
        value, gradient = self.plain(*args)
        return value, self.vector.pack(gradient)

    def value_and_gradient(self) -> Any:
        return self.fun if self.vector.flat and current_trace() is None else self

    def hessian(self) -> Any:
        return self.transformed("Jacobian of the gradient", lambda flat: api.jacfwd(self._gradient(flat), self.argnum))

    def product(self) -> Any:
        def make(flat: Function) -> Function:
            def along(v: Any, p: Any, *args: Any) -> Any:
                return api.jvp(lambda v: self._gradient(flat)(v, *args), (v,), (p.astype(np.float64),))[1]

            return along

        return self.transformed("derivative of the gradient", make)

    def _gradient(self, flat: Function) -> Function:
        return lambda *args: self.vector.pack(flat(*args)[1])


class ResidualFunction(OfVector):
    """Adapter of a function with a pytree as result to a function with the vector of the result."""

    count: int | None = None

    @cached_property
    def _elements(self) -> Any:
        return self.transformed("elements", _flat_result)

    @cached_property
    def _compiled_jac(self) -> Any:
        assert self.count is not None
        by = api.jacfwd if self.count >= self.vector.size else api.jacrev
        return self.transformed(by.__name__, lambda flat: by(_flat_result(flat), self.argnum))

    def __call__(self, *args: Any) -> Any:
        result = self._elements(*args)
        self.count = result.size
        return result

    def jacobian(self, *args: object) -> Any:
        """Compute the Jacobian, a matrix with a row for each element of the result."""
        if self.count is None:
            self(*args)
        return self._compiled_jac(*args)

    def with_jacobian(self, *args: object) -> tuple[Operand, ...]:
        """Return result and Jacobian of a function that returns both."""
        result, jacobian = self.plain(*args)
        return joined(tree.leaves(result)), jacobian

    def weighted_hessian(self) -> Any:
        """Return the compiled function `(v, weights) -> matrix`, the Hessian of the weighted sum of the elements."""
        return self.transformed(
            "Hessian of the elements", lambda flat: api.hessian(lambda v, w: np.dot(w, _flat_result(flat)(v)))
        )


def _flat_result(flat: Function) -> Function:
    return lambda *args: joined(tree.leaves(flat(*args)))


def number(value: Function) -> Function:
    """Convert `value`, a function to a scalar, to a function to a float; in a trace return it unchanged."""

    def call(*args: object) -> Any:
        result = value(*args)
        return float(result) if isinstance(result, np.ndarray | np.generic) else result

    return call


def checked(vector: Vector, both: Function) -> Function:
    """Wrap `both`, a function to a value and a gradient: raise if the value is finite and the gradient is nan.

    A solver would continue with the nan, and stop at an arbitrary point.
    """

    def call(v: object, *args: object) -> Any:
        value, gradient = both(v, *args)
        if isinstance(gradient, np.ndarray) and math.isnan(np.dot(gradient, gradient)) and np.isfinite(value):
            indices = np.flatnonzero(np.isnan(gradient))
            if indices.size:
                raise FloatingPointError(located(f"{vector.api_name}: {_nan_message(vector, indices, value)}"))
        return value, gradient

    return call


class Both:
    """Split a function of ndarrays to a value and a gradient into two functions, with one evaluation at each point.

    SciPy does the same for `jac=True`, with a large overhead in Python.
    """

    def __init__(self, both: Function):
        self._both = both
        self._key: bytes | None = None
        self._cached: Any = None

    def value(self, v: object, *args: object) -> Any:
        return self._at(v, args)[0]

    def gradient(self, v: object, *args: object) -> Any:
        return self._at(v, args)[1]

    def _at(self, v: object, args: tuple[Any, ...]) -> Any:
        key = np.asarray(v).tobytes()
        if key != self._key:
            self._cached = self._both(v, *args)
            self._key = key
        return self._cached


def _nan_message(vector: Vector, indices: NDArray, value: float) -> str:
    others = f" and at {indices.size - 1} more elements" if indices.size > 1 else ""
    return f"the gradient is nan at {vector.element_name(int(indices[0]))}{others}, where the value is {value}"
