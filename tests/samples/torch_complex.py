"""Calls of PyTorch's functions on complex numbers, and what PyTorch computes for them.

`python tests/samples/torch_complex.py` asks PyTorch, which the tests do not need, and writes `data/torch_complex.json`:
for each call the outputs and the gradients for fixed cotangents of the outputs, complex numbers as pairs of their
parts.

In a call, `f` has the functions; of the inputs, `x`, `z`, `v`, `q` and `y` are complex and `r` and `t` are real.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "torch_complex.json"


def _reals(shape: tuple[int, ...], frequency: float) -> Any:
    return np.round(np.sin(np.arange(1.0, np.prod(shape) + 1) * frequency), 3).reshape(shape)


def _complex(shape: tuple[int, ...], frequency: float) -> Any:
    return _reals(shape, frequency) + 1j * _reals(shape, frequency + 1)


INPUTS: dict[str, Any] = {
    "x": _complex((2, 3), 1.7),
    "z": _complex((2, 3), 2.3),
    "v": _complex((3,), 0.9),
    "y": _complex((3, 2), 1.3),
    "q": _complex((3, 3), 0.7) + 2 * np.eye(3),
    "r": _reals((2, 3), 1.1),
    "t": _reals((3, 2), 0.6),
}

_OF_ONE = """
abs acos acosh angle asin asinh atan atanh conj cos cosh exp expm1 imag log log10 log1p log2 mean neg norm prod real
reciprocal rsqrt sgn sin sinh sqrt square std sum tan tanh var view_as_real
"""

_OTHERS = """
f.cumprod(x, 0)
f.cumsum(x, 1)
f.mean(x, 1)
f.prod(x, 1)
f.sum(x, 0)
f.var(x, 1, correction=0)
x * z
x * r
r * x
x / z
x / r
r / x
x + r
r - x
x ** z
x ** r
(r - 2) ** x
x ** 2
x ** 3
x ** 0.5
x ** -1
x ** (1 + 2j)
2.0 ** x
(-2.0) ** x
1j ** r
r ** 1j
r * 1j
1 / x
1j / r
f.complex(r, r * r)
f.polar(f.exp(r), r)
f.view_as_complex(t)
f.where(f.real(x) > 0, x, z)
f.cat([x, r.to(f.complex128)])
f.stack([x, z], 1)[..., 0]
x[:, 1:]
x[0]
x.T
x.mH @ x
x @ y
x @ v
v @ v
x @ t.to(f.complex128)
f.dot(v, v)
f.vdot(v, 1j * v)
f.outer(v, v)
f.einsum("ij,ji->i", x, y)
f.lerp(x, z, 0.3)
f.addcmul(x, z, z, value=2)
f.addcdiv(x, z, z, value=2)
f.linalg.inv(q)
f.linalg.det(q)
f.linalg.solve(q, v)
f.linalg.solve_triangular(q, y, upper=True)
f.linalg.matrix_exp(q)
f.linalg.slogdet(q)[0]
f.linalg.slogdet(q)[1]
f.linalg.cholesky(q @ q.mH)
f.linalg.cholesky(q @ q.mH, upper=True)
f.linalg.eigvalsh(q @ q.mH)
f.linalg.eigh(q @ q.mH)[0]
f.linalg.eigh(q @ q.mH)[1].abs()
f.linalg.svdvals(x)
f.linalg.svd(x, full_matrices=False)[0].abs()
f.linalg.svd(x, full_matrices=False)[2].abs()
f.linalg.svd(y, full_matrices=False)[0].abs()
f.linalg.qr(q)[0]
f.linalg.qr(y)[1]
f.linalg.qr(x)[1].abs()
f.linalg.pinv(x)
f.linalg.pinv(y)
f.linalg.matrix_norm(x, "nuc")
f.linalg.vector_norm(x)
f.linalg.vector_norm(x, 1)
f.linalg.vector_norm(x, 3)
f.linalg.vecdot(x, z)
f.dist(x, z)
x.to(f.complex64)
r.to(f.complex128)
x.real * x.imag
(x.conj() * x).real
x.diagonal()
x.flip(0)
x.reshape(6)
"""

CALLS = [*(f"f.{name}(x)" for name in _OF_ONE.split()), *_OTHERS.strip().splitlines()]


def names_in(call: str) -> list[str]:
    """The inputs of a call."""
    return [name for name in INPUTS if re.search(rf"(?<![\w.]){name}\b(?!=)", call)]


def weights(shape: tuple[int, ...], dtype: Any) -> Any:
    """The cotangents of an output."""
    reals = _reals(shape, 0.37) + 0.5
    return np.asarray(reals + 1j * _reals(shape, 2.9) if np.dtype(dtype).kind == "c" else reals, dtype)


def parts(x: Any) -> list[Any]:
    """An array of real or complex numbers as a nested list."""
    return (np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x).tolist()


def record() -> None:
    """Ask PyTorch."""
    import torch

    torch.set_default_dtype(torch.float64)
    table = {}
    for call in CALLS:
        inputs = {name: torch.from_numpy(INPUTS[name].copy()).requires_grad_() for name in names_in(call)}
        out = eval(call, {"f": torch, **inputs})
        seed = torch.from_numpy(weights(tuple(out.shape), str(out.dtype).split(".")[1]))
        grads = torch.autograd.grad(out, list(inputs.values()), seed)
        table[call] = [parts(g.detach().resolve_conj().numpy()) for g in (out, *grads)]
    lines = ",\n".join(f"{json.dumps(call)}: {json.dumps(each)}" for call, each in table.items())
    DATA.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    record()
