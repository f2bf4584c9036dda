"""`tracegrad.optim`: steps against formulas in NumPy, compiled training steps, states, and what is refused.

What PyTorch prints for the same programs is in `tests/transcripts/37_optim.txt`.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted_calls import most_calls

import tracegrad as tg
from tracegrad import optim
from tracegrad.torch.tape import Tensor

Arrays = dict[str, Any]
RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 2))
SHAPES = {"w": (3, 2), "b": (2,), "scale": ()}
START = {name: np.asarray(RNG.normal(size=shape)) for name, shape in SHAPES.items()}


def loss_of(p: Any, x: Any = X, y: Any = Y) -> Any:
    """A loss of three parameters, in operations that ndarrays and Tensors have."""
    return (((x @ p["w"] + p["b"]) * p["scale"] - y) ** 2).mean()


def gradient(p: Arrays) -> Arrays:
    """The gradient of the loss, by hand."""
    inside = X @ p["w"] + p["b"]
    ct = 2 * (inside * p["scale"] - Y) / Y.size
    return {"w": X.T @ (ct * p["scale"]), "b": (ct * p["scale"]).sum(0), "scale": np.sum(ct * inside)}


# -- formulas, of one parameter `p` with the gradient `g` at step `t`; `s` is a dict that is empty at first ------------
def sgd(p: Any, g: Any, s: Arrays, t: int, momentum: float, nesterov: bool, decay: float) -> Any:
    g = g + decay * p
    s["m"] = momentum * s.get("m", 0.0) + g
    return p - 0.1 * (g + momentum * s["m"] if nesterov else s["m"])


def adam(p: Any, g: Any, s: Arrays, t: int, decoupled: bool, greatest: bool) -> Any:
    p, g = (p * (1 - 0.1 * 0.05), g) if decoupled else (p, g + 0.05 * p)
    s["m"] = 0.8 * s.get("m", 0.0) + 0.2 * g
    s["v"] = 0.9 * s.get("v", 0.0) + 0.1 * g**2
    s["u"] = np.maximum(s.get("u", 0.0), s["v"])
    return p - 0.1 * s["m"] / (1 - 0.8**t) / (np.sqrt((s["u"] if greatest else s["v"]) / (1 - 0.9**t)) + 1e-3)


def adamax(p: Any, g: Any, s: Arrays, t: int) -> Any:
    s["m"] = 0.8 * s.get("m", 0.0) + 0.2 * g
    s["u"] = np.maximum(0.9 * s.get("u", 0.0), np.abs(g) + 1e-3)
    return p - 0.1 / (1 - 0.8**t) * s["m"] / s["u"]


def nadam(p: Any, g: Any, s: Arrays, t: int) -> Any:
    s["m"] = 0.8 * s.get("m", 0.0) + 0.2 * g
    s["v"] = 0.9 * s.get("v", 0.0) + 0.1 * g**2
    mu, following = (0.8 * (1 - 0.5 * 0.96 ** (n * 0.1)) for n in (t, t + 1))
    s["product"] = s.get("product", 1.0) * mu
    m = following * s["m"] / (1 - s["product"] * following) + (1 - mu) * g / (1 - s["product"])
    return p - 0.1 * m / (np.sqrt(s["v"] / (1 - 0.9**t)) + 1e-3)


def radam(p: Any, g: Any, s: Arrays, t: int) -> Any:
    s["m"] = 0.8 * s.get("m", 0.0) + 0.2 * g
    s["v"] = 0.9 * s.get("v", 0.0) + 0.1 * g**2
    last = 2 / (1 - 0.9) - 1
    rho = last - 2 * t * 0.9**t / (1 - 0.9**t)
    m = s["m"] / (1 - 0.8**t)
    if rho <= 5:
        return p - 0.1 * m
    r = np.sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
    return p - 0.1 * m * r * np.sqrt(1 - 0.9**t) / (np.sqrt(s["v"]) + 1e-3)


def rmsprop(p: Any, g: Any, s: Arrays, t: int, momentum: float, centered: bool) -> Any:
    s["v"] = 0.9 * s.get("v", 0.0) + 0.1 * g**2
    s["g"] = 0.9 * s.get("g", 0.0) + 0.1 * g
    s["m"] = momentum * s.get("m", 0.0) + g / (np.sqrt(s["v"] - s["g"] ** 2 * centered) + 1e-3)
    return p - 0.1 * s["m"]


def adagrad(p: Any, g: Any, s: Arrays, t: int) -> Any:
    s["v"] = s.get("v", 0.3) + g**2
    return p - 0.1 / (1 + (t - 1) * 0.2) * g / (np.sqrt(s["v"]) + 1e-3)


def adadelta(p: Any, g: Any, s: Arrays, t: int) -> Any:
    s["v"] = 0.8 * s.get("v", 0.0) + 0.2 * g**2
    step = np.sqrt(s.get("d", 0.0) + 1e-3) / np.sqrt(s["v"] + 1e-3) * g
    s["d"] = 0.8 * s.get("d", 0.0) + 0.2 * step**2
    return p - 0.1 * step


def asgd(p: Any, g: Any, s: Arrays, t: int) -> Any:
    eta = s.get("eta", 0.1)
    s["eta"] = 0.1 / (1 + 0.02 * 0.1 * t) ** 0.5
    return p - eta * (0.02 * p + g + 0.05 * p)


def rprop(p: Any, g: Any, s: Arrays, t: int) -> Any:
    transposed = np.sign(g * s.get("g", np.zeros_like(p)))
    s["size"] = np.clip(
        s.get("size", np.full_like(p, 0.1)) * np.choose(transposed.astype(int) + 1, [0.4, 1, 1.3]), 1e-3, 0.3
    )
    s["g"] = g * (transposed >= 0)
    return p - np.sign(s["g"]) * s["size"]


MEANS = {"betas": (0.8, 0.9), "eps": 1e-3}
CASES: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
    "SGD": (lambda *x: sgd(*x, 0.0, False, 0.0), optim.SGD, {}),
    "SGD, momentum": (lambda *x: sgd(*x, 0.9, False, 0.05), optim.SGD, {"momentum": 0.9, "weight_decay": 0.05}),
    "SGD, Nesterov": (lambda *x: sgd(*x, 0.9, True, 0.0), optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adam": (lambda *x: adam(*x, False, False), optim.Adam, MEANS | {"weight_decay": 0.05}),
    "Adam, amsgrad": (lambda *x: adam(*x, False, True), optim.Adam, MEANS | {"weight_decay": 0.05, "amsgrad": True}),
    "AdamW": (lambda *x: adam(*x, True, False), optim.AdamW, MEANS | {"weight_decay": 0.05}),
    "Adamax": (adamax, optim.Adamax, MEANS),
    "NAdam": (nadam, optim.NAdam, MEANS | {"momentum_decay": 0.1}),
    "RAdam": (radam, optim.RAdam, MEANS),
    "RMSprop": (lambda *x: rmsprop(*x, 0.0, False), optim.RMSprop, {"alpha": 0.9, "eps": 1e-3}),
    "RMSprop, centered": (
        lambda *x: rmsprop(*x, 0.5, True),
        optim.RMSprop,
        {"alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "centered": True},
    ),
    "Adagrad": (adagrad, optim.Adagrad, {"lr_decay": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3}),
    "ASGD": (asgd, optim.ASGD, {"lambd": 0.02, "alpha": 0.5, "t0": 3.0, "weight_decay": 0.05}),
    "Rprop": (rprop, optim.Rprop, {"etas": (0.4, 1.3), "step_sizes": (1e-3, 0.3)}),
    "Adadelta": (adadelta, optim.Adadelta, {"rho": 0.8, "eps": 1e-3}),
}
STEPS = 12


def by_formula(formula: Callable[..., Any], steps: int = STEPS) -> Arrays:
    p: Arrays = dict(START)
    states: dict[str, Arrays] = {name: {} for name in p}
    for t in range(1, steps + 1):
        g = gradient(p)
        p = {name: formula(p[name], g[name], states[name], t) for name in p}
    return p


def parameters(dtype: str = "float64") -> dict[str, Tensor]:
    return {name: tg.tensor(x.astype(dtype), requires_grad=True) for name, x in START.items()}


def step_of(p: dict[str, Tensor], optimizer: Any, x: Any = X, y: Any = Y) -> Callable[[], Any]:
    """A training step as tutorials have it."""
    dtype = p["w"].dtype
    x, y = tg.tensor(x.astype(dtype)), tg.tensor(y.astype(dtype))

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(p, x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def values(p: dict[str, Tensor]) -> Arrays:
    return {name: x.detach().numpy().copy() for name, x in p.items()}


def same(a: Arrays, b: Arrays, rtol: float = 1e-12) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=rtol, err_msg=name)


# -- values ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["eager", "compiled", "not compiled"])
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_the_formulas(name: str, how: str) -> None:
    formula, cls, settings = CASES[name]
    p = parameters()
    step = step_of(p, cls([*p.values()], lr=0.1, **settings))
    if how != "eager":
        step = tg.trace(step)
    with tg.disable_jit() if how == "not compiled" else contextlib.nullcontext():
        for _ in range(STEPS):
            step()
    same(values(p), by_formula(formula))
    if how == "compiled":
        assert step.cache_info().traces == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["SGD, momentum", "AdamW", "RMSprop, centered", "NAdam"])
def test_steps_in_single_precision_stay_in_it(name: str) -> None:
    formula, cls, settings = CASES[name]
    for trace in (lambda f: f, tg.trace):
        p = parameters("float32")
        optimizer = cls([*p.values()], lr=0.1, **settings)
        step = trace(step_of(p, optimizer))
        for _ in range(STEPS):
            step()
        same(values(p), by_formula(formula), 2e-4)
        assert {x.dtype for x in p.values()} == {tg.float32}
        held = [x for state in optimizer.state.values() for k, x in state.items() if k not in ("step", "mu_product")]
        assert {x.dtype for x in held} == {tg.float32}


PURE: dict[str, Any] = {
    "SGD, momentum": optim.sgd(0.1, momentum=0.9, weight_decay=0.05),
    "SGD, Nesterov": optim.sgd(0.1, momentum=0.9, nesterov=True),
    "Adam": optim.adam(0.1, weight_decay=0.05, **MEANS),
    "Adam, amsgrad": optim.adam(0.1, weight_decay=0.05, amsgrad=True, **MEANS),
    "AdamW": optim.adamw(0.1, weight_decay=0.05, **MEANS),
    "RMSprop": optim.rmsprop(0.1, alpha=0.9, eps=1e-3),
    "RMSprop, centered": optim.rmsprop(0.1, alpha=0.9, eps=1e-3, momentum=0.5, centered=True),
    "Adagrad": optim.adagrad(0.1, lr_decay=0.2, initial_accumulator_value=0.3, eps=1e-3),
}


@pytest.mark.parametrize("how", ["eager", "compiled", "Tensors"])
@pytest.mark.parametrize("name", PURE)
def test_pure_steps_are_those_of_the_formulas(name: str, how: str) -> None:
    init, update = PURE[name]
    derivatives = tg.grad(loss_of)

    def step(p: Any, state: Any) -> Any:
        return update(derivatives(p), state, p)

    f = tg.trace(step) if how == "compiled" else step
    p: Any = dict(START)
    if how == "Tensors":
        p = {k: tg.tensor(x) for k, x in p.items()}
    state, before = init(p), {k: np.array(x) for k, x in p.items()}
    begun = p, state
    for _ in range(STEPS):
        p, state = f(p, state)
    same({k: np.asarray(x) for k, x in p.items()}, by_formula(CASES[name][0]))
    assert int(state["step"]) == STEPS
    same({k: np.asarray(x) for k, x in begun[0].items()}, before)
    assert int(begun[1]["step"]) == 0
    if how == "compiled":
        assert f.cache_info().traces == 1  # type: ignore[attr-defined]


def test_complex_parameters_move_as_their_parts_do() -> None:
    whole = np.array([1.0 + 2.0j, -0.5j, 3.0])
    for cls in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.NAdam):
        z = tg.tensor(whole, requires_grad=True)
        xy = tg.tensor(np.stack([whole.real, whole.imag], -1), requires_grad=True)
        of_z, of_xy = cls([z], lr=0.1), cls([xy], lr=0.1)
        for _ in range(3):
            of_z.zero_grad()
            of_xy.zero_grad()
            (z * z.conj()).real.sum().backward()
            (xy * xy).sum().backward()
            of_z.step()
            of_xy.step()
        np.testing.assert_allclose(tg.view_as_real(z.detach()).numpy(), xy.detach().numpy(), rtol=1e-14)


# -- compiled training steps -------------------------------------------------------------------------------------------
def test_a_training_step_is_traced_once_and_takes_few_python_calls() -> None:
    p = parameters()
    optimizer = optim.AdamW([*p.values()], lr=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    step = tg.trace(step_of(p, optimizer))
    step()
    for _ in range(5):
        step()
        schedule.step()
    assert step.cache_info().traces == 1
    slow = step.cache_info()
    assert most_calls(step) <= 70
    assert step.cache_info() == slow


def test_a_rate_that_a_schedule_changes_is_that_of_the_call() -> None:
    results = []
    for trace in (tg.trace, lambda f: f):
        p = parameters()
        optimizer = optim.SGD(
            [{"params": [p["w"]]}, {"params": [p["b"], p["scale"]], "lr": 0.01}], lr=0.1, momentum=0.9
        )
        schedule = optim.lr_scheduler.OneCycleLR(optimizer, [0.2, 0.1], total_steps=20)
        step = trace(step_of(p, optimizer))
        for _ in range(15):
            step()
            schedule.step()
        results.append(values(p))
    same(*results)


def test_a_schedule_that_begins_later_does_not_trace_the_step_again() -> None:
    p = parameters()
    optimizer = optim.SGD([*p.values()], lr=0.1)
    step = tg.trace(step_of(p, optimizer))
    step()
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        step()
        schedule.step()
    assert step.cache_info().traces == 1


def test_a_schedule_of_rates_and_moments_does_not_trace_the_step_again() -> None:
    results = []
    for trace in (tg.trace, lambda f: f):
        p = parameters()
        optimizer = optim.AdamW([*p.values()], lr=0.1)
        schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=12)
        step = trace(step_of(p, optimizer))
        for _ in range(8):
            step()
            schedule.step()
        results.append(values(p))
        assert trace is not tg.trace or step.cache_info().traces == 1  # type: ignore[attr-defined]
    same(*results)


def accumulated(p: Any, optimizer: Any, x: Any) -> Any:
    """Two losses, whose gradients add up."""
    optimizer.zero_grad()
    loss = ((x[:2] @ p["w"]) ** 2).mean()
    loss.backward()
    other = ((x[2:] @ p["w"] + p["b"]) ** 2).mean()
    other.backward()
    optimizer.step()
    return loss + other


def zeroed(p: Any, optimizer: Any, x: Any) -> Any:
    """Gradients that are set to zero."""
    optimizer.zero_grad(set_to_none=False)
    loss = ((x @ p["w"] + p["b"]) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


def scheduled(p: Any, optimizer: Any, x: Any) -> Any:
    """The schedule is a part of the step."""
    optimizer.zero_grad()
    loss = ((x @ p["w"] + p["b"]) ** 2).mean()
    loss.backward()
    optimizer.step()
    SCHEDULES[-1].step()
    return loss


def closed(p: Any, optimizer: Any, x: Any) -> Any:
    """The step calls a closure."""

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((x @ p["w"] + p["b"]) ** 2).mean()
        loss.backward()
        return loss

    return optimizer.step(closure)


def zeroed_behind(p: Any, optimizer: Any, x: Any) -> Any:
    """No gradient is left behind."""
    loss = ((x @ p["w"] + p["b"]) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


SCHEDULES: list[Any] = []


@pytest.mark.parametrize("rate", ["a number", "a Tensor"])
@pytest.mark.parametrize("step", [accumulated, zeroed, scheduled, closed, zeroed_behind], ids=lambda f: f.__name__)
def test_steps_of_all_kinds_compile_and_are_those_of_eager_mode(step: Any, rate: str) -> None:
    results = []
    for trace in (tg.trace, lambda f: f):
        p = parameters()
        optimizer = optim.AdamW([*p.values()], lr=0.1 if rate == "a number" else tg.tensor(0.1))
        SCHEDULES.append(optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
        f = trace(lambda x: step(p, optimizer, x))  # noqa: B023
        rng = np.random.default_rng(2)
        losses = [f(tg.tensor(rng.normal(size=(6, 3)))).item() for _ in range(6)]
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        results.append(values(p) | {"losses": np.array(losses), "rates": np.array(rates)})
        SCHEDULES.clear()
    same(*results)


def test_a_step_without_gradients_changes_nothing_and_counts_nothing() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    optimizer.step()
    same(values(p), START)
    assert optimizer.state_dict()["state"] == {}
    (p["w"] ** 2).sum().backward()
    optimizer.step()
    assert list(optimizer.state_dict()["state"]) == [0]
    same({"b": p["b"].detach().numpy()}, {"b": START["b"]})


def test_compiled_steps_of_part_of_the_parameters_leave_the_others() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    x = tg.tensor(X)

    @tg.trace
    def step() -> Any:
        optimizer.zero_grad()
        loss = ((x @ p["w"]) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert p["b"].grad is None
    assert list(optimizer.state_dict()["state"]) == [0]
    assert step.cache_info().traces == 1


def test_gradients_and_counts_are_there_after_compiled_steps_as_after_eager_ones() -> None:
    results = []
    for trace in (tg.trace, lambda f: f):
        p = parameters()
        optimizer = optim.Adam([*p.values()], lr=0.1)
        step = trace(step_of(p, optimizer))
        for _ in range(4):
            step()
        state = optimizer.state_dict()["state"]
        held = {f"{k} {name}": x.numpy().copy() for k, s in state.items() for name, x in s.items()}
        versions = {f"version {name}": x._version for name, x in p.items()}
        results.append({name: x.grad.numpy() for name, x in p.items()} | held | versions)
    same(*results)


def test_many_parameters_are_traced_quickly_and_updated_in_few_kernels() -> None:
    p = [tg.tensor(np.ones((17, 19 + k)), requires_grad=True) for k in range(40)]
    optimizer = optim.AdamW(p, lr=0.1)

    @tg.trace
    def step() -> Any:
        optimizer.zero_grad()
        loss = sum((x**2).sum() * (1.0 + k) for k, x in enumerate(p))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    assert step.cache_info().traces == 1
    assert len(step.explain().kernels) < 3 * len(p)
    np.testing.assert_allclose(p[0].detach().numpy()[0, 0], 1.0 - 3 * 0.1 - 0.003, atol=2e-3)


def test_a_signal_handler_sees_parameters_and_states_of_one_step() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    step = tg.trace(step_of(p, optimizer))
    for _ in range(4):
        step()
    seen: list[set[float]] = []

    def look(frame: Any, event: str, argument: Any) -> None:
        seen.append({state["step"].item() for state in optimizer.state.values()})

    sys.setprofile(look)
    try:
        for _ in range(3):
            step()
    finally:
        sys.setprofile(None)
    assert {len(each) for each in seen} == {1}
    assert {n for each in seen for n in each} == {4.0, 5.0, 6.0, 7.0}


def test_an_unread_gradient_is_replaced_whatever_it_was() -> None:
    p = parameters()
    step = tg.trace(step_of(p, optim.SGD([*p.values()], lr=0.1)))
    for n in range(4):
        if n == 2:
            p["b"].grad = tg.tensor([100.0, 100.0])
        step()
    assert step.cache_info().traces == 1
    same(values(p), by_formula(lambda *x: sgd(*x, 0.0, False, 0.0), 4))


def test_a_loss_of_classes_is_not_traced_again_for_other_classes() -> None:
    w = tg.tensor(np.zeros((4, 5)), requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)

    @tg.trace
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(x @ w, y)
        loss.backward()
        optimizer.step()
        return loss

    for k in range(6):
        step(tg.ones(3, 4), tg.tensor([k % 5, 0, 4]))
    assert step.cache_info().traces == 1
    assert step.cache_info().hits <= 1  # calls on the slow path that found a program


def test_dicts_by_tensors_are_read_and_written_by_traced_code() -> None:
    a, b = tg.tensor([1.0, 2.0]), tg.tensor([3.0])
    held = {a: {"n": tg.tensor(1.0)}}

    @tg.trace
    def f() -> Any:
        held[a]["n"].add_(1.0)
        if b not in held:
            held[b] = {"n": tg.tensor(10.0)}
        held[b]["n"] = held[b]["n"] + 1.0
        return held[a]["n"] * held[b]["n"] + held.get(a)["n"]  # type: ignore[index]

    assert [f().item() for _ in range(4)] == [2 * 11 + 2, 3 * 12 + 3, 4 * 13 + 4, 5 * 14 + 5]
    assert len(held) == 2
    assert (held[a]["n"].item(), held[b]["n"].item()) == (5.0, 14.0)


def test_custom_optimizers_compile_too() -> None:
    class Heavy(optim.Optimizer):
        """The tutorial's kind: a state that begins in the first step."""

        def __init__(self, params: Any, lr: float = 0.1, mass: float = 0.5):
            super().__init__(params, {"lr": lr, "mass": mass})

        @tg.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if len(state) == 0:
                        state["velocity"] = tg.zeros_like(p, requires_grad=False)
                    velocity = state["velocity"]
                    velocity.mul_(group["mass"]).add_(p.grad)
                    p.sub_(velocity * group["lr"])

    results = []
    for trace in (tg.trace, lambda f: f):
        p = parameters()
        step = trace(step_of(p, Heavy([*p.values()])))
        for _ in range(6):
            step()
        results.append(values(p))
    same(*results)
    same(results[0], by_formula(lambda *x: sgd(*x, 0.5, False, 0.0), 6))


