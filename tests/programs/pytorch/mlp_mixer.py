"""An MLP-mixer: layers along tokens and along channels, with residuals."""

from functools import partial

import torch
from torch import nn


class PreNormResidual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.fn(self.norm(x)) + x


def feed_forward(dim, factor=2, dense=nn.Linear):
    inner = int(dim * factor)
    return nn.Sequential(dense(dim, inner), nn.GELU(), nn.Dropout(0.0), dense(inner, dim), nn.Dropout(0.0))


class Mixer(nn.Module):
    def __init__(self, patches=4, dim=6, depth=1, classes=3):
        super().__init__()
        along_tokens, along_channels = partial(nn.Conv1d, kernel_size=1), nn.Linear
        self.embed = nn.Linear(9, dim)
        self.blocks = nn.Sequential(
            *[
                nn.Sequential(
                    PreNormResidual(dim, feed_forward(patches, 2, along_tokens)),
                    PreNormResidual(dim, feed_forward(dim, 0.5, along_channels)),
                )
                for _ in range(depth)
            ]
        )
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // 3, 3, w // 3, 3).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 9 * c)
        return self.head(self.blocks(self.embed(x)).mean(dim=1))


def train(run):
    model = run.fill(Mixer())
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)

    @run.compile
    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x, y = run.wave(4, 1, 6, 6), run.labels(4, classes=3)
    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(model)
