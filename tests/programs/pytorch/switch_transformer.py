"""A switch layer: each token goes to one expert, some experts are idle, and a load-balancing loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SwitchFeedForward(nn.Module):
    def __init__(self, width=4, experts=4):
        super().__init__()
        self.n_experts = experts
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width)) for _ in range(experts)]
        )
        self.switch = nn.Linear(width, experts)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        route_prob = self.softmax(self.switch(x))
        route_prob_max, routes = torch.max(route_prob, dim=-1)
        indexes = [torch.eq(routes, i).nonzero(as_tuple=True)[0] for i in range(self.n_experts)]
        final = x.new_zeros(x.shape)
        for i in range(self.n_experts):
            final[indexes[i], :] = self.experts[i](x[indexes[i], :])
        final = final * route_prob_max.view(-1, 1)
        counts = x.new_tensor([len(indexes[i]) for i in range(self.n_experts)])
        balance = self.n_experts * (counts / counts.sum() * route_prob.mean(0)).sum()
        return final.view(shape), counts, balance


def train(run):
    layer = run.fill(SwitchFeedForward())
    with torch.no_grad():
        layer.switch.bias[2] = -9.0  # this expert gets no token
    head = run.fill(nn.Linear(4, 2))
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1, momentum=0.5)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        out, counts, balance = layer(x)
        loss = F.cross_entropy(head(x + out).mean(1), y) + 0.01 * balance
        loss.backward()
        optimizer.step()
        return loss, counts

    x, y = run.wave(3, 3, 4), run.labels(3, classes=2)
    for _ in range(5):
        loss, counts = step(x, y)
        run.log(loss=loss, counts=counts)
    run.state(layer)