def test_hooks_run_in_compiled_steps() -> None:
    p = parameters()
    optimizer = optim.SGD([*p.values()], lr=0.1)

    def halve(optimizer: Any, args: Any, kwargs: Any) -> None:
        for x in p.values():
            x.grad.mul_(0.5)

    step = tg.trace(step_of(p, optimizer))
    step()
    optimizer.register_step_pre_hook(halve)
    step()
    q = by_formula(lambda *x: sgd(*x, 0.0, False, 0.0), 1)
    g = gradient(q)
    same(values(p), {k: q[k] - 0.05 * g[k] for k in q})


# -- states ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_a_saved_state_goes_on_where_it_was_saved(name: str) -> None:
    formula, cls, settings = CASES[name]
    p = parameters()
    optimizer = cls([*p.values()], lr=0.1, **settings)
    step = step_of(p, optimizer)
    for _ in range(5):
        step()
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    q = {k: tg.tensor(x, requires_grad=True) for k, x in values(p).items()}
    other = cls([*q.values()], lr=0.7, **settings)
    other.load_state_dict(saved)
    following = tg.trace(step_of(q, other))
    for _ in range(STEPS - 5):
        following()
    same(values(q), by_formula(formula))
    assert (
        optimizer.state_dict()["state"][0].keys() == other.state_dict()["state"][0].keys() if saved["state"] else True
    )


