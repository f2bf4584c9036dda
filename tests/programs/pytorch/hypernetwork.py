"""A hypernetwork makes the weights of a network; parameters of dicts and lists; gates by `torch.where` and `clamp`."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class HyperNetwork(nn.Module):
    def __init__(self, tasks=3, code=2, inputs=3, hidden=4):
        super().__init__()
        self.codes = nn.ParameterList([nn.Parameter(torch.zeros(code)) for _ in range(tasks)])
        self.sizes = {"w1": (hidden, inputs), "b1": (hidden,), "w2": (1, hidden), "b2": (1,)}
        self.makers = nn.ModuleDict({k: nn.Linear(code, torch.Size(s).numel()) for k, s in self.sizes.items()})
        self.scale = nn.ParameterDict({k: nn.Parameter(torch.ones(1)) for k in self.sizes})

    def forward(self, task, x):
        w = {k: self.scale[k] * make(self.codes[task]).view(self.sizes[k]) for k, make in self.makers.items()}
        h = F.linear(x, w["w1"], w["b1"])
        h = torch.where(h > 0, h, 0.1 * torch.expm1(h.clamp(max=0)))
        return F.linear(h, w["w2"], w["b2"]).squeeze(-1)


def train(run):
    net = run.fill(HyperNetwork())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02, eps=1e-4)

    @run.compile
    def step(x, y):
        losses = [F.mse_loss(net(task, x[task]), y[task]) for task in range(3)]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
        return losses

    x, y = run.wave(3, 5, 3), run.wave(3, 5, shift=1.0)
    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(net)
