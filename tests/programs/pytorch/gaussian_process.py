"""A Gaussian process: the marginal likelihood by a Cholesky factor, hyperparameters by gradients, a prediction."""

import math

import torch
import torch.nn as nn


class GP(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length = nn.Parameter(torch.tensor(0.0))
        self.log_scale = nn.Parameter(torch.tensor(0.3))
        self.log_noise = nn.Parameter(torch.tensor(-1.0))

    def kernel(self, a, b):
        return self.log_scale.exp() * torch.exp(-0.5 * torch.cdist(a, b).pow(2) / self.log_length.exp() ** 2)

    def factor(self, x):
        return torch.linalg.cholesky(self.kernel(x, x) + self.log_noise.exp() * torch.eye(len(x)))

    def forward(self, x, y):
        L = self.factor(x)
        alpha = torch.cholesky_solve(y.unsqueeze(1), L).squeeze(1)
        return 0.5 * y @ alpha + L.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)

    def predict(self, x, y, new):
        L, k = self.factor(x), self.kernel(x, new)
        v = torch.linalg.solve_triangular(L, k, upper=False)
        mean = k.T @ torch.cholesky_solve(y.unsqueeze(1), L)
        return mean.squeeze(1), self.kernel(new, new).diagonal() - (v * v).sum(0)


def train(run):
    gp = GP()
    optimizer = torch.optim.Adam(gp.parameters(), lr=0.1)
    x, y = torch.linspace(0, 3, 6).unsqueeze(1), run.wave(6)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = gp(x, y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(gp)
    with torch.no_grad():
        run.log(prediction=gp.predict(x, y, x + 0.25))
