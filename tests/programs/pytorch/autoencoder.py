"""A convolutional autoencoder: pooling with indices, unpooling, transposed convolutions, a sparse code."""

import torch
import torch.nn as nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.pool = nn.MaxPool2d(2, stride=2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2, stride=2)
        self.squeeze = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.expand = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1)
        self.deconv = nn.ConvTranspose2d(3, 1, 3, padding=1)

    def forward(self, x):
        h, indices = self.pool(torch.relu(self.conv(x)))
        code = torch.tanh(self.squeeze(h))
        h = torch.relu(self.expand(code))
        return torch.sigmoid(self.deconv(self.unpool(h, indices, output_size=x.size()))), code


def train(run):
    model = run.fill(AutoEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    @run.compile
    def step(x):
        recon, code = model(x)
        loss = nn.functional.mse_loss(recon, x) + 1e-2 * code.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = run.wave(2, 1, 8, 8, scale=0.5) + 0.5
    for _ in range(5):
        run.log(loss=step(x))
    run.state(model)
