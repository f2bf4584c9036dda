"""A normalizing flow of affine coupling layers with alternating masks."""

import math

import torch
import torch.nn as nn


class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh())
        self.shift = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))

    def forward(self, x):
        fixed = x * self.mask
        s, t = self.scale(fixed) * (1 - self.mask), self.shift(fixed) * (1 - self.mask)
        return fixed + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=1)

    def inverse(self, z):
        fixed = z * self.mask
        s, t = self.scale(fixed), self.shift(fixed)
        return fixed + (1 - self.mask) * (z - t) * torch.exp(-s)


class Flow(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        mask = (torch.arange(4) % 2).to(torch.get_default_dtype())
        self.layers = nn.ModuleList(Coupling(mask if n % 2 else 1 - mask) for n in range(layers))

    def log_prob(self, x):
        total = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, logdet = layer(x)
            total += logdet
        return total - 0.5 * (x**2).sum(1) - 0.5 * 4 * math.log(2 * math.pi)

    def sample(self, z):
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


def train(run):
    flow = run.fill(Flow())
    optimizer = torch.optim.Adamax(flow.parameters(), lr=0.01)

    @run.compile
    def step(x):
        optimizer.zero_grad()
        loss = -flow.log_prob(x).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = run.wave(7, 4)
    for _ in range(5):
        run.log(loss=step(x))
    run.state(flow)
    with torch.no_grad():
        run.log(samples=flow.sample(run.wave(3, 4)))
