"""Calls of PyTorch's functions of shapes, indices and products, and what PyTorch computes for them.

`python tests/samples/torch_shapes.py` asks PyTorch, which the tests do not need, and writes `data/torch_shapes.json`:
for each call the outputs, the cotangents of the inputs for fixed cotangents of the outputs, and the name of the node.

In a call, `f` has the functions, `m("name", x, ...)` calls a method, and the names of `FLOATS` and `FIXED` are inputs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "torch_shapes.json"

SHAPES = {
    "s": (),
    "v": (3,),
    "w": (3,),
    "x": (2, 3),
    "z": (2, 3),
    "y": (3, 4),
    "c": (2, 1, 3),
    "q": (3, 3),
    "b": (2, 3, 4),
    "d": (2, 4, 2),
    "g": (2, 3, 2),
    "k": (1, 2, 1),
    "one": (1,),
    "row": (1, 3),
}
FLOATS = {
    name: np.round(np.sin(np.arange(1.0, np.prod(shape) + 1) * (3 + n)) + 0.1 * n, 3).reshape(shape)
    for n, (name, shape) in enumerate(SHAPES.items())
}
FIXED = {
    "i": np.array([0, 2]),
    "j": np.array([1, 0]),
    "rep": np.array([2, 0, 2]),
    "n0": np.array(1),
    "ij": np.array([[0, 2], [1, 1]]),
    "once": np.array([[0, 2], [1, 0]]),
    "up": np.array([[1, 0, 1]]),
    "counts": np.array([1, 2]),
    "mask": np.array([[True, False, True], [False, False, True]]),
    "mv": np.array([True, False, True]),
    "ints": np.array([[1, 2], [3, 4]]),
}

CALLS = """
f.reshape(x, (3, 2))
m("reshape", x, 3, -1)
m("reshape", f.transpose(x, 0, 1), 6)
m("view", x, -1)
m("view", x, (1, 6))
m("view_as", x, z)
f.flatten(b, 1)
f.flatten(b, 0, 1)
f.flatten(s)
f.ravel(x)
f.unflatten(y, 1, (2, -1))
f.squeeze(c)
f.squeeze(c, 1)
f.squeeze(c, 0)
f.squeeze(c, (0, 1))
f.unsqueeze(x, 0)
f.unsqueeze(x, -1)
m("expand", row, 2, -1)
m("expand", v, 2, 3)
m("expand_as", v, x)
f.broadcast_to(v, (2, 3))
f.broadcast_tensors(v, x, s)
f.permute(b, (2, 0, 1))
m("permute", b, 1, 0, -1)
f.transpose(b, 0, -1)
f.swapaxes(b, 0, 1)
f.swapdims(b, 1, 2)
f.t(x)
f.t(v)
f.movedim(b, 0, -1)
f.moveaxis(b, (0, 1), (2, 0))
f.atleast_1d(s)
f.atleast_2d(s)
f.atleast_2d(v)
f.atleast_3d(s, v, x)
m("sum_to_size", b, 3, 1)
m("sum_to_size", x, 1, 3)
f.narrow(x, 1, 1, 2)
f.select(b, 1, -1)
f.unbind(x)
f.unbind(b, 2)
f.split(y, 3, 1)
f.split(y, [1, 3], 1)
f.chunk(y, 3, 1)
f.tensor_split(y, 3, 1)
f.tensor_split(y, (1, 3), 1)
f.hsplit(y, 2)
f.hsplit(v, (1,))
f.vsplit(x, 2)
f.dsplit(b, 2)
m("unfold", v, 0, 2, 1)
m("unfold", b, 2, 2, 2)
f.diagonal(x)
f.diagonal(y, 1)
f.diagonal(y, -1)
f.diagonal(y, 4)
f.diagonal(b, 0, 0, 2)
f.diagonal(b, 1, -1, 1)
f.diag(v)
f.diag(v, -1)
f.diag(q)
f.diag(q, 1)
f.diag_embed(x)
f.diag_embed(x, 1, 0, 1)
f.diag_embed(x, -1, 0, -1)
f.diagflat(x)
f.tril(q)
f.tril(b, -1)
f.triu(q, 1)
f.triu(b)
f.flip(b, (0, 2))
m("flip", x, -1)
f.fliplr(x)
f.flipud(x)
f.rot90(x)
f.rot90(x, 2)
f.rot90(b, -1, (1, 2))
f.rot90(x, 4)
f.roll(x, 1)
f.roll(x, 4, 1)
f.roll(b, (1, -1), (0, 2))
f.cat([x, z])
f.cat([x, c[:, 0], z], 1)
f.cat((x, x), -1)
f.stack([x, z])
f.stack([v, w, v], 1)
f.hstack([x, z])
f.hstack([v, s, w])
f.vstack([v, x])
f.dstack([x, z])
f.dstack([v, w])
f.column_stack([v, q])
f.block_diag(x, v, s)
m("repeat", v, 2)
m("repeat", x, 2, 1, 2)
f.tile(x, (2,))
f.tile(v, (2, 2))
f.repeat_interleave(x, 2)
f.repeat_interleave(x, 2, dim=1)
f.repeat_interleave(x, counts, dim=0)
f.meshgrid(v, one, indexing="ij")
f.meshgrid(v, one, w, indexing="xy")
f.cartesian_prod(v, one, w)
f.combinations(v)
f.combinations(v, 2, True)
f.take(x, ij)
f.gather(x, 1, ij)
f.gather(y, 0, up)
f.take_along_dim(x, up, 0)
f.take_along_dim(x, ij)
f.index_select(x, 1, i)
f.index_select(x, 0, rep[:2] * 0 + 1)
f.masked_fill(x, mask, 0.5)
f.masked_fill(x, mv, s)
f.masked_select(x, mask)
f.masked_select(x, mv)
f.where(mask, x, z)
f.where(mask, x, 2.0)
f.where(mv, s, x)
f.masked_scatter(x, mask, b)
f.index_add(x, 1, rep, z)
f.index_add(x, 0, j, z, alpha=2.5)
f.index_put(x, (j, i), w[:2])
f.index_put(x, (n0,), s)
f.index_put(v, (rep,), w, accumulate=True)
f.index_put(v, (mv,), s)
f.index_copy(x, 1, i, y[:2, :2])
f.index_fill(x, 1, i, 0.5)
f.index_fill(x, 0, n0, s)
f.scatter(x, 1, once, z[:, :2])
f.scatter(x, 1, ij[:, :1], 0.5)
f.scatter(y, 0, up, x[:1])
f.scatter_add(x, 1, ij, z[:, :2])
f.scatter_add(q, 0, up, x[:1])
f.scatter_reduce(x, 1, ij, z[:, :2], "sum")
f.scatter_reduce(x, 1, ij, z[:, :2], "mean")
f.scatter_reduce(x, 1, ij, z[:, :2], "sum", include_self=False)
f.scatter_reduce(x, 1, ij, z[:, :2], "mean", include_self=False)
f.select_scatter(x, v, 0, 1)
f.slice_scatter(y, q[:, :2], 1, 1, 4, 2)
f.matmul(x, y)
f.matmul(v, w)
f.matmul(x, v)
f.matmul(v, y)
f.matmul(b, d)
f.matmul(x, b)
f.matmul(b, y.T)
f.matmul(b, d[0, :, 0])
f.matmul(v, b)
f.mm(x, y)
f.mv(q, v)
f.dot(v, w)
f.vdot(v, w)
f.inner(v, w)
f.inner(x, q)
f.inner(s, x)
f.outer(v, w)
f.ger(v, w)
f.bmm(b, d)
f.addmm(c[:, 0, :1], x, y)
f.addmm(s, x, y, beta=0.5, alpha=2)
f.addmm(s, x, y, beta=0)
f.addmv(w, q, v, alpha=-1)
f.addr(q, v, w, beta=2)
f.addbmm(s, b, d)
f.baddbmm(g, b, d, alpha=3)
f.einsum("ij,jk->ik", x, y)
f.einsum("ij->j", x)
f.einsum("ii->i", q)
f.einsum("bij,bjk,k->bi", b, d, one[[0, 0]])
f.einsum("...ij,ij", b, y)
f.tensordot(x, y, 1)
f.tensordot(b, y, ([1, 2], [0, 1]))
f.kron(x, y)
f.kron(v, x)
f.cross(v, w)
f.cross(x, z)
f.cross(q, q.T, dim=0)
m("trace", q)
f.vander(counts)
f.vander(counts, 4, increasing=True)
f.isin(ints, i)
f.nonzero(mask)
f.nonzero(mask, as_tuple=True)
f.argwhere(ints)
f.where(mask)
f.tril(ints)
f.flip(ints, (0,))
f.matmul(ints, ints)
f.gather(ints, 1, j[:, None])
f.diag_embed(j)
f.scatter_add(ints, 0, j[None], ints)
"""
CALLS = [line for line in CALLS.splitlines() if line]


def cotangent(shape: tuple[int, ...], k: int) -> np.ndarray[Any, Any]:
    """The cotangent of output `k`."""
    return np.round(np.cos(np.arange(1.0, np.prod(shape) + 1) * (k + 2)), 3).reshape(shape)


def call(text: str, f: Any, m: Any, values: dict[str, Any]) -> tuple[Any, ...]:
    """The outputs of a call."""
    outputs = eval(text, {"f": f, "m": m, **values})
    return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)


def inputs_of(text: str) -> list[str]:
    """The inputs that a call may be differentiated in."""
    names = compile(text, "call", "eval").co_names
    return [name for name in FLOATS if name in names]


def record() -> None:
    """Ask PyTorch."""
    import torch

    told: dict[str, Any] = {}
    for text in CALLS:
        values = {name: torch.tensor(x) for name, x in {**FLOATS, **FIXED}.items()}
        wanted = inputs_of(text)
        for name in wanted:
            values[name].requires_grad_()
        outputs = call(text, torch, lambda name, x, *args, **kwargs: getattr(x, name)(*args, **kwargs), values)
        total = sum(
            ((out * torch.tensor(cotangent(out.shape, k))).sum() for k, out in enumerate(outputs) if out.requires_grad),
            torch.tensor(0.0),
        )
        if total.requires_grad:
            total.backward()
        numbers = {name: values[name].grad for name in wanted if values[name].grad is not None}
        told[text] = {
            "outputs": [plain(x) for x in outputs],
            "gradients": {name: plain(x) for name, x in numbers.items()},
            "node": outputs[0].grad_fn.name() if outputs[0].requires_grad else None,
        }
    lines = ",\n".join(f"{json.dumps(text)}: {json.dumps(entry)}" for text, entry in told.items())
    DATA.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def plain(x: Any) -> dict[str, Any]:
    """A Tensor as JSON."""
    array = x.detach().numpy()
    numbers = [round(n, 13) for n in array.ravel().tolist()] if array.dtype.kind == "f" else array.ravel().tolist()
    return {"shape": array.shape, "dtype": array.dtype.name, "values": numbers}


if __name__ == "__main__":
    record()
