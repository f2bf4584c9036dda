"""Opaque calls of a `Function`: its code runs untraced at each call of the compiled program.

A call is one node of the graph. Its backward pass is a second node, which reads the context that `forward` has filled
(`residuals.py`). The outputs, each a result of the node, have the shapes and dtypes of the call during tracing. In a
loop or a branch, the function is called during tracing with the values of the first iteration, to determine the shapes,
and again at each iteration. Elsewhere, the result computed during tracing is the result of the first call. Derivatives
of the backward pass raise an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, Aval, aval_of, short_name
from tracegrad.errors import PerformanceWarning, ShapeError, TraceError, UnsupportedError, located
from tracegrad.numpy_api import ArrayMethods
from tracegrad.numpy_api.protocols import require_plain
from tracegrad.ops import Carrier
from tracegrad.ops.calls.custom_call import ForEach, opaque
from tracegrad.ops.core.recorders import aside
from tracegrad.torch.autograd.backward_results import Inputs, zeros
from tracegrad.torch.autograd.function_ctx import ARRAYS, FunctionCtx
from tracegrad.torch.autograd.residuals import ContextResiduals
from tracegrad.torch.modes import no_grad
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors.tensor import of_array

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array, NDArray


__all__ = ["OpaqueApplication", "is_traced", "key_of", "opaque_backward", "opaque_forward"]


def is_traced(x: object) -> bool:
    """Whether `x` is a value of a graph, or a Tensor that holds one."""
    return isinstance(x.array if isinstance(x, Recorded) else x, Carrier)


class OpaqueApplication:
    """Opaque call: its class, its untraced arguments, and the positions and kinds of the traced ones."""

    def __init__(self, cls: Any, args: Sequence[Any]):
        self.cls = cls
        self.positions = [k for k, x in enumerate(args) if is_traced(x)]
        # Traced code may update an untraced array after the call.
        fixed = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
        self.args = [None if k in self.positions else x for k, x in enumerate(fixed)]
        self.tensors = [isinstance(args[k], Recorded) and not isinstance(args[k], ArrayMethods) for k in self.positions]
        self.numbers = [args[k].weak for k in self.positions]
        self.needs = tuple([k in self.positions and aval_of(x).is_inexact for k, x in enumerate(args)])
        self.inputs = Inputs.of(args, self.positions, numbers=True)
        # For each output its aval, or the object itself if it is not an array.
        self.outputs: list[Any] = []
        self.residuals: ContextResiduals
        # The call during tracing: the arrays, the context, the result of `forward`, and the world of the trace.
        self.first: Any = None

    def forward(self, arrays: Sequence[Any]) -> tuple[FunctionCtx, Any]:
        """Call `forward` on these arrays; return the context and the result."""
        args, copies = list(self.args), [x.copy() for x in arrays]
        for k, x, tensor, is_number in zip(self.positions, copies, self.tensors, self.numbers):
            args[k] = of_array(x) if tensor else x.item() if is_number else x
        context: FunctionCtx = self.cls._context_cls()
        context.needs_input_grad = self.needs
        result = self.cls.computed(context, tuple(args))
        if context.dirty_tensors or not all(map(_identical, arrays, copies)):
            raise UnsupportedError(located(f"{self.cls.__name__} is opaque to traces, so it cannot update its inputs"))
        context._saved = context.to_save
        return context, result

    def traced(self, arrays: Sequence[Any]) -> tuple[FunctionCtx, Any]:
        """Call `forward` during tracing; if the inputs have no values, return a foreseen result."""
        kinds = self.key, *(x.aval for x in arrays)
        try:
            with aside(), no_grad():
                examples = [x.builder.example(x.node) for x in arrays]
                outputs = self.forward(examples)
        except TraceError:
            result = self.cls._foreseen(self.args, kinds)
            if result is None:
                raise
            return self.cls._context_cls(), result
        except Exception as error:
            arrays[0].builder.world.natives.raises_aside(self.cls.__name__, error)
            raise
        self.first = (examples, *outputs, arrays[0].builder.world)
        self.cls._remember(self.args, kinds, outputs[1])
        return outputs

    @property
    def key(self) -> object:
        """Return a key that is equal for calls with equal arguments, if the class is pure; else a unique key.

        The first argument is compared by `==`.
        """
        if not self.cls._pure:
            return id(self)
        kinds = repr((self.positions, self.tensors, self.numbers))
        return self.cls, kinds, self.args[0], *map(key_of, self.args[1:])

    def called(self, arrays: Sequence[Any]) -> tuple[FunctionCtx, Any]:
        """Call `forward`, or return the result computed during tracing for the first call.

        Before the trace ends, the node may be evaluated several times, so the result is stored until then.
        """
        first = self.first
        if first is not None and not first[3].open:
            self.first = None
        if first is not None and all(map(_identical, first[0], arrays)):
            return first[1], first[2]
        return self.forward(arrays)

    def backward(self, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Array]:
        """Compute the cotangents of the arrays from the cotangents of the outputs (None: absent)."""
        context = self.residuals.restored(self.cls, self.needs, residuals)
        args: list[Any] = []
        for x, ct in zip(self.outputs, cts):
            if ct is None and context.materialize_grads and isinstance(x, Aval):
                ct = zeros(x)
            args.append(of_array(ct.copy()) if ct is not None and any(self.tensors) else ct)
        result = self.cls.pulled(context, args)
        wanted = [self.needs[k] for k in self.positions]
        cotangents = self.inputs.cotangents(self.cls._backward_cls.__name__, result, wanted)
        pairs = [(x, s) for x, s, needed in zip(cotangents, self.inputs.specs, wanted) if needed]
        return [np.zeros(s.shape, s.dtype) if x is None else _plain(x) for x, s in pairs]


def key_of(x: NDArray | None) -> object:
    """Return a key that is equal for equal arrays, numbers, strings and None, and for identical other objects."""
    if isinstance(x, np.ndarray):
        return x.dtype, x.shape, id(x) if x.dtype.hasobject else x.tobytes()
    return (type(x), repr(x)) if x is None or isinstance(x, (str, bytes, *LITERALS)) else id(x)


def _identical(x: NDArray, y: NDArray) -> bool:
    shape: tuple[int, ...] = np.shape(x)
    return shape == np.shape(y) and np.asarray(x).tobytes() == np.asarray(y).tobytes()


def _as_outputs(result: object) -> tuple[object, ...]:
    """Return the outputs in the result of `forward`, as a tuple."""
    return tuple([_plain(x) for x in (result if isinstance(result, tuple) else (result,))])


def _known(cls: Any, x: Any) -> Any:
    """Return the part of an output that is equal in all calls: the aval of an array, or the output itself."""
    require_plain(x, lambda: f"{cls.__name__} is opaque to traces, and what it returns")
    if isinstance(x, np.ndarray | np.generic | int | float | complex):
        return aval_of(np.asarray(x))
    if x is not None and not isinstance(x, str | bytes):
        text = f"{cls.__name__} is opaque to traces and returns a {type(x).__name__}, which may differ in each call"
        raise UnsupportedError(located(f"{text}; return arrays, numbers, strings or None"))
    return x


def _plain(x: Any) -> Any:
    return x.array if isinstance(x, Recorded) else x


class _Forward:
    """Computation of a call's node; equal computations are one node."""

    def __init__(self, call: OpaqueApplication):
        self.call, self.key = call, call.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Forward) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return repr(self.call.cls.__name__)

    def __call__(self, *arrays: Any) -> Any:
        call = self.call
        with aside(), no_grad():
            context, result = call.called(arrays)
        outputs = _as_outputs(result)
        if len(outputs) != len(call.outputs):
            text = f"{call.cls.__name__} is opaque to traces and returned {len(outputs)} values"
            raise ShapeError(f"{text}, not {len(call.outputs)} as when it was traced")
        for x, known in zip(outputs, call.outputs):
            now = _known(call.cls, x)
            if now != known:
                text = f"{call.cls.__name__} is opaque to traces and returned {now!s}, not {known!s}"
                raise ShapeError(f"{text} as when it was traced for inputs of these shapes")
        args = [x for x, known in zip(outputs, call.outputs) if isinstance(known, Aval)]
        return [*args, *call.residuals.of(context)]

    def for_batch(self, size: int, batched: tuple[bool, ...]) -> Any:
        """Return the computation for a batch by the batch rule; None without a rule."""
        rule = self.call.cls._batch_rule(*self.call.args)
        return None if rule is None else _ForBatch(self.call, rule, size, batched)


