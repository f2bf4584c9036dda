"""A critic with gradient penalty: the derivative of a gradient's norm."""

import torch
import torch.nn as nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 6), nn.SiLU(), nn.Linear(6, 1))

    def forward(self, x):
        return self.model(x).view(-1)


def gradient_penalty(critic, real, fake, alpha):
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(mixed)
    gradients = torch.autograd.grad(
        outputs=scores,
        inputs=mixed,
        grad_outputs=torch.ones_like(scores),
        create_graph=True,
        retain_graph=True,
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def train(run):
    critic = run.fill(Critic())
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-2)

    @run.compile
    def step(real, fake, alpha):
        optimizer.zero_grad()
        penalty = gradient_penalty(critic, real, fake, alpha)
        loss = critic(fake).mean() - critic(real).mean() + 10.0 * penalty
        loss.backward()
        optimizer.step()
        return loss, penalty

    real, fake = run.wave(5, 4), run.wave(5, 4, scale=0.5, shift=2.0)
    for n in range(5):
        loss, penalty = step(real, fake, run.wave(5, 1, scale=0.5, shift=n) + 0.5)
        run.log(loss=loss, penalty=penalty)
    run.state(critic)
