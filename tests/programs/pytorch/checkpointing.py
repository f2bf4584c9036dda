"""Blocks that are computed again in the backward pass."""

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x, scale):
        return x + scale * self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(4) for _ in range(2))
        self.tail = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, 0.5, use_reentrant=False)
        return self.head(checkpoint_sequential(self.tail, 2, x, use_reentrant=False))


def train(run):
    model = run.fill(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = run.wave(5, 4), run.wave(5, 1, shift=2.0)
    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(model)
