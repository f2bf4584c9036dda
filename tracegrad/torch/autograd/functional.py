"""Derivatives of functions of Tensors, as in `torch.autograd.functional`: Jacobians, Hessians and products.

A function is called on new Tensors, which replace its inputs, so the caller's Tensors get no nodes and no gradients.
The tape has cotangents only. A column of the Jacobian needs a second derivative: `J^T u` is linear in `u`, so its own
cotangents, with respect to `u`, are `J v` (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).

With `create_graph` the results can be differentiated further, also with respect to the inputs. With `strict`, an output
independent of an input raises RuntimeError; otherwise its derivative is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.functions.indexing.joining import stack
from tracegrad.torch.functions.indexing.shapes import movedim
from tracegrad.torch.modes import enable_grad
from tracegrad.torch.tape.backward import engine
from tracegrad.torch.tape.tensors.factories import zeros, zeros_like
from tracegrad.torch.tape.tensors.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]
Tensors = tuple[Any, ...]
F = TypeVar("F", bound=Function)

_recording: Callable[[F], F] = enable_grad()

_USER = "the user-provided function"
_STRICT = "This is not allowed in strict mode."
_STRICT_GRAPH = "This is not allowed in strict mode when create_graph=True."
_OUTPUTS = f"outputs of {_USER}"

# Errors of strict mode for value number i of its kind, which should require grad.
_CONSTANT = {
    "output": (
        f"Output {{i}} of {_USER} does not require gradients. The outputs must be computed in a differentiable manner "
        "from the input when running in strict mode."
    ),
    "cotangent": (f"The gradient with respect to input {{i}} is independent of the inputs of {_USER}. {_STRICT}"),
    "jacobian": (
        f"While computing the hessian, found that the jacobian of {_USER} with respect to input {{i}} is independent "
        f"of the input. {_STRICT} You should ensure that your function is twice differentiable and that the jacobian "
        "depends on the inputs (this would be violated by a linear function for example)."
    ),
}

# Errors of strict mode for a missing derivative number i.
_ABSENT = {
    "output": f"The output of {_USER} is independent of input {{i}}. {_STRICT}",
    "tangent": (
        "The gradient with respect to the input is independent of entry {i} in the grad_outputs when using the double "
        f"backward trick to compute forward mode gradients. {_STRICT}"
    ),
    "jacobian": f"The jacobian of {_USER} is independent of input {{i}}. {_STRICT}",
    "hessian": (
        f"The hessian of {_USER} is independent of entry {{i}} in the grad_jacobian. {_STRICT[:-1]} as it prevents "
        "from using the double backward trick to replace forward mode AD."
    ),
}


# -- arguments and results -------------------------------------------------------------------------------------------
def _tensors(given: Any, what: str, name: str) -> tuple[Tensors, bool]:
    """Convert `given` to a tuple of Tensors; return whether it was a tuple. TypeError for other objects."""
    several = isinstance(given, tuple)
    for i, x in enumerate(given if several else (given,)):
        if not isinstance(x, Tensor):
            where = f"the value at index {i}" if several else f"the given {what}"
            raise TypeError(
                located(
                    f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but {where} has type "
                    f"{type(x)}."
                )
            )
    return (given if several else (given,)), several


def _stand_in(x: Any, create_graph: bool, requires_grad: bool) -> Any:
    """Make a new Tensor with the value of `x`; its history leads to `x` if the result is differentiated."""
    if create_graph and x.requires_grad:
        return x.view_as(x)
    return x.detach().requires_grad_(requires_grad)


class _Call:
    """Function applied once to copies of its inputs: the inputs, the outputs, and which of them were tuples.

    RuntimeError if `strict` and an output does not require grad.
    """

    def __init__(self, name: str, func: Function, inputs: Any, create_graph: bool, strict: bool):
        self.name, self.create_graph, self.strict = name, create_graph, strict
        args, self.several_in = _tensors(inputs, "inputs", name)
        self.inputs = tuple([_stand_in(x, create_graph, True) for x in args])
        self.func = func

    def run(self) -> Tensors:
        self.outputs, self.several_out = _tensors(self.func(*self.inputs), _OUTPUTS, self.name)
        self.check("output", self.outputs)
        return self.outputs

    def scalar(self) -> Tensors:
        """Compute the recorded gradient of the function's only output element."""
        (out, *_) = self.run()
        if self.several_out:
            raise RuntimeError(located(f"The function given to {self.name} should return a single Tensor"))
        _check_one_element(out, self.name)
        return _pull(self.outputs, self.inputs, None, True)

    def vector(self, v: Any, like: Tensors, several: bool) -> Tensors:
        """Convert `v`, which must have the shapes of `like`, to Tensors."""
        vs, _ = _tensors(v, "v", self.name)
        _check_shapes(vs, like, several)
        return tuple([_stand_in(x, self.create_graph, False) for x in vs])

    def direction(self, v: Any) -> Tensors | None:
        """Convert `v`, which must have the shapes of the inputs; None stands for 1, for one input element."""
        if v is not None:
            return self.vector(v, self.inputs, self.several_in)
        _check_single(self.inputs, "input to the user-provided function is")
        return None

    def check(self, kind: str, found: Sequence[Any]) -> None:
        """Raise in strict mode for outputs that do not require grad."""
        for i, x in enumerate(found if self.strict else ()):
            if x is None:
                raise RuntimeError(located(_ABSENT["output"].format(i=i)))
            if not x.requires_grad:
                raise RuntimeError(located(_CONSTANT[kind].format(i=i)))

    def filled(self, found: Sequence[Any], like: Tensors, absent: str, constant: str) -> Tensors:
        """Return derivatives of the shapes of `like`, with zeros for missing ones, which strict mode refuses."""
        if self.strict:
            for i, x in enumerate(found):
                if x is None:
                    raise RuntimeError(located(_ABSENT[absent].format(i=i)))
                if self.create_graph and not x.requires_grad:
                    raise RuntimeError(
                        located(f"The {constant} of {_USER} is independent of input {i}. {_STRICT_GRAPH}")
                    )
        return tuple([zeros_like(y) if x is None else x for x, y in zip(found, like)])

    def result(self, found: Sequence[Any], several: bool) -> Any:
        """Convert a result for the caller: without history unless requested, and a tuple only if `several`."""
        done = tuple([x if self.create_graph else x.detach() for x in found])
        return done if several else done[0]

    def answer(self, found: Sequence[Any], several: bool) -> tuple[Any, Any]:
        """Return the output of the function and the results."""
        return self.result(self.outputs, self.several_out), self.result(found, several)


