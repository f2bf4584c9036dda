"""Evaluation of functions of Tensors for `torch.autograd.functional`: checked arguments, and backward passes.

A function is called on new Tensors in the place of its inputs, so the caller's Tensors are neither recorded on nor
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.functions.indexing.joining import stack
from tracegrad.torch.tape.backward import engine
from tracegrad.torch.tape.tensors.factories import zeros, zeros_like
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.typing import DTypeLike

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = [
    "STRICT",
    "STRICT_GRAPH",
    "USER",
    "FunctionEvaluation",
    "jacobian_rows",
    "pulled_back",
    "require_single",
    "require_tensors",
    "transposed_pullback",
    "zero_block",
]

Function = Callable[..., Any]
Tensors = tuple[Any, ...]

USER = "the user-provided function"
STRICT = "This is not allowed in strict mode."
STRICT_GRAPH = "This is not allowed in strict mode when create_graph=True."
_OUTPUTS = f"outputs of {USER}"

# What is said in strict mode of a value that should require grad, number i of its kind.
_CONSTANT = {
    "output": (
        f"Output {{i}} of {USER} does not require gradients. The outputs must be computed in a differentiable manner "
        "from the input when running in strict mode."
    ),
    "cotangent": (f"The gradient with respect to input {{i}} is independent of the inputs of {USER}. {STRICT}"),
    "jacobian": (
        f"While computing the hessian, found that the jacobian of {USER} with respect to input {{i}} is independent "
        f"of the input. {STRICT} You should ensure that your function is twice differentiable and that the jacobian "
        "depends on the inputs (this would be violated by a linear function for example)."
    ),
}

# What is said in strict mode where no derivative number i exists.
_ABSENT = {
    "output": f"The output of {USER} is independent of input {{i}}. {STRICT}",
    "tangent": (
        "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using the double "
        f"backward trick to compute forward mode gradients. {STRICT}"
    ),
    "jacobian": f"The jacobian of {USER} is independent of input {{i}}. {STRICT}",
    "hessian": (
        f"The hessian of {USER} is independent of entry {{i}} in the grad_jacobian. {STRICT[:-1]} as it prevents "
        "from using the double backward trick to replace forward mode AD."
    ),
}


# -- arguments and results -------------------------------------------------------------------------------------------
def require_tensors(tensors: Any, role: str, name: str) -> tuple[Tensors, bool]:
    """`tensors` as a tuple of Tensors, and whether it was one; TypeError for anything else."""
    is_tuple = isinstance(tensors, tuple)
    for i, x in enumerate(tensors if is_tuple else (tensors,)):
        if not isinstance(x, Tensor):
            culprit = f"the value at index {i}" if is_tuple else f"the given {role}"
            raise TypeError(
                located(
                    f"The {role} given to {name} must be either a Tensor or a tuple of Tensors but {culprit} has type "
                    f"{type(x)}."
                )
            )
    return (tensors if is_tuple else (tensors,)), is_tuple


def _new_input(x: Tensor, create_graph: bool, requires_grad: bool) -> Tensor:
    """Make a new Tensor with the value of `x`; its history leads to `x` if the result is differentiated."""
    if create_graph and x.requires_grad:
        return x.view_as(x)
    return x.detach().requires_grad_(requires_grad)


class FunctionEvaluation:
    """Function applied once to copies of its inputs: the inputs, the outputs, and which of them were tuples.

    RuntimeError if `strict` and an output does not require grad.
    """

    def __init__(self, name: str, func: Function, inputs: Any, create_graph: bool, strict: bool):
        self.name, self.create_graph, self.strict = name, create_graph, strict
        args, self.has_tuple_input = require_tensors(inputs, "inputs", name)
        self.inputs = tuple([_new_input(x, create_graph, True) for x in args])
        self.func = func

    def run(self) -> Tensors:
        self.outputs, self.has_tuple_output = require_tensors(self.func(*self.inputs), _OUTPUTS, self.name)
        self.check("output", self.outputs)
        return self.outputs

    def scalar(self) -> Tensors:
        """Compute the recorded gradient of the function's only output element."""
        (out, *_) = self.run()
        if self.has_tuple_output:
            raise RuntimeError(located(f"The function given to {self.name} should return a single Tensor"))
        _check_one_element(out, self.name)
        return pulled_back(self.outputs, self.inputs, None, True)

    def vector(self, v: Array | tuple[Array, ...], like: Tensors, is_tuple: bool) -> Tensors:
        """`v`, of the shapes of `like`, as Tensors."""
        vs, _ = require_tensors(v, "v", self.name)
        _check_shapes(vs, like, is_tuple)
        return tuple([_new_input(x, self.create_graph, False) for x in vs])

    def direction(self, v: Array | tuple[Array, ...] | None) -> Tensors | None:
        """`v`, of the shapes of the inputs; None if it is not given and a single 1 is meant."""
        if v is not None:
            return self.vector(v, self.inputs, self.has_tuple_input)
        require_single(self.inputs, "input to the user-provided function is")
        return None

    def check(self, kind: str, values: Sequence[Any]) -> None:
        """Raise in strict mode for outputs that do not require grad."""
        for i, x in enumerate(values if self.strict else ()):
            if x is None:
                raise RuntimeError(located(_ABSENT["output"].format(i=i)))
            if not x.requires_grad:
                raise RuntimeError(located(_CONSTANT[kind].format(i=i)))

    def filled(self, derivatives: Sequence[Tensor], like: Tensors, absent: str, constant: str) -> Tensors:
        """Return derivatives of the shapes of `like`, with zeros for missing ones; strict mode refuses missing ones."""
        if self.strict:
            for i, x in enumerate(derivatives):
                if x is None:
                    raise RuntimeError(located(_ABSENT[absent].format(i=i)))
                if self.create_graph and not x.requires_grad:
                    raise RuntimeError(located(f"The {constant} of {USER} is independent of input {i}. {STRICT_GRAPH}"))
        return tuple([zeros_like(y) if x is None else x for x, y in zip(derivatives, like)])

    def result(self, values: Sequence[Any], is_tuple: bool) -> Any:
        """Convert a result for the caller: without history unless requested, and a tuple only if it was one."""
        done = tuple([x if self.create_graph else x.detach() for x in values])
        return done if is_tuple else done[0]

    def with_outputs(self, values: Sequence[Array], is_tuple: bool) -> tuple[Any, Any]:
        """Return the output of the function and the results."""
        return self.result(self.outputs, self.has_tuple_output), self.result(values, is_tuple)