def test_an_optimizer_is_copied_and_pickled_with_its_parameters() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    for _ in range(5):
        step_of(p, optimizer)()
    for q, other in (copy.deepcopy((p, optimizer)), pickle.loads(pickle.dumps((p, optimizer)))):
        step = step_of(q, other)
        for _ in range(STEPS - 5):
            step()
        same(values(q), by_formula(lambda x, g, s, t: _usual_adam(x, g, s, t)))
    assert p["w"] is optimizer.param_groups[0]["params"][0]


def test_copies_of_several_parameters_have_the_gradients_of_each() -> None:
    results = [tg.tensor(np.ones(k), requires_grad=True) for k in range(1, 40)]
    for k, x in enumerate(results):
        x.grad = tg.full(x.shape, float(k))
    for k, x in enumerate(copy.deepcopy(results)):
        assert x.grad is not results[k].grad
        np.testing.assert_array_equal(x.grad.numpy(), np.full(k + 1, float(k)))


def _usual_adam(p: Any, g: Any, s: Arrays, t: int) -> Any:
    s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0.0) + 0.001 * g**2
    return p - 0.1 * s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)


def test_a_state_of_other_shapes_is_refused_and_changes_nothing() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    step_of(p, optimizer)()
    before = copy.deepcopy(optimizer.state_dict())
    other = optim.Adam([tg.tensor(np.ones(4), requires_grad=True) for _ in p], lr=0.5)
    for x in other.param_groups[0]["params"]:
        x.grad = tg.ones(4)
    other.step()
    with pytest.raises(ValueError, match=r"exp_avg of parameter 0 has the shape \(4,\), and the parameter \(3, 2\)"):
        optimizer.load_state_dict(other.state_dict())
    now = optimizer.state_dict()
    assert now["param_groups"] == before["param_groups"]
    for k, state in before["state"].items():
        same({n: x.numpy() for n, x in now["state"][k].items()}, {n: x.numpy() for n, x in state.items()})


