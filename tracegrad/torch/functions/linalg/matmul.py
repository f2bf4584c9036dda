"""Matrix products: of matrices, vectors and batches of matrices, and sums of products (`addmm` and the like)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api import joining as numpy_joining
from tracegrad.numpy_api import products as numpy_products
from tracegrad.numpy_api.operands import arrays, size_of
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.ops.elementwise.table import add, multiply, power
from tracegrad.ops.linalg import contraction
from tracegrad.ops.linalg.contraction import matmul_any
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.dims import broadcast_shapes, dim_of, one, size_error
from tracegrad.torch.functions.core.operands import is_whole
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import function, method
from tracegrad.torch.functions.indexing.slicing import diagonal
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.ops.core.dispatch import Operand


# -- matmul and its cases ------------------------------------------------------------------------------------------
@function("matmul")
def matmul(input: Array, other: Array) -> Array:
    """Return the matrix product; batches of matrices broadcast.

    A vector on the left is a row, and a vector on the right is a column. RuntimeError if the sizes do not fit.

    >>> matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    require_one_dtype(input, other)
    x, y = arrays(input, other)
    ranks = len(x.shape), len(y.shape)
    if ranks == (2, 2):
        return _mm(x, y)
    if ranks == (1, 1):
        return dot(x, y)
    if ranks == (2, 1):
        return mv(x, y)
    if 0 in ranks:
        raise size_error(f"both arguments to matmul need to be at least 1D, but they are {ranks[0]}D and {ranks[1]}D")
    _check_stacks(x.shape, y.shape)
    return _matrix_product(x, y) if max(ranks) < 3 else _batches(x, y)


