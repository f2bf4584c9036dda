"""Variational inference with `torch.distributions`: log-densities, entropies, divergences, noise from outside."""

import torch
import torch.nn as nn
from torch.distributions import Bernoulli, Beta, Gamma, Independent, MultivariateNormal, Normal, kl_divergence


class Guide(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc, self.log_scale = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
        self.tril = nn.Parameter(torch.zeros(2, 2))
        self.ab = nn.Parameter(torch.zeros(2))

    def posterior(self):
        return Independent(Normal(self.loc, self.log_scale.exp()), 1)


def train(run):
    guide = run.fill(Guide())
    optimizer = torch.optim.Adam(guide.parameters(), lr=0.05)
    prior = Independent(Normal(torch.zeros(3), torch.ones(3)), 1)

    @run.compile
    def step(x, y, eps):
        optimizer.zero_grad()
        q = guide.posterior()
        z = q.mean + eps * q.stddev
        likelihood = Bernoulli(logits=x @ z).log_prob(y).sum()
        plane = MultivariateNormal(torch.zeros(2), scale_tril=torch.tril(guide.tril, -1) + torch.eye(2))
        a, b = nn.functional.softplus(guide.ab)
        shapes = kl_divergence(Beta(1 + a, 1 + b), Beta(torch.tensor(2.0), torch.tensor(3.0)))
        rate = Gamma(1.0 + a, 2.0).log_prob(torch.tensor(0.7)) - Normal(0.0, 1 + b).log_prob(torch.tensor(0.3))
        loss = kl_divergence(q, prior) - likelihood - plane.log_prob(x[:, :2]).mean() + shapes - rate
        loss = loss - 0.1 * q.entropy()
        loss.backward()
        optimizer.step()
        return loss

    x, y = run.wave(6, 3), (run.wave(6, shift=1.0) > 0).to(torch.get_default_dtype())
    for n in range(5):
        run.log(loss=step(x, y, run.wave(3, shift=n)))
    run.state(guide)