def test_a_state_that_does_not_fit_leaves_everything_as_it_was() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    step_of(p, optimizer)()
    before, count = values(p), optimizer.state[p["w"]]["step"].item()
    optimizer.state[p["scale"]]["exp_avg"] = tg.ones(5)
    with pytest.raises((RuntimeError, ValueError)):
        step_of(p, optimizer)()
    same(values(p), before)
    assert optimizer.state[p["w"]]["step"].item() == count


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_steps_in_iteration_of_two_optimizers_of_one_parameter_warn_once() -> None:
    p = parameters()
    first, second = optim.SGD([p["w"], p["b"]], lr=0.1), optim.Adam([p["b"], p["scale"]], lr=0.1)
    for x in p.values():
        x.grad = tg.ones_like(x, requires_grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first.step()
        first.step()
        second.step()  # as where training goes on with another one
        second.step()
    with pytest.warns(UserWarning, match=r"the shape \(2,\) is shared by two optimizers, Adam and SGD"):
        first.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.step()
        first.step()


def test_an_optimizer_in_the_place_of_one_that_is_gone_warns_of_nothing() -> None:
    p = parameters()
    for _ in range(4):
        optimizer = optim.SGD([*p.values()], lr=0.1)
        step_of(p, optimizer)()
        del optimizer
        gc.collect()


def test_optimizers_keep_no_parameter_alive_that_is_gone() -> None:
    p = parameters()
    optimizer = optim.Adam([*p.values()], lr=0.1)
    step = tg.trace(step_of(p, optimizer))
    for _ in range(3):
        step()
    gone = [weakref.ref(optimizer), *[weakref.ref(x) for x in p.values()]]
    del p, optimizer, step
    gc.collect()
    assert [each() for each in gone] == [None] * 4


def test_what_is_not_supported_is_refused_by_name() -> None:
    w = tg.tensor([1.0], requires_grad=True)
    with pytest.raises(tg.UnsupportedError, match="differentiable=True"):
        optim.Adam([w], differentiable=True)
    with pytest.raises(TypeError, match="ndarray; make a Tensor of it"):
        optim.Adam([np.ones(2)])
    with pytest.raises(RuntimeError, match="fused` and `foreach` cannot be `True` together"):
        optim.SGD([w], lr=0.1, fused=True, foreach=True)
    optim.Adam([w], foreach=True, capturable=True).step()
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        optim.LBFGS([w], line_search_fn="armijo")
    with pytest.raises(TypeError, match="needs a closure"):
        optim.LBFGS([w]).step()


def test_nan_in_a_gradient_is_no_error() -> None:
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    w.grad = tg.tensor([np.nan, 1.0])
    optim.SGD([w], lr=0.1).step()
    np.testing.assert_array_equal(w.detach().numpy(), [np.nan, 1.9])


def test_asgd_has_the_mean_of_the_parameters() -> None:
    w = tg.tensor([1.0, -2.0], requires_grad=True)
    optimizer, seen = optim.ASGD([w], lr=0.1, t0=2), []
    for _ in range(6):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        seen.append(w.detach().numpy().copy())
    mean = seen[3]  # the weight of the first in the mean is 1
    for count, x in enumerate(seen[4:], 2):
        mean = mean + (x - mean) / count
    np.testing.assert_allclose(optimizer.state[w]["ax"].numpy(), mean, rtol=1e-14)
    assert optimizer.state[w]["mu"].item() == 1 / 4


def test_rprop_takes_no_step_where_the_gradient_is_nan_or_has_transposed() -> None:
    w = tg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    optimizer = optim.Rprop([w], lr=0.5)
    for derivatives in ([1.0, float("nan"), 1.0], [-1.0, float("nan"), 1.0]):
        w.grad = tg.tensor(derivatives)
        optimizer.step()
    assert w.tolist() == [0.5, 1.0, 0.5 - 0.5 * 1.2]
    with pytest.raises(ValueError, match=r"Invalid eta values: 1\.5, 1\.2"):
        optim.Rprop([w], etas=(1.5, 1.2))


# -- LBFGS -------------------------------------------------------------------------------------------------------------
def rosenbrock(w: Any) -> Any:
    return ((1 - w[:-1]) ** 2 + 100 * (w[1:] - w[:-1] ** 2) ** 2).sum()


def closure_of(w: Any, optimizer: Any) -> Callable[[], Any]:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(w)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("trace", [lambda f: f, tg.trace], ids=["eager", "compiled"])
def test_lbfgs_finds_the_minimum(trace: Any) -> None:
    w = tg.tensor(np.linspace(-1.0, 1.0, 6), requires_grad=True)
    optimizer = optim.LBFGS(
        [w], line_search_fn="strong_wolfe", history_size=5, tolerance_grad=1e-11, tolerance_change=0
    )
    closure = trace(closure_of(w, optimizer))
    for _ in range(6):
        loss = optimizer.step(closure)
    assert loss.item() < 1e-12
    np.testing.assert_allclose(w.detach().numpy(), np.ones(6), rtol=1e-7)


def bowl(w: Any) -> Any:
    return (tg.arange(1.0, len(w) + 1.0) * w**2).sum() + (w**4).sum() + tg.sin(3.0 * w).sum()


def plain_far_away(w: Any) -> Any:
    return -tg.exp(-(w**2).sum())


def kink(w: Any) -> Any:
    return w.abs().sum()


# The parameters, and how often the loss was computed, after three steps of PyTorch 2.13.
SEARCHES: list[tuple[Any, list[float], dict[str, Any], list[float], int]] = [
    (
        rosenbrock,
        [-1.2, 1.0, 0.5],
        {"history_size": 2, "max_iter": 4},
        [-0.8112022275899834, 0.656063054600386, 0.403895576863927],
        15,
    ),
    (rosenbrock, [-1.2, 1.0, 0.5], {"max_eval": 3}, [-0.8811778780789083, 0.7865502618516509, 0.6221087093192423], 9),
    (
        bowl,
        [1.0, -2.0, 3.0],
        {"history_size": 2, "max_iter": 4},
        [-0.393199885407839, -0.33954594711596764, -0.30744540332471554],
        15,
    ),
    (bowl, [1.0, -2.0, 3.0], {"max_eval": 3}, [0.06277763361559087, -0.18728397434922806, -0.39619205252528317], 10),
    (plain_far_away, [2.0, 2.0], {"history_size": 2, "max_iter": 4}, [-5.528936578504402e-06] * 2, 12),
    (plain_far_away, [2.0, 2.0], {"max_eval": 3}, [1.8226960175941669] * 2, 12),
    (kink, [1.0, -0.3], {"tolerance_grad": 1e-2, "tolerance_change": 1e-3}, [0.0, -1.0754233614740372e-10], 50),
]


@pytest.mark.parametrize(("function", "start", "settings", "expected", "count"), SEARCHES)
def test_lbfgs_searches_where_pytorch_does(
    function: Any, start: list[float], settings: dict[str, Any], expected: list[float], count: int
) -> None:
    w, calls = tg.tensor(start, requires_grad=True), 0
    optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe", **settings)

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = function(w)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-7, atol=1e-12)
    assert calls == count