def _check_stacks(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if a[-1] != b[-2]:
        if len(b) > 2:
            raise size_error(
                f"Expected size for first two dimensions of batch2 tensor to be: [{b[0]}, {a[-1]}] but got: "
                f"[{b[0]}, {b[-2]}]."
            )
        raise size_error(f"mat1 and mat2 shapes cannot be multiplied ({_times(a)} and {_times(b)})")
    broadcast_shapes(a[:-2], b[:-2])


def _times(shape: tuple[int, ...]) -> str:
    """Format the shape of a matrix, or of a stack of matrices as one matrix, as PyTorch's messages do."""
    return f"{int(np.prod(shape[:-1]))}x{shape[-1]}"


_batches, _matrix_product = one_node("BmmBackward0")(matmul_any), one_node("MmBackward0")(matmul_any)


def _mm(x: Array, y: Array) -> Array:
    if x.shape[1] != y.shape[0]:
        raise size_error(f"mat1 and mat2 shapes cannot be multiplied ({_times(x.shape)} and {_times(y.shape)})")
    if x.dtype != y.dtype:
        return _matrix_product(x, y)
    return named("MmBackward0", contraction.matmul(x, y))


@function("mm")
def mm(input: Array, mat2: Array) -> Array:
    """Return the product of two matrices.

    >>> mm(np.ones((2, 3)), np.ones((3, 1))).tolist()
    [[3.0], [3.0]]
    """
    require_one_dtype(input, mat2)
    x, y = arrays(input, mat2)
    for name, v in (("self", x), ("mat2", y)):
        if len(v.shape) != 2:
            raise size_error(f"{name} must be a matrix")
    return _mm(x, y)


@function("bmm")
def bmm(input: Array, mat2: Array) -> Array:
    """Return the products of the matrices of two batches.

    >>> bmm(np.ones((2, 1, 3)), np.ones((2, 3, 1))).tolist()
    [[[3.0]], [[3.0]]]
    """
    require_one_dtype(input, mat2)
    x, y = arrays(input, mat2)
    _check_batches(x, y)
    return named("BmmBackward0", contraction.matmul(x, y)) if x.dtype == y.dtype else _batches(x, y)


def _check_batches(x: Array, y: Array) -> None:
    for name, v in (("batch1", x), ("batch2", y)):
        if len(v.shape) != 3:
            raise size_error(f"{name} must be a 3D tensor")
    if y.shape[:2] != (x.shape[0], x.shape[2]):
        raise size_error(
            f"Expected size for first two dimensions of batch2 tensor to be: [{x.shape[0]}, {x.shape[2]}] but got: "
            f"[{y.shape[0]}, {y.shape[1]}]."
        )


@function("mv")
def mv(input: Array, vec: Array) -> Array:
    """Return the product of a matrix and a vector.

    >>> mv(np.ones((2, 3)), np.ones(3)).tolist()
    [3.0, 3.0]
    """
    require_one_dtype(input, vec)
    x, y = arrays(input, vec)
    if (len(x.shape), len(y.shape)) != (2, 1):
        raise size_error(f"vector + matrix @ vector expected, got 1, {len(x.shape)}, {len(y.shape)}")
    if x.shape[1] != y.shape[0]:
        raise size_error(f"size mismatch, got input ({x.shape[0]}), mat ({_times(x.shape)}), vec ({y.shape[0]})")
    return _mv(x, y)


def _mv(x: Array, y: Array) -> Array:
    return named("MvBackward0", contraction.matvec(*contraction.promoted(x, y)))


def _check_vectors(x: Array, y: Array) -> None:
    if (len(x.shape), len(y.shape)) != (1, 1):
        raise size_error(f"1D tensors expected, but got {len(x.shape)}D and {len(y.shape)}D tensors")
    if x.shape != y.shape:
        n, m = x.shape[0], y.shape[0]
        raise size_error(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of elements, but "
            f"got {n} and {m} elements respectively"
        )


@function("dot")
def dot(input: Array, tensor: Array) -> Array:
    """Return the sum of the products of two vectors.

    >>> float(dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    11.0
    """
    require_one_dtype(input, tensor)
    x, y = arrays(input, tensor)
    _check_vectors(x, y)
    return _dot(x, y)


def _dot(x: Array, y: Array) -> Array:
    return named("DotBackward0", contraction.inner(*contraction.promoted(x, y)))


@function("vdot")
def vdot(input: Array, other: Array) -> Array:
    """Return the sum of the products of two vectors, with the conjugate of the first one.

    >>> vdot(np.array([1j, 2.0]), np.array([1j, 1.0])).item()
    (3+0j)
    """
    require_one_dtype(input, other)
    x, y = arrays(input, other)
    _check_vectors(x, y)
    return _vdot(x, y)


@one_node("VdotBackward0")
def _vdot(x: Array, y: Array) -> Array:
    return matmul_any(conjugated(x), y)


@function("inner")
def inner(input: Array, other: Array) -> Array:
    """Return the sums of products over the last dimensions; for a number, the product.

    >>> inner(np.ones((2, 3)), np.ones(3)).tolist()
    [3.0, 3.0]
    """
    x, y = arrays(input, other)
    if not x.shape or not y.shape:
        return multiply(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise size_error(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(x.shape)} and {list(y.shape)}"
        )
    require_one_dtype(input, other)
    return _dot(x, y) if len(x.shape) == len(y.shape) == 1 else _inner(x, y)


@one_node("MmBackward0")
def _inner(x: Array, y: Array) -> Array:
    return contraction.tensordot(x, y, axes=(-1, -1))


@function("outer", "ger")
def outer(input: ArrayLike, vec2: ArrayLike) -> Array:
    """Return the products of each element of one vector with each element of another.

    >>> outer(np.array([1.0, 2.0]), np.array([3.0, 4.0])).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    x, y = arrays(input, vec2)
    for name, v in (("self", x), ("vec2", y)):
        if len(v.shape) != 1:
            raise size_error(f"outer: Expected 1-D argument {name}, but got {len(v.shape)}-D")
    return _outer(x, y)


@one_node("MulBackward0")
def _outer(x: Array, y: Array) -> Array:
    return multiply(linear.reshape(x, shape=(*x.shape, 1)), y)


# -- products added to a value -------------------------------------------------------------------------------------
def _added(x: Array, product: Operand, beta: float, alpha: float) -> Any:
    """Compute `beta * x + alpha * product`; with a `beta` of 0 the values of `x` are ignored."""
    if is_whole(x):  # the factors have the dtype of the Tensors
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else multiply(product, alpha)
    if beta == 0:
        return product
    return add(x if beta == 1 else multiply(x, beta), product)


def _check_added(x: Array, shape: tuple[int, ...]) -> None:
    if broadcast_shapes(x.shape, shape) != shape:
        raise size_error(
            f"The expanded size of the tensor {list(x.shape)} must match the shape {list(shape)} of the product"
        )


@function("addmm", in_place=True)
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """Return `beta * input + alpha * (mat1 @ mat2)`. The input broadcasts.

    >>> addmm(np.ones(2), np.ones((1, 3)), np.ones((3, 2)), alpha=2).tolist()
    [[7.0, 7.0]]
    """
    require_one_dtype(mat1, mat2)
    require_one_dtype(input, mat1, "self and mat2 must have the same dtype, but got {A} and {B}")
    x, a, b = arrays(input, mat1, mat2)
    for name, v in (("mat1", a), ("mat2", b)):
        if len(v.shape) != 2:
            raise size_error(f"{name} must be a matrix, got {len(v.shape)}-D tensor")
    if a.shape[1] != b.shape[0]:
        raise size_error(f"mat1 and mat2 shapes cannot be multiplied ({_times(a.shape)} and {_times(b.shape)})")
    _check_added(x, (a.shape[0], b.shape[1]))
    result: Array = _addmm(x, a, b, beta=beta, alpha=alpha)
    return result


def _added_product(x: Array, a: Array, b: Array, *, beta: float, alpha: float) -> Array:
    result: Array = _added(x, matmul_any(a, b), beta, alpha)
    return result


_addmm, _addmv = one_node("AddmmBackward0")(_added_product), one_node("AddmvBackward0")(_added_product)
_baddbmm = one_node("BaddbmmBackward0")(_added_product)


@function("addmv", in_place=True)
def addmv(input: Array, mat: Array, vec: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """Return `beta * input + alpha * (mat @ vec)`. The input broadcasts."""
    require_one_dtype(mat, vec)
    require_one_dtype(input, mat, "addmv input tensors must have the same dtype, but got {A}, {B}, and {B}")
    x, a, b = arrays(input, mat, vec)
    if (len(a.shape), len(b.shape)) != (2, 1):
        raise size_error(f"vector + matrix @ vector expected, got {len(x.shape)}, {len(a.shape)}, {len(b.shape)}")
    if a.shape[1] != b.shape[0]:
        raise size_error(f"size mismatch, got input ({a.shape[0]}), mat ({_times(a.shape)}), vec ({b.shape[0]})")
    _check_added(x, (a.shape[0],))
    result: Array = _addmv(x, a, b, beta=beta, alpha=alpha)
    return result


@function("addr", in_place=True)
def addr(input: ArrayLike, vec1: ArrayLike, vec2: ArrayLike, *, beta: float = 1, alpha: float = 1) -> Array:
    """Return `beta * input + alpha * outer(vec1, vec2)`. The input broadcasts."""
    x, a, b = arrays(input, vec1, vec2)
    for name, v in (("vec1", a), ("vec2", b)):
        if len(v.shape) != 1:
            raise size_error(f"addr: Expected 1-D argument {name}, but got {len(v.shape)}-D")
    _check_added(x, (a.shape[0], b.shape[0]))
    result: Array = _addr(x, a, b, beta=beta, alpha=alpha)
    return result


@one_node("AddrBackward0")
def _addr(x: Array, a: Array, b: Array, *, beta: float, alpha: float) -> Array:
    result: Array = _added(x, multiply(linear.reshape(a, shape=(*a.shape, 1)), b), beta, alpha)
    return result


@function("baddbmm", in_place=True)
def baddbmm(input: Array, batch1: Array, batch2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """Return `beta * input + alpha * bmm(batch1, batch2)`. The input broadcasts."""
    require_one_dtype(batch1, batch2)
    require_one_dtype(input, batch1, "Input dtypes must be the same, got: input {a}, batch1: {b}, batch2: {b}")
    x, a, b = arrays(input, batch1, batch2)
    _check_batches(a, b)
    _check_added(x, (*a.shape[:2], b.shape[2]))
    result: Array = _baddbmm(x, a, b, beta=beta, alpha=alpha)
    return result


@function("addbmm", in_place=True)
def addbmm(input: object, batch1: ArrayLike, batch2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    """Return `beta * input + alpha * bmm(batch1, batch2).sum(0)`. The input broadcasts."""
    require_one_dtype(batch1, batch2)
    require_one_dtype(input, batch1, "self and mat2 must have the same dtype, but got {A} and {B}")
    x, a, b = arrays(input, batch1, batch2)
    _check_batches(a, b)
    _check_added(x, (a.shape[1], b.shape[2]))
    result: Array = _addbmm(x, a, b, beta=beta, alpha=alpha)
    return result


@one_node("AddbmmBackward0")
def _addbmm(x: Array, a: Array, b: Array, *, beta: float, alpha: float) -> Array:
    result: Array = _added(x, contraction.tensordot(a, b, axes=([0, 2], [0, 1])), beta, alpha)
    return result


# -- sums of products over named dimensions ------------------------------------------------------------------------
@function("einsum", methods=False)
def einsum(equation: str, *operands: Operand) -> Array:
    """Return the sum of products that a string of subscripts describes, as `numpy.einsum`.

    >>> einsum("ij,j->i", np.ones((2, 3)), np.ones(3)).tolist()
    [3.0, 3.0]
    """
    if not isinstance(equation, str):
        raise refuse("einsum with lists of dimensions", "write the subscripts as a string")
    args = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    for x in args[1:]:
        require_one_dtype(args[0], x)
    return _einsum(arrays(*args), equation=equation)


@one_node("EinsumBackward0")
def _einsum(xs: list[Array], *, equation: str) -> Array:
    return contraction.einsum(equation, *xs)


@function("tensordot", methods=False)
def tensordot(a: Array, b: Array, dims: int | Sequence[int] = 2) -> Array:
    """Return sums of products over the last dimensions of `a` and the first dimensions of `b`, or over pairs.

    >>> tensordot(np.ones((2, 3)), np.ones((3, 4)), 1).shape
    (2, 4)
    """
    require_one_dtype(a, b)
    x, y = arrays(a, b)
    return _tensordot(x, y, dims=dims)


@one_node("TensordotBackward0")
def _tensordot(x: Array, y: Array, *, dims: Any) -> Array:
    if not isinstance(dims, int | np.integer):  # a dimension of size one is broadcast
        for k, d in zip(*dims):
            n, m = x.shape[k], y.shape[d]
            if n != 1 and m == 1:
                x = linear.keep_axes(linear.reduce_sum(x, axes=(k % len(x.shape),)), x.shape, (k,))
            if m != 1 and n == 1:
                y = linear.keep_axes(linear.reduce_sum(y, axes=(d % len(y.shape),)), y.shape, (d,))
    return contraction.tensordot(x, y, axes=dims)


@function("kron")
def kron(input: ArrayLike, other: ArrayLike) -> Array:
    """Return the Kronecker product: each element of one operand times the other operand.

    >>> kron(np.array([1, 2]), np.array([1, 10])).tolist()
    [1, 10, 2, 20]
    """
    x, y = arrays(input, other)
    result: Array = _kron(x, y)
    return result


@one_node("KronBackward0")
def _kron(x: Array, y: Array) -> Array:
    return numpy_joining.kron(x, y)


@function("cross")
def cross(input: Array, other: Array, dim: int | None = None) -> Array:
    """Return the cross product of vectors along `dim`, or along the first dimension of size 3.

    >>> cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    require_one_dtype(input, other, "expected scalar type {A} but found {B}")
    x, y = arrays(input, other)
    if len(x.shape) != len(y.shape):
        raise size_error("linalg.cross: inputs must have the same number of dimensions.")
    if dim is None:
        if 3 not in x.shape:
            raise size_error("no dimension of size 3 in input")
        dim = x.shape.index(3)
    k = dim_of(dim, len(x.shape))
    if x.shape[k] != 3 or y.shape[k] != 3:
        raise size_error(f"linalg.cross: inputs dimension {k} must have length 3. Got {x.shape[k]} and {y.shape[k]}")
    broadcast_shapes(x.shape, y.shape)
    result: Array = _cross(x, y, dim=k)
    return result


@one_node("LinalgCrossBackward0")
def _cross(x: Array, y: Array, *, dim: int) -> Array:
    return numpy_products.cross(x, y, axis=dim)


@method("trace")
def trace(self: Array) -> Array:
    """The sum of the main diagonal of a matrix.

    >>> float(trace(np.array([[1.0, 2.0], [3.0, 4.0]])))
    5.0
    """
    if len(self.shape) != 2:
        raise size_error(f"trace: expected a matrix, but got tensor with dim {len(self.shape)}")
    return _trace(self)


@one_node("TraceBackward0")
def _trace(x: Array) -> Array:
    return linear.reduce_sum(diagonal(x), axes=(0,))


@function("vander", methods=False)
def vander(x: ArrayLike, N: int | None = None, *, increasing: bool = False) -> Array:
    """Return the powers of a vector as columns of a matrix, in descending order.

    >>> vander(np.array([1.0, 2.0]), 3).tolist()
    [[1.0, 1.0, 1.0], [4.0, 2.0, 1.0]]
    """
    v = one(x)
    if len(v.shape) != 1:
        raise size_error("x must be a one-dimensional tensor")
    n = size_of(v) if N is None else N
    if n < 0:
        raise size_error("N must be non-negative.")
    return _vander(v, n=n, increasing=increasing)


@one_node("VanderBackward0")
def _vander(x: Array, *, n: int, increasing: bool) -> Array:
    exponents = np.arange(n) if increasing else np.arange(n)[::-1].copy()
    return power(*arrays(linear.reshape(x, shape=(*x.shape, 1)), exponents))
