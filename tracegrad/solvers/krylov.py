"""Krylov solvers of linear systems, of `scipy.sparse.linalg`.

The derivative of a solution solves a system with the same matrix, or its transpose, by the same solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.elementwise.table import add, negative
from tracegrad.ops.linalg.sparse import sparse_outer, sparse_product
from tracegrad.ops.shape.linear import reshape
from tracegrad.scipy_api.sparse import Sparse, wrapped
from tracegrad.solvers.scipy_function import SolverArguments, scipy_function, solver
from tracegrad.solvers.solver_node import OpaqueCall, SolverRule
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.typing import Array


class _KrylovCall(OpaqueCall):
    """Opaque call of a Krylov solver for a matrix and a right-hand side."""

    def __init__(self, function: str, options: dict[str, object], csc: bool):
        self.function, self.options, self.csc = function, options, csc
        self.name = f"{function} {options!r} {csc}"

    def __call__(self, data: NDArray, indices: NDArray, indptr: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
        from scipy import sparse

        kind = sparse.csc_array if self.csc else sparse.csr_array
        matrix = kind((data, indices, indptr), shape=(b.shape[0],) * 2)
        x, info = scipy_function(f"sparse.linalg.{self.function}")(matrix, b, **self.options)
        return x, np.asarray(info, np.int64)


def _solved(call: _KrylovCall, held: Sequence[Array], b: Array) -> tuple[Array, Array]:
    outputs = opaque(*held, b, results=((b.shape, "f64"), ((), "i64")), call=call)
    x, info = custom_call(*outputs, *held, b, count=2, rule=_derivative_rule(call))
    return x, info


def _derivative_rule(call: _KrylovCall) -> SolverRule:
    """Return the rule, with respect to the matrix data and the right-hand side."""
    later = _KrylovCall(call.function, {k: v for k, v in call.options.items() if k != "x0"}, call.csc)
    transposed = _KrylovCall(call.function, later.options, not call.csc)
    column = reshape

    def pull(
        cts: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...], wanted: tuple[int, ...]
    ) -> dict[int, Array]:
        share, n = _solved(transposed, inputs[:3], cts[0])[0], outputs[0].shape[0]
        table = {3: share}
        if 0 in wanted:
            sides = [column(v, shape=(n, 1)) for v in ((outputs[0], share) if call.csc else (share, outputs[0]))]
            table[0] = negative(sparse_outer(inputs[1], inputs[2], *sides))
        return table

    def push(
        tangents: tuple[Array, ...], outputs: tuple[Array, ...], inputs: tuple[Array, ...], moved: tuple[int, ...]
    ) -> dict[int, Array]:
        args, n = dict(zip(moved, tangents)), outputs[0].shape[0]
        right = [args[3]] if 3 in args else []
        if 0 in args:
            x = column(outputs[0], shape=(n, 1))
            change = sparse_product(args[0], *inputs[1:3], x, rows=n, transposed=call.csc)
            right.append(negative(column(change, shape=(n,))))
        if not right:
            return {}
        return {0: _solved(later, inputs[:3], right[0] if len(right) == 1 else add(*right))[0]}

    return SolverRule(repr(call), {"pull": pull, "push": push}, chooses=True)


def _iterative(name: str) -> None:
    @solver(f"sparse.linalg.{name}")
    def solve(inputs: SolverArguments) -> object:
        matrix = wrapped(inputs.pop("A"))
        if not isinstance(matrix, Sparse):
            raise refuse(
                f"{inputs.api_name} of a matrix that is not sparse", "use np.linalg.solve or scipy.linalg.solve"
            )
        if inputs["callback"] is not None or inputs.get("M") is not None:
            raise refuse(f"{inputs.api_name} with callback= or M=")
        data, right = promoted([to_float(v) for v in arrays(matrix._held[0], inputs.pop("b"))])
        call = _KrylovCall(name, inputs.options(), matrix._csc)
        x, info = _solved(call, [data, *arrays(*matrix._held[1:])], right.reshape(-1))
        return x.reshape(*right.shape[:1]), info


for _name in ("cg", "cgs", "bicg", "bicgstab", "gmres", "lgmres", "minres", "qmr", "gcrotmk", "tfqmr"):
    _iterative(_name)
