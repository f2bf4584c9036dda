"""Normalizations in train and eval mode: batch, group, layer, RMS and local response norms, momentum None."""

import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn2d = nn.BatchNorm2d(4, momentum=None)
        self.gn = nn.GroupNorm(2, 4, affine=False)
        self.inorm = nn.InstanceNorm2d(4, track_running_stats=True)
        self.lrn = nn.LocalResponseNorm(2)
        self.bn1d = nn.BatchNorm1d(4, eps=1e-3, momentum=0.2, affine=False)
        self.rms = nn.RMSNorm(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        x = self.lrn(self.inorm(self.gn(self.bn2d(x))))
        x = self.bn1d(x.amax(dim=(2, 3)) + x.mean(dim=(2, 3)))
        return self.fc(self.rms(x))


def train(run):
    model = run.fill(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @run.compile
    def step(x, y):
        model.train()
        optimizer.zero_grad()
        loss = nn.functional.soft_margin_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @run.compile
    def evaluate(x):
        model.eval()
        with torch.inference_mode():
            return model(x)

    for n in range(5):
        x = run.wave(3, 4, 3, 3, shift=n)
        y = torch.sign(run.wave(3, 2, shift=n))
        run.log(loss=step(x, y), output=evaluate(x))
    run.state(model)
