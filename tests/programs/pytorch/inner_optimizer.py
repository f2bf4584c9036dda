"""Adaptation at test time: the traced function makes an optimizer and takes three of its steps."""

import torch
import torch.nn as nn


def train(run):
    model = run.fill(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))

    @run.compile
    def adapt(x):
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            p = model(x).softmax(dim=1)
            loss = -(p * p.log()).sum(1).mean()
            loss.backward()
            optimizer.step()
        return loss

    for n in range(5):
        run.log(loss=adapt(run.wave(4, 3, shift=n)))
    run.state(model)