def _check_one_element(out: Tensor, name: str) -> None:
    if out.numel() != 1:
        raise RuntimeError(
            located(f"The Tensor returned by the function given to {name} should contain a single element")
        )


def require_single(tensors: Tensors, subject: str) -> None:
    if len(tensors) != 1 or tensors[0].numel() != 1:
        raise RuntimeError(
            located(f"The vector v can only be None if the {subject} a single Tensor with a single element.")
        )


def _check_shapes(vs: Tensors, like: Tensors, is_tuple: bool) -> None:
    if len(vs) != len(like):
        raise RuntimeError(
            located(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}."
                if is_tuple
                else "The given v should contain a single Tensor."
            )
        )
    for i, (v, x) in enumerate(zip(vs, like)):
        if v.shape != x.shape:
            entry = f"Entry {i} in " if is_tuple else ""
            raise RuntimeError(
                located(f"{entry}v has invalid size: should be {Size(x.shape)} but got {Size(v.shape)}.")
            )


# -- passes ----------------------------------------------------------------------------------------------------------
def pulled_back(
    outputs: Sequence[Tensor], inputs: Tensors, weights: Sequence[object] | None, create_graph: bool
) -> Tensors:
    """Compute the cotangents of `inputs`, None for zero; absent or constant outputs contribute nothing."""
    chosen = [k for k, x in enumerate(outputs) if x is not None and x.requires_grad]
    if not chosen:
        return (None,) * len(inputs)
    some = None if weights is None else [weights[k] for k in chosen]
    return engine.grad([outputs[k] for k in chosen], inputs, some, create_graph=create_graph, allow_unused=True)


def jacobian_rows(out: Tensor, inputs: Tensors, create_graph: bool, at_once: bool) -> list[Any]:
    """Compute, for each input, the derivative of each element of `out`, in the shape of `out`, then the input's.

    None for an input that `out` does not depend on.
    """
    count = out.numel()
    if not out.requires_grad or not count:
        return [None] * len(inputs)
    basis = np.eye(count, dtype=out.dtype).reshape(count, *out.shape)
    if at_once:
        columns: Sequence[Any] = engine.grad(
            out, inputs, basis, True, create_graph, allow_unused=True, is_grads_batched=True
        )
    else:
        rows = [engine.grad(out, inputs, np.array(row), True, create_graph, allow_unused=True) for row in basis]
        columns = [_stacked(column, x) for column, x in zip(zip(*rows), inputs)]
    return [None if c is None else c.view((*out.shape, *x.shape)) for c, x in zip(columns, inputs)]


def _stacked(column: Sequence[Array], x: Tensor) -> Any:
    if all(row is None for row in column):
        return None
    return stack([zeros_like(x) if row is None else row for row in column])


def zero_block(out: Tensor, x: Tensor, dtype: DTypeLike) -> Tensor:
    return zeros((*out.shape, *x.shape), dtype=dtype)


def transposed_pullback(evaluation: FunctionEvaluation, outputs: Tensors, kind: str) -> tuple[Tensors, Tensors]:
    """Weights `u` of the outputs, and the cotangents that they give: linear in `u`, and recorded."""
    weights = tuple([zeros_like(x, requires_grad=True) for x in outputs])
    result = pulled_back(outputs, evaluation.inputs, weights, True)
    evaluation.check(kind, result)
    return weights, result