class _ForBatch:
    """Computation of a call's node for a batch of this size of some of its inputs."""

    def __init__(self, call: OpaqueApplication, rule: Any, size: int, batched: tuple[bool, ...]):
        self.call, self.rule, self.size, self.batched = call, rule, size, batched

    def __repr__(self) -> str:
        return repr(f"{self.call.cls.__name__} for a batch")

    def __call__(self, *arrays: Any) -> Any:
        call = self.call
        args, batched = list(call.args), [False] * len(call.args)
        for k, x, is_number, is_batched in zip(call.positions, arrays, call.numbers, self.batched):
            args[k], batched[k] = x.item() if is_number and not is_batched else x.copy(), is_batched
        with aside(), no_grad():
            try:
                outputs = self.rule(self.size, batched[1:], args[1:])
                self._require_batch(outputs)
            except Exception as error:
                text = f"the batch rule of {call.cls.__name__} raised {type(error).__name__}: {error}"
                warnings.warn(located(f"{text}; each example is a call"), PerformanceWarning, stacklevel=2)
                return ForEach(_Forward(call), self.size, self.batched)(*arrays)
        return [*outputs, np.zeros(self.size, np.int64)]

    def _require_batch(self, outputs: Sequence[Tensor]) -> None:
        for x, known in zip(outputs, self.call.outputs):
            now, wanted = aval_of(np.asarray(x)), Aval((self.size, *known.shape), known.dtype)
            if now != wanted:
                raise ShapeError(f"it returned {now}, not {wanted}")


