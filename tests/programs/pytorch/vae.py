"""A variational autoencoder whose noise is an argument."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(12, 8)
        self.mean, self.logvar = nn.Linear(8, 3), nn.Linear(8, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12), nn.Sigmoid())

    def encode(self, x):
        h = F.relu(self.hidden(x))
        return self.mean(h), self.logvar(h)

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 12))
        z = mu + eps * torch.exp(0.5 * logvar)
        return self.decoder(z), mu, logvar


def elbo(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 12), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def train(run):
    model = run.fill(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    @run.compile
    def step(x, eps):
        optimizer.zero_grad()
        recon, mu, logvar = model(x, eps)
        loss = elbo(recon, x, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss

    x = run.wave(5, 3, 4) * 0.5 + 0.5
    for n in range(5):
        run.log(loss=step(x, run.wave(5, 3, shift=n)).item())
    run.state(model)
