"""Derivatives of functions of Tensors, as in `torch.autograd.functional`: Jacobians, Hessians and products.

A function is called on new Tensors, which replace its inputs, so the caller's Tensors get no nodes and no gradients.
The tape has cotangents only. A column of the Jacobian needs a second derivative: `J^T u` is linear in `u`, so its own
cotangents, with respect to `u`, are `J v` (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).

With `create_graph` the results can be differentiated further, also with respect to the inputs. With `strict`, an output
independent of an input raises RuntimeError; otherwise its derivative is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tracegrad.errors import located
from tracegrad.torch.autograd.functional_evaluation import (
    STRICT,
    STRICT_GRAPH,
    USER,
    FunctionEvaluation,
    jacobian_rows,
    pulled_back,
    require_single,
    require_tensors,
    transposed_pullback,
    zero_block,
)
from tracegrad.torch.functions.indexing.shapes import movedim
from tracegrad.torch.modes import enable_grad
from tracegrad.torch.tape.tensors.factories import zeros_like

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]
Tensors = tuple[Any, ...]
F = TypeVar("F", bound=Function)

_recording: Callable[[F], F] = enable_grad()


# -- products --------------------------------------------------------------------------------------------------------
@_recording
def vjp(
    func: Function,
    inputs: Array | tuple[Array, ...],
    v: Array | tuple[Array, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Compute the outputs of a function, and the product of a vector with its Jacobian.

    Parameters
    ----------
    func : callable
        Function of Tensors to a Tensor or a tuple of Tensors.
    inputs : Tensor or tuple of Tensor
        Arguments of `func`.
    v : Tensor or tuple of Tensor, optional
        Vector, with the shapes of the outputs. It is not necessary for one output with one element.
    create_graph : bool
        Whether the results are recorded, so that they can be differentiated.
    strict : bool
        Whether an output that does not depend on an input is an error. Otherwise its derivative is zero.

    Returns
    -------
    func_output : Tensor or tuple of Tensor
        Result of `func`.
    vjp : Tensor or tuple of Tensor
        Product, with the shapes of the inputs.

    Raises
    ------
    TypeError
        If an input or output is no Tensor.
    RuntimeError
        If `v` has a wrong shape; with `strict`, if a derivative does not exist.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> vjp(lambda x: x**2, tensor([1.0, 2.0]), tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    evaluation = FunctionEvaluation("vjp", func, inputs, create_graph, strict)
    outputs = evaluation.run()
    if v is None:
        require_single(outputs, "user-provided function returns")
    weights = None if v is None else evaluation.vector(v, outputs, evaluation.has_tuple_output)
    result = pulled_back(outputs, evaluation.inputs, weights, create_graph)
    return evaluation.with_outputs(
        evaluation.filled(result, evaluation.inputs, "output", "jacobian"), evaluation.has_tuple_input
    )


@_recording
def jvp(
    func: Function,
    inputs: Array | tuple[Array, ...],
    v: Array | tuple[Array, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Compute the outputs of a function, and the product of its Jacobian with a vector.

    Parameters
    ----------
    func : callable
        Function of Tensors to a Tensor or a tuple of Tensors.
    inputs : Tensor or tuple of Tensor
        Arguments of `func`.
    v : Tensor or tuple of Tensor, optional
        Vector, with the shapes of the inputs. It is not necessary for one input with one element.
    create_graph : bool
        Whether the results are recorded, so that they can be differentiated.
    strict : bool
        Whether an output that does not depend on an input is an error. Otherwise its derivative is zero.

    Returns
    -------
    func_output : Tensor or tuple of Tensor
        Result of `func`.
    jvp : Tensor or tuple of Tensor
        Product, with the shapes of the outputs.

    Raises
    ------
    TypeError
        If an input or output is no Tensor.
    RuntimeError
        If `v` has a wrong shape; with `strict`, if a derivative does not exist.

    Notes
    -----
    Two backward passes compute the product, the second one through the first one.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> jvp(lambda x: x.sum() * x, tensor([1.0, 2.0]), tensor([1.0, 0.0]))
    (tensor([3., 6.]), tensor([4., 2.]))
    """
    evaluation = FunctionEvaluation("jvp", func, inputs, create_graph, strict)
    direction = evaluation.direction(v)
    outputs = evaluation.run()
    weights, cotangents = transposed_pullback(evaluation, outputs, "cotangent")
    result = pulled_back(cotangents, weights, direction, create_graph)
    return evaluation.with_outputs(
        evaluation.filled(result, outputs, "tangent", "jacobian"), evaluation.has_tuple_output
    )


