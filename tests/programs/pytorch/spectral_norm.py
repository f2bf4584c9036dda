"""A discriminator with spectral normalization: power iterations update buffers in each step."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(1, 3, 3, stride=2))
        self.fc = spectral_norm(nn.Linear(12, 1), n_power_iterations=2)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.conv(x), 0.1).flatten(1))


def start(run, module):
    """Fixed start vectors of the power iteration."""
    with torch.no_grad():
        for n, layer in enumerate((module.conv, module.fc)):
            layer.weight_u.copy_(F.normalize(run.wave(*layer.weight_u.shape, shift=n), dim=0))
            layer.weight_v.copy_(F.normalize(run.wave(*layer.weight_v.shape, shift=n + 1), dim=0))


def train(run):
    model = run.fill(Discriminator())
    start(run, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.0, 0.9))

    @run.compile
    def step(real, fake):
        optimizer.zero_grad()
        loss = F.relu(1.0 - model(real)).mean() + F.relu(1.0 + model(fake)).mean()
        loss.backward()
        optimizer.step()
        return loss

    real, fake = run.wave(3, 1, 6, 6), run.wave(3, 1, 6, 6, shift=1.0)
    for _ in range(5):
        run.log(loss=step(real, fake))
    run.state(model)
    model.eval()
    run.log(scores=model(real))
