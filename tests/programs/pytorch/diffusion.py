"""A denoising diffusion step: a schedule of betas, embeddings of time, a predicted noise, and one sample."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        scale = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        angles = t[:, None] * scale[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(6), nn.Linear(6, 8), nn.GELU())
        self.down, self.mid, self.up = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x, t):
        h = F.silu(self.down(x))
        g = F.silu(self.mid(h + self.time(t)))
        return self.up(torch.cat([h, g], dim=1))


class Diffusion:
    def __init__(self, steps=20):
        self.betas = torch.linspace(1e-3, 0.2, steps)
        self.alphas_bar = torch.cumprod(1.0 - self.betas, dim=0)

    def q_sample(self, x, t, noise):
        a = self.alphas_bar.gather(0, t).unsqueeze(1)
        return a.sqrt() * x + (1 - a).sqrt() * noise

    @torch.no_grad()
    def p_mean(self, model, x, t):
        beta, bar = self.betas[t][:, None], self.alphas_bar[t][:, None]
        return (x - beta / (1 - bar).sqrt() * model(x, t)) / (1 - beta).sqrt()


def train(run):
    model, diffusion = run.fill(Denoiser()), Diffusion()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    @run.compile
    def step(x, t, noise):
        optimizer.zero_grad()
        loss = F.mse_loss(model(diffusion.q_sample(x, t, noise), t), noise)
        loss.backward()
        optimizer.step()
        return loss

    x = run.wave(6, 4)
    for n in range(5):
        run.log(loss=step(x, run.labels(6, classes=20, shift=n), run.wave(6, 4, shift=n + 1)))
    run.state(model)
    run.log(sample=diffusion.p_mean(model, x, torch.full((6,), 7)))