@_recording
def vhp(
    func: Function,
    inputs: Array | tuple[Array, ...],
    v: Array | tuple[Array, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Compute the value of a scalar function, and the product of a vector with its Hessian.

    Parameters
    ----------
    func : callable
        Function of Tensors to a Tensor with one element.
    inputs : Tensor or tuple of Tensor
        Arguments of `func`.
    v : Tensor or tuple of Tensor, optional
        Vector, with the shapes of the inputs. It is not necessary for one input with one element.
    create_graph : bool
        Whether the results are recorded, so that they can be differentiated.
    strict : bool
        Whether an output that does not depend on an input is an error. Otherwise its derivative is zero.

    Returns
    -------
    func_output : Tensor
        Result of `func`.
    vhp : Tensor or tuple of Tensor
        Product, with the shapes of the inputs.

    Raises
    ------
    TypeError
        If an input or output is no Tensor.
    RuntimeError
        If `v` has a wrong shape; with `strict`, if a derivative does not exist.

    See Also
    --------
    hvp : Product of the Hessian with a vector, with one backward pass more.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> vhp(lambda x: (x**3).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    evaluation = FunctionEvaluation("vhp", func, inputs, create_graph, strict)
    direction = evaluation.direction(v)
    gradient = evaluation.scalar()
    evaluation.check("jacobian", gradient)
    result = pulled_back(gradient, evaluation.inputs, direction, create_graph)
    return evaluation.with_outputs(
        evaluation.filled(result, evaluation.inputs, "jacobian", "hessian"), evaluation.has_tuple_input
    )


@_recording
def hvp(
    func: Function,
    inputs: Array | tuple[Array, ...],
    v: Array | tuple[Array, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Compute the value of a scalar function, and the product of its Hessian with a vector.

    Parameters
    ----------
    func : callable
        Function of Tensors to a Tensor with one element.
    inputs : Tensor or tuple of Tensor
        Arguments of `func`.
    v : Tensor or tuple of Tensor, optional
        Vector, with the shapes of the inputs. It is not necessary for one input with one element.
    create_graph : bool
        Whether the results are recorded, so that they can be differentiated.
    strict : bool
        Whether an output that does not depend on an input is an error. Otherwise its derivative is zero.

    Returns
    -------
    func_output : Tensor
        Result of `func`.
    hvp : Tensor or tuple of Tensor
        Product, with the shapes of the inputs.

    Raises
    ------
    TypeError
        If an input or output is no Tensor.
    RuntimeError
        If `v` has a wrong shape; with `strict`, if a derivative does not exist.

    See Also
    --------
    vhp : The same for a symmetric Hessian, with one backward pass less.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> hvp(lambda x: (x**3).sum(), tensor([1.0, 2.0]), tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    evaluation = FunctionEvaluation("hvp", func, inputs, create_graph, strict)
    direction = evaluation.direction(v)
    gradient = evaluation.scalar()
    evaluation.check("jacobian", gradient)
    weights = tuple([zeros_like(x, requires_grad=True) for x in evaluation.inputs])
    products = pulled_back(gradient, evaluation.inputs, weights, True)
    result = pulled_back(products, weights, direction, create_graph)
    return evaluation.with_outputs(
        evaluation.filled(result, evaluation.inputs, "hessian", "hessian"), evaluation.has_tuple_input
    )


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
    """Compute the derivatives of all output elements of a function with respect to all input elements.

    Parameters
    ----------
    func : callable
        Function of Tensors to a Tensor or a tuple of Tensors.
    inputs : Tensor or tuple of Tensor
        Arguments of `func`.
    create_graph : bool
        Whether the results are recorded, so that they can be differentiated.
    strict : bool
        Whether an output that does not depend on an input is an error. Otherwise its derivative is zero.
    vectorize : bool
        Whether all rows go through the tape in one batched backward pass.
    strategy : {"reverse-mode", "forward-mode"}
        Whether to compute rows or columns. Forward mode needs `vectorize`.

    Returns
    -------
    Tensor, tuple of Tensor, or tuple of tuples of Tensor
        Jacobian: a Tensor with the axes of the output, followed by the axes of the input. It is a tuple over the
        outputs if `func` returns a tuple; each entry is a tuple over the inputs if `inputs` is a tuple. The dtype is
        the input's; in forward mode, the output's.

    Raises
    ------
    TypeError
        If an input or output is no Tensor.
    RuntimeError
        For `strict` with `vectorize` or forward mode; with `strict`, if an output does not depend on an input.
    NotImplementedError
        For forward mode without `vectorize` or with `create_graph`.

    Examples
    --------
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


def _by_rows(
    func: Function, inputs: Array | tuple[Array, ...], create_graph: bool, strict: bool, vectorize: bool
) -> Any:
    evaluation = FunctionEvaluation("jacobian", func, inputs, create_graph, strict)
    outputs = evaluation.run()
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
        result = jacobian_rows(out, evaluation.inputs, create_graph, vectorize)
        if strict and out.numel():
            _check_rows(i, result, create_graph)
        row = [zero_block(out, x, x.dtype) if d is None else d for d, x in zip(result, evaluation.inputs)]
        blocks.append(evaluation.result(row, evaluation.has_tuple_input))
    return tuple(blocks) if evaluation.has_tuple_output else blocks[0]


def _check_rows(i: int, rows: Sequence[Tensor], create_graph: bool) -> None:
    for k, d in enumerate(rows):
        if d is None:
            raise RuntimeError(located(f"Output {i} of {USER} is independent of input {k}. {STRICT}"))
        if create_graph and not d.requires_grad:
            raise RuntimeError(located(f"The jacobian of {USER} is independent of input {k}. {STRICT_GRAPH}"))


def _by_columns(func: Function, inputs: Any) -> Any:
    evaluation = FunctionEvaluation("jacobian", func, inputs, False, False)
    outputs = evaluation.run()
    weights, cotangents = transposed_pullback(evaluation, outputs, "cotangent")
    # The rows of the map from weights to cotangents are the columns of the Jacobian.
    columns = [[None] * len(outputs) if ct is None else jacobian_rows(ct, weights, False, True) for ct in cotangents]
    blocks = []
    for k, out in enumerate(outputs):
        row = [_transposed(column[k], out, x) for column, x in zip(columns, evaluation.inputs)]
        blocks.append(evaluation.result(row, evaluation.has_tuple_input))
    return tuple(blocks) if evaluation.has_tuple_output else blocks[0]


def _transposed(column: Any, out: Any, x: Any) -> Any:
    """Move the axes of the input, which are first, after the axes of the output."""
    if column is None:
        return zero_block(out, x, out.dtype)
    first = len(x.shape)
    return movedim(column, tuple(range(first)), tuple(range(len(out.shape), len(out.shape) + first)))


def hessian(
    func: Function,
    inputs: Array | tuple[Array, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Compute the second derivatives of a scalar function.

    Parameters
    ----------
    func : callable
        Function of Tensors to a Tensor with one element.
    inputs : Tensor or tuple of Tensor
        Arguments of `func`.
    create_graph : bool
        Whether the results are recorded, so that they can be differentiated.
    strict : bool
        Whether an output that does not depend on an input is an error. Otherwise its derivative is zero.
    vectorize : bool
        Whether all rows go through the tape in one batched backward pass.
    outer_jacobian_strategy : {"reverse-mode", "forward-mode"}
        How the Jacobian of the gradient is computed. Forward mode needs `vectorize`.

    Returns
    -------
    Tensor or tuple of tuples of Tensor
        Hessian: a Tensor with the axes of the input twice. If `inputs` is a tuple, entry `[i][j]` has the axes of input
        i, followed by the axes of input j.

    Raises
    ------
    TypeError, NotImplementedError
        As for `jacobian`.
    RuntimeError
        As for `jacobian`; if the result of `func` has several elements; with `strict`, if `func` is linear in an input.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> hessian(lambda x: (x**3).sum() + x[0] * x[1], tensor([1.0, 2.0]))
    tensor([[ 6.,  1.],
            [ 1., 12.]])
    """
    _, is_tuple = require_tensors(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(located(_STRATEGY))

    def gradient(*xs: Tensor) -> Tensors:
        evaluation = FunctionEvaluation("hessian", func, xs, True, strict)
        results = evaluation.scalar()
        results = tuple([zeros_like(x) if g is None else g for g, x in zip(results, evaluation.inputs)])
        evaluation.check("jacobian", results)
        return results

    blocks = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return blocks if is_tuple else blocks[0]
