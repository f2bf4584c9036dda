"""Adafactor and Muon: steps against the formulas of their papers, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import optim
from tracegrad.typing import NDArray

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 4))
MATRICES = {"w": RNG.normal(size=(4, 3)), "v": RNG.normal(size=(3, 5))}
ALL = MATRICES | {"b": RNG.normal(size=5), "k": RNG.normal(size=(2, 5, 3)), "scale": np.asarray(0.5)}

State = dict[str, Any]


def rms(x: NDArray) -> Any:
    return np.sqrt(np.mean(x**2))


def adafactor(p: NDArray, g: NDArray, s: State, t: int, h: dict[str, Any]) -> NDArray:
    """Shazeer and Stern 2018, algorithms 4 and 5, with PyTorch's use of the learning rate and of epsilon."""
    least, scale = h.get("eps", (np.finfo(p.dtype).eps, 1e-3))
    beta = 1 - t ** h.get("beta2_decay", -0.8)
    step = max(scale, rms(p)) * min(h["lr"], 1 / np.sqrt(t))
    p = p * (1 - h["lr"] * h.get("weight_decay", 0))
    g = -g if h.get("maximize") else g
    if p.ndim > 1:
        s["r"] = beta * s.get("r", 0) + (1 - beta) * (g**2).mean(-1, keepdims=True)
        s["c"] = beta * s.get("c", 0) + (1 - beta) * (g**2).mean(-2, keepdims=True)
        variance = s["r"] @ s["c"] / np.maximum(s["r"].mean(-2, keepdims=True), least)
    else:
        variance = s["v"] = beta * s.get("v", 0) + (1 - beta) * g**2
    update = g / np.sqrt(np.maximum(variance, least**2))
    return p - step * update / max(1, rms(update) / h.get("d", 1.0))


def muon(p: NDArray, g: NDArray, s: State, t: int, h: dict[str, Any]) -> NDArray:
    """Jordan 2024: the iteration acts on each singular value alone, as a polynomial."""
    mass = h.get("momentum", 0.95)
    s["m"] = mass * s.get("m", 0) + (1 - mass) * g
    u, values, v = np.linalg.svd((1 - mass) * g + mass * s["m"] if h.get("nesterov", True) else s["m"], False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    rows, columns = p.shape
    is_adjusted = h.get("adjust_lr_fn") == "match_rms_adamw"
    ratio = 0.2 * max(rows, columns) ** 0.5 if is_adjusted else max(1, rows / columns) ** 0.5
    return p * (1 - h["lr"] * h.get("weight_decay", 0.1)) - h["lr"] * ratio * (u * values) @ v


CASES: list[tuple[Any, Callable[..., NDArray], dict[str, NDArray], dict[str, Any]]] = [
    (optim.Adafactor, adafactor, ALL, {"lr": 0.5}),
    (
        optim.Adafactor,
        adafactor,
        ALL,
        {"lr": 0.4, "weight_decay": 0.1, "d": 1.5, "eps": (1e-3, 0.1), "beta2_decay": -0.5, "maximize": True},
    ),
    (optim.Muon, muon, MATRICES, {"lr": 0.1}),
    (optim.Muon, muon, MATRICES, {"lr": 0.1, "nesterov": False, "weight_decay": 0.0, "momentum": 0.5}),
    (optim.Muon, muon, MATRICES, {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw"}),
]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(("cls", "formula", "start", "settings"), CASES)
def test_steps_are_those_of_the_formulas(
    cls: Any, formula: Callable[..., NDArray], start: dict[str, NDArray], settings: dict[str, Any], traced: bool
) -> None:
    p = {name: tg.tensor(x, requires_grad=True) for name, x in start.items()}
    optimizer = cls([*p.values()], **settings)

    def step() -> None:
        optimizer.zero_grad()
        sum((x.sin() * (x + 1)).sum() for x in p.values()).backward()
        optimizer.step()

    run = tg.trace(step) if traced else step
    expected, states = dict(start), {name: State() for name in start}
    for t in range(1, 6):
        run()
        for name, x in expected.items():
            gradient = np.cos(x) * (x + 1) + np.sin(x)
            expected[name] = formula(x, gradient, states[name], t, settings)
    for name, x in expected.items():
        np.testing.assert_allclose(p[name].detach(), x, rtol=1e-9, atol=1e-12, err_msg=name)
    if traced:
        assert run.cache_info().traces == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [optim.Adafactor, optim.Muon])
def test_a_saved_state_goes_on_where_it_was_saved(cls: Any) -> None:
    def trained(states: list[dict[str, Any]]) -> tuple[Any, Any]:
        w = tg.tensor(MATRICES["w"].astype(np.float32), requires_grad=True)
        optimizer = cls([w], lr=0.1)
        for number in range(4):
            if number == 2 and states:
                optimizer = cls([w], lr=0.1)
                optimizer.load_state_dict(states[0])
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            states += [optimizer.state_dict()] * (number == 1 and not states)
        return w, optimizer

    (w, optimizer), states = trained([]), list[dict[str, Any]]()
    trained(states)
    assert (trained(states)[0] == w).all()
    assert w.dtype == np.float32
    assert {x.dtype for name, x in optimizer.state[w].items() if name != "step"} == {np.dtype("float32")}


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: optim.Adafactor([p], lr=-1.0), ValueError, "Learning rate should be >= 0 but is: -1.0"),
        (lambda p: optim.Adafactor([p], beta2_decay=0.1), ValueError, "beta2_decay should be <= 0"),
        (lambda p: optim.Adafactor([p], eps=(-1.0, 0.1)), ValueError, "epsilon1 should be >= 0"),
        (lambda p: optim.Adafactor([p], d=0.5), ValueError, "Clipping threshold d should be >= 1"),
        (lambda p: optim.Adafactor([p.cfloat()]), RuntimeError, "Adafactor does not support complex parameters"),
        (lambda p: optim.Muon([p], momentum=-0.1), ValueError, "momentum should be >= 0"),
        (lambda p: optim.Muon([p], adjust_lr_fn="no"), ValueError, "Adjust learning rate function no is not supported"),
        (lambda p: optim.Muon([p[0]]), ValueError, "Muon only supports 2D parameters"),
        (lambda p: optim.Muon([p.cfloat()]), RuntimeError, "Muon does not support complex parameters"),
        (lambda p: optim.Muon([p], ns_steps=100), ValueError, "Number of steps must be less than 100"),
        (lambda p: optim.SparseAdam([p]), AttributeError, "gradients are dense here"),
    ],
)
def test_what_cannot_be_optimized_is_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(tg.ones(2, 2))
