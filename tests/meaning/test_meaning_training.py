"""Programs that train modules, as scripts for PyTorch have them: traced, they do what they do eagerly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from meaning import program

import tracegrad as tg
from tracegrad import nn
from tracegrad.nn import functional as F


def net(*layers: Any) -> Any:
    """Layers in a row, with parameters that are always the same."""
    result = nn.Sequential(*layers)
    with tg.no_grad():
        for k, p in enumerate(result.parameters()):
            p.copy_(0.5 * tg.cos(tg.arange(float(p.numel())) + k).reshape(p.shape))
    return result


def batch(k: int, rows: int = 5, columns: int = 3) -> Any:
    return tg.tensor(np.sin(np.arange(float(rows * columns)) + k).reshape(rows, columns))


@program
def test_a_decorated_function_is_traced_as_a_plain_one(trace: Any) -> Any:
    for decorate in (tg.no_grad(), tg.no_grad, tg.enable_grad(), tg.set_grad_enabled(False)):
        model, average, factor = net(nn.Linear(3, 2)), net(nn.Linear(3, 2)), [0.5]

        def update(decay: float = 0.25, model: Any = model, average: Any = average, factor: Any = factor) -> Any:
            for p, q in zip(model.parameters(), average.parameters()):
                q.detach().mul_(decay).add_(p.detach(), alpha=factor[0])
            return tg.is_grad_enabled()

        decorated: Any = decorate(update)

        def step(x: Any, model: Any = model, update: Any = decorated) -> Any:
            with tg.no_grad():
                for p in model.parameters():
                    p += x.sum()
            return update(), model(x).sum().detach()

        traced = trace(step)
        for k in range(3):
            factor[0] = 0.5 + k
            yield traced(batch(k)), [*average.parameters()], [*model.parameters()]


@program
def test_decorated_methods_and_generators_and_what_is_traced_itself(trace: Any) -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = net(nn.Linear(3, 1)), 0

        @tg.no_grad()
        def predict(self, x: Any) -> Any:
            self.calls += 1
            return self.layer(x) * scale[0]

        @staticmethod
        @tg.no_grad()
        def twice(x: Any) -> Any:
            return 2 * x * scale[0]

    scale, model = [2.0], Model()

    @tg.no_grad()
    def parts(x: Any) -> Any:
        for row in x:
            yield row * scale[0]

    @trace
    @tg.no_grad()
    def evaluate(x: Any) -> Any:
        result = model.predict(x)
        return result, Model.twice(x), list(parts(x)), result.requires_grad

    for k in range(3):
        scale[0] += k
        yield evaluate(batch(k, rows=2)), model.calls


@program
def test_modes_that_a_step_sets_hold_in_it(trace: Any) -> Any:
    model = net(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    @trace
    def train(x: Any) -> Any:
        model.train()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss.detach(), model.training, model[1].training

    @trace
    def evaluate(x: Any) -> Any:
        model.eval()
        with tg.no_grad():
            return model(x), model.training, model[1].training

    @trace
    def frozen(x: Any) -> Any:
        model.train()
        model[1].eval()
        return model(x).detach(), model.training, model[1].training

    for k in range(3):
        yield train(batch(k)), evaluate(batch(k)), frozen(batch(k)), model[1].training
        yield [*model.buffers()], [p.grad for p in model.parameters()]


@program
def test_what_object_setattr_writes_is_read_where_the_dict_was_looked_at(trace: Any) -> Any:
    class Box:
        def __init__(self) -> None:
            self.value, self.count = 1.0, 0

        def __setattr__(self, name: str, value: Any) -> None:
            known = name in self.__dict__
            object.__setattr__(self, name, value)
            if name == "value":
                object.__setattr__(self, "count", self.count + 1 if known else 0)

    box = Box()

    @trace
    def step(x: Any) -> Any:
        box.value = x.sum()
        first = box.value * 2
        box.value = first + 1
        return first, box.value, box.count, sorted(box.__dict__)

    for k in range(3):
        yield step(batch(k)), box.value, box.count


@program
def test_hooks_of_parameters_run_in_a_traced_step(trace: Any) -> Any:
    w, factor, seen = tg.tensor([1.0, 2.0], requires_grad=True), [10.0], []

    @trace
    def step(x: Any) -> Any:
        w.grad = None
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()

    def shown() -> Any:
        return [step(batch(k, 1, 2)[0]) for k in range(2)], w.grad, w, seen

    yield shown()
    first = w.register_hook(lambda g: g * factor[0])
    yield shown()
    factor[0] = 3.0
    second = w.register_hook(lambda g: g + 1)
    yield shown()
    first.remove()
    yield shown()
    second.remove()
    yield shown()
    with w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum())):
        yield shown()
    optimizer = tg.optim.SGD([w], lr=0.1)
    with w.register_post_accumulate_grad_hook(lambda p: optimizer.step()):
        yield shown()


@program
def test_a_hook_of_a_parameter_runs_once_in_passes_within_and_once_in_that_behind(trace: Any) -> Any:
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: g * 10)

    @trace
    def both(x: Any) -> Any:
        (derivative,) = tg.autograd.grad((w * x).sum(), w)
        return (w * x).sum() + derivative.sum()

    for k in range(3):
        out = both(batch(k, 1, 2)[0])
        out.backward()
        yield out, w.grad


@program
def test_pooling_of_what_requires_no_grad(trace: Any) -> Any:
    pool = trace(lambda x: F.adaptive_avg_pool2d(x, (2, 3)) + F.adaptive_avg_pool2d(x, 1))
    for k in range(2):
        yield pool(batch(k, 5, 16).reshape(1, 5, 4, 4))


@program
def test_an_average_of_weights(trace: Any) -> Any:
    model = net(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = tg.optim.Adam(model.parameters(), lr=0.05)

    @tg.no_grad()
    def update(decay: float) -> None:
        for p, q in zip(model.parameters(), average.parameters()):
            q.mul_(decay).add_(p, alpha=1 - decay)

    @trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        update(0.9)
        return loss.item()

    for k in range(4):
        yield step(batch(k)), [*average.parameters()]


def test_an_optimizer_around_another_is_traced_once() -> None:
    model = net(nn.Linear(3, 1))
    inner = tg.optim.SGD(model.parameters(), lr=0.1)
    outer = tg.optim.Optimizer(model.parameters(), {"radius": 0.1})

    @tg.no_grad()
    def climb() -> None:
        for p in outer.param_groups[0]["params"]:
            outer.state[p]["before"] = p.detach().clone()
            p.add_(p.grad, alpha=outer.param_groups[0]["radius"])

    @tg.trace
    def step(x: Any) -> Any:
        inner.zero_grad()
        (model(x) ** 2).mean().backward()
        climb()
        inner.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        for p in model.parameters():
            p.data = outer.state[p]["before"]
        inner.step()
        return loss.detach()

    losses = [step(batch(0)).item() for _ in range(6)]
    assert losses == sorted(losses, reverse=True)
    assert step.cache_info().traces <= 2


@program
def test_buffers_that_are_set_are_read_as_they_were_set(trace: Any) -> Any:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", tg.zeros(3))
            self.weight = nn.Parameter(tg.ones(3))

        def forward(self, x: Any) -> Any:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.weight = nn.Parameter(self.weight.detach() * 2)
            return (x - self.mean) * self.weight

    model = Scaled()

    @trace
    def run(x: Any) -> Any:
        return model(x).detach(), model.mean

    for k in range(3):
        yield run(batch(k)), model.mean, model.weight
