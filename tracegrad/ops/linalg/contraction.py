"""Contractions: `matmul`, computed by BLAS, and dot, tensordot and einsum in terms of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, name_of
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Contract
from tracegrad.ops.core.op import HOLOMORPHIC, Sample, normalize_axis, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.elementwise.table import multiply
from tracegrad.ops.indexing.diagonal import diagonal
from tracegrad.ops.shape.batching import to_axis
from tracegrad.ops.shape.linear import broadcast_to, cast, reduce_sum, reshape, transpose
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- matmul ----------------------------------------------------------------------------------------
@primitive(Contract(), on_complex=HOLOMORPHIC)
def matmul(x: NDArray, y: NDArray) -> NDArray:
    """The product of two stacks of matrices with equal leading axes and one dtype."""
    result: NDArray = np.matmul(x, y)
    return result


@matmul.def_aval
def _(x: Aval, y: Aval) -> Aval:
    if (
        x.ndim != y.ndim
        or x.ndim < 2
        or x.shape[:-2] != y.shape[:-2]
        or x.shape[-1] != y.shape[-2]
        or x.dtype != y.dtype
    ):
        raise ShapeError(f"matmul: cannot multiply {x} and {y}")
    return Aval((*x.shape[:-1], y.shape[-1]), x.dtype)


matmul.separately_linear("x", "y")


@matmul.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, y: Array) -> Array:
    return matmul(ct, matrix_transpose(y))


@matmul.def_vjp("y")
def _(ct: Array, ans: Array, x: Array, y: Array) -> Array:
    return matmul(matrix_transpose(x), ct)


@matmul.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, y: Array) -> Array:
    # One product of larger matrices where one operand is the same for all.
    if all(batched):
        return matmul(x, y)
    if not batched[0]:
        return matrix_transpose(_matmul_of_rows(size, matrix_transpose(y), matrix_transpose(x)))
    return _matmul_of_rows(size, x, y)


def _matmul_of_rows(size: int, x: Array, y: Array) -> Array:
    """The products of `size` stacks of matrices with one stack, as one product of all their rows."""
    last = len(x.shape) - 2
    x = to_axis(x, 0, last - 1)
    *batch_shape, _, rows, inner = x.shape
    out = matmul(reshape(x, shape=(*batch_shape, size * rows, inner)), y)
    return to_axis(reshape(out, shape=(*batch_shape, size, rows, out.shape[-1])), last - 1, 0)


@matmul.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)), uniform((4, 2))), {}
    yield (uniform((30, 40), dtype="float32"), uniform((40, 20), dtype="float32")), {}
    yield (uniform((2, 3, 4)), uniform((2, 4, 2))), {}
    yield (uniform((20, 1)), uniform((1, 30))), {}
    yield (uniform((1, 20)), uniform((20, 1))), {}
    yield (integers((3, 4), -9, 9), integers((4, 2), -9, 9)), {}


def matrix_transpose(x: Array) -> Array:
    """`x` with its last two axes exchanged."""
    n = len(x.shape)
    return transpose(x, perm=(*range(n - 2), n - 1, n - 2))


# -- with vectors: one op each, which the compiler computes as a matmul ----------------------------------
@primitive(on_complex=HOLOMORPHIC)
def matvec(x: NDArray, y: NDArray) -> NDArray:
    """The product of a matrix and a vector of one dtype."""
    result: NDArray = np.dot(x, y)
    return result


@matvec.def_aval
def _(x: Aval, y: Aval) -> Aval:
    if (x.ndim, y.ndim) != (2, 1) or x.shape[1] != y.shape[0] or x.dtype != y.dtype:
        raise ShapeError(f"matvec: cannot multiply {x} and {y}")
    return Aval(x.shape[:1], x.dtype)


matvec.separately_linear("x", "y")


@matvec.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, y: Array) -> Array:
    return multiply(reshape(ct, shape=(ct.shape[0], 1)), y)


@matvec.def_vjp("y")
def _(ct: Array, ans: Array, x: Array, y: Array) -> Array:
    return matvec(transpose(x, perm=(1, 0)), ct)


@matvec.def_decompose
def _(x: Array, y: Array) -> Array:
    return reshape(matmul(x, reshape(y, shape=(y.shape[0], 1))), shape=x.shape[:1])


@matvec.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, y: Array) -> Array:
    if all(batched):
        return reshape(matmul(x, reshape(y, shape=(*y.shape, 1))), shape=x.shape[:2])
    if not batched[0]:
        return matmul(y, transpose(x, perm=(1, 0)))
    return reshape(matvec(reshape(x, shape=(size * x.shape[1], x.shape[2])), y), shape=x.shape[:2])


@matvec.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)), uniform((4,))), {}
    yield (uniform((30, 20), dtype="float32"), uniform((20,), dtype="float32")), {}
    yield (integers((3, 4), -9, 9), integers((4,), -9, 9)), {}


@primitive(on_complex=HOLOMORPHIC)
def inner(x: NDArray, y: NDArray) -> Any:
    """The sum of the products of two vectors of one dtype."""
    return np.dot(x, y)


@inner.def_aval
def _(x: Aval, y: Aval) -> Aval:
    if x.ndim != 1 or x != y:
        raise ShapeError(f"inner: cannot multiply {x} and {y}")
    return Aval((), x.dtype)


inner.separately_linear("x", "y")


@inner.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, y: Array) -> Array:
    return multiply(ct, y)


@inner.def_vjp("y")
def _(ct: Array, ans: Array, x: Array, y: Array) -> Array:
    return multiply(ct, x)


@inner.def_decompose
def _(x: Array, y: Array) -> Array:
    n = x.shape[0]
    return reshape(matmul(reshape(x, shape=(1, n)), reshape(y, shape=(n, 1))), shape=())


@inner.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, y: Array) -> Array:
    if all(batched):
        return reduce_sum(multiply(x, y), axes=(1,))
    return matvec(x, y) if batched[0] else matvec(y, x)


@inner.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((4,)), uniform((4,), seed=1)), {}
    yield (uniform((30,), dtype="float32"), uniform((30,), seed=1, dtype="float32")), {}
    yield (integers((5,), -9, 9), integers((5,), -9, 9, seed=1)), {}


# -- what is made of it --------------------------------------------------------------------------------
def promoted(x: Array, y: Array) -> tuple[Array, Array]:
    """Both operands in their common dtype."""
    if x.dtype == y.dtype:
        return x, y
    dtype = np.result_type(x.dtype, y.dtype)
    as_common = [v if v.dtype == dtype else cast(v, dtype=name_of(dtype)) for v in (x, y)]
    return as_common[0], as_common[1]


def matmul_any(x: Array, y: Array) -> Array:
    """`np.matmul` for operands of all ranks: vectors are promoted, leading axes broadcast."""
    if not x.shape or not y.shape:
        raise ShapeError(f"matmul: operands need at least one axis, got shapes {x.shape} and {y.shape}")
    inner = y.shape[-2] if len(y.shape) > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ShapeError(f"matmul: cannot multiply shapes {x.shape} and {y.shape}: {x.shape[-1]} is not {inner}")
    x, y = promoted(x, y)
    if len(y.shape) <= 2:
        rows, columns = x.shape[:-1], y.shape[1:]
        x = x if len(rows) == 1 else reshape(x, shape=(math.prod(rows), inner))
        flat = matmul(x, y if columns else reshape(y, shape=(inner, 1)))
        return flat if len(rows) == len(columns) == 1 else reshape(flat, shape=(*rows, *columns))
    vector = len(x.shape) == 1
    x = reshape(x, shape=(1, inner)) if vector else x
    batch_shape = x.shape[:-2]
    try:
        batch_shape = batch_shape if batch_shape == y.shape[:-2] else np.broadcast_shapes(batch_shape, y.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: leading axes of shapes {x.shape} and {y.shape} cannot be broadcast") from None
    x, y = [v if v.shape[:-2] == batch_shape else broadcast_to(v, shape=(*batch_shape, *v.shape[-2:])) for v in (x, y)]
    out = matmul(x, y)
    return reshape(out, shape=(*batch_shape, y.shape[-1])) if vector else out


def tensordot(x: Any, y: Any, axes: Any = 2) -> Array:
    """`np.tensordot`: the sum of products over the paired `axes`."""
    if isinstance(axes, int | np.integer):
        axes = range(len(x.shape) - int(axes), len(x.shape)), range(int(axes))
    named: list[list[int]] = [[int(a)] if isinstance(a, int | np.integer) else list(a) for a in axes]
    left = [normalize_axis("tensordot", a, len(x.shape)) for a in named[0]]
    right = [normalize_axis("tensordot", a, len(y.shape)) for a in named[1]]
    if [x.shape[a] for a in left] != [y.shape[b] for b in right]:
        raise ShapeError(f"tensordot: axes {left} of shape {x.shape} do not match axes {right} of shape {y.shape}")
    x, y = promoted(x, y)
    free_x = [a for a in range(len(x.shape)) if a not in left]
    free_y = [b for b in range(len(y.shape)) if b not in right]
    rows, columns = tuple(x.shape[a] for a in free_x), tuple(y.shape[b] for b in free_y)
    inner = math.prod(x.shape[a] for a in left)
    flat = matmul(
        reshape(transpose(x, perm=(*free_x, *left)), shape=(math.prod(rows), inner)),
        reshape(transpose(y, perm=(*right, *free_y)), shape=(inner, math.prod(columns))),
    )
    return reshape(flat, shape=(*rows, *columns))


def dot(x: Array, y: Array) -> Array:
    """`np.dot`: the product of scalars, vectors or matrices; else a sum over the last and the second-last axis."""
    if not x.shape or not y.shape:
        return multiply(x, y)
    if len(y.shape) <= 2:
        return matmul_any(x, y)
    if x.shape[-1] != y.shape[-2]:
        raise ShapeError(f"dot: shapes {x.shape} and {y.shape} are not aligned: {x.shape[-1]} is not {y.shape[-2]}")
    return tensordot(x, y, axes=([len(x.shape) - 1], [len(y.shape) - 2]))


# -- einsum ----------------------------------------------------------------------------------------------
def einsum(subscripts: str, *operands: Array) -> Array:
    """`np.einsum` with a subscript string: pairs are contracted from left to right, each by one `matmul`."""
    names, wanted = parse_einsum(subscripts, [len(x.shape) for x in operands])
    operands, names = _without_ones(operands, names)
    _check_sizes(subscripts, names, operands)
    terms = [_diagonal(x, n) for x, n in zip(operands, names)]
    while len(terms) > 1:
        (x, a), (y, b), *rest = terms
        later = set(wanted).union(*(n for _, n in rest))
        terms = [_contract(x, a, y, b, later), *rest]
    x, have = terms[0]
    axes = tuple(i for i, n in enumerate(have) if n not in wanted)
    x, have = (reduce_sum(x, axes=axes) if axes else x), [n for n in have if n in wanted]
    return transpose(x, perm=tuple(have.index(n) for n in wanted))


def parse_einsum(subscripts: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The axis names of every operand and of the result; an ellipsis becomes the names "0", "1", ..."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ShapeError(f"einsum: {subscripts!r} names {len(inputs)} operands, got {len(ranks)}")
    names = [_axis_names(subscripts, term, rank) for term, rank in zip(inputs, ranks)]
    dots = max(([n for n in term if n.isdigit()] for term in names), key=len)
    if arrow:
        before, _, after = right.partition("...")
        wanted = [*before, *(dots if "..." in right else []), *after]
    else:
        every = [n for term in names for n in term]
        wanted = [*dots, *sorted(n for n in set(every) if every.count(n) == 1 and not n.isdigit())]
    unknown = [n for n in wanted if not any(n in term for term in names)]
    if unknown or len(set(wanted)) != len(wanted):
        raise ShapeError(f"einsum: the result of {subscripts!r} repeats an axis or names one that no operand has")
    return names, wanted


def _axis_names(subscripts: str, term: str, rank: int) -> list[str]:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots) or (not (before + after).isalpha() and before + after):
        raise ShapeError(f"einsum: the term {term!r} of {subscripts!r} does not fit an operand of {rank} axes")
    return [*before, *(str(hidden - 1 - k) for k in range(hidden)), *after]


def _without_ones(operands: tuple[Array, ...], names: list[list[str]]) -> tuple[Any, list[list[str]]]:
    """The operands without unit axes whose names have other sizes elsewhere, because they are broadcast."""
    longer = {n for x, term in zip(operands, names) for n, length in zip(term, x.shape) if length != 1}
    arrays, terms = [], []
    for x, term in zip(operands, names):
        positions = [k for k, n in enumerate(term) if x.shape[k] != 1 or n not in longer or term.count(n) > 1]
        is_unchanged = len(positions) == len(term)
        arrays.append(x if is_unchanged else reshape(x, shape=tuple([x.shape[k] for k in positions])))
        terms.append(term if is_unchanged else [term[k] for k in positions])
    return arrays, terms


def _check_sizes(subscripts: str, names: list[list[str]], operands: Sequence[Array]) -> None:
    sizes: dict[str, int] = {}
    for x, term in zip(operands, names):
        for n, length in zip(term, x.shape):
            if sizes.setdefault(n, length) != length:
                shapes = ", ".join(str(o.shape) for o in operands)
                raise ShapeError(
                    f"einsum: axis {n!r} of {subscripts!r} has sizes {sizes[n]} and {length} in shapes {shapes}"
                )


def _diagonal(x: Array, names: list[str]) -> tuple[Any, list[str]]:
    """`x` with every repeated axis name reduced to its diagonal."""
    for n in dict.fromkeys(names):
        while names.count(n) > 1:
            first = names.index(n)
            second = names.index(n, first + 1)
            x = diagonal(x, offset=0, axes=(first, second))
            names = [*(m for i, m in enumerate(names) if i not in (first, second)), n]
    return x, names


def _contract(x: Array, a: list[str], y: Array, b: list[str], later: set[str]) -> tuple[Any, list[str]]:
    x, y = promoted(x, y)
    x, a = _sum_out(x, a, later.union(b))
    y, b = _sum_out(y, b, later.union(a))
    batch = [n for n in a if n in b and n in later]
    inner = [n for n in a if n in b and n not in later]
    rows, columns = [n for n in a if n not in b], [n for n in b if n not in a]
    size = dict(zip(a, x.shape)) | dict(zip(b, y.shape))
    batch_shape = tuple(size[n] for n in batch)

    def count(group: list[str]) -> int:
        return math.prod(size[n] for n in group)

    left = transpose(x, perm=tuple(a.index(n) for n in batch + rows + inner))
    right = transpose(y, perm=tuple(b.index(n) for n in batch + inner + columns))
    out = matmul(
        reshape(left, shape=(*batch_shape, count(rows), count(inner))),
        reshape(right, shape=(*batch_shape, count(inner), count(columns))),
    )
    names = batch + rows + columns
    return reshape(out, shape=tuple(size[n] for n in names)), names


def _sum_out(x: Array, names: list[str], needed: set[str]) -> tuple[Array, list[str]]:
    axes = tuple(i for i, n in enumerate(names) if n not in needed)
    return (reduce_sum(x, axes=axes) if axes else x), [n for n in names if n in needed]
