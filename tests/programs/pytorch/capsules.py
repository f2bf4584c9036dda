"""Capsules with dynamic routing, a margin loss on one-hot targets, and a reconstruction."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def squash(x, dim=-1):
    norm2 = (x**2).sum(dim=dim, keepdim=True)
    return norm2 / (1 + norm2) * x / (norm2.sqrt() + 1e-8)


class Capsules(nn.Module):
    def __init__(self, inputs=6, in_dim=3, outputs=3, out_dim=4):
        super().__init__()
        self.W = nn.Parameter(torch.randn(1, inputs, outputs, out_dim, in_dim) * 0.1)
        self.decoder = nn.Sequential(nn.Linear(outputs * out_dim, 8), nn.ReLU(), nn.Linear(8, inputs * in_dim))

    def forward(self, u, routings=3):
        u_hat = (self.W @ u[:, :, None, :, None]).squeeze(-1)
        b = u_hat.new_zeros(u_hat.shape[:3])
        detached = u_hat.detach()
        for r in range(routings):
            c = F.softmax(b, dim=2)
            votes = u_hat if r == routings - 1 else detached
            v = squash((c.unsqueeze(-1) * votes).sum(dim=1))
            if r < routings - 1:
                b = b + torch.einsum("bjd,bijd->bij", v, detached)
        return v

    def reconstruct(self, v, y):
        return self.decoder((v * y[:, :, None]).flatten(start_dim=1))


def train(run):
    model = run.fill(Capsules())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @run.compile
    def step(u, target):
        optimizer.zero_grad()
        v = model(u)
        length = v.norm(dim=-1)
        y = F.one_hot(target, num_classes=3).to(length.dtype)
        margin = y * F.relu(0.9 - length) ** 2 + 0.5 * (1 - y) * F.relu(length - 0.1) ** 2
        loss = margin.sum(1).mean() + 0.05 * F.mse_loss(model.reconstruct(v, y), u.flatten(1))
        loss.backward()
        optimizer.step()
        return loss, length

    u, target = squash(run.wave(4, 6, 3)), run.labels(4, classes=3)
    for _ in range(5):
        loss, length = step(u, target)
        run.log(loss=loss, length=length)
    run.state(model)
