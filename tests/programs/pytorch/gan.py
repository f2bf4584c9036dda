"""A generative adversarial network: two networks, two optimizers, one step."""

import torch
import torch.nn as nn


def train(run):
    generator = run.fill(nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 3), nn.Tanh()))
    critic = run.fill(nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid()))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCELoss()

    @run.compile
    def step(real, noise):
        valid = torch.ones(real.size(0), 1)
        fake = torch.zeros(real.size(0), 1)

        optimizer_d.zero_grad()
        samples = generator(noise)
        loss_real = criterion(critic(real), valid)
        loss_fake = criterion(critic(samples.detach()), fake)
        loss_d = 0.5 * (loss_real + loss_fake)
        loss_d.backward()
        optimizer_d.step()

        optimizer_g.zero_grad()
        loss_g = criterion(critic(samples), valid)
        loss_g.backward()
        optimizer_g.step()
        return loss_d, loss_g

    real = run.wave(6, 3, scale=0.8)
    for n in range(5):
        loss_d, loss_g = step(real, run.wave(6, 2, shift=n))
        run.log(loss_d=loss_d, loss_g=loss_g)
    run.state(generator, "generator.")
    run.state(critic, "critic.")