def _check_one_element(out: Any, name: str) -> None:
    if out.numel() != 1:
        raise RuntimeError(
            located(f"The Tensor returned by the function given to {name} should contain a single element")
        )


def _check_single(tensors: Tensors, whose: str) -> None:
    if len(tensors) != 1 or tensors[0].numel() != 1:
        raise RuntimeError(
            located(f"The vector v can only be None if the {whose} a single Tensor with a single element.")
        )


def _check_shapes(vs: Tensors, like: Tensors, several: bool) -> None:
    if len(vs) != len(like):
        raise RuntimeError(
            located(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}."
                if several
                else "The given v should contain a single Tensor."
            )
        )
    for i, (v, x) in enumerate(zip(vs, like)):
        if v.shape != x.shape:
            entry = f"Entry {i} in " if several else ""
            raise RuntimeError(
                located(f"{entry}v has invalid size: should be Size({list(x.shape)}) but got Size({list(v.shape)}).")
            )


# -- passes ----------------------------------------------------------------------------------------------------------
def _pull(outputs: Sequence[Any], inputs: Tensors, weights: Sequence[Any] | None, create_graph: bool) -> Tensors:
    """Compute the cotangents of `inputs`, None for zero; absent or constant outputs contribute nothing."""
    chosen = [k for k, x in enumerate(outputs) if x is not None and x.requires_grad]
    if not chosen:
        return (None,) * len(inputs)
    some = None if weights is None else [weights[k] for k in chosen]
    return engine.grad([outputs[k] for k in chosen], inputs, some, create_graph=create_graph, allow_unused=True)


def _rows(out: Any, inputs: Tensors, create_graph: bool, at_once: bool) -> list[Any]:
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


def _stacked(column: Sequence[Any], x: Any) -> Any:
    if all(row is None for row in column):
        return None
    return stack([zeros_like(x) if row is None else row for row in column])


def _zero_block(out: Any, x: Any, dtype: Any) -> Any:
    return zeros((*out.shape, *x.shape), dtype=dtype)


def _pushed(call: _Call, outputs: Tensors, kind: str) -> tuple[Tensors, Tensors]:
    """Return weights `u` of the outputs, and the recorded cotangents of the inputs, which are linear in `u`."""
    weights = tuple([zeros_like(x, requires_grad=True) for x in outputs])
    result = _pull(outputs, call.inputs, weights, True)
    call.check(kind, result)
    return weights, result


