"""A teacher that averages a student, and copies what is no float, as the dtype says."""

import copy

import torch
import torch.nn as nn


def train(run):
    student = run.fill(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    @run.compile
    def step(x, noisy):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(student(x), teacher(noisy))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            new = student.state_dict()
            for name, value in teacher.state_dict().items():
                if value.dtype.is_floating_point:
                    value.mul_(0.9).add_(new[name], alpha=0.1)
                else:
                    value.copy_(new[name])
        return loss

    x = run.wave(5, 3)
    for n in range(5):
        run.log(loss=step(x, x + run.wave(5, 3, scale=0.1, shift=n)))
    run.state(teacher)
