"""Model-agnostic meta-learning: updates inside of updates, with parameters passed by `functional_call`."""

import torch
import torch.nn as nn
from torch.func import functional_call


def adapt(model, params, x, y, inner_lr):
    for _ in range(2):
        loss = nn.functional.mse_loss(functional_call(model, params, (x,)), y)
        grads = torch.autograd.grad(loss, tuple(params.values()), create_graph=True)
        params = {name: p - inner_lr * g for (name, p), g in zip(params.items(), grads)}
    return params


def train(run):
    model = run.fill(nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)))
    meta = torch.optim.Adam(model.parameters(), lr=1e-2)

    @run.compile
    def step(xs, ys, xq, yq):
        meta.zero_grad()
        total = 0.0
        for task in range(xs.shape[0]):
            params = adapt(model, dict(model.named_parameters()), xs[task], ys[task], 0.1)
            total = total + nn.functional.mse_loss(functional_call(model, params, (xq[task],)), yq[task])
        loss = total / xs.shape[0]
        loss.backward()
        meta.step()
        return loss

    xs, xq = run.wave(3, 4, 1, scale=2.0), run.wave(3, 4, 1, scale=2.0, shift=1.0)
    phase = torch.tensor([0.0, 0.7, 1.4]).view(3, 1, 1)
    for _ in range(5):
        run.log(loss=step(xs, torch.sin(xs + phase), xq, torch.sin(xq + phase)))
    run.state(model)