# -- products --------------------------------------------------------------------------------------------------------
@_recording
def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute the outputs of `func(*inputs)`, and the product of `v` with the Jacobian, in the shapes of the inputs.

    `inputs`, the outputs and `v`, which has the shapes of the outputs, are each a Tensor or a tuple of Tensors. One
    output of one element needs no `v`. TypeError for other objects than Tensors; RuntimeError for a `v` of the wrong
    shape, and with `strict` for an output independent of an input. See `jacobian` for `create_graph`.

    >>> from tracegrad import tensor
    >>> vjp(lambda x: x**2, tensor([1.0, 2.0]), tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    call = _Call("vjp", func, inputs, create_graph, strict)
    outputs = call.run()
    if v is None:
        _check_single(outputs, "user-provided function returns")
    weights = None if v is None else call.vector(v, outputs, call.several_out)
    result = _pull(outputs, call.inputs, weights, create_graph)
    return call.answer(call.filled(result, call.inputs, "output", "jacobian"), call.several_in)


@_recording
def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute the outputs of `func(*inputs)`, and the product of the Jacobian with `v`, in the outputs' shapes.

    `v` has the shapes of the inputs; one input of one element needs none. Two backward passes compute it, the second
    through the first; otherwise as `vjp`.

    >>> from tracegrad import tensor
    >>> jvp(lambda x: x.sum() * x, tensor([1.0, 2.0]), tensor([1.0, 0.0]))
    (tensor([3., 6.]), tensor([4., 2.]))
    """
    call = _Call("jvp", func, inputs, create_graph, strict)
    direction = call.direction(v)
    outputs = call.run()
    weights, cotangents = _pushed(call, outputs, "cotangent")
    result = _pull(cotangents, weights, direction, create_graph)
    return call.answer(call.filled(result, outputs, "tangent", "jacobian"), call.several_out)


@_recording
def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute the output of `func(*inputs)`, one element, and the product of `v` with its Hessian.

    `v` and the product have the shapes of the inputs; one input of one element needs no `v`. Errors as for `vjp`.

    >>> from tracegrad import tensor
    >>> vhp(lambda x: (x**3).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    call = _Call("vhp", func, inputs, create_graph, strict)
    direction = call.direction(v)
    gradient = call.scalar()
    call.check("jacobian", gradient)
    result = _pull(gradient, call.inputs, direction, create_graph)
    return call.answer(call.filled(result, call.inputs, "jacobian", "hessian"), call.several_in)


@_recording
def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute the output of `func(*inputs)`, one element, and the product of its Hessian with `v`.

    It takes one backward pass more than `vhp`, whose result is the same wherever the Hessian is symmetric.

    >>> from tracegrad import tensor
    >>> hvp(lambda x: (x**3).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    call = _Call("hvp", func, inputs, create_graph, strict)
    direction = call.direction(v)
    gradient = call.scalar()
    call.check("jacobian", gradient)
    weights = tuple([zeros_like(x, requires_grad=True) for x in call.inputs])
    products = _pull(gradient, call.inputs, weights, True)
    result = _pull(products, weights, direction, create_graph)
    return call.answer(call.filled(result, call.inputs, "hessian", "hessian"), call.several_in)


# -- matrices --------------------------------------------------------------------------------------------------------
_STRATEGY = 'Expected strategy to be either "forward-mode" or "reverse-mode".'


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Compute the derivatives of all output elements of `func(*inputs)` with respect to all input elements.

    One output and one input give a Tensor of the output's shape followed by the input's, in the dtype of the input. If
    the function returns a tuple, the result is a tuple over the outputs; if `inputs` is a tuple, each entry is a tuple
    over the inputs. With `create_graph` the result is recorded. `vectorize` sends all rows through the tape in one
    batched call. `strategy="forward-mode"` computes columns, in the dtype of the output, and needs `vectorize`.

    TypeError for other objects than Tensors. RuntimeError for invalid combinations and, with `strict`, for an output
    independent of an input. NotImplementedError for forward mode without `vectorize` or with `create_graph`.

    >>> from tracegrad import tensor
    >>> jacobian(lambda x: x**2, tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    >>> jacobian(lambda x, y: (x * y).sum(), (tensor([1.0, 2.0]), tensor([3.0, 4.0])))
    (tensor([3., 4.]), tensor([1., 2.]))
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        hint = 'Hint: If your function has more outputs than inputs, "forward-mode" tends to be more performant.'
        raise AssertionError(located(f'{_STRATEGY} {hint} Otherwise, prefer to use "reverse-mode".'))
    with enable_grad():
        if strategy == "forward-mode":
            _check_forward(create_graph, strict, vectorize)
            return _by_columns(func, inputs)
        return _by_rows(func, inputs, create_graph, strict, vectorize)


def _check_forward(create_graph: bool, strict: bool, vectorize: bool) -> None:
    for option, args, error in (
        ("create_graph", create_graph, NotImplementedError),
        ("strict", strict, RuntimeError),
    ):
        if args:
            raise error(
                located(
                    f'autograd.functional.jacobian: `{option}=True` and `strategy="forward-mode"` are not supported '
                    f'together (yet). Please either set `{option}=False` or `strategy="reverse-mode"`.'
                )
            )
    if not vectorize:
        raise NotImplementedError(
            located(
                "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
                "`vectorize=True`."
            )
        )


def _by_rows(func: Function, inputs: Any, create_graph: bool, strict: bool, vectorize: bool) -> Any:
    call = _Call("jacobian", func, inputs, create_graph, strict)
    outputs = call.run()
    if vectorize and strict:
        raise RuntimeError(
            located(
                "autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
                "Please either set `strict=False` or `vectorize=False`."
            )
        )
    blocks = []
    for i, out in enumerate(outputs):
        if out.dtype.kind == "c" and not vectorize:  # a row of the real part does not determine the imaginary part
            raise RuntimeError(
                located(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
            )
        result = _rows(out, call.inputs, create_graph, vectorize)
        if strict and out.numel():
            _check_rows(i, result, create_graph)
        row = [_zero_block(out, x, x.dtype) if d is None else d for d, x in zip(result, call.inputs)]
        blocks.append(call.result(row, call.several_in))
    return tuple(blocks) if call.several_out else blocks[0]


def _check_rows(i: int, found: Sequence[Any], create_graph: bool) -> None:
    for k, d in enumerate(found):
        if d is None:
            raise RuntimeError(located(f"Output {i} of {_USER} is independent of input {k}. {_STRICT}"))
        if create_graph and not d.requires_grad:
            raise RuntimeError(located(f"The jacobian of {_USER} is independent of input {k}. {_STRICT_GRAPH}"))


def _by_columns(func: Function, inputs: Any) -> Any:
    call = _Call("jacobian", func, inputs, False, False)
    outputs = call.run()
    weights, cotangents = _pushed(call, outputs, "cotangent")
    # The rows of the map from weights to cotangents are the columns of the Jacobian.
    columns = [[None] * len(outputs) if ct is None else _rows(ct, weights, False, True) for ct in cotangents]
    blocks = []
    for k, out in enumerate(outputs):
        row = [_transposed(column[k], out, x) for column, x in zip(columns, call.inputs)]
        blocks.append(call.result(row, call.several_in))
    return tuple(blocks) if call.several_out else blocks[0]


def _transposed(column: Any, out: Any, x: Any) -> Any:
    """Move the axes of the input, which are first, after the axes of the output."""
    if column is None:
        return _zero_block(out, x, out.dtype)
    first = len(x.shape)
    return movedim(column, tuple(range(first)), tuple(range(len(out.shape), len(out.shape) + first)))


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Compute the second derivatives of `func(*inputs)`, one element: the Jacobian of its gradient.

    The result is a Tensor of the shape of the input twice. If `inputs` is a tuple, entry `[i][j]` of a tuple of tuples
    has the shape of input i followed by the shape of input j. Options and errors are as for `jacobian`; RuntimeError if
    the function returns more than one element and, with `strict`, if it is linear in an input.

    >>> from tracegrad import tensor
    >>> hessian(lambda x: (x**3).sum() + x[0] * x[1], tensor([1.0, 2.0]))
    tensor([[ 6.,  1.],
            [ 1., 12.]])
    """
    _, several = _tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(located(_STRATEGY))

    def gradient(*xs: Any) -> Tensors:
        call = _Call("hessian", func, xs, True, strict)
        results = call.scalar()
        results = tuple([zeros_like(x) if g is None else g for g, x in zip(results, call.inputs)])
        call.check("jacobian", results)
        return results

    blocks = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return blocks if several else blocks[0]
