"""A temporal convolutional network with weight normalization, dilated causal convolutions and cut ends."""

import torch
import torch.nn as nn
from torch.nn.utils import remove_weight_norm, weight_norm


class Chomp1d(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs, kernel, dilation):
        super().__init__()
        padding = (kernel - 1) * dilation
        self.conv = weight_norm(nn.Conv1d(inputs, outputs, kernel, padding=padding, dilation=dilation))
        self.net = nn.Sequential(self.conv, Chomp1d(padding), nn.ReLU(), nn.Dropout(0.0))
        self.downsample = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None
        self.relu = nn.ReLU()

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(self.net(x) + res)


def train(run):
    model = nn.Sequential(TemporalBlock(2, 4, 3, 1), TemporalBlock(4, 4, 3, 2), nn.Conv1d(4, 1, 1))
    run.fill(model)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(x), y, delta=0.5)
        loss.backward()
        optimizer.step()
        return loss

    x, y = run.wave(2, 2, 9), run.wave(2, 1, 9, shift=1.0)
    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(model)
    for block in model[:2]:
        remove_weight_norm(block.conv)
    run.log(weight=model[0].conv.weight, output=model(x))
