"""Tensor inside a trace.

Its `array` is a tracer. Operations are recorded twice: in the graph of the trace, and on the tape, by the code of eager
Tensors. A backward pass inside a trace therefore becomes nodes of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tracegrad.avals import Size
from tracegrad.errors import ShapeError, located, warn_of_constant
from tracegrad.ops.core.op import Carrier, DispatchLevel, Op
from tracegrad.ops.shape.linear import fresh, stop_gradient
from tracegrad.torch.functions.core.dims import as_pytorchs
from tracegrad.torch.functions.core.promotion import in_one_dtype
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors import aliasing
from tracegrad.torch.tape.tensors.indexing import get_item
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracegrad.typing import Array


class TracedTensor(Tensor):
    """Tensor inside a trace: its `array` is a tracer, and operations are recorded in the graph and on the tape.

    A backward pass inside a trace therefore becomes nodes of the graph.
    """

    level = DispatchLevel.TRACED_TENSOR
    # For the stand-in of an outside Tensor: the trace's record of that Tensor, whose gradient is captured when read.
    _outside: Any = None

    _local_grad: Any = None

    @property
    def shape(self) -> Size:
        return tuple.__new__(Size, self.array.shape)  # sizes may be numbers of the trace

    def __init__(self, array: Any, requires_grad: bool = False):
        super().__init__(_as_array(array), requires_grad)

    def _like(self, array: object) -> Self:
        return super()._like(_as_array(array))

    @property
    def _grad(self) -> Any:
        result = self._outside
        if result is not None and not result.read:
            self._local_grad = self.array._grad_of(result)
        return self._local_grad

    @_grad.setter
    def _grad(self, value: TracedTensor) -> None:
        if self._outside is not None and not self._outside.read:
            self._outside.replaces()
        self._local_grad = self._lift(value) if isinstance(value, Recorded) else value

    def _as_view_of_outside(self) -> tuple[Any, Callable[..., Any], tuple[object, ...]] | None:
        """Return the trace's record of the outside Tensor that this one is a view of, and how each call makes the view.

        None if it is no such view, or if its index is a value of the trace.
        """
        base, records = self._base, self._kind_of_view != "no_grad"
        if base is None or base._outside is None or (base._requires and records != self._requires):
            return None
        same = tuple(base.shape) == tuple(base._outside.node.aval.shape)
        steps = aliasing.constant_steps(self) if same else None
        return None if steps is None else (base._outside, aliasing.retraced, (steps, records))

    def _reached(self) -> None:
        if self._outside is not None:
            self.array.builder.tensors.hooks_of(self._outside)

    def bind(self, op: Op, operands: tuple[object, ...], params: dict[str, Any]) -> Any:
        around = None if op is fresh else self._around(operands)  # a fresh value belongs to the region
        if around is not None:
            with around.outside():
                return self.bind(op, operands, params)
        args = tuple([self._lift(x) if isinstance(x, Recorded) else x for x in operands])
        arrays = tuple([x.array if isinstance(x, Recorded) else x for x in args])
        arrays = in_one_dtype(op, arrays)
        return self._result(op, args, arrays, params, self._traced(op, arrays, params))

    def _traced(self, op: Op, arrays: tuple[Array, ...], params: Mapping[str, object]) -> Any:
        try:
            ans = op(*arrays, **params)
        except ShapeError as error:
            raise as_pytorchs(error, arrays) from None
        if ans.__class__ is tuple:
            return ans
        if not isinstance(ans, Carrier):
            ans = self.array._lift(np.asarray(ans))
        return ans if all(ans is not x for x in arrays) else ans._alias()

    def composed(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        around = self._around(x for arg in args for x in (arg if type(arg) in (list, tuple) else (arg,)))
        if around is not None:
            with around.outside():
                return super().composed(name, fn, args, kwargs)
        return super().composed(name, fn, tuple(map(entered, args)), kwargs)

    def __getitem__(self, index: Any) -> Any:
        around = self._around(index if type(index) is tuple else (index,))
        if around is not None:
            with around.outside():
                return get_item(self, index)
        return get_item(entered(self), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        around = self._around(index if type(index) is tuple else (index,))
        if around is None:
            super().__setitem__(index, value)
            return
        array = value.array if isinstance(value, TracedTensor) else value
        shared = _shared_by_examples(array, around)
        with around.outside():
            super().__setitem__(index, value if shared is array else shared)

    def _around(self, operands: Iterable[object]) -> Any:
        """Return the trace around the regions of examples to which this Tensor and the operands do not belong.

        None if they belong to the innermost region.
        """
        innermost = around = self.array.builder.innermost()
        if not innermost.is_of_examples:
            return None
        arrays = [self.array, *[x.array if isinstance(x, TracedTensor) else x for x in operands]]
        owners = {getattr(x, "builder", None) for x in arrays}
        while around.is_of_examples and around not in owners:
            around = around.outer
        return None if around is innermost else around

    def clone(self, *, memory_format: object = None) -> TracedTensor:
        """Return a copy, which derivatives flow through."""
        return super(TracedTensor, entered(self)).clone(memory_format=memory_format)

    _alias = clone

    def contiguous(self, memory_format: object = None) -> Any:
        """Return the Tensor itself if it is contiguous, else a row-major copy."""
        result = super().contiguous(memory_format)
        assert isinstance(result, Recorded)
        return result._in_order("C")

    def _lift(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return entered(x if isinstance(x, TracedTensor) else self.array._stand_in(x))
        return self._like(x if isinstance(x, Carrier) else self.array._lift(np.asarray(x)))

    def _constant(self, x: object, /) -> Any:
        return self._lift(x)

    def concrete(self, query: str) -> NDArray:
        self._warn_of(query)
        result: NDArray = self.array.concrete(query)
        return result

    def _warn_of(self, query: str) -> None:
        # `item()` does not warn: users call it explicitly.
        if query in ("float()", "complex()") and self.requires_grad and STATE.enabled:
            warn_of_constant(query)

    def numpy(self, *, force: bool = False) -> Any:
        """Return the array of the trace, in the same memory."""
        refused = self._requires and STATE.enabled and not force
        return super().numpy() if refused else self.array

    def _numbers(self, query: str) -> Any:
        self._warn_of(query)
        # The tape ends here, but a transform of a function of ndarrays differentiates the tracer.
        return self.array if self.array._is_differentiated() else stop_gradient(self.array)

    def _known(self) -> Any:
        return self.array._known()

    def _shares(self, ans: Array, array: object) -> bool:
        origin = getattr(ans, "origin", None)
        return origin is not None and origin.shared and origin.base is array

    def _snapshot(self) -> Any:
        return self.array._alias()

    def _copied(self) -> Any:
        return self.array._alias()

    def _store(self, array: Array) -> None:
        owner = self.array.builder
        around = self._around(())
        if around is not owner:  # the array belongs to the innermost region, or to a trace around one of iterations
            self.array._assign(array)
            return
        array = _shared_by_examples(array, owner)
        with owner.outside():
            self.array._assign(array)

    def _holds(self, array: Any) -> bool:
        return array.__class__ is self.array.__class__ and array.node is self.array.node


def _as_array(array: Any) -> Any:
    """Return the array of a Tensor; without axes it counts as an array with views, not as a NumPy scalar."""
    if hasattr(array, "is_array"):
        if array.weak and not array.is_array:  # other code may use this tracer as a number
            array = type(array)(array.builder, array.node)
        array.is_array = True
    return array


TracedTensor._public_class = TracedTensor


def _shared_by_examples(array: Any, around: Any) -> Any:
    """Return the value in the trace `around` of what is written to a Tensor that is not mapped."""
    region: Any = around.innermost()
    while region is not around:
        belongs = getattr(array, "builder", None) is region
        array = region.known_outside(array.node) if belongs else array
        if array is None:
            text = "there exists a Tensor `other` in extra_args that has more elements than `self`"
            why = "`other` is vmapped over and `self` is not; use an operation that is not in place"
            raise RuntimeError(
                located(f"vmap: inplace arithmetic(self, *extra_args) is not possible because {text}: {why}")
            )
        region = region.outer
    return array


def entered(x: Any) -> Any:
    """Replace a Tensor, or Tensors in a list or tuple, by their values in the region that is being recorded."""
    if isinstance(x, TracedTensor):
        return x.array._entered(x)
    return type(x)(map(entered, x)) if type(x) in (list, tuple) else x
