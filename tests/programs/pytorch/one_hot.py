"""Conditional generation: labels as one-hot rows whose number is read from the labels."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def train(run):
    model = run.fill(nn.Linear(2 + 3, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    @run.compile
    def step(noise, labels, real):
        optimizer.zero_grad()
        condition = F.one_hot(labels).to(noise.dtype)
        loss = F.l1_loss(model(torch.cat([noise, condition], dim=1)), real)
        loss.backward()
        optimizer.step()
        return loss

    labels = torch.tensor([0, 2, 1, 2])
    for n in range(5):
        run.log(loss=step(run.wave(4, 2, shift=n), labels.roll(n), run.wave(4, 4)))
    run.state(model)
    run.log(rows=F.one_hot(labels))
