"""Transforms of functions: a Newton step from `hessian`, a product by `jvp` of `grad`, `jacrev`, `jacfwd`, `vjp`."""

import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap


def energy(w, x, y):
    p = torch.sigmoid(x @ w)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean() + 0.1 * w.dot(w)


def train(run):
    x, y = run.wave(8, 3), (run.wave(8, shift=1.0) > 0).to(torch.get_default_dtype())
    w = torch.zeros(3)

    @run.compile
    def step(w):
        g, value = grad_and_value(energy)(w, x, y)
        h = hessian(energy)(w, x, y)
        return w - torch.linalg.solve(h, g), value, h

    @run.compile
    def products(w):
        _, hv = jvp(lambda w: grad(energy)(w, x, y), (w,), (torch.ones_like(w),))
        residual = lambda w, row: torch.tanh(row * w)  # noqa: E731
        jac = vmap(jacrev(residual), in_dims=(None, 0))(w, x)
        forward = jacfwd(lambda w: torch.outer(w, w.sin()))(w)
        _, pull = vjp(lambda w: (x @ w).relu(), w)
        (cotangents,) = vmap(pull)(torch.eye(8))
        return hv, jac, forward, cotangents

    for _ in range(5):
        w, value, h = step(w)
        run.log(w=w, value=value, hessian=h, products=products(w))
