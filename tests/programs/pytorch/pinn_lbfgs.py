"""A physics-informed network: second derivatives by `autograd.grad`, trained by L-BFGS with a line search."""

import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x):
        return self.net(x)


def residual(model, x):
    u = model(x)
    ones = torch.ones_like(u)
    du = torch.autograd.grad(u, x, ones, create_graph=True)[0]
    ddu = torch.autograd.grad(du, x, ones, create_graph=True)[0]
    return ddu + u


def train(run):
    model = run.fill(Field())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, history_size=5, line_search_fn="strong_wolfe")
    x = torch.linspace(0, 3, 9).reshape(-1, 1).requires_grad_(True)
    ends, values = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [-0.5]])

    @run.compile
    def loss_and_gradient():
        optimizer.zero_grad()
        loss = residual(model, x).pow(2).mean() + (model(ends) - values).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(5):
        run.log(loss=optimizer.step(loss_and_gradient))
    run.state(model)
