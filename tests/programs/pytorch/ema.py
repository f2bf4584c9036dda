"""A student and an averaged teacher: EMA of parameters and buffers, as consistency training does."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class EMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval()
        self.decay, self.updates = decay, 0
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for ema_v, v in zip(self.module.state_dict().values(), model.state_dict().values()):
            if ema_v.is_floating_point():
                ema_v.mul_(d).add_(v.detach(), alpha=1 - d)
            else:
                ema_v.copy_(v)


def train(run):
    model = run.fill(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)))
    ema = EMA(model, 0.99)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @run.compile
    def step(x, y, noisy):
        optimizer.zero_grad()
        with torch.no_grad():
            teacher = F.softmax(ema.module(noisy), dim=1)
        student = model(x)
        consistency = F.mse_loss(F.softmax(student, dim=1), teacher)
        loss = F.cross_entropy(student, y) + 3.0 * consistency
        loss.backward()
        optimizer.step()
        ema.update(model)
        return loss, consistency

    x, y = run.wave(6, 4), run.labels(6, classes=3)
    for n in range(5):
        loss, consistency = step(x, y, x + run.wave(6, 4, scale=0.1, shift=n))
        run.log(loss=loss, consistency=consistency)
    run.state(model)
    run.state(ema.module, "ema.")
