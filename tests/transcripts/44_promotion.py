"""The dtype of results: of Tensors of several dtypes, beside numbers, and of functions of integers."""

import numpy as np


def name(x):
    return str(x.dtype).split(".")[-1]


def shown(cases):
    for text in cases:
        print(text, name(eval(text, {"torch": torch, "np": np, **values})))


def given():
    return {
        "h": torch.ones(2, dtype=torch.float16),
        "f": torch.ones(2, dtype=torch.float32),
        "d": torch.ones(2, dtype=torch.float64),
        "c": torch.ones(2, dtype=torch.complex64),
        "i": torch.arange(1, 3),
        "s": torch.ones(2, dtype=torch.int32),
        "u": torch.ones(2, dtype=torch.uint8),
        "b": torch.ones(2, dtype=torch.bool),
        "f0": torch.tensor(1.0, dtype=torch.float32),
        "d0": torch.tensor(1.0, dtype=torch.float64),
        "c0": torch.tensor(1j, dtype=torch.complex128),
        "i0": torch.tensor(2),
    }


half = {("h", "1j"), ("h", "c0"), ("c0", "h")}  # would be complex numbers of half precision
operands = ("h", "f", "d", "c", "i", "s", "u", "b", "f0", "d0", "c0", "i0", "2", "2.5", "True", "1j")
numbers = ("np.float64(2)", "np.float32(2)", "np.int64(2)", "np.sqrt(2.0)")
torch.set_default_dtype(torch.float32)
values = given()
torch.set_default_dtype(torch.float64)

# --- every pair, by default float64
for x in operands[:12]:
    for y in operands:
        shown([f"{x} * {y}", f"{y} + {x}"] if (x, y) not in half else [])
        if (x, y) not in half and x not in "bu" and y not in ("True", "b", "u"):
            shown([f"{x} / {y}", f"{x} - {y}"])

# --- every pair, by default float32
torch.set_default_dtype(torch.float32)
for x in operands[:12]:
    for y in operands:
        shown([f"{x} * {y}", f"{x} / {y}", f"{y} / {x}"] if (x, y) not in half else [])
torch.set_default_dtype(torch.float64)

# --- numbers of NumPy's
torch.set_default_dtype(torch.float32)
for x in operands[:12]:
    for y in numbers:
        shown([f"{x} * {y}", f"{y} + {x}", f"torch.add({x}, {y})"])
torch.set_default_dtype(torch.float64)

# --- functions of integers
for kind in (torch.float32, torch.float64):
    torch.set_default_dtype(kind)
    shown(f"torch.{f}(i)" for f in ("exp", "sqrt", "sin", "sigmoid", "log1p", "erf", "tanh", "floor", "abs", "sum"))
    shown(("torch.atan2(i, i)", "torch.copysign(i, -1.0)", "torch.xlogy(i, f)", "torch.logsumexp(i, 0)", "i / i"))
    shown(("i**0.5", "i**2", "2**i", "i // 2.0", "i % f", "2.5 - i", "torch.fmod(i, 0.5)", "torch.cumsum(i, 0)"))
    shown(("torch.float_power(f, 2)", "torch.full((2,), np.float64(1))", "torch.Tensor(np.array([1, 2]))"))
torch.set_default_dtype(torch.float64)

# --- functions of several
shown(("torch.cat([f, i])", "torch.cat([f, d])", "torch.stack([f, i])", "torch.stack([i, b])", "torch.hypot(f, d)"))
shown(("torch.where(b, f, d)", "torch.where(b, f, d0)", "torch.where(b, i, 2.5)", "torch.where(b, f, 2.5)"))
shown(("torch.maximum(f, d)", "torch.maximum(f, d0)", "torch.clamp(f, d0)", "torch.clamp(f, d)", "torch.clamp(i, 0.5)"))
shown(
    (
        "torch.addcmul(f, d, f)",
        "torch.addcmul(f, f, i)",
        "torch.outer(f, i)",
        "torch.lerp(f, f, 0.5)",
    )
)
shown(("torch.nn.functional.mse_loss(f, d)", "torch.nn.functional.mse_loss(f, i)"))
shown(("torch.nn.functional.one_hot(i, 3) * f[0]", "f == d", "f > i", "f.clone().add_(d)", "f.clone().mul_(i)"))
for x, y in (("f", "d"), ("f", "d0"), ("i", "f0"), ("h", "f"), ("c", "d")):
    kind = torch.result_type(values[x], values[y])
    print(x, y, str(kind).split(".")[-1], str(torch.promote_types(values[x].dtype, values[y].dtype)).split(".")[-1])

# --- gradients have the dtype of what they are the gradient of
for x, y in (("f", "d"), ("f", "d0"), ("d0", "f"), ("i", "f"), ("f0", "d"), ("h", "f")):
    first, second = (values[v].clone().requires_grad_(v != "i") for v in (x, y))
    for result in (first * second, first / second, torch.where(values["b"], first, second), first + second * 2):
        result.sum().backward()
    kinds = [None if v.grad is None else name(v.grad) for v in (first, second)]
    print(x, y, kinds, first.grad is None or first.grad.float(), second.grad.float())

# --- second derivatives
first, second = values["f"].clone().requires_grad_(), values["d0"].clone().requires_grad_()
(g,) = torch.autograd.grad((first * first * second).sum(), first, create_graph=True)
print(name(g), [name(v) for v in torch.autograd.grad(g.sum(), (first, second))])

# --- products of two dtypes are refused
f, d = torch.ones(2, 2, dtype=torch.float32), torch.ones(2, 2)
error(lambda: f @ d)
error(lambda: f @ torch.ones(2, 2, dtype=torch.int64))
error(lambda: torch.mm(d, f))
error(lambda: torch.nn.functional.linear(d, f))
error(lambda: torch.nn.Linear(2, 2, bias=False)(f), until="but got")