def test_the_state_of_lbfgs_may_hold_tensors_where_it_has_numbers() -> None:
    results = []
    for loaded in (False, True):
        w = tg.tensor(np.linspace(-1.0, 1.0, 6), requires_grad=True)
        optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe", max_iter=4)
        optimizer.step(closure_of(w, optimizer))
        if loaded:
            state = optimizer.state_dict()
            held = state["state"][0]
            numbers = {k: tg.tensor(held[k]) for k in ("t", "H_diag", "prev_loss")}
            state["state"][0] = held | numbers | {"ro": [tg.tensor(x) for x in held["ro"]]}
            optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe", max_iter=4)
            optimizer.load_state_dict(state)
        optimizer.step(closure_of(w, optimizer))
        results.append({"w": w.detach().numpy(), "d": optimizer.state_dict()["state"][0]["d"].numpy()})
    same(*results)


def test_an_error_in_the_closure_leaves_the_parameters_of_lbfgs() -> None:
    w = tg.tensor(np.zeros(4), requires_grad=True)
    optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe")
    closure, calls = closure_of(w, optimizer), 0

    def failing() -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OverflowError("of the user's")
        return closure()

    with pytest.raises(OverflowError):
        optimizer.step(failing)
    np.testing.assert_array_equal(w.detach().numpy(), np.zeros(4))
    assert optimizer.state_dict()["state"] == {}


