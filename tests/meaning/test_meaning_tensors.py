"""Programs on Tensors with state: traced, they do what they do eagerly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from meaning import attempt, program

import tracegrad as tg
import tracegrad.nn.functional as F


class Box:
    """An object with attributes."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


def leaf(*values: float) -> Any:
    return tg.tensor(list(values), requires_grad=True)


@program
def test_a_history_of_losses(trace: Any) -> Any:
    w, log = leaf(1.0, 2.0), []

    @trace
    def loss(w: Any) -> Any:
        value = (w * w).sum()
        log.append(value.detach())
        return value

    for _ in range(3):
        w.grad = None
        loss(w).backward()
        yield w.grad, log, len(log)


@program
def test_running_statistics(trace: Any) -> Any:
    class Norm:
        def __init__(self) -> None:
            self.mean, self.steps, self.momentum = tg.zeros(2), 0, 0.1

        def __call__(self, x: Any) -> Any:
            with tg.no_grad():
                self.mean = (1 - self.momentum) * self.mean + self.momentum * x.mean(0)
                self.steps += 1
            return (x - self.mean) * self.steps

    norm = Norm()
    f = trace(norm)
    for k in range(3):
        x = tg.tensor(np.arange(4.0).reshape(2, 2) + k, requires_grad=True)
        out = f(x)
        out.sum().backward()
        yield out, x.grad, norm.mean, norm.steps, norm.mean.requires_grad


@program
def test_buffers_that_are_updated_in_place(trace: Any) -> Any:
    box = Box(buffer=tg.zeros(3), count=tg.tensor(0.0))

    @trace
    def f(x: Any) -> Any:
        with tg.no_grad():
            box.buffer.mul_(0.5).add_(x)
            box.count += 1
        return (x * box.buffer).sum() / box.count

    x = leaf(1.0, 2.0, 3.0)
    saved = box.buffer
    for _ in range(3):
        x.grad = None
        value = f(x)
        value.backward()
        yield value, x.grad, box.buffer, box.count, box.buffer is saved, saved._version


@program
def test_an_optimiser_with_state(trace: Any) -> Any:
    class Momentum:
        def __init__(self, params: Any) -> None:
            self.params, self.state = params, {}

        def step(self, grads: Any) -> Any:
            with tg.no_grad():
                for k, (p, g) in enumerate(zip(self.params, grads)):
                    if k not in self.state:
                        self.state[k] = tg.zeros_like(p)
                    self.state[k] = 0.9 * self.state[k] + g
                    p -= 0.1 * self.state[k]

    params = [leaf(1.0, 2.0), leaf(3.0)]
    rule = Momentum(params)
    step = trace(rule.step)
    for k in range(4):
        step([tg.ones(2) * k, tg.ones(1)])
        yield params, rule.state, params[0].requires_grad, params[0].is_leaf


@program
def test_tensors_that_are_kept_with_their_derivative(trace: Any) -> Any:
    box = Box(hidden=None)

    @trace
    def f(x: Any) -> Any:
        box.hidden = x * 2
        return box.hidden.sum()

    x = leaf(1.0, 2.0)
    for _ in range(2):
        x.grad = None
        f(x)
        (box.hidden * tg.tensor([1.0, 10.0])).sum().backward()
        yield x.grad, box.hidden, box.hidden.requires_grad


@program
def test_a_training_loop_with_a_dict_of_parameters(trace: Any) -> Any:
    params = {"w": leaf(0.5, -0.5), "b": leaf(0.1)}
    stats = {"n": 0, "best": float("inf")}

    @trace
    def loss(x: Any, y: Any) -> Any:
        stats["n"] += 1
        return F.mse_loss(x @ params["w"] + params["b"], y)

    x, y = tg.tensor(np.arange(6.0).reshape(3, 2)), tg.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        value = loss(x, y)
        value.backward()
        with tg.no_grad():
            for p in params.values():
                p -= 0.01 * p.grad
                p.grad = None
        stats["best"] = min(stats["best"], value.item())
        yield value, params, stats


