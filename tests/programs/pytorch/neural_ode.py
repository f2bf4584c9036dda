"""A neural differential equation, solved by Runge-Kutta steps."""

import torch
import torch.nn as nn


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, t, y):
        return self.net(y**3) + 0.1 * torch.sin(t)


def rk4(func, y, ts):
    ys = [y]
    for t0, t1 in zip(ts[:-1], ts[1:]):
        h = t1 - t0
        k1 = func(t0, y)
        k2 = func(t0 + h / 2, y + h * k1 / 2)
        k3 = func(t0 + h / 2, y + h * k2 / 2)
        k4 = func(t1, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        ys.append(y)
    return torch.stack(ys)


def train(run):
    func = run.fill(ODEFunc())
    optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3, momentum=0.5, centered=True)
    ts = torch.linspace(0.0, 1.0, 4)
    start, matrix = torch.tensor([[2.0, 0.0]]), torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    with torch.no_grad():
        truth = rk4(lambda t, y: torch.mm(y**3, matrix), start, torch.linspace(0.0, 0.2, 4))

    @run.compile
    def step():
        optimizer.zero_grad()
        loss = torch.mean(torch.abs(rk4(func, start, ts) - truth))
        loss.backward()
        optimizer.step()
        return loss

    run.log(truth=truth)
    for _ in range(5):
        run.log(loss=step())
    run.state(func)