class _Backward:
    """Computation of the backward node, in which the outputs `present` have cotangents."""

    def __init__(self, call: OpaqueApplication, present: Sequence[bool]):
        self.call, self.present = call, tuple(present)

    def __repr__(self) -> str:
        return repr(f"{self.call.cls.__name__}Backward")

    def __call__(self, *arrays: Any) -> Any:
        call, count = self.call, len(self.call.residuals.avals)
        supply = iter(arrays[count:])
        cts = [next(supply) if is_present else None for is_present in self.present]
        with aside(), no_grad():
            return call.backward(arrays[:count], cts)


def opaque_forward(cls: Any, context: FunctionCtx, args: tuple[Any, ...]) -> tuple[Any, ...] | Any:
    """Return the outputs of `cls.forward` for traced arguments, as results of one node."""
    call = OpaqueApplication(cls, args)
    arguments = [args[k] for k in call.positions]
    arrays = [_plain(x) for x in arguments]
    known, result = call.traced(arrays)
    known.checked(ARRAYS)
    outputs = _as_outputs(result)
    call.residuals = ContextResiduals(known)
    call.residuals.read = arrays[0].builder.world.once  # a trace that runs once needs the values at once
    call.outputs = [_known(cls, x) for x in outputs]
    avals = [x for x in call.outputs if isinstance(x, Aval)]
    described = _described([*avals, *call.residuals.avals])
    results = opaque(*arrays, results=described, call=_Forward(call))
    supply, residuals = iter(results[: len(avals)]), results[len(avals) :]
    owner = next((x for x in arguments if isinstance(x, Recorded)), None)
    values = [
        _shown(next(supply), x, owner) if isinstance(expected, Aval) else expected
        for x, expected in zip(outputs, call.outputs)
    ]
    constant = {id(_plain(x)) for x in known.non_differentiable}
    context.non_differentiable = tuple([x for x, y in zip(values, outputs) if id(y) in constant])
    context.materialize_grads = False
    context.save_for_backward(*[_faced(x, owner) for x in residuals])
    context._opaque = call  # type: ignore[attr-defined]
    return tuple(values) if isinstance(result, tuple) else values[0]


def _shown(x: Any, traced: object, owner: Any) -> Any:
    """Convert a result of the node to the kind that `traced` had during tracing: an array, a Tensor, or a number."""
    if isinstance(traced, np.ndarray | np.generic):
        return _faced(x, owner)
    if isinstance(owner, ArrayMethods):
        return owner._weakened(_faced(x, owner))
    return x.builder.innermost().python_number(x.node)


def _faced(x: Array, owner: Any) -> Array:
    return x if owner is None else owner._like(x)


def opaque_backward(context: Any, *cts: object) -> tuple[Array, ...]:
    """Return the cotangents of the arguments of an opaque call."""
    call: OpaqueApplication = context._opaque
    call.residuals.read = True
    saved = context.saved_tensors
    present = [ct is not None for ct in cts]
    arrays = [_plain(x) for x in (*saved, *(ct for ct in cts if ct is not None))]
    positions = [k for k in call.positions if call.needs[k]]
    avals = [s.aval for k, s in zip(call.positions, call.inputs.specs) if call.needs[k]]
    results = opaque(*arrays, results=_described(avals), call=_Backward(call, present))
    owner = next((x for x in saved if isinstance(x, Recorded)), None)
    gradients: list[Any] = [None] * call.inputs.number
    for k, x in zip(positions, results):
        gradients[k] = _faced(x, owner)
    return tuple(gradients)


def _described(avals: Sequence[Aval]) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple([(a.shape, short_name(a.dtype)) for a in avals])
