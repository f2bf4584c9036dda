"""Single NumPy functions, with the arrays that each is called on: the rows of `bench_kernels`.

A row is a function and its operands, each named by a letter (`operand`): x and y are vectors, a and b matrices of as
many elements, and so on. `DTYPES` has the dtypes of each group of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["DTYPES", "GROUPS", "STREAMS", "TINY", "Rows", "by_blas", "operand"]

Rows = dict[str, tuple[Callable[..., Any], str]]

DTYPES = {
    "functions": ("float64", "float32"),
    "arithmetic": ("float64", "float32", "int64", "int32"),
    "mixed": ("float64", "float32"),
    "reductions": ("float64", "float32", "int64"),
    "reductions of floats": ("float64", "float32"),
    "reductions of truths": ("bool",),
    "moves": ("float64", "float32", "bool"),
    "sorting": ("float64", "int64"),
    "products": ("float64", "float32"),
}

FUNCTIONS: Rows = {
    "sqrt": (np.sqrt, "p"),
    "exp": (np.exp, "x"),
    "exp2": (np.exp2, "x"),
    "expm1": (np.expm1, "x"),
    "log": (np.log, "p"),
    "log2": (np.log2, "p"),
    "log1p": (np.log1p, "p"),
    "sin": (np.sin, "x"),
    "cos": (np.cos, "x"),
    "tan": (np.tan, "x"),
    "tanh": (np.tanh, "x"),
    "sinh": (np.sinh, "x"),
    "arctan": (np.arctan, "x"),
    "cbrt": (np.cbrt, "x"),
    "x ** 3": (lambda x: x**3, "x"),
    "power": (np.power, "py"),
    "arctan2": (np.arctan2, "xy"),
    "hypot": (np.hypot, "xy"),
    "logaddexp": (np.logaddexp, "xy"),
    "divide": (np.divide, "xp"),
    "reciprocal": (np.reciprocal, "p"),
    "floor": (np.floor, "x"),
    "rint": (np.rint, "x"),
    "isnan": (np.isnan, "x"),
    "isfinite": (np.isfinite, "x"),
    "sigmoid": (lambda x: 1.0 / (1.0 + np.exp(-x)), "x"),
    "softmax rows": (lambda a: softmax(a), "a"),
}
ARITHMETIC: Rows = {
    "add": (np.add, "xy"),
    "subtract": (np.subtract, "xy"),
    "multiply": (np.multiply, "xy"),
    "x * y + z": (lambda x, y, z: x * y + z, "xyz"),
    "x + 1": (lambda x: x + 1, "x"),
    "negative": (np.negative, "x"),
    "absolute": (np.absolute, "x"),
    "sign": (np.sign, "x"),
    "square": (np.square, "x"),
    "maximum": (np.maximum, "xy"),
    "minimum": (np.minimum, "xy"),
    "clip": (lambda x: np.clip(x, -1, 1), "x"),
    "less": (np.less, "xy"),
    "equal": (np.equal, "xy"),
    "x > 0": (lambda x: x > 0, "x"),
    "where": (lambda m, x, y: np.where(m, x, y), "mxy"),
    "where x > y": (lambda x, y: np.where(x > y, x, y), "xy"),
    "floor_divide": (np.floor_divide, "xp"),
    "remainder": (np.remainder, "xp"),
}
MIXED: Rows = {
    "as int64": (lambda x: x.astype(np.int64), "x"),
    "as float32": (lambda x: x.astype(np.float32), "x"),
    "float + int": (lambda x, i: x + i, "xi"),
    "float * bool": (lambda x, m: x * m, "xm"),
    "int to float": (lambda i: i * 0.5, "i"),
    "bool to float": (lambda m: m * 0.5, "m"),
    "logical_and": (np.logical_and, "mn"),
    "logical_not": (np.logical_not, "m"),
    "0 < x and x < 1": (lambda x: (x > 0) & (x < 1), "x"),
    "row added": (lambda a, r: a + r, "ar"),
    "column added": (lambda a, c: a + c[:, None], "ac"),
    "a + b.T": (lambda a, b: a + b.T, "aB"),
    "outer sum": (lambda c, r: c[:, None] + r, "cr"),
}


def softmax(a: Any) -> Any:
    e = np.exp(a - np.max(a, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def logsumexp(a: Any) -> Any:
    m = np.max(a, axis=1, keepdims=True)
    return m[:, 0] + np.log(np.sum(np.exp(a - m), axis=1))


def everywhere(name: str, function: Callable[..., Any]) -> Rows:
    """A reduction of everything, by columns and by rows, in both orders of memory."""
    return {
        name: (function, "x"),
        f"{name} axis 0": (lambda a: function(a, axis=0), "a"),
        f"{name} axis 1": (lambda a: function(a, axis=1), "a"),
        f"{name} axis 0, order F": (lambda a: function(a, axis=0), "f"),
        f"{name} axis 1, order F": (lambda a: function(a, axis=1), "f"),
    }


REDUCTIONS: Rows = {
    row: found
    for name in ("sum", "mean", "max", "min", "argmax", "argmin", "any", "all", "cumsum")
    for row, found in everywhere(name, getattr(np, name)).items()
}
REDUCTIONS_OF_FLOATS: Rows = {
    **everywhere("prod", np.prod),
    **everywhere("var", np.var),
    "norm": (np.linalg.norm, "x"),
    "norm axis 1": (lambda a: np.linalg.norm(a, axis=1), "a"),
    "logsumexp axis 1": (logsumexp, "a"),
    "nansum": (np.nansum, "x"),
    "diff": (np.diff, "x"),
}
REDUCTIONS_OF_BOOLEANS: Rows = {
    **everywhere("any", np.any),
    **everywhere("all", np.all),
    **everywhere("sum", np.sum),
    "argmax": (np.argmax, "x"),
}
MOVES: Rows = {
    "copy": (np.copy, "x"),
    "transpose": (lambda a: np.ascontiguousarray(a.T), "a"),
    "ravel, order F": (lambda a: a.ravel(order="F"), "a"),
    "concatenate": (lambda x, y: np.concatenate([x, y]), "xy"),
    "concatenate axis 0": (lambda a, b: np.concatenate([a, b]), "ab"),
    "concatenate axis 1": (lambda a, b: np.concatenate([a, b], axis=1), "ab"),
    "stack": (lambda x, y: np.stack([x, y]), "xy"),
    "stack axis 1": (lambda x, y: np.stack([x, y], axis=1), "xy"),
    "pad": (lambda a: np.pad(a, 1), "a"),
    "roll": (lambda x: np.roll(x, 3), "x"),
    "roll axis 1": (lambda a: np.roll(a, 3, axis=1), "a"),
    "flip": (lambda x: x[::-1].copy(), "x"),
    "flip axis 1": (lambda a: a[:, ::-1].copy(), "a"),
    "every other": (lambda x: x[::2].copy(), "x"),
    "every other column": (lambda a: a[:, ::2].copy(), "a"),
    "columns cut out": (lambda a: a[:, 2:-2].copy(), "a"),
    "repeat": (lambda x: np.repeat(x, 3), "x"),
    "repeat axis 0": (lambda a: np.repeat(a, 2, axis=0), "a"),
    "tile": (lambda x: np.tile(x, 3), "x"),
    "broadcast": (lambda r, a: np.broadcast_to(r, a.shape).copy(), "ra"),
    "take": (lambda x, i: x[i], "xi"),
    "take rows": (lambda a, j: a[j], "aj"),
    "take columns": (lambda a, k: a[:, k], "ak"),
    "take_along_axis": (lambda a, rows: np.take_along_axis(a, rows, axis=0), "al"),
    "set a row": (lambda a, r: set_row(a, r), "ar"),
    "triu": (np.triu, "a"),
    "zeros_like": (np.zeros_like, "x"),
    "mask chosen": (lambda x, m: np.where(m, x, np.zeros_like(x)), "xm"),
}


def set_row(a: Any, r: Any) -> Any:
    result = a.copy()
    result[1] = r
    return result


def scatter(x: Any, i: Any, y: Any) -> Any:
    result = x.copy()
    np.add.at(result, i, y)
    return result


SORTING: Rows = {
    "sort": (np.sort, "x"),
    "sort axis 0": (lambda a: np.sort(a, axis=0), "a"),
    "sort axis 1": (lambda a: np.sort(a, axis=1), "a"),
    "argsort axis 1": (lambda a: np.argsort(a, axis=1, kind="stable"), "a"),
    "searchsorted": (np.searchsorted, "sy"),
    "add.at": (scatter, "xiy"),
}
PRODUCTS: Rows = {
    "dot": (np.dot, "xy"),
    "matvec": (np.matmul, "ar"),
    "matvec, transposed": (lambda a, c: a.T @ c, "ac"),
    "vecmat": (lambda c, a: c @ a, "ca"),
    "matvec, 20 rows": (lambda x, y: x.reshape(20, -1) @ y[: x.size // 20], "xy"),
    "vecmat, 20 rows": (lambda x, y: y[:20] @ x.reshape(20, -1), "xy"),
    "matmul": (np.matmul, "aB"),
    "matmul, a @ a.T": (lambda a: a @ a.T, "a"),
    "matmul, a.T @ a": (lambda a: a.T @ a, "a"),
    "outer": (np.outer, "cr"),
    "einsum ij,ij->i": (lambda a, b: np.einsum("ij,ij->i", a, b), "ab"),
    "einsum ij,ij->": (lambda a, b: np.einsum("ij,ij->", a, b), "ab"),
    "stack of 4 by 4": (np.matmul, "tu"),
    "stack of 16 by 16": (np.matmul, "vw"),
    "stack of 4 by 4 times vectors": (lambda t, u: (t @ u[:, :, :1])[:, :, 0], "tu"),
}

GROUPS: dict[str, Rows] = {
    "functions": FUNCTIONS,
    "arithmetic": ARITHMETIC,
    "mixed": MIXED,
    "reductions": REDUCTIONS,
    "reductions of floats": REDUCTIONS_OF_FLOATS,
    "reductions of truths": REDUCTIONS_OF_BOOLEANS,
    "moves": MOVES,
    "sorting": SORTING,
    "products": PRODUCTS,
}
# Those that wait for memory, if their arrays fit in no cache.
STREAMS = ("arithmetic", "mixed", "reductions", "reductions of floats", "reductions of truths", "moves")
# Of few elements, what a call costs.
TINY = ("add", "exp", "x * y + z", "sum", "max", "where", "copy", "concatenate", "dot", "matvec", "argmax", "x > 0")


def by_blas(name: str, letter: str, *arrays: Any) -> Any:
    """What a product is by the BLAS that SciPy has, called directly; None if it is no single product. BLAS takes arrays
    in order F, as which it is given the transposed ones."""
    from scipy.linalg import blas

    first, second = arrays if len(arrays) == 2 else (arrays[0], arrays[0])
    if name == "dot":
        return getattr(blas, f"{letter}dot")(first, second)
    if name == "matvec":
        return getattr(blas, f"{letter}gemv")(1.0, first.T, second, trans=1)
    if name == "matvec, transposed":
        return getattr(blas, f"{letter}gemv")(1.0, first.T, second)
    if name == "matmul":
        return getattr(blas, f"{letter}gemm")(1.0, second.T, first.T).T
    return None


def sides(size: int) -> tuple[int, int]:
    """The sides of a matrix of about `size` elements, no power of two and not equal."""
    side = round(size**0.5)
    return (side - side // 5, side + side // 4)


def operand(letter: str, dtype: str, size: int) -> Any:
    """The array that a letter stands for; the same for each call.

    x, y, z: vectors; p: a positive one; s: a sorted one; a, b: matrices, f: in order F, B: with the sides of b.T; r, c:
    a row and a column; t to w: stacks of small matrices; m, n: truths; i: places in a vector, j: rows, k: columns, l: a
    row for each column.
    """
    rng = np.random.default_rng(ord(letter))
    m, n = sides(size)
    places = {"i": (size, size), "j": (m, m), "k": (n, n), "l": (m, (1, n))}
    if letter in places:
        return rng.integers(0, *places[letter])
    shapes: dict[str, Any] = {"B": (n, m), "r": n, "c": m, **dict.fromkeys("abf", (m, n))}
    shapes |= dict.fromkeys("tu", (max(size // 16, 1), 4, 4)) | dict.fromkeys("vw", (max(size // 256, 1), 16, 16))
    shape = shapes.get(letter, size)
    if letter in "mn" or dtype == "bool":
        return rng.random(shape) < 0.5
    values = rng.standard_normal(shape)
    if letter == "p":
        values = np.abs(values) + 0.1
    if dtype.startswith("int"):
        values = values * 100 + (letter == "p")
    result = values.astype(dtype)
    if letter == "s":
        result.sort()
    return np.asfortranarray(result) if letter == "f" else result
