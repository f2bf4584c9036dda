"""Batch normalization within a checkpoint: running statistics count the second computation."""

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def train(run):
    body = run.fill(nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU()))
    head = run.fill(nn.Linear(4, 1))
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(head(checkpoint(body, x, use_reentrant=False)), y)
        loss.backward()
        optimizer.step()
        return loss

    for n in range(5):
        run.log(loss=step(run.wave(5, 3, shift=n), run.wave(5, 1)))
    run.state(body)
