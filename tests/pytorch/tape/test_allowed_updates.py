"""Updates in place before a backward pass: what PyTorch allows is allowed, and no derivative changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

A = np.random.default_rng(0).uniform(0.3, 1.2, (3, 3)) + np.eye(3)

F = tg.nn.functional

# Each function, and what PyTorch allows to be updated in place before the backward pass: operands, or the result.
ALLOWED_UPDATES: dict[str, tuple[Callable[..., Any], str]] = {
    "2/x": (lambda x, y: 2 / x, "xr"),
    "x.reciprocal": (lambda x, y: x.reciprocal(), "x"),
    "svdvals": (lambda x, y: tg.linalg.svdvals(x), "x"),
    "eigvals": (lambda x, y: tg.linalg.eigvals(x).abs(), "x"),
    "nuclear norm": (lambda x, y: tg.linalg.matrix_norm(x, "nuc"), "x"),
    "kron": (lambda x, y: tg.kron(x, y), "xyr"),
    "ldexp": (lambda x, y: tg.ldexp(x, y), "x"),
    "polar": (lambda x, y: tg.polar(x, y).real, "xy"),
    "maximum": (lambda x, y: tg.maximum(x, y), "r"),
    "max_pool1d": (lambda x, y: F.max_pool1d(x[None], 2), "r"),
    "max_pool2d": (lambda x, y: F.max_pool2d(x[None, None], 2, 1), "r"),
    "max_pool3d": (lambda x, y: F.max_pool3d(x[None, None, None], (1, 2, 2), 1), "r"),
    "attention": (lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]), "x"),
}


# What PyTorch refuses and is accepted here, because the derivative does not read the updated value.
ACCEPTED_UPDATES: dict[str, tuple[Callable[..., Any], str]] = {
    "logit": (lambda x, y: (x / 4).clamp(0.1, 0.9).logit(), "x"),
    "cummax": (lambda x, y: x.cummax(0)[0], "x"),
    "hardtanh": (lambda x, y: F.hardtanh(x, 0.3, 0.8), "x"),
    "take": (lambda x, y: x.take(tg.tensor([0, 4])), "x"),
    "fmax": (lambda x, y: tg.fmax(x, y), "xy"),
    "logaddexp2": (lambda x, y: tg.logaddexp2(x, y), "xy"),
    "cdist": (lambda x, y: tg.cdist(x, y), "xyr"),
    "smooth l1": (lambda x, y: F.smooth_l1_loss(x, y), "xy"),
    "index_add": (lambda x, y: x.index_add(0, tg.tensor([0, 2, 1]), y), "y"),
    "scatter_reduce": (lambda x, y: x.scatter_reduce(0, tg.tensor([[0, 2, 1]]), y[:1], "amax"), "xyr"),
    "det": (lambda x, y: tg.linalg.det(x), "r"),
    "power": (lambda x, y: x**0.5, "x"),
}


@pytest.mark.parametrize("transform", [lambda f: f, tg.trace], ids=["eager", "traced"])
@pytest.mark.parametrize("name", [*ALLOWED_UPDATES, *ACCEPTED_UPDATES])
def test_an_update_in_place_that_is_accepted_changes_no_derivative(name: str, transform: Callable[..., Any]) -> None:
    function, targets = {**ALLOWED_UPDATES, **ACCEPTED_UPDATES}[name]

    def derivatives(a: Any, b: Any, target: str) -> Any:
        x, y = a * 1, b * 1
        result = function(x, y)
        weights = tg.arange(1.0, 1 + result.numel(), dtype=tg.float64).reshape(result.shape)
        if target:
            {"x": x, "y": y, "r": result}[target].detach().mul_(1.7).add_(0.1)
        return tg.autograd.grad(result, (a, b), weights, allow_unused=True)

    a, b = tg.tensor(A, requires_grad=True), tg.tensor(A[::-1].copy() * 0.7, requires_grad=True)
    wanted = derivatives(a, b, "")
    for target in targets:
        for result, expected in zip(transform(derivatives)(a, b, target), wanted, strict=True):
            assert (result is None) == (expected is None)
            if result is not None:
                np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-12, atol=1e-14)