# -- pure face ---------------------------------------------------------------------------------------------------------
def test_rates_may_be_functions_of_the_step() -> None:
    rates = optim.schedules.exponential(0.1, 0.5)
    init, update = optim.sgd(rates)
    for f in (update, tg.trace(update)):
        w = np.ones(2)
        state = init(w)
        for n in range(4):
            before = w
            w, state = f(np.full(2, 3.0), state, w)
            np.testing.assert_allclose(w, before - 3.0 * 0.1 * 0.5**n, rtol=1e-14)
    assert f.cache_info().traces == 1  # type: ignore[attr-defined]


def test_schedules_are_functions_of_numbers_arrays_and_traced_values() -> None:
    n = np.arange(12)
    schedules = optim.schedules
    expected = {
        "constant": (schedules.constant(0.3), np.full(12, 0.3)),
        "linear": (schedules.linear(1.0, 8, end=0.2), 1.0 - 0.8 * np.minimum(n / 8, 1)),
        "exponential": (schedules.exponential(2.0, 0.25, 2), 2.0 * 0.5**n),
        "cosine": (schedules.cosine(1.0, 10, end=0.1), 0.55 + 0.45 * np.cos(np.pi * np.minimum(n / 10, 1))),
    }
    for name, (schedule, rates) in expected.items():
        np.testing.assert_allclose(schedule(n), rates, rtol=1e-13, atol=1e-15, err_msg=name)
        np.testing.assert_allclose([float(schedule(int(k))) for k in n], rates, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(tg.trace(schedule)(n), rates, rtol=1e-13, atol=1e-15)


def test_clipping_by_the_global_norm() -> None:
    grads = {"w": np.array([[3.0, 0.0]], np.float32), "b": [np.array(4.0), np.zeros(2)]}
    for f in (optim.clip_by_global_norm, tg.trace(optim.clip_by_global_norm)):
        result = f(grads, 2.0)
        np.testing.assert_allclose(result["w"], [[1.2, 0.0]], rtol=1e-6)
        np.testing.assert_allclose(result["b"][0], 1.6, rtol=1e-6)
        assert result["w"].dtype == np.float32
        same({"w": f(grads, 5.5)["w"]}, {"w": grads["w"]}, 1e-6)
        np.testing.assert_array_equal(f({"w": np.zeros(2)}, 1.0)["w"], np.zeros(2))


def test_what_does_not_fit_the_parameters_is_refused_by_name() -> None:
    init, update = optim.adam()
    w = np.ones(3)
    with pytest.raises(ValueError, match=r"adam: the gradient of parameter 0 has the shape \(2,\), and the parameter"):
        update(np.ones(2), init(w), w)
    with pytest.raises(TypeError, match="adam: parameter 1 is int64"):
        init([w, np.arange(3)])
    with pytest.raises(ValueError, match="structure"):
        update({"w": w}, init([w]), [w])


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Rprop"])
def test_hyperparameters_are_the_arguments_of_the_constructor_without_the_parameters(name: str) -> None:
    cls = getattr(tg.optim, name)
    optimizer = cls([tg.tensor([1.0], requires_grad=True)])
    arguments = [each for each in inspect.signature(cls).parameters if each != "params"]
    assert sorted(optimizer.defaults) == sorted(arguments)
    assert list(optimizer.state_dict()["param_groups"][0]) == [*optimizer.defaults, "params"]
    assert list(optimizer.defaults) == (cls.saved_order.split() or arguments)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "ASGD", "Rprop"])
def test_a_traced_function_makes_an_optimizer_and_takes_steps(name: str) -> None:
    def fitted(w: Any, target: Any) -> Any:
        optimizer = getattr(tg.optim, name)([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            ((w - target) ** 2).sum().backward()
            optimizer.step()
        return w.detach().clone()

    start, targets = [1.0, -2.0], [tg.tensor([0.5, n]) for n in (1.0, -3.0, 0.0)]
    eager, compiled = tg.tensor(start, requires_grad=True), tg.tensor(start, requires_grad=True)
    step = tg.trace(lambda target: fitted(compiled, target))
    for target in targets:
        np.testing.assert_allclose(step(target).numpy(), fitted(eager, target).numpy(), rtol=1e-12)
    assert step.cache_info().traces <= 2
