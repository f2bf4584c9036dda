"""Tracers: traced arrays, with views, in-place updates and memory layout.

A tracer is a box that holds a node of the trace's graph. NumPy's operators, methods and functions record nodes for it
(`numpy_api`). A value that Python code reads is the value of the call being traced, and leaves a guard.

An in-place update puts another node into the box (`TracedMemory`). Arrays from outside (arguments, captured arrays) are
updated in the same way, and each call writes the results into the caller's arrays (`tracegrad.trace.effects.effects`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tracegrad.cpython.frames import frame_at
from tracegrad.numpy_api.faces import has
from tracegrad.ops import DispatchLevel, Op
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.shape.linear import cast, reshape
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.values.display import UnknownText, is_watched
from tracegrad.trace.values.operation_plans import array_ufunc, fast_operators, picked
from tracegrad.trace.values.text_conversions import method_of
from tracegrad.trace.values.traced_memory import TracedMemory
from tracegrad.typing import DType, NDArray

_OF_SCALARS = frozenset({"as_integer_ratio", "bit_count", "hex", "is_integer"})


class Tracer(TracedMemory):
    """Traced array of the call being traced."""

    __slots__ = ()
    __add__, __radd__ = fast_operators(elementwise.add, "add")
    __sub__, __rsub__ = fast_operators(elementwise.subtract, "sub")
    __mul__, __rmul__ = fast_operators(elementwise.multiply, "mul")
    __truediv__, __rtruediv__ = fast_operators(elementwise.divide, "truediv")
    __array_ufunc__ = array_ufunc

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        builder = self.builder
        while builder.inner is not None:
            builder = builder.inner
        result = builder.emit(op, operands, params)
        if not builder.makes_views:
            return result
        if op.aliases:
            return operands[0]._aliased(op, params, result)
        if type(result) is not tuple and len(result.node.aval.shape) < 2:
            return result  # it has only one memory layout
        layout_inputs, odd = 0, False
        for x in operands:
            if isinstance(x, Tracer):
                layout_inputs |= x.layout_inputs
                odd = odd or x.stand_in is not None or x.origin is not None
        if (layout_inputs or odd) and op.order != "C":
            if odd:
                self._lay_out(op, operands, params, result)
            for each in result if type(result) is tuple else (result,):
                each.layout_inputs = layout_inputs
        return result

    def concrete(self, query: str) -> NDArray:
        """The value in the call being traced; leaves a guard on it."""
        watched = self.builder.open and is_watched()
        return self.builder.compute(self.node) if watched else self.builder.observe(self, query)

    # -- values ----------------------------------------------------------------------------------
    def _plain(self, query: str) -> Any:
        """The value as plain Python would have it: an ndarray, a NumPy scalar or a Python number."""
        if not self.builder.open or (query == "repr()" and not self.builder.innermost().knows(self)):
            return self.shown()
        return self._like(self.concrete(query))

    def shown(self) -> Any:
        """The value in the call being traced, for display; leaves no guard."""
        if not self.builder.innermost().knows(self):
            return UnknownText(f"{type(self).__name__}({self.aval})")
        return self._like(self.builder.compute(self.node))

    def _like(self, value: NDArray) -> object:
        return value.item() if self.weak else value if self.shape or self.is_array else value[()]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if (
            self.shape
            and self.builder.world.once
            and not self._is_differentiated()
            and self.builder.innermost().knows(self)
        ):
            return np.array(self.builder.compute(self.node), dtype)  # the trace is of one call only
        if self.shape or self._is_differentiated():
            return super().__array__(dtype, copy)
        return np.asarray(self.concrete("the value"), dtype or self.dtype)

    def _is_differentiated(self) -> bool:
        return self.builder.innermost().has_derivative(self.node)

    def _python_number(self, query: str) -> Any:
        x: Any = reshape(self, shape=()) if self.shape else self
        if self.dtype == np.uint64 and not self.builder.innermost().holds(elementwise.less_equal(x, 2**63 - 1)):
            return super()._python_number(query)
        wanted = {"f": "float64", "i": "int64", "u": "int64", "b": "bool", "c": "complex128"}[self.dtype.kind]
        x = x if x.dtype == wanted else cast(x, dtype=wanted)
        return x.builder.python_number(x.node)

    def __round__(self, ndigits: int | None = None) -> Any:
        if self.dtype.kind == "b" and not self.weak:
            raise TypeError("type numpy.bool doesn't define __round__ method")
        whole = ndigits is None and not self.shape and not self.is_array
        return round(self.item()) if whole else super().__round__(ndigits)

    def __getattr__(self, name: str) -> Any:
        """A method of NumPy scalars, computed with the value of the call."""
        kind = self.dtype.type
        if name in _OF_SCALARS and not self.shape and not self.is_array and hasattr(kind, name):
            of_float = name == "is_integer" and self.dtype.kind == "f"
            return self.item().is_integer if of_float else method_of(self, self.concrete(f"{name}()")[()], name)
        has(self, name)  # raises if this is not known
        owner = kind.__name__ if self._immutable_scalars and not self.shape else "numpy.ndarray"
        raise AttributeError(f"'{owner}' object has no attribute {name!r}")

    def __copy__(self) -> Any:
        return self._weakened(self._alias()) if self.weak else self.copied()

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        return self.__copy__()

    def _known(self) -> NDArray | None:
        return self.builder.constant(self)

    def _lift(self, x: object) -> Any:
        return self.builder.innermost().lift(x)

    def _entered(self, tensor: object) -> Any:
        """The stand-in of a Tensor with this array in the current region, if there is one."""
        return self.builder.innermost().entered(tensor)

    def _stand_in(self, tensor: object) -> object:
        """The stand-in of a Tensor from outside in this trace."""
        return self.builder.tensors.of(tensor)

    def _grad_of(self, outside: object) -> object:
        return self.builder.tensors.grad_of(outside)

    def _in_region(self) -> bool:
        """Whether a region is being recorded; its graph outlives the trace."""
        return self.builder.innermost().outer is not None

    def _closed_rule(self, *call: Any) -> object:
        return self.builder.innermost().closed_rule(*call)

    def __iter__(self) -> Iterator[Any]:
        return HOOKS.iterator_of(self, frame_at(1))

    def __getitem__(self, index: Any) -> Any:
        kind = type(index)
        if kind is int or kind is tuple:
            result = picked(self, index if kind is tuple else (index,))
            if result is not None:
                return result
        return super().__getitem__(index)

    def __setitem__(self, index: object, value: object) -> None:
        if not self.shape and not self.is_array:
            raise TypeError(f"'{type(self.dtype.type()).__name__}' object does not support item assignment")
        super().__setitem__(index, value.stored(self.dtype) if hasattr(value, "stored") else value)

    def stored(self, dtype: DType) -> Any:
        """The value to store when this is assigned into an array of this dtype."""
        return self

    def _span(self, index: object) -> object:
        """The selection of an index with symbolic bounds; else None."""
        if not _may_be_of_sizes(index):
            return None
        return HOOKS.ragged_arrays().item(self, index)

    def _with_span(self, index: object, value: object) -> Any:
        """This array with `value` assigned at an index with symbolic sizes; else None."""
        if getattr(value, "level", None) is not DispatchLevel.SPAN and not _may_be_of_sizes(index):
            return None
        return HOOKS.ragged_arrays().with_item(self, index, value)


def _may_be_of_sizes(index: object) -> bool:
    """Whether an index contains slices or masks with traced values."""
    for x in index if type(index) is tuple else (index,):
        if isinstance(x, Tracer) and x.node.aval.dtype.kind == "b" and x.node.aval.shape:
            return True
        if type(x) is slice and (isinstance(x.start, Tracer) or isinstance(x.stop, Tracer)):
            return True
    return False
