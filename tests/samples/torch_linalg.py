"""Calls of PyTorch's functions of matrices and of order, and what PyTorch computes for them.

`python tests/samples/torch_linalg.py` asks PyTorch, which the tests do not need, and writes `data/torch_linalg.json`:
for each call the outputs, the gradients of their weighted sum, those of the weighted sum of the gradients, and the
nodes.

In a call, `f` has the functions, `L` those of `linalg`, and the names of `INPUTS` are inputs. Vectors that are defined
up to their sign are squared by `sq`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "torch_linalg.json"


def _numbers(shape: tuple[int, ...], frequency: float) -> np.ndarray[Any, Any]:
    return np.round(np.sin(np.arange(1.0, np.prod(shape) + 1) * frequency), 3).reshape(shape)


# a, b: square; S, P: positive definite, S not symmetric, so that it shows which triangle counts; w, t: tall and wide.
INPUTS: dict[str, np.ndarray[Any, Any]] = {
    "a": _numbers((3, 3), 1.7) + 2 * np.eye(3),
    "b": _numbers((2, 3, 3), 2.3) + np.diag([3.0, 2.0, 1.0]),
    "S": 0.3 * _numbers((3, 3), 1.1) + np.diag([3.0, 2.0, 4.0]),
    "P": 0.3 * _numbers((2, 2, 2), 0.9) + np.diag([1.0, 2.0]),
    "singular": np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 5.0]]),
    "w": _numbers((4, 3), 1.3),
    "t": _numbers((2, 2, 4), 2.9),
    "u": _numbers((3,), 0.7),
    "v": _numbers((3,), 1.9),
    "y": _numbers((3, 2), 3.1),
    "z": _numbers((2, 3, 1), 0.4),
    "one": np.array([[2.5]]),
    "dot": np.array(0.75),
    "ties": np.array([[1.0, 3.0, 1.0, 3.0], [2.0, 2.0, 0.0, 1.0]]),
    "whole": np.array([[3, 1, 2, 1], [1, 3, 3, 0]]),
    "odd": np.array([1.0, np.nan, 0.0, np.inf, 1.0]),
}

# Where derivatives are taken; those of the second order as well unless the call is in `ONCE`.
CALLS = """
L.inv(a)
f.inverse(b)
L.solve(a, y)
L.solve(a, u)
L.solve(b, y)
L.solve(b, z)
L.solve(a, y.mT, left=False)
L.solve_triangular(a, y, upper=True)
L.solve_triangular(b, y, upper=False)
L.solve_triangular(a, y.mT, upper=True, left=False)
L.solve_triangular(a, y, upper=False, unitriangular=True)
f.cholesky_solve(y, f.tril(a))
f.cholesky_solve(y, f.triu(a), upper=True)
L.det(a)
f.det(b)
L.det(singular)
L.det(one)
L.slogdet(b)
f.slogdet(a)
f.logdet(a)
L.cholesky(S)
L.cholesky(P, upper=True)
L.cholesky(one)
L.eigh(S).eigenvalues
sq(L.eigh(S))
sq(L.eigh(P, "U"))
L.eigvalsh(S)
L.eigvalsh(P, UPLO="U")
sq(L.svd(a))
sq(L.svd(w, full_matrices=False))
sq(L.svd(t, full_matrices=False))
L.svd(w).S
sq(f.svd(w))
L.svdvals(t)
sq(L.qr(a))
sq(L.qr(w))
sq(L.qr(t))
sq(f.qr(w))
L.pinv(w)
L.pinv(t)
f.pinverse(a)
L.lstsq(w, t[0].mT)
L.matrix_norm(w)
L.matrix_norm(w, "nuc")
L.matrix_norm(b, 1)
L.matrix_norm(b, -1, dim=(0, 2))
L.matrix_norm(w, float("inf"), keepdim=True)
L.matrix_norm(w, -float("inf"))
L.matrix_norm(w, 2)
L.matrix_norm(t, -2, keepdim=True)
L.vector_norm(w)
L.vector_norm(w, 1, dim=0)
L.vector_norm(b, 3, dim=(0, 2), keepdim=True)
L.vector_norm(u, float("inf"))
L.vector_norm(ties, -float("inf"), dim=1)
L.vector_norm(u, 0.5)
L.vector_norm(w, 0)
L.norm(w)
L.norm(b, dim=(0, 1))
L.norm(w, 1)
L.norm(u, 3)
L.norm(w, "fro", (1, 0), True)
L.cond(a)
L.matrix_power(a, 3)
f.matrix_power(b, -2)
L.matrix_power(a, 1)
f.matrix_exp(a)
L.matrix_exp(b)
L.vecdot(w, u)
L.vecdot(w, w, dim=0)
L.multi_dot([u, a, y])
L.multi_dot([w, a, y, t[0]])
L.cross(a, b[0])
L.cross(b, b[:1], dim=1)
L.diagonal(b, offset=1)
L.matrix_rank(singular)
L.matrix_rank(w, atol=1.0)
f.sort(w)
f.sort(ties, descending=True)
f.sort(ties, dim=0, stable=True)
f.sort(odd)
f.sort(odd, descending=True)
f.sort(dot)
f.sort(whole, descending=True)
f.argsort(ties, descending=True, stable=True)
f.argsort(b, dim=1)
f.msort(w)
f.topk(w, 2)
f.topk(w, 3, dim=0, largest=False)
f.topk(b, 0)
f.topk(dot, 1)
f.kthvalue(w, 2)
f.kthvalue(b, 3, dim=1, keepdim=True)
f.kthvalue(dot, 1)
f.cummax(ties, 1)
f.cummin(ties, dim=1)
f.cummax(odd, 0)
f.cummin(odd, 0)
f.cummax(whole, 0)
f.mode(ties)
f.mode(whole, 1, True)
f.searchsorted(f.sort(u).values, w)
f.searchsorted(f.sort(ties).values, ties, right=True)
f.searchsorted(f.sort(whole).values, whole, side="right", out_int32=True)
f.bucketize(w, f.sort(v).values)
f.unique(whole)
f.unique(whole, return_inverse=True, return_counts=True)
f.unique(whole, dim=1)
"""
CALLS = [line for line in CALLS.splitlines() if line]
ONCE = {"L.det(singular)", "L.lstsq(w, t[0].mT)", "L.vector_norm(w, 0)"}
# PyTorch's node is another, or the output has another number, where it computes more than it returns.
OTHER_NODES = {
    "L.svd(w).S",
    "L.svdvals(t)",
    "L.cond(a)",
    "L.multi_dot([u, a, y])",
    "L.multi_dot([w, a, y, t[0]])",
    "L.lstsq(w, t[0].mT)",
    "L.matrix_norm(t, -2, keepdim=True)",
    "f.matrix_power(b, -2)",
}


def weights(shape: tuple[int, ...], k: int) -> np.ndarray[Any, Any]:
    """What output `k` is weighted with."""
    return np.round(np.cos(np.arange(1.0, np.prod(shape) + 1) * (k + 2)), 3).reshape(shape)


def call(text: str, f: Any, linalg: Any, values: dict[str, Any]) -> tuple[Any, ...]:
    """The outputs of a call."""
    outputs = eval(text, {"f": f, "L": linalg, "sq": lambda xs: tuple(x * x for x in xs), **values})
    return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)


def inputs_of(text: str) -> list[str]:
    """The inputs of a call."""
    names = compile(text, "call", "eval").co_names
    return [name for name in INPUTS if name in names]


def record() -> None:
    """Ask PyTorch."""
    import torch

    def weighted(xs: Any) -> Any:
        results = [(x * torch.tensor(weights(x.shape, k))).sum() for k, x in enumerate(xs) if x.requires_grad]
        return sum(results) if results else None

    def gradients(xs: Any, wanted: list[Any]) -> list[Any] | None:
        total = weighted(xs)
        if total is None or not wanted:
            return None
        results = torch.autograd.grad(total, wanted, create_graph=True, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(results, wanted)]

    told: dict[str, Any] = {}
    for text in CALLS:
        values = {name: torch.tensor(INPUTS[name]) for name in inputs_of(text)}
        wanted = [x.requires_grad_() for x in values.values() if x.is_floating_point()]
        outputs = call(text, torch, torch.linalg, values)
        first = gradients(outputs, wanted)
        second = gradients(first, wanted) if first is not None and text not in ONCE else None
        told[text] = {
            "outputs": [plain(x) for x in outputs],
            "gradients": None if first is None else [plain(x) for x in first],
            "second": None if second is None else [plain(x) for x in second],
            "nodes": [x.grad_fn and [x.grad_fn.name(), x.output_nr] for x in outputs],
        }
    lines = ",\n".join(f"{json.dumps(text)}: {json.dumps(entry)}" for text, entry in told.items())
    DATA.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def plain(x: Any) -> dict[str, Any]:
    """A Tensor as JSON."""
    array = x.numpy(force=True)
    return {"shape": array.shape, "dtype": array.dtype.name, "values": array.ravel().tolist()}


if __name__ == "__main__":
    record()
