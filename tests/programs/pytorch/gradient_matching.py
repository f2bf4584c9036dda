"""Double backward: data are optimized so that their gradient matches a gradient of real data."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def train(run):
    net = run.fill(nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 3)))
    params = list(net.parameters())
    real, label = run.wave(2, 4), run.labels(2, classes=3)
    loss = F.cross_entropy(net(real), label)
    original = [g.detach().clone() for g in torch.autograd.grad(loss, params)]
    dummy = run.wave(2, 4, shift=0.5).requires_grad_(True)
    dummy_label = run.wave(2, 3, shift=1.0).requires_grad_(True)
    optimizer = torch.optim.Adam([dummy, dummy_label], lr=0.1)

    @run.compile
    def step():
        optimizer.zero_grad()
        onehot = F.softmax(dummy_label, dim=-1)
        loss = torch.mean(torch.sum(-onehot * F.log_softmax(net(dummy), dim=-1), 1))
        gradients = torch.autograd.grad(loss, params, create_graph=True)
        mismatch = 0
        for g, o in zip(gradients, original):
            mismatch += ((g - o) ** 2).sum()
        total_variation = (dummy[:, 1:] - dummy[:, :-1]).abs().sum()
        (100 * mismatch + 0.01 * total_variation).backward()
        optimizer.step()
        return mismatch

    for _ in range(5):
        run.log(mismatch=step())
    run.log(original=original, dummy=dummy, gradient=dummy.grad, label_gradient=dummy_label.grad)
