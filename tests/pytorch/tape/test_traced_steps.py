"""Training steps as they are written for PyTorch, traced: few traces, and the values of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn

CALLS = 6
Step = Callable[[int, Any], Any]


class Training:
    """A network with an optimizer, and the state that steps keep."""

    def __init__(self) -> None:
        tg.manual_seed(0)
        self.net: Any = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.optimizer = tg.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.5)
        self.queue, self.place = tg.zeros(24, 1, dtype=tg.float64), tg.zeros(1, dtype=tg.int64)
        self.tables: dict[str, list[Any]] = {"loss": []}

    def update(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def state(self) -> list[Any]:
        return [*self.net.state_dict().values(), self.queue, self.place, *tg.tree.leaves(self.tables)]


def arrays(t: Training, n: int, x: Any) -> Any:
    y = t.net(x)
    weight = np.exp(-y.detach().numpy().copy()).mean()
    t.update((y**2).mean() * float(weight))
    return y.detach().cpu().numpy()


def writes_through_arrays(t: Training, n: int, x: Any) -> Any:
    y = t.net(x)
    shared = y.detach().clone()
    shared.numpy()[0] = 2.0
    t.update(((y - shared) ** 2).mean())
    return shared


def queue(t: Training, n: int, x: Any) -> Any:
    y = t.net(x)
    t.update((y**2).mean() + (y @ t.queue.T).mean())
    p = int(t.place)
    t.queue[p : p + 4] = y.detach()
    t.place[0] = (p + 4) % len(t.queue)
    return t.queue[p : p + 2]


def minibatches(t: Training, n: int, x: Any) -> Any:
    y = t.net(x[n // 2 : n // 2 + 2]) + t.net(x.narrow(0, n // 3, 1)).sum()
    t.update(y.pow(2).sum())
    return y


def views(t: Training, n: int, x: Any) -> Any:
    window = t.queue[n : n + 3]
    window += 1
    t.queue.mul_(2)
    t.update(t.net(x).mul(window[:1]).sum())
    return window * 1


def different_values(t: Training, n: int, x: Any) -> Any:
    labels, counts = tg.unique((x[:, 0] > 0).long() * 0 + tg.arange(4) % 2, return_counts=True)
    runs = tg.unique_consecutive(x[:, 0], return_inverse=True)[1]
    y = t.net(x)
    t.update(y[:, 0].mul(counts.repeat(2)).sum() + tg.unique(y).pow(2).sum())
    return labels, runs


def scheduled(t: Training, n: int, x: Any) -> Any:
    t.optimizer.param_groups[0]["lr"] = 0.1 * 0.9**n
    loss = t.net(x).pow(2).mean()
    t.update(loss)
    return loss


def exponential_average(t: Training, n: int, x: Any) -> Any:
    before = [p.detach().clone() for p in t.net.parameters()]
    t.update(t.net(x).pow(2).mean())
    with tg.no_grad():
        for p, q in zip(t.net.parameters(), before):
            p.lerp_(q, 0.5)
    t.net.load_state_dict(t.net.state_dict())


def partly_frozen(t: Training, n: int, x: Any) -> Any:
    for p in t.net[0].parameters():
        p.requires_grad = False
    t.update(t.net(x).pow(2).mean())
    for p in t.net[0].parameters():
        p.requires_grad = True
    t.update(t.net(x).abs().mean())


def frozen(t: Training, n: int, x: Any) -> Any:
    t.update(t.net(x).pow(2).mean())
    t.net[0].weight.requires_grad_(not t.net[0].weight.requires_grad)
    return [p.requires_grad for p in t.net.parameters()]


def hidden_state(t: Training, n: int, x: Any) -> Any:
    class_ = type(t)
    class_.hidden = t.net(x).mean() + class_.hidden.detach() * class_.weight
    t.update(class_.hidden)
    class_.weight.grad = None
    return class_.hidden


def history(t: Training, n: int, x: Any) -> Any:
    loss = t.net(x).pow(2).mean()
    t.update(loss)
    t.tables["loss"].append(loss.detach())
    t.tables.setdefault("first", []).append(t.net[0].weight.grad.clone())
    return list(t.tables["loss"]) if n == CALLS - 1 else None


def new_parameters(t: Training, n: int, x: Any) -> Any:
    t.update(t.net(x).pow(2).mean())
    t.net[2].bias = nn.Parameter(t.net[2].bias.detach() * 0.9)
    weight = x[0].clone().requires_grad_()
    (weight * 2).sum().backward()
    t.tables["parameters"] = [weight, weight.grad]
    return [t.net[2].bias.is_leaf, weight.requires_grad, isinstance(t.net[2].bias, nn.Parameter)]


def loaded_batches(t: Training, n: int, x: Any) -> Any:
    loader = tg.utils.data.DataLoader(tg.utils.data.TensorDataset(x), batch_size=2)
    for (batch,) in loader:
        t.update(t.net(batch).pow(2).mean())


@pytest.mark.parametrize(
    ("body", "traces"),
    [
        (arrays, 1),
        (writes_through_arrays, 1),
        (queue, 1),
        (minibatches, 1),
        (views, 1),
        (different_values, 1),
        (scheduled, 1),
        (exponential_average, 1),
        (partly_frozen, 1),
        (frozen, 3),
        (hidden_state, 2),
        (history, 3),
        (new_parameters, 2),
        (loaded_batches, 1),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_steps_with_other_values_are_traced_once_or_twice(body: Callable[..., Any], traces: int) -> None:
    results = []
    for transform in (lambda f: f, tg.trace):
        training = type("Recurrent", (Training,), {})()
        type(training).hidden = tg.zeros((), dtype=tg.float64)
        type(training).weight = tg.tensor(0.5, requires_grad=True)
        step: Any = transform(lambda n, x: body(training, n, x))  # noqa: B023
        batches = np.random.default_rng(1).normal(size=(CALLS, 4, 3))
        outputs = [step(n, tg.tensor(x)) for n, x in enumerate(batches)]
        results.append([*tg.tree.leaves(outputs), *training.state()])
    for eager, traced in zip(*results, strict=True):
        if isinstance(eager, bool):
            assert eager is traced
            continue
        assert (type(eager), eager.dtype, eager.shape) == (type(traced), traced.dtype, traced.shape)
        plain = [x.detach().numpy() if isinstance(x, tg.Tensor) else x for x in (traced, eager)]
        np.testing.assert_allclose(*plain, rtol=1e-12, atol=1e-14)
    assert step.cache_info().traces <= traces


def test_lbfgs_runs_plainly_within_a_traced_step() -> None:
    results = []
    for traced in (False, True):
        training = Training()
        optimizer = tg.optim.LBFGS(training.net.parameters(), max_iter=3, line_search_fn="strong_wolfe")

        def step(x: Any) -> Any:
            def closure() -> Any:
                optimizer.zero_grad()  # noqa: B023
                loss = training.net(x).pow(2).mean()  # noqa: B023
                loss.backward()
                return loss

            return optimizer.step(closure)  # noqa: B023

        x = tg.tensor(np.random.default_rng(1).normal(size=(4, 3)))
        if traced:
            with pytest.warns(tg.PerformanceWarning, match="trace the closure instead"):
                losses = [tg.trace(step)(x), step(x)]
        else:
            losses = [step(x), step(x)]
        results.append([float(v.detach()) for v in losses])
    assert results[0] == results[1]


def test_a_result_that_depends_on_a_new_leaf_is_computed_plainly() -> None:
    w = tg.tensor([1.0, 2.0], requires_grad=True)

    def step(x: Any) -> Any:
        p = nn.Parameter((x * w).detach())
        return p, (p * w).sum()

    with pytest.warns(tg.PerformanceWarning, match="depends on a Tensor that it makes"):
        p, loss = tg.trace(step)(tg.tensor([1.0, 3.0]))
    loss.backward()
    assert p.grad.tolist() == [1.0, 2.0]
    assert w.grad.tolist() == [1.0, 6.0]


VIEWS: dict[str, Any] = {
    "index": lambda x: x[0],
    "slices": lambda x: x[:, 1:].T,
    "parts": lambda x: x.split(1)[1],
    "reshaped": lambda x: x.view(-1)[2:4],
    "updated": lambda x: (x.mul_(2.0), x[1])[1],
    "view_is_updated": lambda x: x[1].add_(1.0),
    "in_a_container": lambda x: {"a": (x.unsqueeze(0), 1)}["a"][0],
    "of_a_new_value": lambda x: (x * 2.0)[0],
    "detached": lambda x: x[0].detach(),
    "without_gradients": lambda x: tg.no_grad()(lambda: x[0])(),
}


@pytest.mark.parametrize("leaf", [False, True], ids=["constant", "of a leaf"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_an_argument_is_one_of_the_caller(name: str, leaf: bool) -> None:
    results = []
    for call in (VIEWS[name], tg.trace(VIEWS[name])):
        for _ in range(3):  # the last by the fast path
            w = tg.arange(1.0, 7.0).reshape(2, 3).requires_grad_(leaf)
            x = w * 1.0
            result = call(x)
            known = result._base is x, result.requires_grad, result.tolist()
            if leaf and result._requires:
                (result * result).sum().backward()
            if result._base is x:
                with tg.no_grad():
                    x.mul_(3.0)
            results.append((*known, result.tolist(), None if w.grad is None else w.grad.tolist()))
    if name == "detached":  # a copy in a traced function
        results = [each[1:3] for each in results]
    assert all(each == results[0] for each in results)