@program
def test_updates_that_pytorch_refuses(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        x.add_(1.0)
        return x.sum()

    x = leaf(1.0, 2.0)
    yield attempt(f, x), x
    y = tg.tensor([1.0, 2.0])
    yield attempt(f, y), y


@program
def test_arrays_and_tensors_together(trace: Any) -> Any:
    table = np.zeros(2)

    @trace
    def f(x: Any, y: Any) -> Any:
        table[:] += y
        y *= 2.0
        return x.sum() * 2.0

    x, y = leaf(1.0, 2.0), np.ones(2)
    for _ in range(2):
        x.grad = None
        value = f(x, y)
        value.backward()
        yield value, x.grad, table, y


@program
def test_a_new_gradient_is_the_tensor_that_is_returned_and_kept(trace: Any) -> Any:
    w, box = leaf(1.0, 2.0), Box(last=None)

    @trace
    def f(x: Any) -> Any:
        w.grad = x * 2.0
        box.last = w.grad
        return w.grad

    for k in range(3):
        result = f(tg.ones(2) * k)
        yield result, result is w.grad, box.last is w.grad


@program
def test_values_written_to_no_rows_have_gradients_of_zero(trace: Any) -> Any:
    w, x = tg.ones(3, 2, requires_grad=True), tg.ones(4, 3)

    @trace
    def by_index(rows: Any) -> Any:
        y = tg.zeros(4, 2)
        y[rows] = x[rows] @ w
        return y

    @trace
    def by_mask(rows: Any) -> Any:
        y = tg.zeros(4, 2).masked_scatter(tg.zeros(4, 2) > rows.sum(), (x * 2)[:0] @ w)
        y[x[:, 0] > 5] = x[x[:, 0] > 5] @ w
        return y

    for rows in ([], [0, 2], []):
        for f in (by_index, by_mask):
            w.grad = None
            y = f(tg.tensor(rows, dtype=tg.int64))
            y.sum().backward()
            yield y, w.grad, y.requires_grad


@program
def test_no_grad_around_a_derivative_stops_those_around_it(trace: Any) -> Any:
    def h(x: Any) -> Any:
        with tg.no_grad():
            s = tg.func.grad(lambda t: 0.5 * t * t)(x)
        return x**3 - s

    @trace
    def slope(x: Any) -> Any:
        return tg.func.grad(h)(x)

    for value in (1.5, 2.0):
        x = tg.tensor(value)
        yield slope(x), tg.func.grad(h)(x) - 3 * value**2


@program
def test_jacobians_that_depend_on_nothing_are_tensors(trace: Any) -> Any:
    w, b = tg.ones(2, 3), tg.zeros(2)

    @trace
    def jacobians(z: Any) -> Any:
        of_b = tg.func.jacrev(lambda b: z @ w.T + b)(b)
        hessian = tg.func.hessian(lambda b: (z @ w.T + b).sum())(b)
        return of_b.clone().flatten(0), hessian.flatten(0), tg.func.vmap(lambda _: tg.ones(2))(z)

    for z in (tg.ones(3), tg.zeros(3)):
        results = jacobians(z)
        yield results, [isinstance(x, tg.Tensor) for x in results]


@program
def test_writes_through_views_of_a_tensor_without_axes(trace: Any) -> Any:
    ways = [
        lambda y: y.view(-1),
        lambda y: y.reshape(-1),
        lambda y: y.unsqueeze(0),
        lambda y: y[None],
        lambda y: y[...],
        lambda y: y.ravel(),
        lambda y: y.flatten(),
        lambda y: y.squeeze(),
        lambda y: y.view_as(tg.ones(())),
        lambda y: y.expand(1, 1),
        lambda y: tg.atleast_1d(y),
        lambda y: y.view(1, 1)[0],
        lambda y: y.detach(),
    ]

    for way in ways:

        @trace
        def f(x: Any, way: Any = way) -> Any:
            y = x.clone()
            way(y).sin_()
            return y

        for value in (0.7, -0.2):
            x = leaf(value).sum()
            yield f(x), tg.func.grad(f)(x), tg.func.vmap(f)(x.view(1))


@program
def test_writes_through_expanded_tensors_that_repeat_nothing(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        y = x * 1
        y.expand(1, 2, 3).sin_()
        y.T.expand(-1, 2).mul_(3.0)
        y[:1].expand(1, 3).add_(1.0)
        return y

    for k in range(2):
        x = tg.tensor(np.arange(6.0).reshape(2, 3) + k, requires_grad=True)
        y = f(x)
        y.sum().backward()
        yield y, x.grad


@program
def test_hooks_after_accumulation_update_their_parameter(trace: Any) -> Any:
    p, log = leaf(1.0, 2.0), []

    def step(q: Any) -> None:
        q.sub_(0.1 * q.grad)
        q.grad = None
        log.append(tg.is_grad_enabled())

    p.register_post_accumulate_grad_hook(step)

    @trace
    def train(x: Any) -> Any:
        ((p * x) ** 2).sum().backward()
        return (p * 1).detach()

    for k in range(3):
        yield train(tg.ones(2) + k), p, p.grad, log


@program
def test_updates_in_place_of_what_was_pooled(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        h = x * 1.0
        y = F.max_pool2d(h, 2)
        y += 1
        z = F.max_pool1d(h[0], 2)
        z.view(-1).mul_(2.0)
        return y.sum() + (z * y.detach().mean()).sum() + tg.maximum(h, h.flip(-1)).add_(1.0).sum()

    for k in range(3):
        x = tg.tensor(np.sin(np.arange(16.0) + k).reshape(1, 1, 4, 4), requires_grad=True)
        value = f(x)
        value.backward()
        yield value, x.grad


@program
def test_dtypes_are_pytorchs_and_follow_the_default_dtype(trace: Any) -> Any:
    @trace
    def results(x: Any, n: Any, d: Any) -> Any:
        return (
            x * np.sqrt(2.0),
            x * n,
            n / (n + 1),
            x + n[0],
            x * d,
            tg.exp(n),
            n * 2.5,
            tg.stack([x, n]),
            tg.ones(2),
            F.mse_loss(x, n),
            tg.where(x > 0, n, 0.5),
            tg.full((2,), np.float64(1)),
            tg.cat([n, x]) * d,
        )

    x, n, d = tg.ones(2, dtype=tg.float32), tg.arange(2), tg.tensor(2.0, dtype=tg.float64)
    before = tg.get_default_dtype()
    try:
        for dtype in (tg.float32, tg.float64, tg.float32):
            tg.set_default_dtype(dtype)
            yield [(each, str(each.dtype)) for each in results(x, n, d)]
            leaf = tg.ones(2, dtype=tg.float32, requires_grad=True)
            factor = tg.tensor(2.0, dtype=tg.float64, requires_grad=True)
            results(leaf, n, factor)[-1].sum().backward()
            yield leaf.grad, str(leaf.grad.dtype), factor.grad, str(factor.grad.dtype)
    finally:
        tg.set_default_dtype(before)


@program
def test_einsum_broadcasts_axes_of_one(trace: Any) -> Any:
    @trace
    def f(x: Any, y: Any) -> Any:
        return (tg.einsum("ij,ij->ij", x, y) * tg.einsum("ij,ij->i", x, y)[:, None]).sum()

    @trace
    def g(x: Any, y: Any) -> Any:
        return np.einsum("ij,ij,i->j", x, y, np.ones(1))

    for shape in ((1, 3), (2, 3), (2, 1)):
        x = tg.tensor(np.sin(np.arange(np.prod(shape))).reshape(shape), requires_grad=True)
        y = np.arange(6.0).reshape(2, 3)
        value = f(x, tg.tensor(y))
        value.backward()
        yield value, x.grad, g(x.detach().numpy(), y)
        assert np.allclose(g(x.detach().numpy(), y), (x.detach().numpy() * y).sum(0))


@program
def test_a_target_network_takes_the_state_of_another(trace: Any) -> Any:
    tg.manual_seed(0)
    a, b = tg.nn.Linear(2, 2), tg.nn.Linear(2, 2)

    @trace
    def copied(x: Any) -> Any:
        with tg.no_grad():
            a.weight.mul_(0.9)
        b.load_state_dict(a.state_dict())
        return b(x).detach()

    @trace
    def mixed(x: Any) -> Any:
        p, q = a.state_dict(), b.state_dict()
        for k in p:
            q[k] = 0.1 * p[k] + 0.9 * q[k]
        b.load_state_dict(q)
        return b(x).detach()

    for _ in range(2):
        yield copied(tg.ones(1, 2)), b.weight, a.weight
        with tg.no_grad():
            a.weight.add_(1.0)
        yield mixed(tg.ones(1, 2)), b.weight, b.bias


@program
def test_windows_of_unfold_are_views_and_overlapping_ones_refuse_updates(trace: Any) -> Any:
    @trace
    def overlapping(x: Any) -> Any:
        windows = x.unfold(0, 3, 2)
        windows[:] = 0.0
        return x * 1

    @trace
    def apart(x: Any) -> Any:
        windows = x.unfold(0, 2, 3)
        windows[1, 0] = 10.0
        windows.mul_(2.0)
        return x * 1

    @trace
    def read(x: Any) -> Any:
        windows, copy = x.unfold(0, 3, 1), x.unfold(0, 3, 1).clone()
        x.add_(1.0)
        return windows * copy

    @trace
    def gradient(x: Any) -> Any:
        y = x * 1
        windows, pairs = y.unfold(0, 3, 1), y.unfold(0, 2, 2)
        pairs.mul_(pairs * 2)
        y.mul_(3.0)
        (windows**2).sum().backward()
        return x.grad * 1

    for k in range(2):
        x, w = tg.arange(6.0) + k, (tg.arange(6.0) + k).requires_grad_()
        refused = attempt(overlapping, x)
        assert "single memory location" in str(refused.error)
        yield refused, apart(x), x, read(x), x, gradient(w)


@program
def test_devices_and_lists_as_indices(trace: Any) -> Any:
    device = tg.device("cuda" if tg.cuda.is_available() else "cpu")

    @trace
    def f(x: Any, k: Any) -> Any:
        y = tg.zeros(3, 4, device=x.device) if x.device.type == device.type else None
        rows = [k, k]
        y[rows] = x.sum()
        return y.to(device), x.is_cuda

    for k in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield f(tg.ones(2) * k, tg.tensor([k, 0]))


class Several(tg.optim.Optimizer):
    """A buffer for each of several momenta, by the momentum."""

    def __init__(self, params: Any, lr: float = 0.1, betas: Any = (0.0, 0.9)):
        super().__init__(params, {"lr": lr, "betas": list(betas)})

    @tg.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                held = self.state[p]
                if not held:
                    held["buffers"] = {beta: tg.zeros_like(p) for beta in group["betas"]}
                for beta in group["betas"]:
                    held["buffers"][beta].mul_(beta).add_(p.grad)
                    p.sub_(held["buffers"][beta] * (group["lr"] / 2))


def _losses(wrap: Any) -> list[float]:
    w = tg.nn.Parameter(tg.ones(3))
    optimizer = Several([w])

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((w - x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = wrap(step)
    return [float(f(tg.zeros(3))) for _ in range(4)]


def test_a_number_that_a_tensor_was_computed_with_is_still_a_key() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = _losses(tg.trace)
    np.testing.assert_allclose(result, _losses(lambda f: f), rtol=1e-6)
