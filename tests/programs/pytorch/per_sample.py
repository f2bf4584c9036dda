"""Differentially private training: gradients of each sample by `vmap` of `grad`, clipped and averaged."""

import torch
import torch.nn as nn
from torch.func import functional_call, grad, vmap


def train(run):
    model = run.fill(nn.Sequential(nn.Conv1d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def compute_loss(params, buffers, sample, target):
        out = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
        return nn.functional.cross_entropy(out, target.unsqueeze(0))

    per_sample_grad = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))

    @run.compile
    def step(data, targets):
        params = {k: v.detach() for k, v in model.named_parameters()}
        buffers = {k: v.detach() for k, v in model.named_buffers()}
        grads = per_sample_grad(params, buffers, data, targets)
        norms = torch.stack([g.reshape(len(g), -1).norm(2, dim=-1) for g in grads.values()], dim=1).norm(2, dim=1)
        factor = (0.5 / (norms + 1e-6)).clamp(max=1.0)
        for name, p in model.named_parameters():
            p.grad = torch.einsum("i,i...->...", factor, grads[name]) / len(data)
        optimizer.step()
        return norms

    for n in range(5):
        run.log(norms=step(run.wave(5, 1, 6, shift=n), run.labels(5, classes=2)))
    run.state(model)
