"""A mixture density network: a mixture of normal distributions, with `MixtureSameFamily` and by hand."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, MixtureSameFamily, Normal


class MDN(nn.Module):
    def __init__(self, hidden=6, components=3):
        super().__init__()
        self.z = nn.Sequential(nn.Linear(1, hidden), nn.Tanh())
        self.pi, self.mu, self.sigma = (nn.Linear(hidden, components) for _ in range(3))

    def forward(self, x):
        h = self.z(x)
        return self.pi(h), self.mu(h), F.elu(self.sigma(h)) + 1 + 1e-4


def nll_by_hand(pi, mu, sigma, y):
    log_normal = -0.5 * ((y - mu) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(F.log_softmax(pi, dim=1) + log_normal, dim=1).mean()


def train(run):
    model = run.fill(MDN())
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        pi, mu, sigma = model(x)
        mixture = MixtureSameFamily(Categorical(logits=pi), Normal(mu, sigma))
        loss = -mixture.log_prob(y.squeeze(1)).mean()
        loss.backward()
        optimizer.step()
        return loss, nll_by_hand(pi, mu, sigma, y), mixture.mean

    x, y = run.wave(7, 1, scale=2.0), run.wave(7, 1, shift=1.0)
    for _ in range(5):
        loss, by_hand, mean = step(x, y)
        run.log(loss=loss, by_hand=by_hand.detach(), mean=mean)
    run.state(model)
