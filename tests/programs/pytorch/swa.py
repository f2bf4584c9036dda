"""Averaged weights: `swa_utils` with an averaged model, its learning rate, and new batch statistics."""

import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


def train(run):
    model = run.fill(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)))
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    x, y = run.wave(8, 3), run.wave(8, 1, shift=1.0)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for epoch in range(5):
        run.log(loss=step(x, y), lr=optimizer.param_groups[0]["lr"])
        if epoch >= 2:
            averaged.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
    update_bn([x[:4], x[4:]], averaged)
    run.state(averaged)
